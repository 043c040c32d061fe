"""`offsetzero demo --against`: the demo in a pipeline whose processes run already."""

import socket
import subprocess
import sys

import psycopg
import pytest
from e2e.conftest import Pipeline, environment

from offsetzero.cli.receiver import Receiver
from offsetzero.errors import ServerError

ALLOWED = {"OFFSETZERO_WEBHOOKS__ALLOW_PRIVATE_TARGETS": "true"}


def demo(pipeline: Pipeline, url: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "offsetzero", "demo", "--against", url, *arguments],
        env=environment(pipeline.settings),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def start(pipeline: Pipeline, **env: str) -> str:
    """All processes; the API's address."""
    api = pipeline.start("api", "--port", "0", **env)
    pipeline.start("relay")
    for group in ("indexer", "summariser", "notifier"):
        pipeline.start("groups", "run", group, **env)
    return f"http://127.0.0.1:{api.await_line('api listens')['port']}"


def test_it_passes_twice_in_one_pipeline_and_takes_back_what_it_put_there(pipeline: Pipeline) -> None:
    url = start(pipeline, **ALLOWED)
    for _ in range(2):  # what the first left, its dead letters, is not the second's
        ended = demo(pipeline, url, "--receive-as", "localhost")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert ended.stdout.count("✓") == 5
    with psycopg.connect(pipeline.settings.database_url.get_secret_value()) as connection:
        keys = connection.execute("SELECT count(*), count(revoked_at) FROM api_keys").fetchone()
        documents = connection.execute("SELECT count(*) FROM documents WHERE deleted_at IS NULL").fetchone()
        webhooks = connection.execute("SELECT count(*) FROM webhooks").fetchone()
    assert (keys, documents, webhooks) == ((2, 2), (0,), (0,))


def test_a_pipeline_that_allows_no_private_webhooks_is_told(pipeline: Pipeline) -> None:
    ended = demo(pipeline, start(pipeline))
    assert ended.returncode == 1
    assert "url-refused" in ended.stderr


def test_an_address_of_another_machine_is_told() -> None:
    with pytest.raises(ServerError, match=r"webhooks cannot be received at 192\.0\.2\.1"):
        Receiver("192.0.2.1")


def test_the_receiver_listens_at_its_address_alone() -> None:
    with Receiver("127.0.0.2", "receiver.test") as receiver:
        host, _, port = receiver.url.removeprefix("http://").removesuffix("/hook").partition(":")
        assert host == "receiver.test"
        socket.create_connection(("127.0.0.2", int(port)), timeout=5).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(port)), timeout=5)
