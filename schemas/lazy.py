"""Events that are made when somebody looks: until then an instance holds only what was read.

Making a model costs more than reading its bytes, and many handlers look at no field, or only later. So the codec
hands out an instance of a subclass, and whatever touches it (an attribute, `==`, `repr`, `copy`, `pickle`, pydantic
itself) turns it into a true instance first: its `__class__` becomes the model. Only `type(event)` tells before that.
"""

import threading
from abc import ABCMeta
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeAlias

from pydantic import BaseModel

from offsetzero.errors import DecodeError, UnreadableEvent
from offsetzero.schemas.event import Event

Make: TypeAlias = Callable[[Any], Event]
Lazy: TypeAlias = Callable[[Make, Any], Event]

# An instance of a pydantic model has these slots. Until the look, the last of them holds what the event is to be made
# of, as a tuple; afterwards it is a dict or None.
_PRIVATE: Any = BaseModel.__dict__["__pydantic_private__"]  # a slot's descriptor
_PARTS = [
    (BaseModel.__dict__[name].__get__, BaseModel.__dict__[name].__set__)
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
]
_set = object.__setattr__
# Held only while an event that is ready takes its place, never while it is made: that is the user's code, too.
# Reentrant, because a finalizer may run at any moment and look at another event.
_placing = threading.RLock()


def compile_lazy(model: type[Event]) -> Lazy:
    """A function `lazy(make, raw)` that returns an instance of the model which `make(raw)` makes at the first look.

    What `make` raises becomes `UnreadableEvent`, at every look. Any number of threads may look at once: `make` may
    run in each, and all see the one whose result was first.

    Args:
        model: of the events.
    """
    lazy = _subclass(model)
    new, hold = object.__new__, _PRIVATE.__set__

    def create(make: Make, raw: Any) -> Event:
        event = new(lazy)
        hold(event, (make, raw))
        return event

    return create


def _subclass(model: type[Event]) -> type[Event]:
    held = _PRIVATE.__get__

    def look(event: Event) -> None:
        pending = held(event)
        if type(pending) is not tuple:  # another thread is placing it, or has
            with _placing:
                return
        make, raw = pending
        try:
            made = make(raw)
        except Exception as error:  # a user's validator may raise anything, and `hasattr` must not swallow it
            raise UnreadableEvent(str(error) if isinstance(error, DecodeError) else repr(error)) from error
        with _placing:
            if type(event) is lazy:
                for get_part, set_part in _PARTS:
                    set_part(event, get_part(made))
                _set(event, "__class__", type(made))  # last: from now on nobody waits

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
    lazy: type[Event] = ABCMeta.__new__(type(model), model.__name__, (Event,), names)
    lazy.__bases__ = (model,)
    return lazy


# These find the instance otherwise, or are no methods of one.
_LEFT = frozenset({"__new__", "__init__", "__getattr__", "__init_subclass__", "__class_getitem__"})


def _after(look: Callable[[Event], None], name: str) -> Callable[..., Any]:
    """A special method that Python finds at the type, past `__getattribute__`; some begin with `type(self)`."""

    def method(event: Event, *args: Any, **kwargs: Any) -> Any:
        look(event)
        return getattr(event, name)(*args, **kwargs)

    return method
