"""Database work written once for sync and async connections: a generator that yields statements.

    def rename(document_id: UUID, name: str) -> Script[bool]:
        rows = yield "UPDATE documents SET name = %s WHERE id = %s RETURNING id", (name, document_id)
        return bool(rows)

    run(connection, rename(...))            # psycopg.Connection
    await arun(connection, rename(...))     # psycopg.AsyncConnection

A script opens no transaction; it works in the caller's.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias, TypeVar

import psycopg

T = TypeVar("T")
Statement: TypeAlias = tuple[str, tuple[Any, ...]]
Rows: TypeAlias = list[tuple[Any, ...]]
Script: TypeAlias = Generator[Statement, Rows, T]
S = TypeVar("S")
AT_ONCE = 5_000
"""Items that one statement is asked about."""


def in_parts(items: Sequence[S], ask: Callable[[Sequence[S]], Statement]) -> Script[Rows]:
    """The rows of a statement about many items, asked about `AT_ONCE` of them at a time.

    Args:
        items: any number of them.
        ask: makes the statement for some.
    """
    found: Rows = []
    for begin in range(0, len(items), AT_ONCE):
        found += yield ask(items[begin : begin + AT_ONCE])
    return found


def run(connection: psycopg.Connection[Any], script: Script[T]) -> T:
    """Run a script on a sync connection and return what it returns."""
    rows: Rows | None = None
    while True:
        try:
            statement, parameters = script.send(rows)  # type: ignore[arg-type]  # the first send is None
        except StopIteration as stop:
            value: T = stop.value
            return value
        cursor = connection.execute(statement.encode(), parameters)
        rows = cursor.fetchall() if cursor.description else []


async def arun(connection: psycopg.AsyncConnection[Any], script: Script[T]) -> T:
    """Run a script on an async connection and return what it returns."""
    rows: Rows | None = None
    while True:
        try:
            statement, parameters = script.send(rows)  # type: ignore[arg-type]  # the first send is None
        except StopIteration as stop:
            value: T = stop.value
            return value
        cursor = await connection.execute(statement.encode(), parameters)
        rows = await cursor.fetchall() if cursor.description else []
