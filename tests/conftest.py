"""Fixtures of all tests: real servers, shared by the workers of a run, and settings of a test's own on them."""

import fcntl
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import psycopg
import pytest
import structlog

import backends  # tests/ is on the path, and no package
import servers as shared
from offsetzero.settings import Settings
from support import IS_TIMED

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

Aside: TypeAlias = Callable[[Callable[[], None]], None]

_TEMPLATE = "offsetzero_template"
_TEMPLATE_LOCK = 4_711
_RUN = "OZ_TEST_RUN"
_OWNER = "OZ_TEST_OWNER"


_TESTS = Path(__file__).parent
_WITH_SERVERS = frozenset({"chaos", "contract", "e2e", "kafka", "mock_broker"})
_SHOWN = 20_000

_KEPT = "OZ_TEST_SERVERS"
_BECAUSE = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where Kafka and PostgreSQL of the tests run."""
    parser.addoption(
        "--servers",
        choices=list(backends.Kind),
        help="the tests' Kafka and PostgreSQL: packages on this machine, containers, or those that "
        f"{' and '.join(backends.EXTERNAL.values())} name (default: containers when a Docker engine answers that "
        "has or reaches their images, else embedded)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The process that starts the run chooses the servers, and the folder where its workers meet."""
    if hasattr(config, "workerinput"):
        config.option.servers = config.workerinput["servers"]
    else:
        try:
            config.option.servers, config.stash[_BECAUSE] = backends.choose(config.option.servers)
        except backends.Unavailable as error:
            raise pytest.UsageError(str(error)) from None
    if _RUN not in os.environ:
        os.environ[_RUN] = tempfile.mkdtemp(prefix="oz-tests-")
        os.environ[_OWNER] = str(os.getpid())


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist what was chosen."""
    node.workerinput["servers"] = str(node.config.option.servers)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say which servers are used."""
    if _KEPT in os.environ:
        return f"servers: kept behind {os.environ[_KEPT]}"
    return f"servers: {config.option.servers} ({config.stash[_BECAUSE]})" if _BECAUSE in config.stash else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test with real servers and processes gets a second try: what the machine does meanwhile is not in its hands.

    A failure of both fails the run. One of the first alone is shown whole at the end of it, and counted in its last
    line: it is looked into all the same. The nightly proofs, and those of times, have one try.
    """
    if IS_TIMED:
        return
    for item in items:
        if item.path.relative_to(_TESTS).parts[0] in _WITH_SERVERS:
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show what made a test try again."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"first try of {report.nodeid}", sep="_")
        terminalreporter.write_line(report.longreprtext)
        for name, text in report.sections:
            terminalreporter.section(name, sep="-")
            terminalreporter.write_line(text[-_SHOWN:])


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch images before the tests, whose time is limited."""
    uses = any("_servers" in getattr(item, "fixturenames", ()) for item in session.items)
    if uses and session.config.option.servers == backends.Kind.CONTAINERS and _KEPT not in os.environ:
        import containers
        import engine

        with _alone():
            engine.pull(containers.IMAGES)


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


@pytest.fixture(scope="session", autouse=True)
def _no_cached_loggers() -> Iterator[None]:
    """A logger that a test has used looks anew for the next one how the logs are set up."""
    configure = structlog.configure
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            structlog, "configure", lambda **given: configure(**{**given, "cache_logger_on_first_use": False})
        )
        yield


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """What a test has set up for the logs of this process ends with it: the next one's lines are pytest's again."""
    root = logging.getLogger()
    handlers, level, before = list(root.handlers), root.level, structlog.get_config()
    yield
    for handler in [one for one in root.handlers if type(one) is logging.StreamHandler and one not in handlers]:
        root.removeHandler(handler)
    root.setLevel(level)
    structlog.configure(**before)


@pytest.fixture(scope="session")
def _servers(request: pytest.FixtureRequest) -> Iterator[shared.Connection]:
    given = os.environ.get(_KEPT)
    if given:
        connection = shared.Connection(Path(given))
        yield connection
        connection.close()
        return
    kind = backends.Kind(request.config.option.servers)
    with _alone() as folder:
        connection = shared.connect(folder / "servers.sock", kind)
    yield connection
    connection.close()


