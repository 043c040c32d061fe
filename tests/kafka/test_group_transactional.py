"""Kafka-transactional groups on the real broker: outputs, retries, dead letters and offsets are committed together."""

import contextlib
from collections import Counter
from collections.abc import Callable

import pytest
from kafka import enriching
from kafka.conftest import RunningGroup, await_dead_letters, uploaded
from kafka.enriching import outputs

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
