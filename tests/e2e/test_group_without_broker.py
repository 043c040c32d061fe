"""A member whose broker is dead, or does not answer any more: it is alive, ends in time, and nothing is lost."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from kafka.conftest import RunningGroup, uploaded

from broker_config import BROKER
from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.embedded.kafka import Kafka
from offsetzero.producers.publisher import Publisher
from offsetzero.retry.failures import Transient
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings
from offsetzero.topics import catalogue, cluster
from support import passes, wait_until, within

DRAIN_SECONDS, REST_SECONDS = 3.0, 15.0


@pytest.mark.timed
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["dead", "silent"])
def test_a_member_ends_in_time_without_a_broker(how: signal.Signals, tmp_path: Path) -> None:
    """confluent-kafka-python#1667, quix#637: close hangs. Commits, appends, leaving: all without an answer."""
    audit, gate, seen = ConsumerGroup("audit", database=False, concurrency=8), threading.Event(), list[str]()

    @audit.handler(DocumentUploaded)
    def handle(event: DocumentUploaded, ctx: Context) -> None:
        seen.append(event.name)
        if event.name == "failing":
            gate.wait(60)
            raise Transient("busy", "to be appended to a retry topic")

    with Kafka(tmp_path / "kafka", config=BROKER) as broker:
        settings = Settings(
            home=tmp_path,
            kafka={"bootstrap_servers": broker.bootstrap_servers},
            groups={"drain_seconds": DRAIN_SECONDS, "stall_seconds": 4.0},
        )
        cluster.ensure(settings, [topic.resolved(settings) for topic in catalogue.TOPICS])
        with Publisher(settings) as publisher:
            for number in range(200):
                publisher.publish(uploaded(name="failing" if number % 50 == 49 else "good"))
        member = RunningGroup(audit, settings)
        wait_until(lambda: seen.count("good") == 196 and seen.count("failing") == 4, what="all begun")
        os.kill(broker.pid, how)
        gate.set()
        passes(6.0)  # more than the bound of a stall
        health = member.runtime.health()
        begun = time.monotonic()
        left = member.stop()
        took = time.monotonic() - begun
        broker.kill()
    assert health.alive, "a restart would not bring the broker back"
    within(DRAIN_SECONDS + REST_SECONDS, took, "its end")
    assert len(left) == 4, "their retries are not in the log: they are read again"
