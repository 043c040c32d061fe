"""The proof of a rebuild: with everything that befalls a log, and live traffic, its result is the fold of the log."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice, pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import psycopg
import pytest
from commands import Commands
from kafka.folding.fold import DEAD, Fold, Made, Source, before_stuck, firsts

from offsetzero import DocumentDeleted, DocumentUploaded, Publisher
from offsetzero.clock import SYSTEM
from offsetzero.settings import Settings
from offsetzero.store import generations
from offsetzero.store.script import run
from offsetzero.topics import retained
from offsetzero.topics.reading import TopicReader
from support import wait_until

IS_NIGHT = os.environ.get("OZ_TEST_PROFILE") == "nightly" or "OZ_TEST_REBUILD_EVENTS" in os.environ
EVENTS = int(os.environ.get("OZ_TEST_REBUILD_EVENTS", 1_000_000 if IS_NIGHT else 3_000))
SECONDS = 60 + EVENTS / 100  # for whatever is waited for, on a busy machine
LIVE = 50  # events a second while the rebuild goes on
KINDS = [("batch", "release"), *([("one by one", "hold")] if EVENTS <= 100_000 else [])]
WHY = ["--why", "a proof"]


class Shelf:
    """The group, what was published to it, and what is in its tables."""

    def __init__(self, settings: Settings, folder: Path, database: psycopg.Connection, kind: str, dead: str) -> None:
        self.settings = settings
        self.folder = folder
        self.database = database
        self.holds = dead == "hold"
        self.command = Commands(settings, folder)
        self.command.environment |= {
            "SHELF_KIND": kind,
            "SHELF_ON_DEAD_LETTER": dead,
            "OFFSETZERO_METRICS_PORT": "0",
            "OFFSETZERO_LOG_LEVEL": "ERROR",
        }
        self.published: dict[UUID, Made] = {}
        shutil.copy(Path(__file__).with_name("shelf.py"), folder)

    def publish(self, events: Iterable[Made], pause: float = 0.0, stop: threading.Event | None = None) -> None:
        with Publisher(self.settings, linger=0.0 if pause else 0.02) as publisher:
            for one in events:
                self.published[one.event_id] = one
                publisher.publish(_event(one), event_id=one.event_id)
                if stop is not None and stop.wait(pause):
                    return

    @contextmanager
    def live(self, source: Source, troubles: Sequence[str]) -> Iterator[None]:
        """Events go on coming, at a steady pace."""
        stop = threading.Event()
        events = source.ordinary(10**9, troubles)
        thread = threading.Thread(target=self.publish, args=(events, 1 / LIVE, stop), name="live traffic")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(60)

    @contextmanager
    def member(self) -> Iterator[None]:
        """One of the group's own, as a service runs it."""
        log = self.folder / f"member-{random.randrange(10**9)}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "offsetzero", "groups", "run", "shelf:shelf"],
                cwd=self.folder,
                env=self.command.environment,
                stdout=output,
                stderr=output,
            )
        try:
            yield
            assert process.poll() is None, log.read_text()[-5_000:]
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            finally:
                process.kill()
        assert "crashed" not in log.read_text()

    def rebuild(self) -> "tuple[int, str]":
        """The exit status, and what was said."""
        process = self.command.start("rebuild", "shelf:shelf", *WHY, "--yes")
        try:
            out, err = process.communicate(timeout=SECONDS * 2)
        finally:
            process.kill()
        return process.returncode, out + err

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

    def await_count(self, outcome: str, generation: int, count: int) -> None:
        wait_until(
            lambda: self.count(outcome, generation) >= count,
            SECONDS,
            what=f"{count} {outcome} in generation {generation}",
            interval=0.2 + EVENTS / 200_000,
        )
        assert self.count(outcome, generation) == count

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


