"""One tenant queues a hundred thousand documents: how long do those of another one wait until they are begun?

    python benchmarks/intake/fairness.py [--documents 100000] [--samples 300] [--every 0.3]

Everything runs on this machine, as `offsetzero up` starts it. The quiet tenant uploads a document now and then, first
alone, then while the busy one's are worked off, which goes on uploading besides. Time to start: from the run's row to
the beginning of each of its required steps, by the database's clock. The target: p95 <= twice that of the quiet tenant
alone. The busy tenant's are written to the database as the API does it, a hundred in a transaction: it would take
minutes to send them all, and what is measured is how they are worked off.
"""

import argparse
import asyncio
import os
import random
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import psycopg
from running import Running, running
from uploads import Answer, Client, at_rate, quantile

from offsetzero.producers import runs
from offsetzero.schemas.ids import uuid7
from offsetzero.settings import Settings
from offsetzero.store import documents
from offsetzero.store.documents import Document
from offsetzero.store.objects import Objects
from offsetzero.store.script import run

TARGET = 2.0
AT_ONCE = 100
BUSY_PER_SECOND = 10.0
_STARTS = (
    "SELECT extract(epoch FROM s.started_at - r.created_at), extract(epoch FROM r.finished_at - r.created_at) "
    "FROM runs r JOIN run_steps s ON s.run_id = r.id WHERE r.tenant_id = %s AND s.required"
)


def queue(up: Running, home: Path, count: int) -> None:
    """Have the busy tenant's documents in the database, the object store and the outbox."""
    settings = Settings(home=home, database_url=up.database)
    objects = Objects(settings.objects)
    folder = home / "objects" / "documents" / "busy"
    folder.mkdir(parents=True, exist_ok=True)
    with psycopg.connect(up.database) as connection:
        for begin in range(0, count, AT_ONCE):
            with connection.transaction():
                for number in range(begin, min(begin + AT_ONCE, count)):
                    text = f"Document {number} of the busy tenant.\n".encode()
                    document_id = uuid7()
                    (folder / str(document_id)).write_bytes(text)
                    document = Document(
                        id=document_id,
                        tenant_id="busy",
                        name="a.txt",
                        content_type="text/plain",
                        uri=objects.uri(f"documents/busy/{document_id}"),
                        size_bytes=len(text),
                        sha256=sha256(text).hexdigest(),
                        version=1,
                        uploaded_at=datetime.now(UTC),
                    )
                    run(connection, documents.add(document))
                    run(connection, runs.begin(document, settings))


async def quietly(up: Running, tenant: str, samples: int, every: float) -> None:
    """Upload now and then, at random moments, and wait until all of it has ended."""
    client, dice = Client(up.port, up.key(tenant)), random.Random(tenant)  # noqa: S311
    for number in range(samples):
        await asyncio.sleep(dice.uniform(0, 2 * every))
        status, body = await client.upload(f"Document {number} of the tenant {tenant}.\n")
        if status != 202:
            raise SystemExit(f"an upload was answered {status}: {body[:300]!r}")
    await client.close()
    open_runs = "SELECT count(*) FROM runs WHERE tenant_id = %s AND finished_at IS NULL"
    while (await asyncio.to_thread(up.rows, open_runs, tenant))[0][0]:
        await asyncio.sleep(0.2)


async def beside(up: Running, samples: int, every: float) -> list[Answer]:
    """The same while the busy tenant goes on; returns the answers that it had."""
    client = Client(up.port, up.key("busy"))
    count = int(samples * every * BUSY_PER_SECOND)
    texts = [f"Further document {number} of the busy tenant.\n" for number in range(count)]
    going_on = asyncio.create_task(at_rate(client, texts, BUSY_PER_SECOND))
    await quietly(up, "beside", samples, every)
    answers = await going_on
    await client.close()
    return answers


def shown(up: Running, tenant: str) -> float:
    """Print what a tenant has waited; returns the p95 to start, seconds."""
    rows = up.rows(_STARTS, tenant)
    starts, ends = ([float(row[at]) for row in rows] for at in (0, 1))
    of = [f"{1000 * quantile(times, share):.0f}" for times in (starts, ends) for share in (0.5, 0.95, 0.99)]
    print(f"| {tenant} | {len(rows)} | {' | '.join(of)} |", flush=True)
    return quantile(starts, 0.95)


def main() -> int:
    """Measure, print, and say whether the target is met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--every", type=float, default=0.3, help="seconds between two uploads, on average")
    options = parser.parse_args()
    with running() as up:
        asyncio.run(quietly(up, "warm-up", 10, 0.1))
        print(f"load {os.getloadavg()[0]:.1f} before\n")
        print("| tenant | steps | p50 ms to start | p95 | p99 | p50 ms to the run's end | p95 | p99 |")
        print("|---|---|---|---|---|---|---|---|")
        asyncio.run(quietly(up, "alone", options.samples, options.every))
        alone = shown(up, "alone")
        begun = time.perf_counter()
        queue(up, up.home, options.documents)
        queued, left_before = time.perf_counter() - begun, _left(up)
        begun = time.perf_counter()
        answers = asyncio.run(beside(up, options.samples, options.every))
        seconds, left = time.perf_counter() - begun, _left(up)
        with_others = shown(up, "beside")
        lanes = dict(up.rows("SELECT lane, count(*) FROM runs WHERE tenant_id = 'busy' GROUP BY lane"))
    print(
        f"\nthe busy tenant: {options.documents} queued in {queued:.0f} s, then {len(answers)} sent, answered "
        f"{dict(Counter(answer.status for answer in answers))}; by lane {lanes}; {left_before} open before the "
        f"measurement, {left} after it, {(left_before + len(answers) - left) / seconds:.0f} ended a second"
    )
    ratio = with_others / alone
    if not left:
        print("nothing of the busy tenant was left: it was not busy for long enough")
    met = ratio <= TARGET and left > 0
    print(f"target {'met' if met else 'NOT met'}: p95 to start is {ratio:.2f} times that of the tenant alone (2)")
    return 0 if met else 1


def _left(up: Running) -> int:
    return int(up.rows("SELECT count(*) FROM runs WHERE tenant_id = 'busy' AND finished_at IS NULL")[0][0])


if __name__ == "__main__":
    sys.exit(main())
