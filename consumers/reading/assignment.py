"""Which partitions this member owns, and which of them may be worked: no I/O, no threads (design section 6).

A number is worked only while the member owns that partition of every source and retry topic of its group: a record
and its retries are in partitions of one number, and two members that had one each would break the order of a key.
"""

from collections.abc import Iterable, Mapping

from offsetzero.consumers.record import OwnedPartition, PauseReason
from offsetzero.store.starts import Place


class Assignment:
    """The stays of partitions with one member; the polling thread's.

    The lists that Kafka's clients hand out are what is added or taken away, and may be empty (arroyo#419,
    librdkafka#3337). A stay that ends never comes back: the same partition gets another object.

    Args:
        sources: the source topics of the group, as the catalogue names them, with their ids.
        retries: its retry topics, likewise.
    """

    def __init__(self, sources: Mapping[str, str], retries: Mapping[str, str]) -> None:
        self._sources = list(sources)
        self._retries = list(retries)
        self._topics = {**sources, **retries}
        self._stays: dict[Place, OwnedPartition] = {}
        self.member = ""
        """This member, as Kafka knows it since the last assignment."""

    def add(self, places: Iterable[Place]) -> list[OwnedPartition]:
        """Begin a stay of each place that is not owned; it is paused until somebody lets it be read.

        Returns:
            The stays whose numbers are complete now: where they begin may be asked.
        """
        added = [place for place in places if place not in self._stays and place[0] in self._topics]
        for place in added:
            self._begin(place, None)
        complete = {number for _, number in added if self.is_complete(number)}
        ready = [stay for stay in self._stays.values() if stay.partition in complete]
        for stay in ready:
            stay.pauses.discard(PauseReason.SIBLINGS)
        for number in complete:
            self._link(number)
        return ready

    def ending(self, places: Iterable[Place]) -> list[OwnedPartition]:
        """Let nothing more be started of these and their siblings.

        Returns:
            Their stays, which are owned until `remove`.
        """
        numbers = {place[1] for place in places if place in self._stays}
        stays = [stay for stay in self._stays.values() if stay.partition in numbers]
        for stay in stays:
            stay.active = False
        return stays

    def remove(self, places: Iterable[Place]) -> list[OwnedPartition]:
        """End the stays of these and of their siblings; a sibling that is still owned begins another one.

        Returns:
            The stays that begin, paused, to be read on at their lowest undone offset when their number is complete.
        """
        gone = set(places)
        begun = []
        for stay in self.ending(gone):
            resume_at = stay.committable() if stay.position is not None else stay.resume_at
            del self._stays[stay.place]
            stay.revoke()
            if stay.place not in gone:
                begun.append(self._begin(stay.place, resume_at))
        return begun

    def restart(self, number: int, targets: Mapping[str, int]) -> tuple[list[OwnedPartition], list[OwnedPartition]]:
        """End the stays of a complete number, and begin others in their places: the partitions are owned on.

        All of the number, for the order of keys: what waits in the retry topics is looked at anew.

        Args:
            number: of the partitions; nothing of them runs.
            targets: where these topics are to be read from; the others are read on.

        Returns:
            The stays that have ended, and those that have begun: paused, to be asked where they begin.
        """
        ended = self.ending([(topic, number) for topic in self._topics])
        begun = []
        for stay in ended:
            target = targets.get(stay.topic)
            resume_at = stay.committable() if stay.position is not None else stay.resume_at
            new = self._begin(stay.place, resume_at if target is None else None)
            new.before = stay.name
            new.suspects_end = stay.suspects_end if stay.has_suspects else 0
            new.pauses.discard(PauseReason.SIBLINGS)
            if target is not None:
                new.target = target
                new.pauses.add(PauseReason.REPLAY)
            stay.revoke()
            begun.append(new)
        self._link(number)
        return ended, begun

    def get(self, place: Place) -> OwnedPartition | None:
        """The stay of a place, if it is owned."""
        return self._stays.get(place)

    def stays(self) -> list[OwnedPartition]:
        """All of them."""
        return list(self._stays.values())

    def is_complete(self, number: int) -> bool:
        """Whether this partition of every topic of the group is owned."""
        return all((topic, number) in self._stays for topic in self._topics)

    def _link(self, number: int) -> None:
        """Have the retry partitions of a number know its sources, and these know them."""
        sources = [self._stays[topic, number] for topic in self._sources]
        tiers = [self._stays[topic, number] for topic in self._retries]
        orders = {stay.topic_id.encode(): stay.order for stay in sources}
        for stay in sources:
            stay.tiers = tiers
        for stay in tiers:
            stay.orders = orders

    def _begin(self, place: Place, resume_at: int | None) -> OwnedPartition:
        topic, number = place
        stay = self._stays[place] = OwnedPartition(topic, self._topics[topic], number, resume_at)
        stay.member = self.member
        stay.pauses |= {PauseReason.SIBLINGS, PauseReason.OPENING}
        return stay
