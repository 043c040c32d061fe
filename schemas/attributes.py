"""CloudEvents attributes as text, and as our `Metadata`: names, forbidden characters, times, numbers."""

import dataclasses
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from offsetzero.errors import InvalidEvent
from offsetzero.schemas.metadata import Metadata

SPEC_VERSION = "1.0"
_NAME = re.compile(r"[a-z0-9]+", re.ASCII)
_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
# CloudEvents 1.0.2, "Type system": no C0 or C1 control characters, no surrogates, no non-characters.
_FORBIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef"
    + "".join(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF))
    + "]"
)
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d):(\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)",
    re.ASCII,
)
_REQUIRED = ("id", "source", "type")
TEXT_FIELDS = {
    "id": "id",
    "source": "source",
    "type": "type",
    "subject": "subject",
    "dataschema": "dataschema",
    "tenantid": "tenant_id",
    "runid": "run_id",
    "correlationid": "correlation_id",
    "causationid": "causation_id",
}
"""Attribute name to field of `Metadata`."""
RESERVED = frozenset({*TEXT_FIELDS, "specversion", "time", "sequence", "datacontenttype", "data"})
"""Names that no extension may have."""


def is_name(name: str) -> bool:
    """Whether an attribute may be called that: lower-case ASCII letters and digits."""
    return _NAME.fullmatch(name) is not None


def checked(name: str, value: str) -> str:
    """The value, if CloudEvents allows it as an attribute.

    Raises:
        InvalidEvent: it has a control character, a surrogate or a non-character.
    """
    if value.isascii() and value.isprintable():  # almost all are, and it costs a tenth of the search
        return value
    bad = _FORBIDDEN.search(value)
    if bad is not None:
        raise InvalidEvent(f"attribute {name}: the character U+{ord(bad[0]):04X} at {bad.start()} is not allowed there")
    return value


def to_attributes(meta: Metadata) -> dict[str, str]:
    """Attributes by CloudEvents name, each checked; `specversion` comes first.

    Raises:
        InvalidEvent: a required attribute is empty, a name or a value is not allowed.
    """
    found = {"specversion": SPEC_VERSION}
    for name, field in TEXT_FIELDS.items():
        value = getattr(meta, field)
        if value is None:
            continue
        if not isinstance(value, str):
            raise InvalidEvent(f"attribute {name}: text is needed, not {value!r}")
        if not value:
            raise InvalidEvent(f"attribute {name}: empty; leave it out, or give it a value")
        found[name] = checked(name, value)
    if meta.time is not None:
        found["time"] = format_time(meta.time)
    if meta.sequence is not None:
        found["sequence"] = str(meta.sequence)
    for name, value in meta.extensions.items():
        if not is_name(name) or name in RESERVED:
            raise InvalidEvent(
                f"extension {name!r}: lower-case letters and digits, and not one of CloudEvents' own names"
            )
        found[name] = checked(name, value)
    return found


def from_attributes(found: Mapping[str, str]) -> Metadata:
    """Metadata from attributes by CloudEvents name.

    Raises:
        InvalidEvent: a required attribute is missing, or `specversion`, `time` or `sequence` cannot be read.
    """
    missing = [name for name in ("specversion", *_REQUIRED) if not found.get(name)]
    if missing:
        names = ", ".join("ce_" + name for name in missing)
        raise InvalidEvent(f"not a CloudEvent: {names} missing or empty")
    if found["specversion"] != SPEC_VERSION:
        raise InvalidEvent(f"CloudEvents {found['specversion']!r} cannot be read, only {SPEC_VERSION}")
    known: dict[str, Any] = {field: found[name] for name, field in TEXT_FIELDS.items() if found.get(name)}
    if found.get("time"):
        known["time"] = parse_time(found["time"])
    if found.get("sequence"):
        known["sequence"] = parse_sequence(found["sequence"])
    extensions = {name: value for name, value in found.items() if name not in RESERVED}
    return Metadata(**known, extensions=extensions)


def replaced(meta: Metadata, **changes: Any) -> Metadata:
    """The same metadata with some fields changed."""
    return dataclasses.replace(meta, **changes)


def format_time(value: datetime) -> str:
    """RFC 3339 in UTC.

    Raises:
        InvalidEvent: the time has no zone, so nobody can say when it was.
    """
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidEvent(f"time {value.isoformat()}: use an aware datetime, such as datetime.now(UTC)")
    return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def parse_time(text: str) -> datetime:
    """The instant that an RFC 3339 text names, in UTC; digits past microseconds are cut off.

    Raises:
        InvalidEvent: not RFC 3339, or no such time.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise InvalidEvent(f"attribute time: {text[:60]!r} is not RFC 3339 (2026-01-31T12:00:00Z)")
    day, minute, second, fraction, zone = match.groups()
    leap = second == "60"  # RFC 3339 has leap seconds, Python has not
    zone = "+00:00" if zone in "Zz" else zone
    digits = (fraction or ".0")[1:7].ljust(6, "0")
    try:
        value = datetime.fromisoformat(f"{day}T{minute}:{'59' if leap else second}.{digits}{zone}")
        return value.astimezone(UTC) + timedelta(seconds=1 if leap else 0)
    except (ValueError, OverflowError):
        raise InvalidEvent(f"attribute time: there is no {text!r}") from None


def parse_sequence(text: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise InvalidEvent(f"attribute sequence: {text[:40]!r} is not a decimal integer")
    return int(text)
