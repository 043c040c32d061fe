"""The polling thread's rules: what is committed and when, what is paused, what ends the group."""

import pytest
from confluent_kafka import KafkaError, TopicPartition
from unit.consumers.poll_loop import Loop
from unit.consumers.taking import end, finish, take

from offsetzero.consumers.reading import handed, opening, pressure
from offsetzero.consumers.reading.poll import KEEP_SECONDS
from offsetzero.consumers.reading.positions import Facts
from offsetzero.consumers.reading.transaction_commits import TransactionCommits
from offsetzero.consumers.record import BULK, OwnedPartition, bulk_of, spans
from offsetzero.consumers.working.lanes import KeyLanes
from offsetzero.consumers.working.limits import Limit
from offsetzero.consumers.working.run import Ending
from offsetzero.errors import GroupStopped, TopicError
from offsetzero.retry import headers as retry_headers
from offsetzero.retry.headers import Hop, Origin
from offsetzero.store.positions import Position


def test_done_records_are_committed_up_to_the_first_that_is_not() -> None:
    loop = Loop()
    for offset in (3, 4, 7):
        loop.deliver(offset)
    loop.turn()
    first, second, third = loop.take(), loop.take(), loop.take()
    for done in (third, first):
        finish(loop.dispatcher, done, done=True)
    loop.turn(2)
    assert loop.committed() == 4
    finish(loop.dispatcher, second, done=True)
    loop.turn(2)
    assert loop.committed() == 8


def test_the_end_of_a_partition_is_committed_past_markers() -> None:
    loop = Loop()
    loop.deliver(3)
    loop.deliver(6, error=KafkaError(KafkaError._PARTITION_EOF))
    loop.turn()
    finish(loop.dispatcher, loop.take(), done=True)
    loop.turn(2)
    assert loop.committed() == 6


def test_how_far_it_is_is_kept_as_soon_as_nothing_is_in_flight() -> None:
    """Transactions beside each other leave it to those that follow; who waits for the last of a log is not to wait."""
    loop = Loop(assign=False)
    place = "documents", 0
    loop.facts.facts[place] = Facts("id-1", 0, 100, kept=Position("id-1", 0))
    loop.assign(loop.places)
    loop.turn()
    for offset in (0, 1):
        loop.deliver(offset)
    loop.turn()
    first, second = loop.take(), loop.take()
    finish(loop.dispatcher, first, done=True)
    loop.turn()
    assert loop.facts.kept == [], "more is to come"
    finish(loop.dispatcher, second, done=True)
    loop.turn()
    assert loop.facts.kept == [{place: Position("id-1", 2)}], "long before the next round"
    loop.deliver(2)
    loop.turn()
    finish(loop.dispatcher, loop.take(), done=True)
    loop.turn()
    assert len(loop.facts.kept) == 1, "a record now and then does not make a transaction more each time"
    loop.turn(KEEP_SECONDS)
    assert loop.facts.kept[1:] == [{place: Position("id-1", 3)}]


def test_a_failed_commit_is_tried_again() -> None:
    loop = Loop()
    loop.deliver(0)
    loop.turn()
    finish(loop.dispatcher, loop.take(), done=True)
    loop.client.commit_error = KafkaError(KafkaError.STALE_MEMBER_EPOCH)
    loop.turn(2)
    loop.turn()
    assert loop.committed() == 0
    loop.client.commit_error = None
    loop.turn(2)
    assert loop.committed() == 1


def test_a_revoked_partition_is_committed_at_once_and_never_again() -> None:
    loop = Loop()
    loop.deliver(0)
    loop.deliver(1)
    loop.turn()
    first, second = loop.take(), loop.take()
    finish(loop.dispatcher, first, done=True)
    before = loop.clock.monotonic()
    end(loop.dispatcher, second, Ending.AGAIN)  # so that nothing runs: the revocation need not wait
    loop.revoke(loop.places[:1])
    assert loop.committed() == 1
    assert loop.clock.monotonic() == before
    loop.turn(120)
    assert loop.dispatcher.take_nowait() is None, "the postponed record belongs to another member now"
    loop.turn(2)
    assert loop.committed() == 1


def test_a_lost_partition_is_not_committed_and_its_appends_are_given_up() -> None:
    """confluent-kafka-dotnet#1861, karafka#3216."""
    loop = Loop()
    loop.deliver(0)
    loop.turn()
    finish(loop.dispatcher, loop.take(), done=True)
    loop.lose(loop.places[:1])
    loop.turn(2)
    assert loop.committed() == 0
    assert loop.lost == 1


