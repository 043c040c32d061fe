"""Where history begins with the archive, and which offsets points in it are."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from offsetzero.errors import TopicError
from offsetzero.history.archive import Archive, Segment
from offsetzero.history.missing import gaps
from offsetzero.settings import Settings
from offsetzero.topics.points import Ends, Point


class Reach:
    """Some partitions as the archive and the log have them together.

    The object store is asked for a partition whose log has lost its beginning, and only when a point lies there.

    Args:
        settings: name the cluster and the object store.
        log: the ends of the log, of these places.
        places: topics, by our names, with numbers of partitions.
    """

    def __init__(self, settings: Settings, log: Ends, places: Sequence[tuple[str, int]]) -> None:
        self._settings = settings
        self._log = log
        self._places = places
        self._archives: dict[str, Archive] = {}
        self._segments: dict[tuple[str, int], list[Segment]] = {}

    def resolve(self, option: str, point: Point) -> Mapping[tuple[str, int], int]:
        """The offset of a point in each partition, as `Ends.resolve`; `earliest` is where the archive begins.

        Raises:
            ConfigurationError: an offset, and more than one partition; with the option's name.
            HistoryError: a manifest cannot be read, or a file is not the one that was archived.
            TopicError: neither has that offset, or the cluster does not answer.
        """
        if isinstance(point, int):
            return self._offset(option, point)
        found = dict(self._log.resolve(option, point))
        if point == "latest":
            return found
        for place, low in self._log.low.items():
            if found[place] == low > 0:  # what is sought may lie before
                found[place] = min(low, self._first(self._kept(place), point, low))
        return found

    def gone(self, place: tuple[str, int], first: int, end: int) -> int:
        """How many of the offsets from `first` to before `end` neither of them has."""
        low = min(end, self._log.low[place])
        if first >= low:
            return 0
        kept = [(one.first, one.end) for one in self._kept(place)]
        return sum(behind - at for at, behind in gaps(low, kept, first))

    def _first(self, kept: Sequence[Segment], point: Point, low: int) -> int:
        """The first offset in the archive that is meant; the log's first one where it is none."""
        if not isinstance(point, datetime):
            return kept[0].first if kept else low
        at_ms = max(0, round(point.timestamp() * 1000))
        for segment in kept:
            if segment.last_ms is not None and segment.last_ms >= at_ms:
                read = self._archives[segment.topic].read(segment)
                return next(one.offset for one in read if one.timestamp_ms >= at_ms)
        return low

    def _offset(self, option: str, point: int) -> Mapping[tuple[str, int], int]:
        if len(self._places) != 1 or point >= self._log.low[self._places[0]]:
            return self._log.resolve(option, point)
        (place,) = self._places
        kept = self._kept(place)
        if any(one.first <= point < one.end for one in kept):
            return {place: point}
        shown = ", ".join(f"{one.first} to {one.end - 1}" for one in kept) or "nothing"
        raise TopicError(
            f"{option} {point}: the log of {place[0]}/{place[1]} begins at {self._log.low[place]}, and the archive has"
            f" {shown} before"
        )

    def _kept(self, place: tuple[str, int]) -> list[Segment]:
        """The segments that begin before the log, in its order."""
        if place not in self._segments:
            topic, partition = place
            if topic not in self._archives:
                self._archives[topic] = Archive(self._settings, topic)
            kept = self._archives[topic].segments(partition)
            self._segments[place] = [one for one in kept if one.first < self._log.low[place]]
        return self._segments[place]
