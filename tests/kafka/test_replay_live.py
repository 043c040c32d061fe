"""`offsetzero replay` of a group that runs: its members are told, and nobody else notices."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from commands import CommandsHere
from kafka.conftest import RunningGroup
from kafka.test_group_positions import audit_group, publish, spoken

from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.settings import Settings
from offsetzero.topics import lag, offsets
from support import wait_until

WHY = ("--why", "a handler was wrong", "--yes")
PARTITIONS = 6


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": PARTITIONS})})


@pytest.fixture
def here(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> CommandsHere:
    return CommandsHere(settings, monkeypatch)


class Seen:
    """What handlers were given, by name."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self.names: list[str] = []

    def __call__(self, name: str, _ctx: Context) -> None:
        with self._guard:
            self.names.append(name)


@contextmanager
def members(settings: Settings, count: int, group: Callable[[], ConsumerGroup]) -> Iterator[list[RunningGroup]]:
    with ExitStack() as stack:
        made = []
        for _ in range(count):
            member = RunningGroup(group(), settings)
            stack.callback(member.stop)
            made.append(member)
        yield made


def fill(settings: Settings, each: int) -> None:
    for partition in range(PARTITIONS):
        publish(settings, partition * each, (partition + 1) * each, partition)


def committed(settings: Settings) -> dict[int, int]:
    places = [("documents", number) for number in range(PARTITIONS)]
    return {place[1]: one.offset for place, one in offsets.committed(settings, "audit", places).items()}


def shares(settings: Settings) -> dict[str, tuple[tuple[str, int], ...]]:
    """Member ids and what each has."""
    return {member.id: member.assignment for member in lag.group_state(settings, "audit").members}


def settle(settings: Settings, count: int, each: int) -> dict[str, tuple[tuple[str, int], ...]]:
    """Wait until so many members share the partitions and all is read."""
    wait_until(
        lambda: (
            len(found := shares(settings)) == count
            and all(found.values())
            and sum(topic == "documents" for one in found.values() for topic, _ in one) == PARTITIONS
        ),
        60,
        what=f"{count} members with partitions",
    )
    wait_until(lambda: committed(settings) == dict.fromkeys(range(PARTITIONS), each), 60, what="all read")
    return shares(settings)


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_running_group_reads_again_within_two_seconds_and_without_a_rebalance(
    settings: Settings, topics: None, here: CommandsHere, protocol: str
) -> None:
    settings, seen, each = spoken(settings, protocol), Seen(), 5
    fill(settings, each)
    with members(settings, 2, lambda: audit_group(seen, database=False)):
        before = settle(settings, 2, each)
        first = len(seen.names)
        begun = time.monotonic()
        done = here("replay", "audit", "--from", "earliest", *WHY)
        took = time.monotonic() - begun
        assert done.stdout.count(" applied ") == PARTITIONS, done.stdout
        print(f"took {took:.2f} s")
        wait_until(lambda: len(seen.names) == first + PARTITIONS * each, what="all handled again")
        wait_until(lambda: committed(settings) == dict.fromkeys(range(PARTITIONS), each), what="all read again")
        assert sorted(map(int, seen.names[first:])) == list(range(PARTITIONS * each))
        assert shares(settings) == before, "no rebalance"
