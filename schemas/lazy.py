"""Events that are made when somebody looks: until then an instance holds only what was read.

Making a model costs more than reading its bytes, and many handlers look at no field, or only later. So the codec
hands out an instance of a subclass, and whatever touches it (an attribute, `==`, `repr`, `copy`, `pickle`, pydantic
itself) turns it into a true instance first: its `__class__` becomes the model. Only `type(event)` tells before that.
"""

import threading
import time
from abc import ABCMeta
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeAlias

from pydantic import BaseModel

from offsetzero.errors import DecodeError, UnreadableEvent
from offsetzero.schemas.event import Event

State: TypeAlias = tuple[dict[str, Any], set[str], dict[str, Any] | None, dict[str, Any] | None]
"""What an instance of a pydantic model consists of: its fields, which of them were set, extra and private ones."""
Lazy: TypeAlias = Callable[[tuple[Any, ...]], Event]

# The slots of an instance, in that order. Until the look, the last of them holds what the event is to be made of, as
# a tuple; afterwards it is a dict or None.
_SLOTS: list[Any] = [
    BaseModel.__dict__[name]
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
]
_set_dict, _set_fields_set, _set_extra, _set_private = (slot.__set__ for slot in _SLOTS)
_get_private = _SLOTS[3].__get__
_set_class = object.__dict__["__class__"].__set__
# Held only while an event that is ready takes its place, never while it is made: that is the user's code, too.
# Reentrant, because a finalizer may run at any moment and look at another event. Taken by `_take` alone.
_placing = threading.RLock()


def _take() -> None:
    """Take `_placing`, without ever waiting inside it.

    A thread that waits in a lock is given it before it has the interpreter: the thread that gave it up would find it
    taken at its next event, and wait, and so on with every event, at two switches of threads each.
    """
    while not _placing.acquire(blocking=False):
        time.sleep(0)


def state_of(event: BaseModel) -> State:
    """What an instance consists of. Another one that is given it shares it."""
    found: Any = tuple(slot.__get__(event) for slot in _SLOTS)
    return found  # type: ignore[no-any-return]


def restore(model: type[Event], state: State) -> Event:
    """An instance that consists of a state."""
    event = object.__new__(model)
    _place(event, state)
    return event


def _place(event: Event, state: State) -> None:
    fields, fields_set, extra, private = state
    _set_dict(event, fields)
    _set_fields_set(event, fields_set)
    _set_extra(event, extra)
    _set_private(event, private)


def compile_lazy(model: type[Event], make: Callable[[tuple[Any, ...]], State]) -> Lazy:
    """A function `lazy(raw)` that returns an instance of the model; its state is made of `raw` at the first look.

    What `make` raises becomes `UnreadableEvent`, at every look. Any number of threads may look at once: `make` may
    run in each, and all see the one whose result was first.

    Args:
        model: of the events.
        make: makes the state of an instance of `raw`.
    """
    subclass, new = _subclass(model, make), object.__new__

    def lazy(raw: tuple[Any, ...]) -> Event:
        event = new(subclass)
        _set_private(event, raw)
        return event

    return lazy


def _subclass(model: type[Event], make: Callable[[tuple[Any, ...]], State]) -> type[Event]:
    def look(event: Event) -> None:
        raw = _get_private(event)
        if type(raw) is not tuple:  # another thread is placing its state, or has
            _take()
            _placing.release()
            return
        try:
            state = make(raw)
        except Exception as error:  # a user's validator may raise anything, and `hasattr` must not swallow it
            raise UnreadableEvent(str(error) if isinstance(error, DecodeError) else repr(error)) from error
        _take()
        try:
            if type(event) is lazy:
                _place(event, state)
                _set_class(event, model)  # last: from now on nobody waits
        finally:
            _placing.release()

    def get(event: Event, name: str) -> Any:
        look(event)
        return getattr(event, name)

    names = {"__slots__": (), "__getattribute__": get, "__module__": model.__module__, "__doc__": model.__doc__}
    names["__qualname__"] = model.__qualname__
    for name in dir(model):
        special = name.startswith("__") and name not in names and name not in _LEFT
        if special and isinstance(getattr(model, name), FunctionType):
            names[name] = _after(look, name)
    # The metaclass of pydantic would register the subclass, `type.__new__` runs the `__init_subclass__` of its base:
    # it is made below `Event`, whose hook does nothing for it, and then put below the model.
    lazy: type[Event] = ABCMeta.__new__(type(model), model.__name__, (Event,), names.copy())
    try:
        lazy.__bases__ = (model,)
    except TypeError:  # a model with slots of its own stays apart from `Event`
        lazy = ABCMeta.__new__(type(model), model.__name__, (model,), names)
    return lazy


# These find the instance otherwise, or are no methods of one.
_LEFT = frozenset({"__new__", "__init__", "__getattr__", "__init_subclass__", "__class_getitem__"})


def _after(look: Callable[[Event], None], name: str) -> Callable[..., Any]:
    """A special method that Python finds at the type, past `__getattribute__`; some begin with `type(self)`."""

    def method(event: Event, *args: Any, **kwargs: Any) -> Any:
        look(event)
        return getattr(event, name)(*args, **kwargs)

    return method
