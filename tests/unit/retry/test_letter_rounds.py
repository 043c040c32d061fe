"""Which spans of a dead-letter topic are read for some of its letters."""

from hypothesis import given
from hypothesis import strategies as st

from offsetzero.retry.dead_letters import SKIP, rounds

PLACES = st.sets(st.tuples(st.integers(0, 3), st.integers(0, 20).map(lambda n: n * SKIP // 3)))


@given(PLACES)
def test_each_place_is_read_once_in_the_order_of_its_partition(places: set[tuple[int, int]]) -> None:
    found = rounds(places)
    for partition, offset in places:
        spans = [one[partition] for one in found if partition in one]
        assert sum(first <= offset < end for first, end in spans) == 1
        assert spans == sorted(spans)
    assert sum(len(one) for one in found) <= len(places)


def test_what_is_near_is_read_in_one_go() -> None:
    assert rounds([(0, 5), (0, 5 + SKIP), (1, 7), (0, 9 + 2 * SKIP)]) == [
        {0: (5, 6 + SKIP), 1: (7, 8)},
        {0: (9 + 2 * SKIP, 10 + 2 * SKIP)},
    ]
