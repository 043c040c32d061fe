"""A member of the group `stepping`, a step of runs, that dies or stands still at the place which an event names.

Run as `python stepping.py FOLDER KIND`. What an event asks for happens once: a file in the folder says that it
has.
"""

import ctypes
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from offsetzero import ConsumerGroup, Context, DocumentUploaded, logs
from offsetzero.consumers.runtime import GroupRuntime
from offsetzero.consumers.working import making
from offsetzero.consumers.working.calls import Call
from offsetzero.consumers.working.database import DatabaseEffects
from offsetzero.retry.policy import Tier
from offsetzero.settings import load

GROUP = "stepping"
DIES_AT = ("lease", "call", "result", "commit")
LONG_SECONDS = 30
"""100 times what is between two heartbeats of a member (see `broker_config`)."""

group = ConsumerGroup(GROUP, step=True, concurrency=4, tiers=[Tier("retry-1m", 0.2)])


def first(name: str) -> bool:
    """Whether it has not been said before; what is said outlives the process."""
    try:
        (Path(sys.argv[1]) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def die(event: Any, place: str) -> None:
    """End the process here, if the event says so, and it has not done it before."""
    if event.name == place and first(place):
        os.kill(os.getpid(), signal.SIGKILL)


def stand_still() -> None:
    """Go on once the test says so, however the process was stopped meanwhile."""
    while not (Path(sys.argv[1]) / "go on").exists():
        threading.Event().wait(0.02)


@group.prepare(DocumentUploaded)
def ask(event: DocumentUploaded, ctx: Context) -> None:
    die(event, "call")
    match event.name:
        case "long" if first("long"):
            threading.Event().wait(LONG_SECONDS)
        case "keeps the lock" if first("keeps the lock"):
            ctypes.PyDLL(None).sleep(LONG_SECONDS)  # no other thread of Python goes on meanwhile
        case "late" | "late and fails" if first(event.name):
            stand_still()
            if event.name == "late and fails":
                raise TimeoutError


@group.handler(DocumentUploaded)
def act(event: DocumentUploaded, ctx: Context) -> None:
    ctx.connection.execute(
        "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, %s)",
        (event.document_id, event.name, ctx.attempt),
    )
    die(event, "result")
    if event.name == "late in its transaction" and first(event.name):
        stand_still()


class Dying(DatabaseEffects):
    """Dies behind its transactions."""

    def begin(self, call: Call) -> str | None:
        verdict = super().begin(call)
        die(call.event, "lease")
        return verdict

    def perform(self, call: Call, ctx: Context) -> str:
        verdict = super().perform(call, ctx)
        die(call.event, "commit")
        return verdict


def dying_relay() -> None:
    """Publish what is in the outbox, and die once between the broker's answer and the row that says so."""
    from offsetzero.producers import claims

    mark = claims.mark

    def mark_or_die(connection: Any, rows: Any) -> None:
        if rows and first("publish"):
            os.kill(os.getpid(), signal.SIGKILL)
        mark(connection, rows)

    claims.mark = mark_or_die
    relay()


def relay() -> None:
    """Publish what is in the outbox."""
    from offsetzero.producers.relay import Relay

    Relay(load(needs=frozenset({"kafka", "database"}))).run(threading.Event())


def member() -> None:
    """Work in the group."""
    making.DatabaseEffects = Dying  # type: ignore[misc]
    logs.configure(process=GROUP, form="json", level="INFO")
    GroupRuntime(group, load(needs=frozenset({"kafka", "database"}))).run()


if __name__ == "__main__":
    {"dying relay": dying_relay, "relay": relay, "member": member}[sys.argv[2]]()
