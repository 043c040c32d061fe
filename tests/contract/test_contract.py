"""What the runtime promises to handlers, and of commits: the same on every log, by either protocol."""

from collections import Counter

import pytest
from contract.harness import DEAD, RETRY, Journal, Log, caught_up, put, record

from offsetzero.consumers.context import Context
from offsetzero.errors import LostBecause, PositionLost
from offsetzero.retry.failures import Transient
from offsetzero.schemas.documents import DocumentUploaded


@pytest.fixture
def journal() -> Journal:
    return Journal()


def test_records_of_a_key_run_one_by_one_in_the_order_of_the_log(log: Log, journal: Journal) -> None:
    running: Counter[str] = Counter()
    overlaps: list[str] = []

    def handle(event: DocumentUploaded, ctx: Context) -> None:
        running[event.name] += 1
        if running[event.name] > 1:
            overlaps.append(event.name)
        running[event.name] -= 1

    keys = {f"k{number}": number % log.partitions for number in range(12)}
    places = {(keys[key], put(log, keys[key], key)) for _ in range(20) for key in keys}
    member = log.join(journal.group("a", handle, concurrency=8))
    caught_up(log)
    assert member.stop() == []
    assert Counter(journal.ended) == Counter(places)
    assert overlaps == []
    for key in keys:
        offsets = [call.offset for call in journal.calls if call.key == key]
        assert offsets == sorted(offsets)


def test_nothing_is_committed_past_an_undone_record(log: Log, journal: Journal) -> None:
    """parallel-consumer#894: the highest offset seen was committed."""
    gate = log.gate()
    slow = put(log, 0, "slow")
    member = log.join(journal.group("a", lambda event, _: gate.wait() if event.name == "slow" else None))
    quick = [(0, put(log, 0, f"quick {number}")) for number in range(5)]
    log.until(lambda: set(quick) <= set(journal.ended), "the others of the partition")
    behind = put(log, 1, "behind")
    log.until(lambda: log.committed(1) == behind + 1, "a later commit")
    assert log.committed(0) == slow
    gate.open()
    caught_up(log)
    assert log.committed(0) == slow + 6
    assert member.stop() == []


def test_a_member_begins_where_the_last_one_ended(log: Log, journal: Journal) -> None:
    first = [(0, put(log, 0, f"k{number}")) for number in range(3)]
    member = log.join(journal.group("a"))
    log.until(lambda: len(journal.ended) == 3, "the first records")
    assert member.stop() == []
    assert log.behind() == [], "what has ended is committed before the group is left"
    second = [(0, put(log, 0, f"k{number}")) for number in range(3)]
    log.join(journal.group("b"))
    caught_up(log)
    assert [call.place for call in journal.calls if call.member == "b"] == second
    assert [call.place for call in journal.calls if call.member == "a"] == first


def test_a_committed_offset_is_where_a_group_begins(log: Log, journal: Journal) -> None:
    places = [(0, put(log, 0, f"k{number}")) for number in range(4)]
    log.commit(0, places[2][1])
    log.join(journal.group("a", concurrency=1))
    caught_up(log)
    assert journal.ended == places[2:]


def test_an_offset_that_the_log_does_not_have_stops_the_group(log: Log, journal: Journal) -> None:
    """franz-go#1428: the client goes to an end of the log, and says nothing."""
    put(log, 0, "k")
    put(log, 1, "k")
    log.commit(0, 7)
    member = log.join(journal.group("a"))
    error = log.until(lambda: member.error, "the end of the member")
    assert isinstance(error, PositionLost)
    assert (error.reason, error.partition, error.gap) == (LostBecause.ABOVE_END, 0, (1, 7))
    assert log.committed(0) == 7


@pytest.mark.parametrize(("failing", "topic"), [("busy", RETRY), ("unreadable", DEAD)])
def test_a_failure_is_in_the_log_before_its_record_is_done(
    failing: str, topic: str, log: Log, journal: Journal
) -> None:
    """arroyo: the offset was committed past a dead letter that was never delivered."""

    def handle(event: DocumentUploaded, ctx: Context) -> None:
        if event.name == "busy" and ctx.attempt == 1:
            raise Transient("busy", "try again")

    value, headers = record(failing)
    if failing == "unreadable":
        value = value[:-1]
    log.refuses = True
    offset = log.append(0, failing, value, headers)
    quick = [(0, put(log, 0, f"quick {number}")) for number in range(5)]  # before it joins: then the partition rests
    member = log.join(journal.group("a", handle))
    log.until(lambda: set(quick) <= set(journal.ended), "the others of the partition")
    behind = put(log, 1, "behind")
    log.until(lambda: log.committed(1) == behind + 1, "a later commit")
    assert log.committed(0) == offset
    assert log.read(topic) == []
    log.refuses = False
    caught_up(log)
    assert member.stop() == []
    copy = log.read(topic)[0]
    assert (copy.partition, copy.key, copy.value) == (0, failing.encode(), value)
    assert copy.headers["oz_attempt"] == (b"2" if topic == RETRY else b"1")
    assert (copy.headers["oz_origin"] or b"").endswith(f"/0/{offset}".encode())
    assert {name: copy.headers[name] for name, _ in headers} == dict(headers)
    attempts = [call.attempt for call in journal.calls if call.place == (0, offset)]
    assert attempts == ([1, 2] if topic == RETRY else [])
    assert len(log.read(RETRY)) + len(log.read(DEAD)) == 1


