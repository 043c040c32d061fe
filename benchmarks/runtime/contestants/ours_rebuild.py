"""offsetzero filling a second generation of `catalogue` from offset zero, by members as `offsetzero groups run` is."""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

RUNTIME = Path(__file__).parents[1]
sys.path.insert(0, str(RUNTIME))

import documents  # noqa: E402 - it stands beside this folder

from offsetzero.consumers.groups.catalogue import group  # noqa: E402
from offsetzero.consumers.projection import make_indexes, make_tables  # noqa: E402
from offsetzero.generation import Generation  # noqa: E402

SOURCE = "documents"
LOOK_SECONDS = 0.02
TELL_SECONDS = 10.0
PAGE = os.sysconf("SC_PAGE_SIZE")
TICK = os.sysconf("SC_CLK_TCK")
NUMBER = 2

parser = argparse.ArgumentParser()
for name in ("bootstrap", "topic", "group", "database"):
    parser.add_argument(f"--{name}", required=True)
for name in ("count", "of", "members"):
    parser.add_argument(f"--{name}", type=int, required=True)
parser.add_argument("--seconds", type=float, default=float("inf"), help="after which it ends with what there is")


def prepare(connection: psycopg.Connection[Any]) -> None:
    """Generation 1, which is read, and an empty generation 2; nothing of an earlier run."""
    for number in (1, NUMBER):
        connection.execute(f"DROP SCHEMA IF EXISTS catalogue_g{number} CASCADE")
    for table in ("group_pointers", "group_generations", "group_positions", "group_starts"):
        connection.execute(f"DELETE FROM {table} WHERE group_name LIKE 'catalogue%'")
    connection.execute("TRUNCATE processed_events")
    assert group.projection is not None
    for number in (1, NUMBER):
        with connection.transaction():
            make_tables(connection, Generation("catalogue", number), group.projection)
        connection.execute("RESET search_path")
    connection.execute("CHECKPOINT")


