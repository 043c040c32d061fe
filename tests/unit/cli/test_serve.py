"""The listening socket of the API, and the limit of its open files."""

import socket
import subprocess
import sys

import pytest

from offsetzero.cli import serve

TAKE = """
import resource
from offsetzero.cli import serve
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 1_000))
serve.take_files(2_000)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has it")
def test_connections_ask_a_client_that_sends_nothing_whether_it_is_there() -> None:
    """One whose machine lost power in the middle of an upload would be waited for without end."""
    with serve.listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == serve.SILENT_MS


def test_as_many_files_may_be_open_as_the_machine_allows() -> None:
    ended = subprocess.run([sys.executable, "-c", TAKE], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "1000"
    assert "fewer files may be open than a tenant may have streams" in ended.stdout + ended.stderr