def test_what_runs_is_done_and_committed_before_its_partition_goes(log: Log, journal: Journal) -> None:
    """karafka#3220, confluent-kafka-dotnet#1861."""
    gate = log.gate()
    places = {(number, put(log, number, f"k{number}")) for number in range(log.partitions)}
    first = log.join(journal.group("a", lambda *_: gate.wait(), concurrency=log.partitions))
    log.until(lambda: len(journal.calls) == log.partitions, "a running handler for each partition")
    second = log.join(journal.group("b"))
    log.until(first.has_to_give_up, "the rebalance")
    assert {call.member for call in journal.calls} == {"a"}
    gate.open()
    caught_up(log)
    log.until(lambda: _both_work(log, journal), "work of both members")
    caught_up(log)
    assert places <= {call.place for call in journal.calls if call.member == "a" and call.ended}
    if log.takes_last_commits:
        assert max(Counter(journal.ended).values()) == 1, "what was done is not done again"
    assert first.stop() == []
    assert second.stop() == []


def test_of_what_was_lost_nothing_is_committed(log: Log, journal: Journal) -> None:
    """librdkafka#5604: after max.poll.interval.ms a commit of the old owner goes back, or past what is undone."""
    gates = {"slow 0": log.gate(), "slow 1": log.gate()}
    slow = [(number, put(log, number, f"slow {number}")) for number in range(2)]
    first = log.join(journal.group("a", lambda event, _: gates[event.name].wait() if event.name in gates else None))
    log.until(lambda: len(journal.calls) == 2, "the running handlers")
    log.lose(first)
    second = log.join(journal.group("b"))
    log.until(lambda: set(slow) <= set(journal.ended), "the records' handling by their new owner")
    gates["slow 1"].open()
    caught_up(log)
    log.until(first.has_lost, "that the old owner hears of it")
    caught_up(log)
    gates["slow 0"].open()
    log.until(lambda: all(Counter(journal.ended)[place] == 2 for place in slow), "the late ends at the old owner")
    log.until(lambda: _both_work(log, journal), "work of both members")
    caught_up(log)
    if log.takes_last_commits:
        assert {place for place, count in Counter(journal.ended).items() if count > 1} == set(slow)
    assert first.stop() == []
    assert second.stop() == []


def test_a_member_that_stops_under_load_leaves_nothing_half_done(log: Log, journal: Journal) -> None:
    """dramatiq#376: what ran at the shutdown ran again."""
    gate = log.gate()
    for number in range(40):
        put(log, number % log.partitions, f"k{number}")
    first = log.join(journal.group("a", lambda *_: gate.wait()))
    log.until(lambda: len(journal.calls) >= 4, "running handlers")
    gate.open()
    assert first.stop() == []
    assert all(call.ended for call in journal.calls)
    log.join(journal.group("b"))
    caught_up(log)
    assert Counter(journal.ended).total() == len(set(journal.ended)) == 40


def test_what_transactions_leave_in_the_log_is_read_to_its_end(log: Log, journal: Journal) -> None:
    """faust#606, parallel-consumer#329: markers and aborted records look like work in flight; lag is never 0."""
    if not log.has_markers:
        pytest.skip("this log has no markers")
    log.append_in_transaction(0, "k", *record("aborted"), commit=False)
    member = log.join(journal.group("a"))
    caught_up(log)
    log.append_in_transaction(0, "k", *record("committed"), commit=True)
    caught_up(log)
    log.append_in_transaction(0, "k", *record("aborted"), commit=False)
    caught_up(log)
    assert [call.key for call in journal.calls] == ["committed"]
    assert member.stop() == []
    assert log.behind() == []


def _both_work(log: Log, journal: Journal) -> bool:
    """Whether a record for each partition has found both members at work."""
    at = len(journal.calls)
    for number in range(log.partitions):
        put(log, number, "who is there")
    log.until(lambda: len(journal.calls) >= at + log.partitions, "a record of each partition")
    return {call.member for call in journal.calls[at:]} == {"a", "b"}
