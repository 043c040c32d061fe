"""What an archive leaves open of what a log has lost."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from offsetzero.history.missing import gaps

SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)).map(lambda one: (one[0], one[0] + one[1])))


@given(st.integers(0, 30), SPANS)
def test_the_gaps_are_the_offsets_that_no_span_has(end: int, kept: list[tuple[int, int]]) -> None:
    found = gaps(end, kept)
    open_offsets = set(range(end)) - {offset for first, behind in kept for offset in range(first, behind)}
    assert {offset for first, behind in found for offset in range(first, behind)} == open_offsets
    assert all(first < behind for first, behind in found)
    assert all(one[1] < other[0] for one, other in pairwise(found)), "in order, and none touch"
