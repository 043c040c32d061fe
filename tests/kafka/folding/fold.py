"""What is published, and what a projection must be: the fold of design section 9, in plain Python."""

import hashlib
import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

SPECIAL = {"open": 1, "discard": 1, "mended": 2, "stubborn": 1, "edit": 1, "amend": 1, "stuck": 3}
"""How many events of each have a document of their own, for the smallest log."""
TENANTS = 20
DEAD = frozenset({"open", "discard", "mended", "stubborn", "edit", "amend"})
EDITED = ("edit", "amend")


class Made(NamedTuple):
    """An event; `name` is None for a deletion. `trouble` is what befalls it."""

    event_id: UUID
    document_id: UUID
    tenant_id: str
    name: str | None
    trouble: str = ""

    def __str__(self) -> str:
        kind = "deletion" if self.name is None else "upload"
        return f"event {self.event_id} ({self.trouble or 'ordinary'} {kind} of {self.document_id})"


class Source:
    """Makes events of documents, of which a few come twice, and some fail.

    Args:
        seed: what is made follows from it.
        documents: how many ordinary ones there are.
        tells: of one document of so many, all the special ones among them, events are published; see `shelf.py`.
        trouble: the share of the uploads that have one.
    """

    def __init__(self, seed: int, documents: int, tells: int = 1, trouble: float = 0.02) -> None:
        self._dice = random.Random(seed)
        self._tells = tells
        self._trouble = trouble
        self._documents = [self._id() for _ in range(documents)]
        self._made: list[Made] = []
        self.prefix = "n"
        """Of the names."""

    def ordinary(self, count: int, troubles: Sequence[str]) -> Iterator[Made]:
        """Uploads, deletions and repeats; some uploads have one of the troubles, and often a follower."""
        dice, follows = self._dice, None
        for _ in range(count):
            if self._made and dice.random() < 0.03:
                yield dice.choice(self._made)
                continue
            document = follows or dice.choice(self._documents)
            trouble = dice.choice(troubles) if troubles and dice.random() < self._trouble else ""
            one = self._event(document, trouble, deletes=not trouble and dice.random() < 0.2)
            follows = document if trouble and dice.random() < 0.7 else None
            self._made.append(one)
            yield one

    def special(self, times: int, *, holds: bool) -> list[list[Made]]:
        """Documents with one event that is dead-lettered, or waits for long: one before, it, and often two after it.

        What is redriven comes in its turn only where a dead letter holds its key up; elsewhere it is the last of its
        document. One that stays dead is the last where it would hold up others for ever.
        """
        made = []
        for trouble, count in SPECIAL.items():
            ends = trouble == "open" if holds else trouble in ("mended", "stubborn", *EDITED)
            for _ in range(count * times):
                document = self._id()
                document = UUID(int=document.int - document.int % self._tells)
                names = ["", trouble, *([] if ends else ["", ""])]
                made.append([self._event(document, one) for one in names])
        return made

    def _event(self, document: UUID, trouble: str, *, deletes: bool = False) -> Made:
        name = None if deletes else f"{self.prefix}{len(self._made)}-{self._dice.randrange(10**9)} {trouble}".rstrip()
        return Made(self._id(), document, f"tenant-{document.int // self._tells % TENANTS}", name, trouble)

    def _id(self) -> UUID:
        return UUID(int=self._dice.getrandbits(128), version=4)


def firsts(log: Iterable[Made]) -> Iterator[Made]:
    """The first occurrence of each event."""
    seen = set()
    for one in log:
        if one.event_id not in seen:
            seen.add(one.event_id)
            yield one


def edited(one: Made) -> Made:
    """As operators have changed it."""
    return one._replace(name="good") if one.trouble in EDITED else one


class Fold:
    """Rows of a projection.

    Args:
        log: in the order of offsets within a partition.
        without: what is left out: the troubles of the events.
    """

    def __init__(self, log: Iterable[Made], without: Collection[str]) -> None:
        self.docs: dict[UUID, tuple[int, str | None, str]] = {}
        uploads: Counter[str] = Counter()
        deletes: Counter[str] = Counter()
        self.applied: set[UUID] = set()
        for one in map(edited, firsts(log)):
            if one.trouble in without:
                continue
            self.applied.add(one.event_id)
            version, _, trail = self.docs.get(one.document_id, (0, None, ""))
            trail = hashlib.md5(f"{trail}|{one.name}".encode()).hexdigest()  # noqa: S324
            self.docs[one.document_id] = version + 1, one.name, trail
            (deletes if one.name is None else uploads)[one.tenant_id] += 1
        self.counts = {one: (uploads[one], deletes[one]) for one in {*uploads, *deletes}}


def before_stuck(log: Iterable[Made]) -> Iterator[Made]:
    """Without what waits, and what waits behind it."""
    waits = set()
    for one in firsts(log):
        if one.trouble == "stuck":
            waits.add(one.document_id)
        if one.document_id not in waits:
            yield one
