"""The one tree of errors: everything this package raises on purpose derives from `OffsetzeroError`.

    OffsetzeroError
    ├── ConfigurationError      settings, arguments or declarations that cannot work
    ├── SchemaError             contracts and the codec
    │   ├── InvalidEvent        data or attributes that no event may have
    │   ├── DecodeError         bytes that cannot be read as what they claim to be
    │   ├── UnreadableEvent     found when a handler looked at its event: poison
    │   ├── UnknownSchema       a fingerprint that no contract and no record of `schemas` explains
    │   └── IncompatibleSchema  a contract that old readers or writers could not live with
    ├── SchemasUnavailable      the topic `schemas` cannot be read now: transient, never poison
    ├── TopicError              topics that differ from the catalogue, or a plan that is refused
    ├── HistoryError            a file or an archive of records that cannot be made, or cannot be used
    ├── PublishError            the broker did not take a record
    ├── RedriveRefused          dead letters that cannot be redriven, edited or discarded as asked
    ├── GroupStopped            a consumer group cannot go on without an operator
    │   └── PositionLost        where it was is no place in the log any more
    ├── ProviderWaits           a provider cannot be called now: the same attempt, later
    ├── FailedHandling          raised by handlers, or made of what they raised (`offsetzero.retry.failures`)
    └── ServerError             an embedded Kafka or PostgreSQL that cannot be brought up

A message says what happened, where, and what to do about it.
"""

from enum import StrEnum


class OffsetzeroError(Exception):
    """Base of all errors raised on purpose."""


class ConfigurationError(OffsetzeroError):
    """Settings, arguments or declarations that cannot work; reported all together.

    Args:
        problems: one line for each mistake, each naming the setting and what it should be.
    """

    def __init__(self, problems: list[str] | str) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class SchemaError(OffsetzeroError):
    """A contract or the codec."""


class InvalidEvent(SchemaError):
    """Data or attributes that no event may have."""


class DecodeError(SchemaError):
    """Bytes that cannot be read as what they claim to be."""


class UnreadableEvent(DecodeError):
    """An event whose bytes are sound and whose values its model refuses; raised by every look at it."""


class UnknownSchema(DecodeError):
    """A writer schema that no contract and no record of the topic `schemas` explains."""


class SchemasUnavailable(OffsetzeroError):
    """The topic `schemas` cannot be read now. Says nothing about the event: try again later."""


class IncompatibleSchema(SchemaError):
    """A contract that old readers or old writers could not live with."""


class TopicError(OffsetzeroError):
    """Topics that differ from the catalogue, or a plan that is refused."""


class HistoryError(OffsetzeroError):
    """A file or an archive of records cannot be made, or is not what it must be."""


class PublishError(OffsetzeroError):
    """The broker did not take a record.

    `code` is librdkafka's name of the error (`MSG_SIZE_TOO_LARGE`), empty when there is none; `retriable` says
    whether the same record may be taken later.
    """

    def __init__(self, message: str, *, code: str = "", retriable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.retriable = retriable


class RedriveRefused(OffsetzeroError):
    """Dead letters cannot be redriven, edited or discarded as asked; nothing was sent."""


class RebuildRefused(OffsetzeroError):
    """A generation of a projection cannot be made, read or dropped as things are; nothing was changed."""


class GroupStopped(OffsetzeroError):
    """A consumer group cannot go on without an operator's decision."""


class LostBecause(StrEnum):
    """Why a group's position is no place in the log."""

    RECREATED = "topic-recreated"
    DELETED = "topic-deleted"
    EXPIRED = "offset-expired"
    BELOW_START = "below-log-start"
    ABOVE_END = "above-log-end"


class PositionLost(GroupStopped):
    """Where a group was is no place in the log any more; going on would skip records, or read other ones.

    Args:
        message: what happened, which offsets are concerned, and the commands that resolve it.
        reason: why.
        topic: as the catalogue names it.
        partition: None when the topic as a whole is concerned.
        gap: the first offset that is missing, and the one behind the last.
    """

    def __init__(
        self,
        message: str,
        reason: LostBecause,
        topic: str,
        partition: int | None = None,
        gap: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.topic = topic
        self.partition = partition
        self.gap = gap


class ProviderWaits(OffsetzeroError):
    """A provider cannot be called now, or has failed: its record is handled again later, with the same attempt.

    `why` is a value of `offsetzero.retry.protection.Why`, `seconds` how long it is of no use to ask again.
    """

    def __init__(self, provider: str, why: str, seconds: float) -> None:
        super().__init__(f"provider {provider}: {why}")
        self.provider = provider
        self.why = why
        self.seconds = seconds


class FailedHandling(OffsetzeroError):
    """Base of the failures that handlers raise; see `offsetzero.retry.failures`."""


class ServerError(OffsetzeroError):
    """An embedded server that cannot be brought up."""
