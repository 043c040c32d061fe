"""The group of `shelf.py`: what was published to it, and what is in its tables."""

import shutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from kafka.folding.fold import Fold, Made, Source

from offsetzero import DocumentDeleted, DocumentUploaded, Publisher
from offsetzero.clock import SYSTEM
from offsetzero.settings import Settings
from offsetzero.topics import retained
from offsetzero.topics.reading import TopicReader
from support import wait_until


class Shelf:
    """Looks at it from outside.

    Args:
        settings: of the test.
        database: of the test.
        seconds: for whatever is waited for.
        interval: seconds between two looks.
    """

    def __init__(self, settings: Settings, database: psycopg.Connection, seconds: float, interval: float) -> None:
        self.settings = settings
        self.database = database
        self._seconds = seconds
        self._interval = interval
        self.published: dict[UUID, Made] = {}
        shutil.copy(Path(__file__).with_name("shelf.py"), settings.home)

    def publish(self, events: Iterable[Made], pause: float = 0.0, stop: threading.Event | None = None) -> None:
        with Publisher(self.settings, linger=0.0 if pause else 0.02) as publisher:
            for one in events:
                self.published[one.event_id] = one
                publisher.publish(_event(one), event_id=one.event_id)
                if stop is not None and stop.wait(pause):
                    return

    @contextmanager
    def live(self, source: Source, rate: float, troubles: Sequence[str]) -> Iterator[None]:
        """Events go on coming, so many a second."""
        stop = threading.Event()
        events = source.ordinary(10**9, troubles)
        thread = threading.Thread(target=self.publish, args=(events, 1 / rate, stop), name="live traffic")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(60)

    def log(self) -> list[Made]:
        """What the broker has of it, in the order of its partitions and offsets."""
        spans = {number: (one.low, one.end) for number, one in retained.bounds(self.settings, "documents").items()}
        with TopicReader(self.settings) as reader:
            found = [
                (one.partition, one.offset, UUID((dict(one.headers)["ce_id"] or b"").decode()))
                for batch in reader.read("documents", spans)
                for one in batch
            ]
        return [self.published[event_id] for _, _, event_id in sorted(found)]

    def all(self, query: str, *parameters: Any) -> list[Any]:
        return self.database.execute(query.encode(), parameters).fetchall()

    def count(self, outcome: str, generation: int) -> int:
        """Events with this as their last outcome."""
        return int(
            self.all(
                "SELECT count(*) FROM (SELECT DISTINCT ON (source, event_id) outcome FROM processed_events"
                " WHERE group_name = 'shelf' AND generation = %s ORDER BY source, event_id, redrive_no DESC) AS o"
                " WHERE outcome = %s",
                generation,
                outcome,
            )[0][0]
        )

    def applied(self, generation: int) -> set[UUID]:
        """The ids of the events that a generation has applied."""
        query = (
            "SELECT event_id FROM processed_events"
            " WHERE group_name = 'shelf' AND generation = %s AND outcome = 'applied'"
        )
        return {UUID(row[0]) for row in self.all(query, generation)}

    def effects(self) -> dict[UUID, int]:
        """How often an event was published for each event."""
        query = "SELECT headers ->> 'ce_causationid', count(*) FROM outbox GROUP BY 1"
        return {UUID(event): count for event, count in self.all(query)}

    def await_count(self, outcome: str, generation: int, count: int) -> None:
        self.wait_until(
            lambda: self.count(outcome, generation) >= count, f"{count} {outcome} in generation {generation}"
        )
        assert self.count(outcome, generation) == count

    def await_quiet(self) -> None:
        """Wait until the generation that is read owes nothing; what the other one withholds is for a rollback."""
        query = (
            "SELECT FROM withheld_effects JOIN group_pointers USING (group_name, generation)"
            " WHERE group_name = 'shelf' LIMIT 1"
        )
        self.wait_until(lambda: not self.all(query), "what is owed")

    def wait_until(self, condition: Any, what: str) -> None:
        wait_until(condition, self._seconds, what=what, interval=self._interval)

    def differences(self, generation: int, expected: Fold) -> list[str]:
        """What the tables of a generation have otherwise."""
        schema = f"shelf_g{generation}"
        docs = {row[0]: row[1:] for row in self.all(f"SELECT document_id, version, name, trail FROM {schema}.docs")}
        counts = {row[0]: row[1:] for row in self.all(f"SELECT tenant_id, uploads, deletes FROM {schema}.counts")}
        return [
            f"generation {generation}, {key}: {have.get(key)} instead of {want.get(key)}"
            for have, want in ((docs, expected.docs), (counts, expected.counts))
            for key in sorted({*have, *want}, key=str)
            if have.get(key) != want.get(key)
        ]


def _event(one: Made) -> DocumentUploaded | DocumentDeleted:
    if one.name is None:
        return DocumentDeleted(document_id=one.document_id, tenant_id=one.tenant_id, deleted_at=SYSTEM.now())
    return DocumentUploaded(
        document_id=one.document_id,
        tenant_id=one.tenant_id,
        run_id=one.event_id,
        name=one.name,
        content_type="application/pdf",
        uri="file:///nowhere",
        size_bytes=1,
        sha256="0" * 64,
        uploaded_at=SYSTEM.now(),
    )
