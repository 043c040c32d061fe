"""What the members of a consumer group are told while they run, and what they answer: the key is the group's name."""

from datetime import datetime
from enum import Enum
from uuid import UUID

from offsetzero.schemas.event import Event, EventPart


class ReplayPlace(EventPart):
    """A partition of a topic with this id, and the offset that it is to be read from."""

    topic: str
    topic_id: str
    partition: int
    offset: int


class ReplayOutcome(Enum):
    """What a member has done with a partition that it was to read from elsewhere."""

    APPLIED = "APPLIED"
    """It reads from there, and the broker has acknowledged that."""
    PREVENTED = "PREVENTED"
    """It goes on where it was."""
    LOST_PARTITION = "LOST_PARTITION"
    """Another member got the partition meanwhile."""
    UNKNOWN = "UNKNOWN"
    """Of a later version."""


class GroupReplayRequested(Event, type="group.replay.requested", key="group"):
    """Members of a group are to read partitions from elsewhere. Sent again until each has an answer; done once.

    `group` is what Kafka knows the group by, `deadline` when the members give up.
    """

    group: str
    request_id: UUID
    deadline: datetime
    places: list[ReplayPlace]


class GroupReplayAnswered(Event, type="group.replay.answered", key="group"):
    """What has become of one partition. `offset` is where it is read from, `detail` a sentence for people."""

    group: str
    request_id: UUID
    topic: str
    partition: int
    outcome: ReplayOutcome
    offset: int | None = None
    detail: str = ""
    member: str = ""
