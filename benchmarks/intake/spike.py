"""A spike: thousands of uploads in ten seconds, while the workers go on; then the queue drains.

    python benchmarks/intake/spike.py [--uploads 3000] [--seconds 10] [--tenants 1]

Everything runs on this machine, as `offsetzero up` starts it, and the client too. A line for each second: the answers
to uploads that were to begin in it, timed from then, and the runs that had not ended at its end. The last line says
whether the targets are met: no error, p99 <= 250 ms in each second, and all runs have succeeded.
"""

import argparse
import asyncio
import os
import sys
import time
from collections import Counter

from running import Running, running
from uploads import Answer, Client, at_rate, quantile

TARGET_SECONDS = 0.25
DRAIN_SECONDS = 1_800.0
_OPEN = "SELECT count(*) FROM runs WHERE finished_at IS NULL"


async def spike(up: Running, uploads: int, seconds: float, tenants: int) -> tuple[list[Answer], list[int]]:
    """Send them; returns the answers, and how many runs were open at the end of each second."""
    clients = [Client(up.port, up.key(f"tenant-{number}")) for number in range(tenants)]
    for client in clients:  # what is done once is not part of the spike
        assert (await client.upload(f"warm up {os.urandom(8).hex()}"))[0] == 202
    texts = [f"Document {number} of a spike. It is about nothing.\n" for number in range(uploads)]
    depth: list[int] = []
    sent = asyncio.Event()

    async def watch() -> None:
        begun = time.perf_counter()
        while not sent.is_set():
            await asyncio.sleep(max(0.0, len(depth) + 1 - (time.perf_counter() - begun)))
            depth.append((await asyncio.to_thread(up.rows, _OPEN))[0][0])

    watching = asyncio.create_task(watch())
    parts = [texts[number::tenants] for number in range(tenants)]
    found = await asyncio.gather(
        *(at_rate(client, part, uploads / seconds / tenants) for client, part in zip(clients, parts, strict=True))
    )
    sent.set()
    await watching
    for client in clients:
        await client.close()
    return [answer for one in found for answer in one], depth


def drained(up: Running) -> float:
    """Wait until no run is open; returns the seconds."""
    begun = time.perf_counter()
    while up.rows(_OPEN)[0][0] and time.perf_counter() - begun < DRAIN_SECONDS:
        time.sleep(0.2)
    return time.perf_counter() - begun


def show(answers: list[Answer], depth: list[int]) -> float:
    """Print the table; returns the highest p99 of a second."""
    print("| second | uploads | p50 ms | p99 ms | max ms | errors | runs open at its end |")
    print("|---|---|---|---|---|---|---|")
    worst = 0.0
    for second in range(int(max(answer.at for answer in answers)) + 1):
        of_it = [answer for answer in answers if int(answer.at) == second]
        times = [answer.seconds for answer in of_it]
        p50, p99, most = (1000 * quantile(times, share) for share in (0.5, 0.99, 1.0))
        worst = max(worst, p99)
        errors = sum(answer.status != 202 for answer in of_it)
        left = depth[second] if second < len(depth) else "-"
        print(f"| {second + 1} | {len(of_it)} | {p50:.0f} | {p99:.0f} | {most:.0f} | {errors} | {left} |")
    return worst / 1000


def main() -> int:
    """Measure, print, and say whether the targets are met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--uploads", type=int, default=3_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--tenants", type=int, default=1)
    options = parser.parse_args()
    with running() as up:
        print(f"{options.uploads} uploads in {options.seconds:g} s, load {os.getloadavg()[0]:.1f} before\n")
        answers, depth = asyncio.run(spike(up, options.uploads, options.seconds, options.tenants))
        worst = show(answers, depth)
        took = drained(up)
        ended = Counter(dict(up.rows("SELECT status, count(*) FROM runs GROUP BY status")))
        lanes = dict(up.rows("SELECT lane, count(*) FROM runs GROUP BY lane"))
    times = [answer.seconds for answer in answers]
    errors = Counter(answer.status for answer in answers if answer.status != 202)
    for answer in answers:
        if answer.status != 202:
            print(f"\nthe first error: {answer.status} {answer.body[:300]!r}")
            break
    print(
        f"\nall: p50 {1000 * quantile(times, 0.5):.0f} ms, p99 {1000 * quantile(times, 0.99):.0f} ms, at most "
        f"{1000 * max(times):.0f} ms; errors {dict(errors)}; drained {took:.1f} s after the last answer "
        f"({len(answers) / (options.seconds + took):.0f} runs/s); runs {dict(ended)}, by lane {lanes}"
    )
    met = not errors and worst <= TARGET_SECONDS and set(ended) == {"succeeded"}
    print(f"targets {'met' if met else 'NOT met'}: the highest p99 of a second is {1000 * worst:.0f} ms (250)")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
