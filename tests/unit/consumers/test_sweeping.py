"""Which leases are taken away: by what a coordinator says twice, or by the database's clock, and by nothing else."""

from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetzero.consumers.sweeping.judging import Judge, Reason
from offsetzero.consumers.sweeping.sweeper import SILENT_SECONDS, Sweeper
from offsetzero.errors import TopicError
from offsetzero.settings import Settings
from offsetzero.store.leases import Held, Owner
from support import ManualClock

RUN = uuid4()


def lease(member: str = "m1", fence: int = 1, *, overdue: bool = False, run_id: UUID = RUN) -> Held:
    return Held(run_id, "indexer", fence, Owner("indexer", member, "indexer-0123456789abcdef"), overdue)


def look(judge: Judge, held: list[Held], *members: str) -> list[str]:
    """One look, with the coordinator's answer; the reasons of what is taken away."""
    asked = judge.groups(held)
    return [one.reason for one in judge.judge(held, {group: set(members) for group in asked})]


def test_a_member_that_is_unknown_twice_in_a_row_is_gone() -> None:
    judge, held = Judge(), [lease()]
    assert look(judge, held) == [], "it was leased since the last look: nobody is asked"
    assert look(judge, held) == []
    assert look(judge, held) == [Reason.GONE]


def test_one_answer_that_was_wrong_proves_nothing() -> None:
    judge, held = Judge(), [lease()]
    look(judge, held)
    assert look(judge, held) == []
    assert look(judge, held, "m1") == []
    assert look(judge, held) == []
    assert look(judge, held) == [Reason.GONE]


def test_work_that_is_done_between_two_looks_asks_nobody() -> None:
    judge = Judge()
    for fence in range(1, 5):
        assert judge.groups([lease(fence=fence)]) == set(), "each time it is another lease"
        judge.judge([lease(fence=fence)], {})


def test_where_no_coordinator_answers_all_live() -> None:
    judge, held = Judge(), [lease()]
    for _ in range(5):
        judge.groups(held)
        assert judge.judge(held, {"indexer": None}) == []


@pytest.mark.parametrize("owner", [None, Owner("indexer", "m1", "s")])
def test_a_step_past_its_deadline_is_taken_away_although_its_member_lives(owner: Owner | None) -> None:
    """celery and its kind rescue by time alone; here time alone decides only what the step was given (orbit#864)."""
    held = [Held(RUN, "indexer", 1, owner, True)]
    assert look(Judge(), held, "m1") == [Reason.OVERDUE]


def test_nobody_can_tell_of_an_owner_that_is_no_member() -> None:
    judge, held = Judge(), [Held(RUN, "indexer", 1, None, False)]
    assert [look(judge, held) for _ in range(4)] == [[], [], [], []]


def test_another_lease_of_the_same_step_begins_anew() -> None:
    judge = Judge()
    for fence in (1, 1, 2, 2):
        assert look(judge, [lease(fence=fence)]) == []
    assert look(judge, [lease(fence=2)]) == [Reason.GONE]


@given(st.lists(st.lists(st.sampled_from(["m1", "m2", "m3"]), unique=True), max_size=30))
def test_members_that_are_known_keep_their_leases(answers: list[list[str]]) -> None:
    judge, held = Judge(), [lease("m1"), lease("m2", run_id=uuid4())]
    unknown = {"m1": 0, "m2": 0}
    for number, answer in enumerate(answers):
        asked = judge.groups(held)
        taken = judge.judge(held, {group: set(answer) for group in asked})
        for member in unknown:
            unknown[member] = unknown[member] + 1 if number and member not in answer else 0
        gone = {one.lease.owner.member for one in taken if one.lease.owner}
        assert gone == {member for member, count in unknown.items() if count >= 2}


def test_an_owner_is_read_as_it_was_written() -> None:
    owner = Owner("indexer.g2", "rdkafka/with/slashes-0f", "indexer-0123456789abcdef")
    assert Owner.read(str(owner)) == owner


def test_it_goes_on_while_one_coordinator_after_the_other_does_not_answer() -> None:
    """Each takes its time; a supervisor that began the sweeper anew would have it begin with the first again."""
    clock, goes_on = ManualClock(), list[bool]()

    def silence(_settings: Settings, group: str) -> list[str]:
        clock.advance(SILENT_SECONDS * 2 / 3)
        goes_on.append(sweeper.health()[0])
        raise TopicError(f"group {group}: no answer")

    sweeper = Sweeper(Settings(), members=silence, clock=clock)
    held = [Held(RUN, group, 1, Owner(group, "m1", "s"), False) for group in ("audit", "indexer", "summariser")]
    sweeper._judge.judge(held, {})
    assert sweeper._ask(held) == dict.fromkeys(("audit", "indexer", "summariser"))
    assert goes_on == [True, True, True]
