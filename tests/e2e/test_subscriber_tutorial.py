"""docs/tutorials/add-a-subscriber.md, step by step: its files are written, its commands run, as they stand there."""

import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest
from e2e.conftest import Pipeline, environment

from offsetzero.imports import import_module
from offsetzero.retry.failures import Permanent, Transient

PAGE = (Path(__file__).parents[2] / "docs" / "tutorials" / "add-a-subscriber.md").read_text()
STEPS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
FILES = {code.split("\n", 1)[0].removeprefix("# "): code for language, code in STEPS if language == "python"}


def test_the_tutorial_does_what_it_says(pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.start_intake()
    variables = {
        **environment(pipeline.settings),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "API": str(pipeline.client.base_url).rstrip("/"),
        "KEY": pipeline.client.headers["Authorization"].removeprefix("Bearer "),
    }
    monkeypatch.chdir(tmp_path)
    said = []
    for language, text in STEPS:
        if language == "python":
            (tmp_path / text.split("\n", 1)[0].removeprefix("# ")).write_text(text)
        elif language == "sh":
            done = subprocess.run(
                ["sh", "-euc", text],
                cwd=tmp_path,
                env=variables,
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
            assert done.returncode == 0, text + done.stdout + done.stderr
            said.append(done.stdout + done.stderr)
        elif "groups run" in text:
            group = pipeline.start(*text.split()[1:])
            assert group.await_line("virus found")["found"] == "Eicar-Test-Signature"
            assert group.await_line("caught up")["group"] == "virus"
    _, began, found, looked = said
    assert "1 passed" in began
    assert found.splitlines() == ["letter.txt Eicar-Test-Signature", "minutes.txt clean"]
    assert "2 of them have their outcome" in looked
    assert group.stop() == 0


@pytest.fixture
def virus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "virus.py").write_text(FILES["virus.py"])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "virus", raising=False)
    return import_module("virus")


def clamd(answer: bytes) -> tuple[str, list[bytes]]:
    """An address that takes one INSTREAM as clamd does, and what it was sent."""
    server, taken = socket.create_server(("127.0.0.1", 0)), [b""]

    def serve() -> None:
        with server, server.accept()[0] as connection, connection.makefile("rb") as stream:
            assert stream.read(10) == b"zINSTREAM\0"
            while size := int.from_bytes(stream.read(4), "big"):
                taken[0] += stream.read(size)
            connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{server.getsockname()[1]}", taken


def test_clamd_is_asked_by_its_own_protocol(virus: ModuleType, tmp_path: Path) -> None:
    content = os.urandom(3 * 1024 * 1024 + 7)
    (tmp_path / "document").write_bytes(content)
    for answer, found in {b"stream: OK\0": "", b"stream: Win.Test.EICAR_HDB-1 FOUND\0": "Win.Test.EICAR_HDB-1"}.items():
        address, taken = clamd(answer)
        with (tmp_path / "document").open("rb") as file:
            assert virus.ask_clamd(file, address) == found
        assert taken == [content]


@pytest.mark.parametrize(
    ("answer", "failure"),
    [(b"INSTREAM size limit exceeded. ERROR\0", Permanent), (b"stream: broken ERROR\0", Transient), (b"", Transient)],
)
def test_what_clamd_refuses_is_no_clean_document(
    virus: ModuleType, tmp_path: Path, answer: bytes, failure: type[Exception]
) -> None:
    (tmp_path / "document").write_bytes(b"a")
    with (tmp_path / "document").open("rb") as file, pytest.raises(failure):
        virus.ask_clamd(file, clamd(answer)[0])
