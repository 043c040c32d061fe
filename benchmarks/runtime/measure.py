"""Runs contestants, each in a process of its own, turn by turn; what they print is what they measured."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import documents
import topic
from venvs import NotInstalled, Venvs

from servers import Servers

Result: TypeAlias = dict[str, Any]
SCRIPTS = Path(__file__).parent / "contestants"
_SECONDS = 180.0
_CEILING_EVERY = 2


@dataclass(frozen=True)
class Contestant:
    """One way to consume.

    Args:
        name: as the table shows it.
        script: in the folder `contestants`.
        options: of the script alone.
        venv: the environment; None is that of offsetzero itself.
        most: handles at most so many events: the slow ones shall not take minutes.
        database: whether it gets a database.
    """

    name: str
    script: str
    options: Mapping[str, Any] = field(default_factory=dict)
    venv: str | None = None
    most: int | None = None
    database: bool = False

    def with_options(self, **more: Any) -> "Contestant":
        """The same, with more of them."""
        return replace(self, options={**self.options, **more})


class Bench:
    """What all rows of one run share.

    Args:
        servers: the broker and the database.
        venvs: the environments of the peers.
        repetitions: turns.
        scale: of all counts; 1 is the real measurement.
        events: of the replay, and of the growth.
    """

    def __init__(self, servers: Servers, venvs: Venvs, repetitions: int, scale: float, events: int) -> None:
        self.servers = servers
        self.venvs = venvs
        self.repetitions = repetitions
        self.events = events
        self.left_out: dict[str, str] = {}
        self._scale = scale
        self._filled = False
        self._prefix = f"bench-{uuid.uuid4().hex[:6]}."

    def count(self, full: int, least: int = 1_000) -> int:
        """A count of events, scaled."""
        return max(least, round(full * self._scale))

    def topic(self, row: str, partitions: int, count: int) -> str:
        """A new topic with so many events; its name ends in `documents`, what is before that is a namespace."""
        name = f"{self._prefix}{row}.documents"
        self._filled = True
        seconds = topic.fill(self.servers.bootstrap, name, partitions, count)
        say(f"{count:,} events written in {seconds:.1f} s")
        return name

    def documents(self, row: str, partitions: int, count: int) -> str:
        """The same with the events of `documents.py`, and an empty topic for the bulk lane."""
        name = f"{self._prefix}{row}.documents"
        self._filled = True
        started = time.perf_counter()
        documents.fill(self.servers.bootstrap, name, partitions, count, lambda done: say(f"  {done:,} written"))
        say(f"{count:,} events written in {time.perf_counter() - started:.1f} s")
        return name

    def load(self, name: str, rate: int, window: float, windows: int, kind: str) -> list[str]:
        """The command that publishes a steady load to a topic; see `load.py`."""
        script = str(Path(__file__).parent / "load.py")
        return [sys.executable, script, self.servers.bootstrap, name, str(rate), str(window), str(windows), kind]

    def remove_topics(self) -> None:
        """Remove this run's topics: the broker may be one that stays."""
        if self._filled:
            topic.remove(self.servers.bootstrap, self._prefix)

    def present(self, contestants: Sequence[Contestant]) -> list[Contestant]:
        """Those that can be installed; the others are noted and named."""
        found = []
        for one in contestants:
            try:
                self.python(one)
                found.append(one)
            except NotInstalled as error:
                self.left_out[one.name] = str(error)
                say(f"left out: {one.name}: {error}")
        return found

    def python(self, contestant: Contestant) -> str:
        """The interpreter that runs it."""
        return sys.executable if contestant.venv is None else str(self.venvs.python(contestant.venv))

    def command(self, contestant: Contestant, name: str, of: int) -> tuple[list[str], str]:
        """What to start, and the group that it will be."""
        group = f"bench-{uuid.uuid4().hex[:8]}"
        options = {
            "bootstrap": self.servers.bootstrap,
            "topic": name,
            "group": group,
            "count": min(of, contestant.most or of),
            "of": of,
            **contestant.options,
            **({"database": self.servers.database_url} if contestant.database else {}),
        }
        script = str(SCRIPTS / contestant.script)
        return [self.python(contestant), script, *(f"--{name}={value}" for name, value in options.items())], group

    def run(
        self,
        contestant: Contestant,
        name: str,
        of: int,
        beside: Callable[[], Any] = lambda: None,
        seconds: float = _SECONDS,
        *,
        told: bool = False,
    ) -> Result:
        """Run a contestant once.

        Args:
            contestant: which.
            name: the topic that it reads.
            of: how many events are in it.
            beside: called once it has been started.
            seconds: after which it is ended.
            told: whether what it says on the way is shown at once.

        Returns:
            What it printed, with `group` and `load`; only `problems` when it failed.
        """
        load = os.getloadavg()[0]
        command, group = self.command(contestant, name, of)
        result = {**run(command, beside, seconds, told=told), "group": group, "load": load}
        if result.get("uncommitted"):
            result["problems"].append(f"{result['uncommitted']:,} events not committed at the end")
        say(f"  {contestant.name}: {_brief(result)}")
        return result


