"""Groups as people name them: GROUP is the generation of it that is read, GROUP.gN is generation N."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from offsetzero.generation import Generation

HELP = "Its generation that is read; GROUP.g2 is the second one, whichever is read, and GROUP.g1 the first."


def known_as(name: str) -> str:
    """What Kafka knows a group by.

    Args:
        name: as it was typed.

    Raises:
        psycopg.Error: the database does not say which generation is read.
    """
    return _known_as([name])[0]


def listed(names: list[str] | None) -> list[str] | None:
    """The same of many, or of none, to be looked at: while the database is away that is said, and names are Kafka's."""
    import psycopg

    try:
        return _known_as(names) if names else names
    except psycopg.OperationalError as error:
        print(f"Names are taken as Kafka knows them: {str(error).strip()}", file=sys.stderr)
        return [Generation.named(name).name for name in names or ()]


def if_any(name: str | None) -> str | None:
    """The same of one that may be left out."""
    return known_as(name) if name is not None else None


Name = Annotated[str, typer.Argument(metavar="GROUP", help=HELP, callback=known_as)]


def _known_as(names: Sequence[str]) -> list[str]:
    import psycopg

    from offsetzero import settings
    from offsetzero.store import generations
    from offsetzero.store.script import run

    url = settings.load().database_url.get_secret_value()
    if not url or all(Generation.named(name).group != name for name in names):
        return [Generation.named(name).name for name in names]
    with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
        try:
            found = [run(connection, generations.meant(name)).name for name in names]
        except psycopg.errors.UndefinedTable:  # of an older version, or somebody else's: it has no generations
            return [Generation.named(name).name for name in names]
    for name, meant in zip(names, found, strict=True):
        if meant not in (name, Generation.named(name).name):
            print(f"{name}: {meant} is the generation that is read.", file=sys.stderr)
    return found
