"""`offsetzero replay` of a group that runs: its members are told, and nobody else notices."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest
from commands import Commands, CommandsHere
from kafka import enriching
from kafka.conftest import RunningGroup, await_effects, effects
from kafka.enriching import outputs
from kafka.test_group_generations import named, names_group, one, read
from kafka.test_group_positions import Running, audit_group, publish, spoken
from kafka.test_group_transactional import is_caught_up

from offsetzero.clock import SYSTEM
from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.replaying import live, spans
from offsetzero.consumers.replaying.live import Became
from offsetzero.settings import Settings
from offsetzero.topics import lag, offsets, points
from support import wait_until, within

SECONDS = 2.0
"""Within which a group has to read from elsewhere whose handlers are quick."""
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


class Blocking(Seen):
    """Holds up the handlers of one name."""

    def __init__(self, blocked: str) -> None:
        super().__init__()
        self.blocked = blocked
        self.is_open = threading.Event()

    def __call__(self, name: str, ctx: Context) -> None:
        super().__call__(name, ctx)
        if name == self.blocked:
            assert self.is_open.wait(60)


def answers(stdout: str) -> dict[str, str]:
    """What became of each partition, as it was shown."""
    rows = [line.split(maxsplit=2) for line in stdout.split("became")[1].splitlines()[1:]]
    return {row[0]: " ".join(" ".join(row[1:]).split()) for row in rows}


@pytest.mark.timed
@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_running_group_reads_again_within_two_seconds_and_without_a_rebalance(
    settings: Settings, here: CommandsHere, database: psycopg.Connection, protocol: str
) -> None:
    settings, seen, each = spoken(settings, protocol), Seen(), 5
    fill(settings, each)
    with members(settings, 2, lambda: audit_group(seen, database=False)):
        before = settle(settings, 2, each)
        first = len(seen.names)
        asked = spans.find(settings, "audit", points.parse_with_ago("--from", "earliest", SYSTEM.now()))
        begun = SYSTEM.monotonic()
        told = live.replay(settings, "audit", asked, 30.0)
        took = SYSTEM.monotonic() - begun
        assert [(one.became, one.offset) for one in told] == [(Became.APPLIED, 0)] * PARTITIONS
        within(SECONDS, took, "a replay")
        wait_until(lambda: len(seen.names) == first + PARTITIONS * each, what="all handled again")
        wait_until(lambda: committed(settings) == dict.fromkeys(range(PARTITIONS), each), what="all read again")
        done = here("replay", "audit", "--from", "3", "--topic", "documents", "--partition", "4", *WHY)
        assert "audit is running: its members are told" in done.stderr
        assert "0 of them have their outcome" in done.stderr
        assert answers(done.stdout) == {"documents/4": "applied 3"}
        wait_until(lambda: len(seen.names) == first + PARTITIONS * each + 2, what="two of them once more")
        wait_until(lambda: committed(settings) == dict.fromkeys(range(PARTITIONS), each), what="all read again")
        assert Counter(seen.names[first:]) == Counter(map(str, [*range(PARTITIONS * each), 23, 24]))
        assert shares(settings) == before, "no rebalance"
    way, ended = database.execute("SELECT way, ended FROM replays").fetchone() or ("", "")
    assert (way, ended) == ("live", "1 applied")


@pytest.mark.usefixtures("topics")
def test_work_in_flight_is_finished_and_each_event_has_its_effect_once(
    settings: Settings, here: CommandsHere, database: psycopg.Connection
) -> None:
    each, seen = 40, Seen()

    def slow(name: str, ctx: Context) -> None:
        seen(name, ctx)
        threading.Event().wait(0.02)

    fill(settings, each)
    with members(settings, 2, lambda: audit_group(slow, concurrency=4)):
        wait_until(lambda: sum(committed(settings).values()) > PARTITIONS * 3, 60, what="some are done, some in work")
        shown = here("replay", "audit", "--from", "earliest", *WHY)
        assert [one.split()[0] for one in answers(shown.stdout).values()] == ["applied"] * PARTITIONS
        assert "of them have their outcome, and are not done again" in shown.stderr
        await_effects(database, PARTITIONS * each, 60)
        wait_until(lambda: committed(settings) == dict.fromkeys(range(PARTITIONS), each), 60, what="all read again")
    assert sorted(int(name) for _, name, _ in effects(database)) == list(range(PARTITIONS * each))
    assert max(Counter(seen.names).values()) == 1, "what was handled before is passed over without its handler"


@pytest.mark.usefixtures("topics")
def test_a_handler_that_hangs_prevents_it_for_its_partition_and_nothing_of_that_is_read_again(
    settings: Settings, here: CommandsHere, database: psycopg.Connection
) -> None:
    each, seen = 5, Blocking("6")  # the second of partition 1
    fill(settings, each)
    with members(settings, 1, lambda: audit_group(seen, database=False)):
        wait_until(lambda: len(seen.names) == PARTITIONS * each, what="all begun")
        wait_until(lambda: committed(settings) == {**dict.fromkeys(range(PARTITIONS), each), 1: 1}, what="commits")
        shown = here("replay", "audit", "--from", "earliest", "--wait", "10", *WHY, status=4)
        became = answers(shown.stdout)
        assert [became[f"documents/{number}"] for number in (0, 2, 3, 4, 5)] == ["applied 0"] * 5
        assert became["documents/1"] == (
            "prevented what is at work did not end in time: documents/1@1; Kafka has its position at 1, as before"
        )
        seen.is_open.set()
        wait_until(lambda: committed(settings) == dict.fromkeys(range(PARTITIONS), each), what="all read")
    told = Counter(seen.names)
    assert {told[str(number)] for number in range(5, 10)} == {1}
    assert {told[str(number)] for number in (*range(5), *range(10, 30))} == {2}
    ended = one(database, "SELECT ended FROM replays")
    assert ended == f"5 applied, 1 prevented; documents/1: {became['documents/1'].removeprefix('prevented ')}"


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_rebalance_in_the_middle_leaves_no_partition_without_an_answer(settings: Settings, protocol: str) -> None:
    settings, each, seen = spoken(settings, protocol), 5, Blocking("26")  # of partition 5, which the second member gets
    fill(settings, each)
    asked = []

    def ask() -> None:
        whole = spans.find(settings, "audit", points.parse_with_ago("--from", "earliest", SYSTEM.now()))
        asked.extend(live.replay(settings, "audit", whole, 40.0))

    with members(settings, 1, lambda: audit_group(seen, database=False)):
        wait_until(lambda: len(seen.names) == PARTITIONS * each, what="all begun")
        asking = threading.Thread(target=ask)
        asking.start()
        wait_until(lambda: len(seen.names) == (2 * PARTITIONS - 1) * each, what="five partitions read again")
        with members(settings, 1, lambda: audit_group(seen, database=False)):
            wait_until(lambda: len(shares(settings)) == 2 and all(shares(settings).values()), 60, what="a rebalance")
            seen.is_open.set()
            asking.join(60)
            told = {one.span.partition: one for one in asked}
            assert sorted(told) == list(range(PARTITIONS))
            assert {one.became for one in told.values()} <= {Became.APPLIED, Became.LOST_PARTITION}, told
            assert told[5].became is Became.APPLIED, "who has lost it leaves it to the next owner"
            wait_until(lambda: committed(settings) == dict.fromkeys(range(PARTITIONS), each), 60, what="all read")
    assert all(count >= 2 for count in Counter(seen.names).values()), "each record of the span was handled again"


KILLED = """
import os, signal
from offsetzero import ConsumerGroup, DocumentUploaded, Projection
from offsetzero.consumers.reading.commits import Commits