def test_empty_and_partial_lists_are_deltas() -> None:
    """librdkafka#3337: lists taken as whole assignments."""
    loop = Loop()
    loop.assign([])
    loop.revoke([])
    loop.revoke(loop.places[1:2])
    loop.deliver(0)
    loop.deliver(0, partition=1)
    loop.turn()
    assert loop.take().partition == 0
    assert loop.dispatcher.take_nowait() is None, "partition 1 was revoked"


def test_a_pause_ends_with_the_assignment() -> None:
    loop = Loop(max_in_flight=2)
    for offset in range(4):
        loop.deliver(offset)
    loop.turn()
    for _ in range(4):
        loop.turn(0.6)
    assert ("t.documents", 0) in loop.client.paused
    loop.revoke(loop.places[:1])
    loop.assign(loop.places[:1])
    loop.turn()
    assert ("t.documents", 0) not in loop.client.paused


def test_without_room_it_pauses_and_goes_on_polling_and_resumes_at_half() -> None:
    loop = Loop(max_in_flight=4)
    for offset in range(8):
        loop.deliver(offset)
    loop.turn()
    assert loop.dispatcher.in_flight == 4
    loop.turn()
    polls = loop.client.polls
    loop.turn(pressure.FULL_SECONDS + 0.1)
    loop.turn()
    assert len(loop.client.paused) == 4
    assert loop.client.polls > polls, "a member that does not poll is evicted"
    assert loop.dispatcher.in_flight == 4
    finish(loop.dispatcher, loop.take(), done=True)
    loop.turn()
    assert loop.client.paused, "hysteresis: one free place is no reason to fetch anew"
    finish(loop.dispatcher, loop.take(), done=True)
    loop.turn()
    assert not loop.client.paused


def test_a_long_span_behind_one_undone_record_pauses_its_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """parallel-consumer#329: bounded span in flight."""
    monkeypatch.setattr(pressure, "MAX_SPAN", 10)
    loop = Loop()
    for offset in range(30):
        loop.deliver(offset)
    loop.turn()
    stuck = loop.take()
    while (record := take(loop.dispatcher)) is not None:
        finish(loop.dispatcher, record, done=True)
    loop.turn()
    assert loop.client.paused == {("t.documents", 0)}
    finish(loop.dispatcher, stuck, done=True)
    loop.turn(2)
    loop.turn()
    assert loop.client.paused == set()


def retry(loop: Loop, offset: int, due_in_ms: int, appended_ago_ms: int = 0) -> None:
    now = loop.clock.now_ms()
    hop = Hop(Origin("id-of-another", "documents", 0, offset), 2, 1, now + due_in_ms)
    headers = retry_headers.write([], hop, None, "audit")
    loop.deliver(offset, topic="audit.retry-1m", headers=headers, timestamp_ms=now - appended_ago_ms)


def test_a_retry_record_runs_when_it_is_due_and_not_before() -> None:
    loop = Loop()
    retry(loop, 0, 2_000)
    loop.turn()
    loop.turn(1.9)
    assert loop.dispatcher.take_nowait() is None
    loop.turn(0.1)
    assert loop.take().topic == "audit.retry-1m"


def test_a_clock_that_steps_back_makes_nobody_wait_longer_than_was_meant() -> None:
    loop = Loop()
    retry(loop, 0, 2_000)
    loop.clock.step(-3600)
    loop.turn()
    loop.turn(2.1)
    assert loop.take().offset == 0


def test_when_very_many_wait_in_retry_topics_nothing_more_is_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pressure, "MAX_WAITING", 3)
    loop = Loop()
    for offset in range(5):
        retry(loop, offset, 60_000)
    loop.turn()
    loop.turn()
    sources = {("t.documents", 0), ("t.documents", 1)}
    assert loop.client.paused == sources, "what the retry topics have must be known for the order of keys"
    loop.turn(60)
    for _ in range(4):
        finish(loop.dispatcher, loop.take(), done=True)
    loop.turn()
    assert loop.client.paused == set()


