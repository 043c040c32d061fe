"""Where each attribute stands among a record's headers: learnt once for each list of header names.

Producers write the same names in the same order, record after record. So the attributes of a record are taken by their
places, which its names tell; and the records in flight that have the same names share them.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from offsetzero.schemas import attributes
from offsetzero.schemas.metadata import Metadata

PREFIX = "ce_"
CONTENT_TYPE = "content-type"
# Attributes that the binding carries elsewhere; a header of that name is no attribute.
ELSEWHERE = frozenset({"data", "datacontenttype", "data_base64"})
TRACE = ("traceparent", "tracestate")

Places: TypeAlias = tuple[int, "Shape", int, int, int, int, int | None, int | None, int | None]
"""How many headers there are, their shape, and the places of specversion, source, type, id, time, sequence and the
content type. The number is 0 when the headers are not plain: a name occurs twice, a required attribute is missing, or
only the full way can tell which header is the content type."""

MAX_SHAPES = 256
MAX_NAMES = 2_000
"""Characters of names that are remembered."""
KNOWN: dict[tuple[str, ...], Places] = {}
"""The places in headers of certain names in a certain order."""
SHARED: dict[tuple[str, ...], tuple[str, ...]] = {}
"""Names in a certain order, by themselves; see `share`."""


class Shape:
    """The places of those attributes that a glance leaves out."""

    __slots__ = ("_extensions", "_sequence", "_texts", "_trace", "run_id", "tenant_id")

    def __init__(self, at: Mapping[str, int], found: Mapping[str, int]) -> None:
        fields = attributes.TEXT_FIELDS
        self.tenant_id, self.run_id, self._sequence = (found.get(name) for name in ("tenantid", "runid", "sequence"))
        self._texts = [(fields[name], place) for name, place in found.items() if name in fields]
        self._trace = [(name, at[name]) for name in TRACE if name in at]
        self._extensions = [(name, place) for name, place in found.items() if name not in attributes.RESERVED]

    def text(self, place: int | None, values: Sequence[bytes]) -> str | None:
        """An attribute that may be missing; an empty one is."""
        return None if place is None else values[place].decode() or None

    def number(self, values: Sequence[bytes]) -> int | None:
        """The attribute `sequence`, which may be missing."""
        place = self._sequence
        return int(values[place]) if place is not None and values[place] else None

    def metadata(self, values: Sequence[bytes], time: datetime | None) -> Metadata:
        """The attributes of a record whose values are printable ASCII and valid."""
        known: dict[str, Any] = {field: values[place].decode() or None for field, place in self._texts}
        known.update((name, values[place].decode()) for name, place in self._trace)
        known["time"] = time
        known["sequence"] = self.number(values)
        return Metadata(**known, extensions={name: values[place].decode() for name, place in self._extensions})


NO_SHAPE = Shape({}, {})


def share(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names that are not in `SHARED`, for all records that come with the same ones from now on.

    A third of what a record in flight has in memory was its header's names, which the client makes anew for each.
    """
    if sum(map(len, names)) <= MAX_NAMES:
        if len(SHARED) >= MAX_SHAPES:
            SHARED.clear()
        SHARED[names] = names
    return names


def learn(names: tuple[str, ...]) -> Places:
    """The places in headers of these names, in this order; known from now on."""
    at = {name: place for place, name in enumerate(names)}
    found = {name[len(PREFIX) :]: place for name, place in at.items() if _is_attribute(name)}
    required = [found.get(name, -1) for name in ("specversion", "source", "type", "id")]
    odd = any(name.lower() == CONTENT_TYPE and name != CONTENT_TYPE for name in names)
    plain = len(at) == len(names) and -1 not in required and not odd
    version, source, kind, event_id = required
    optional = found.get("time"), found.get("sequence"), at.get(CONTENT_TYPE)
    places = (len(names) if plain else 0, Shape(at, found), version, source, kind, event_id, *optional)
    if sum(map(len, names)) <= MAX_NAMES:
        if len(KNOWN) >= MAX_SHAPES:
            KNOWN.clear()
        KNOWN[names] = places
    return places


def _is_attribute(name: str) -> bool:
    return name.startswith(PREFIX) and attributes.is_name(name[len(PREFIX) :]) and name[len(PREFIX) :] not in ELSEWHERE
