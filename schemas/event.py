"""What an event is: a frozen pydantic model with a type and the field that is its key."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from offsetzero.errors import InvalidEvent

_registry: dict[str, type["Event"]] = {}


class Event(BaseModel):
    """Base of all events. Subclass it with the CloudEvents type and the field that is the record key.

        class InvoicePaid(Event, type="invoice.paid", key="invoice_id"):
            invoice_id: UUID
            amount_cents: int

    The model is the one definition: `offsetzero schema freeze` makes the Avro contract of it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    event_type: ClassVar[str] = ""
    key_field: ClassVar[str] = ""

    def __init_subclass__(cls, *, type: str = "", key: str = "", **kwargs: Any) -> None:  # noqa: A002
        super().__init_subclass__(**kwargs)
        if type:
            cls.event_type, cls.key_field = type, key

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
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
        return str(getattr(self, self.key_field))


def event_class(event_type: str) -> type[Event] | None:
    """The model of an event type, if this process knows one."""
    return _registry.get(event_type)


def event_types() -> dict[str, type[Event]]:
    """All models that this process knows, by event type."""
    return dict(_registry)
