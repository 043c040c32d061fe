"""From model to schema: what each type becomes, and what is refused."""

import enum
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel, Field

from offsetzero.errors import SchemaError
from offsetzero.schemas import writer
from offsetzero.schemas.avro import FormerNames, schema_of


class Status(enum.Enum):
    UNKNOWN = "unknown"
    OPEN = "open"


class Leaf(BaseModel):
    value: int = 3


class Tree(BaseModel):
    """A tree."""

    leaf: Leaf
    again: Leaf | None = None
    children: "list[Tree]" = []  # pydantic copies mutable defaults


def _field(annotation: Any, default: Any = ...) -> dict[str, Any]:
    model = type("Made", (BaseModel,), {"__annotations__": {"a": annotation}, "a": Field(default)})
    schema = schema_of(model)
    writer.of(schema)  # fastavro takes it
    field: dict[str, Any] = schema["fields"][0]
    return field


UUID_SCHEMA = {"type": "string", "logicalType": "uuid"}
TIME_SCHEMA = {"type": "long", "logicalType": "timestamp-millis"}


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (bool, "boolean"),
        (int, "long"),
        (float, "double"),
        (str, "string"),
        (bytes, "bytes"),
        (UUID, UUID_SCHEMA),
        (datetime, TIME_SCHEMA),
        (date, {"type": "int", "logicalType": "date"}),
        (Annotated[int, Field(ge=0)], "long"),
        (list[UUID], {"type": "array", "items": UUID_SCHEMA}),
        (dict[str, int], {"type": "map", "values": "long"}),
        (Mapping[str, list[str]], {"type": "map", "values": {"type": "array", "items": "string"}}),
        (list[int | None], {"type": "array", "items": ["null", "long"]}),
        (str | None, ["null", "string"]),
    ],
)
def test_a_type_becomes(annotation: Any, expected: Any) -> None:
    assert _field(annotation) == {"name": "a", "type": expected}


@pytest.mark.parametrize(
    ("annotation", "default", "kind", "expected"),
    [
        (str | None, None, ["null", "string"], None),
        (str | None, "x", ["string", "null"], "x"),
        (int, 5, "long", 5),
        (bytes, b"\x00\xff", "bytes", "\u0000ÿ"),
        (UUID, UUID(int=1), UUID_SCHEMA, "00000000-0000-0000-0000-000000000001"),
        (datetime, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), TIME_SCHEMA, 1000),
        (date, date(1970, 1, 3), {"type": "int", "logicalType": "date"}, 2),
        (list[str], [], {"type": "array", "items": "string"}, []),
        (dict[str, bytes], {"k": b"\xff"}, {"type": "map", "values": "bytes"}, {"k": "ÿ"}),
    ],
)
def test_a_default_becomes_json_of_the_right_branch(annotation: Any, default: Any, kind: Any, expected: Any) -> None:
    assert _field(annotation, default) == {"name": "a", "type": kind, "default": expected}


def test_an_enum_has_its_unknown_member_as_default_for_old_readers() -> None:
    assert _field(Status, Status.OPEN) == {
        "name": "a",
        "type": {
            "type": "enum",
            "name": "Status",
            "namespace": "offsetzero.events",
            "symbols": ["unknown", "open"],
            "default": "unknown",
        },
        "default": "open",
    }


def test_a_named_type_is_defined_once_and_may_contain_itself() -> None:
    schema = schema_of(Tree)
    leaf, again, children = schema["fields"]
    assert schema["doc"] == "A tree."
    assert leaf["type"]["name"] == "Leaf"
    assert again["type"] == ["null", "offsetzero.events.Leaf"]
    assert children["type"] == {"type": "array", "items": "offsetzero.events.Tree"}
    assert writer.of(schema).name == "offsetzero.events.Tree"


def test_a_model_may_have_a_namespace_of_its_own_and_a_field_former_names() -> None:
    class Renamed(BaseModel):
        avro_namespace: ClassVar[str] = "com.example"
        title: Annotated[str, FormerNames("name", "label")] = ""

    schema = schema_of(Renamed)
    assert schema["namespace"] == "com.example"
    assert schema["fields"][0]["aliases"] == ["name", "label"]


class NoUnknown(enum.Enum):
    A = "a"


class BadSymbol(enum.Enum):
    UNKNOWN = "not-a-name"


class Number(enum.IntEnum):
    UNKNOWN = 0


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (Decimal, "cents"),
        (Any, "name the type"),
        (int | str, "X | None"),
        (int | str | None, "X | None"),
        (Literal["a"], "Enum"),
        (NoUnknown, "UNKNOWN"),
        (BadSymbol, "not-a-name"),
        (Number, "names"),
        (tuple[int, ...], "no Avro form"),
        (set[int], "no Avro form"),
        (time, "no Avro form"),
        (dict[int, str], "no Avro form"),
    ],
)
def test_a_type_without_a_clear_form_is_refused_with_field_and_remedy(annotation: Any, said: str) -> None:
    with pytest.raises(SchemaError, match=rf"Made\.a.*{said}"):
        _field(annotation)


def test_a_default_that_is_not_constant_is_refused() -> None:
    class Changing(BaseModel):
        a: UUID = Field(default_factory=uuid4)

    with pytest.raises(SchemaError, match=r"Changing\.a.*constant"):
        schema_of(Changing)
    with pytest.raises(SchemaError, match="naive"):
        _field(datetime, datetime(2020, 1, 1))  # noqa: DTZ001


def test_two_classes_of_one_name_are_refused() -> None:
    other = type("Leaf", (BaseModel,), {"__annotations__": {"b": int}})
    model = type("Both", (BaseModel,), {"__annotations__": {"a": Leaf, "b": other}})
    with pytest.raises(SchemaError, match="rename one"):
        schema_of(model)


def test_names_that_avro_does_not_allow_are_refused() -> None:
    with pytest.raises(SchemaError, match="größe"):
        schema_of(type("Made", (BaseModel,), {"__annotations__": {"größe": int}}))
    with pytest.raises(SchemaError, match="Maß"):
        schema_of(type("Maß", (BaseModel,), {"__annotations__": {"a": int}}))
