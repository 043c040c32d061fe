# ruff: noqa: RUF012, S301  # pydantic copies mutable defaults; what is unpickled was pickled on the line before
"""Events that are made at the first look: whoever looks, and however, sees the true one."""

import copy
import pickle
import resource
import threading
import weakref
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Generic, Self, TypeVar
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, PrivateAttr, SerializeAsAny, TypeAdapter, ValidationError, field_validator

from offsetzero.errors import DecodeError, UnreadableEvent
from offsetzero.producers import records
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentDeleted
from offsetzero.schemas.event import Event, EventPart, event_class, event_types

CODEC = Codec()
DELETED = DocumentDeleted(document_id=UUID(int=1), tenant_id="t", deleted_at=datetime(2026, 1, 31, tzinfo=UTC))
PAYLOAD = CODEC.encode(DELETED)


class Tag(EventPart):
    text: str


class Odd(Event, type="test.odd", key="name"):
    """An event whose special methods begin with the type of `self`, and which holds what is private."""

    name: str
    size: int = Field(default=1, gt=0)
    tags: list[Tag] = []
    _seen: list[str] = PrivateAttr(default_factory=list)

    @field_validator("name")
    @classmethod
    def _no_spaces(cls, name: str) -> str:
        if name == "bug":
            raise KeyError(name)
        if " " in name:
            raise ValueError("a space")
        return name.upper()

    def model_post_init(self, _context: Any) -> None:
        self._seen.append(self.name)

    def __add__(self, other: Self) -> Self:
        return type(self)(name=self.name + other.name)

    def __len__(self) -> int:
        return len(type(self).model_fields)

    @property
    def missing(self) -> str:
        raise AttributeError("not here")


class Holder(BaseModel):
    event: DocumentDeleted
    anything: SerializeAsAny[Event]


def _read() -> DocumentDeleted:
    event = CODEC.read("document.deleted", PAYLOAD, "application/avro")
    assert type(event) is not DocumentDeleted
    return event  # type: ignore[return-value]


def _odd(**fields: Any) -> Odd:
    payload = CODEC.encode(Odd.model_construct(**{"size": 1, "tags": [], **fields}))
    return CODEC.read("test.odd", payload)  # type: ignore[return-value]


def _matched(event: object) -> str:
    match event:
        case DocumentDeleted(tenant_id=tenant):
            return tenant
    return ""


