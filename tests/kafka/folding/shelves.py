"""The group of `shelf.py`: what was published to it, and what is in its tables."""

import os
import shutil
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from support import at_work, wait_until


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

    def publish(self, events: Iterable[Made]) -> None:
        with Publisher(self.settings, linger=0.02) as publisher:
            for one in events:
                self._publish(publisher, one)

    def _publish(self, publisher: Publisher, one: Made) -> None:
        self.published[one.event_id] = one
        publisher.publish(_event(one), event_id=one.event_id)

    @contextmanager
    def live(self, source: Source, rate: float, count: int, troubles: Sequence[str], freezes: int) -> Iterator[None]:
        """Events go on coming, so many a second, later fewer, unless the generation that is read stands still.

        So what that one did last is at the end of the log then, and the other one has to be behind just that. After so
        many `freezes` of it the command is interrupted: it says what it waits for.
        """
        with at_work(lambda stop: self._live(source, 1 / rate, count, troubles, freezes, stop), "live traffic"):
            yield

    def _live(
        self,
        source: Source,
        pause: float,
        count: int,
        troubles: Sequence[str],
        freezes: int,
        stop: threading.Event,
    ) -> None:
        frozen, last = self.settings.home / "frozen", deque[UUID](maxlen=2)
        url = self.settings.database_url.get_secret_value()
        with psycopg.connect(url, autocommit=True) as connection, Publisher(self.settings, linger=0.0) as publisher:
            for number, one in enumerate(source.ordinary(10**9, troubles)):
                due, was = time.monotonic() + (pause if number < count else 10 * pause), False
                while (still := _stands_still(connection)) or time.monotonic() < due:
                    if still and not was:
                        frozen.write_text(" ".join(map(str, last)))
                        freezes -= 1
                    was = still
                    if freezes < 0:
                        os.kill(os.getpid(), signal.SIGINT)
                        return
                    if stop.wait(min(pause, 0.05)):
                        return
                frozen.unlink(missing_ok=True)
                self._publish(publisher, one)
                last.append(one.event_id)

    def placed(self) -> list[tuple[int, int, Made]]:
        """What the broker has of it, by partition and offset, in their order."""
        spans = {number: (one.low, one.end) for number, one in retained.bounds(self.settings, "documents").items()}
        with TopicReader(self.settings) as reader:
            found = [
                (one.partition, one.offset, UUID((dict(one.headers)["ce_id"] or b"").decode()))
                for batch in reader.read("documents", spans)
                for one in batch
            ]
        return [(number, offset, self.published[event_id]) for number, offset, event_id in sorted(found)]

    def log(self) -> list[Made]:
        """The same, without the places."""
        return [one for _, _, one in self.placed()]

    def positions(self, generation: int) -> dict[int, int]:
        """How far a generation is in the source."""
        query = (
            "SELECT partition, position FROM group_positions"
            " WHERE group_name = 'shelf' AND generation = %s AND topic = 'documents'"
        )
        return dict(self.all(query, generation))

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

    def letters(self, generation: int) -> list[Made]:
        """The events that are dead in a generation."""
        query = (
            "SELECT DISTINCT ON (source, event_id) event_id, outcome FROM processed_events"
            " WHERE group_name = 'shelf' AND generation = %s ORDER BY source, event_id, redrive_no DESC"
        )
        return [self.published[UUID(row[0])] for row in self.all(query, generation) if row[1] == "dead-lettered"]

    def effects(self) -> dict[UUID, int]:
        """How often an event was published for each event."""
        query = "SELECT headers ->> 'ce_causationid', count(*) FROM outbox GROUP BY 1"
        return {UUID(event): count for event, count in self.all(query)}

    def await_count(self, outcome: str, generation: int, count: int) -> None:
        self.wait_until(
            lambda: self.count(outcome, generation) >= count, f"{count} {outcome} in generation {generation}"
        )
        assert self.count(outcome, generation) == count

    def await_all(
        self,
        events: Iterable[Made],
        done: Callable[[], set[UUID]],
        what: str,
        enough: Callable[[], bool] | None = None,
    ) -> None:
        """Wait until something has been done of all these events; else say of which it was not.

        Args:
            events: of which.
            done: the ids of those of which it has been.
            what: has been done.
            enough: cheaper than to look at all of them.
        """
        wanted = {one.event_id: one for one in events}

        def missing() -> list[str]:
            have = done()
            return [str(one) for event_id, one in wanted.items() if event_id not in have]

        try:
            self.wait_until(enough or (lambda: not missing()), what)
        except AssertionError:
            lacks = missing()
            raise AssertionError(f"{len(lacks)} of {len(wanted)} events not {what}: {lacks[:5]}") from None

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
            f"generation {generation}, {key}: {have.get(key)} instead of {want.get(key)}{self._about(key)}"
            for have, want in ((docs, expected.docs), (counts, expected.counts))
            for key in sorted({*have, *want}, key=str)
            if have.get(key) != want.get(key)
        ]

    def _about(self, key: object) -> str:
        """What has befallen a document."""
        said = [
            ("deletion" if one.name is None else "upload") + f" {one.trouble}".rstrip()
            for one in self.published.values()
            if one.document_id == key
        ]
        return f" (its events: {', '.join(said)})" if said else ""


def _stands_still(connection: psycopg.Connection) -> bool:
    """Whether the generation that is read does, for a switch."""
    row = connection.execute(
        "SELECT coalesce(frozen_until > clock_timestamp(), false) FROM group_pointers WHERE group_name = 'shelf'"
    ).fetchone()
    return row == (True,)


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
