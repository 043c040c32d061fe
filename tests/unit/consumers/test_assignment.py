"""Which partitions a member may work: only whole numbers, each stay once, whatever the client's lists bring."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from offsetzero.consumers.reading.assignment import Assignment
from offsetzero.consumers.record import OwnedPartition, PauseReason, Record
from support import machine

SOURCES = {"documents": "id-1", "documents.bulk": "id-2"}
RETRIES = {"audit.retry-1m": "id-3"}
TOPICS = SOURCES | RETRIES
PLACES = [(topic, number) for topic in TOPICS for number in range(3)]
OURS = frozenset({PauseReason.SIBLINGS, PauseReason.OPENING})
lists = st.lists(st.sampled_from(PLACES), max_size=5)


class AssignmentMachine(RuleBasedStateMachine):
    """Against a naive model: a set of owned places, and a log of what each stay was."""

    def __init__(self) -> None:
        super().__init__()
        self.assignment = Assignment(SOURCES, RETRIES)
        self.owned: set[tuple[str, int]] = set()
        self.ended: list[OwnedPartition] = []
        self.opened: set[OwnedPartition] = set()
        self.undone: dict[tuple[str, int], int] = {}  # where the next reader of an owned place has to begin

    def complete(self, number: int) -> bool:
        return all((topic, number) in self.owned for topic in TOPICS)

    @rule(places=lists)
    def add(self, places: list[tuple[str, int]]) -> None:
        before = {stay.place: stay for stay in self.assignment.stays()}
        fresh = set(places) - self.owned
        ready = self.assignment.add(places)
        self.owned |= fresh
        whole = {number for _, number in fresh if self.complete(number)}
        assert {stay.place for stay in ready} == {place for place in self.owned if place[1] in whole}
        for place, stay in before.items():
            assert self.assignment.get(place) is stay, "what was owned before is the same stay"

    @rule(data=st.data())
    def open(self, data: st.DataObject) -> None:
        """What is complete, and asked for, is read from where it is to be read from."""
        waiting = [stay for stay in self.assignment.stays() if stay.is_opening]
        if not waiting:
            return
        stay = data.draw(st.sampled_from(waiting))
        assert self.complete(stay.partition)
        assert stay.resume_at == self.undone.get(stay.place), "a place that was with us goes on at its lowest undone"
        offset = stay.resume_at if stay.resume_at is not None else data.draw(st.integers(0, 100))
        stay.begin(offset, None)
        stay.pauses.discard(PauseReason.OPENING)
        self.opened.add(stay)
        self.undone[stay.place] = offset

    @precondition(lambda self: self.opened)
    @rule(data=st.data(), done=st.booleans())
    def read(self, data: st.DataObject, done: bool) -> None:
        stay = data.draw(st.sampled_from(sorted(self.opened, key=str)))
        record = Record(stay, stay.position or 0, b"k", b"v", [], 0)
        stay.deliver(record)
        record.done = done
        self.undone[stay.place] = stay.committable() or 0

    @precondition(lambda self: self.opened)
    @rule(data=st.data(), reason=st.sampled_from([PauseReason.BACK_PRESSURE, PauseReason.SPAN]))
    def pause(self, data: st.DataObject, reason: PauseReason) -> None:
        data.draw(st.sampled_from(sorted(self.opened, key=str))).pauses.add(reason)

    @rule(places=lists, look_first=st.booleans())
    def remove(self, places: list[tuple[str, int]], look_first: bool) -> None:
        before = {stay.place: stay for stay in self.assignment.stays()}
        gone = set(places) & self.owned
        numbers = {number for _, number in gone}
        touched = {place for place in self.owned if place[1] in numbers}
        if look_first:
            ending = self.assignment.ending(places)
            assert {stay.place for stay in ending} == touched
            assert not any(stay.active for stay in ending), "nothing more is started"
            assert all(self.assignment.get(place) is stay for place, stay in before.items()), "owned until removed"
        begun = self.assignment.remove(places)
        self.owned -= gone
        assert {stay.place for stay in begun} == touched - gone
        for place in touched:
            self.ended.append(before[place])
            self.opened.discard(before[place])
        for place in gone:
            self.undone.pop(place, None)

    @invariant()
    def owns_what_the_model_owns(self) -> None:
        assert {stay.place for stay in self.assignment.stays()} == self.owned
        for number in range(3):
            assert self.assignment.is_complete(number) == self.complete(number)

    @invariant()
    def works_whole_numbers_only(self) -> None:
        for stay in self.assignment.stays():
            assert stay.active
            assert (PauseReason.SIBLINGS in stay.pauses) == (not self.complete(stay.partition))
            assert (stay in self.opened) == (PauseReason.OPENING not in stay.pauses)
            if stay not in self.opened:
                assert stay.pauses <= OURS, "reasons of an earlier stay ended with it"

    @invariant()
    def what_has_ended_stays_ended(self) -> None:
        for stay in self.ended:
            assert not stay.active
            assert stay.committable() is None, "a broker would accept the commit, and go back"
            assert not stay.pauses
            assert self.assignment.get(stay.place) is not stay


TestAssignment = AssignmentMachine.TestCase
TestAssignment.settings = machine(30)


def test_a_topic_that_is_not_the_groups_changes_nothing() -> None:
    assignment = Assignment(SOURCES, RETRIES)
    assert assignment.add([("elsewhere", 0)]) == []
    assert assignment.remove([("elsewhere", 0)]) == []
    assert assignment.stays() == []


def test_empty_lists_change_nothing() -> None:
    """arroyo#419, librdkafka#3337: taken as whole assignments, they emptied a member that went on as if it had work."""
    assignment = Assignment(SOURCES, RETRIES)
    assert len(assignment.add((topic, 0) for topic in TOPICS)) == 3
    stays = assignment.stays()
    assert assignment.add([]) == []
    assert assignment.remove([]) == []
    assert assignment.stays() == stays
    assert all(stay.active for stay in stays)
