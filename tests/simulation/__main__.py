"""`make simulate SEEDS=1000` runs many seeds on all cores; `make simulate SEED=123` shows one from start to end.

`make simulate-order EVENTS=1000000` has a tenth of 1,000 keys fail in one long run.
"""

import argparse
import hashlib
import multiprocessing
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable

from offsetzero.cli import collector
from simulation import plan, simulation
from simulation.simulation import Result

TAIL = 60  # lines of a failing seed's schedule that are shown with the others
HAPPENED = {
    "kills": "is killed",
    "stops": "is told to stop",
    "rebalances": "serves revoke",
    "losses": "serves lost",
    "unclear commits": "stored, the answer lost",
    "appends without an answer": "given up",
    "transactions lost": ": lost",
    "transactions unclear": ": unclear",
    "replays": "APPLIED",
}
"""What a run of many seeds tells of, by what the schedule says of it."""


def one(seed: int) -> Result:
    """Run a seed; called in a process of the pool."""
    return simulation.run(seed)


def shown(result: Result) -> str:
    """What is shown of a seed that broke a law."""
    first = f"seed {result.seed} breaks a law: {result.failure}"
    last = f"all of it: make simulate SEED={result.seed}"
    return "\n".join([first, result.plan, "...", *result.schedule[-TAIL:], last])


def many(seeds: Iterable[int], *, digest: bool) -> int:
    """Run seeds on all cores; returns how many broke a law."""
    started = time.monotonic()
    broken, lines, count = 0, 0, 0
    happened: Counter[str] = Counter()
    with multiprocessing.Pool(os.cpu_count(), maxtasksperchild=200) as pool:
        for result in pool.imap(one, seeds, chunksize=4):
            count += 1
            lines += len(result.schedule)
            for line in result.schedule:
                happened.update(name for name, said in HAPPENED.items() if said in line)
            if digest:
                print(result.seed, hashlib.sha256("\n".join(result.schedule).encode()).hexdigest())
            if result.failure is not None:
                broken += 1
                print(f"\n{shown(result)}\n", flush=True)
    if not digest:
        told = ", ".join(f"{number:,} {name}" for name, number in happened.items())
        seconds = time.monotonic() - started
        print(f"{count} seeds in {seconds:.0f} s, {lines:,} lines of schedule with {told}: {broken} broke a law")
    return broken


def order(events: int) -> int:
    """One long run over 1,000 keys, a tenth of which fail."""
    started, made = time.monotonic(), plan.large(events)
    collector.spare()  # all that is published is kept: to look through it again and again would take minutes
    result = simulation.play(made, lines=TAIL)
    fail = [one.behaviour.times for one in made.events if one.behaviour.kind is plan.Kind.FAILS]
    kept = f"of them fail {len(fail):,} ({fail.count(3):,} always), {len(made.steps)} kills, rebalances and refusals"
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024  # KiB on Linux
    print(f"{events:,} events over 1,000 keys; {kept}; {result.seconds:,.0f} s of simulated time")
    print("\n".join([*result.schedule, result.failure]) if result.failure else "0 inversions, and all other laws held")
    print(f"{time.monotonic() - started:.0f} s, {used:,} MiB")
    return int(result.failure is not None)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="show this one")
    parser.add_argument("--seeds", type=int, default=1000, help="how many to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--order", type=int, metavar="EVENTS", help="run so many events over 1,000 keys instead")
    parser.add_argument("--digest", action="store_true", help="print a hash of each schedule")
    given = parser.parse_args()
    if given.order is not None:
        return order(given.order)
    if given.seed is None:
        return min(1, many(range(given.first, given.first + given.seeds), digest=given.digest))
    result = one(given.seed)
    print("\n".join([result.plan, *result.schedule]))
    print(f"\n{result.failure or 'all laws held'}, after {result.seconds:.1f} s of simulated time")
    return int(result.failure is not None)


if __name__ == "__main__":
    sys.exit(main())
