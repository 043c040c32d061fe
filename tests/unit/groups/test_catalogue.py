"""Which of a document's events the catalogue keeps."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetzero.consumers.groups.catalogue import newest
from offsetzero.retry.failures import Poison
from offsetzero.store.catalogue import Entry

AT = datetime(2026, 1, 1, tzinfo=UTC)
ONE = UUID(int=1)


def entry(
    sequence: int = 0, place: int = 0, *, partition: int = 0, deletes: bool = False, document: UUID = ONE
) -> Entry:
    times = (None, AT) if deletes else (AT, None)
    name = "" if deletes else f"{sequence}@{place}"
    return Entry(document, "acme", sequence, "topic", partition, place, name, "application/pdf", 1, *times)


def test_a_higher_version_is_newer_wherever_it_stands_in_the_log() -> None:
    assert newest([entry(2, 5), entry(1, 9)]) == [entry(2, 5)]
    assert newest([entry(1, 5, partition=1), entry(2, 0)]) == [entry(2, 0)]


def test_without_versions_the_later_place_of_a_partition_is_newer() -> None:
    assert newest([entry(place=5), entry(place=9), entry(place=7)]) == [entry(place=9)]
    assert newest([entry(place=9), entry(1, 5)]) == [entry(1, 5)], "one without a version is older than any with one"


def test_a_deletion_is_newer_than_any_upload() -> None:
    gone = entry(1, 0, deletes=True)
    assert newest([entry(7, 9), gone]) == newest([gone, entry(7, 9)]) == [gone]


@pytest.mark.parametrize("sequence", [0, 3])
def test_of_two_partitions_without_a_word_nobody_knows_which_is_newer(sequence: int) -> None:
    with pytest.raises(Poison, match="two events of different partitions have the same version"):
        newest([entry(sequence, 1), entry(sequence, 2, partition=1)])


ENTRIES = st.builds(
    entry,
    st.integers(0, 3),
    st.integers(0, 9),
    deletes=st.booleans(),
    document=st.sampled_from([ONE, UUID(int=2)]),
)


@pytest.mark.hypothesis
@given(st.lists(ENTRIES, max_size=12), st.randoms())
def test_the_order_of_arrival_changes_nothing(entries: list[Entry], dice: object) -> None:
    turned = sorted(entries, key=lambda _: dice.random())  # type: ignore[attr-defined]
    assert sorted(newest(entries)) == sorted(newest(turned)) if _ranks_differ(entries) else True


def _ranks_differ(entries: list[Entry]) -> bool:
    """Whether no two different events are at one place, which does not happen."""
    places = {(one.document_id, one.place): one for one in entries}
    return all(places[one.document_id, one.place] == one for one in entries)
