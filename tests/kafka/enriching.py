"""A Kafka-transactional group that makes an event of each event; run by tests, and by processes that they kill."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

from confluent_kafka import Consumer, KafkaError, TopicPartition

from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.working import making, transactional
from offsetzero.producers.transactions import TransactionalProducer
from offsetzero.retry.failures import Poison, Transient
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.schemas.event import Event
from offsetzero.settings import Settings
from offsetzero.topics import cluster
from offsetzero.topics.catalogue import Topic, declare
from offsetzero.topics.names import Names

ENRICHED = Topic("enriched", event_types=("document.enriched",), key="document id")
"""Not declared by an import: other tests of the same process look at what is declared."""


class DocumentEnriched(Event, type="document.enriched", key="document_id"):
    """What the group makes of an upload."""

    document_id: UUID
    name: str
    attempt: int


def enrich(event: DocumentUploaded, ctx: Context) -> None:
    """Publish, then fail as the document's name says: `transient`, or `poison`."""
    assert ctx.connection is None
    ctx.publish(DocumentEnriched(document_id=event.document_id, name=event.name, attempt=ctx.attempt))
    kind = event.name.partition("-")[0]
    if kind == "transient" and ctx.attempt == 1:
        raise Transient("busy")
    if kind == "poison":
        raise Poison("corrupt")
    time.sleep(float(os.environ.get("OZ_TEST_PAUSE", "0")))


def make(**options: Any) -> ConsumerGroup:
    """The group."""
    group = ConsumerGroup("enricher", transactional=True, **options)
    group.handler(DocumentUploaded)(enrich)
    return group


def prepare_topics(settings: Settings) -> None:
    """Have the topic of the outputs on the broker."""
    cluster.ensure(settings, [ENRICHED])


def read_all(settings: Settings, topic: str, isolation: str = "read_committed") -> list[dict[str, Any]]:
    """Every record of a topic up to its end: headers by name, and `partition`, `offset`, `timestamp_ms`, `value`."""
    config = settings.kafka.client_config()
    consumer = Consumer({**config, "group.id": "reader", "isolation.level": isolation, "enable.partition.eof": True})
    name = Names(settings.kafka.namespace).topic(topic)
    try:
        places = consumer.list_topics(name, 10).topics[name].partitions
        consumer.assign([TopicPartition(name, number, 0) for number in places])
        found, open_partitions = [], set(places)
        while open_partitions:
            message = consumer.poll(10)
            assert message is not None, "the end of the topic was not reached"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                open_partitions.discard(message.partition())
                continue
            headers = {key: value.decode(errors="replace") for key, value in message.headers() or [] if value}
            found.append(
                {
                    **headers,
                    "partition": message.partition(),
                    "offset": message.offset(),
                    "timestamp_ms": message.timestamp()[1],
                    "value": message.value(),
                }
            )
        return found
    finally:
        consumer.close()


def is_stopped(process: "subprocess.Popen[bytes]") -> bool:
    """Whether SIGSTOP has reached it."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def outputs(settings: Settings) -> "Counter[str]":
    """How often each source event has a committed output."""
    return Counter(record["ce_causationid"] for record in read_all(settings, "enriched"))


class Members:
    """Members of the group in processes of their own; ended at the end of a `with` block.

    Args:
        settings: of the test.
        environment: for all of them: `OZ_TEST_PAUSE` seconds in each handler; `OZ_TEST_DIE` and `OZ_TEST_STOP` a step
            of a transaction.
    """

    def __init__(self, settings: Settings, **environment: str) -> None:
        self._path = settings.home / "members.log"
        self._log = self._path.open("ab")
        self.running: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("OFFSETZERO_")},
            "OFFSETZERO_HOME": str(settings.home),
            "OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
            "OFFSETZERO_KAFKA__NAMESPACE": settings.kafka.namespace,
            "OFFSETZERO_KAFKA__GROUP_PROTOCOL": settings.kafka.group_protocol,
            "OFFSETZERO_KAFKA__OPTIONS": json.dumps(settings.kafka.options),
            "OFFSETZERO_RETRY__DELAYS": json.dumps(settings.retry.delays),
            "OZ_TEST_ENRICHER": "1",
            **environment,
        }

    def start(self, **environment: str) -> "subprocess.Popen[bytes]":
        """One more."""
        process = subprocess.Popen(
            [sys.executable, "-m", "offsetzero", "groups", "run", "enriching:enricher"],
            cwd=Path(__file__).parent,
            env={**self._environment, **environment},
            stdout=self._log,
            stderr=self._log,
        )
        self.running.append(process)
        return process

    def kill(self, process: "subprocess.Popen[bytes]") -> None:
        """End one with no chance to do anything."""
        self.running.remove(process)
        process.kill()
        process.wait()

    def __enter__(self) -> "Members":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            print([(process.pid, process.poll()) for process in self.running], self._path.read_text()[-20_000:])
        for process in self.running:
            process.kill()
            process.wait()
        self._log.close()


def _signal_at(step: str, number: int) -> None:
    """Send this process a signal at a step of a transaction: before, or `after-commit`.

    It is the first one with records in it; for SIGKILL, the first with a retry record among them.
    """
    appended = sent = False
    when, _, name = step.rpartition("-")
    original, produce = getattr(TransactionalProducer, name), TransactionalProducer.produce

    def note(self: Any, topic: str, **options: Any) -> Any:
        nonlocal appended
        appended = appended or number != signal.SIGKILL or topic.endswith(".retry-1m")
        return produce(self, topic, **options)

    def act(self: Any, *arguments: Any, **options: Any) -> None:
        nonlocal sent
        if when == "after":
            original(self, *arguments, **options)
        if appended and not sent:
            sent = True
            self.flush(10.0)  # the records are in the log, with no end of their transaction
            # At this thread, which then does nothing more; of a process it may be another that takes it, and this one
            # goes on until that has been scheduled.
            signal.pthread_kill(threading.get_ident(), number)
        if when != "after":
            original(self, *arguments, **options)

    setattr(TransactionalProducer, name, act)
    TransactionalProducer.produce = note  # type: ignore[method-assign]


if os.environ.get("OZ_TEST_ENRICHER"):  # a process of its own: short times, so that much happens in a test
    declare(ENRICHED)
    making.TRANSACTION_SECONDS = 4.0
    transactional.WORK_SECONDS = 0.05
    for variable, number in {"OZ_TEST_DIE": signal.SIGKILL, "OZ_TEST_STOP": signal.SIGSTOP}.items():
        if variable in os.environ:
            _signal_at(os.environ[variable], number)
    enricher = make()
