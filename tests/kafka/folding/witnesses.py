"""Who looks on while a projection is rebuilt: one who reads it, one who gets webhooks, and the database itself."""

import base64
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from types import TracebackType
from typing import Self
from uuid import UUID

import psycopg
from kafka.folding.fold import TENANTS, Made
from local_http import Received, Reply, serve

from offsetzero.schemas.ids import uuid7
from offsetzero.store import generations, webhooks
from offsetzero.store.script import run

# Asked by the very transaction that moves the pointer, which all others of both generations wait for: what has been
# seen and would not be any more, and what was published for events that only the one has done that nobody has read yet.
_WATCH = """
CREATE TABLE wrong_at_switch (event_id text, what text);
CREATE TABLE positions_at_switch (topic text, partition int, position bigint);
CREATE FUNCTION note_positions() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO positions_at_switch SELECT topic, partition, position FROM group_positions
        WHERE group_name = NEW.group_name AND generation = NEW.from_generation;
    RETURN NEW;
END $$;
CREATE TRIGGER note_positions AFTER INSERT ON group_switches FOR EACH ROW EXECUTE FUNCTION note_positions();
CREATE FUNCTION note_wrong() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    CREATE TEMP TABLE seen ON COMMIT DROP AS SELECT event_id FROM processed_events
        WHERE group_name = OLD.group_name AND generation = OLD.generation AND outcome = 'applied' AND NOT silent;
    INSERT INTO wrong_at_switch SELECT event_id, 'is lost' FROM (
        TABLE seen EXCEPT SELECT event_id FROM processed_events
            WHERE group_name = OLD.group_name AND generation = NEW.generation AND outcome = 'applied') AS lost;
    INSERT INTO wrong_at_switch SELECT event_id, 'was published in silence' FROM (
        SELECT headers ->> 'ce_causationid' AS event_id FROM outbox EXCEPT TABLE seen) AS early;
    RETURN NEW;
END $$;
CREATE TRIGGER note_wrong AFTER UPDATE ON group_pointers
    FOR EACH ROW WHEN (OLD.generation <> NEW.generation) EXECUTE FUNCTION note_wrong();
"""


def watch_switches(database: psycopg.Connection) -> None:
    """Have what goes wrong at a switch be noted; see `wrong_at_switches`."""
    database.execute(_WATCH)


def wrong_at_switches(database: psycopg.Connection) -> list[str]:
    """What readers have lost, and what was published too early."""
    return [f"event {event} {what}" for event, what in database.execute("TABLE wrong_at_switch")]


def wrong_about_h(database: psycopg.Connection, placed: Sequence[tuple[int, int, Made]]) -> list[str]:
    """What is not as it has to be with H: where the old generation was when it was read for the last time.

    It may be lower than what was done by then: two that end at once do not see each other.

    Args:
        database: in which switches were watched.
        placed: the log.
    """
    ((kept,),) = database.execute("SELECT positions FROM group_switches ORDER BY at DESC LIMIT 1").fetchall()
    at = {int(place.rpartition("/")[2]): end for place, end in kept.items() if place.startswith("documents/")}
    here = dict(
        database.execute("SELECT partition, position FROM positions_at_switch WHERE topic = 'documents'").fetchall()
    )
    spoken = "SELECT event_id FROM processed_events WHERE group_name = 'shelf' AND generation = 1 AND NOT silent"
    ended = {UUID(row[0]) for row in database.execute(spoken)}  # and not later, for it went on
    waiting = {one.document_id for _, _, one in placed if one.trouble}  # or behind one that waits
    wrong = [
        f"H of partition {one}: {at.get(one)} in the audit, generation 1 is at {here[one]}"
        for one in here
        if at.get(one) != here[one]
    ]
    ends = {number: offset + 1 for number, offset, _ in placed}
    wrong += [
        f"H of partition {one} is {h}, the log ends at {ends.get(one, 0)}"
        for one, h in at.items()
        if h > ends.get(one, 0)
    ]
    for number, offset, one in placed:
        h = at.get(number, 0)
        if offset < h and one.event_id not in ended and one.document_id not in waiting:
            wrong.append(f"H of partition {number} is {h}: too high, generation 1 has not ended {one} at {offset}")
    return wrong


class Reader(threading.Thread):
    """Reads the projection as a request does, again and again: what it sees never shrinks.

    Args:
        url: of the database.
    """

    def __init__(self, url: str) -> None:
        super().__init__(name="reader")
        self._url = url
        self._ended = threading.Event()
        self.seen: list[tuple[int, int]] = []
        """Generation and applied events, where they differ from what was seen before."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self.join(30)

    def run(self) -> None:
        with psycopg.connect(self._url) as connection:
            while not self._ended.wait(0.01):
                with connection.transaction():
                    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                    generation = run(connection, generations.read("shelf"))
                    row = connection.execute("SELECT coalesce(sum(uploads + deletes), 0) FROM counts").fetchone()
                now = generation, int(row[0]) if row else 0
                if not self.seen or self.seen[-1] != now:
                    self.seen.append(now)

    def backwards(self) -> list[str]:
        """Where it has seen less than before."""
        return [f"{one} after {before}" for before, one in pairwise(self.seen) if one[1] < before[1]]


class Receiver:
    """A service that the notifier tells of what the group has published for some tenants.

    Args:
        tenants: how many of them have subscribed.
    """

    def __init__(self, tenants: int) -> None:
        self._tenants = {f"tenant-{number}" for number in range(min(tenants, TENANTS))}
        self._guard = threading.Lock()
        self._came: dict[UUID, list[tuple[str, float]]] = {}

    @contextmanager
    def listening(self, database: psycopg.Connection) -> Iterator[Self]:
        """Subscribe, and take messages until the block ends."""
        secret = "whsec_" + base64.b64encode(bytes(32)).decode()
        with serve(self._take) as local:
            for tenant in sorted(self._tenants):
                run(database, webhooks.add(uuid7(), tenant, local.url, secret, ["run.succeeded"], most=1))
            yield self

    def is_told(self, tenant: str) -> bool:
        """Whether a tenant has subscribed."""
        return tenant in self._tenants

    def events(self) -> set[UUID]:
        """The events that it was told of."""
        with self._guard:
            return set(self._came)

    def repeated(self, kills: Sequence[float]) -> list[str]:
        """What came twice, unless as the same message, before and after the death of who sends them.

        Args:
            kills: when that one was killed, by the monotonic clock.
        """
        return [
            f"event {event}: {messages}"
            for event, messages in self._came.items()
            for (name, at), (again, later) in pairwise(messages)
            if name != again or not any(at < kill < later for kill in kills)
        ]

    def _take(self, received: Received) -> Reply:
        event = UUID(json.loads(received.body)["data"]["run_id"])
        with self._guard:
            self._came.setdefault(event, []).append((received.headers["webhook-id"], time.monotonic()))
        return Reply(204)
