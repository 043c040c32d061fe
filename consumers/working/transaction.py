"""The handler's transaction: what fails in it is told apart, and what it leaves behind is looked at."""

import inspect
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from offsetzero.consumers.context import BatchContext, Context
from offsetzero.errors import ConfigurationError
from offsetzero.retry.failures import Bug
from offsetzero.store.availability import is_away, is_conflict


class NotNow(Exception):
    """The group's own database cannot serve: the same attempt once more, a little later."""


class NotBeside(Exception):
    """A member has died while it worked on the record: it must not be begun while anything else is in work."""


class HandlerRaised(Exception):
    """A function of the group failed; what it raised is the cause."""


@contextmanager
def own_database() -> Generator[None]:
    """Around our own statements: an outage or a lost race is no failure of the record.

    Nor are tables of an older version. Records wait for `offsetzero migrate` then; one after the other would fail else.
    """
    try:
        yield
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
        said = f"the database lacks this version's tables; run `offsetzero migrate`: {error}"
        raise NotNow from ConfigurationError(said)
    except Exception as error:
        if is_away(error) or is_conflict(error):
            raise NotNow from error
        raise


@contextmanager
def in_handler(
    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], ctx: Context | BatchContext
) -> Generator[None]:
    """Give the handler the transaction, and see that it leaves it in a state that can be committed.

    Raises:
        HandlerRaised: with what the handler raised, whatever it was.
    """
    ctx.connection = connection
    try:
        yield
    except GeneratorExit:  # its thread is no more: nobody is told
        raise
    except BaseException as error:
        raise HandlerRaised from error
    finally:
        ctx.connection = None
    if connection.info.transaction_status is not TransactionStatus.INTRANS:
        # COMMIT of a failed transaction is a ROLLBACK that reports no error: the effect would be lost.
        raise HandlerRaised from Bug("transaction-failed", "the handler went on after a failed statement")


def checked(result: Any) -> Any:
    """What a sync function returned; an awaitable would be dropped, and its effect with it.

    Raises:
        Bug: it is an awaitable.
    """
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise Bug("returned-awaitable", "a function that is not async returned an awaitable: declare it with async def")
    return result


def is_async(function: Any) -> bool:
    """Whether calling it gives a coroutine: async functions, and objects with an async `__call__`."""
    if function is None:
        return False
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
