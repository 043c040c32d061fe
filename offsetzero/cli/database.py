"""The database of a command that needs nothing else."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offsetzero.store.database import Connection


@contextmanager
def opened() -> "Iterator[Connection]":
    """The database, in one transaction.

    Raises:
        ConfigurationError: it has not this version's tables.
    """
    import psycopg

    from offsetzero import settings
    from offsetzero.errors import ConfigurationError

    config = settings.load(needs=frozenset({"database"}))
    try:
        with psycopg.connect(config.database_url.get_secret_value(), connect_timeout=10) as connection:
            yield connection
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
        raise ConfigurationError("the database lacks this version's tables; run `offsetzero migrate`") from error
