"""PostgreSQL stands still: connections are open and TCP acknowledges, but nothing answers, for as long as it takes."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest
from kafka.conftest import RunningGroup, await_effects, uploaded

from broker_config import DATABASE
from offsetzero.clock import SYSTEM
from offsetzero.consumers import resources
from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.watching.health import Phase
from offsetzero.embedded.postgres import Postgres
from offsetzero.producers.publisher import Publisher
from offsetzero.retry import dead_letters
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings
from offsetzero.store import database as connections
from offsetzero.store.migrate import upgrade
from offsetzero.topics import lag
from support import AT_NIGHT, IS_NIGHT, wait_until, within

Running = Callable[..., contextlib.AbstractContextManager[RunningGroup]]
FROZEN_SECONDS = 45.0 if IS_NIGHT else 15.0
"""Longer than what notices a peer that died: keepalives, tcp_user_timeout, the pool's patience."""
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(autouse=True)
def _sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """By day that takes a third of its time."""
    if not IS_NIGHT:
        for name in ("keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"):
            monkeypatch.setitem(connections._SESSION, name, int(connections._SESSION[name]) // 3)  # type: ignore[call-overload]
        monkeypatch.setattr(resources, "pool", partial(connections.pool, timeout=10.0))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A server that other tests do not use."""
    with Postgres(tmp_path_factory.mktemp("frozen"), config=DATABASE) as postgres:
        yield postgres


@pytest.fixture
def own(settings: Settings, server: Postgres) -> Settings:
    """Settings of the test, on that server."""
    name = settings.kafka.namespace.strip(".")
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    upgrade(server.url(name))
    with psycopg.connect(server.url(name)) as connection:
        connection.execute("CREATE TABLE effects (n bigserial, document_id uuid, note text, attempt int)")
    return settings.model_copy(update={"database_url": type(settings.database_url)(server.url(name))})


@contextlib.contextmanager
def frozen(server: Postgres) -> Generator[None]:
    """All its processes are stopped where they are."""
    os.kill(server.pid, signal.SIGSTOP)  # first: it makes the others
    others = _children(server.pid)
    try:
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in [*others, server.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize("timeout", [pytest.param(None, marks=AT_NIGHT), 1.0], ids=["", "time-limit"])
def test_a_group_waits_for_a_frozen_database_and_goes_on_by_itself(
    own: Settings, server: Postgres, running: Running, timeout: float | None
) -> None:
    audit = ConsumerGroup("audit", timeout=timeout)

    @audit.handler(DocumentUploaded)
    def note(event: DocumentUploaded, ctx: Context) -> None:
        ctx.connection.execute(
            "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, %s)",
            (event.document_id, event.name, ctx.attempt),
        )

    with running(audit, own) as member, Publisher(own) as publisher:
        publisher.publish(uploaded(name="before")).result(10)
        with psycopg.connect(own.database_url.get_secret_value(), autocommit=True) as connection:
            await_effects(connection, 1)
        members = lag.group_state(own, "audit").members
        with frozen(server):
            for _ in range(200):
                publisher.publish(uploaded()).result(10)
            wait_until(lambda: member.runtime.health().degraded, what="it is known")
            until = SYSTEM.monotonic() + FROZEN_SECONDS
            while SYSTEM.monotonic() < until:
                health = member.runtime.health()
                assert (health.alive, health.ready, health.degraded) == (True, True, True)
                assert health.body["polled_seconds_ago"] < 10
                time.sleep(0.1)
            assert health.body["state"] == Phase.DEGRADED
            assert "the database" in health.body["degraded"][0]
            assert lag.group_state(own, "audit").members == members, "its membership is kept"
        came = SYSTEM.monotonic()
        wait_until(lambda: all(one.lag == 0 for one in lag.group_offsets(own, "audit")), 60, what="lag 0")
        print(f"back after {SYSTEM.monotonic() - came:.1f} s")
        wait_until(lambda: not member.runtime.health().degraded, what="it is well")
        with psycopg.connect(own.database_url.get_secret_value(), autocommit=True) as connection:
            rows = connection.execute("SELECT note, attempt, count(*) FROM effects GROUP BY 1, 2 ORDER BY 1").fetchall()
    assert rows == [("a.pdf", 1, 200), ("before", 1, 1)], "each once, and a first attempt"
    assert list(dead_letters.read(own, "audit")) == []
    assert sum(one.high for one in lag.group_offsets(own, "audit") if "retry" in one.topic) == 0


@pytest.mark.timed
@pytest.mark.usefixtures("topics")
def test_a_member_ends_in_time_while_its_database_is_frozen(own: Settings, server: Postgres) -> None:
    """What waits for an answer for ever does not keep the process."""
    audit = ConsumerGroup("audit")
    limits = own.groups.model_copy(update={"drain_seconds": 3.0})
    settings = own.model_copy(update={"groups": limits})

    @audit.handler(DocumentUploaded)
    def note(event: DocumentUploaded, ctx: Context) -> None:
        pass

    with Publisher(settings) as publisher:
        member = RunningGroup(audit, settings)
        publisher.publish(uploaded()).result(10)
        wait_until(
            lambda: sum(one.committed or 0 for one in lag.group_offsets(settings, "audit")) == 1, what="the first"
        )
        with frozen(server):
            for _ in range(20):
                publisher.publish(uploaded()).result(10)
            wait_until(lambda: member.runtime.running() > 0, what="what waits")
            begun = SYSTEM.monotonic()
            left = member.stop()
            within(3.0 + 15.0, SYSTEM.monotonic() - begun, "its end")
    assert left, "they are read again"
