"""CloudEvents in structured mode: attributes and data in one JSON object (JSON Event Format 1.0.2)."""

import base64
import binascii
import json
from email.message import Message as MediaType
from functools import lru_cache
from typing import Any

from offsetzero.errors import InvalidEvent
from offsetzero.schemas import attributes
from offsetzero.schemas.metadata import Metadata

_FAMILY = "application/cloudevents"
_JSON = "application/cloudevents+json"


def claims(media_type: str) -> bool:
    """Whether a content type says that the value holds the whole event."""
    return media_type.strip().lower().startswith(_FAMILY)


_MAX_MEDIA_TYPE = 1000


@lru_cache(256)  # the parser takes longer than the rest of an event
def is_json(media_type: str | None) -> bool:
    """Whether data of that content type are JSON."""
    return media_type is not None and _parse_media_type(media_type)[0].endswith(("/json", "+json"))


def read(value: bytes | None, media_type: str) -> tuple[Metadata, str | None, bytes | None]:
    """The attributes, the content type of the data, and the data; None when the event has no data.

    Raises:
        InvalidEvent: another format than JSON, a batch, or an object that is no CloudEvent.
    """
    essence, charset = _parse_media_type(media_type)
    if essence != _JSON:
        raise InvalidEvent(f"content-type {essence} cannot be read: use binary mode (ce_ headers), or {_JSON}")
    if charset not in ("", "utf-8", "us-ascii"):
        raise InvalidEvent(f"content-type {media_type}: a JSON event must be UTF-8")
    if value is None:
        raise InvalidEvent(f"content-type {_JSON}, but the record has no value")
    try:
        envelope = json.loads(value.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidEvent(f"the value is not the JSON that its content type promises: {error}") from None
    if not isinstance(envelope, dict):
        raise InvalidEvent(f"a JSON event is an object, not {type(envelope).__name__}")
    content_type, data = _data(envelope)
    texts = {
        name: attributes.checked(name, _as_text(name, item))
        for name, item in envelope.items()
        if item is not None and attributes.is_name(name)
    }
    return attributes.from_attributes(texts), content_type, data


def _parse_media_type(text: str) -> tuple[str, str]:
    parsed = MediaType()
    try:
        if len(text) > _MAX_MEDIA_TYPE:
            raise ValueError(f"{len(text)} characters")
        parsed["content-type"] = text
        charset = parsed.get_param("charset", "")
        return parsed.get_content_type(), str(charset).lower()
    except ValueError as error:  # whatever the parser raises: UnicodeEncodeError is one, too
        raise InvalidEvent(f"content-type {text[:80]!r} cannot be read: {error}") from None


def _data(envelope: dict[str, Any]) -> tuple[str | None, bytes | None]:
    """Take the data out of the envelope."""
    content_type = envelope.pop("datacontenttype", None)
    if content_type is not None and not isinstance(content_type, str):
        raise InvalidEvent(f"datacontenttype: text is needed, not {content_type!r}")
    encoded = envelope.pop("data_base64", None)
    has_data = "data" in envelope
    data = envelope.pop("data", None)
    if encoded is not None:
        if has_data:
            raise InvalidEvent("a JSON event has data or data_base64, not both")
        try:
            return content_type, base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise InvalidEvent("data_base64: not Base64") from None
    if not has_data:
        return content_type, None
    if content_type is None or is_json(content_type):
        return content_type or "application/json", json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass")
    if not isinstance(data, str):
        raise InvalidEvent(f"data of {content_type} is text or data_base64, not {type(data).__name__}")
    return content_type, data.encode("utf-8", "surrogatepass")


def _as_text(name: str, value: Any) -> str:
    """The canonical text of an attribute's value: `true`, `-7`, or the text itself."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and -(2**31) <= value < 2**31:
        return str(value)
    if isinstance(value, str):
        return value
    shown = repr(value)[:100]
    raise InvalidEvent(f"attribute {name}: text, true, false or a 32-bit integer is needed, not {shown}")


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
