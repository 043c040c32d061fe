"""Drop generations: their tables, and what Kafka has of them."""

import time
from collections.abc import Callable, Iterable, Sequence

import psycopg
from confluent_kafka import KafkaError, KafkaException

from offsetzero.clock import SYSTEM
from offsetzero.errors import RebuildRefused, TopicError
from offsetzero.generation import Generation
from offsetzero.settings import Settings
from offsetzero.store import drops, embeddings, vectors
from offsetzero.store.script import run
from offsetzero.topics import cluster, lag
from offsetzero.topics.admin import TIMEOUT, client, error_of
from offsetzero.topics.catalogue import DLQ, REDRIVE
from offsetzero.topics.names import Names

AT_ONCE = 20_000
"""Rows that are deleted in one transaction."""
TELL_SECONDS = 5.0
LOCK_SECONDS = 2.0  # for the transactions of the group: those that come later wait meanwhile
PAUSE_SECONDS = 10.0
_GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND})


def drop(
    settings: Settings,
    connection: psycopg.Connection,
    group: str,
    numbers: Sequence[int],
    tiers: Iterable[str],
    tell: Callable[[str], None],
) -> None:
    """Drop these, and finish what was begun of others. May be repeated: what is gone is gone.

    Args:
        settings: name the cluster.
        connection: to the database; in autocommit.
        group: its name.
        numbers: of generations that are not read.
        tiers: the names of the group's retry tiers.
        tell: told what goes on.

    Raises:
        RebuildRefused: one of them is read, or has members.
        TopicError: the cluster refuses, or does not answer.
    """
    for number in numbers:
        generation = Generation(group, number)
        if members := lag.group_state(settings, generation.name).members:
            count = "a member" if len(members) == 1 else f"{len(members)} members"
            raise RebuildRefused(f"group {group}: generation {number} has {count}; stop them first")
        if not _end(connection, generation, tell):
            raise RebuildRefused(f"group {group}: generation {number} is read; nothing was dropped")
        tell(f"Done: generation {number} is dropped")
    for number in run(connection, drops.dropped(group)):
        generation = Generation(group, number)
        with connection.transaction():
            run(connection, drops.clear(generation))
        _forget(connection, generation, tell)
        clear(settings, generation, tiers)
    named = settings.embeddings
    settled = embeddings.Model(named.model, named.dimensions) if named.base_url else None
    for model in run(connection, vectors.unused(group, settled)):
        gone = 0
        while some := run(connection, embeddings.forget_model(model, AT_ONCE)):
            gone += some
        if gone:
            tell(f"Done: {gone:,} vectors of {model} are deleted, which no generation is of any more")


def _forget(connection: psycopg.Connection, generation: Generation, tell: Callable[[str], None]) -> None:
    gone, told_at = 0, SYSTEM.monotonic()
    while count := run(connection, drops.forget(generation, AT_ONCE)):
        gone += count
        if SYSTEM.monotonic() - told_at >= TELL_SECONDS:
            told_at = SYSTEM.monotonic()
            tell(f"Generation {generation.number}: {gone:,} rows are deleted; interrupted, the same command goes on")


def _end(connection: psycopg.Connection, generation: Generation, tell: Callable[[str], None]) -> bool:
    """Have it exist no more; False when it is read. While a handler takes long, others do not wait behind this."""
    while True:
        try:
            with connection.transaction():
                return run(connection, drops.drop(generation, LOCK_SECONDS))
        except psycopg.errors.LockNotAvailable:
            tell(f"Generation {generation.number} waits for who reads it, or for a handler that takes long")
            time.sleep(PAUSE_SECONDS)


def clear(settings: Settings, generation: Generation, tiers: Iterable[str]) -> None:
    """Delete the topics of a generation, and what Kafka holds of its consumer group."""
    names, admin = Names(settings.kafka.namespace), client(settings)
    existing = cluster.partitions(settings)
    own = [f"{generation.name}.{part}" for part in [*tiers, REDRIVE, DLQ]]
    found = [names.topic(topic) for topic in own if topic in existing]
    futures = dict(admin.delete_topics(found, request_timeout=TIMEOUT)) if found else {}
    if generation.name in lag.groups(settings):
        futures |= admin.delete_consumer_groups([names.group(generation.name)], request_timeout=TIMEOUT)
    for name, future in futures.items():
        try:
            future.result(TIMEOUT)
        except KafkaException as error:
            if error_of(error).code() not in _GONE:
                raise TopicError(f"{name} was not deleted: {error_of(error).str()}") from error
