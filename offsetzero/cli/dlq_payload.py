"""Payloads of dead letters: fetched from the log, decoded as far as they can be, shown as JSON."""

import json
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pydantic import ValidationError

from offsetzero.errors import RedriveRefused, SchemaError, SchemasUnavailable
from offsetzero.history.decoding import as_text, plain
from offsetzero.producers.records import is_frozen
from offsetzero.retry.dead_letters import DeadLetter, LetterReader
from offsetzero.schemas import cloudevents, structured
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.event import event_class
from offsetzero.schemas.shapes import CONTENT_TYPE
from offsetzero.schemas.structured import is_json
from offsetzero.settings import Settings
from offsetzero.topics.schema_log import SchemaLog

__all__ = ["Payloads", "as_text", "plain"]

if TYPE_CHECKING:
    from offsetzero.cli.dlq_desk import Desk
    from offsetzero.store.dead_letters import Known, Place


class Payloads:
    """Reads dead letters and their payloads; a context manager.

    Args:
        settings: name the cluster.
    """

    def __init__(self, settings: Settings) -> None:
        self._schemas = SchemaLog(settings)
        self._codec = Codec(self._schemas.find)
        self._reader = LetterReader(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._schemas.close()
        self._reader.__exit__(kind, error, trace)

    def letters(self, desk: "Desk", known: "Sequence[Known]") -> "dict[Place, DeadLetter]":
        """Their records, as far as the log still has them; those of a topic that was made again since are gone.

        Raises:
            TopicError: the broker does not answer.
        """
        by_group: dict[str, list[Place]] = {}
        for one in known:
            topic = desk.topics.get(one.entry.group_name)
            if topic is not None and topic.id == one.entry.topic_id:
                by_group.setdefault(one.entry.group_name, []).append(one.at)
        found: dict[Place, DeadLetter] = {}
        for group, places in by_group.items():
            letters = self._reader.fetch(group, [(place.partition, place.place) for place in places])
            found |= {place: had for place in places if (had := letters.get((place.partition, place.place)))}
        return found

    def decoded(self, letter: DeadLetter, value: bytes | None = None) -> tuple[Any, str | None]:
        """The fields of the data as they were written, or why they cannot be read; both None for a tombstone.

        Args:
            letter: the dead letter.
            value: what an operator has made of its value.
        """
        if value is None and letter.pointer is not None:
            return None, f"too large for the topic ({letter.pointer.size:,} bytes), and its source has it no more"
        value = letter.value if value is None else value
        try:
            message = cloudevents.read(value, letter.headers)
            data, content_type = message.data, message.content_type
        except SchemaError:  # it may be readable all the same
            data, content_type = value, None
        if data is None:
            return None, None
        try:
            return json.loads(data) if is_json(content_type) else self._codec.decode_fields(data), None
        except (SchemaError, SchemasUnavailable, ValueError) as error:
            return None, str(error)

    def encoded(self, letter: DeadLetter, fields: Any) -> bytes:
        """A value of these fields: a valid event of the letter's type and key, in the form that its value has.

        Raises:
            RedriveRefused: it cannot be made; with what is wrong.
        """
        meta, content_type = letter.meta, _content_type(letter)
        if meta is None:
            raise RedriveRefused(
                "its headers say no event type and id, and an edit changes the payload alone: publish the event again "
                "from its source, then discard this one. Nothing was stored"
            )
        if (event := event_class(meta.type)) is None:
            raise RedriveRefused(
                f"no model of {meta.type} is known here; name the module that declares it with --module. "
                "Nothing was stored"
            )
        if structured.claims(content_type):
            raise RedriveRefused("an event in structured mode cannot be edited; nothing was stored")
        try:
            made = event.model_validate_json(json.dumps(fields))
            if is_json(content_type):
                value = made.model_dump_json().encode()
            else:
                value = self._codec.encode(made)
                if not is_frozen(schema := self._codec.schema(event)):  # of a type of one's own
                    self._schemas.publish([schema])
        except ValidationError as error:
            said = [f"{'.'.join(map(str, one['loc'])) or 'payload'}: {one['msg']}" for one in error.errors()]
            raise RedriveRefused("\n  ".join([f"this is no {meta.type}; nothing was stored:", *said])) from error
        except SchemaError as error:
            raise RedriveRefused(f"{error}; nothing was stored") from error
        if letter.key is not None and made.key.encode() != letter.key:
            raise RedriveRefused(
                f"{event.key_field}: an event's key cannot be changed, it is {as_text(letter.key)}; nothing was stored"
            )
        return value

    def has_text(self, letter: DeadLetter, text: str) -> bool:
        """Whether a text is in the payload, in any case; where it cannot be decoded, in its bytes."""
        fields, unreadable = self.decoded(letter)
        if fields is None or unreadable is not None:
            shown = (letter.value or b"").decode(errors="replace")
        else:
            shown = json.dumps(plain(fields), ensure_ascii=False)
        return text.casefold() in shown.casefold()


def _content_type(letter: DeadLetter) -> str:
    found = [value for name, value in letter.headers if name == CONTENT_TYPE and value is not None]
    return found[-1].decode(errors="replace") if found else ""
