"""What may be under way together in a redrive, and what canaries say."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetzero.retry.headers import Hop, Origin
from offsetzero.retry.letter import DeadLetter
from offsetzero.retry.redrive import chunks
from offsetzero.retry.redrive_plan import Verdict, judge
from offsetzero.store.dead_letter_actions import Planned
from offsetzero.store.dead_letters import Entry


def planned(number: int, key: bytes | None) -> tuple[Planned, DeadLetter]:
    at = datetime(2025, 1, 1, tzinfo=UTC)
    entry = Entry(*("", 0, number, "g", at, "", "", 0, None, None, None, None, *("",) * 4, 1, "", "", 0, number))
    hop = Hop(Origin("", "", 0, number))
    return Planned(number, entry, None), DeadLetter("g", 0, number, 0, key, b"", [], hop, None, *("",) * 5)


@given(st.lists(st.sampled_from([b"a", b"b", b"c", None]), max_size=40), st.integers(1, 10))
def test_of_a_key_one_is_under_way_at_a_time(keys: list[bytes | None], most: int) -> None:
    made = [planned(number, key) for number, key in enumerate(keys)]
    found = list(chunks(made, most))
    assert [one for chunk in found for one in chunk] == made
    for chunk in found:
        keyed = [letter.key for _, letter in chunk if letter.key is not None]
        assert len(keyed) == len(set(keyed))
        assert 1 <= len(chunk) <= most


def test_letters_without_keys_go_together() -> None:
    assert [len(chunk) for chunk in chunks([planned(number, None) for number in range(10)], 4)] == [4, 4, 2]


@pytest.mark.parametrize(
    ("outcomes", "limit", "verdict"),
    [
        ({}, 0.05, Verdict.WAIT),
        ({"applied": 20}, 0.05, Verdict.GO),
        ({"applied": 18, "stale": 2}, 0.0, Verdict.GO),
        ({"applied": 19, "failed": 1}, 0.05, Verdict.GO),
        ({"applied": 19}, 0.05, Verdict.GO),  # whatever becomes of the last one
        ({"applied": 18}, 0.05, Verdict.WAIT),
        ({"applied": 18, "failed": 2}, 0.05, Verdict.STOP),
        ({"dead-lettered": 2}, 0.05, Verdict.STOP),  # before the others have ended
        ({"dead-lettered": 1}, 0.0, Verdict.STOP),
        ({"cancelled": 20}, 1.0, Verdict.GO),
    ],
)
def test_the_rest_follows_as_soon_as_it_is_certain(outcomes: dict[str, int], limit: float, verdict: Verdict) -> None:
    assert judge(20, outcomes, limit) is verdict
