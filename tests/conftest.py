"""Fixtures of all tests: real servers, shared by the workers of a run, and settings of a test's own on them."""

import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import servers as shared  # tests/ is on the path, and no package
from offsetzero.settings import Settings

_TEMPLATE = "offsetzero_template"
_TEMPLATE_LOCK = 4_711
_RUN = "OZ_TEST_RUN"
_OWNER = "OZ_TEST_OWNER"


def pytest_configure() -> None:
    """The process that starts the run chooses the folder where its workers meet."""
    if _RUN not in os.environ:
        os.environ[_RUN] = tempfile.mkdtemp(prefix="oz-tests-")
        os.environ[_OWNER] = str(os.getpid())


def pytest_unconfigure() -> None:
    """Leave when the shared servers have stopped."""
    if os.environ.get(_OWNER) == str(os.getpid()):
        folder = Path(os.environ.pop(_RUN))
        shared.await_end(folder)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def _clean_environment() -> Iterator[None]:
    """No setting of the machine or of a running `offsetzero up` reaches a test."""
    patch = pytest.MonkeyPatch()
    for name in [name for name in os.environ if name.startswith("OFFSETZERO_")]:
        patch.delenv(name)
    with tempfile.TemporaryDirectory(prefix="offsetzero-home-") as home:
        patch.setenv("OFFSETZERO_HOME", home)
        yield
    patch.undo()


@pytest.fixture(scope="session")
def _servers() -> Iterator[shared.Connection]:
    given = os.environ.get("OZ_TEST_SERVERS")
    if given:
        connection = shared.Connection(Path(given))
        yield connection
        connection.close()
        return
    folder = Path(os.environ[_RUN])
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        connection = shared.connect(folder / "servers.sock")
    yield connection
    connection.close()


@pytest.fixture(scope="session")
def kafka_bootstrap(_servers: shared.Connection) -> str:
    """`host:port` of a real broker."""
    return _servers.ask("kafka")


@pytest.fixture(scope="session")
def postgres_url(_servers: shared.Connection) -> str:
    """URL of the database `postgres` on a real server, as its superuser."""
    return _servers.ask("postgres")


@pytest.fixture(scope="session")
def _template(postgres_url: str) -> str:
    """A migrated database that others are copied from; made once for all workers."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (_TEMPLATE_LOCK,))
        found = connection.execute("SELECT FROM pg_database WHERE datname = %s", (_TEMPLATE,)).fetchone()
        if found is None or "OZ_TEST_SERVERS" in os.environ:
            from offsetzero.store.migrate import upgrade

            connection.execute(f"DROP DATABASE IF EXISTS {_TEMPLATE}_new")
            connection.execute(f"CREATE DATABASE {_TEMPLATE}_new")
            upgrade(database(postgres_url, f"{_TEMPLATE}_new"))
            connection.execute(f"DROP DATABASE IF EXISTS {_TEMPLATE}")
            connection.execute(f"ALTER DATABASE {_TEMPLATE}_new RENAME TO {_TEMPLATE}")
    return _TEMPLATE


@pytest.fixture
def database_url(postgres_url: str, _template: str) -> Iterator[str]:
    """URL of a fresh, migrated database of the test's own."""
    name = f"t{secrets.token_hex(6)}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock_shared(%s)", (_TEMPLATE_LOCK,))
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {_template} STRATEGY FILE_COPY")
    yield database(postgres_url, name)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def namespace() -> str:
    """A prefix of topics and groups that no other test has."""
    return f"t{secrets.token_hex(5)}."


@pytest.fixture
def settings(kafka_bootstrap: str, database_url: str, namespace: str, tmp_path: Path) -> Iterator[Settings]:
    """Settings of a process on the real servers: namespace, database and home of the test's own, short delays."""
    from confluent_kafka.admin import AdminClient

    made = Settings(
        home=tmp_path,
        database_url=database_url,
        kafka={"bootstrap_servers": kafka_bootstrap, "namespace": namespace},
        retry={"delays": {"retry-1m": 1.0, "retry-10m": 2.0}},
    )
    yield made
    client = AdminClient({"bootstrap.servers": kafka_bootstrap, "log_level": 0})
    mine = [name for name in client.list_topics(timeout=10).topics if name.startswith(namespace)]
    if mine:
        for deleted in client.delete_topics(mine, operation_timeout=5).values():
            deleted.exception(10)


def database(url: str, name: str) -> str:
    """The URL of another database on the same server."""
    return url.rsplit("/", 1)[0] + "/" + name
