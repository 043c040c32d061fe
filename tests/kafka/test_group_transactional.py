"""Kafka-transactional groups on the real broker: outputs, retries, dead letters and offsets are committed together."""

import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka import enriching
from kafka.conftest import RunningGroup, await_dead_letters, uploaded
from kafka.enriching import Members, is_stopped, outputs, read_all

from broker_config import BROKER
from offsetzero.embedded import ports
from offsetzero.embedded.kafka import Kafka
from offsetzero.errors import TopicError
from offsetzero.producers.publisher import Publisher
from offsetzero.producers.transactions import ProducerLost, TransactionalProducer
from offsetzero.settings import Settings
from offsetzero.topics import catalogue, cluster, lag
from offsetzero.topics.catalogue import group_topics
from offsetzero.topics.names import Names
from support import IS_NIGHT, wait_until

SOURCES = ["documents", "enricher.retry-1m", "enricher.retry-10m"]
KILLS = 8 if IS_NIGHT else 4
Running = Callable[..., contextlib.AbstractContextManager[RunningGroup]]


def publish(settings: Settings, names: list[str]) -> None:
    """Publish uploads of these names, each its event's id, too; of 40 keys."""
    keys = [uuid4() for _ in range(40)]
    with Publisher(settings) as publisher:
        for number, name in enumerate(names):
            publisher.publish(uploaded(keys[number % 40], name=name), event_id=name)


def is_caught_up(settings: Settings, group: str = "enricher") -> bool:
    """Whether every offset that the group can reach is committed, markers of transactions included."""
    try:
        offsets = lag.group_offsets(settings, group, SOURCES)
    except TopicError:  # the coordinator is still loading
        return False
    return bool(offsets) and all(one.lag == 0 and one.committed is not None for one in offsets)


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
        assert bool(read_all(settings, "enricher.retry-1m")) == (step == "after-commit"), "seen when committed"
        members.start()
        wait_until(lambda: is_caught_up(settings), 60, what="lag 0")
    assert outputs(settings) == Counter(names)
    retries = Counter(one["ce_id"] for one in read_all(settings, "enricher.retry-1m"))
    assert retries == Counter(name for name in names if name.startswith("transient")), "each failed once"


@pytest.mark.usefixtures("enriched")
@pytest.mark.timeout(300)
def test_outputs_are_once_while_members_are_killed_at_random(settings: Settings) -> None:
    """parallel-consumer#826: what was committed was not what was done."""
    names = [f"transient-{number}" if number % 50 == 0 else str(number) for number in range(KILLS * 750)]
    publish(settings, names)
    dice = random.Random(7)
    with Members(settings, OZ_TEST_PAUSE="0.003") as members:
        for _ in range(2):
            members.start()
        for _ in range(KILLS):
            before = min(len(outputs(settings)) + 300, len(names))
            wait_until(lambda before=before: len(outputs(settings)) >= before, 60, what="progress")
            time.sleep(dice.uniform(0, 0.3))
            members.kill(dice.choice(members.running))
            members.start()
        wait_until(lambda: is_caught_up(settings), 120, what="lag 0")
    found = outputs(settings)
    assert found == Counter(names), f"{len(found)} of {len(names)}; {[one for one in found.items() if one[1] > 1][:5]}"


@pytest.mark.usefixtures("enriched")
@pytest.mark.parametrize(("protocol", "step"), [("consumer", "send_offsets"), ("classic", "commit")])
def test_a_zombie_is_fenced_and_joins_again(settings: Settings, protocol: str, step: str) -> None:
    """A member is stopped within a transaction until others have its partitions and have done its records."""
    settings = _with_kafka(settings, protocol, {"session.timeout.ms": "3000"} if protocol == "classic" else {})
    names = [*map(str, range(300)), "transient-1", "transient-2"]
    with Members(settings) as members:
        zombie = members.start(OZ_TEST_STOP=step)
        wait_until(lambda: _owners(settings) == 1, 60, what="a member with partitions")
        members.start()
        wait_until(lambda: _owners(settings) == 2, 60, what="another one")
        publish(settings, names)
        wait_until(lambda: is_stopped(zombie), what="a stop in a transaction")
        wait_until(lambda: is_caught_up(settings), 90, what="lag 0 without the zombie")
        # readers wait behind its open transaction until the broker aborts that
        wait_until(lambda: outputs(settings) == Counter(names), what="the outputs of the others")
        zombie.send_signal(signal.SIGCONT)
        wait_until(lambda: _owners(settings) == 2, 60, what="its return")
        more = [f"after-{number}" for number in range(300)]
        publish(settings, more)
        wait_until(lambda: is_caught_up(settings) and len(outputs(settings)) == len(names + more), 60, what="the rest")
        assert zombie.poll() is None
    assert outputs(settings) == Counter(names + more)


