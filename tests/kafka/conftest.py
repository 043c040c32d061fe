"""A consumer group running in the test's process, on the real broker and the real database."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

import psycopg
import pytest
from kafka import enriching

from offsetzero.clock import SYSTEM, Clock
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.record import Record
from offsetzero.consumers.resources import Resources
from offsetzero.consumers.runtime import GroupRuntime
from offsetzero.retry import dead_letters
from offsetzero.retry.dead_letters import DeadLetter
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings
from offsetzero.topics import catalogue, cluster
from support import PATIENCE, wait_until


class RunningGroup:
    """A group's member in a thread of this process."""

    def __init__(
        self,
        group: ConsumerGroup,
        settings: Settings,
        resources: Resources | None = None,
        clock: Clock = SYSTEM,
        generation: int | None = None,
    ) -> None:
        self.runtime = GroupRuntime(group, settings, clock=clock, resources=resources, generation=generation)
        self.left: list[Record] | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"group-{group.name}")
        self._thread.start()
        wait_until(lambda: self.runtime.started.is_set() or self.error, what="the start of the group")

    def _run(self) -> None:
        try:
            self.left = self.runtime.run()
        except BaseException as error:
            self.error = error

    def stop(self) -> list[Record]:
        """End it in order; what it raised is raised here."""
        self.runtime.stop()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the group did not stop"
        if self.error is not None:
            raise self.error
        assert self.left is not None
        return self.left


@pytest.fixture
def topics(settings: Settings) -> None:
    """The catalogue's event topics, on the broker."""
    cluster.ensure(settings, [topic.resolved(settings) for topic in catalogue.TOPICS])


@pytest.fixture
def enriched(settings: Settings, topics: None) -> Iterator[None]:
    """The topic of the outputs of `enriching`, declared in this process and on the broker."""
    with catalogue.declared_for(enriching.ENRICHED):
        enriching.prepare_topics(settings)
        yield


@pytest.fixture
def running(settings: Settings, topics: None) -> Callable[[ConsumerGroup], "contextmanager[RunningGroup]"]:
    """Runs a group for the time of a `with` block."""

    @contextmanager
    def run(group: ConsumerGroup, with_settings: Settings = settings) -> Iterator[RunningGroup]:
        member = RunningGroup(group, with_settings)
        try:
            yield member
        except BaseException as failed:
            if member.error is not None:  # the cause, rather than what the test saw of it
                raise member.error from failed
            member.runtime.stop()
            member._thread.join(60)
            raise
        member.stop()

    return run


@pytest.fixture
def database(settings: Settings) -> Iterator[psycopg.Connection]:
    """The test's database, with a table for effects; each statement commits by itself."""
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE effects (n bigserial, document_id uuid, note text, attempt int, at timestamptz DEFAULT "
            "clock_timestamp())"
        )
        yield connection


def uploaded(document_id: UUID | None = None, run_id: UUID | None = None, name: str = "a.pdf") -> DocumentUploaded:
    """An event that differs in its ids."""
    return DocumentUploaded(
        document_id=document_id or uuid4(),
        tenant_id="acme",
        run_id=run_id or uuid4(),
        name=name,
        content_type="application/pdf",
        uri="file:///nowhere",
        size_bytes=1,
        sha256="0" * 64,
        uploaded_at=SYSTEM.now(),
    )


def effects(database: psycopg.Connection) -> list[tuple[UUID, str, int]]:
    """All effects in the order in which they happened."""
    return database.execute("SELECT document_id, note, attempt FROM effects ORDER BY n").fetchall()


def await_effects(database: psycopg.Connection, count: int, deadline: float = PATIENCE) -> list[tuple[UUID, str, int]]:
    """Wait for so many effects."""
    wait_until(lambda: len(effects(database)) >= count, deadline, what=f"{count} effects")
    return effects(database)


def await_dead_letters(settings: Settings, group: str, count: int, deadline: float = PATIENCE) -> list[DeadLetter]:
    """Wait for so many dead letters."""
    return wait_until(
        lambda: found if len(found := list(dead_letters.read(settings, group))) >= count else [],
        deadline,
        what=f"{count} dead letters of {group}",
    )
