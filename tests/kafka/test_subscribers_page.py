"""docs/subscribers.md does what it says: its files are run as they are printed there."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from kafka.conftest import RunningGroup, await_dead_letters, uploaded
from kafka.enriching import read_all

from offsetzero import metrics
from offsetzero.clock import SYSTEM
from offsetzero.consumers import registry
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.producers.publisher import Publisher
from offsetzero.retry import dead_letters
from offsetzero.schemas.documents import DocumentDeleted
from offsetzero.settings import Settings
from offsetzero.store import run_views, runs
from offsetzero.store.script import run
from offsetzero.topics import catalogue, cluster, lag
from support import wait_until

PAGE = (Path(__file__).parents[2] / "docs" / "subscribers.md").read_text()
Running = Callable[[ConsumerGroup], AbstractContextManager[RunningGroup]]


@pytest.fixture
def page_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ConsumerGroup]]:
    """Writes a file of the page into the current folder, and loads its group as the command line does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def load(name: str) -> ConsumerGroup:
        (code,) = re.findall(rf"```python\n(# {name}\.py\n.*?)```", PAGE, re.DOTALL)
        (tmp_path / f"{name}.py").write_text(code)
        assert f"ConsumerGroup({name!r}".replace("'", '"') in code
        return registry.load(f"{name}:{name}")

    yield load
    for name in ("shelf", "scanner", "counts", "labels", "sizes"):
        sys.modules.pop(name, None)


def _rows(database: psycopg.Connection, query: str) -> list[tuple[Any, ...]]:
    return database.execute(query.encode()).fetchall()


def _outcomes(database: psycopg.Connection) -> list[tuple[str, int]]:
    return _rows(database, "SELECT outcome, count(*) FROM processed_events GROUP BY outcome ORDER BY outcome")


def test_the_sizes_are_a_projection_that_is_read_through_its_pointer(
    settings: Settings, running: Running, database: psycopg.Connection, page_file: Callable[[str], ConsumerGroup]
) -> None:
    (query,) = re.findall(r"```sql\n(BEGIN ISOLATION.*?)COMMIT;\n```", PAGE, re.DOTALL)
    first, second = uploaded(), uploaded()
    with Publisher(settings) as publisher:
        publisher.publish(first)
        publisher.publish(second)
        publisher.publish(DocumentDeleted(document_id=first.document_id, tenant_id="acme", deleted_at=SYSTEM.now()))
    with running(page_file("sizes")):
        wait_until(lambda: _outcomes(database) == [("applied", 3)], what="three events")
    cursor = database.execute(query.encode())
    while cursor.nextset():
        pass
    assert cursor.fetchall() == [(second.size_bytes,)]
    database.execute("ROLLBACK")


def test_the_shelf_follows_the_log(
    settings: Settings, running: Running, database: psycopg.Connection, page_file: Callable[[str], ConsumerGroup]
) -> None:
    group = page_file("shelf")
    here, gone, forgotten, early = (uuid4() for _ in range(4))
    deleted = DocumentDeleted(document_id=gone, tenant_id="acme", deleted_at=SYSTEM.now())
    before = _failed_by(group)
    with Publisher(settings) as publisher:
        publisher.publish(uploaded(here), sequence=1)
        publisher.publish(uploaded(gone), sequence=1)
        publisher.publish(deleted, sequence=2)
        publisher.publish(uploaded(forgotten), sequence=1)
        publisher.tombstone("document.deleted", str(forgotten))
        # as after a retry: the deletion was handled first
        publisher.publish(deleted.model_copy(update={"document_id": early}), sequence=2)
        publisher.publish(uploaded(early), sequence=1)
        publisher.publish(uploaded().model_copy(update={"content_type": "unknown"}))
    with running(group):
        wait_until(lambda: sum(count for _, count in _outcomes(database)) == 8, what="all events are handled")
    found = set(_rows(database, "SELECT document_id, size, kind, gone FROM shelf"))
    assert found == {(here, 1, "pdf", False), (gone, 1, "pdf", True), (early, 0, "", True)}
    # a Permanent in a group that is no step, as the page tells it
    assert _outcomes(database) == [("applied", 7), ("failed", 1)]
    assert _failed_by(group) - before == 1
    assert list(dead_letters.read(settings, "shelf")) == []


def _failed_by(group: ConsumerGroup) -> float:
    labels = metrics.EVENTS_HANDLED.labels(group.name, "document.uploaded", "failed")
    assert "offsetzero_events_handled_total" in [sample.name for sample in metrics.EVENTS_HANDLED.collect()[0].samples]
    return float(labels._value.get())