def run(command: Sequence[str], beside: Callable[[], Any], seconds: float, *, told: bool = False) -> Result:
    """Run a command that prints one JSON line; `problems` says what went wrong otherwise, unless it was `told`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OFFSETZERO_")}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors, tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(command, stdout=out, stderr=None if told else errors, env=environment, cwd=folder)
        try:
            beside()
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return {"problems": [f"not finished within {seconds:g} s: {_tail(errors)}"]}
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        out.seek(0)
        for line in reversed(out.read().decode(errors="replace").splitlines()):
            if line.startswith('{"count"'):
                found: Result = json.loads(line)
                return found
        return {"problems": [f"exit status {process.returncode}: {_tail(errors)}"]}


def _tail(errors: Any) -> str:
    errors.seek(0)
    lines = [line for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    return " | ".join(lines[-3:])[-500:] or "it said nothing"


def say(text: str) -> None:
    """Tell how far the run is."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _brief(result: Result) -> str:
    if "seconds" not in result:
        return "; ".join(result["problems"])
    shown = f"{result['count']:,} in {result['seconds']:.2f} s, {rate(result):,.0f} a second, load {result['load']:.1f}"
    return "; ".join([shown, *result["problems"]])


def rate(result: Result) -> float:
    """Events a second."""
    return float(result["count"] / result["seconds"])


def turns(bench: Bench, ceiling: Contestant, others: Sequence[Contestant], name: str, of: int) -> dict[str, Result]:
    """Measure all, turn by turn; the ceiling before every second one and at the end of each turn.

    A contestant's ratio is to the mean of the ceilings just before and after it, so that what else the machine does
    for a minute weighs on both.

    Returns:
        For each name: medians of rate, ratio and ratio by CPU time, all ratios, and every problem.
    """
    others = bench.present(others)
    runs: dict[str, list[tuple[Result, float | None, float | None]]] = {one.name: [] for one in (ceiling, *others)}
    for turn in range(bench.repetitions):
        say(f"turn {turn + 1} of {bench.repetitions}")
        before = bench.run(ceiling, name, of)
        runs[ceiling.name].append((before, 1.0, 1.0))
        for start in range(0, len(others), _CEILING_EVERY):
            found = [(one, bench.run(one, name, of)) for one in others[start : start + _CEILING_EVERY]]
            after = bench.run(ceiling, name, of)
            runs[ceiling.name].append((after, 1.0, 1.0))
            for one, result in found:
                runs[one.name].append((result, *_ratios(result, before, after)))
            before = after
    return {name: _summary(found) for name, found in runs.items()}


def _ratios(result: Result, *ceilings: Result) -> tuple[float | None, float | None]:
    """To the ceilings around it: events a second, and events a second of CPU time."""
    if "seconds" not in result or any("seconds" not in one for one in ceilings):
        return None, None
    by_wall = rate(result) / statistics.mean(rate(one) for one in ceilings)
    by_cpu = result["count"] / result["cpu_seconds"]
    return by_wall, by_cpu / statistics.mean(one["count"] / one["cpu_seconds"] for one in ceilings)


def _summary(found: Sequence[tuple[Result, float | None, float | None]]) -> Result:
    good = [result for result, _, _ in found if "seconds" in result]
    ratios = [ratio for _, ratio, _ in found if ratio is not None]
    by_cpu = [ratio for _, _, ratio in found if ratio is not None]
    server = [one["server_seconds"] / one["count"] * 1e6 for one in good if "server_seconds" in one]
    pauses = [result["pauses"] / result["count"] * 10_000 for result in good if "pauses" in result]
    return {
        "count": good[0]["count"] if good else 0,
        "rate": _median([rate(one) for one in good]),
        "ratio": _median(ratios),
        "ratios": ratios,
        "cpu_ratio": _median(by_cpu),
        "cpu_us": _median([one["cpu_seconds"] / one["count"] * 1e6 for one in good]),
        "problems": sorted({problem for result, _, _ in found for problem in result["problems"]}),
        **({"server_us": _median(server)} if server else {}),
        **({"pauses_per_10000": max(pauses)} if pauses else {}),
    }


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
