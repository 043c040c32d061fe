"""The CloudEvents 1.0 Kafka binding: an event's attributes as record headers, and back (design section 3).

Written after "Kafka Protocol Binding for CloudEvents 1.0.2". Binary mode is written and read; structured mode
(`application/cloudevents+json`) is read (`offsetzero.schemas.structured`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from offsetzero.errors import InvalidEvent
from offsetzero.schemas import attributes, structured
from offsetzero.schemas.metadata import Metadata

Headers: TypeAlias = list[tuple[str, bytes | None]]
"""Record headers in order. A name may occur twice, a value may be missing."""
RawHeaders: TypeAlias = Iterable[tuple[str, bytes | str | None]]

AVRO = "application/avro"
_PREFIX = "ce_"
_CONTENT_TYPE = "content-type"
# Attributes that the binding carries elsewhere; a header of that name is no attribute.
_ELSEWHERE = frozenset({"data", "datacontenttype", "data_base64"})


@dataclass(frozen=True, slots=True)
class Message:
    """A record as CloudEvents sees it. `data` is None for a tombstone: an event without data."""

    meta: Metadata
    content_type: str | None
    data: bytes | None


def to_headers(meta: Metadata, content_type: str | None) -> Headers:
    """The headers of an event in binary mode.

    Args:
        meta: the attributes; what is None is left out.
        content_type: the media type of the value, None for a tombstone.

    Raises:
        InvalidEvent: an attribute is missing, misnamed, or holds what CloudEvents forbids.
    """
    headers: Headers = [(_PREFIX + name, value.encode()) for name, value in attributes.to_attributes(meta).items()]
    if content_type is not None:
        headers.append((_CONTENT_TYPE, attributes.checked(_CONTENT_TYPE, content_type).encode()))
    for name in ("traceparent", "tracestate"):
        value = getattr(meta, name)
        if value is not None:
            headers.append((name, attributes.checked(name, value).encode()))
    return headers


def is_cloudevent(headers: RawHeaders | None) -> bool:
    """Whether a record claims to be a CloudEvent in either mode. A raw tombstone does not."""
    found = _last_of_each(headers)
    return _PREFIX + "specversion" in found or structured.claims(_media_type(found))


def read(value: bytes | None, headers: RawHeaders | None) -> Message:
    """Read a record in binary or structured mode; the content type decides, whatever `ce_` headers there are.

    A header that occurs twice counts once, by its last value; a null header counts as absent. Headers that
    belong to neither CloudEvents nor tracing may hold any bytes. The record key adds no attribute.

    Args:
        value: the record's value; None is an event without data.
        headers: as confluent-kafka gives them; None when there are none.

    Raises:
        InvalidEvent: this is no CloudEvent that we can read; the message says why.
    """
    found = _last_of_each(headers)
    media_type = _media_type(found)
    if structured.claims(media_type):
        meta, content_type, data = structured.read(value, media_type)
        return Message(_with_trace(meta, found), content_type, data)
    attributes_found = {
        name[len(_PREFIX) :]: _text(name, content)
        for name, content in found.items()
        if name.startswith(_PREFIX) and attributes.is_name(name[len(_PREFIX) :])
    }
    for name in _ELSEWHERE:
        attributes_found.pop(name, None)
    meta = _with_trace(attributes.from_attributes(attributes_found), found)
    return Message(meta, media_type or None, value)


def _last_of_each(headers: RawHeaders | None) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, value in headers or ():
        if value is not None:
            found[name] = value.encode() if isinstance(value, str) else value
        else:
            found.pop(name, None)
    return found


def _media_type(found: Mapping[str, bytes]) -> str:
    for name, value in found.items():
        if name == _CONTENT_TYPE or name.lower() == _CONTENT_TYPE:
            return _text(name, value)
    return ""


def _text(name: str, value: bytes) -> str:
    try:
        return attributes.checked(name, value.decode("utf-8"))
    except UnicodeDecodeError:
        raise InvalidEvent(f"header {name}: not UTF-8 ({value[:40]!r})") from None


def _with_trace(meta: Metadata, found: Mapping[str, bytes]) -> Metadata:
    """Add the W3C trace context of this hop. A broken one is dropped: tracing never costs an event."""
    trace: dict[str, str] = {}
    for name in ("traceparent", "tracestate"):
        try:
            if name in found:
                trace[name] = _text(name, found[name])
        except InvalidEvent:
            continue
    return attributes.replaced(meta, **trace) if trace else meta
