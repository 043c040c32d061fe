# ruff: noqa: RUF012  # pydantic copies mutable defaults
"""The generated writers against the reference: `datum`, which says what may be written, then fastavro."""

import enum
import itertools
import types
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, create_model

from offsetzero.errors import InvalidEvent
from offsetzero.schemas.codec import Codec, _written
from offsetzero.schemas.compiled import Compiled
from offsetzero.schemas.event import Event, EventPart

# --- values of every kind, and what no field of that kind may hold, or hardly ever does ------------


class Colour(enum.StrEnum):
    UNKNOWN = "unknown"
    RED = "red"


class OtherColour(enum.Enum):
    RED = "red"
    TRUE = True


class Number(enum.IntEnum):
    ONE = 1


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


class Id(UUID):
    def __str__(self) -> str:
        return "something else"


class Time(datetime):
    def __sub__(self, other: Any) -> Any:
        return timedelta(days=1)


class Nowhere(tzinfo):
    """A zone that cannot say when it is."""

    def utcoffset(self, _: datetime | None) -> None:
        return None


class Listed(list[Any]):
    pass


class Mapped(dict[Any, Any]):
    pass


class NoModel:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class Part(EventPart):
    a: int


class Tree(Event, type="test.tree", key="name"):
    name: str
    up: "Tree | None" = None
    kids: list["Tree"] = []
    named: dict[str, "Tree"] = {}


_EDGES = [0, 63, 64, -64, -65, 8191, 8192, 2**20, 2**27, 2**34, -(2**34), 2**41 - 1, 2**41, 2**62, 2**63 - 1, -(2**63)]
_LONGS = st.sampled_from(_EDGES) | st.integers(-(2**63), 2**63 - 1)
_TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=80) | st.sampled_from(["", "ü" * 300, "a" * 9000])
_MILLIS = st.integers(-62_135_596_800_000, 253_402_300_799_999) | st.sampled_from(
    [-1, 0, 2**34 - 1, 2**34, 2**41 - 1, 2**41]
)
_ZONES = st.sampled_from([UTC, timezone(timedelta(hours=-5)), timezone(timedelta(hours=14))])


def _time(millis: int, micros: int, zone: tzinfo) -> datetime:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis, microseconds=micros)
    try:
        return at.astimezone(zone)
    except OverflowError:
        return at


_TIMES = st.builds(_time, _MILLIS, st.integers(0, 999), _ZONES)
_USUAL: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: _LONGS,
    float: st.floats(),
    str: _TEXTS,
    bytes: st.binary(max_size=80) | st.sampled_from([b"\0" * 300, b"\xff" * 9000]),
    UUID: st.uuids(),
    datetime: _TIMES,
    date: st.dates(),
    Colour: st.sampled_from(Colour),
}
_ODD: list[Any] = [
    *(None, True, False, 1, 0, 1.9, float("nan"), 2**63, -(2**63) - 1, Number.ONE),
    *("", "red", "green", "\ud800", "a\ud800", Text("red"), Colour.RED, OtherColour.RED, OtherColour.TRUE),
    *(b"", bytearray(b"a"), memoryview(b"a"), UUID(int=1), str(UUID(int=1)), Id(int=1)),
    *(datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=Nowhere()), Time(2026, 1, 1, tzinfo=UTC)),  # noqa: DTZ001
    *(
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=5))),
    ),
    *(date(2026, 1, 1), timedelta(1), [], [None], [1], (1,), Listed([1]), {}, {1: 2}, {"a": None}, {Text("a"): 1}),
    *(
        {"\ud800": 1},
        Mapped(a=1),
        {1},
        object,
        NoModel(a=1),
        Part(a=1),
        types.SimpleNamespace(value="red", _value_="red"),
    ),
]


# A default decides which branch of a union stands first.
_DEFAULTS: dict[Any, list[Any]] = {int: [1], int | None: [None, 1], str | None: ["a"], Colour | None: [Colour.RED]}


# --- models of every shape -------------------------------------------------------------------------

_numbers = itertools.count()