audit = ConsumerGroup("audit", topics=["documents"], {options})
before = Commits.commit

def commit(self, consumer, stays, **given):
    stays = list(stays)
    if any(stay.target is not None and stay.position is not None for stay in stays):
        os.kill(os.getpid(), signal.SIGKILL)
    before(self, consumer, stays, **given)

Commits.commit = commit

@audit.handler(DocumentUploaded)
def note(event, ctx):
    with open("handled", "a") as file:
        file.write(event.name + "\\n")
"""


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("database=False", "Kafka has its position at 5, as before"),
        (
            "projection=Projection('CREATE TABLE t ()')",
            "the database has its position at 2: it was set back, and is read from there by who has it next",
        ),
    ],
    ids=["no-database", "projection"],
)
def test_a_member_that_is_killed_between_seek_and_commit_does_not_answer_and_the_state_is_told(
    settings: Settings, tmp_path: Path, options: str, said: str
) -> None:
    offsetzero = Commands(settings, tmp_path)
    (tmp_path / "mine.py").write_text(KILLED.format(options=options))
    publish(settings, 0, 5)
    process = offsetzero.start("groups", "run", "mine:audit")
    try:
        wait_until(lambda: committed(settings).get(0) == 5, 60, what="all read")
        ask = ("replay", "audit", "--from", "2", "--topic", "documents", "--partition", "0")
        done = offsetzero(*ask, "--wait", "10", *WHY, status=4)
        assert process.wait(60) == -9
    finally:
        process.kill()
        process.wait()
    assert answers(done.stdout) == {"documents/0": f"no answer no member has answered; {said}"}
    assert "No member has documents/0 now: waiting, 10 s in all." in done.stderr
    assert committed(settings)[0] == 5
    assert len((tmp_path / "handled").read_text().split()) == 5, "it has done nothing of the replay"


@pytest.mark.usefixtures("enriched")
def test_a_transactional_group_makes_its_outputs_again(
    settings: Settings, here: CommandsHere, running: Running
) -> None:
    fill(settings, 4)
    with running(enriching.make()):
        wait_until(lambda: is_caught_up(settings), 60, what="lag 0")
        shown = here("replay", "enricher", "--from", "1", "--topic", "documents", "--partition", "2", *WHY)
        assert answers(shown.stdout) == {"documents/2": "applied 1"}
        wait_until(lambda: sum(outputs(settings).values()) == PARTITIONS * 4 + 3, 60, what="three of them again")
        wait_until(lambda: is_caught_up(settings), 60, what="lag 0")
    assert sorted(outputs(settings).values()) == [1] * (PARTITIONS * 4 - 3) + [2] * 3


@pytest.mark.usefixtures("topics")
def test_a_projections_position_in_the_database_goes_back_too(
    settings: Settings, here: CommandsHere, database: psycopg.Connection, running: Running
) -> None:
    fill(settings, 4)
    with running(names_group()):
        wait_until(lambda: one(database, "SELECT to_regclass('names_g1.names')") and named(database) == 24, what="rows")
        wait_until(lambda: read(database) == 24, what="positions")
        database.execute("TRUNCATE names_g1.names, processed_events")  # as if an older copy had been restored
        here("replay", "names", "--from", "earliest", "--topic", "documents", *WHY)
        wait_until(lambda: named(database) == 24, what="rows, made again")
        wait_until(lambda: read(database) == 24, what="positions")


@pytest.mark.usefixtures("topics")
def test_a_request_that_is_read_twice_is_done_once(
    settings: Settings, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Seen()
    fill(settings, 5)
    monkeypatch.setattr(live, "uuid4", lambda: UUID(int=7))  # two commands, one request
    with running(audit_group(seen, database=False)):
        wait_until(lambda: committed(settings) == dict.fromkeys(range(PARTITIONS), 5), what="all read")
        whole = spans.find(settings, "audit", points.parse_with_ago("--from", "earliest", SYSTEM.now()))
        for _ in range(2):
            assert {one.became for one in live.replay(settings, "audit", whole, 30.0)} == {Became.APPLIED}
        wait_until(lambda: len(seen.names) == 60, what="all handled again")
        live_again = uuid4()
        monkeypatch.setattr(live, "uuid4", lambda: live_again)
        live.replay(settings, "audit", whole[:1], 30.0)
        wait_until(lambda: len(seen.names) == 65, what="the first partition once more")
    assert len(seen.names) == 65
