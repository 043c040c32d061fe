"""The consumer runtime under seeded faults; what it is and how to read a schedule: docs/testing.md."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation import plan, simulation
from simulation.__main__ import TAIL, shown
from simulation.mutations import MUTATIONS, Mutation

SEEDS = 100
EVENTS = 20_000
PARTS = 10  # so that both workers of a run have some
FAULTY = {
    814: "an event has two dead letters after a forced replay, of which one is discarded and the other redriven",
    1264: "a member marks an event that has ended processes, and loses its partition before it begins",
    1269: "a partition is lost while the hold of a dead letter is written, before that is appended",
}
"""Seeds of `make simulate` that have found a fault."""
MUTATED = range(200)  # seeds within which a rule that is switched off must be found


@pytest.mark.parametrize("part", range(PARTS))
def test_every_law_holds_whatever_goes_wrong(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        result = simulation.run(seed)
        if result.failure is not None:
            pytest.fail(shown(result), pytrace=False)


@pytest.mark.parametrize("seed", FAULTY)
def test_what_was_found_by_other_seeds_is_mended(seed: int) -> None:
    result = simulation.run(seed)
    if result.failure is not None:
        pytest.fail(shown(result), pytrace=False)


def test_keys_keep_their_order_while_a_tenth_of_many_fail() -> None:
    """`make simulate-order` does the same with 1,000,000 events."""
    made = plan.large(EVENTS)
    assert len({one.key for one in made.events if one.behaviour.kind is plan.Kind.FAILS}) > 90
    result = simulation.play(made, lines=TAIL)
    if result.failure is not None:
        pytest.fail("\n".join([result.failure, *result.schedule]), pytrace=False)


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS.keys())
def test_a_rule_that_is_switched_off_is_found(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.apply(monkeypatch)
    for seed in sorted(MUTATED, key=lambda one: (one < mutation.seed, one)):
        failure = simulation.run(seed).failure
        if failure is not None:
            assert any(text in failure for text in mutation.found), f"seed {seed}: {failure}"
            return
    pytest.fail(f"no seed needs the rule: {mutation.rule}")


def test_equal_seeds_have_equal_schedules_in_other_processes_with_other_hashes() -> None:
    def digests(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parents[1])}
        command = [sys.executable, "-m", "simulation", "--seeds", "8", "--digest"]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    first = digests("1")
    assert len(first.splitlines()) == 8
    assert digests("2") == first


def test_the_seeds_have_every_fault_and_every_kind_of_group() -> None:
    plans = [plan.make(seed) for seed in range(SEEDS)]
    assert {step.what for one in plans for step in one.steps} == {*plan.STEPS, plan.FORCE}
    assert {one.classic for one in plans} == {one.preempt for one in plans} == {True, False}
    assert {event.behaviour.kind for one in plans for event in one.events} == set(plan.Kind)
    assert {one.effects for one in plans} == set(plan.Effects)
    assert {one.per_tenant for one in plans} == {one.in_bulk for one in plans} == {None, 1, 2}
    assert {bool(one.batch) for one in plans} == {bool(one.timeout) for one in plans} == {True, False}
