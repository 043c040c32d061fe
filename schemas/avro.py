"""From an event model to its Avro schema: the model is the one definition, the schema follows from it."""

import enum
import json
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from offsetzero.errors import SchemaError

Schema: TypeAlias = dict[str, Any] | list[Any] | str

NAMESPACE = "offsetzero.events"
EVENT_TYPE = "eventType"
"""An attribute of ours in an event's schema, so that a reader without the model knows what it is for. Avro allows
it, and it is not part of the fingerprint."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SCALARS: dict[Any, Schema] = {
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
    UUID: {"type": "string", "logicalType": "uuid"},
    datetime: {"type": "long", "logicalType": "timestamp-millis"},
    date: {"type": "int", "logicalType": "date"},
}
_REFUSED: dict[Any, str] = {
    Decimal: "Avro's decimal needs a fixed scale: use an int of the smallest unit (cents), or str",
    Any: "name the type: a contract with 'anything' in it promises nothing",
    object: "name the type: a contract with 'anything' in it promises nothing",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FormerNames:
    """Marks a renamed field: `title: Annotated[str, FormerNames("name")] = ""` reads what was `name`."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The Avro schema of a model, ready for `json.dumps`.

    The record is called as the class, in the namespace `offsetzero.events` or the model's `avro_namespace`.
    A field's default becomes the schema's default; `X | None = None` becomes a union with null first.

    Raises:
        SchemaError: a type or default that has no clear Avro form; the message names field and remedy.
    """
    schema = _Builder().record(model)
    assert isinstance(schema, dict)  # noqa: S101  # the first mention of a record is its definition
    return schema


class _Builder:
    """One pass over a model; a named type is defined where it first occurs and then referred to by name."""

    def __init__(self) -> None:
        self._defined: dict[str, type] = {}

    def record(self, model: type[BaseModel]) -> Schema:
        name = self._full_name(model, getattr(model, "avro_namespace", NAMESPACE))
        if name in self._defined:
            return name
        self._defined[name] = model
        fields = [self._field(model, field_name, info) for field_name, info in model.model_fields.items()]
        namespace, _, short = name.rpartition(".")
        schema: dict[str, Any] = {"type": "record", "name": short, "namespace": namespace}
        event_type = getattr(model, "event_type", "")
        if event_type:
            schema[EVENT_TYPE] = event_type
        if model.__doc__:
            schema["doc"] = " ".join(model.__doc__.split())
        return {**schema, "fields": fields}

    def _full_name(self, cls: type, namespace: str) -> str:
        if _NAME.fullmatch(cls.__name__) is None:
            raise SchemaError(f"{cls.__name__}: not a name that Avro allows (ASCII letters, digits, _)")
        name = f"{namespace}.{cls.__name__}"
        other = self._defined.get(name)
        if other is not None and other is not cls:
            raise SchemaError(
                f"{cls.__module__}.{cls.__qualname__} and {other.__module__}.{other.__qualname__} "
                f"would both be {name}: rename one"
            )
        return name

    def _field(self, model: type[BaseModel], name: str, info: FieldInfo) -> dict[str, Any]:
        where = f"{model.__name__}.{name}"
        if _NAME.fullmatch(name) is None:
            raise SchemaError(f"{where}: not a name that Avro allows (ASCII letters, digits, _)")
        annotation = info.annotation
        field: dict[str, Any] = {"name": name}
        default = _default_of(where, info)
        if default is PydanticUndefined:
            field["type"] = self.of_type(where, annotation)
        else:
            field["type"] = _matching_first(self.of_type(where, annotation), default)
            field["default"] = _as_json(where, default)
        former = [old for mark in info.metadata if isinstance(mark, FormerNames) for old in mark.names]
        if former:
            field["aliases"] = former
        return field

    def of_type(self, where: str, annotation: Any) -> Schema:
        origin, args = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return self.of_type(where, args[0])
        if origin in (typing.Union, types.UnionType):
            return self._optional(where, args)
        if origin is list:
            return {"type": "array", "items": self.of_type(f"{where}[]", args[0])}
        if origin in (dict, Mapping) and args[0] is str:
            return {"type": "map", "values": self.of_type(f"{where}{{}}", args[1])}
        if annotation in _REFUSED:
            raise SchemaError(f"{where}: {_REFUSED[annotation]}")
        if annotation in _SCALARS:
            found = _SCALARS[annotation]
            return dict(found) if isinstance(found, dict) else found
        if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
            return self._enum(where, annotation)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return self.record(annotation)
        hint = "use an Enum with a member UNKNOWN" if origin is Literal else "see offsetzero.schemas.avro"
        raise SchemaError(f"{where}: {annotation!r} has no Avro form here; {hint}")

    def _optional(self, where: str, args: tuple[Any, ...]) -> Schema:
        others = [arg for arg in args if arg is not type(None)]
        if len(others) != 1 or len(others) == len(args):
            raise SchemaError(f"{where}: a union may only be `X | None`; make one field for each alternative")
        inner = self.of_type(where, others[0])
        if isinstance(inner, list):
            return inner
        return ["null", inner]

    def _enum(self, where: str, cls: type[enum.Enum]) -> Schema:
        name = self._full_name(cls, getattr(cls, "avro_namespace", NAMESPACE))
        if name in self._defined:
            return name
        symbols = [member.value for member in cls]
        bad = [symbol for symbol in symbols if not isinstance(symbol, str) or not _NAME.fullmatch(symbol)]
        if bad or not symbols:
            raise SchemaError(f"{where}: the values of {cls.__name__} must be names (letters, digits, _), not {bad}")
        unknown = cls.__members__.get("UNKNOWN")
        if unknown is None:
            raise SchemaError(
                f"{where}: {cls.__name__} needs a member UNKNOWN, which readers get for a symbol that "
                "was added after them"
            )
        self._defined[name] = cls
        namespace, _, short = name.rpartition(".")
        return {
            "type": "enum",
            "name": short,
            "namespace": namespace,
            "symbols": symbols,
            "default": unknown.value,
        }


def _default_of(where: str, info: FieldInfo) -> Any:
    if info.default_factory is None:
        return info.default
    if info.default_factory in (list, dict):
        return info.default_factory()
    raise SchemaError(f"{where}: a contract's default must be constant; give a value, or default_factory=list or dict")


def _matching_first(schema: Schema, default: Any) -> Schema:
    """Avro wants a union's default to be of its first branch."""
    if isinstance(schema, list) and default is not None:
        return [branch for branch in schema if branch != "null"] + ["null"]
    return schema


def _as_json(where: str, value: Any) -> Any:
    """A default as a schema writes it: logical types as what they stand on, bytes as Latin-1 text."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise SchemaError(f"{where}: the default is a naive datetime; give it a zone")
        return (value - _EPOCH) // _MILLISECOND
    if isinstance(value, date):
        return (value - _EPOCH.date()).days
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, BaseModel):
        return {name: _as_json(where, getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, list):
        return [_as_json(where, item) for item in value]
    if isinstance(value, dict):
        return {key: _as_json(where, item) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise SchemaError(f"{where}: {value!r} cannot be the default in a contract")


_MILLISECOND = datetime.resolution * 1000


def to_json(schema: Schema) -> str:
    """A schema as text on one line, in a stable order: what the topic `schemas` holds."""
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
