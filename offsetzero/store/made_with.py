"""What the tables of a generation were made for, where settings decide that (`group_generations.made_with`).

A JSON object: by the name of a section of the settings, what of it other tables would be made for.
"""

import json
from collections.abc import Mapping
from typing import Any

from offsetzero.generation import Generation
from offsetzero.store.script import Script


def write(generation: Generation, made_with: Mapping[str, Any]) -> Script[None]:
    """Write it down, in the transaction that makes the tables."""
    yield (
        "UPDATE group_generations SET made_with = %s::jsonb WHERE group_name = %s AND generation = %s",
        (json.dumps(made_with), generation.group, generation.number),
    )


def of_read(group: str) -> Script[Mapping[str, Any] | None]:
    """That of the generation that is read; None for one that any settings would have made."""
    rows = yield (
        "SELECT g.made_with FROM group_pointers p JOIN group_generations g USING (group_name, generation)"
        " WHERE p.group_name = %s",
        (group,),
    )
    return rows[0][0] if rows else None
