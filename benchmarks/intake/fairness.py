"""One tenant queues a hundred thousand documents: how long do those of another one wait until they are begun?

    python benchmarks/intake/fairness.py [--documents 100000] [--samples 300] [--every 0.3]

Everything runs on this machine, as `offsetzero up` starts it. The quiet tenant uploads a document now and then, first
alone, then beside the busy one, from the moment on at which the relay and the groups see all that this one has queued
(`backlog`), and while it goes on uploading. Time to start: from the run's row to the beginning of each of its required
steps, by the database's clock, in two parts: until the relay gives the event to the broker, by the record's timestamp,
and from then on. The target: p95 <= twice that of the quiet tenant alone, while there is something left of the other.
"""

import argparse
import asyncio
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from backlog import TENANT, queue
from confluent_kafka import Consumer, TopicPartition
from running import Running, running
from shares import OTHERS, STOLEN, Spent, spent
from uploads import Answer, Client, at_rate, quantile

TARGET = 2.0
BUSY_PER_SECOND = 10.0
MOST_TAKEN = 0.3
"""Processors that other programs may have, for the figures to say something of the queue."""
TOPIC = "documents"
_STARTS = (
    "SELECT r.id::text, extract(epoch FROM r.created_at)::float8, extract(epoch FROM s.started_at)::float8, "
    "extract(epoch FROM r.finished_at)::float8 "
    "FROM runs r JOIN run_steps s ON s.run_id = r.id WHERE r.tenant_id = %s AND s.required"
)


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
    client = Client(up.port, up.key(TENANT))
    count = int(samples * every * BUSY_PER_SECOND)
    texts = [f"Further document {number} of the busy tenant.\n" for number in range(count)]
    going_on = asyncio.create_task(at_rate(client, texts, BUSY_PER_SECOND))
    await quietly(up, "beside", samples, every)
    answers = await going_on
    await client.close()
    return answers


def published(up: Running) -> Mapping[str, float]:
    """When the relay gave the event of each run of the live lane to the broker, seconds since 1970, by run."""
    consumer = Consumer({"bootstrap.servers": up.kafka, "group.id": "fairness", "enable.auto.commit": False})
    found: dict[str, float] = {}
    try:
        count = len(consumer.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions)
        ends = {at: consumer.get_watermark_offsets(TopicPartition(TOPIC, at), timeout=10)[1] for at in range(count)}
        consumer.assign([TopicPartition(TOPIC, at, 0) for at in range(count)])
        left = sum(ends.values())
        while left > 0:
            for message in consumer.consume(1000, 10.0):
                headers = dict(message.headers() or [])
                found.setdefault((headers.get("ce_runid") or b"").decode(), message.timestamp()[1] / 1000)
                left -= (message.offset() or 0) < ends[message.partition() or 0]
    finally:
        consumer.close()
    return found


def shown(up: Running, tenant: str) -> tuple[float, str]:
    """Print what a tenant has waited; returns the p95 to start, seconds, and a line on how it went in time."""
    sent = published(up)
    rows = sorted(up.rows(_STARTS, tenant), key=lambda row: row[1])
    parts = (
        [sent[run] - created for run, created, _, _ in rows],
        [started - sent[run] for run, _, started, _ in rows],
        starts := [started - created for _, created, started, _ in rows],
        [finished - created for _, created, _, finished in rows],
    )
    of = [" ".join(f"{1000 * quantile(times, share):.0f}" for share in (0.5, 0.95, 0.99)) for times in parts]
    print(f"| {tenant} | {len(rows)} | {' | '.join(of)} |", flush=True)
    by_part = [" ".join(f"{1000 * quantile(part, 0.95):.0f}" for part in _parts(times)) for times in parts[:2]]
    in_time = f"{tenant}, p95 of ten parts of the time: to published {by_part[0]}; to begun {by_part[1]}"
    return quantile(starts, 0.95), in_time


def _parts(times: Sequence[float]) -> list[Sequence[float]]:
    each = max(1, len(times) // 10)
    return [times[begin : begin + each] for begin in range(0, len(times), each)][:10]


def told(name: str, before: Spent, after: Spent) -> float:
    """Print who has had the processors meanwhile; returns how many were not to be had for this."""
    shares = after.since(before)
    text = ", ".join(f"{who} {share:.2f}" for who, share in shares.items())
    print(f"processors, of {os.cpu_count()}, {name}: {text}", flush=True)
    return shares.get(OTHERS, 0.0) + shares.get(STOLEN, 0.0)


def main() -> int:
    """Measure, print, and say whether the target is met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--every", type=float, default=0.3, help="seconds between two uploads, on average")
    options = parser.parse_args()
    with running() as up:
        asyncio.run(quietly(up, "warm-up", 10, 0.1))
        print(
            "ms, p50 p95 p99:\n\n| tenant | steps | row to published | published to begun | row to begun | to the end |"
        )
        print("|---|---|---|---|---|---|")
        before = spent(up.pid)
        asyncio.run(quietly(up, "alone", options.samples, options.every))
        after = spent(up.pid)
        alone, alone_in_time = shown(up, "alone")
        begun = time.perf_counter()
        queue(up.database, up.home, options.documents)
        queued = time.perf_counter() - begun
        begun, before_busy = time.perf_counter(), spent(up.pid)
        answers = asyncio.run(beside(up, options.samples, options.every))
        after_busy, seconds, left = spent(up.pid), time.perf_counter() - begun, _left(up)
        with_others, beside_in_time = shown(up, "beside")
        lanes = dict(up.rows("SELECT lane, count(*) FROM runs WHERE tenant_id = %s GROUP BY lane", TENANT))
    print("", alone_in_time, beside_in_time, sep="\n")
    taken = max(told("alone", before, after), told("beside", before_busy, after_busy))
    print(
        f"the busy tenant: {options.documents} queued in {queued:.0f} s, then {len(answers)} sent in {seconds:.0f} s, "
        f"answered {dict(Counter(answer.status for answer in answers))}; by lane {lanes}; {left} open after that, "
        f"{(options.documents + len(answers) - left) / seconds:.0f} ended a second"
    )
    ratio = with_others / alone
    if not left:
        print("nothing of the busy tenant was left: it was not busy for long enough")
    if taken > MOST_TAKEN:
        print(f"other programs had {taken:.2f} processors: the tenants have waited for these, too; measure again")
    met = ratio <= TARGET and left > 0 and taken <= MOST_TAKEN
    print(f"target {'met' if met else 'NOT met'}: p95 to start is {ratio:.2f} times that of the tenant alone (2)")
    return 0 if met else 1


def _left(up: Running) -> int:
    return int(up.rows("SELECT count(*) FROM runs WHERE tenant_id = %s AND finished_at IS NULL", TENANT)[0][0])


if __name__ == "__main__":
    sys.exit(main())