def forget(bootstrap: str, namespace: str) -> None:
    """Delete the consumer group: what it had committed would be taken over by one without positions."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    for future in admin.delete_consumer_groups([f"{namespace}catalogue.g{NUMBER}"]).values():
        with contextlib.suppress(KafkaException):  # there is none
            future.result(30)


def start(args: argparse.Namespace, folder: str) -> list[subprocess.Popen[bytes]]:
    """The members."""
    environment = {
        **os.environ,
        "OFFSETZERO_HOME": folder,
        "OFFSETZERO_DATABASE_URL": args.database,
        "OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS": args.bootstrap,
        "OFFSETZERO_KAFKA__NAMESPACE": args.topic.removesuffix(SOURCE),
        "OFFSETZERO_LOG_LEVEL": "WARNING",
    }
    command = [sys.executable, "-m", "offsetzero", "groups", "run", "catalogue", "--generation", str(NUMBER)]
    return [subprocess.Popen(command, env=environment) for _ in range(args.members)]


@dataclass
class Sight:
    """What was seen while the members worked.

    Attributes:
        seen: how many records were behind the positions at which times, from the last look before the first of them.
        held: once a second, and at the last of them, after how many: the resident memory (MiB) of the largest member,
            and the CPU time (seconds) that members and PostgreSQL have used so far.
        cpu: of the members, from the first look to the last.
        server: of PostgreSQL.
        index: seconds behind the last record, for the indexes that come then.
    """

    seen: list[tuple[float, int]]
    held: list[tuple[int, float, float]]
    cpu: float = 0.0
    server: float = 0.0
    index: float = 0.0


def watch(
    connection: psycopg.Connection[Any], members: list[subprocess.Popen[bytes]], of: int, seconds: float = float("inf")
) -> Sight:
    """Look at the positions until all is read, or so many seconds are over since the first record."""
    query = "SELECT sum(position)::bigint FROM group_positions WHERE group_name = 'catalogue' AND generation = %s"
    sight, next_held = Sight([(time.monotonic(), 0)], []), 0.0
    cpu = server = 0.0
    next_told = time.monotonic() + TELL_SECONDS
    while sight.seen[-1][1] < of and sight.seen[-1][0] - sight.seen[0][0] < seconds:
        if any(member.poll() is not None for member in members):
            raise SystemExit("a member ended")
        row = connection.execute(query, (NUMBER,)).fetchone()
        done, now = int(row[0] or 0) if row is not None else 0, time.monotonic()
        if done == 0:
            sight.seen = [(now, 0)]
            cpu, server = cpu_seconds(members), server_seconds(connection)
        elif done > sight.seen[-1][1]:
            sight.seen.append((now, done))
        if done and (now >= next_held or done >= of):
            used = cpu_seconds(members) - cpu + server_seconds(connection) - server
            sight.held.append((done, max(resident(member) for member in members), used))
            next_held = now + 1.0
        if now >= next_told:
            next_told = now + TELL_SECONDS
            tell(sight, done, of)
        time.sleep(LOOK_SECONDS)
    if sight.seen[-1][1] >= of:
        index(connection)
    sight.index = time.monotonic() - sight.seen[-1][0]
    sight.cpu, sight.server = cpu_seconds(members) - cpu, server_seconds(connection) - server
    return sight


def index(connection: psycopg.Connection[Any]) -> None:
    """Make what a rebuild makes of all that was read, before the generation is."""
    assert group.projection is not None
    make_indexes(connection, Generation("catalogue", NUMBER), group.projection)
    connection.execute("RESET search_path")


def tell(sight: Sight, done: int, of: int) -> None:
    """Say how far it is."""
    begun, (now, _) = sight.seen[0][0], sight.seen[-1]
    rate = done / (now - begun) if now > begun else 0.0
    left = f", {(of - done) / rate:,.0f} s left" if rate else ""
    held = f", {sight.held[-1][1]:,.0f} MiB" if sight.held else ""
    text = f"{time.strftime('%H:%M:%S')}   {done:,} of {of:,} ({done / of:.0%}), {rate:,.0f} a second{held}{left}"
    print(text, file=sys.stderr, flush=True)


def resident(member: subprocess.Popen[bytes]) -> float:
    """MiB of a process."""
    return int(Path(f"/proc/{member.pid}/statm").read_text().split()[1]) * PAGE / 2**20


def server_seconds(connection: psycopg.Connection[Any]) -> float:
    """CPU time that the whole server has used, 0 when it is on another machine."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    parent = _stat(row[0])[1]
    if not parent:
        return 0.0
    found = {int(entry.name): _stat(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    own = sum(found[parent][11:15])  # with its children that have ended
    return (own + sum(sum(one[11:13]) for one in found.values() if one[1] == parent)) / TICK


def cpu_seconds(members: Iterable[subprocess.Popen[bytes]]) -> float:
    """CPU time that processes have used."""
    return sum(sum(_stat(member.pid)[11:13]) for member in members) / TICK


def _stat(pid: int) -> list[int]:
    """The numbers of a process: its parent is the second, its CPU time and that of ended children 12th to 15th."""
    try:
        return [0, *map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1:])]
    except OSError:  # it has ended, or there is no such folder
        return [0] * 15


def problems(connection: psycopg.Connection[Any], of: int) -> list[str]:
    """Whether the generation is what the events come to."""
    rows = connection.execute(
        "SELECT (SELECT count(*) FROM processed_events WHERE group_name = 'catalogue' AND generation = %s), count(*),"
        " count(deleted_at), coalesce(sum(size_bytes), 0)::bigint FROM catalogue_g2.catalogue_documents",
        (NUMBER,),
    ).fetchall()
    wanted = documents.fold(of)
    return [] if rows == [wanted] else [f"outcomes, documents, deleted, bytes: {rows[0]}, not {wanted}"]


def main() -> None:
    """Fill it once, and print how long it took."""
    args = parser.parse_args()
    with psycopg.connect(args.database, autocommit=True) as connection:
        prepare(connection)
        forget(args.bootstrap, args.topic.removesuffix(SOURCE))
        started = time.monotonic()
        members = start(args, str(Path.cwd()))
        try:
            sight = watch(connection, members, args.of, args.seconds)
        finally:
            for member in members:
                member.terminate()
            for member in members:
                member.wait(60)
        seen = sight.seen
        done = seen[-1][1]
        line = {
            "count": done,
            "seconds": seen[-1][0] - seen[0][0] + sight.index,
            "index_seconds": sight.index,
            "from_start": seen[-1][0] - started + sight.index,
            "cpu_seconds": sight.cpu,
            "server_seconds": sight.server,
            "held": sight.held,
            "reached": seen[:: max(1, len(seen) // 500)] + seen[-1:],
            "problems": problems(connection, args.of)
            if done == args.of
            else [f"ended after {args.seconds:,.0f} s with {done:,} of {args.of:,} events"],
        }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
