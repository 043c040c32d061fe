"""The CloudEvents 1.0 Kafka binding: an event's attributes as record headers, and back (design section 3).

Written after "Kafka Protocol Binding for CloudEvents 1.0.2". Binary mode is written and read; structured mode
(`application/cloudevents+json`) is read (`offsetzero.schemas.structured`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from offsetzero.errors import InvalidEvent
from offsetzero.schemas import attributes, structured
from offsetzero.schemas.metadata import Metadata
from offsetzero.schemas.shapes import CONTENT_TYPE, ELSEWHERE, KNOWN, NO_SHAPE, PREFIX, TRACE, Shape, learn

Headers: TypeAlias = list[tuple[str, bytes | None]]
"""Record headers in order. A name may occur twice, a value may be missing."""
RawHeaders: TypeAlias = Iterable[tuple[str, bytes | str | None]]

AVRO = "application/avro"
_PRINTABLE = bytes(range(0x20, 0x7F))
_VERSION = attributes.SPEC_VERSION.encode()


@dataclass(frozen=True, slots=True)
class Message:
    """A record as CloudEvents sees it. `data` is None for a tombstone: an event without data."""

    meta: Metadata
    content_type: str | None
    data: bytes | None


class Glance:
    """A record whose headers were checked in full, and of which only the nearest attributes were made.

    `data` is None for a tombstone: an event without data.
    """

    __slots__ = ("_meta", "_shape", "_time", "_values", "content_type", "data", "id", "source", "type")

    def __init__(
        self,
        source: str,
        type: str,  # noqa: A002 - the attribute's name
        id: str,  # noqa: A002
        content_type: str | None,
        data: bytes | None,
        meta: Metadata | None,
        shape: Shape = NO_SHAPE,
        values: Sequence[bytes] = (),
        time: datetime | None = None,
    ) -> None:
        self.source = source
        self.type = type
        self.id = id
        self.content_type = content_type
        self.data = data
        self._meta = meta
        self._shape = shape
        self._values = values
        self._time = time

    @property
    def meta(self) -> Metadata:
        """All attributes, as `read` gives them."""
        if self._meta is None:
            self._meta = self._shape.metadata(self._values, self._time)
        return self._meta

    @property
    def tenant_id(self) -> str | None:
        """The attribute `tenantid`, without the others."""
        meta = self._meta
        return self._shape.text(self._shape.tenant_id, self._values) if meta is None else meta.tenant_id

    @property
    def run_id(self) -> str | None:
        """The attribute `runid`, without the others."""
        meta = self._meta
        return self._shape.text(self._shape.run_id, self._values) if meta is None else meta.run_id

    @property
    def sequence(self) -> int | None:
        """The attribute `sequence`, without the others."""
        meta = self._meta
        return self._shape.number(self._values) if meta is None else meta.sequence


def to_headers(meta: Metadata, content_type: str | None) -> Headers:
    """The headers of an event in binary mode.

    Args:
        meta: the attributes; what is None is left out.
        content_type: the media type of the value, None for a tombstone.

    Raises:
        InvalidEvent: an attribute is missing, misnamed, or holds what CloudEvents forbids.
    """
    headers: Headers = [(PREFIX + name, value.encode()) for name, value in attributes.to_attributes(meta).items()]
    if content_type is not None:
        headers.append((CONTENT_TYPE, attributes.checked(CONTENT_TYPE, content_type).encode()))
    for name in TRACE:
        value = getattr(meta, name)
        if value is not None:
            headers.append((name, attributes.checked(name, value).encode()))
    return headers


def is_cloudevent(headers: RawHeaders | None) -> bool:
    """Whether a record claims to be a CloudEvent in either mode. A raw tombstone does not."""
    found = _last_of_each(headers)
    return PREFIX + "specversion" in found or structured.claims(_media_type(found))


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
        name[len(PREFIX) :]: _text(name, content)
        for name, content in found.items()
        if name.startswith(PREFIX) and attributes.is_name(name[len(PREFIX) :])
    }
    for name in ELSEWHERE:
        attributes_found.pop(name, None)
    meta = _with_trace(attributes.from_attributes(attributes_found), found)
    return Message(meta, media_type or None, value)


def glance(value: bytes | None, headers: RawHeaders | None) -> Glance:
    """What `read` finds, and refuses, in a fraction of its time for the headers that most producers write.

    Args:
        value: the record's value; None is an event without data.
        headers: as confluent-kafka gives them; None when there are none.

    Raises:
        InvalidEvent: this is no CloudEvent that we can read; the message says why.
    """
    pairs = headers if type(headers) is list else list(headers or ())
    names: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()
    if pairs:
        names, values = zip(*pairs)  # noqa: B905 - pairs cannot be of two lengths, and it costs
    return glance_at(value, names, values)


def glance_at(value: bytes | None, names: tuple[str, ...], values: Sequence[Any]) -> Glance:
    """The same from the names and the values of the headers, apart: two objects in place of one for each header.

    Raises:
        InvalidEvent: as `glance`.
    """
    try:
        count, shape, version, source, kind, event_id, at, number, media = KNOWN.get(names) or learn(names)
        # plain headers: every name occurs once, and every value is printable ASCII
        if count and count == len(values) and not b"".join(values).translate(None, _PRINTABLE):
            time = None
            if at is not None and (text := values[at].decode()):
                if text[4:20:3] == "--T::." and text[26:] == "Z":  # as `attributes.format_time` writes it
                    time = datetime.fromisoformat(text)
                else:
                    time = attributes.parse_time(text)
            if number is not None and (digits := values[number]) and not (digits.isdigit() and len(digits) <= 18):
                attributes.parse_sequence(digits.decode())
            content_type = values[media].decode() or None if media is not None else None
            found = Glance(
                values[source].decode(),
                values[kind].decode(),
                values[event_id].decode(),
                content_type,
                value,
                None,
                shape,
                values,
                time,
            )
            is_binary = content_type == AVRO or content_type is None or not structured.claims(content_type)
            if values[version] == _VERSION and found.source and found.type and found.id and is_binary:
                return found
    except (TypeError, ValueError):  # a value that is missing or text, or a time that does not exist
        pass
    message = read(value, zip(names, values, strict=True))
    meta = message.meta
    return Glance(meta.source, meta.type, meta.id, message.content_type, message.data, meta)


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
        if name == CONTENT_TYPE or name.lower() == CONTENT_TYPE:
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
    for name in TRACE:
        try:
            if name in found:
                trace[name] = _text(name, found[name])
        except InvalidEvent:
            continue
    return attributes.replaced(meta, **trace) if trace else meta
