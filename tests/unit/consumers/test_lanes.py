"""Key lanes: the limits of keys, tenants and bulk, the order of a key, and that nothing is lost on the way."""

from collections import Counter, defaultdict

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from offsetzero.consumers.record import OwnedPartition, Record, bulk_of, tenant_of
from offsetzero.consumers.working.lanes import KeyLanes
from offsetzero.consumers.working.limits import Limit
from support import machine

KEYS = [b"a", b"b", None]
TENANTS = [b"x", b"y", None]


class LanesMachine(RuleBasedStateMachine):
    """Against a naive model: of each key, its records in order; of each record, whether it waits, is taken or held."""

    @initialize(
        per_key=st.sampled_from([1, 1, 2]),
        per_tenant=st.sampled_from([None, 1, 2]),
        in_bulk=st.sampled_from([None, 1, 2]),
    )
    def make(self, per_key: int, per_tenant: int | None, in_bulk: int | None) -> None:
        self.per_key = per_key
        self.limits = [
            Limit(name, most, of)
            for name, most, of in (("tenant", per_tenant, tenant_of), ("bulk", in_bulk, bulk_of))
            if most is not None
        ]
        self.lanes = KeyLanes(per_key, self.limits)
        self.partitions = [OwnedPartition(topic, "id", 0) for topic in ("documents", "documents.bulk")]
        self.queued: dict[bytes | None, list[Record]] = defaultdict(list)
        self.taken: list[Record] = []
        self.behind: set[Record] = set()  # taken together with what they stood behind
        self.held: list[Record] = []
        self.offset = 0

    @rule(key=st.sampled_from(KEYS), tenant=st.sampled_from(TENANTS), number=st.integers(0, 1))
    def add(self, key: bytes | None, tenant: bytes | None, number: int) -> None:
        self.offset += 1
        headers = [] if tenant is None else [("ce_tenantid", tenant)]
        record = Record(self.partitions[number], self.offset, key, b"v", headers, 0)
        self.lanes.add(record)
        self.queued[key].append(record)

    @rule()
    def take(self) -> None:
        record = self.lanes.take()
        if record is None:
            assert not self.runnable()
            return
        assert record in self.runnable()
        self.queued[record.key].remove(record)
        self.taken.append(record)

    def runnable(self) -> list[Record]:
        """What the limits let run now; where more than one of a key may, any of those that come first in it."""
        found: list[Record] = []
        for key, records in self.queued.items():
            busy = sum(one.key == key for one in (*self.taken, *self.held))
            first = records if key is None else records[: max(0, self.per_key - busy)]
            found += [record for record in first if self.has_room(record)]
        return found

    def has_room(self, record: Record) -> bool:
        return all(
            (what := limit.of(record)) is None
            or sum(limit.of(one) == what for one in (*self.taken, *self.held)) < limit.most
            for limit in self.limits
        )

    @precondition(lambda self: self.taken and self.per_key == 1 and not self.limits)
    @rule(data=st.data(), limit=st.integers(0, 3))
    def take_behind(self, data: st.DataObject, limit: int) -> None:
        record = data.draw(st.sampled_from(self.taken))
        expected = self.queued[record.key][:limit] if record.key is not None else []
        assert self.lanes.take_behind(record, limit) == expected
        for one in expected:
            self.queued[one.key].remove(one)
            self.taken.append(one)
            self.behind.add(one)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self.lanes.finish(self.remove(data))

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        record = self.remove(data)
        if any(one.key == record.key is not None for one in self.taken):
            self.lanes.finish(record)  # a part of a batch is not given back
            return
        self.lanes.first(record)
        self.queued[record.key].insert(0, record)

    def remove(self, data: st.DataObject) -> Record:
        record = data.draw(st.sampled_from(self.taken))
        self.taken.remove(record)
        self.behind.discard(record)
        return record

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def postpone(self, data: st.DataObject) -> None:
        """All that is taken of a key runs again later: the first of it holds the lane, the others wait behind it."""
        key = data.draw(st.sampled_from(self.taken)).key
        together = [one for one in self.taken if one.key == key and key is not None] or [self.taken[0]]
        held = self.lanes.hold(together)
        single = self.per_key == 1 and together[0].key is not None
        assert held == (together[:1] if single else together)
        self.taken = [one for one in self.taken if one not in together]
        self.behind.difference_update(together)
        self.held += held
        self.queued[together[0].key][:0] = [one for one in together if one not in held]

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def its_time_has_come(self, data: st.DataObject) -> None:
        record = data.draw(st.sampled_from(self.held))
        self.held.remove(record)
        self.lanes.again(record)
        self.queued[record.key].insert(0, record)

    @rule(most=st.integers(1, 3))
    def resize(self, most: int) -> None:
        """More may run at any time; what was let run goes on when less may, so that is done while nothing is there."""
        limit = next((one for one in self.limits if one.name == "bulk"), None)
        assert self.lanes.most("bulk") == (limit and limit.most)
        if limit is not None and (most > limit.most or not (self.taken or self.held or any(self.queued.values()))):
            self.lanes.resize("bulk", most)
            assert limit.most == most

    @rule(number=st.integers(0, 1))
    def revoke(self, number: int) -> None:
        stay = self.partitions[number]
        gone = [one for records in self.queued.values() for one in records if one.owned is stay]
        assert sorted(map(str, self.lanes.purge(lambda one: one.owned is stay))) == sorted(map(str, gone))
        for records in self.queued.values():
            records[:] = [record for record in records if record.owned is not stay]

    @invariant()
    def no_more_of_a_key_runs_than_may(self) -> None:
        for key in {one.key for one in self.taken if one.key is not None}:
            apart = [one for one in (*self.taken, *self.held) if one.key == key and one not in self.behind]
            assert len(apart) <= self.per_key

    @invariant()
    def no_more_of_a_kind_runs_than_may(self) -> None:
        for limit in getattr(self, "limits", ()):
            counted = Counter(limit.of(one) for one in (*self.taken, *self.held))
            assert all(count <= limit.most for what, count in counted.items() if what is not None)

    @invariant()
    def what_waits_for_a_limit_is_told(self) -> None:
        if hasattr(self, "limits"):
            assert set(self.lanes.waiting) == {limit.name for limit in self.limits}
            waiting = sum(self.lanes.waiting.values())
            assert 0 <= waiting <= sum(len(records) for records in self.queued.values())

    def teardown(self) -> None:
        """Whatever happened: what is there gets its turn."""
        if not hasattr(self, "lanes"):
            return
        for record in self.held:
            self.lanes.again(record)
            self.queued[record.key].insert(0, record)
        for record in self.taken:
            self.lanes.finish(record)
        left = sum(len(records) for records in self.queued.values())
        while (record := self.lanes.take()) is not None:
            self.lanes.finish(record)
            left -= 1
        assert left == 0


