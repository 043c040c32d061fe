"""What an event is: a frozen pydantic model with a type and the field that is its key."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, model_validator

from offsetzero.errors import InvalidEvent
from offsetzero.schemas.ids import uuid_text

_registry: dict[str, type["Event"]] = {}


class EventPart(BaseModel):
    """Base of events and of the models that they are composed of.

    Frozen, without fields that nobody declared, and stricter than pydantic in two points: True is no number, and
    a datetime has a zone, because without one nobody can say when it was.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    _numbers: ClassVar[tuple[str, ...]] = ()
    _times: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        fields = cls.model_fields.items()
        cls._numbers = tuple(name for name, info in fields if info.annotation in _NUMBERS)
        cls._times = tuple(name for name, info in fields if info.annotation in _TIMES)

    @model_validator(mode="before")
    @classmethod
    def _refuse_booleans(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            for name in cls._numbers:
                if isinstance(data.get(name), bool):
                    raise ValueError(f"{name}: a number is needed, not {data[name]}")
        return data

    @model_validator(mode="after")
    def _refuse_naive_times(self) -> Self:
        for name in self._times:
            value = getattr(self, name)
            if value is not None and value.utcoffset() is None:
                raise ValueError(f"{name}: {value.isoformat()} has no time zone, such as +00:00")
        return self


_NUMBERS = (int, float, int | None, float | None)
_TIMES = (datetime, datetime | None)


class Event(EventPart):
    """Base of all events. Subclass it with the CloudEvents type and the field that is the record key.

        class InvoicePaid(Event, type="invoice.paid", key="invoice_id"):
            invoice_id: UUID
            amount_cents: int

    The model is the one definition: `offsetzero schema freeze` makes the Avro contract of it.
    """

    event_type: ClassVar[str] = ""
    key_field: ClassVar[str] = ""

    def __init_subclass__(cls, *, type: str = "", key: str = "", **kwargs: Any) -> None:  # noqa: A002
        super().__init_subclass__(**kwargs)
        if type:
            cls.event_type, cls.key_field = type, key

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if not cls.event_type:
            return
        if cls.key_field not in cls.model_fields:
            raise InvalidEvent(f"{cls.__name__}: key={cls.key_field!r} is not one of its fields")
        other = _registry.get(cls.event_type)
        if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise InvalidEvent(
                f"{cls.__module__}.{cls.__name__}: the type {cls.event_type!r} already belongs to "
                f"{other.__module__}.{other.__name__}"
            )
        _registry[cls.event_type] = cls

    @property
    def key(self) -> str:
        """The entity id: records of one key keep their order."""
        value = getattr(self, self.key_field)
        return uuid_text(value) if type(value) is UUID else str(value)


def event_class(event_type: str) -> type[Event] | None:
    """The model of an event type, if this process knows one."""
    return _registry.get(event_type)


def event_types() -> dict[str, type[Event]]:
    """All models that this process knows, by event type."""
    return dict(_registry)
