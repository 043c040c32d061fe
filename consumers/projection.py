"""Projections: tables that a group makes of its log, and that can be made anew from offset zero (design section 9)."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from offsetzero.errors import ConfigurationError
from offsetzero.generation import Generation
from offsetzero.settings import PREFIX, Settings
from offsetzero.store import generations, indexes, made_with
from offsetzero.store.database import IN_SCHEMA, Connection
from offsetzero.store.generations import Known
from offsetzero.store.script import Script, run

MAX_NAME = 50
"""Characters of the name of a group that is a projection: its schemas' names must fit PostgreSQL's 63 bytes."""


@dataclass(frozen=True, slots=True)
class Extra:
    """What a generation has besides the tables of its projection, because settings say so.

    Attributes:
        made_with: is written down with the generation (`offsetzero.store.made_with`); a member with another one does
            not work for it.
        tables: the SQL that makes what it has.
        indexes: that are made when it has read the log: their names, and what comes after ON in their SQL.
        require: sees that the database has what it takes, and raises ConfigurationError.
    """

    made_with: Mapping[str, Any]
    tables: str
    indexes: Mapping[str, str]
    require: Callable[[], Script[None]]


def no_extra(_settings: Settings) -> Extra | None:
    """Of projections that are the same whatever the settings say."""
    return None


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
        by_settings: what a generation has besides, by the settings of who makes it.
        indexes: that no handler needs: their names, and what comes after ON in their SQL. The first generation has them
            from its beginning; a rebuild makes them of all that was read, before the generation is, which takes half of
            what it costs to keep them meanwhile.
    """

    tables: str
    by_settings: Callable[[Settings], Extra | None] = no_extra
    indexes: Mapping[str, str] = field(default_factory=dict)


def open_generation(
    connection: Connection,
    group: str,
    projection: Projection,
    number: int | None,
    extra: Extra | None = None,
    *,
    follows: bool = True,
) -> Generation:
    """The generation of a group that a member works for; a new group's first one is made. In a transaction.

    Args:
        connection: nobody else opens one meanwhile.
        group: its name.
        projection: its tables.
        number: of the generation; None for the one that is read.
        extra: what the settings of the member say that a generation has besides.
        follows: the member reads all that comes; one with a name has none of these.

    Raises:
        ConfigurationError: there is no such generation, it is not what the settings say, or its tables cannot be made.
    """
    if number is None and (number := run(connection, generations.active(group))) is None:
        first = Generation(group)
        make_tables(connection, first, projection, extra)
        _index_now(connection, projection.indexes)
        if extra is not None:
            _index_now(connection, extra.indexes)
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
    generation = Generation(group, number)
    if extra is not None and not found.made_with and _is_empty(connection, generation):
        _make_extra(connection, generation, extra)
        _index_now(connection, extra.indexes)
    else:
        refuse_another(group, found, extra)
    return generation


def is_as_settings_say(found: Known, extra: Extra | None) -> bool:
    """Whether a generation was made with what the settings say that it has besides its tables."""
    return (found.made_with or None) == (extra.made_with if extra is not None else None)


def refuse_another(group: str, found: Known, extra: Extra | None) -> None:
    """See that a generation is what the settings say.

    Args:
        group: its name.
        found: the generation.
        extra: what the settings say that it has besides.

    Raises:
        ConfigurationError: it was made otherwise.
    """
    if is_as_settings_say(found, extra):
        return
    wanted = extra.made_with if extra is not None else None
    sections = ", ".join(f"{PREFIX}{name.upper()}__…" for name in sorted({*(found.made_with or {}), *(wanted or {})}))
    raise ConfigurationError(
        f"group {group}: generation {found.number} was made {_shown(found.made_with)}, and the settings ({sections})"
        f" say {_shown(wanted)}: the two are never mixed. `offsetzero rebuild {group}` makes a generation as they say"
        f" and has it read; until then have members of generation {found.number} run with the settings of before"
    )


def make_tables(
    connection: Connection, generation: Generation, projection: Projection, extra: Extra | None = None
) -> None:
    """Make the schema of a generation with its tables, and record it. In a transaction.

    Args:
        connection: its search path finds the generation's tables first from then on.
        generation: which.
        projection: of the group.
        extra: what it has besides.

    Raises:
        ConfigurationError: the schema is there, PostgreSQL refuses the SQL, or lacks what it takes.
    """
    run(connection, generations.add(generation))
    try:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(generation.schema)))
        connection.execute(IN_SCHEMA, (generation.schema, True))
        connection.execute(projection.tables.encode())
        if extra is not None:
            _make_extra(connection, generation, extra)
    except psycopg.errors.DuplicateSchema as error:
        raise ConfigurationError(
            f"group {generation.group}: the database has a schema {generation.schema} that is not the group's; rename"
            " one of them"
        ) from error
    except psycopg.ProgrammingError as error:
        raise ConfigurationError(f"group {generation.group}: the SQL of its projection: {error}") from error


def make_indexes(
    connection: Connection, generation: Generation, projection: Projection, extra: Extra | None = None
) -> list[str]:
    """Make the indexes of a generation that come when it has read the log, those that it lacks.

    Those of its settings are made while its writers go on; for the others they wait, but nobody for a reader elsewhere.

    Args:
        connection: of its own, in autocommit; its search path finds the generation's tables first from then on.
        generation: which.
        projection: of the group.
        extra: what it has besides.

    Returns:
        The names of those that were made.

    Raises:
        psycopg.Error: PostgreSQL refuses; the same call does the rest.
    """
    connection.execute(IN_SCHEMA, (generation.schema, False))
    made = [name for name, columns in projection.indexes.items() if indexes.make_at_once(connection, name, columns)]
    if extra is not None:
        made += [name for name, columns in extra.indexes.items() if indexes.make(connection, name, columns)]
    return made


def _make_extra(connection: Connection, generation: Generation, extra: Extra) -> None:
    run(connection, extra.require())
    run(connection, made_with.write(generation, extra.made_with))
    connection.execute(IN_SCHEMA, (generation.schema, True))
    connection.execute(extra.tables.encode())


def _index_now(connection: Connection, late: Mapping[str, str]) -> None:
    """Of a generation without rows, which is read from its first one on."""
    for name, columns in late.items():
        connection.execute(f"CREATE INDEX {name} ON {columns}".encode())


def _is_empty(connection: Connection, generation: Generation) -> bool:
    """Whether nothing has come to it yet, so that it is what any settings would have made. Then nothing comes until the
    transaction ends."""
    if _has_rows(connection, generation):
        return False  # nobody waits for this
    run(connection, generations.hold_pointer(generation.group))
    return not _has_rows(connection, generation)


def _has_rows(connection: Connection, generation: Generation) -> bool:
    found = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(quote_ident(%s)) AND relkind IN ('r', 'p')",
        (generation.schema,),
    ).fetchall()
    query = sql.SQL("SELECT EXISTS (SELECT FROM {})")
    return any(
        connection.execute(query.format(sql.Identifier(generation.schema, table))).fetchone() == (True,)
        for (table,) in found
    )


def _shown(made: Mapping[str, Any] | None) -> str:
    return "with " + ", ".join(f"{name} {json.dumps(one)}" for name, one in made.items()) if made else "without"


def _are(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers))
    return f"is generation {shown}" if len(numbers) == 1 else f"are the generations {shown}"
