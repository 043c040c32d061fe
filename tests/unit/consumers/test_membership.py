"""A member's partitions: nothing is read before it is known where, and nothing committed of another topic."""

from collections.abc import Sequence

import psycopg
import pytest
from confluent_kafka import KafkaError, TopicPartition
from unit.consumers.fake_client import FakeFacts
from unit.consumers.poll_loop import Loop
from unit.consumers.taking import end, finish, take

from offsetzero.consumers.reading.beginning import LATE_SECONDS, SUSPECTS
from offsetzero.consumers.reading.positions import Facts
from offsetzero.consumers.working.run import Ending
from offsetzero.errors import GroupStopped, LostBecause, PositionLost, TopicError
from offsetzero.store.starts import Start

DOCUMENTS, RETRY = ("documents", 0), ("audit.retry-1m", 0)
ON_CLUSTER = [("t.documents", 0), ("t.audit.retry-1m", 0)]


def places(*named: tuple[str, int]) -> list[TopicPartition]:
    return [TopicPartition(f"t.{topic}", number) for topic, number in named]


def rounds(loop: Loop) -> None:
    for _ in range(3):
        loop.turn(2)


def stopped(loop: Loop) -> PositionLost:
    with pytest.raises(PositionLost) as raised:
        rounds(loop)
    before = dict(loop.client.committed)
    loop.loop.close()
    assert loop.client.committed == before, "nothing is committed after that"
    return raised.value


def test_it_is_read_from_where_the_facts_say_and_committed_there_at_once() -> None:
    loop = Loop(assign=False)
    loop.facts.facts[DOCUMENTS] = Facts("id-1", 0, 100, start=Start("id-1", 40, committed=False))
    loop.facts.facts[RETRY] = Facts("id-2", 0, 9, 7, "id-2", Start("id-2", 0, committed=True))
    loop.turn()  # the next round of commits is a second away
    loop.assign(places(DOCUMENTS, RETRY))
    assert loop.client.paused == set(ON_CLUSTER), "paused as soon as it is assigned"
    loop.turn()
    assert (loop.client.sought["t.documents", 0], loop.client.sought["t.audit.retry-1m", 0]) == (40, 7)
    assert loop.client.paused == {ON_CLUSTER[0]}, "until it is known what waits in the retry topics"
    loop.deliver(9, topic="audit.retry-1m", error=KafkaError(KafkaError._PARTITION_EOF))
    loop.turn()
    loop.turn()
    assert loop.client.paused == set()
    loop.deliver(39)
    loop.deliver(41)
    loop.turn()
    assert loop.dispatcher.in_flight == 1, "39 was fetched before the position was chosen"
    assert loop.committed() == 40
    assert loop.committed("audit.retry-1m") is None, "Kafka holds that one already"
    loop.turn()
    loop.opening.work()
    assert loop.facts.confirmed == [DOCUMENTS]
    finish(loop.dispatcher, loop.take(), done=True)
    loop.turn(2)
    loop.turn(2)
    assert loop.committed() == 42
    assert loop.facts.confirmed == [DOCUMENTS], "once"


def test_a_commit_without_a_topic_is_made_again_with_it() -> None:
    loop = Loop(assign=False)
    loop.facts.facts[DOCUMENTS] = Facts("id-1", 0, 100, 50, "", Start("id-1", 50, committed=True))
    loop.assign(places(DOCUMENTS, RETRY))
    loop.turn()
    assert loop.committed() == 50
    assert loop.client.metadata["t.documents", 0] == "oz:id-1"


@pytest.mark.parametrize("away", [TopicError("no answer"), psycopg.OperationalError("the server is away")])
def test_while_nobody_answers_it_polls_and_waits(away: Exception) -> None:
    loop = Loop(assign=False)
    loop.facts.away = away
    loop.assign(places(DOCUMENTS, RETRY))
    for _ in range(30):
        loop.turn(1)
    assert loop.client.paused == set(ON_CLUSTER)
    assert loop.client.polls >= 60, "a member that does not poll is evicted"
    loop.facts.away = None
    loop.turn(1)
    assert loop.client.paused == set()


def test_an_answer_that_no_waiting_brings_ends_the_group() -> None:
    loop = Loop(assign=False)

    class Broken(FakeFacts):
        def read(self, places: object) -> dict[tuple[str, int], Facts]:
            raise psycopg.errors.UndefinedTable("group_starts")

    loop.opening._facts = Broken({})
    loop.assign(places(DOCUMENTS, RETRY))
    with pytest.raises(psycopg.errors.UndefinedTable):
        loop.opening.work()


