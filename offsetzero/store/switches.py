"""The audit of switches between generations (table `group_switches`)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from offsetzero.store.positions import Position
from offsetzero.store.script import Script
from offsetzero.store.starts import Place


@dataclass(frozen=True, slots=True)
class Switch:
    """Who had another generation read, and why. `accepted` events are in the old one, and not in the new one."""

    id: UUID
    group: str
    old: int
    new: int
    who: str
    why: str
    accepted: int


def add(switch: Switch, positions: Mapping[Place, Position]) -> Script[None]:
    """Write it down, with where the old one was, in the transaction that moves the pointer."""
    at = {f"{topic}/{number}": one.offset for (topic, number), one in sorted(positions.items())}
    yield (
        "INSERT INTO group_switches (id, group_name, from_generation, to_generation, who, why, accepted, positions)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s::jsonb)",
        (switch.id, switch.group, switch.old, switch.new, switch.who, switch.why, switch.accepted, json.dumps(at)),
    )


def before(group: str) -> Script[int | None]:
    """The generation that was read before the last switch."""
    rows = yield (
        "SELECT from_generation FROM group_switches WHERE group_name = %s ORDER BY at DESC, id DESC LIMIT 1",
        (group,),
    )
    return int(rows[0][0]) if rows else None