TestLanes = LanesMachine.TestCase
TestLanes.settings = machine()


def test_a_limit_that_shrinks_lets_what_runs_go_on_and_one_that_grows_lets_more_run() -> None:
    lanes = KeyLanes(1, [Limit("bulk", 3, bulk_of)])
    stay = OwnedPartition("documents.bulk", "id", 0)
    for offset in range(6):
        lanes.add(Record(stay, offset, b"key-%d" % offset, b"v", [], 0))
    running = [lanes.take() for _ in range(4)]
    assert running.pop() is None
    lanes.resize("bulk", 1)
    for record in running[:2]:
        assert record is not None
        lanes.finish(record)
        assert lanes.take() is None
    lanes.resize("bulk", 3)
    assert [record.offset for record in (lanes.take(), lanes.take()) if record is not None] == [3, 4]
    assert lanes.take() is None


def test_tenants_take_turns_at_a_limit_that_holds_up_all_of_them() -> None:
    """One with a thousand records in the lane for backfill does not come first a thousand times."""
    lanes = KeyLanes(1, [Limit("tenant", 5, tenant_of), Limit("bulk", 1, bulk_of)])
    stay = OwnedPartition("documents.bulk", "id", 0)
    tenants = [b"busy"] * 5 + [b"quiet"] * 2 + [b"other"]
    for offset, tenant in enumerate(tenants):
        lanes.add(Record(stay, offset, b"key-%d" % offset, b"v", [("ce_tenantid", tenant)], 0))
    order = []
    while (record := lanes.take()) is not None:
        assert lanes.take() is None
        order.append(tenant_of(record))
        lanes.finish(record)
    assert order == [b"busy", b"busy", b"quiet", b"other", b"busy", b"quiet", b"busy", b"busy"]
