"""A delivered record, and the partition that it was delivered from."""

import threading
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import Any, TypeAlias

from confluent_kafka import TopicPartition

from offsetzero.consumers.order import Copy, Order, Version
from offsetzero.retry.failures import Failure
from offsetzero.schemas.shapes import SHARED, share
from offsetzero.store.forced import Forced
from offsetzero.topics.catalogue import is_bulk

OVERHEAD = 500
"""Bytes that a record costs besides its key, value and headers."""
RawHeaders: TypeAlias = Sequence[tuple[str, bytes | None]]


class PauseReason(StrEnum):
    """Why a partition is paused; it is fetched again when none is left."""

    SIBLINGS = "siblings"
    """This member does not own the partition of the same number of every topic of the group."""
    OPENING = "opening"
    """Where to begin is not known yet."""
    COPIES = "copies"
    """What waits in the retry topics of its number is not known yet."""
    BACK_PRESSURE = "back-pressure"
    WAITING = "waiting"
    SPAN = "span"
    REFUSED = "refused"
    """The broker does not take what follows from one of its failures: a retry record or a dead letter."""
    LANE = "lane"
    """It is a lane for backfill, and enough of it is in flight: the rest of the room is for live traffic."""
    REPLAY = "replay"
    """It is about to be read from elsewhere: what runs is awaited, or the commit of the new position."""


class Record:
    """One record as it was read; key, value and header values are bytes until somebody decodes them."""

    __slots__ = (
        "again_at",
        "alone",
        "appended",
        "broken",
        "calls",
        "cleared",
        "copy",
        "done",
        "due",
        "entered",
        "failed",
        "fence",
        "header_names",
        "header_values",
        "held",
        "kept",
        "key",
        "lifted",
        "lone",
        "marked",
        "moved",
        "offset",
        "outgrown",
        "owned",
        "parking",
        "prepared",
        "provider",
        "size",
        "timestamp_ms",
        "value",
    )

    header_names: tuple[str, ...]
    header_values: tuple[bytes | None, ...]

    def __init__(
        self,
        owned: "OwnedPartition",
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: RawHeaders,
        timestamp_ms: int,
    ) -> None:
        self.owned = owned
        self.offset = offset
        self.key = key
        self.value = value
        # Apart: the names are those of every other record, the values nothing that the garbage collector looks at.
        names, self.header_values = zip(*headers) if headers else ((), ())  # noqa: B905 - pairs
        self.header_names = SHARED.get(names) or share(names)
        self.timestamp_ms = timestamp_ms
        self.size = OVERHEAD + len(value or b"") + len(key or b"") + bytes_of(self.header_values)
        self.done = False
        self.prepared = False
        self.kept: Any = None
        self.broken = 0
        self.cleared = False  # work on it has ended without ending the process
        self.marked: int | None = None  # the database knows that this member works on it, and how many died before
        self.entered = False  # its handler was called: what ends the process from then on may be its fault
        self.lone = False  # a member has died while it worked on it: it runs while nothing else does
        self.failed: Failure | None = None  # its handling has failed, and that is not settled yet
        self.fence: int | None = None  # of the lease of its step; None before it has one, and when that was taken away
        self.due: float | None = None  # monotonic seconds before which it may not run; the dispatcher's
        self.again_at = 0.0  # monotonic seconds before which its next try is of no use
        self.provider: str | None = None  # the one that its next try waits for
        self.alone = False  # it was in a batch that took too long: it is worked on without others, to be told apart
        self.calls = 0  # of its handler that have failed in this process, and are to be followed by another
        self.outgrown = 0  # places that were too small for it when it was to be retried or dead-lettered
        self.appended = False  # the copy in the retry or dead-letter topic is acknowledged
        self.moved: Version | None = None  # which copy its key waits for then
        self.held = False  # a row in the database says that its key waits until an operator has seen to it
        self.lifted = False  # no longer: its outcome has taken the row away
        self.parking = False  # it is being appended to the first tier, for its key waits
        self.copy: Copy | None = None  # what it is among those that wait, when it was read from a retry topic

    def keep(self, prepared: Any) -> None:
        """Remember what `prepare` returned, so that a transaction that must be repeated repeats only itself."""
        self.prepared = True
        self.kept = prepared

    def clear(self) -> None:
        """The work on it has ended without ending the process, and the database knows that."""
        self.marked, self.cleared = None, True

    def free(self) -> None:
        """Let go of the payload: a done record stays known by its offset until those before it are done."""
        self.value = self.kept = self.failed = None  # a failure's traceback would hold all that it was raised over
        self.header_names = self.header_values = ()

    @property
    def order(self) -> Order:
        """Of the source partition that it comes from."""
        return self.owned.order if self.copy is None else self.copy.order

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        """In the order of the record; made anew at each look."""
        return list(zip(self.header_names, self.header_values, strict=True))

    @property
    def topic(self) -> str:
        """The topic as the catalogue names it."""
        return self.owned.topic

    @property
    def partition(self) -> int:
        return self.owned.partition

    @property
    def is_suspect(self) -> bool:
        """Whether the work on it may have ended the process of a member before this one."""
        return self.offset < self.owned.suspects_end and not self.cleared

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"


