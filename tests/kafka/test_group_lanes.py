"""The lane for backfill: it has its share of a member, what is urgent does not wait for it, and no key is in both."""

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime
from uuid import UUID, uuid4

import psycopg
import pytest
from kafka.conftest import RunningGroup, uploaded
from kafka.relayed import relaying
from prometheus_client import REGISTRY

from offsetzero.api import erasing
from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.reading import yielding
from offsetzero.producers import runs as beginning
from offsetzero.producers.publisher import Publisher
from offsetzero.retry.failures import Transient
from offsetzero.retry.policy import Tier
from offsetzero.schemas.documents import DocumentDeleted, DocumentUploaded
from offsetzero.settings import Settings
from offsetzero.store import documents, runs
from offsetzero.store.documents import Document, Intake
from offsetzero.store.script import run
from support import wait_until

Running = Callable[..., AbstractContextManager[RunningGroup]]
BACKLOG = 200


class Gate:
    """Handlers of the bulk topic stop in it until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.inside: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.handled: Counter[str] = Counter()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Let all through: a test that has failed ends, too."""
        self.open.set()

    def enter(self, name: str, *, waits: bool) -> None:
        with self._lock:
            self.inside[name] += 1
            self.most[name] = max(self.most[name], self.inside[name])
        if waits:
            self.open.wait(60)
        with self._lock:
            self.inside[name] -= 1
            self.handled[name] += 1


