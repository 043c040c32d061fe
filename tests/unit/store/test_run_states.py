"""The table of statuses: what may follow what, and that the page says the same."""

import re
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetzero.store.run_states import (
    RESCUED,
    RUN_CHANGES,
    STEP_CHANGES,
    Change,
    RunStatus,
    StepStatus,
    before_run,
    before_step,
    end_of,
)

PAGE = Path(__file__).parents[3] / "docs" / "api.md"
ENDS = {"succeeded", "failed", "cancelled"}


@pytest.mark.parametrize(("changes", "statuses"), [(RUN_CHANGES, RunStatus), (STEP_CHANGES, StepStatus)])
def test_a_terminal_status_is_left_by_a_redrive_only(changes: Iterable[Change[Any]], statuses: Any) -> None:
    pairs = {(before.value, change.after.value) for change in changes for before in change.before}
    assert {pair for pair in pairs if pair[0] in ENDS} == {("failed", "queued")}
    opened = {status.value for status in statuses} - ENDS
    assert {pair for pair in product(opened, ENDS) if pair not in pairs} == set(), "all that is open can end"
    rows = [change for change in changes if change is not RESCUED]
    assert len({change.after for change in rows}) == len(rows), "a status is reached in one row, but by the sweeper"


def test_statements_compare_with_the_table() -> None:
    assert before_run(RunStatus.CANCELLED) == ["queued", "running"]
    assert before_step(StepStatus.QUEUED) == ["failed"], "what runs is not begun again by an operator's redrive"


def test_the_page_has_the_table() -> None:
    page = PAGE.read_text().partition("## Runs and steps")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| (run|step) \| ([a-z, ]+) \| ([a-z]+) \| (.+) \|$", page, re.MULTILINE)
    made = [
        (kind, ", ".join(change.before), change.after.value, change.why)
        for kind, changes in (("run", RUN_CHANGES), ("step", STEP_CHANGES))
        for change in changes  # type: ignore[attr-defined]
    ]
    assert listed == made


@given(st.lists(st.sampled_from(StepStatus), max_size=5))
def test_required_steps_decide(required: list[StepStatus]) -> None:
    end = end_of(required)
    if not required or set(required) - ENDS:
        assert end is None, "not before the last one has ended"
    elif "failed" in required:
        assert end is RunStatus.FAILED
    else:
        assert end is (RunStatus.CANCELLED if "cancelled" in required else RunStatus.SUCCEEDED)
