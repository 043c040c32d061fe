"""What a topic still has of its history."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches

from offsetzero.errors import TopicError
from offsetzero.settings import Settings
from offsetzero.topics import cluster
from offsetzero.topics.admin import client
from offsetzero.topics.names import Names
from offsetzero.topics.points import Ends
from offsetzero.topics.reading import TopicReader


@dataclass(frozen=True, slots=True)
class Retained:
    """A partition: its log has the offsets from `low` to before `end`; with `low` > 0 what was before is deleted.

    `since` is the time of the first record that is left; None when there is none.
    """

    topic: str
    partition: int
    low: int
    end: int
    since: datetime | None = None


def existing(settings: Settings, topic: str) -> int:
    """The partition count of a topic.

    Raises:
        TopicError: there is no such topic; with the names that are near.
    """
    found = cluster.partitions(settings)
    if topic not in found:
        near = get_close_matches(topic, found, 3, 0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "`offsetzero topics list` shows those that exist"
        raise TopicError(f"there is no topic {topic}; {hint}")
    return found[topic]


def bounds(settings: Settings, topic: str) -> dict[int, Retained]:
    """First offset and end of each partition (see `offsetzero.topics.points.Ends`), without times.

    Raises:
        TopicError: there is no such topic, or the cluster does not answer.
    """
    places = [(topic, number) for number in range(existing(settings, topic))]
    log = Ends(client(settings), Names(settings.kafka.namespace), places)
    return {place[1]: Retained(*place, log.low[place], log.end[place]) for place in places}


def retained(settings: Settings, topic: str) -> list[Retained]:
    """What each partition of a topic has, with the times of the first records.

    Raises:
        TopicError: there is no such topic, or the cluster does not answer.
    """
    found = bounds(settings, topic)
    times = _first_times(settings, topic, {number: (one.low, one.end) for number, one in found.items()})
    return [Retained(topic, number, one.low, one.end, times.get(number)) for number, one in sorted(found.items())]


def _first_times(settings: Settings, topic: str, spans: Mapping[int, tuple[int, int]]) -> dict[int, datetime]:
    found: dict[int, datetime] = {}
    with TopicReader(settings) as reader:
        for number, span in spans.items():
            for batch in reader.read(topic, {number: span}):
                found[number] = datetime.fromtimestamp(batch[0].timestamp_ms / 1000, UTC)
                break
    return found
