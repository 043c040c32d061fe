"""The runtime's speed beside other ways of consuming, in one run on one machine.

    python benchmarks/runtime [--rows noop,keys,…] [--repetitions 3] [--scale 1] [--json FILE] [--write]

Each contestant runs in a process of its own, in an environment of its own, on real Kafka and PostgreSQL, turn by
turn; what it handled is checked. Read the ratios: the rates are this machine's.
"""

import argparse
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import platformdirs
import report
from measure import Bench, say
from rows import cost, effect, failing, growth, keys, noop, pauses, poison, rebuild, replay, waiting
from venvs import Venvs

from servers import servers

ROWS: dict[str, ModuleType] = {
    "noop": noop,
    "keys": keys,
    "waiting": waiting,
    "effect": effect,
    "poison": poison,
    "failing": failing,
    "pauses": pauses,
    "cost": cost,
    "rebuild": rebuild,
    "replay": replay,
    "growth": growth,
}
ON_DEMAND = frozenset({"replay", "growth"})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = ",".join(name for name in ROWS if name not in ON_DEMAND)
    parser.add_argument("--rows", default=usual, help=f"of {', '.join(ROWS)} (default: {usual})")
    parser.add_argument("--repetitions", type=int, default=3, help="turns; medians are shown")
    parser.add_argument("--scale", type=float, default=1.0, help="of all counts, for a quick look")
    parser.add_argument("--events", type=int, default=10_000_000, help="of the rows replay and growth")
    parser.add_argument("--venvs", type=Path, default=Path(platformdirs.user_cache_dir("offsetzero")) / "bench")
    parser.add_argument("--data", type=Path, help="the folder for the servers' data (default: the system's temporary)")
    parser.add_argument("--bootstrap", default="", help="host:port of a broker (default: the embedded one)")
    parser.add_argument("--database", default="", help="URL of a PostgreSQL, as a superuser (default: embedded)")
    parser.add_argument("--json", type=Path, help="write what was measured here; rows of an earlier run are kept")
    parser.add_argument(
        "--write", action="store_true", help="write docs/performance.md; with --rows= of --json FILE alone"
    )
    return parser.parse_args()


def main() -> None:
    """Measure, print, write."""
    arguments = _arguments()
    names = [name for name in arguments.rows.split(",") if name]
    if unknown := set(names) - set(ROWS):
        raise SystemExit(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    found = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else {}
    found = {"rows": {}, "left_out": {}, "versions": {}, **found, "machine": report.machine()}
    venvs = Venvs(arguments.venvs)
    with servers(arguments.bootstrap, arguments.database, arguments.data) as running:
        bench = Bench(running, venvs, arguments.repetitions, arguments.scale, arguments.events)
        try:
            for name in names:
                found["rows"][name] = _row(ROWS[name], bench, arguments)
                found["left_out"] |= bench.left_out
                found["versions"] |= {"offsetzero": report.versions(), **venvs.versions()}
                if arguments.json:
                    arguments.json.write_text(json.dumps(found, indent=1) + "\n")
        finally:
            bench.remove_topics()
    if arguments.write:
        measured = [(name, found["rows"][name]) for name in ROWS if name in found["rows"]]
        rows = [(ROWS[name].TITLE, row, ROWS[name].show(row["found"])) for name, row in measured]
        report.write(report.text(found, rows))


def _row(row: ModuleType, bench: Bench, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure a row and print it; what was measured, with when and how."""
    say(row.TITLE)
    entry = {
        "date": report.now(),
        "repetitions": arguments.repetitions,
        "scale": arguments.scale,
        "load": [os.getloadavg()[0]],
    }
    entry["found"] = row.measure(bench)
    entry["load"].append(os.getloadavg()[0])
    print(f"\n### {row.TITLE}\n\n{row.show(entry['found'])}\n", flush=True)
    return entry


if __name__ == "__main__":
    main()
