"""Projections: tables that a group makes of its log, and that can be made anew from offset zero (design section 9)."""

from dataclasses import dataclass

import psycopg
from psycopg import sql

from offsetzero.errors import ConfigurationError
from offsetzero.generation import Generation
from offsetzero.store import generations
from offsetzero.store.database import IN_SCHEMA, Connection
from offsetzero.store.script import run

MAX_NAME = 50
"""Characters of the name of a group that is a projection: its schemas' names must fit PostgreSQL's 63 bytes."""


@dataclass(frozen=True, slots=True)
class Projection:
    """The tables of a group.

        catalogue = ConsumerGroup("catalogue", projection=Projection('''
            CREATE TABLE sizes (document_id uuid PRIMARY KEY, bytes bigint NOT NULL);
        '''))

        @catalogue.handler(DocumentUploaded)
        def note(event: DocumentUploaded, ctx: Context) -> None:
            ctx.connection.execute("INSERT INTO sizes VALUES (%s, %s)", (event.document_id, event.size_bytes))

    They are made once for each generation, in a schema of its own, `catalogue_g1`; handlers name them without it.
    Handlers write nothing else: what is published with `ctx.publish`, and the group's steps of runs, are left out in a
    generation that is not read.

    Args:
        tables: the SQL that makes them, with their indexes; it runs in a transaction. Another one is for the next
            generation: it changes no table that is there.
    """

    tables: str


def open_generation(
    connection: Connection, group: str, projection: Projection, number: int | None, *, follows: bool = True
) -> Generation:
    """The generation of a group that a member works for; a new group's first one is made. In a transaction.

    Args:
        connection: nobody else opens one meanwhile.
        group: its name.
        projection: its tables.
        number: of the generation; None for the one that is read.
        follows: the member reads all that comes; one with a name has none of these.

    Raises:
        ConfigurationError: there is no such generation, or its tables cannot be made.
    """
    if number is None and (number := run(connection, generations.active(group))) is None:
        first = Generation(group)
        make_tables(connection, first, projection)
        return first
    known = {one.number: one for one in run(connection, generations.known(group))}
    if (found := known.get(number)) is None:
        raise ConfigurationError(
            f"group {group}: there is no generation {number}; there {_are(list(known))}"
            if known
            else f"group {group}: it has no generation yet; run it without --generation to make the first"
        )
    if follows and found.name is not None:
        raise ConfigurationError(
            f"group {group}: generation {number}, {found.name}, is what there was at {found.until:%Y-%m-%d %H:%M:%SZ};"
            " it has no members"
        )
    return Generation(group, number)


def make_tables(connection: Connection, generation: Generation, projection: Projection) -> None:
    """Make the schema of a generation with its tables, and record it. In a transaction.

    Raises:
        ConfigurationError: the schema is there, or PostgreSQL refuses the SQL.
    """
    run(connection, generations.add(generation))
    try:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(generation.schema)))
        connection.execute(IN_SCHEMA, (generation.schema, True))
        connection.execute(projection.tables.encode())
    except psycopg.errors.DuplicateSchema as error:
        raise ConfigurationError(
            f"group {generation.group}: the database has a schema {generation.schema} that is not the group's; rename"
            " one of them"
        ) from error
    except psycopg.ProgrammingError as error:
        raise ConfigurationError(f"group {generation.group}: the SQL of its projection: {error}") from error


def _are(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers))
    return f"is generation {shown}" if len(numbers) == 1 else f"are the generations {shown}"
