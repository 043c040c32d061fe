"""What the tests of the contract ask of a log, whichever it is; the runtime on it is always the real one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from uuid import UUID

from offsetzero.clock import SYSTEM
from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.record import Record
from offsetzero.producers import records
from offsetzero.retry.policy import Tier
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentUploaded

T = TypeVar("T")

GROUP = "audit"
SOURCE = "documents"
RETRY = f"{GROUP}.retry-1m"
REDRIVE = f"{GROUP}.redrive"
DEAD = f"{GROUP}.dlq"
Headers = list[tuple[str, bytes | None]]
Handle = Callable[[DocumentUploaded, Context], None]


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as it lies in a topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes | None]


class Gate(Protocol):
    """What a handler waits at until the test opens it."""

    def wait(self) -> None: ...

    def open(self) -> None: ...


class Member(Protocol):
    """A `GroupRuntime` that runs."""

    error: BaseException | None
    """What it ended with by itself."""

    def has_to_give_up(self) -> bool:
        """Whether it was told that partitions are taken from it."""
        ...

    def has_lost(self) -> bool:
        """Whether it was told that partitions are no longer its own, and has served that."""
        ...

    def stop(self) -> list[Record]:
        """End it in order; the records that were left."""
        ...


class Log(Protocol):
    """A log with one source topic, and a consumer group on it. It begins empty.

    Attributes:
        partitions: how many the topics have.
        has_markers: whether a transaction takes offsets that no reader is given.
        takes_last_commits: whether a member may commit what it has to give up.
        refuses: whether appends of members are refused now.
    """

    partitions: int
    has_markers: bool
    takes_last_commits: bool
    refuses: bool

    def play(self, script: Callable[[], None]) -> None:
        """Call a test's function where it may wait for members."""
        ...

    def until(self, condition: Callable[[], T], what: str) -> T:
        """Wait until something is true, half a minute at most."""
        ...

    def gate(self) -> Gate:
        """A closed one."""
        ...

    def join(self, group: ConsumerGroup) -> Member:
        """Start a member."""
        ...

    def lose(self, member: Member) -> None:
        """Have the coordinator put a member out; it hears of that some time later."""
        ...

    def append(self, partition: int, key: str, value: bytes | None, headers: Headers) -> int:
        """Append a record to the source; its offset."""
        ...

    def append_in_transaction(self, partition: int, key: str, value: bytes, headers: Headers, *, commit: bool) -> None:
        """The same in a transaction."""
        ...

    def commit(self, partition: int, offset: int) -> None:
        """Set the group's offset in a partition of the source; it has no members."""
        ...

    def committed(self, partition: int, topic: str = SOURCE) -> int | None:
        """The offset that the log holds of the group."""
        ...

    def behind(self) -> list[str]:
        """The partitions of the group's topics that are not committed to their end."""
        ...

    def read(self, topic: str) -> list[Stored]:
        """All records of a topic."""
        ...


@dataclass(slots=True)
class Handled:
    """A handler's call."""

    member: str
    partition: int
    offset: int
    key: str
    attempt: int
    ended: bool = False

    @property
    def place(self) -> tuple[int, int]:
        """Where the record was first read."""
        return self.partition, self.offset


class Journal:
    """What the handlers of all members have done, in the order in which they began."""

    def __init__(self) -> None:
        self.calls: list[Handled] = []

    def group(self, member: str, handle: Handle | None = None, **options: Any) -> ConsumerGroup:
        """The group as that member declares it.

        Args:
            member: its name.
            handle: what handlers do besides; nothing by default.
            options: of the declaration.
        """
        options = {"concurrency": 4, "tiers": [Tier("retry-1m", 0.3)], **options}
        group = ConsumerGroup(GROUP, topics=[SOURCE], database=False, **options)

        @group.handler(DocumentUploaded)
        def note(event: DocumentUploaded, ctx: Context) -> None:
            call = Handled(member, ctx.record.partition, ctx.record.offset, event.name, ctx.attempt)
            self.calls.append(call)
            if handle is not None:
                handle(event, ctx)
            call.ended = True

        return group

    @property
    def ended(self) -> list[tuple[int, int]]:
        """The records whose handler has returned, in the order in which it began."""
        return [call.place for call in self.calls if call.ended]


def caught_up(log: Log) -> None:
    """Wait until all partitions are committed to their end: the log has nothing more for the group."""
    log.until(lambda: not log.behind(), "lag 0")


def record(name: str) -> tuple[bytes, Headers]:
    """The value and the headers of an event; `name` tells it from others."""
    event = DocumentUploaded(
        document_id=UUID(int=1),
        tenant_id="acme",
        run_id=UUID(int=2),
        name=name,
        content_type="text/plain",
        uri="file:///nowhere",
        size_bytes=1,
        sha256="0" * 64,
        uploaded_at=SYSTEM.now(),
    )
    made = records.build(Codec(), event, {})
    return made.value or b"", list(made.headers)


def put(log: Log, partition: int, key: str, name: str = "") -> int:
    """Append an event to the source; its offset. Its name is its key unless another one is given."""
    return log.append(partition, key, *record(name or key))
