"""What the transactions of a projection have besides: the fence, and how far the partitions are."""

from collections.abc import Callable, Iterable

from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.working.transaction import NotNow
from offsetzero.errors import GroupStopped
from offsetzero.generation import Generation
from offsetzero.store import generations, positions
from offsetzero.store.generations import ALONE, Standing
from offsetzero.store.positions import Position
from offsetzero.store.script import Script
from offsetzero.store.starts import Place


class Fence:
    """Of a group that is no projection: there is nothing to look at, and it always has effects."""

    def enter(self) -> Script[Standing]:
        """Begin a transaction; returns whether it may do more than to keep the group's own tables.

        Raises:
            NotNow: the generation is gone, its member is told to end; or it is to wait for a moment.
        """
        return ALONE
        yield  # pragma: no cover - makes it a generator

    def leave(self, records: Iterable[Record]) -> Script[None]:
        """End a transaction that makes these done."""
        return
        yield  # pragma: no cover


class GenerationFence(Fence):
    """Of one generation of a projection.

    Args:
        generation: whose transactions these are.
        crashed: told that the member cannot go on.
    """

    def __init__(self, generation: Generation, crashed: Callable[[BaseException], None]) -> None:
        self._generation = generation
        self._crashed = crashed

    def enter(self) -> Script[Standing]:
        standing = yield from generations.enter(self._generation)
        if standing is None:
            name, number = self._generation.group, self._generation.number
            gone = GroupStopped(f"group {name}: its generation {number} was dropped; start its members anew")
            self._crashed(gone)
            raise NotNow from gone
        if standing.is_frozen or standing.owes:
            # Another generation is about to be read; or what this one withheld before it was comes first.
            raise NotNow
        return standing

    def leave(self, records: Iterable[Record]) -> Script[None]:
        ended: dict[OwnedPartition, set[object]] = {}
        for record in records:
            owned = record.owned
            if owned.kept is None:  # it is read for another purpose than to go on from there
                continue
            mine = ended.get(owned)
            if mine is None:
                mine = ended[owned] = set()
            mine.add(record)
            if record.copy is not None:
                mine.add(record.copy)
        reached: dict[Place, Position] = {}
        for stay, mine in ended.items():
            if (offset := stay.position_after(mine)) is not None:
                reached[stay.place] = Position(stay.topic_id, offset)
        if reached:
            yield from positions.advance(self._generation, reached)
