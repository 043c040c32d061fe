"""`offsetzero groups run`, as a person stops it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import pytest
from commands import Commands
from kafka.conftest import uploaded

from offsetzero import Publisher
from offsetzero.settings import Settings
from support import wait_until

SLOW = """
import time
from pathlib import Path
from offsetzero import ConsumerGroup, DocumentUploaded
slow = ConsumerGroup("slow")

@slow.handler(DocumentUploaded)
def handle(event, ctx):
    Path("begun").touch()
    while not Path("go").exists():
        time.sleep(0.01)
"""


@contextmanager
def busy_member(settings: Settings, folder: Path) -> Iterator["Popen[str]"]:
    """A member whose one handler runs until the file `go` is there."""
    (folder / "mine.py").write_text(SLOW)
    with Publisher(settings) as publisher:
        publisher.publish(uploaded()).result(10)
    process = Commands(settings, folder).start("groups", "run", "mine:slow")
    try:
        wait_until((folder / "begun").exists, 60, what="the handler's start")
        yield process
    finally:
        process.kill()
        process.wait()


def line(process: "Popen[str]", begin: str) -> str:
    """The first line on standard error that begins so, among the log lines."""
    assert process.stderr is not None
    return next(text for text in process.stderr if text.startswith(begin)).strip()


@pytest.mark.usefixtures("topics", "database")
def test_a_member_that_is_stopped_says_what_it_waits_for(settings: Settings, tmp_path: Path) -> None:
    with busy_member(settings, tmp_path) as process:
        process.send_signal(signal.SIGINT)
        assert line(process, "stopping") == "stopping: 1 handler runs, at most 20 s; again to end at once"
        (tmp_path / "go").touch()
        assert process.wait(30) == 0


@pytest.mark.usefixtures("topics", "database")
def test_a_second_signal_ends_a_member_at_once_and_says_so(settings: Settings, tmp_path: Path) -> None:
    with busy_member(settings, tmp_path) as process:
        process.send_signal(signal.SIGTERM)
        line(process, "stopping")
        process.send_signal(signal.SIGINT)
        said = line(process, "ending")
        assert said == "ending at once: 1 handler runs; their records will be read again"
        assert process.wait(10) == 128 + signal.SIGINT
