"""Kafka-transactional groups on the real broker: outputs, retries, dead letters and offsets are committed together."""

import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Callable

import pytest
from kafka import enriching
from kafka.conftest import RunningGroup, await_dead_letters, uploaded
from kafka.enriching import Members, outputs, read_all

from offsetzero.errors import TopicError
from offsetzero.producers.publisher import Publisher
from offsetzero.settings import Settings
from offsetzero.topics import lag
from support import wait_until

SOURCES = ["documents", "enricher.retry-1m", "enricher.retry-10m"]
Running = Callable[..., contextlib.AbstractContextManager[RunningGroup]]


def publish(settings: Settings, names: list[str]) -> None:
    """Publish uploads of these names; each is its event's id, too."""
    with Publisher(settings) as publisher:
        for name in names:
            publisher.publish(uploaded(name=name), event_id=name)


def is_caught_up(settings: Settings, group: str = "enricher") -> bool:
    """Whether every offset that the group can reach is committed, markers of transactions included."""
    try:
        offsets = lag.group_offsets(settings, group, SOURCES)
    except TopicError:  # the coordinator is still loading
        return False
    return bool(offsets) and all(one.lag == 0 and one.committed is not None for one in offsets)


@pytest.fixture
def enriched(settings: Settings, topics: None) -> None:
    enriching.prepare_topics(settings)


@pytest.mark.usefixtures("enriched")
def test_each_event_has_its_output_once_and_the_lag_comes_to_zero(settings: Settings, running: Running) -> None:
    names = [str(number) for number in range(2_000)]
    publish(settings, names)
    with running(enriching.make()):
        wait_until(lambda: is_caught_up(settings), 60, what="lag 0")
    assert is_caught_up(settings)
    assert outputs(settings) == Counter(names)


@pytest.mark.usefixtures("enriched")
def test_outputs_of_a_failed_handler_are_not_published_and_its_retry_is(settings: Settings, running: Running) -> None:
    publish(settings, ["good", "transient-1", "poison-1"])
    with running(enriching.make()):
        [letter] = await_dead_letters(settings, "enricher", 1)
        wait_until(lambda: outputs(settings)["transient-1"], what="the retry's output")
        wait_until(lambda: is_caught_up(settings), what="lag 0")
    assert letter.reason == "corrupt"
    assert outputs(settings) == Counter(["good", "transient-1"])


@pytest.mark.usefixtures("enriched")
@pytest.mark.parametrize("step", ["send_offsets", "after-send_offsets", "commit", "after-commit"])
def test_a_member_killed_in_a_transaction_doubles_and_loses_nothing(settings: Settings, step: str) -> None:
    """Outputs, the retry record and the offsets of one transaction: all of them, or none."""
    names = [*map(str, range(50)), *(f"transient-{number}" for number in range(10))]
    publish(settings, names)
    with Members(settings) as members:
        assert members.start(OZ_TEST_DIE=step).wait(60) == -signal.SIGKILL
        in_log = Counter(one["ce_id"] for one in read_all(settings, "enricher.retry-1m", "read_uncommitted"))
        assert in_log, "the transaction had retry records in it"
        seen = outputs(settings) if step == "after-commit" else Counter[str]()
        assert bool(seen) == (step == "after-commit"), "only what was committed is seen"
        members.start()
        wait_until(lambda: is_caught_up(settings), 60, what="lag 0")
    assert outputs(settings) == Counter(names)
    retries = Counter(one["ce_id"] for one in read_all(settings, "enricher.retry-1m"))
    assert retries == Counter(name for name in names if name.startswith("transient")), "each failed once"


@pytest.mark.usefixtures("enriched")
@pytest.mark.timeout(300)
def test_outputs_are_once_while_members_are_killed_at_random(settings: Settings) -> None:
    """parallel-consumer#826: what was committed was not what was done."""
    names = [f"transient-{number}" if number % 50 == 0 else str(number) for number in range(6_000)]
    publish(settings, names)
    dice = random.Random(7)
    with Members(settings, OZ_TEST_PAUSE="0.003") as members:
        for _ in range(2):
            members.start()
        for _ in range(8):
            before = len(outputs(settings))
            wait_until(lambda before=before: len(outputs(settings)) >= min(before + 300, 6_000), 60, what="progress")
            time.sleep(dice.uniform(0, 0.3))
            members.kill(dice.choice(members.running))
            members.start()
        wait_until(lambda: is_caught_up(settings), 120, what="lag 0")
    found = outputs(settings)
    assert found == Counter(names), f"{len(found)} of {len(names)}; {[one for one in found.items() if one[1] > 1][:5]}"
