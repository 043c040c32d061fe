"""Arrays of PostgreSQL as text, for statements of many rows: `%s::text[]`.

A list of 500 texts as a parameter takes 1 µs an element, because each is adapted by itself; as one text 0.05 µs.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

_NUL = "\0"  # what no text of PostgreSQL has
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


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
    return f"{{{str(list(values))[1:-1]}}}"  # in two thirds of the time of `join`


def uuids(values: Iterable[UUID]) -> str:
    """An array of UUIDs."""
    return f"{{{','.join([value.hex for value in values])}}}"


def times(values: Iterable[datetime | None]) -> str:
    """An array of times that name their zone, as microseconds since 1970, for `time_of`: `bigint[]`.

    As text, made and read, a time takes three times as long.
    """
    made = ["NULL" if value is None else str((value - _EPOCH) // _MICROSECOND) for value in values]
    return f"{{{','.join(made)}}}"


def time_of(name: str) -> str:
    """The SQL that makes a time of a number of `times`: exactly, which no `double precision` of them would be."""
    return f"to_timestamp({name} / 1000000) + mod({name}, 1000000) * interval '1 microsecond'"
