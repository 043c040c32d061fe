"""The proof of a rebuild: with everything that befalls a log, and live traffic, its result is the fold of the log."""

import json
import os
import random
import time
from collections.abc import Container, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from kafka.folding.fold import DEAD, EDITED, TENANTS, Fold, Made, Source, before_stuck, firsts
from kafka.folding.parts import GROUP, Here, Parts, Processes
from kafka.folding.scale import EVENTS, LARGE, SMALL, Scale, environment
from kafka.folding.shelves import Shelf
from kafka.folding.witnesses import Reader, Receiver, watch_switches, wrong_about_h, wrong_at_switches

from offsetzero.settings import Settings

IS_NIGHT = os.environ.get("OZ_TEST_PROFILE") == "nightly"
WHY = ["--why", "a proof"]
GOOD = frozenset({"open", "discard"})  # what stays out of the fold


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
            with shelf.live(self._source, self._scale.rate, self._scale.live, ["late"], self._scale.freezes):
                if kill is not None:
                    self._kills.append(kill())
                said = self._rebuild(special)
            self._tell(next(line for line in said.splitlines() if "is read now" in line))
            (self._folder / "slow").unlink()
            shelf.publish(islice(self._source.ordinary(10**9, ["once", "twice"]), self._scale.after))
            if kill is not None:
                self._kills.append(kill())
            placed = shelf.placed()
            log = [one for _, _, one in placed]
            self._tell(f"{len(log):,} records are in the log")
            new = Fold(log, GOOD)
            all_there = len(new.applied)
            shelf.await_all(
                _of(log, new.applied),
                lambda: shelf.applied(2),
                "applied by generation 2",
                lambda: shelf.count("applied", 2) >= all_there,
            )
            published = self._published(log, new)
            shelf.await_all(_of(log, published), lambda: set(shelf.effects()), "published, by either generation")
            shelf.await_quiet()
            told = {one.event_id for one in firsts(log) if receiver.is_told(one.tenant_id)} & published
            shelf.await_all(_of(log, told), receiver.events, "told to the receiver of webhooks")
            ends = {number: offset + 1 for number, offset, _ in placed}
            shelf.wait_until(lambda: shelf.positions(2).items() >= ends.items(), "generation 2 behind the log")
            self._tell("quiet")

        assert wrong_at_switches(self._database) == []
        assert {one: at for one, at in shelf.positions(2).items() if at != ends.get(one, 0)} == {}, "at the log's end"
        assert wrong_about_h(self._database, placed) == []
        assert shelf.differences(2, new) == []
        assert shelf.count("discarded", 2) == len(special["discard"])
        assert shelf.count("dead-lettered", 2) == len(special["open"])
        old = shelf.applied(1)
        assert shelf.differences(1, Fold([one for one in log if one.event_id in old], ())) == []
        assert old <= new.applied

        assert reader.backwards() == []
        assert {generation for generation, _ in reader.seen} == {1, 2}

        effects = shelf.effects()
        wrong = [
            f"{one} has published {effects[one.event_id]} times"
            for one in _of(log, effects)
            if effects[one.event_id] != 1 or one.event_id not in published
        ]
        assert wrong == [], "an effect of each applied event once, and of no other"
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
        self._decide([one for trouble in EDITED for one in special[trouble]])
        self._tell("and decided about")
        first = Fold(before_stuck(shelf.log()), GOOD)
        shelf.await_count("applied", 1, len(first.applied))
        self._tell("generation 1 is where it can be")
        assert shelf.differences(1, first) == []

    def _decide(self, edits: Sequence[Made]) -> None:
        """Operators look at the dead letters."""
        shown = [json.loads(self._do("dlq", "list", "shelf", "--json", "--text", trouble)) for trouble in EDITED]
        places = {one["key"]: one["place"] for some in shown for one in some}
        for one in edits:
            self._do("dlq", "edit", "shelf", places[str(one.document_id)], "--set", "name=good", *WHY)
            self._do("dlq", "redrive", "shelf", places[str(one.document_id)], *WHY)
        self._do("dlq", "discard", "shelf", "--text", "discard", *WHY)
        for trouble in ("mended", "stubborn"):
            self._do("dlq", "redrive", "shelf", "--text", trouble, "--rate", "1000", *WHY)

    def _rebuild(self, special: dict[str, list[Made]]) -> str:
        """Until it is done, as operators do it: it is refused while what is read is dead, or waits, in the new one."""
        dead, is_redriven = len(special["open"]) + len(special["stubborn"]), False
        options = ["--processes", str(self._scale.processes), "--stand-still", str(self._scale.still), *WHY, "--yes"]
        for _ in range(30):
            done = self._parts.command("rebuild", GROUP, *options)
            said = done.stdout + done.stderr
            if done.returncode == 0:
                assert is_redriven, "readers would lose what is dead in the new one"
                return said
            assert done.returncode == 3, said
            assert "nothing was switched" in said
            self._tell("refused: what readers would lose was listed")
            letters = self._shelf.letters(2)
            unlike = [str(one) for one in letters if one.trouble not in ("open", "stubborn")]
            assert unlike == [], "dead in generation 2, and nothing is wrong with it"
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


def _of(log: Sequence[Made], wanted: Container[UUID]) -> list[Made]:
    return [one for one in firsts(log) if one.event_id in wanted]


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
