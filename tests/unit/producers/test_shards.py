"""Which relay has which shards: the rule alone, as relays come and go in any order."""

from hypothesis import given, settings
from hypothesis import strategies as st

from offsetzero.producers.shards import change
from offsetzero.store.outbox import SHARDS


def _turn(pid: int, members: set[int], owners: dict[int, int]) -> bool:
    """One relay does what the rule says; whether it did anything."""
    todo = change(pid, members, owners)
    assert not todo.take or not todo.give
    for shard in todo.give:
        assert owners.pop(shard) == pid
    for shard in todo.take:
        assert shard not in owners
        owners[shard] = pid
    return bool(todo.give or todo.take)


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 60)), min_size=1, max_size=30), st.randoms())
def test_every_shard_has_a_relay_and_all_have_as_many_whoever_comes_and_goes(
    steps: list[tuple[bool, int]], dice: object
) -> None:
    members: set[int] = set()
    owners: dict[int, int] = {}
    for comes, pid in steps:
        if comes:
            members.add(pid)
        else:
            members.discard(pid)
            owners = {shard: owner for shard, owner in owners.items() if owner != pid}
        order = list(members)
        for _ in range(3):  # giving, then taking
            dice.shuffle(order)  # type: ignore[attr-defined]
            for one in order:
                _turn(one, members, owners)
        if members:
            assert sorted(owners) == list(range(SHARDS))
            sizes = [list(owners.values()).count(one) for one in members]
            assert max(sizes) - min(sizes) <= 1
            assert not any(_turn(one, members, owners) for one in order)  # it is at rest


def test_one_that_comes_takes_no_more_than_its_part_and_the_others_keep_the_rest() -> None:
    owners = dict.fromkeys(range(SHARDS), 1)
    assert change(2, {1, 2}, owners).take == []
    assert len(change(1, {1, 2}, owners).give) == SHARDS // 2


def test_of_more_relays_than_shards_some_have_none() -> None:
    members = set(range(SHARDS + 3))
    assert [len(change(pid, members, {}).take) for pid in sorted(members)] == [1] * SHARDS + [0] * 3


def test_a_shard_with_records_that_have_no_answer_is_not_given() -> None:
    """The next relay would send them again and go on with their keys, and ours might land behind all that."""
    owners = dict.fromkeys(range(SHARDS), 1)
    busy = {0, 20, 31}
    given = change(1, {1, 2}, owners, busy).give
    assert len(given) == SHARDS // 2
    assert not busy & set(given)
    busy = set(range(SHARDS - 3))
    assert change(1, {1, 2}, owners, busy).give == [SHARDS - 3, SHARDS - 2, SHARDS - 1]
