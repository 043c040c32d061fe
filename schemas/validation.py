"""Which models take what Avro gives them as it is, so that validating it would be a waste."""

from typing import Any

from pydantic import BaseModel

from offsetzero.schemas.event import EventPart

# What `EventPart` refuses, Avro does not have: its long is no boolean, and its timestamp is an instant in UTC.
_OWN = {EventPart._refuse_booleans.__func__, EventPart._refuse_naive_times}
_SCALARS = frozenset({"bool", "bytes", "date", "datetime", "float", "int", "str", "uuid"})
_ABOUT = {"type", "ref", "metadata", "serialization"}
# For each kind of pydantic's core schema: what else it may say, with the value that changes nothing (None: any).
_HARMLESS: dict[str, dict[str, Any]] = {
    "model": {"cls": None, "schema": None, "config": None, "custom_init": False, "root_model": False},
    "model-fields": {"fields": None, "model_name": None, "computed_fields": None},
    "model-field": {"schema": None, "frozen": None},
    "default": {"schema": None, "default": None, "default_factory": None, "default_factory_takes_data": None},
    "nullable": {"schema": None},
    "list": {"items_schema": None},
    "dict": {"keys_schema": None, "values_schema": None},
    "datetime": {"microseconds_precision": "truncate"},
}
_CONFIG: dict[str, Any] = {"title": None, "extra_fields_behavior": "forbid"}


def takes_as_is(model: type[BaseModel]) -> bool:
    """Whether validating fields of the types that Avro gives would change nothing and refuse nothing.

    So it is for models of plain types: no constraints, no validators or hooks of the user's, no enums (Avro gives
    their symbols) and no models inside. Pydantic promises no form of its core schemas: what is not known to be
    harmless is not.
    """
    return _harmless(model.__pydantic_core_schema__, top=True)


def _harmless(node: Any, *, top: bool = False) -> bool:
    kind = node["type"]
    if kind in ("function-before", "function-after"):
        function = node["function"]["function"]
        return getattr(function, "__func__", function) in _OWN and _harmless(node["schema"], top=top)
    allowed = _HARMLESS.get(kind, {} if kind in _SCALARS else None)
    if allowed is None or (kind == "model" and not (top and _says_only(node.get("config", {}), _CONFIG))):
        return False
    if not _says_only({name: value for name, value in node.items() if name not in _ABOUT}, allowed):
        return False
    inner = [item for name, item in node.items() if name == "schema" or name.endswith("_schema")]
    return all(_harmless(item, top=top and kind == "model") for item in [*inner, *node.get("fields", {}).values()])


def _says_only(said: dict[str, Any], allowed: dict[str, Any]) -> bool:
    return all(name in allowed and allowed[name] in (None, value) for name, value in said.items())
