"""A declaration that cannot work is refused where it is written."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from offsetzero import ConsumerGroup, Context, DocumentUploaded, Event
from offsetzero.errors import ConfigurationError

HERE = r"test_declaring\.py:\d+"


@pytest.fixture
def group() -> ConsumerGroup:
    return ConsumerGroup("audit")


class Base(Event):
    pass


@pytest.mark.parametrize("decorator", ["handler", "prepare"])
@pytest.mark.parametrize(
    ("event", "said"),
    [
        ("document.uploaded", "'document.uploaded' is a name; give the event's class, DocumentUploaded"),
        ("nothing.known", "'nothing.known' is a name; give the event's class$"),
        (lambda event, ctx: None, "<lambda> is no event; give its class"),
        (int, "int is no event"),
        (Base, "Base has no event type"),
    ],
)
def test_what_is_no_event_class_is_refused(group: ConsumerGroup, decorator: str, event: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"group audit: {decorator} in .*{HERE}: {said}"):
        getattr(group, decorator)(event)
    assert not group.routes


@pytest.mark.parametrize(
    "declared",
    [lambda: None, lambda event: None, lambda event, ctx, more: None, lambda event, *, ctx: None],
)
@pytest.mark.parametrize("role", ["handler", "prepare", "tombstone"])
def test_a_function_that_cannot_take_what_it_will_get_is_refused(
    group: ConsumerGroup, role: str, declared: Callable[..., Any]
) -> None:
    declare = group.tombstone if role == "tombstone" else getattr(group, role)(DocumentUploaded)
    with pytest.raises(ConfigurationError, match=rf"group audit: {role} <lambda> \(.*{HERE}\) takes \("):
        declare(declared)
    assert not group.routes
    assert group.tombstones is None


def test_a_setup_takes_one_connection_and_is_no_coroutine(group: ConsumerGroup) -> None:
    async def later(connection: Any) -> None: ...

    with pytest.raises(ConfigurationError, match=r"setup .*later \(.*\) is async; it must be a sync function"):
        group.setup(later)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"must be a sync function of \(connection\)"):
        group.setup(lambda: None)  # type: ignore[misc, arg-type]
    with pytest.raises(ConfigurationError, match=r"setup is 'tables'; it must be"):
        group.setup("tables")  # type: ignore[arg-type]


def test_whatever_can_be_called_with_two_arguments_is_taken(group: ConsumerGroup) -> None:
    class Service:
        def handle(self, event: DocumentUploaded, ctx: Context) -> None: ...

        async def __call__(self, event: DocumentUploaded, ctx: Context, more: int = 0) -> None: ...

    for function in (Service().handle, Service(), partial(lambda n, event, ctx: None, 1), lambda *both: None, print):
        ConsumerGroup("audit").handler(DocumentUploaded)(function)
        ConsumerGroup("audit").prepare(DocumentUploaded)(function)
        group.tombstone(function)
    group.setup(lambda connection: None)


def test_a_start_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="start is 'newest'; it must be 'earliest' or 'latest'"):
        ConsumerGroup("audit", start="newest")  # type: ignore[arg-type]
    assert ConsumerGroup("audit", start="latest").start == "latest"


def test_a_group_without_a_database_cannot_start_at_the_latest() -> None:
    with pytest.raises(ConfigurationError, match="start='latest' needs the database"):
        ConsumerGroup("audit", start="latest", database=False)
