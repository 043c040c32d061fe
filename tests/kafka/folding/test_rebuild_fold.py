"""The proof of a rebuild: with everything that befalls a log, and live traffic, its result is the fold of the log."""

import json
import os
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from kafka.folding.fold import DEAD, TENANTS, Fold, Made, Source, before_stuck, firsts
from kafka.folding.parts import GROUP, Here, Parts, Processes
from kafka.folding.shelves import Shelf
from kafka.folding.witnesses import Reader, Receiver, watch_switches, wrong_at_switches

from offsetzero.settings import Settings

IS_NIGHT = os.environ.get("OZ_TEST_PROFILE") == "nightly"
EVENTS = int(os.environ.get("OZ_TEST_REBUILD_EVENTS", "1000000"))
WHY = ["--why", "a proof"]
GOOD = frozenset({"open", "discard"})  # what stays out of the fold


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of all there is.

    Attributes:
        events: ordinary ones, before the rebuild.
        special: times as many of what has a document of its own.
        trouble: the share of the ordinary ones that fail at first.
        rate: events a second during the rebuild.
        after: events after it.
        tells: of one document of so many events are published.
        messages: webhooks, about.
        processes: that fill the new one, and members.
        seconds: for whatever is waited for.
    """

    events: int
    special: int
    trouble: float
    rate: float
    after: int
    tells: int
    messages: int
    processes: int
    seconds: float


SMALL = Scale(300, 1, 0.03, 40, 60, 1, 100, 1, 60)
LARGE = Scale(EVENTS, max(2, EVENTS // 30_000), 0.02, 50, 200, max(1, EVENTS // 50_000), 2_000, 2, 60 + EVENTS / 100)


class Proof:
    """One rebuild, from an empty log to two generations that are what they have to be.

    Args:
        settings: of the test.
        database: of the test.
        scale: how much of all.
        parts: what it runs.
        holds: whether the group holds up what comes behind a dead letter.
    """

    def __init__(
        self, settings: Settings, database: psycopg.Connection, scale: Scale, parts: Parts, *, holds: bool
    ) -> None:
        seed = int(os.environ.get("OZ_TEST_SEED") or random.randrange(1_000_000))
        print(f"seed {seed}; again with OZ_TEST_SEED={seed}; {scale.events:,} events")
        self._began = time.monotonic()
        self._folder = settings.home
        self._url = settings.database_url.get_secret_value()
        self._scale = scale
        self._parts = parts
        self._holds = holds
        self._database = database
        self._shelf = Shelf(settings, database, scale.seconds, 0.05 + scale.events / 200_000)
        self._source = Source(seed, scale.events // 3, scale.tells, scale.trouble)
        self._receiver = Receiver(TENANTS * scale.messages * scale.tells // scale.events or 1)
        self._kills: list[float] = []

    def run(self) -> None:
        """Prove it."""
        shelf, receiver, reader = self._shelf, self._receiver, Reader(self._url)
        with ExitStack() as stack:
            special = self._publish()
            for _ in range(self._scale.processes):
                stack.enter_context(self._parts.member())
            stack.enter_context(receiver.listening(self._database))
            stack.enter_context(self._parts.relay())
            kill = stack.enter_context(self._parts.notifier())
            self._fill_the_first(special)

            watch_switches(self._database)
            (self._folder / "slow").touch()
            self._source.prefix = "live"
            stack.enter_context(reader)
            with shelf.live(self._source, self._scale.rate, ["late"]):
                if kill is not None:
                    self._kills.append(kill())
                said = self._rebuild(special)
            self._tell(next(line for line in said.splitlines() if "is read now" in line))
            (self._folder / "slow").unlink()
            shelf.publish(islice(self._source.ordinary(10**9, ["once", "twice"]), self._scale.after))
            if kill is not None:
                self._kills.append(kill())
            log = shelf.log()
            self._tell(f"{len(log):,} records are in the log")
            new = Fold(log, GOOD)
            shelf.await_count("applied", 2, len(new.applied))
            shelf.await_quiet()
            told = {one.event_id for one in firsts(log) if receiver.is_told(one.tenant_id)} & self._published(log, new)
            shelf.wait_until(lambda: len(receiver.events()) >= len(told), "the receiver of webhooks")
            self._tell("quiet")

        assert shelf.differences(2, new) == []
        assert shelf.count("discarded", 2) == len(special["discard"])
        assert shelf.count("dead-lettered", 2) == len(special["open"])
        old = shelf.applied(1)
        assert shelf.differences(1, Fold([one for one in log if one.event_id in old], ())) == []
        assert old <= new.applied

        assert wrong_at_switches(self._database) == []
        assert reader.backwards() == []
        assert {generation for generation, _ in reader.seen} == {1, 2}

        effects = shelf.effects()
        wrong = {one: effects.get(one, 0) for one in self._published(log, new) if effects.pop(one, 0) != 1}
        assert wrong == {}, "an effect of each applied event, once"
        assert effects == {}, "and of no other"
        owed = new.applied - old
        assert {one.event_id for one in firsts(log) if one.trouble == "stuck"} <= owed
        assert receiver.events() == told
        assert receiver.repeated(self._kills) == []
        self._tell(
            f"{len(log):,} records, {len(new.applied):,} events applied, {len(owed):,} of them only by generation 2,"
            f" {len(told):,} webhooks"
        )

    def _publish(self) -> dict[str, list[Made]]:
        """What is in the log before all; the special events that fail, by what befalls them."""
        made = self._source.special(self._scale.special, holds=self._holds)
        (self._folder / "poison").touch()
        for column in range(2):  # what comes first of each, and what fails; the rest lies behind all the others
            self._shelf.publish(one[column] for one in made)
        self._shelf.publish(self._source.ordinary(self._scale.events, ["once", "twice"]))
        self._shelf.publish(one for events in made for one in events[2:])
        self._tell("published")
        special: dict[str, list[Made]] = {}
        for one in self._shelf.published.values():
            special.setdefault(one.trouble, []).append(one)
        return special

    def _fill_the_first(self, special: dict[str, list[Made]]) -> None:
        shelf = self._shelf
        shelf.await_count("dead-lettered", 1, sum(len(special[one]) for one in DEAD))
        (self._folder / "poison").unlink()
        self._tell("dead letters are there")
        self._decide(special["edit"])
        self._tell("and decided about")
        first = Fold(before_stuck(shelf.log()), GOOD)
        shelf.await_count("applied", 1, len(first.applied))
        self._tell("generation 1 is where it can be")
        assert shelf.differences(1, first) == []

    def _decide(self, edits: Sequence[Made]) -> None:
        """Operators look at the dead letters."""
        shown = json.loads(self._do("dlq", "list", "shelf", "--json", "--text", "edit"))
        places = {one["key"]: one["place"] for one in shown}
        for one in edits:
            self._do("dlq", "edit", "shelf", places[str(one.document_id)], "--set", "name=good", *WHY)
            self._do("dlq", "redrive", "shelf", places[str(one.document_id)], *WHY)
        self._do("dlq", "discard", "shelf", "--text", "discard", *WHY)
        for trouble in ("mended", "stubborn"):
            self._do("dlq", "redrive", "shelf", "--text", trouble, "--rate", "1000", *WHY)

    def _rebuild(self, special: dict[str, list[Made]]) -> str:
        """Until it is done, as operators do it: it is refused while what is read is dead, or waits, in the new one."""
        dead, is_redriven = len(special["open"]) + len(special["stubborn"]), False
        options = ["--processes", str(self._scale.processes), *WHY, "--yes"]
        for _ in range(30):
            done = self._parts.command("rebuild", GROUP, *options)
            said = done.stdout + done.stderr
            if done.returncode == 0:
                assert is_redriven, "readers would lose what is dead in the new one"
                return said
            assert done.returncode == 3, said
            assert "nothing was switched" in said
            self._tell("refused: what readers would lose was listed")
            if not is_redriven and self._shelf.count("dead-lettered", 2) == dead:
                self._do("dlq", "redrive", "shelf.g2", "--text", "stubborn", *WHY)
                is_redriven = True
        raise AssertionError(f"refused again and again: {said}")

    def _published(self, log: Sequence[Made], fold: Fold) -> set[UUID]:
        """Of which events one was published."""
        tells = self._scale.tells
        return {one.event_id for one in log if one.event_id in fold.applied and one.document_id.int % tells == 0}

    def _do(self, *arguments: str) -> str:
        done = self._parts.command(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _tell(self, what: str) -> None:
        print(f"{time.monotonic() - self._began:7.1f} s  {what}", flush=True)


def environment(scale: Scale, kind: str, dead: str) -> dict[str, str]:
    return {
        "SHELF_KIND": kind,
        "SHELF_ON_DEAD_LETTER": dead,
        "SHELF_TELLS": str(scale.tells),
        "OFFSETZERO_METRICS_PORT": "0",
        "OFFSETZERO_LOG_LEVEL": "ERROR",
        "OFFSETZERO_WEBHOOKS__ALLOW_PRIVATE_TARGETS": "true",
    }


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "dead"), [("batch", "release"), ("one by one", "hold")])
def test_a_rebuilt_generation_is_the_fold_of_the_log_and_each_effect_happens_once(
    settings: Settings,
    topics: None,
    database: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    dead: str,
) -> None:
    parts = Here(settings, monkeypatch, environment(SMALL, kind, dead))
    Proof(settings, database, SMALL, parts, holds=dead == "hold").run()


@pytest.mark.skipif(not IS_NIGHT, reason="a minute or more: make fold")
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("kind", "dead"), [("batch", "release"), *([("one by one", "hold")] if EVENTS <= 100_000 else [])]
)
def test_a_generation_that_processes_rebuild_is_the_fold_of_a_long_log(
    settings: Settings, topics: None, database: psycopg.Connection, tmp_path: Path, kind: str, dead: str
) -> None:
    parts = Processes(settings, tmp_path, environment(LARGE, kind, dead), LARGE.seconds * 2)
    Proof(settings, database, LARGE, parts, holds=dead == "hold").run()