@pytest.mark.parametrize("code", [KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_an_error_that_no_waiting_mends_stops_the_group(code: int) -> None:
    loop = Loop()
    loop.deliver(0, error=KafkaError(code))
    with pytest.raises(GroupStopped, match="audit"):
        loop.turn()


def test_a_passing_error_is_passed_over() -> None:
    loop = Loop()
    loop.deliver(0, error=KafkaError(KafkaError._ALL_BROKERS_DOWN))
    loop.deliver(1)
    loop.turn()
    assert loop.take().offset == 1


def test_closing_commits_first_and_does_not_wait_for_ever() -> None:
    loop = Loop()
    loop.deliver(0)
    loop.turn()
    finish(loop.dispatcher, loop.take(), done=True)
    loop.loop.close()
    assert loop.committed() == 1
    assert loop.client.closed


@pytest.mark.parametrize("due", [b"9" * 400, b"99999999999999", b"-1", b"soon", b"\xff"])
def test_a_forged_due_time_is_read_at_once(due: bytes) -> None:
    """It turns out to be poison then; waiting for it would hold the partition for ever."""
    loop = Loop()
    loop.deliver(0, topic="audit.retry-1m", headers=[("oz_due", due)], timestamp_ms=loop.clock.now_ms())
    loop.turn()
    assert loop.take().offset == 0


def test_partitions_are_shown_by_topic_and_neighbours_together() -> None:
    places = [TopicPartition(*one) for one in (("b", 0), ("a", 2), ("a", 0), ("a", 1), ("b", 2), ("a", 10), ("a", 11))]
    assert spans(places) == ["a/0-2,10-11", "b/0,2"]
    assert spans([]) == []


def test_a_commit_waits_for_the_answer_to_the_one_before() -> None:
    """Of two on their way the client may repeat the older one last, and an idle partition would stay behind."""
    loop = Loop()
    for offset in (0, 1):
        loop.deliver(offset)
    loop.turn()
    first, second = loop.take(), loop.take()
    finish(loop.dispatcher, first, done=True)
    loop.client.silent = True
    loop.turn(2)
    loop.turn()
    finish(loop.dispatcher, second, done=True)
    loop.turn(2)
    loop.turn()
    assert loop.client.committed[("t.documents", 0)] == 1
    loop.client.silent = False
    loop.turn(2)
    loop.turn(2)
    loop.turn()
    assert loop.client.committed[("t.documents", 0)] == 2


def test_the_last_transaction_is_waited_for_when_it_knows_where_everything_stands() -> None:
    """After that no transaction follows: what it is told later would be read again."""
    told: list[dict[OwnedPartition, int]] = []

    class Told(TransactionCommits):
        def settle(self, consumer: object, seconds: float) -> bool:
            told.append(dict(self.settled))
            return True

    loop = Loop(commits=Told)
    loop.deliver(0)
    loop.turn()
    finish(loop.dispatcher, loop.take(), done=True)
    loop.loop.close()
    assert [offset for stay, offset in told[0].items() if stay.place == ("documents", 0)] == [1]
    assert len(told) == 1


def test_a_partition_that_a_former_owner_has_entered_late_is_entered_again() -> None:
    """Once this member would have been told that it has lost it; not while Kafka does not answer."""
    loop = Loop()
    stay = loop.loop._membership.live["t.documents", 0]
    before = len(loop.facts.entered)
    stay.contested = True
    loop.turn(1.1)
    loop.turn(opening.CONTESTED_SECONDS - 1)
    assert loop.facts.entered[before:] == []
    loop.facts.away = TopicError("no answer")
    loop.turn(opening.CONTESTED_SECONDS)
    assert loop.facts.entered[before:] == []
    loop.facts.away = None
    loop.turn(1.1)
    loop.turn(opening.CONTESTED_SECONDS - 1)
    assert loop.facts.entered[before:] == [], "it is told only now"
    loop.turn(1.1)
    assert sorted(loop.facts.entered[before:]) == [("audit.retry-1m", 0), ("documents", 0)], "all of its number"
    assert not stay.contested
    loop.turn(opening.CONTESTED_SECONDS)
    loop.turn(opening.CONTESTED_SECONDS)
    assert len(loop.facts.entered) == before + 2


def test_a_partition_that_was_lost_is_not_entered_again() -> None:
    loop = Loop()
    before = len(loop.facts.entered)
    loop.loop._membership.live["t.documents", 0].contested = True
    loop.turn(1.1)
    loop.lose(loop.places[:1])
    loop.turn(opening.CONTESTED_SECONDS)
    loop.turn(opening.CONTESTED_SECONDS)
    assert loop.facts.entered[before:] == []


def test_what_the_client_has_fetched_is_handed_out_when_it_has_no_more_or_has_given_more_than_it_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handed, "_TURNED_OVER", 3)
    loop = Loop()
    seen = [loop.loop.turnovers]
    for offset in range(4):
        loop.deliver(offset)
        loop.loop.turn()
        seen.append(loop.loop.turnovers)
    loop.loop.turn()  # nothing is there
    seen.append(loop.loop.turnovers)
    assert [count - seen[0] for count in seen] == [0, 0, 0, 1, 1, 2]


def test_backfill_gives_way_while_the_polling_thread_is_woken_late(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(lanes=KeyLanes(1, [Limit(BULK, 2, bulk_of)]))
    late = 0.02

    def poll(timeout: float) -> None:
        loop.clock.advance(timeout + late)

    def turned() -> int | None:
        loop.turn()
        return loop.dispatcher.most(BULK)

    monkeypatch.setattr(loop.client, "poll", poll)
    assert 1 in (turned() for _ in range(50))
    late = 0.0
    assert 2 in (turned() for _ in range(200))
