"""Where each attribute stands among a record's headers: learnt once for each list of header names.

Producers write the same names in the same order, record after record. So the names of a record are looked up as one
text, and its attributes are then taken by their places.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from offsetzero.schemas import attributes
from offsetzero.schemas.metadata import Metadata

PREFIX = "ce_"
CONTENT_TYPE = "content-type"
# Attributes that the binding carries elsewhere; a header of that name is no attribute.
ELSEWHERE = frozenset({"data", "datacontenttype", "data_base64"})
TRACE = ("traceparent", "tracestate")

_MAX_SHAPES = 256
_MAX_NAMES = 2_000
_shapes: dict[str, "Shape"] = {}


class Shape:
    """The places of attributes among headers of certain names in a certain order.

    `headers` is how many headers there are; 0 when they are not plain: a name occurs twice, a required attribute is
    missing, or only the full way can tell which header is the content type.
    """

    __slots__ = ("_extensions", "_texts", "_trace", "headers", "places", "run_id", "tenant_id")

    def __init__(self, names: Sequence[str]) -> None:
        at = {name: place for place, name in enumerate(names)}
        found = {name[len(PREFIX) :]: place for name, place in at.items() if _is_attribute(name)}
        missing = not {"specversion", "source", "type", "id"} <= found.keys()
        odd = any("\n" in name or (name.lower() == CONTENT_TYPE and name != CONTENT_TYPE) for name in names)
        plain = len(at) == len(names) and not missing and not odd
        self.headers = len(names) if plain else 0
        version, source, kind, event_id = (found.get(name, 0) for name in ("specversion", "source", "type", "id"))
        # those that every glance needs
        self.places = version, source, kind, event_id, found.get("time"), found.get("sequence"), at.get(CONTENT_TYPE)
        self.tenant_id, self.run_id = found.get("tenantid"), found.get("runid")
        fields = attributes.TEXT_FIELDS
        self._texts = [(fields[name], place) for name, place in found.items() if name in fields]
        self._trace = [(name, at[name]) for name in TRACE if name in at]
        self._extensions = [(name, place) for name, place in found.items() if name not in attributes.RESERVED]

    def text(self, place: int | None, values: Sequence[bytes]) -> str | None:
        """An attribute that may be missing; an empty one is."""
        return None if place is None else values[place].decode() or None

    def metadata(self, values: Sequence[bytes], time: datetime | None) -> Metadata:
        """The attributes of a record whose values are printable ASCII and valid."""
        known: dict[str, Any] = {field: values[place].decode() or None for field, place in self._texts}
        known.update((name, values[place].decode()) for name, place in self._trace)
        known["time"] = time
        sequence = self.places[5]
        if sequence is not None and values[sequence]:
            known["sequence"] = int(values[sequence])
        return Metadata(**known, extensions={name: values[place].decode() for name, place in self._extensions})


def shape_of(names: Sequence[str]) -> Shape:
    """The shape of headers of these names, in this order."""
    key = "\n".join(names)
    shape = _shapes.get(key)
    if shape is None:
        shape = Shape(names)
        if len(key) <= _MAX_NAMES:
            if len(_shapes) >= _MAX_SHAPES:
                _shapes.clear()
            _shapes[key] = shape
    return shape


def _is_attribute(name: str) -> bool:
    return name.startswith(PREFIX) and attributes.is_name(name[len(PREFIX) :]) and name[len(PREFIX) :] not in ELSEWHERE
