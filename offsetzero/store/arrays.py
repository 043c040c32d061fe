"""Arrays of PostgreSQL as text, for statements of many rows: `%s::text[]`.

A list of 500 texts as a parameter takes 1 µs an element, because each is adapted by itself; as one text 0.05 µs.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

_NUL = "\0"  # what no text of PostgreSQL has


def texts(values: Sequence[str]) -> str:
    """An array of texts.

    Raises:
        ValueError: one has a NUL, which PostgreSQL cannot store.
    """
    if not values:
        return "{}"
    joined = _NUL.join(values)
    if joined.count(_NUL) != len(values) - 1:
        raise ValueError(f"{next(value for value in values if _NUL in value)!r} has a NUL, which PostgreSQL has not")
    quoted = joined.replace("\\", "\\\\").replace('"', '\\"').replace(_NUL, '","')
    return f'{{"{quoted}"}}'


def numbers(values: Iterable[int]) -> str:
    """An array of integers."""
    return f"{{{','.join(map(str, values))}}}"


def uuids(values: Iterable[UUID]) -> str:
    """An array of UUIDs."""
    return f"{{{','.join([value.hex for value in values])}}}"


def times(values: Iterable[datetime | None]) -> str:
    """An array of times that name their zone."""
    return f"{{{','.join(['NULL' if value is None else value.isoformat() for value in values])}}}"
