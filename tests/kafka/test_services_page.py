"""docs/services.md does what it says: its files work together as they are printed there."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest
from kafka.conftest import RunningGroup
from kafka.relayed import relaying

from offsetzero.consumers import registry
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.schemas import event as event_module
from offsetzero.settings import Settings
from offsetzero.store.migrate import upgrade
from offsetzero.topics import catalogue, cluster
from support import wait_until

PAGE = (Path(__file__).parents[2] / "docs" / "services.md").read_text()
FILES = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's files in the current folder; what they declare is forgotten afterwards."""
    for name, code in FILES.items():
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(event_module, "_registry", dict(event_module._registry))
    with catalogue.declared_for():
        yield
    for name in FILES:
        sys.modules.pop(name, None)


def test_the_shop_publishes_and_keeps_its_books(
    shop: None,
    settings: Settings,
    running: Callable[[ConsumerGroup], AbstractContextManager[RunningGroup]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    books = registry.load("shop_books:books")
    cluster.ensure(settings, [*catalogue.declared(settings), *catalogue.of_group(settings, "books", ["orders"])])
    monkeypatch.setenv("OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS", settings.kafka.bootstrap_servers)
    monkeypatch.setenv("OFFSETZERO_KAFKA__NAMESPACE", settings.kafka.namespace)
    import_module("shop_notify").main()
    assert re.fullmatch(r"\S*orders/\d, offset 0\n", capsys.readouterr().out)

    orders = import_module("shop_orders")
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        connection.execute("CREATE TABLE orders (id uuid PRIMARY KEY, cents int)")
        connection.commit()
        orders.place(connection, uuid4(), 100)
        orders.place_too(connection, uuid4(), 50)
        connection.commit()
        orders.place(connection, uuid4(), 7)
        connection.rollback()
        connection.execute(_sql("INSERT INTO outbox").replace("7f0c…", str(uuid4())).encode())
        connection.commit()
    with (
        relaying(settings),
        running(books),
        psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as connection,
    ):
        wait_until(lambda: connection.execute("SELECT count(*) FROM processed_events").fetchone() == (4,))
        found = dict(connection.execute("SELECT tenant, cents FROM turnover").fetchall())
    assert found == {"acme": 1250, "": 150 + 1250}


def _sql(beginning: str) -> str:
    """The page's statements that begin so."""
    return next(one for one in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL) if one.startswith(beginning))


def test_a_schema_of_its_own_beside_the_tables_of_an_application(postgres_url: str, shop: None) -> None:
    """An application's own `alembic_version` and `documents` are not touched."""
    statements = _sql("CREATE SCHEMA").split(";")
    name = f"app{uuid4().hex[:8]}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{name}'")
        admin.execute(f"CREATE DATABASE {name} OWNER {name}")
    own = postgres_url.rsplit("/", 1)[0] + "/" + name
    try:
        with psycopg.connect(own, autocommit=True) as admin:
            admin.execute("CREATE TABLE alembic_version (version_num text)")
            admin.execute("INSERT INTO alembic_version VALUES ('of the application')")
            admin.execute("CREATE TABLE documents (title text)")
            for statement in statements[:2]:
                admin.execute(re.sub(r"(AUTHORIZATION|ROLE) offsetzero", rf"\1 {name}", statement).encode())
        url = _as(own, name)
        upgrade(url)
        upgrade(url)
        with psycopg.connect(own, autocommit=True) as application:
            version = application.execute("SELECT version_num FROM public.alembic_version").fetchall()
            assert version == [("of the application",)]
            application.execute("CREATE TABLE orders (id uuid PRIMARY KEY, cents int)")
            with application.transaction():
                application.execute("SET LOCAL search_path = offsetzero, public")
                import_module("shop_orders").place(application, UUID(int=1), 5)
            assert application.execute("SELECT type FROM offsetzero.outbox").fetchall() == [("order.placed",)]
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
            admin.execute(f"DROP ROLE {name}")


def _as(url: str, role: str) -> str:
    """The URL for another role, whose password is its name."""
    return re.sub(r"//[^/]*@", f"//{role}:{role}@", url)