@pytest.mark.usefixtures("enriched")
def test_a_member_held_up_longer_than_its_transaction_may_take_goes_on_by_itself(settings: Settings) -> None:
    """The broker has aborted, and the client's error is fatal; the membership is still there."""
    settings = _with_kafka(settings, "classic", {"session.timeout.ms": "60000"})
    names = [*map(str, range(200)), "transient-1"]
    publish(settings, names)
    with Members(settings, OZ_TEST_STOP="commit") as members:
        member = members.start()
        wait_until(lambda: is_stopped(member), 60, what="a stop before a commit")
        wait_until(lambda: _has_no_open_transaction(settings), 60, what="the broker's abort")
        assert not outputs(settings)
        member.send_signal(signal.SIGCONT)
        wait_until(lambda: is_caught_up(settings), 60, what="lag 0")
        assert member.poll() is None
    assert outputs(settings) == Counter(names)


@pytest.mark.usefixtures("enriched")
@pytest.mark.parametrize("lost", ["answer", "request"])
def test_what_became_of_a_commit_without_an_answer_is_looked_up(
    settings: Settings, running: Running, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Its producer is gone; the committed offsets tell whether to append all of it again."""
    names, losses, with_records = [*map(str, range(100)), "transient-1"], list[int](), set[int]()
    original, flushed = TransactionalProducer.commit, TransactionalProducer.flush

    def abort(timeout: float = 30.0) -> NoReturn:
        raise ProducerLost("gone")

    def flush(self: TransactionalProducer, timeout: float) -> int:
        if len(self):
            with_records.add(id(self))
        return flushed(self, timeout)

    def commit(self: TransactionalProducer, timeout: float = 30.0) -> None:
        if id(self) in with_records and len(losses) < 3:
            with_records.clear()
            losses.append(1)
            if lost == "answer":
                original(self, timeout)
            self.abort = abort  # type: ignore[method-assign]
            raise ProducerLost("gone")
        original(self, timeout)

    monkeypatch.setattr(TransactionalProducer, "commit", commit)
    monkeypatch.setattr(TransactionalProducer, "flush", flush)
    publish(settings, names)
    with running(enriching.make()):
        wait_until(lambda: is_caught_up(settings) and outputs(settings)["transient-1"], 60, what="lag 0")
    assert losses
    assert outputs(settings) == Counter(names)
    assert len(read_all(settings, "enricher.retry-1m")) == 1


@pytest.mark.usefixtures("enriched")
@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_members_that_come_and_go_double_nothing_and_keep_the_order_of_keys(settings: Settings, protocol: str) -> None:
    settings = _with_kafka(settings, protocol, {})
    keys = [uuid4() for _ in range(50)]
    with Publisher(settings) as publisher:
        for number in range(4_000):
            publisher.publish(uploaded(keys[number % 50], name=str(number)), event_id=str(number))
    running = [RunningGroup(enriching.make(), settings)]
    for _ in range(4):
        before = len(outputs(settings))
        running.append(RunningGroup(enriching.make(), settings))
        wait_until(lambda before=before: len(outputs(settings)) > before or is_caught_up(settings), 60, what="progress")
        if len(running) > 2:
            assert running.pop(0).stop() == []
    wait_until(lambda: is_caught_up(settings), 60, what="lag 0")
    for member in running:
        assert member.stop() == []
    found = read_all(settings, "enriched")
    assert sorted(int(one["ce_causationid"]) for one in found) == list(range(4_000))
    last: dict[str, int] = {}
    for one in found:
        number = int(one["ce_causationid"])
        assert last.get(one["ce_subject"], -1) < number, "the order of a key"
        last[one["ce_subject"]] = number


@pytest.mark.usefixtures("enriched")
def test_a_refused_append_stops_its_partition_and_no_other(settings: Settings, running: Running) -> None:
    """spring-kafka#1494: committed past a dead letter that nobody has."""
    dlq, admin = Names(settings.kafka.namespace).topic("enricher.dlq"), AdminClient(settings.kafka.client_config())
    with running(enriching.make()):
        admin.delete_topics([dlq])[dlq].result(10)
        publish(settings, ["poison-1", *map(str, range(200))])
        [stuck] = wait_until(lambda: _behind_poison(settings), 60, what="the position before the poison")
        others = [one for one in lag.group_offsets(settings, "enricher", ["documents"]) if one.partition != stuck]
        wait_until(lambda: _lags(settings, {one.partition for one in others}) == {0}, 60, what="the others' lag 0")
        assert _lags(settings, {stuck}) != {0}
        cluster.ensure(settings, group_topics("enricher", 6, ["retry-1m", "retry-10m"]))
        await_dead_letters(settings, "enricher", 1, 60)
        wait_until(lambda: is_caught_up(settings), 60, what="lag 0")
    assert len(read_all(settings, "enricher.dlq")) == 1
    assert outputs(settings) == Counter(map(str, range(200)))


@pytest.mark.timeout(240)
def test_a_broker_that_is_killed_and_comes_back_doubles_and_loses_nothing(tmp_path: Path) -> None:
    """The client waited for ever for the coordinator's old connection, in `send_offsets`."""
    with Kafka(tmp_path / "kafka", port=ports.free()[0], config=BROKER) as kafka:
        settings = Settings(
            home=tmp_path,
            kafka={"bootstrap_servers": kafka.bootstrap_servers, "options": {"reconnect.backoff.max.ms": "500"}},
            retry={"delays": {"retry-1m": 1.0, "retry-10m": 2.0}},
        )
        cluster.ensure(settings, [topic.resolved(settings) for topic in catalogue.TOPICS])
        enriching.prepare_topics(settings)
        count = 3_000 if IS_NIGHT else 1_000
        names = [f"transient-{number}" if number % 50 == 0 else str(number) for number in range(count)]
        publish(settings, names)
        with Members(settings, OZ_TEST_PAUSE="0.003") as members:
            members.start()
            for _ in range(2):
                before = len(outputs(settings))
                wait_until(lambda before=before: len(outputs(settings)) > before + 100, 60, what="progress")
                kafka.kill()
                kafka.start()
            wait_until(lambda: is_caught_up(settings), 90, what="lag 0")
            assert members.running[0].poll() is None
        assert outputs(settings) == Counter(names)


def _with_kafka(settings: Settings, protocol: str, options: dict[str, str]) -> Settings:
    kafka = settings.kafka.model_copy(update={"group_protocol": protocol, "options": options})
    return settings.model_copy(update={"kafka": kafka})


def _owners(settings: Settings) -> int:
    return len([one for one in lag.group_state(settings, "enricher").members if one.assignment])


def _has_no_open_transaction(settings: Settings) -> bool:
    """Whether what is in the topic of the outputs is committed or aborted: the last stable offset is the end."""
    name, admin = Names(settings.kafka.namespace).topic("enriched"), AdminClient(settings.kafka.client_config())
    asked = {TopicPartition(name, number): OffsetSpec.latest() for number in range(6)}
    ends = [
        {place.partition: future.result(10).offset for place, future in found.items()}
        for found in (admin.list_offsets(asked, isolation_level=level) for level in IsolationLevel)
    ]
    return ends[0] == ends[1] and sum(ends[0].values()) > 0


def _behind_poison(settings: Settings) -> list[int]:
    """The partition of the poison, once it is what the group has come to; nothing before that."""
    [place] = {(one["partition"], one["offset"]) for one in read_all(settings, "documents") if "poison" in one["ce_id"]}
    held = {one.partition: one.committed for one in lag.group_offsets(settings, "enricher", ["documents"])}
    return [place[0]] if held[place[0]] == place[1] else []


def _lags(settings: Settings, partitions: set[int]) -> set[int]:
    offsets = lag.group_offsets(settings, "enricher", ["documents"])
    return {one.lag for one in offsets if one.partition in partitions}