@st.composite
def _models(draw: st.DrawFn) -> tuple[type[Event], Callable[[bool], Event]]:
    """A model, and what makes an event of it: of usual values, or of a mixture with odd ones."""

    def kind(depth: int) -> tuple[Any, Callable[[bool], Any]]:
        chosen = draw(st.sampled_from([*_USUAL, *(["list", "dict", "optional", "model"] if depth else [])]))
        if chosen in _USUAL:
            return chosen, lambda odd: draw(_USUAL[chosen])
        if chosen == "model":
            return model(depth - 1, EventPart)
        annotation, value = kind(depth - 1)
        if chosen == "list":
            sizes = st.integers(0, 3) | st.just(70)
            return list[annotation], lambda odd: [one(value, odd)] * draw(sizes)  # type: ignore[valid-type]
        if chosen == "dict":
            keys = st.lists(_TEXTS, max_size=3, unique=True)
            return dict[str, annotation], lambda odd: {key: one(value, odd) for key in draw(keys)}  # type: ignore[valid-type]
        return annotation | None, lambda odd: one(value, odd) if draw(st.booleans()) else None

    def model(depth: int, base: type[BaseModel]) -> tuple[Any, Callable[[bool], Any]]:
        made = {f"f{number}": kind(depth) for number in range(draw(st.integers(0, 4)))}
        fields: dict[str, Any] = {
            name: (annotation, draw(st.sampled_from([..., *_DEFAULTS.get(annotation, [])])))
            for name, (annotation, _) in made.items()
        }
        found: Any = create_model(f"M{next(_numbers)}", __base__=base, **fields)

        def value(odd: bool) -> Any:
            values = {name: one(inner, odd) for name, (_, inner) in made.items()}
            if odd and values and draw(st.integers(0, 9)) == 0:
                values.popitem()
            return found.model_construct(**values)

        return found, value

    def one(value: Callable[[bool], Any], odd: bool) -> Any:
        return draw(st.sampled_from(_ODD)) if odd and draw(st.integers(0, 7)) == 0 else value(odd)

    return model(3, Event)


@given(_models())
def test_usual_values_are_written_in_one_pass_as_the_reference_writes_them(
    made: tuple[type[Event], Callable[[bool], Event]],
) -> None:
    model, value = Compiled(made[0]), made[1]
    for _ in range(3):
        event = value(False)
        assert model.write(event) == _written(model, event)


def _outcome(write: Callable[[], bytes]) -> object:
    try:
        return write()
    except Exception as error:
        return type(error), str(error)


@given(_models())
def test_odd_values_are_written_or_refused_as_the_reference_does_it(
    made: tuple[type[Event], Callable[[bool], Event]],
) -> None:
    codec, value = Codec(), made[1]
    model = codec._model(made[0])
    for _ in range(10):
        event = value(True)
        assert _outcome(lambda event=event: codec.encode(event)) == _outcome(lambda event=event: _written(model, event))  # type: ignore[misc]


@pytest.mark.parametrize("kind", [*_USUAL, list[int], dict[str, int], Part], ids=str)
@pytest.mark.parametrize("place", ["field", "optional", "list", "dict"])
def test_each_odd_value_at_each_place(kind: Any, place: str) -> None:
    """Without the luck of a draw."""
    annotation: Any = {"field": kind, "optional": kind | None, "list": list[kind], "dict": dict[str, kind]}[place]
    placed: type[Event] = create_model("Placed", __base__=Event, a=(annotation, ...))
    codec = Codec()
    model = codec._model(placed)
    for odd in _ODD:
        event = placed.model_construct(a={"list": [odd], "dict": {"k": odd}}.get(place, odd))  # type: ignore[call-overload]
        assert _outcome(lambda event=event: codec.encode(event)) == _outcome(
            lambda event=event: _written(model, event)
        ), odd  # type: ignore[misc]


def test_a_model_that_holds_itself_is_written_and_what_never_ends_is_refused() -> None:
    leaf = Tree(name="leaf")
    tree = Tree(name="root", up=Tree(name="above"), kids=[leaf, Tree(name="b", kids=[leaf])], named={"a": leaf})
    codec = Codec()
    model = codec._model(Tree)
    assert model.write(tree) == _written(model, tree)
    leaf.kids.append(leaf)
    with pytest.raises(InvalidEvent, match="contains itself"):
        codec.encode(tree)


@pytest.mark.parametrize("way", ["up", "kids", "named"])
def test_what_is_nested_deeper_than_readers_go_is_refused_by_the_writer(way: str) -> None:
    def tree(depth: int) -> Tree:
        made = Tree(name="leaf")
        for _ in range(depth - 1):
            made = Tree(name="x", **{way: {"up": made, "kids": [made], "named": {"a": made}}[way]})
        return made

    codec = Codec()
    allowed = 63 if way == "up" else 32  # a list or map is a level, too, also an empty one
    assert codec.decode("test.tree", codec.encode(tree(allowed))) == tree(allowed)
    with pytest.raises(InvalidEvent, match=r"test\.tree: no reader would take it: .*nested more than 64 deep"):
        codec.encode(tree(allowed + 1))


def test_an_event_that_was_only_read_is_written_again() -> None:
    codec = Codec()
    payload = codec.encode(Tree(name="root", kids=[Tree(name="leaf")]))
    assert codec._model(Tree).write(codec.read("test.tree", payload)) == payload
    assert codec.encode(codec.read("test.tree", payload)) == payload


def test_an_enum_of_more_symbols_than_a_byte_can_count() -> None:
    many: Any = enum.Enum("Many", {"UNKNOWN": "UNKNOWN", **{f"S{number}": f"S{number}" for number in range(200)}})
    model = Compiled(create_model("OfMany", __base__=Event, a=(many, ...), b=(many | None, ...)))
    for member in many:
        event = model.event.model_construct(a=member, b=member)
        assert model.write(event) == _written(model, event)
