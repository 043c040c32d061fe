"""Rebuilds without a process for each part: the command runs in the test's own, and members are threads of it.

They are the real ones, with the real servers. Tests of what only a process can show start processes.
"""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self

import psycopg
import pytest
from commands import CommandsHere
from kafka.conftest import RunningGroup, uploaded

from offsetzero import DocumentUploaded, Publisher
from offsetzero.cli import rebuild_members
from offsetzero.consumers import registry
from offsetzero.consumers.following import FollowingMember
from offsetzero.consumers.runtime import GroupRuntime
from offsetzero.generation import Generation
from offsetzero.settings import Settings
from offsetzero.store import generations
from offsetzero.store.script import run
from support import wait_until

# Notes names, and publishes an event of each. What it does with some names depends on files of the test: `shaky` fails
# while there is `broken`, `bad` is dead-lettered while there is `poison`.
GROUP = """
from pathlib import Path
from offsetzero import ConsumerGroup, DocumentUploaded, Projection, RunSucceeded
from offsetzero.clock import SYSTEM
from offsetzero.retry.failures import Poison, Transient
from offsetzero.retry.policy import Tier

names = ConsumerGroup("names", concurrency=8, tiers=[Tier("retry-1m", 3600.0)], projection=Projection(
    "CREATE TABLE names (document_id uuid PRIMARY KEY, name text NOT NULL)",
    indexes={"ix_names_name": "names (name)"}))

@names.handler(DocumentUploaded)
def note(event, ctx):
    if event.name.startswith("shaky") and Path("broken").exists():
        raise Transient("shaky", "as it is called")
    if event.name.startswith("bad") and Path("poison").exists():
        raise Poison("corrupt", "as it is called")
    ctx.connection.execute("INSERT INTO names VALUES (%s, %s)", (event.document_id, event.name))
    ctx.publish(RunSucceeded(run_id=event.run_id, tenant_id="acme", document_id=event.document_id,
                             finished_at=SYSTEM.now()))
"""

REBUILD = ("rebuild", "mine:names", "--why", "a test", "--yes")

# Runs commands one after the other, each in a fork of a process that has all imported: `offsetzero …`, with a function
# that ends it.
KILLED = """
import importlib, json, os, signal, sys, threading
from offsetzero.cli import rebuild_switch, rebuild_until
from offsetzero.cli.app import main

assert threading.active_count() == 1
for line in sys.stdin:
    path, *arguments = json.loads(line)
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    os.dup2(2, 1)
    sys.argv[1:] = arguments
    path, _, name = path.partition(":")
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        break
    for part in parts[count:]:
        found = getattr(found, part)
    setattr(found, name, lambda *given, **named: os.kill(os.getpid(), signal.SIGKILL))
    main()
"""


class Threads:
    """In place of `rebuild_members.Members`."""

    def __init__(self, settings: Settings, target: str, generation: Generation, count: int) -> None:
        self._settings = settings
        self._target = target
        self._generation = generation
        self._count = count
        self._members: list[RunningGroup] = []

    def __enter__(self) -> Self:
        group = registry.load(self._target)
        for _ in range(self._count):
            self._members.append(RunningGroup(group, self._settings, generation=self._generation.number))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self._members:
            member.runtime.stop()
        for member in self._members:
            member.stop()

    def check(self) -> None:
        for member in self._members:
            if member.error is not None:
                raise member.error


@contextmanager
def following(settings: Settings, target: str) -> Iterator[threading.Thread]:
    """A member of a group's own, which works for whichever generation is read; what it raised is raised here."""
    group = registry.load(target)
    member = FollowingMember(lambda: GroupRuntime(group, settings))
    failed: list[BaseException] = []

    def work() -> None:
        try:
            member.run()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, name=f"member-{target}")
    thread.start()
    try:
        yield thread
    finally:
        member.stop()
        thread.join(60)
        assert not thread.is_alive(), "the member did not stop"
        if failed:
            raise failed[0]


class Names:
    """The group, its servers, and what is in its tables."""

    def __init__(self, settings: Settings, database: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings = settings
        self.folder = settings.home
        self.database = database
        (self.folder / "mine.py").write_text(GROUP)
        self.command = CommandsHere(settings, monkeypatch, "mine")
        monkeypatch.setattr(rebuild_members, "Members", partial(Threads, settings))
        self.processes = self.command.in_process_of_its_own

    def publish(self, *names: str) -> list[DocumentUploaded]:
        events = [uploaded(name=name) for name in names]
        with Publisher(self.settings) as publisher:
            for event in events:
                publisher.publish(event)
        return events

    def member(self) -> AbstractContextManager[threading.Thread]:
        """One of the group's own members."""
        return following(self.settings, "mine:names")

    @contextmanager
    def service(self) -> Iterator["subprocess.Popen[str]"]:
        """The same as a process."""
        process = self.processes.start("groups", "run", "mine:names", OFFSETZERO_METRICS_PORT="0")
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                said = process.communicate(timeout=60)
                assert "crashed" not in said[1], said[1]
            finally:
                process.kill()

    @contextmanager
    def killing(self) -> Iterator[Callable[..., None]]:
        """Kills commands where they begin to call a function; see `KILLED`."""
        (self.folder / "killed.py").write_text(KILLED)
        log = self.folder / "killed.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "killed.py"],
                cwd=self.folder,
                env=self.processes.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )

        def kill(function: str, *arguments: str) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps([function, *arguments]) + "\n")
            process.stdin.flush()
            assert process.stdout.readline().strip() == f"{-signal.SIGKILL}", f"{function}: {log.read_text()}"

        try:
            yield kill
        finally:
            process.communicate(timeout=60)

    def rebuild(self, *options: str, status: int = 0) -> "subprocess.CompletedProcess[str]":
        return self.command(*REBUILD, *options, status=status)

    def one(self, query: str, *parameters: Any) -> Any:
        row = self.database.execute(query.encode(), parameters).fetchone()
        return None if row is None else row[0]

    def rows(self, generation: int) -> set[str]:
        if self.one("SELECT to_regclass(%s)", f"names_g{generation}.names") is None:
            return set()
        return {row[0] for row in self.database.execute(f"SELECT name FROM names_g{generation}.names".encode())}

    def numbers(self) -> list[int]:
        return run(self.database, generations.numbers("names"))

    @property
    def read(self) -> int | None:
        return run(self.database, generations.active("names"))

    def emitted(self) -> list[str]:
        """The runs of which an event was published, each as often as it was."""
        found = self.database.execute("SELECT aggregateid FROM outbox WHERE type = 'run.succeeded'").fetchall()
        return sorted(row[0] for row in found)

    def await_rows(self, generation: int, names: set[str]) -> None:
        wait_until(lambda: self.rows(generation) == names, 60, what=f"{names} in generation {generation}")
