"""Records as Faust hands them to the group: read by our own codec, through Faust's `Schema`."""

from collections.abc import Mapping
from typing import Any

import faust
from faust.types import AppT, Message

from offsetzero import logs
from offsetzero.errors import SchemasUnavailable
from offsetzero.schemas import cloudevents
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.event import Event

log = logs.get(__name__)


class CloudEvents(faust.Schema[Any, Any]):
    """Avro in CloudEvents' binary mode (docs/events.md).

    What nobody can read is None to the agent, as a tombstone is: the groups of the same topic have it as a dead letter.

    Args:
        codec: reads the data.
    """

    def __init__(self, codec: Codec) -> None:
        super().__init__()
        self._codec = codec

    def loads_key(self, app: AppT, message: Message, **_: Any) -> bytes | None:
        """The key as it is."""
        return message.key

    def loads_value(self, app: AppT, message: Message, **_: Any) -> Event | None:
        """The event.

        Raises:
            SchemasUnavailable: its writer schema cannot be looked up now. That ends the app before the event counts.
        """
        try:
            headers = message.headers.items() if isinstance(message.headers, Mapping) else message.headers
            seen = cloudevents.glance(message.value, list(headers or ()))
            if seen.data is None:
                return None
            return self._codec.decode(seen.type, seen.data, seen.content_type)
        except SchemasUnavailable:
            raise
        except Exception as error:
            place = f"{message.topic}/{message.partition}@{message.offset}"
            log.info("not counted: unreadable", record=place, error=f"{type(error).__name__}: {error}"[:300])
            return None