def test_the_scanner_is_a_step_of_runs(
    settings: Settings, running: Running, database: psycopg.Connection, page_file: Callable[[str], ConsumerGroup]
) -> None:
    group = page_file("scanner")
    made: dict[str, UUID] = {}
    with Publisher(settings) as publisher:
        for said in ("clean", "unknown", "infected"):
            made[said], document_id = uuid4(), uuid4()
            run(database, runs.create(made[said], "acme", document_id, []))
            event = uploaded(document_id, made[said]).model_copy(update={"uri": f"file:///{said}"})
            publisher.publish(event)
    with running(group):
        wait_until(lambda: sum(count for _, count in _outcomes(database)) == 3, what="all events are handled")
    steps = {said: run(database, run_views.find("acme", run_id)).steps[0] for said, run_id in made.items()}
    assert {(step.step, step.required) for step in steps.values()} == {("scanner", False)}
    assert {said: (step.status, step.reason, step.warning) for said, step in steps.items()} == {
        "clean": ("succeeded", None, None),
        "unknown": ("succeeded", None, "the scanner does not know this kind of file"),
        "infected": ("failed", "infected", None),
    }
    assert _outcomes(database) == [("applied", 2), ("failed", 1)]
    assert sorted(_rows(database, "SELECT said FROM scans")) == [("clean",), ("unknown",)]


def test_counts_take_many_events_in_one_call(
    settings: Settings, running: Running, database: psycopg.Connection, page_file: Callable[[str], ConsumerGroup]
) -> None:
    group = page_file("counts")
    with Publisher(settings) as publisher:
        for number in range(200):
            event = uploaded().model_copy(update={"tenant_id": f"t{number % 3}", "size_bytes": number})
            for _ in range(1 + (number % 50 == 0)):
                publisher.publish(event, event_id=UUID(int=number))
    with running(group):
        wait_until(lambda: sum(count for _, count in _outcomes(database)) == 200, what="all events are handled")
    expected = [(f"t{one}", len(range(one, 200, 3)), sum(range(one, 200, 3))) for one in range(3)]
    assert _rows(database, "SELECT tenant, documents, bytes FROM counts ORDER BY tenant") == expected


def test_a_scanner_that_stays_silent_is_tried_in_each_tier(
    settings: Settings,
    running: Running,
    database: psycopg.Connection,
    page_file: Callable[[str], ConsumerGroup],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = page_file("scanner")

    async def silent(_uri: str, _key: str) -> str:
        raise TimeoutError

    monkeypatch.setattr(sys.modules["scanner"], "ask_the_scanner", silent)
    with Publisher(settings) as publisher:
        publisher.publish(uploaded())
    with running(group):
        (letter,) = await_dead_letters(settings, "scanner", 1)
    assert (letter.reason, letter.hop.attempt) == ("scanner-silent", 3)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_forgotten_await_loses_the_statement(
    running: Running, settings: Settings, database: psycopg.Connection, page_file: Callable[[str], ConsumerGroup]
) -> None:
    """What the page warns of; should it become an error of the handler, the page must say so."""
    page_file("scanner")
    group = ConsumerGroup("forgetful")

    @group.handler(type(uploaded()))
    async def forget(_event: Any, ctx: Any) -> None:
        assert isinstance(ctx.connection, psycopg.AsyncConnection)
        ctx.connection.execute("INSERT INTO effects (note) VALUES ('never')")

    with Publisher(settings) as publisher:
        publisher.publish(uploaded())
    with running(group):
        wait_until(lambda: _outcomes(database) == [("applied", 1)], what="the event counts as handled")
    assert _rows(database, "SELECT note FROM effects") == []


@pytest.mark.usefixtures("topics")
def test_each_label_is_published_once_with_the_offset(
    settings: Settings, running: Running, page_file: Callable[[str], ConsumerGroup]
) -> None:
    with catalogue.declared_for():  # until the end of the test
        group = page_file("labels")
        cluster.ensure(settings, [catalogue.find("labels").resolved(settings)])  # type: ignore[union-attr]
        before = _failed_by(group)
        with Publisher(settings) as publisher:
            for number in range(20):
                publisher.publish(uploaded(), event_id=str(number))
            publisher.publish(uploaded().model_copy(update={"size_bytes": 0}), event_id="empty")
        with running(group):
            wait_until(lambda: _is_done(settings, group), 60, what="all is committed")
    labels = read_all(settings, "labels")
    assert sorted(int(one["ce_causationid"]) for one in labels) == list(range(20))
    assert _failed_by(group) - before == 1
    assert list(dead_letters.read(settings, group.name)) == []


def _is_done(settings: Settings, group: ConsumerGroup) -> bool:
    found = lag.group_offsets(settings, group.name, ["documents"])
    return all(one.committed == one.high for one in found)