def tenant_of(record: Record) -> bytes | None:
    """The tenant that a record's headers name (`ce_tenantid`), None for none."""
    names = record.header_names
    return record.header_values[names.index("ce_tenantid")] if "ce_tenantid" in names else None


BULK = "bulk"
"""The limit of what `bulk_of` names."""


def bulk_of(record: Record) -> bytes | None:
    """`bulk` for a record of a lane for backfill, also while it is in a retry topic; None for others."""
    copy = record.copy
    return b"bulk" if (record.owned if copy is None else copy.order.home).is_bulk else None


def bytes_of(values: tuple[bytes | None, ...]) -> int:
    """How many bytes they have together."""
    try:
        return len(b"".join(values))  # type: ignore[arg-type]
    except TypeError:  # a header may have no value
        return sum(len(value) for value in values if value is not None)


class OwnedPartition:
    """One stay of a partition with this member: from its assignment to its revocation, or to that of a sibling.

    A partition that is revoked and assigned again gets a new object, so that whatever still points to the old one
    (a running handler, a late result) changes nothing. Only the polling thread calls the methods, but for
    `position_after`; `Record.done` and `active` may be read and set by any thread.

    Attributes:
        active: whether its records may be begun.
        resting: whether none may be begun for the moment; it is undecided yet whether the stay ends.
        gone: whether it has ended; between the two what runs is awaited.
        position: the offset behind what was read; None until it is known where to begin.
        committed: the offset that Kafka holds or was asked to hold, as far as this stay knows.
        unproven: the database does not know yet that Kafka has held an offset of this partition.
        acknowledged: the last offset that the broker has acknowledged for this stay.
        resume_at: where an earlier stay of this member ended, when the partition was with it all the time.
        target: where a replay has this stay begin, as far as the log reaches.
        before: the name of the stay that a replay has ended for this one, in good order.
        pauses: why nothing is fetched.
        order: of a source, what waits in retry topics of its records.
        orders: of a retry partition, the orders of all sources of its number, by the id of the topic.
        tiers: of a source, the retry partitions of its number.
        cursor: what is read next of a retry partition while some of it is read again; else that is `position`.
        until: of a retry partition, how far it must have been read before its sources are.
        name: of this stay, in the database; empty in a group without one.
        member: whose stay it is, as Kafka knows it; empty for one that no group has.
        contested: the database has the stay of another member by now. Workers set it; see `Opening.contest`.
        kept: the position that the database has or was asked to have; None where it keeps none.
        has_left: whether the end of this stay was committed.
        suspects_end: the offset behind those that may have ended the process of the member before, 0 for none.
        due: when its last record may run (monotonic seconds), where none may before those ahead of it.
        is_bulk: whether its topic is a lane for backfill.
        forced: what of its records is to be handled again, in later generations; None for nothing.
    """

    __slots__ = (
        "_forgotten",
        "_kept",
        "_shortening",
        "_undone",
        "acknowledged",
        "active",
        "before",
        "committed",
        "contested",
        "cursor",
        "due",
        "forced",
        "gone",
        "has_left",
        "is_bulk",
        "kept",
        "member",
        "name",
        "order",
        "orders",
        "partition",
        "pauses",
        "position",
        "resting",
        "resume_at",
        "suspects_end",
        "target",
        "tiers",
        "topic",
        "topic_id",
        "unproven",
        "until",
    )

    def __init__(self, topic: str, topic_id: str, partition: int, resume_at: int | None = None) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.is_bulk = is_bulk(topic)
        self.active = True
        self.resting = False
        self.gone = False
        self.pauses: set[PauseReason] = set()
        self.position: int | None = None
        self.resume_at = resume_at
        self.target: int | None = None
        self.before = ""
        self.committed: int | None = None
        self.acknowledged: int | None = None
        self.unproven = False
        self.order = Order(self)
        self.orders: dict[bytes, Order] = {}
        self.tiers: Sequence[OwnedPartition] = ()
        self.until = 0
        self.cursor: int | None = None
        self.due = 0.0
        self.name = self.member = ""
        self.contested = False
        self.has_left = False
        self.suspects_end = 0
        self.kept: int | None = None
        self.forced: Forced | None = None
        self._shortening = threading.Lock()
        self._undone: deque[Record | Copy] = deque()
        self._kept = 0  # records, when done ones were last let go
        self._forgotten = -1  # the highest offset of these

    @property
    def place(self) -> tuple[str, int]:
        """Topic, as the catalogue names it, and number."""
        return self.topic, self.partition

    @property
    def is_entered(self) -> bool:
        """Whether the database knows of this stay as one that has not ended."""
        return bool(self.name) and not self.has_left

    @property
    def is_opening(self) -> bool:
        """Whether it has been asked where to begin."""
        return PauseReason.OPENING in self.pauses and PauseReason.SIBLINGS not in self.pauses

    def begin(self, offset: int, committed: int | None) -> None:
        """Note where reading begins, and what Kafka holds as committed."""
        self.position = offset
        self.committed = committed

    def deliver(self, record: Record | Copy) -> None:
        """Note a record that was read; records come in the order of their offsets."""
        self._undone.append(record)
        self.position = record.offset + 1

    def reach(self, position: int) -> None:
        """Note that everything before `position` was read, markers of transactions included."""
        if self.position is None or position > self.position:
            self.position = position

    def committable(self) -> int | None:
        """The offset to commit: the lowest record that is not done, else the position; None before it is known.

        No arithmetic over offsets: compaction and transaction markers leave gaps (faust-streaming/faust#606).
        """
        with self._shortening:
            return self._lowest()

    def position_after(self, records: Collection[object]) -> int | None:
        """What `committable` will be once these are done, too; None when it will be where it is, or the stay has ended.

        Any thread may ask: the polling thread adds records meanwhile, at the other end.

        Args:
            records: of this partition; for those of a retry partition their copies, too.
        """
        with self._shortening:
            end, undone = self.position, self._undone  # first the end: what is read meanwhile lies behind it
            if self._lowest() is None or not undone or undone[0] not in records:
                return None
            for at in range(len(undone)):  # an iterator would fail when a record is added
                if not undone[at].done and undone[at] not in records:
                    return undone[at].offset
            return end

    def _lowest(self) -> int | None:
        undone = self._undone
        while undone and undone[0].done:
            undone.popleft()
        return undone[0].offset if undone else self.position

    def head(self) -> Record | Copy | None:
        """The lowest record that is not done."""
        return next((record for record in self._undone if not record.done), None)

    def begun(self, running: Collection[int]) -> int:
        """The highest offset that is done or running, -1 for none: what comes behind it was not begun."""
        begun = next((one.offset for one in reversed(self._undone) if one.done or one.offset in running), -1)
        return max(begun, self._forgotten) if self._undone and self._undone[0].offset < self._forgotten else begun

    @property
    def has_suspects(self) -> bool:
        """Whether records that may have ended the process of a member before this one are not done."""
        lowest = self.committable() if self.suspects_end else None
        return lowest is not None and lowest < self.suspects_end

    def forget_done(self, limit: int) -> None:
        """Let go of done records behind one that is not, once there may be more of them than of others.

        For retry topics, where the lowest record may wait for a day and a million are done behind it.

        Args:
            limit: records that are kept in any case.
        """
        if len(self._undone) <= max(limit, 2 * self._kept):
            return
        kept: deque[Record | Copy] = deque()
        for record in self._undone:
            if record.done:
                self._forgotten = max(self._forgotten, record.offset)
            else:
                kept.append(record)
        with self._shortening:
            self._undone, self._kept = kept, len(kept)

    @property
    def undone(self) -> int:
        """Records from the lowest that is not done to the last delivered one, without those that were forgotten."""
        return len(self._undone)

    def revoke(self) -> None:
        """End the stay: buffers are freed, late results find nothing to change, and nothing is committed any more."""
        self.active = False
        self.gone = True
        self.position = None
        self.pauses.clear()
        with self._shortening:
            self._undone.clear()

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


def spans(partitions: Iterable[TopicPartition]) -> list[str]:
    """Partitions by topic, neighbours together: `documents/0-5`, `runs/0,2`."""
    numbers: dict[str, list[int]] = {}
    for place in partitions:
        numbers.setdefault(place.topic, []).append(place.partition)
    shown = []
    for topic, found in sorted(numbers.items()):
        ranges: list[list[int]] = []
        for number in sorted(found):
            if ranges and number == ranges[-1][-1] + 1:
                ranges[-1] = [ranges[-1][0], number]
            else:
                ranges.append([number])
        shown.append(f"{topic}/{','.join('-'.join(map(str, one)) for one in ranges)}")
    return shown
