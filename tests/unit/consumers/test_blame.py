"""Which records share a transaction, and which are at fault when it is not said whose topic has refused it."""

from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.working.appends import Append
from offsetzero.consumers.working.blame import Handled, Shares
from offsetzero.consumers.working.run import Ending

STAYS = [OwnedPartition("documents", "id", number) for number in range(3)]


def handled(partition: int, offset: int, *topics: str) -> Handled:
    appends = [Append(topic, None, None, []) for topic in topics]
    return Handled(Record(STAYS[partition], offset, None, None, [], 0), Ending.DONE, appends)


def find(forbidden: str, rest: list[Handled], refused: frozenset[str] = frozenset()) -> tuple[list[Handled], int]:
    """Commit them, where one topic may not be written to: the records at fault, and how many transactions it took."""
    shares, found, tries = Shares(refused), list[Handled](), 0
    while rest:
        share, tries = shares.next(rest), tries + 1
        assert share, "something is tried"
        if any(forbidden in one.topics for one in share):
            at_fault = shares.not_allowed(share)
            found += at_fault
            held = {one.record.owned for one in at_fault}
            rest = [one for one in rest if one.record.owned not in held]
        else:
            for stay in STAYS:
                mine = [one for one in rest if one.record.owned is stay]
                same = [one for one in share if one.record.owned is stay]
                assert mine[: len(same)] == same, "a prefix"
            shares.took()
            rest = [one for one in rest if one not in share]
    return found, tries


def test_everything_goes_together_when_nothing_is_known_to_refuse() -> None:
    rest = [handled(0, 0, "out"), handled(1, 0, "dlq"), handled(0, 1)]
    assert Shares(frozenset()).next(rest) == rest


def test_a_topic_that_may_not_be_written_to_is_found_out() -> None:
    bad, other = handled(0, 1, "dlq"), handled(2, 0, "dlq")
    rest = [handled(0, 0, "out"), bad, handled(0, 2), handled(1, 0, "out"), other, handled(1, 1, "retry")]
    found, tries = find("dlq", rest)
    assert found == [bad, other], "both, once it is known which topic it is"
    assert tries <= 5


def test_records_of_one_topic_are_at_fault_at_once() -> None:
    rest = [handled(0, 0), handled(0, 1, "dlq"), handled(1, 0, "dlq")]
    assert find("dlq", rest) == (rest[1:], 1)


def test_what_has_refused_before_goes_last() -> None:
    bad = handled(0, 0, "dlq")
    rest = [bad, handled(0, 1), handled(1, 0, "out"), handled(1, 1, "dlq")]
    shares = Shares(frozenset({"dlq"}))
    assert shares.next(rest) == [rest[2]]
    assert not shares.is_doubtful
    shares.took()
    rest.remove(rest[2])
    assert shares.next(rest) == rest
    assert shares.is_doubtful


def test_a_permission_that_is_taken_away_in_between_is_found_out() -> None:
    out, dlq = handled(0, 0, "out"), handled(1, 0, "dlq")
    shares = Shares(frozenset())
    assert shares.not_allowed(shares.next([out, dlq])) == []
    for one in (out, dlq):
        assert shares.next([one]) == [one]
        shares.took()
    assert shares.next([out, dlq]) == [out, dlq], "both are known to be taken"
    assert shares.not_allowed([out, dlq]) == [], "and are no longer"
    assert shares.next([out, dlq]) == [out]
    assert shares.not_allowed([out]) == [out]