@pytest.mark.skipif(not IS_NIGHT, reason="a minute or more: make fold")
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("kind", "dead"), KINDS)
def test_a_rebuilt_generation_is_the_fold_of_the_log_and_each_effect_happens_once(
    settings: Settings, topics: None, tmp_path: Path, database: psycopg.Connection, kind: str, dead: str
) -> None:
    seed = int(os.environ.get("OZ_TEST_SEED") or random.randrange(1_000_000))
    print(f"seed {seed}; again with OZ_TEST_SEED={seed}; {EVENTS:,} events")
    shelf, source, began = Shelf(settings, tmp_path, database, kind, dead), Source(seed, EVENTS // 6), time.monotonic()

    def tell(what: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {what}", flush=True)

    special = source.special(max(1, EVENTS // 30_000), holds=shelf.holds)
    with ExitStack() as members:
        (tmp_path / "poison").touch()
        for column in range(2):  # what comes first of each, and what fails; the rest lies behind all the others
            shelf.publish(one[column] for one in special)
        shelf.publish(source.ordinary(EVENTS, ["once", "twice"]))
        shelf.publish(one for events in special for one in events[2:])
        tell("published")
        for _ in range(2):
            members.enter_context(shelf.member())
        by_trouble = {name: [one for one in shelf.published.values() if one.trouble == name] for name in DEAD}
        shelf.await_count("dead-lettered", 1, sum(map(len, by_trouble.values())))
        (tmp_path / "poison").unlink()
        _decide(shelf, by_trouble["edit"])
        shelf.await_count("applied", 1, len(Fold(before_stuck(shelf.log()), ("open", "discard")).applied))
        tell("generation 1 is where it can be")
        assert shelf.differences(1, Fold(before_stuck(shelf.log()), ("open", "discard"))) == []

        (tmp_path / "slow").touch()
        source.prefix = "live"
        reader = members.enter_context(Reader(settings.database_url.get_secret_value()))
        with shelf.live(source, ["late"]):
            said = _rebuild(shelf, len(by_trouble["open"]), len(by_trouble["stubborn"]), tell)
            tell(next(line for line in said.splitlines() if "is read now" in line))
        assert _would_be_lost(shelf) == set()
        (tmp_path / "slow").unlink()
        shelf.publish(islice(source.ordinary(10**9, ["once", "twice"]), 200))
        log = shelf.log()
        tell(f"{len(log):,} records are in the log")
        new = Fold(log, ("open", "discard"))
        shelf.await_count("applied", 2, len(new.applied))
        owes = (
            "SELECT count(*) FROM withheld_effects WHERE generation = 2"  # what the old one withholds is for a rollback
        )
        wait_until(lambda: shelf.all(owes) == [(0,)], SECONDS, what="what is owed")
        tell("quiet")

    assert shelf.differences(2, new) == []
    assert shelf.count("discarded", 2) == len(by_trouble["discard"])
    assert shelf.count("dead-lettered", 2) == len(by_trouble["open"])
    assert reader.backwards() == []
    assert {generation for generation, _ in reader.seen} == {1, 2}

    applied = shelf.applied(1)
    assert shelf.differences(1, Fold([one for one in log if one.event_id in applied], ())) == []
    assert applied <= new.applied

    effects = dict(shelf.all("SELECT headers ->> 'ce_causationid', count(*) FROM outbox GROUP BY 1"))
    wrong = {one: effects.get(str(one), 0) for one in new.applied if effects.pop(str(one), 0) != 1}
    assert wrong == {}, "an effect of each applied event, once"
    assert effects == {}, "and of no other"
    owed = new.applied - applied
    assert {one.event_id for one in firsts(log) if one.trouble == "stuck"} <= owed
    tell(f"{len(log):,} records, {len(new.applied):,} events applied, {len(owed):,} of them only by generation 2")


def _decide(shelf: Shelf, edits: Sequence[Made]) -> None:
    """Operators look at the dead letters."""
    shown = json.loads(shelf.command("dlq", "list", "shelf", "--json", "--text", "edit").stdout)
    places = {one["key"]: one["place"] for one in shown}
    for one in edits:
        shelf.command("dlq", "edit", "shelf", places[str(one.document_id)], "--set", "name=good", *WHY)
        shelf.command("dlq", "redrive", "shelf", places[str(one.document_id)], *WHY)
    shelf.command("dlq", "discard", "shelf", "--text", "discard", *WHY)
    for trouble in ("mended", "stubborn"):
        shelf.command("dlq", "redrive", "shelf", "--text", trouble, "--rate", "1000", *WHY)


def _rebuild(shelf: Shelf, dead: int, stubborn: int, tell: Callable[[str], None]) -> str:
    """Until it is done, as operators do it: it is refused while what is read is dead, or waits, in the new one.

    Args:
        shelf: the group.
        dead: how many events are dead in both.
        stubborn: how many are in the new one alone, until they are redriven.
        tell: told what happens.
    """
    is_redriven = False
    for _ in range(30):
        status, said = shelf.rebuild()
        if status == 0:
            assert is_redriven, "readers would lose what is dead in the new one"
            return said
        assert status == 3, said
        assert "nothing was switched" in said
        tell("refused: what readers would lose was listed")
        if not is_redriven and shelf.count("dead-lettered", 2) == dead + stubborn:
            shelf.command("dlq", "redrive", "shelf.g2", "--text", "stubborn", *WHY)
            is_redriven = True
    raise AssertionError(f"refused again and again: {said}")


def _would_be_lost(shelf: Shelf) -> set[str]:
    """What readers have seen before the pointer moved, and not right after it.

    In silence the old one has applied what comes later; its times are those at which transactions began.
    """
    applied = "SELECT event_id FROM processed_events WHERE group_name = 'shelf' AND outcome = 'applied'"
    old = shelf.all(f"{applied} AND generation = 1 AND NOT silent")
    moved_at = shelf.all("SELECT moved_at FROM group_pointers WHERE group_name = 'shelf'")[0][0]
    new = shelf.all(f"{applied} AND generation = 2 AND at < %s", moved_at)
    return {row[0] for row in old} - {row[0] for row in new}


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
