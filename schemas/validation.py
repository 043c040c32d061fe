"""A model's validator for fields that came from its own Avro schema: without the checks that cannot fail then."""

from collections.abc import Callable
from typing import Any, TypeAlias

from pydantic import BaseModel
from pydantic_core import SchemaError, SchemaValidator

from offsetzero.schemas.event import EventPart

Validate: TypeAlias = Callable[[dict[str, Any]], Any]

# What `EventPart` refuses, Avro does not have: its long is no boolean, and its timestamp is an instant in UTC. Called
# back from pydantic's core for every event, the two cost as much as all the rest of the validation.
_OWN = {EventPart._refuse_booleans.__func__, EventPart._refuse_naive_times}


def validator_of(model: type[BaseModel]) -> Validate:
    """A function from fields to a model, equal to `model.model_validate` for fields of the types that Avro gives.

    Pydantic's own, unless all that runs in Python at a validation are the checks of `EventPart`: validators, hooks
    or an `__init__` of the user's may make of a good value what these have to refuse.
    """
    try:
        return SchemaValidator(_without_own(model.__pydantic_core_schema__)).validate_python
    except (_OtherCodeError, SchemaError):  # pydantic promises no form of its core schemas
        return model.model_validate


class _OtherCodeError(Exception):
    """Something else than our checks runs in Python."""


def _without_own(node: Any) -> Any:
    """A core schema in which our checks are replaced by what they wrap."""
    if isinstance(node, list | tuple):
        return [_without_own(item) for item in node]
    if not isinstance(node, dict):
        return node
    kind = node.get("type")
    if isinstance(kind, str) and kind.startswith("function-"):
        function = node["function"]["function"]
        if getattr(function, "__func__", function) not in _OWN:
            raise _OtherCodeError
        inner = _without_own(node["schema"])
        return {**inner, "ref": node["ref"]} if "ref" in node else inner
    if kind == "model" and (node.get("custom_init") or node.get("post_init")):
        raise _OtherCodeError
    left = ("metadata", "serialization", "cls")
    return {name: item if name in left else _without_own(item) for name, item in node.items()}
