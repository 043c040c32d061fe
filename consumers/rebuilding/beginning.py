"""Which generation a rebuild makes: the one that was begun and is not ready, or one more."""

from collections.abc import Iterable
from datetime import datetime

import psycopg

from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.projection import make_tables
from offsetzero.consumers.rebuilding import dropping
from offsetzero.errors import RebuildRefused
from offsetzero.generation import Generation
from offsetzero.settings import Settings
from offsetzero.store import generations
from offsetzero.store.generations import Known
from offsetzero.store.script import run


def known(connection: psycopg.Connection, group: str) -> list[Known]:
    """The generations of a group.

    Raises:
        RebuildRefused: it has none yet.
    """
    found = run(connection, generations.known(group))
    if not found:
        raise RebuildRefused(f"group {group}: it has no generation yet; `offsetzero groups run` makes the first")
    return found


def unfinished(found: list[Known]) -> Known | None:
    """The one that was begun and was never read; one with a name is not meant to be."""
    return next((one for one in reversed(found) if one.read_at is None and one.name is None), None)


def begin(
    settings: Settings,
    connection: psycopg.Connection,
    group: ConsumerGroup,
    tiers: Iterable[str],
    name: str | None = None,
    until: datetime | None = None,
) -> Generation:
    """Make the tables of one more generation, in one transaction.

    What Kafka has under its name goes first: a database that was made anew gives a number a second time, and committed
    offsets of the first one would have the members begin behind all that they are to read.

    Args:
        settings: name the cluster.
        connection: of the only one who rebuilds the group; in autocommit.
        group: the declaration.
        tiers: the names of its retry tiers.
        name: of one to look at, which is never read.
        until: the time up to which that has the log.

    Raises:
        ConfigurationError: its SQL is refused.
        TopicError: the cluster refuses, or does not answer.
    """
    assert group.projection is not None  # noqa: S101 - the caller has looked
    generation = Generation(group.name, run(connection, generations.next_number(group.name)))
    dropping.clear(settings, generation, tiers)
    with connection.transaction():
        make_tables(connection, generation, group.projection, group.projection.by_settings(settings))
        if name is not None and until is not None:
            run(connection, generations.call(generation, name, until))
    return generation
