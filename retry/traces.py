"""What records keep of an exception: its class and the places of its stack, never what it says.

A message may quote what was worked on, and records are for ever (docs/decisions/erasure-leaves-ids.md). Logs have it.
"""

import traceback
from collections.abc import Iterator

from offsetzero.errors import OffsetzeroError
from offsetzero.retry.failures import Failure

_LIBRARIES = frozenset({"httpx", "httpcore", "obstore"})
# By name: the processes that read documents import neither of these clients.
_CLASSES = frozenset({("psycopg", "OperationalError"), ("cimpl", "KafkaException")})


class Elsewhere(Exception):
    """An exception of another process. Its text is what `stack` gave there."""


def text(failure: Failure) -> str:
    """What a record says of a failure: the message of a foreign exception only where it tells of systems."""
    return failure.internal if failure.internal and _of_systems(failure.__cause__) else failure.detail


def stack(error: BaseException) -> str:
    """The stacks of an exception and of what led to it, in Python's form, with no messages."""
    return "\nwhich led to:\n\n".join(_one(one) for one in _chain(error, set()))


def _one(error: BaseException) -> str:
    if isinstance(error, Elsewhere):
        return str(error)
    places = "".join(traceback.format_tb(error.__traceback__))
    head = "Traceback (most recent call last):\n" if places else ""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    inside = "".join(f"\none of its exceptions:\n\n{stack(one)}" for one in getattr(error, "exceptions", ()))
    return f"{head}{places}{name}\n{inside}"


def _chain(error: BaseException, seen: set[int]) -> Iterator[BaseException]:
    """What led to an exception, then itself."""
    if id(error) in seen:
        return
    seen.add(id(error))
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None:
        yield from _chain(before, seen)
    yield error


def _of_systems(error: BaseException | None) -> bool:
    """Whether an exception tells of hosts, topics and objects; a file may be called like a person."""
    if isinstance(error, OSError):
        return error.filename is None
    kinds = [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(error).__mro__]
    return isinstance(error, OffsetzeroError) or kinds[0][0] in _LIBRARIES or not _CLASSES.isdisjoint(kinds)