@contextmanager
def _alone() -> Iterator[Path]:
    """One worker of the run at a time; its folder."""
    folder = Path(os.environ[_RUN])
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


@pytest.fixture(scope="session")
def kafka_bootstrap(_servers: shared.Connection) -> str:
    """`host:port` of a real broker."""
    return _servers.ask("kafka")


@pytest.fixture(scope="session")
def postgres_url(_servers: shared.Connection) -> str:
    """URL of the database `postgres` on a real server, as its superuser."""
    return _servers.ask("postgres")


@pytest.fixture(scope="session")
def _template(request: pytest.FixtureRequest, postgres_url: str) -> str:
    """A migrated database that others are copied from; made once for all workers, anew on a server that stays."""
    stays = _KEPT in os.environ or request.config.option.servers == backends.Kind.EXTERNAL
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (_TEMPLATE_LOCK,))
        found = connection.execute("SELECT FROM pg_database WHERE datname = %s", (_TEMPLATE,)).fetchone()
        if found is None or stays:
            from offsetzero.store.migrate import upgrade

            connection.execute(f"DROP DATABASE IF EXISTS {_TEMPLATE}_new")
            # The locale of the embedded servers and of docker-compose.yml, whatever the server's own is.
            builtin = connection.info.server_version >= 170_000
            locale = "TEMPLATE template0 LOCALE 'C' LOCALE_PROVIDER builtin BUILTIN_LOCALE 'C.UTF-8'" if builtin else ""
            connection.execute(f"CREATE DATABASE {_TEMPLATE}_new {locale} ENCODING 'UTF8'")
            upgrade(database(postgres_url, f"{_TEMPLATE}_new"))
            connection.execute(f"DROP DATABASE IF EXISTS {_TEMPLATE}")
            connection.execute(f"ALTER DATABASE {_TEMPLATE}_new RENAME TO {_TEMPLATE}")
    return _TEMPLATE


@pytest.fixture(scope="session")
def _aside(_servers: shared.Connection) -> Iterator[Aside]:
    """Has something done that the next test need not wait for; what went wrong there is told at the end."""
    begun: list[Future[None]] = []
    with ThreadPoolExecutor(1, "aside") as executor:
        yield lambda work: begun.append(executor.submit(work))
    for one in begun:
        one.result()


@pytest.fixture
def database_url(postgres_url: str, _template: str, _aside: Aside) -> Iterator[str]:
    """URL of a fresh, migrated database of the test's own."""
    name = f"t{secrets.token_hex(6)}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock_shared(%s)", (_TEMPLATE_LOCK,))
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {_template} STRATEGY FILE_COPY")
    yield database(postgres_url, name)

    def drop() -> None:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    _aside(drop)


@pytest.fixture
def namespace() -> str:
    """A prefix of topics and groups that no other test has."""
    return f"t{secrets.token_hex(5)}."


@pytest.fixture(scope="session")
def _admin(kafka_bootstrap: str) -> "AdminClient":
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": kafka_bootstrap, "log_level": 0})


@pytest.fixture
def settings(
    kafka_bootstrap: str, database_url: str, namespace: str, tmp_path: Path, _admin: "AdminClient", _aside: Aside
) -> Iterator[Settings]:
    """Settings of a process on the real servers: namespace, database and home of the test's own, short delays."""
    made = Settings(
        home=tmp_path,
        database_url=database_url,
        kafka={"bootstrap_servers": kafka_bootstrap, "namespace": namespace},
        retry={"delays": {"retry-1m": 1.0, "retry-10m": 2.0}},
        webhooks={"delays": {"retry-5s": 1.0, "retry-5m": 2.0}},
    )
    yield made

    def delete() -> None:
        mine = [name for name in _admin.list_topics(timeout=60).topics if name.startswith(namespace)]
        if mine:
            for deleted in _admin.delete_topics(mine, operation_timeout=5).values():
                deleted.exception(60)

    _aside(delete)


def database(url: str, name: str) -> str:
    """The URL of another database on the same server."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()