@pytest.fixture(autouse=True)
def time_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else the machine does: backfill has its part in a moment."""
    monkeypatch.setattr(yielding, "LATE_SECONDS", float("inf"))
    monkeypatch.setattr(yielding, "ROUND_SECONDS", 0.0)
    monkeypatch.setattr(yielding, "ROUND_WAITS", 1)


def few_in_flight(settings: Settings) -> Settings:
    """The backlog is far more than a member may have in flight."""
    groups = settings.groups.model_copy(update={"concurrency": 8, "bulk_concurrency": 2, "max_in_flight": 40})
    return settings.model_copy(update={"groups": groups})


def test_what_is_urgent_does_not_wait_though_backfill_has_all_it_may_have(settings: Settings, running: Running) -> None:
    group, gate = ConsumerGroup("audit", database=False), Gate()

    @group.handler(DocumentUploaded)
    def note(event: DocumentUploaded, ctx: Context) -> None:
        gate.enter(ctx.record.topic, waits=ctx.record.topic == "documents.bulk")

    with Publisher(settings) as publisher:
        for _ in range(BACKLOG):
            publisher.publish(uploaded(), bulk=True)
        publisher.flush(30)
        with running(group, few_in_flight(settings)) as member, closing(gate):
            wait_until(lambda: gate.inside["documents.bulk"] == 2, what="backfill has its workers")
            wait_until(lambda: "lane" in str(member.runtime.health().body), what="and is fetched no more")
            for count in (3, 60):
                for _ in range(count):
                    publisher.publish(uploaded())
                publisher.flush(30)
                wait_until(lambda: gate.handled["documents"] in (3, 63), what="all that is urgent is handled")
            assert gate.handled["documents.bulk"] == 0
            gate.open.set()
            wait_until(lambda: gate.handled["documents.bulk"] == BACKLOG, what="then all of the backlog")
    assert gate.most["documents.bulk"] == 2


def test_backfill_pauses_beside_live_traffic_while_a_machine_is_busy_and_goes_on_without(
    settings: Settings, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yielding, "LATE_SECONDS", -1.0)  # each wait ends late
    monkeypatch.setattr(yielding, "ROUND_SECONDS", 0.0)
    monkeypatch.setattr(yielding, "ROUND_WAITS", 1)
    monkeypatch.setattr(yielding, "PACES", (3_600.0,))
    monkeypatch.setattr(yielding, "BEGIN", 3_600.0)
    monkeypatch.setattr(yielding, "LIVE_SECONDS", 3_600.0)
    group, handled, lock = ConsumerGroup("audit", database=False), Counter[str](), threading.Lock()

    @group.handler(DocumentUploaded)
    def note(event: DocumentUploaded, ctx: Context) -> None:
        with lock:
            handled[ctx.record.topic] += 1

    def at_once() -> float | None:
        return REGISTRY.get_sample_value("offsetzero_records_at_once", {"group": "audit", "limit": "bulk"})

    with Publisher(settings) as publisher:
        publisher.publish(uploaded())
        publisher.flush(30)
        with running(group, settings):
            wait_until(lambda: at_once() == 0, what="pauses, after the first of live traffic")
            for _ in range(20):
                publisher.publish(uploaded(), bulk=True)
            for _ in range(20):
                publisher.publish(uploaded())
            publisher.flush(30)
            wait_until(lambda: handled["documents"] == 21, what="live traffic does not wait")
            assert handled["documents.bulk"] <= 1
        with running(group, settings):  # in which there is no live traffic
            wait_until(lambda: handled["documents.bulk"] == 20, what="all of the backlog")


def test_retried_records_count_for_their_tenant_and_their_lane(settings: Settings, running: Running) -> None:
    group = ConsumerGroup("audit", database=False, per_tenant=3, tiers=[Tier("retry-1m", 0.05), Tier("retry-10m", 1)])
    gate, lock, attempts = Gate(), threading.Lock(), Counter[int]()

    @group.handler(DocumentUploaded)
    def note(event: DocumentUploaded, ctx: Context) -> None:
        if ctx.attempt == 1:
            raise Transient("busy", "all of them fail once")
        with lock:
            attempts[ctx.attempt] += 1
        gate.enter(event.name, waits=True)

    with Publisher(settings) as publisher:
        for number in range(30):
            bulk = number % 2 == 0
            publisher.publish(uploaded(name="bulk" if bulk else "urgent"), tenant_id="acme", bulk=bulk)
        publisher.publish(uploaded(name="of another"), tenant_id="other")
    with running(group, few_in_flight(settings)), closing(gate):
        wait_until(lambda: gate.inside["bulk"] + gate.inside["urgent"] == 3, what="as many as of one tenant may run")
        wait_until(lambda: gate.inside["of another"] == 1, what="and that of the other")
        gate.open.set()
        wait_until(lambda: sum(gate.handled.values()) == 31, 60, what="all are handled")
    assert attempts == {2: 31}
    assert gate.most["bulk"] <= 2
    assert gate.most["urgent"] <= 3


def test_no_event_overtakes_one_of_its_document_in_the_other_lane(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    """Uploads wait in a backlog; then their runs are cancelled, or they are asked for again in the other lane, or both;
    then they are deleted."""
    own = few_in_flight(settings)
    own = own.model_copy(
        update={"api": own.api.model_copy(update={"required_steps": ["audit"], "tenant_in_flight": 100})}
    )
    group, gate = ConsumerGroup("audit", step=True), Gate()
    seen: dict[UUID, list[int | None]] = defaultdict(list)

    @group.prepare(DocumentUploaded)
    def wait(event: DocumentUploaded, ctx: Context) -> None:
        gate.enter(ctx.record.topic, waits=ctx.record.topic == "documents.bulk")

    @group.handler(DocumentUploaded)
    def on_uploaded(event: DocumentUploaded, ctx: Context) -> None:
        seen[event.document_id].append(ctx.sequence)

    @group.handler(DocumentDeleted)
    def on_deleted(event: DocumentDeleted, ctx: Context) -> None:
        seen[event.document_id].append(ctx.sequence)

    def upload(*, bulk: bool) -> tuple[Document, Intake]:
        document_id = uuid4()
        made = Document(
            id=document_id,
            tenant_id="acme",
            name="a.txt",
            content_type="text/plain",
            uri=f"file:///nowhere/{document_id}",
            size_bytes=1,
            sha256=str(document_id),
            version=1,
            uploaded_at=datetime.now(UTC),
        )
        with database.transaction():
            (begun,) = run(database, beginning.take_in([beginning.prepare(made, own, bulk=bulk)], own))
            assert begun is not None
            return made, begun

    def again(document: Document) -> None:
        with database.transaction():
            assert run(database, documents.lock("acme", document.id))
            run(database, beginning.begin_again(document, own))

    dice, deleted = random.Random(5), []
    with relaying(settings), running(group, own), closing(gate):
        blocking = [upload(bulk=True) for _ in range(2)]
        wait_until(lambda: gate.inside["documents.bulk"] == 2, what="the backlog does not move")
        for number in range(24):
            document, begun = upload(bulk=number % 4 > 0)
            if dice.random() < 0.5:
                run(database, runs.cancel("acme", begun.run_id))
            for _ in range(dice.randrange(3)):
                again(document)
            with database.transaction():
                gone = run(database, erasing.erase("acme", document.id, datetime.now(UTC), source="/offsetzero"))
            assert gone is not None
            deleted.append((document.id, gone.document.version))
        urgent = upload(bulk=False)[0]
        gate.open.set()
        wait_until(lambda: all(version in seen[one] for one, version in deleted), 60, what="all deletions are handled")
        wait_until(lambda: urgent.id in seen and all(one.id in seen for one, _ in blocking), what="and all else")
    for one, _ in deleted:
        assert seen[one] == sorted(seen[one], key=lambda version: version or 0)