def test_an_answer_about_an_earlier_stay_is_none() -> None:
    loop = Loop(assign=False)
    loop.assign(places(DOCUMENTS, RETRY))
    loop.opening.work()
    loop.revoke(places(DOCUMENTS, RETRY))
    loop.assign(places(DOCUMENTS, RETRY))
    loop.loop.turn()
    assert loop.client.paused == set(ON_CLUSTER), "the facts may be other ones by now"
    loop.turn()
    assert loop.client.paused == set()


def test_a_client_that_has_not_begun_with_a_partition_is_asked_again() -> None:
    loop = Loop(assign=False)
    loop.assign(places(DOCUMENTS, RETRY))
    begun = loop.client.assigned
    loop.client.assigned = set()
    loop.turn()
    assert loop.client.paused == set(ON_CLUSTER)
    loop.client.assigned = begun
    loop.turn()
    assert loop.client.paused == set()
    loop.turn(LATE_SECONDS + 1)


def test_a_client_that_never_begins_with_a_partition_ends_the_group() -> None:
    """It would look healthy, and read nothing."""
    loop = Loop(assign=False)
    loop.assign(places(DOCUMENTS, RETRY))
    loop.client.assigned = set()
    loop.turn()
    with pytest.raises(GroupStopped, match="documents/0: the client does not begin to read it at offset 0"):
        loop.turn(LATE_SECONDS + 1)


def test_what_is_asked_while_an_answer_comes_is_asked_again() -> None:
    loop = Loop(assign=False)
    read, topic_ids = loop.facts.read, loop.facts.topic_ids

    def read_slowly(asked: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Facts]:
        loop.facts.read = read  # type: ignore[method-assign]
        loop.assign(places(("documents", 1), ("audit.retry-1m", 1)))
        return read(asked)

    loop.facts.read = read_slowly  # type: ignore[method-assign]
    loop.assign(places(DOCUMENTS, RETRY))
    loop.turn()
    loop.turn()
    assert loop.client.paused == set()

    def answer_slowly() -> dict[str, str]:
        loop.facts.topic_ids = topic_ids  # type: ignore[method-assign]
        loop.opening.check()
        return {}

    loop.facts.topic_ids = answer_slowly  # type: ignore[method-assign]
    loop.opening.check()
    loop.opening.work()
    assert loop.opening.ids() is None, "this answer is older than the question"
    loop.opening.work()
    assert loop.opening.ids() == loop.facts.ids


def test_a_partition_that_is_assigned_twice_ends_its_first_stay() -> None:
    """The client has begun anew with it: what it hands out next is not what comes next."""
    loop = Loop()
    loop.deliver(0)
    loop.deliver(1)
    loop.turn()
    finish(loop.dispatcher, loop.take(), done=True)
    loop.assign(places(DOCUMENTS))
    assert loop.committed() == 1
    assert take(loop.dispatcher) is None
    loop.facts.facts[DOCUMENTS] = Facts("id-1", 0, 9, 1, "id-1")
    loop.turn()
    assert loop.client.sought["t.documents", 0] == 1


def test_a_number_is_worked_only_while_all_of_it_is_owned() -> None:
    loop = Loop(assign=False)
    loop.assign(places(DOCUMENTS))
    loop.deliver(0)
    loop.turn(5)
    assert loop.client.paused == {("t.documents", 0)}
    assert loop.facts.reads == 0, "where it begins is asked when it may begin"
    loop.assign(places(RETRY))
    loop.turn()
    assert loop.client.paused == set()
    assert take(loop.dispatcher) is not None


def test_when_a_sibling_goes_what_runs_is_finished_and_the_rest_read_again_later() -> None:
    loop = Loop()
    for offset in range(4):
        loop.deliver(offset)
    loop.turn()
    records = [loop.take() for _ in range(3)]
    finish(loop.dispatcher, records[0], done=True)
    finish(loop.dispatcher, records[2], done=True)
    end(loop.dispatcher, records[1], Ending.AGAIN)
    loop.revoke(places(RETRY))
    assert loop.committed() == 1
    assert ("t.documents", 0) in loop.client.paused
    assert ("t.documents", 1) not in loop.client.paused, "another number goes on"
    loop.turn(60)
    assert take(loop.dispatcher) is None, "neither what was queued nor what was to be tried again"
    loop.assign(places(RETRY))
    loop.turn()
    assert loop.client.sought["t.documents", 0] == 1
    assert ("t.documents", 0) not in loop.client.paused


