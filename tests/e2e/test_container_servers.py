"""The tests' servers in containers: nothing is left of them, however their owner ends."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import docker
import docker.errors
import psycopg
import pytest

from containers import LABEL, Postgres
from support import wait_until

_OWNER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from containers import Postgres
server = Postgres()
server.start()
print(server.get_container_id(), flush=True)
time.sleep(600)
"""
TESTS = Path(__file__).parents[1]


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[docker.DockerClient]:
    if request.config.option.servers != "containers":
        pytest.skip("the tests' servers are no containers")
    client = docker.from_env()
    yield client
    client.close()


def exists(engine: docker.DockerClient, container: str) -> bool:
    """Whether the engine knows the container, running or not."""
    try:
        engine.containers.get(container)
    except docker.errors.NotFound:
        return False
    return True


def test_a_container_is_removed_when_its_owner_is_killed(engine: docker.DockerClient) -> None:
    owner = subprocess.Popen([sys.executable, "-c", _OWNER, str(TESTS)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout:
        container = owner.stdout.readline().strip()
        assert container in {one.id for one in engine.containers.list(filters={"label": LABEL})}
        owner.kill()
        owner.wait()
    wait_until(lambda: not exists(engine, container), what="the end of the container")


def test_a_container_listens_on_loopback_with_a_password_and_is_removed_in_order(engine: docker.DockerClient) -> None:
    server = Postgres()
    server.start()
    try:
        container = server.get_container_id()
        url = server.get_connection_url(driver=None)
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone() == (
                True,
            )
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(url, password="wrong")
        bindings = engine.containers.get(container).attrs["NetworkSettings"]["Ports"]["5432/tcp"]
        if server.get_container_host_ip() == "127.0.0.1":
            assert {one["HostIp"] for one in bindings} == {"127.0.0.1"}
    finally:
        server.stop()
    wait_until(lambda: not exists(engine, container), what="the end of the container")
