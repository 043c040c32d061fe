"""Checks of what a group declares: a mistake is told where it was made, not at the first record."""

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

from offsetzero.consumers.projection import MAX_NAME
from offsetzero.consumers.working.transaction import is_async
from offsetzero.errors import ConfigurationError
from offsetzero.retry.failures import Failure
from offsetzero.schemas.event import Event, event_class

_SECONDS = frozenset({"max_duration", "timeout"})


def check_event(group: str, decorator: str, event: Any) -> None:
    """See that a decorator got the class of an event.

    Args:
        group: the group's name.
        decorator: `handler` or `prepare`; called by it, which was called where the mistake would be.
        event: what it got.

    Raises:
        ConfigurationError: it is something else, or a class without an event type.
    """
    if isinstance(event, type) and issubclass(event, Event) and event.event_type:
        return
    if isinstance(event, type) and issubclass(event, Event):
        what = f"{event.__name__} has no event type; declare it with type=… and key=…"
    elif isinstance(event, str):
        known = event_class(event)
        what = f"{event!r} is a name; give the event's class" + (f", {known.__name__}" if known else "")
    else:
        shown = getattr(event, "__name__", None) or repr(event)
        what = f"{shown} is no event; give its class: @{group}.{decorator}(DocumentUploaded)"
    caller = sys._getframe(2)
    raise ConfigurationError(f"group {group}: {decorator} in {caller.f_code.co_filename}:{caller.f_lineno}: {what}")


def check_function(group: str, role: str, function: Any, parameters: tuple[str, ...], *, sync: bool = False) -> None:
    """See that a declared function can be called with the arguments that it will get.

    Args:
        group: the group's name.
        role: what the function is for.
        function: the function.
        parameters: names of the arguments, all positional.
        sync: it must be no async function.

    Raises:
        ConfigurationError: it cannot; with the function's file and line.
    """
    wanted = f"a {'sync ' if sync else ''}function of ({', '.join(parameters)})"
    if not callable(function):
        raise ConfigurationError(f"group {group}: {role} is {function!r}; it must be {wanted}")
    if sync and is_async(function):
        raise ConfigurationError(f"group {group}: {role} {_named(function)} is async; it must be {wanted}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of a builtin: nothing is known
        return
    try:
        signature.bind(*parameters)
    except TypeError:
        raise ConfigurationError(
            f"group {group}: {role} {_named(function)} takes {signature}; it must be {wanted}"
        ) from None


def check_limits(group: str, **limits: float | None) -> None:
    """See that limits can be met.

    Args:
        group: the group's name.
        limits: by parameter; None is no limit.

    Raises:
        ConfigurationError: naming each one that cannot.
    """
    problems = [
        f"group {group}: {name}={value!r}; it must be {'positive seconds' if name in _SECONDS else '1 or more'}"
        for name, value in limits.items()
        if value is not None and (value <= 0 if name in _SECONDS else value < 1)
    ]
    if problems:
        raise ConfigurationError(problems)


def check_rules(group: str, rules: Any) -> None:
    """See that rules are what `classify` takes.

    Args:
        group: the group's name.
        rules: by class of exception, a class of the taxonomy or a function of the exception.

    Raises:
        ConfigurationError: naming each one that is not.
    """
    if not isinstance(rules, Mapping):
        raise ConfigurationError(f"group {group}: rules={rules!r}; it must be a mapping: {{SomeError: Transient}}")
    problems = []
    for error, rule in rules.items():
        if not (isinstance(error, type) and issubclass(error, BaseException)):
            problems.append(f"group {group}: rules: {error!r} is no class of exceptions")
        elif isinstance(error, type) and issubclass(error, Failure):
            problems.append(f"group {group}: rules: {error.__name__} is of the taxonomy, and says what it is itself")
        elif isinstance(rule, type) and (not issubclass(rule, Failure) or rule is Failure):
            problems.append(f"group {group}: rules: {rule.__name__} is no class of the taxonomy, such as Transient")
        elif not callable(rule):
            problems.append(f"group {group}: rules: {rule!r} for {error.__name__} is neither a class nor a function")
        elif not isinstance(rule, type):
            check_function(group, f"rule for {error.__name__}", rule, ("error",), sync=True)
    if problems:
        raise ConfigurationError(problems)


def check_projection(group: str, *, database: bool, start: str) -> None:
    """See that a group can be a projection.

    Raises:
        ConfigurationError: it cannot, with all reasons.
    """
    problems = []
    if not database:
        problems.append(f"group {group}: a projection is in the database: it does not go with database=False")
    if start != "earliest":
        problems.append(f"group {group}: a projection is made from the beginning: it does not go with start={start!r}")
    if len(group) > MAX_NAME:
        problems.append(f"group {group}: the name of a projection has {MAX_NAME} characters at most")
    if problems:
        raise ConfigurationError(problems)


def check_transactional(
    group: str, *, database: bool | None, step: bool, concurrency: int | None, **limits: float | None
) -> None:
    """See that a Kafka-transactional group asks for nothing that is not in its one transaction (design section 6).

    Args:
        group: the group's name.
        database: as declared; None for nothing.
        step: as declared.
        concurrency: as declared.
        limits: further parameters that such a group cannot keep, None where not declared.

    Raises:
        ConfigurationError: naming each one that does.
    """
    problems = []
    if database:
        problems.append(
            f"group {group}: transactional=True and database=True: a group has its effects in PostgreSQL or in Kafka."
            " With both, one transaction can be committed and the other aborted, and what was published is lost or"
            " doubled. Leave transactional=True out: what such a group publishes goes through the outbox"
        )
    if step:
        problems.append(
            f"group {group}: transactional=True and step=True: runs and their steps are rows of the database, which"
            " a transaction of Kafka does not cover"
        )
    if concurrency is not None and concurrency > 1:
        problems.append(
            f"group {group}: transactional=True and concurrency={concurrency}: an offset is committed with everything"
            " before it, so the handlers of a process run one after the other; start more processes, up to the number"
            " of partitions"
        )
    problems += [
        f"group {group}: transactional=True does not go with {name}: its handlers run one after the other"
        for name, value in limits.items()
        if value is not None
    ]
    if problems:
        raise ConfigurationError(problems)


def _named(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    name = getattr(function, "__qualname__", repr(function))
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else name