def test_lost_partitions_take_their_siblings_with_them() -> None:
    loop = Loop()
    loop.deliver(0)
    loop.turn()
    finish(loop.dispatcher, loop.take(), done=True)
    loop.lose(places(RETRY))
    assert loop.lost == 1
    loop.turn(2)
    assert loop.committed() == 0, "lost: what another member may have committed by now is not known"
    assert ("t.documents", 0) in loop.client.paused


def test_a_record_of_the_batch_in_which_its_partition_went_and_came_is_dropped() -> None:
    """The callbacks run inside of `consume`, behind the record that `poll` gave."""
    loop = Loop()
    loop.deliver(0)
    consume = loop.client.consume

    def rebalance(count: int, timeout: float) -> list[object]:
        loop.client.consume = consume  # type: ignore[method-assign]
        loop.revoke(loop.places)
        loop.assign(loop.places)
        return []

    loop.client.consume = rebalance  # type: ignore[assignment, method-assign]
    loop.turn()
    assert take(loop.dispatcher) is None


def test_a_topic_made_again_while_it_is_read_stops_the_group() -> None:
    loop = Loop()
    loop.deliver(0)
    loop.turn()
    finish(loop.dispatcher, loop.take(), done=True)
    loop.facts.ids["documents"] = "id-9"
    assert stopped(loop).reason is LostBecause.RECREATED
    assert loop.committed() == 0


def test_a_topic_made_again_before_the_revocation_is_not_committed() -> None:
    loop = Loop()
    loop.deliver(0)
    loop.turn()
    finish(loop.dispatcher, loop.take(), done=True)
    loop.facts.ids["documents"] = "id-9"
    loop.revoke(loop.places)
    assert loop.committed() == 0


@pytest.mark.parametrize("topic", ["documents", "audit.retry-1m"])
def test_a_topic_that_is_gone_stops_the_group_when_it_is_said_twice(topic: str) -> None:
    """A broker that has just started may not know the newest topics yet."""
    loop = Loop()
    known = loop.facts.ids.pop(topic)
    loop.turn(2)
    loop.facts.ids[topic] = known
    loop.turn(2)
    del loop.facts.ids[topic]
    loop.turn(2)
    error = stopped(loop)
    assert (error.reason, error.topic) == (LostBecause.DELETED, topic)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (Facts("id-1", 500, 900, 0, "id-1"), LostBecause.BELOW_START),
        (Facts("id-1", 0, 0, 0, "id-1"), LostBecause.ABOVE_END),
        (Facts("id-7", 0, 900, 0, "id-1"), LostBecause.RECREATED),
    ],
)
def test_an_offset_that_the_broker_refuses_ends_the_group_with_its_reason(facts: Facts, reason: LostBecause) -> None:
    """librdkafka says so once, and is silent then."""
    loop = Loop()
    loop.deliver(4)
    loop.turn()
    loop.facts.facts[DOCUMENTS] = facts
    loop.deliver(5, error=KafkaError(KafkaError._AUTO_OFFSET_RESET))
    assert stopped(loop).reason is reason


def test_a_refused_offset_ends_the_group_also_when_nothing_explains_it_or_nobody_answers() -> None:
    loop = Loop()
    loop.deliver(5, error=KafkaError(KafkaError._AUTO_OFFSET_RESET))
    with pytest.raises(GroupStopped, match="documents/0 at offset 0"):
        loop.turn()
    loop = Loop()
    loop.facts.away = TopicError("no answer")
    loop.deliver(5, error=KafkaError(KafkaError._AUTO_OFFSET_RESET))
    loop.turn()
    with pytest.raises(GroupStopped, match="documents/0 at offset 0"):
        loop.turn(LATE_SECONDS + 1)


def test_where_the_cluster_does_not_serve_the_newer_protocol_the_older_one_is_spoken() -> None:
    refused = KafkaError(KafkaError._FATAL, "Fatal error: Broker: API version not supported: ConsumerGroupHeartbeat")
    loop = Loop(protocol="auto", assign=False)
    assert loop.client.config["group.protocol"] == "consumer"
    loop.deliver(0, error=refused)
    loop.turn()
    first, second = loop.made
    assert first.closed
    assert second.config["group.protocol"] == "classic"
    assert second.config["partition.assignment.strategy"] == "range"
    assert "group.remote.assignor" not in second.config
    loop.assign(loop.places)
    loop.turn()
    loop.deliver(0)
    loop.turn()
    assert loop.take().offset == 0
    asked_for = Loop(protocol="consumer", assign=False)
    asked_for.deliver(0, error=refused)
    with pytest.raises(GroupStopped, match="not supported"):
        asked_for.turn()