def _refused(change: Callable[..., None], *args: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        change(*args)
    return str(caught.value)


LOOKS: dict[str, Callable[[DocumentDeleted], Any]] = {
    "a field": lambda event: event.document_id,
    "a property": lambda event: event.key,
    "a class variable": lambda event: event.event_type,
    "an unknown attribute": lambda event: getattr(event, "no_such", None),
    "hasattr": lambda event: hasattr(event, "tenant_id"),
    "__class__": lambda event: event.__class__,
    "__dict__": lambda event: event.__dict__,
    "vars": vars,
    "dir": dir,
    "match": _matched,
    "==": lambda event: event == DELETED,
    "== from the other side": lambda event: DELETED.__eq__(event),
    "!=": lambda event: event != DELETED,
    "hash": hash,
    "repr": repr,
    "str": str,
    "format": lambda event: f"{event}",
    "iter": list,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda event: pickle.loads(pickle.dumps(event)),
    "model_copy": lambda event: event.model_copy(update={"tenant_id": "u"}),
    "model_dump": lambda event: event.model_dump(),
    "model_dump_json": lambda event: event.model_dump_json(),
    "validated and dumped inside another model": lambda event: Holder(event=event, anything=event).model_dump_json(),
    "dumped by an adapter": lambda event: TypeAdapter(Event).dump_json(event, serialize_as_any=True),
    "an attempt to change it": lambda event: _refused(setattr, event, "tenant_id", "u"),
    "an attempt to delete from it": lambda event: _refused(delattr, event, "tenant_id"),
    "encoding": CODEC.encode,
    "building a record": lambda event: records.build(CODEC, event, {"event_id": "1"}).value,
}


@pytest.mark.parametrize("look", LOOKS)
def test_every_look_sees_the_event_that_decode_returns(look: str) -> None:
    event, same = _read(), _read()
    seen, expected = LOOKS[look](event), LOOKS[look](DELETED.model_copy())
    assert seen == expected
    assert type(event) is DocumentDeleted
    assert event == DELETED == same
    assert event.model_fields_set == DELETED.model_fields_set
    assert pickle.loads(pickle.dumps(event)) == DELETED


def test_before_the_look_its_type_has_the_models_name_and_is_not_registered() -> None:
    event = _read()
    kind = type(event)
    assert kind is not DocumentDeleted
    assert isinstance(event, DocumentDeleted)
    assert type(event) is kind  # `isinstance` is no look
    assert (kind.__name__, kind.__qualname__, kind.__module__, kind.__doc__) == (
        DocumentDeleted.__name__,
        DocumentDeleted.__qualname__,
        DocumentDeleted.__module__,
        DocumentDeleted.__doc__,
    )
    assert event_class("document.deleted") is DocumentDeleted
    assert kind not in event_types().values()


def test_copies_of_an_event_that_nobody_has_looked_at_are_whole_and_true() -> None:
    for clone in (copy.copy(_read()), copy.deepcopy(_read()), pickle.loads(pickle.dumps(_read()))):
        assert type(clone) is DocumentDeleted
        assert clone == DELETED


def test_the_users_own_validators_private_attributes_and_special_methods_work() -> None:
    event = _odd(name="a", tags=[Tag(text="x")])
    assert (event.name, event._seen, event.tags) == ("A", ["A"], [Tag(text="x")])
    total = _odd(name="a") + _odd(name="b")
    assert (type(total), total.name) == (Odd, "AB")
    assert len(_odd(name="a")) == 3
    with pytest.raises(AttributeError, match="not here"):
        _ = _odd(name="a").missing


@pytest.mark.parametrize("fields", [{"name": "a b"}, {"name": "a", "size": 0}, {"name": "bug"}])
def test_what_the_model_refuses_is_refused_at_every_look(fields: dict[str, Any]) -> None:
    event = _odd(**fields)
    for _ in range(2):
        for look in (lambda: event.name, lambda: repr(event), lambda: hasattr(event, "x"), lambda: event == event):
            with pytest.raises(UnreadableEvent):
                look()
    if fields["name"] != "bug":
        with pytest.raises(DecodeError, match=r"test\.odd: (name|size):"):
            CODEC.decode("test.odd", CODEC.encode(Odd.model_construct(**{"size": 1, "tags": [], **fields})))


def test_a_base_with_demands_on_its_subclasses_can_be_read() -> None:
    made: list[type] = []

    class Strict(Event):
        def __init_subclass__(cls, *, owner: str, **kwargs: Any) -> None:
            made.append(cls)
            super().__init_subclass__(**kwargs)

    class Owned(Strict, type="test.owned", key="name", owner="me"):
        name: str

    event = CODEC.read("test.owned", CODEC.encode(Owned(name="a")))
    assert event == Owned(name="a")
    assert made == [Owned]


class Mixin:
    def shout(self) -> str:
        return str(self.name).upper()  # type: ignore[attr-defined]


T = TypeVar("T")


class Box(Event, Generic[T]):
    name: T


class Mixed(Mixin, Event, type="test.mixed", key="name"):
    name: str


class Slotted(Event, type="test.slotted", key="name"):
    __slots__ = ("cache",)
    name: str


class Boxed(Box[str], type="test.boxed", key="name"):
    @cached_property
    def twice(self) -> str:
        return self.name * 2


class Curled(Event, type="test.curled", key="name"):
    name: str

    def __getattr__(self, name: str) -> Any:
        if name == "magic":
            return 42
        raise AttributeError(name)


@pytest.mark.parametrize("model", [Mixed, Slotted, Boxed, Curled], ids=lambda model: model.__name__)
def test_models_of_unusual_make_can_be_read(model: type[Any]) -> None:
    event = CODEC.read(model.event_type, CODEC.encode(model(name="a")))
    assert type(event) is not model
    assert weakref.ref(event)() == model(name="a")
    assert type(event) is model
    for attribute, value in (("shout", None), ("twice", "aa"), ("magic", 42)):
        assert value is None or getattr(event, attribute, value) == value


def test_threads_that_look_at_once_see_one_whole_event() -> None:
    """All of them are inside the model's validator before the first is through."""
    barrier = threading.Barrier(4)

    class Slow(Event, type="test.slow", key="name"):
        name: str
        tags: list[Tag]
        _seen: list[str] = PrivateAttr(default_factory=lambda: ["made"])

        @field_validator("name")
        @classmethod
        def _wait(cls, name: str) -> str:
            barrier.wait(timeout=30)
            return name

    payload = CODEC.encode(Slow.model_construct(name="a", tags=[Tag(text="x")]))
    for _ in range(50):
        event, seen = CODEC.read("test.slow", payload), []
        assert isinstance(event, Slow)

        def look(event: Slow = event, seen: list[Any] = seen) -> None:
            event.tags.append(Tag(text="y"))
            seen.append((id(event.tags), event.name, event._seen, event.model_fields_set, type(event)))

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [(id(event.tags), "a", ["made"], {"name", "tags"}, Slow)] * 4
        assert len(event.tags) == 5


def test_a_validator_that_looks_at_another_event_that_is_read_does_not_hang() -> None:
    inner = _odd(name="inner")

    class Curious(Event, type="test.curious", key="name"):
        name: str

        @field_validator("name")
        @classmethod
        def _same(cls, name: str) -> str:
            return inner.name + name

    event = CODEC.read("test.curious", CODEC.encode(Curious.model_construct(name="x")))
    assert isinstance(event, Curious)
    assert event.name == "INNERx"


def test_threads_that_look_at_many_events_do_not_wait_for_each_other_at_each_of_them() -> None:
    """A lock that is handed to a thread which has not the interpreter makes every later look a switch of threads."""
    looks, threads = 50_000, 3

    def look() -> None:
        for _ in range(looks):
            assert CODEC.read("document.deleted", PAYLOAD).tenant_id == "t"  # type: ignore[attr-defined]

    before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    lookers = [threading.Thread(target=look) for _ in range(threads)]
    for one in lookers:
        one.start()
    for one in lookers:
        one.join()
    switches = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before
    assert switches < looks * threads * 0.05
