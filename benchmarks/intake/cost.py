"""What an upload costs: processor time of the API and of PostgreSQL, of nothing else, whatever else the machine does.

    python benchmarks/intake/cost.py [--uploads 2000] [--at-once 8] [--turns 3] [--keyed]

PostgreSQL and the API run here as `offsetzero up` has them, without workers. Each turn is one line. Time of a processor
is what the system has counted, so other work matters only as far as it throws the caches away; compare the least of
several turns. Linux only.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import psycopg
from uploads import Client

from offsetzero.embedded import ports
from offsetzero.embedded.postgres import Postgres, remove_data
from offsetzero.store.migrate import upgrade
from offsetzero.store.tenants import create_key

TICK = os.sysconf("SC_CLK_TCK")


def used(pids: Iterable[int]) -> tuple[float, float]:
    """Seconds of a processor that processes have used, those of their children that ended too: user and system."""
    user = system = 0
    for pid in pids:
        own = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        user, system = user + int(own[11]) + int(own[13]), system + int(own[12]) + int(own[14])
    return user / TICK, system / TICK


def family(pid: int) -> list[int]:
    """A process and its children."""
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


async def send(client: Client, count: int, at_once: int, *, keyed: bool) -> None:
    """Upload so many documents, so many at once."""
    left = iter(range(count))

    async def one() -> None:
        for _ in left:
            text = f"Document {os.urandom(8).hex()}. It is about nothing.\n"
            status, body = await client.upload(text, key=os.urandom(8).hex() if keyed else None)
            assert status == 202, (status, body)

    await asyncio.gather(*(one() for _ in range(at_once)))


async def turns(port: int, key: str, api: int, server: int, options: argparse.Namespace) -> None:
    """Measure, and print a line for each turn."""
    client = Client(port, key)
    await send(client, 200, options.at_once, keyed=options.keyed)
    print("| turn | API µs | of it in the kernel | PostgreSQL µs | load |\n|---|---:|---:|---:|---:|")
    for turn in range(options.turns):
        before = [used([api]), used(family(server))]
        await send(client, options.uploads, options.at_once, keyed=options.keyed)
        after = [used([api]), used(family(server))]
        (user, kernel), (server_user, server_kernel) = (
            [(end - begin) / options.uploads * 1e6 for begin, end in zip(*pair, strict=True)]
            for pair in zip(before, after, strict=True)
        )
        load = os.getloadavg()[0]
        print(f"| {turn + 1} | {user + kernel:.0f} | {kernel:.0f} | {server_user + server_kernel:.0f} | {load:.1f} |")
    await client.close()


def main() -> None:
    """Start what is measured, measure, and remove it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--uploads", type=int, default=2_000)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--keyed", action="store_true", help="each with an Idempotency-Key of its own")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="offsetzero-cost-") as folder:
        home = Path(folder)
        home.chmod(0o711)  # PostgreSQL's account must pass
        port = ports.free()[0]
        try:
            with Postgres(home / "postgres") as postgres:
                upgrade(postgres.url())
                with psycopg.connect(postgres.url()) as connection:
                    key = create_key(connection, "demo")
                mine = {name: value for name, value in os.environ.items() if not name.startswith("OFFSETZERO_")}
                told = {"DATABASE_URL": postgres.url(), "HOME": folder, "API__REQUESTS_PER_SECOND": "100000"}
                log = home / "api.log"
                with log.open("wb") as output:
                    api = subprocess.Popen(
                        [sys.executable, "-m", "offsetzero", "api", "--port", str(port)],
                        env={**mine, **{f"OFFSETZERO_{name}": value for name, value in told.items()}},
                        stderr=output,
                    )
                try:
                    while "api listens" not in log.read_text():
                        assert api.poll() is None, log.read_text()
                        time.sleep(0.1)
                    asyncio.run(turns(port, key, api.pid, postgres.pid, options))
                finally:
                    api.terminate()
                    api.wait()
        finally:
            remove_data(home / "postgres")


if __name__ == "__main__":
    main()
