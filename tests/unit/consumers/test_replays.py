"""A partition that this member has is read from elsewhere: what ends, what begins, and what is answered when."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from confluent_kafka import TopicPartition
from unit.consumers.poll_loop import Loop
from unit.consumers.taking import finish, take

from offsetzero.consumers.reading.positions import Facts
from offsetzero.consumers.working.run import Ending
from offsetzero.schemas.control import GroupReplayAnswered, GroupReplayRequested, ReplayOutcome, ReplayPlace
from offsetzero.store.positions import Position
from offsetzero.store.starts import Start

DOCUMENTS, RETRY = ("documents", 0), ("audit.retry-1m", 0)
BOTH = [TopicPartition("t.documents", 0), TopicPartition("t.audit.retry-1m", 0)]


def ask(loop: Loop, offset: int, number: int = 1, seconds: float = 10.0, **place: object) -> None:
    where = ReplayPlace(**{"topic": "documents", "topic_id": "id-1", "partition": 0, "offset": offset, **place})
    deadline = loop.clock.now() + timedelta(seconds=seconds)
    loop.channel.coming.append(
        GroupReplayRequested(group="audit", request_id=UUID(int=number), deadline=deadline, places=[where])
    )


def answered(loop: Loop) -> list[tuple[str, int | None]]:
    return [(one.outcome.value, one.offset) for one in loop.channel.answers]


def reading(*offsets: int) -> Loop:
    """A member that has read these of partition 0, and committed."""
    loop = Loop()
    for offset in offsets:
        loop.deliver(offset)
    loop.turn(2)
    return loop


def rounds(loop: Loop) -> None:
    for _ in range(4):
        loop.turn()


def test_it_is_read_again_from_there_once_the_broker_has_acknowledged_the_commit() -> None:
    loop = reading(40, 41)
    for _ in range(2):
        finish(loop.dispatcher, loop.take(), done=True)
    loop.turn(2)
    loop.turn(2)
    assert loop.committed() == 42
    loop.client.silent = True
    loop.turn(2)
    ask(loop, 5)
    rounds(loop)
    assert loop.committed() == 5
    assert loop.client.sought["t.documents", 0] == 5
    assert ("t.documents", 0) in loop.client.paused, "nothing of it is handled before the answer"
    assert answered(loop) == []
    loop.client.silent = False
    rounds(loop)
    assert answered(loop) == [("APPLIED", 5)]
    assert loop.client.paused == set()
    loop.deliver(5)
    loop.turn()
    assert loop.take().offset == 5
    assert loop.client.assigned == {
        ("t.documents", 0),
        ("t.documents", 1),
        ("t.audit.retry-1m", 0),
        ("t.audit.retry-1m", 1),
    }


def test_what_runs_is_awaited_and_what_does_not_run_yet_waits() -> None:
    loop = reading(40, 41)
    running = loop.take()
    ask(loop, 5)
    rounds(loop)
    assert loop.committed() == 40
    assert take(loop.dispatcher) is None, "nothing is begun that would have to be awaited, too"
    finish(loop.dispatcher, running, done=True)
    rounds(loop)
    assert answered(loop) == [("APPLIED", 5)]
    assert take(loop.dispatcher) is None, "what was queued is read again"


def test_a_handler_that_does_not_end_prevents_it_and_nothing_has_changed() -> None:
    loop = reading(40, 41)
    running = loop.take()
    ask(loop, 5)
    loop.turn()
    loop.turn(11)
    [answer] = loop.channel.answers
    assert answer.outcome is ReplayOutcome.PREVENTED
    assert answer.detail == "what is at work did not end in time: documents/0@40"
    rounds(loop)
    assert loop.client.paused == set()
    loop.turn(1)
    assert loop.take().offset == 41, "it goes on, and reads nothing again"
    finish(loop.dispatcher, running, done=True)
    loop.turn(2)
    assert loop.committed() == 41


def test_of_a_run_that_was_taken_only_what_is_begun_goes_on() -> None:
    loop = reading(40, 41, 42)
    run = loop.dispatcher.take_nowait(3)
    assert run is not None
    first = run.begin()
    assert first is not None
    ask(loop, 5)
    loop.turn()
    run.ended.append((first, Ending.DONE))
    assert run.begin() is None, "the partition rests"
    loop.dispatcher.end([run])
    rounds(loop)
    assert answered(loop) == [("APPLIED", 5)]


def test_the_same_request_is_done_once_and_answered_as_often_as_it_is_read() -> None:
    loop = reading()
    ask(loop, 5)
    ask(loop, 5)
    rounds(loop)
    reads = loop.facts.reads
    ask(loop, 5)
    rounds(loop)
    assert answered(loop) == [("APPLIED", 5)] * 2
    assert loop.facts.reads == reads


def test_a_request_whose_time_is_over_or_for_another_member_is_no_concern_of_this_one() -> None:
    loop = reading()
    ask(loop, 5, seconds=-0.001)
    ask(loop, 5, number=2, partition=7)
    rounds(loop)
    assert answered(loop) == []


@pytest.mark.parametrize("begun", [False, True])
def test_a_rebalance_meanwhile_is_told(begun: bool) -> None:
    loop = reading(40)
    running = loop.take()
    ask(loop, 5)
    loop.turn()
    if begun:
        finish(loop.dispatcher, running, done=True)
        loop.loop.turn()  # nobody has said yet where its partitions begin
    loop.lose(BOTH)
    rounds(loop)
    assert answered(loop) == [("LOST_PARTITION", None)]
    finish(loop.dispatcher, running, done=True) if not begun else None
    loop.assign(BOTH)
    ask(loop, 5)
    rounds(loop)
    assert answered(loop)[1:] == [("APPLIED", 5)], "it is asked again, and has it again"


def test_one_that_is_revoked_with_its_new_position_committed_was_applied() -> None:
    loop = reading()
    loop.client.silent = True
    ask(loop, 5)
    rounds(loop)
    loop.client.silent = False
    loop.client.poll(0)
    loop.revoke(BOTH)
    rounds(loop)
    assert answered(loop) == [("APPLIED", 5)]


def test_of_a_topic_that_was_made_again_and_of_what_is_no_source_nothing_is_replayed() -> None:
    loop = reading()
    ask(loop, 5, topic_id="id-0")
    ask(loop, 5, number=2, topic="audit.retry-1m", topic_id="id-2")
    ask(loop, 5, number=3, topic="runs")
    rounds(loop)
    assert [one.detail.split(" of the group")[0] for one in loop.channel.answers] == [
        "documents was deleted and made again since this was asked for",
        "audit.retry-1m is not a source",
        "runs is not a source",
    ]
    assert {one.outcome for one in loop.channel.answers} == {ReplayOutcome.PREVENTED}


def test_a_second_replay_of_a_partition_waits_for_nobody() -> None:
    loop = reading(40)
    loop.take()
    ask(loop, 5)
    ask(loop, 6, number=2)
    rounds(loop)
    assert [one.detail for one in loop.channel.answers] == ["another replay of it is under way"]


def test_another_members_last_word_is_the_last() -> None:
    """It had the partition, said no, and lost it; the request comes here when it has been answered."""
    loop = reading()
    other = GroupReplayAnswered(
        group="audit",
        request_id=UUID(int=1),
        topic="documents",
        partition=0,
        outcome=ReplayOutcome.PREVENTED,
        member="other",
    )
    loop.channel.coming.append(other)
    ask(loop, 5)
    rounds(loop)
    assert answered(loop) == []
    assert loop.committed() == 0


def test_what_the_log_does_not_have_any_more_is_left_out() -> None:
    loop = reading()
    loop.facts.facts[DOCUMENTS] = Facts("id-1", 7, 100)
    ask(loop, 5)
    rounds(loop)
    assert answered(loop) == [("APPLIED", 7)]


def test_a_projections_position_in_the_database_goes_back_before_it_is_read_and_nothing_older_comes_after() -> None:
    loop = Loop(assign=False)
    loop.facts.facts[DOCUMENTS] = Facts("id-1", 0, 100, kept=Position("id-1", 40))
    loop.assign(BOTH)
    loop.turn()
    loop.deliver(40)
    loop.turn()
    finish(loop.dispatcher, loop.take(), done=True)
    loop.opening.keep(loop.loop.stays())  # on its way when the replay begins
    ask(loop, 5)
    rounds(loop)
    assert answered(loop) == [("APPLIED", 5)]
    [number] = [at for at, kept in enumerate(loop.facts.kept) if kept == {DOCUMENTS: Position("id-1", 5)}]
    assert all(kept[DOCUMENTS].offset == 5 for kept in loop.facts.kept[number:] if DOCUMENTS in kept)
    assert loop.client.sought["t.documents", 0] == 5


def test_its_own_stay_before_is_no_member_that_has_died() -> None:
    loop = Loop(assign=False)
    loop.facts.facts[DOCUMENTS] = started = Facts("id-1", 0, 100, 40, "id-1", Start("id-1", 0, committed=True))
    loop.assign(BOTH)
    loop.turn()
    loop.facts.facts[DOCUMENTS] = replace(started, start=Start("id-1", 0, committed=True, stay="stay"))
    ask(loop, 5)
    rounds(loop)
    assert answered(loop) == [("APPLIED", 5)]
    [stay] = [one for one in loop.loop.stays() if one.place == DOCUMENTS]
    assert stay.suspects_end == 0, "else all of it would run one at a time"


def test_what_may_have_killed_the_member_before_is_still_suspected() -> None:
    loop = Loop(assign=False)
    died = Start("id-1", 0, committed=True, stay="another")
    loop.facts.facts[DOCUMENTS] = started = Facts("id-1", 0, 100, 40, "id-1", died)
    loop.assign(BOTH)
    loop.turn()
    loop.facts.facts[DOCUMENTS] = replace(started, start=replace(died, stay="stay"))
    ask(loop, 5)
    rounds(loop)
    assert answered(loop) == [("APPLIED", 5)]
    [stay] = [one for one in loop.loop.stays() if one.place == DOCUMENTS]
    assert stay.suspects_end == 100


def test_a_member_that_is_stopped_leaves_it_to_the_next_owner() -> None:
    loop = reading(40)
    loop.take()
    ask(loop, 5)
    loop.turn()
    loop.clock.work = lambda: loop.clock.advance(1)
    loop.loop.drain(5)
    assert answered(loop) == [("LOST_PARTITION", None)]
