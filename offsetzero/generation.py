"""A generation of a group: what it is called in Kafka and in PostgreSQL (design section 9)."""

import re
from dataclasses import dataclass
from typing import Self

_NAME = re.compile(r"(.+)\.g([1-9]\d{0,8})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Generation:
    """One of the times that a group has read its sources from the beginning.

    Attributes:
        group: the group's name, which has no dot.
        number: from 1, the only one of a group that is no projection.
    """

    group: str
    number: int = 1

    @property
    def name(self) -> str:
        """What Kafka knows it by: its consumer group id, and the prefix of its retry and dead-letter topics."""
        return self.group if self.number == 1 else f"{self.group}.g{self.number}"

    @property
    def typed(self) -> str:
        """What people type to mean this one, whichever is read."""
        return f"{self.group}.g{self.number}"

    @property
    def schema(self) -> str:
        """The PostgreSQL schema of its tables."""
        return f"{self.group}_g{self.number}"

    @classmethod
    def named(cls, name: str) -> Self:
        """The one that Kafka knows by this name."""
        found = _NAME.fullmatch(name)
        return cls(found[1], int(found[2])) if found is not None else cls(name)
