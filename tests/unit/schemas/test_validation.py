# ruff: noqa: RUF012  # pydantic copies mutable defaults
"""Which models are made without validation, and that nobody can tell."""

import copy
import enum
import io
import pickle
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

import pytest
from annotated_types import Gt
from fastavro import schemaless_reader
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

from offsetzero.errors import DecodeError
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.schemas.event import Event, EventPart
from offsetzero.schemas.validation import takes_as_is

CODEC = Codec()


class Plain(Event, type="test.plain", key="id"):
    id: UUID
    at: datetime
    maybe_at: datetime | None = None
    day: date = date(2020, 1, 1)
    count: int
    ratio: float = 1.0
    flag: bool = False
    raw: bytes = b""
    text: str
    ids: list[UUID] = []
    days: dict[str, date] = {}
    grid: list[list[int]] = []
    maybe: list[str] | None = None


_utf8 = st.text(st.characters(exclude_categories=("Cs",)))
_ids = st.uuids()
_plain = st.builds(
    Plain,
    id=_ids,
    at=st.integers(-62_135_596_800_000, 253_402_300_799_999).map(
        lambda millis: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)
    ),
    maybe_at=st.none() | st.just(datetime(1, 1, 1, tzinfo=UTC)),
    day=st.dates(),
    count=st.integers(-(2**63), 2**63 - 1),
    ratio=st.floats(allow_nan=False),
    flag=st.booleans(),
    raw=st.binary(),
    text=_utf8,
    ids=st.lists(_ids),
    days=st.dictionaries(_utf8, st.dates()),
    grid=st.lists(st.lists(st.integers(-(2**63), 2**63 - 1))),
    maybe=st.none() | st.lists(_utf8),
)


@given(_plain)
def test_an_event_made_without_validation_is_the_one_that_validation_makes(event: Plain) -> None:
    payload = CODEC.encode(event)
    source = io.BytesIO(payload)
    source.seek(10)
    expected = Plain.model_validate(schemaless_reader(source, CODEC.schema(Plain).parsed, None))
    for found in (CODEC.read("test.plain", payload), CODEC.decode("test.plain", payload)):
        assert found == expected
        assert repr(found.__dict__) == repr(expected.__dict__)  # order and types, too
        assert found.__pydantic_fields_set__ == expected.__pydantic_fields_set__
        assert (found.__pydantic_extra__, found.__pydantic_private__) == (None, None)
        assert found.model_dump() == expected.model_dump()


def test_events_share_nothing_that_can_change() -> None:
    payload = CODEC.encode(Plain(id=UUID(int=1), at=datetime(2026, 1, 1, tzinfo=UTC), count=1, text="", maybe=["a"]))
    one, two = (CODEC.decode("test.plain", payload) for _ in range(2))
    assert isinstance(one, Plain)
    assert isinstance(two, Plain)
    assert one.maybe is not two.maybe
    assert one.ids is not two.ids
    for change in set(dir(set)) - set(dir(frozenset)):  # all that would change a set
        with pytest.raises(TypeError, match="share"):
            getattr(one.model_fields_set, change)("x")


class Changeable(Event, type="test.changeable", key="name"):
    model_config = ConfigDict(frozen=False)
    name: str


def test_what_was_given_can_change_in_a_copy_and_in_a_model_that_can_change() -> None:
    event = Plain(id=UUID(int=1), at=datetime(2026, 1, 1, tzinfo=UTC), count=1, text="")
    one = CODEC.decode("test.plain", CODEC.encode(event))
    assert one.model_dump(exclude_unset=True) == one.model_dump()
    copies = (copy.copy(one), copy.deepcopy(one), one.model_copy(update={"text": "x"}), pickle.loads(pickle.dumps(one)))  # noqa: S301
    for found in copies:
        assert type(found.model_fields_set) is set
        assert found.model_fields_set == one.model_fields_set
    first, second = (CODEC.decode("test.changeable", CODEC.encode(Changeable(name="a"))) for _ in range(2))
    assert isinstance(first, Changeable)
    assert takes_as_is(Changeable)
    first.name = "b"
    first.model_fields_set.clear()
    assert second.model_fields_set == {"name"}


@pytest.mark.parametrize("text", ["{00000000-0000-0000-0000-000000000001}", "1".zfill(32), "urn:uuid:" + "1".zfill(32)])
def test_a_uuid_in_another_form_is_read_as_ever(text: str) -> None:
    event = CODEC.decode("test.plain", _payload_with_id(text))
    assert event == Plain(id=UUID(int=1), at=datetime(1970, 1, 1, tzinfo=UTC), count=0, text="")


def test_text_that_is_no_uuid_is_refused() -> None:
    with pytest.raises(DecodeError, match="UUID"):
        CODEC.decode("test.plain", _payload_with_id("nobody"))


def _payload_with_id(text: str) -> bytes:
    payload = CODEC.encode(Plain(id=UUID(int=1), at=datetime(1970, 1, 1, tzinfo=UTC), count=0, text=""))
    return payload[:10] + bytes([2 * len(text)]) + text.encode() + payload[10 + 1 + 36 :]


class Colour(enum.StrEnum):
    UNKNOWN = "unknown"


class Part(EventPart):
    name: str = ""


class Base(EventPart):
    number: int = 0


def test_our_own_events_are_plain() -> None:
    for model in (Plain, DocumentUploaded, Part, Base):
        assert takes_as_is(model)


class Constrained(Base):
    text: str = Field("", max_length=3)


class Annotations(Base):
    other: Annotated[int, Gt(3)] = 4


class FunctionInField(Base):
    other: Annotated[str, AfterValidator(str.upper)] = ""


class FieldValidator(Base):
    @field_validator("number")
    @classmethod
    def _check(cls, number: int) -> int:
        return number


class BeforeValidator(Base):
    @model_validator(mode="before")
    @classmethod
    def _change(cls, data: Any) -> Any:
        return data


class AfterModel(Base):
    @model_validator(mode="after")
    def _after(self) -> "AfterModel":
        return self


class Initialised(Base):
    def __init__(self, **data: Any) -> None:
        super().__init__(**data)


class Hooked(Base):
    def model_post_init(self, _context: Any) -> None:
        pass


class Private(Base):
    _seen: int = PrivateAttr(0)


class Stripping(Base):
    model_config = ConfigDict(str_strip_whitespace=True)
    text: str = ""


class Strict(Base):
    model_config = ConfigDict(strict=True)


class StrictField(Base):
    other: float = Field(1.0, strict=True)


class Aliased(Base):
    other: str = Field("", alias="another")


class Coloured(Base):
    colour: Colour = Colour.UNKNOWN


class Nested(Base):
    part: Part = Part()


class Recursive(Base):
    inner: "Recursive | None" = None


class Extended(Base):
    model_config = ConfigDict(extra="allow")


class Bounded(Base):
    items: list[str] = Field([], min_length=1)


NOT_PLAIN = (
    *(Constrained, Annotations, FunctionInField, FieldValidator, BeforeValidator, AfterModel, Initialised, Hooked),
    *(Private, Stripping, Strict, StrictField, Aliased, Coloured, Nested, Recursive, Bounded, Extended),
)


@pytest.mark.parametrize("model", NOT_PLAIN, ids=lambda model: model.__name__)
def test_a_model_whose_validation_may_change_or_refuse_anything_is_validated(model: type[BaseModel]) -> None:
    assert not takes_as_is(model)