@pytest.mark.parametrize("close", [False, True], ids=["revoked", "closed"])
def test_a_stay_that_ends_in_good_order_says_so_with_its_last_commit(close: bool) -> None:
    loop = Loop()
    loop.turn()
    assert loop.facts.entered
    assert loop.client.metadata["t.documents", 0] == "oz:id-1", "before its end it says nothing of it"
    loop.loop.close() if close else loop.revoke(places(DOCUMENTS, RETRY))
    assert loop.client.metadata["t.documents", 0] == "oz:id-1:stay", "though nothing was read since the last commit"


@pytest.mark.parametrize(
    ("before", "left", "topic_id", "is_suspect"),
    [
        (None, "", "id-1", False),
        ("s1", "s1", "id-1", False),
        ("s1", "", "id-1", True),
        ("s2", "s1", "id-1", True),
        ("s1", "", "", False),
    ],
    ids=["the first", "left in good order", "died", "died after one that left", "set by a tool"],
)
def test_what_a_member_that_died_may_have_worked_on_is_suspect(
    before: str | None, left: str, topic_id: str, is_suspect: bool
) -> None:
    loop = Loop(assign=False)
    start = Start("id-1", 0, committed=True, stay=before)
    loop.facts.facts[DOCUMENTS] = Facts("id-1", 0, 50, 40, topic_id, start, committed_by=left)
    loop.assign(places(DOCUMENTS, RETRY))
    loop.turn()
    loop.deliver(40)
    loop.deliver(49)
    loop.deliver(50)
    loop.turn()
    taken = [loop.take(), loop.take(), loop.take()]
    # The last one was not in the log when the member died.
    assert [record.is_suspect for record in taken] == [is_suspect, is_suspect, False]


def test_of_a_source_only_what_a_member_can_have_begun_is_suspect_of_a_retry_topic_all() -> None:
    loop = Loop(assign=False)
    high = 10 * SUSPECTS
    for place, topic_id in ((DOCUMENTS, "id-1"), (RETRY, "id-2")):
        start = Start(topic_id, 0, committed=True, stay="s1")
        loop.facts.facts[place] = Facts(topic_id, 0, high, 40, topic_id, start)
    loop.assign(places(DOCUMENTS, RETRY))
    loop.turn()
    ends = {stay.place: stay.suspects_end for stay in loop.loop.stays()}
    assert ends == {DOCUMENTS: 40 + SUSPECTS, RETRY: high}


@pytest.mark.parametrize("is_done", [True, False])
def test_a_member_that_leaves_suspects_undone_hands_the_suspicion_on(is_done: bool) -> None:
    """Otherwise an event could end any number of processes, were each followed by one that leaves in good order."""
    loop = Loop(assign=False)
    start = Start("id-1", 0, committed=True, stay="s1")
    loop.facts.facts[DOCUMENTS] = Facts("id-1", 0, 41, 40, "id-1", start)
    loop.assign(places(DOCUMENTS, RETRY))
    loop.turn()
    loop.deliver(40)
    loop.turn()
    finish(loop.dispatcher, loop.take(), done=is_done)
    loop.revoke(places(DOCUMENTS, RETRY))
    assert loop.client.metadata.get(("t.documents", 0), "") == ("oz:id-1:stay" if is_done else "")


def test_what_stays_is_read_on_at_once_when_others_are_taken_or_given() -> None:
    """The client pauses all that it has around the callbacks, and its threads may sleep for a second then."""
    loop = Loop()
    loop.deliver(3)
    loop.turn()
    loop.client.sought.clear()
    loop.revoke(places(("documents", 1), ("audit.retry-1m", 1)))
    loop.turn()
    stay = {("t.documents", 0): 4, ("t.audit.retry-1m", 0): 0}
    assert loop.client.sought == stay, "to seek wakes them"
    loop.client.sought.clear()
    loop.turn()
    assert loop.client.sought == {}, "once"
    loop.assign([])
    loop.turn()
    assert loop.client.sought == stay


def test_what_is_paused_is_not_sought_after_a_rebalance() -> None:
    loop = Loop(max_in_flight=1)
    loop.deliver(3)
    for _ in range(3):
        loop.turn(2)
    assert ("t.documents", 0) in loop.client.paused, "there is no room"
    loop.client.sought.clear()
    loop.revoke(places(("documents", 1), ("audit.retry-1m", 1)))
    loop.turn()
    assert loop.client.sought == {}
