"""Where the time of one record goes: which stage of the runtime holds the interpreter's lock, looked at from outside.

py-spy reads the stack of the thread that holds the GIL 250 times a second without stopping the process. The share of a
stage times the time of the run, divided by the records, is its cost. The client's own threads and PostgreSQL's work
hold no GIL: they are in the difference to the whole.
"""

import re
import tempfile
from pathlib import Path
from typing import Any

from measure import Bench, Contestant, run, say
from report import cell, table
from venvs import NotInstalled

TITLE = "The cost of one record"
COUNT, EFFECTS = 400_000, 100_000
PARTITIONS = 6
RATE = 250  # samples a second
SECONDS = 300.0
CONTESTANTS = [
    (Contestant("single", "ours_noop.py", {"way": "single"}), COUNT),
    (Contestant("batch", "ours_noop.py", {"way": "batch"}), COUNT),
    (Contestant("batch, with its effect in PostgreSQL", "ours_effect.py", {"way": "batch"}, database=True), EFFECTS),
]
_AT_WORK = re.compile(r"PollLoop\.turn |Workers\._|LogProducer\._poll ")
STAGES: dict[str, re.Pattern[str]] = {
    # The first that is found anywhere in a stack; what none is found in is dispatch: lanes, workers, bookkeeping.
    "model": re.compile(r"\.look \(|Compiled\.from_values"),
    "decode": re.compile(r"CallReader|Codec\.|/schemas/"),
    "effect": re.compile(r"[^>] \(\S*ours_\w+\.py|psycopg|/store/"),  # not the script's own <module>
    "commit": re.compile(r"Commits\.|\.committable |\.measure |_commit"),
    "fetch": re.compile(r"PollLoop\._fetch |Fetching\.(poll|fetch)"),
    "lanes": re.compile(r"Dispatcher|KeyLanes"),
    "record": re.compile(r"PollLoop\._accept "),
}
_COLUMNS = ("fetch", "record", "decode", "model", "dispatch", "effect", "commit")


def measure(bench: Bench) -> dict[str, Any]:
    """Run the row."""
    try:
        spy = bench.venvs.python("py-spy").with_name("py-spy")
    except NotInstalled as error:
        bench.left_out["py-spy"] = str(error)
        return {"contestants": {}}
    found = {}
    for contestant, full in CONTESTANTS:
        count = bench.count(full, 20_000)
        command, _ = bench.command(contestant, bench.topic(f"cost{len(found)}", PARTITIONS, count), count)
        with tempfile.TemporaryDirectory() as folder:
            stacks = Path(folder) / "stacks.txt"
            spied = [
                str(spy),
                "record",
                "--gil",
                "--nonblocking",
                "-F",
                "-r",
                str(RATE),
                "-f",
                "raw",
                "-o",
                str(stacks),
            ]
            result = run([*spied, "--", *command], lambda: None, SECONDS)
            samples = _stages(stacks.read_text()) if stacks.exists() else {}
        say(f"  {contestant.name}: {result.get('seconds', 0):.2f} s, {sum(samples.values())} samples")
        found[contestant.name] = {
            "count": count,
            "whole": result["seconds"] / count * 1e6 if "seconds" in result else None,
            "stages": {stage: samples.get(stage, 0) / RATE / count * 1e6 for stage in _COLUMNS},
            "samples": sum(samples.values()),
            "problems": result["problems"],
        }
    return {"contestants": found}


def _stages(raw: str) -> dict[str, int]:
    """Samples of each stage, of a file with `frame;frame;… count` on each line."""
    found: dict[str, int] = {}
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        if _AT_WORK.search(stack):
            stage = next((name for name, pattern in STAGES.items() if pattern.search(stack)), "dispatch")
            stage = "dispatch" if stage == "lanes" else stage
            found[stage] = found.get(stage, 0) + int(count)
    return found


def show(found: dict[str, Any]) -> str:
    """The row as text."""
    rows = [
        [
            f"{name} ({one['samples']:,} samples)",
            *(cell(one["stages"][stage], ".1f") for stage in _COLUMNS),
            cell(sum(one["stages"].values()), ".1f"),
            cell(one["whole"], ".1f"),
            "; ".join(one["problems"]) or "none",
        ]
        for name, one in found["contestants"].items()
    ]
    heads = ["microseconds a record", *_COLUMNS, "sum", "whole run", "problems"]
    text = (
        f"py-spy looks {RATE} times a second at which thread holds the GIL, without stopping it. `fetch` is the "
        "client's call, `record` key, headers and offset, `decode` headers and Avro in full, `model` what the "
        "handler's look at a field makes, `dispatch` lanes, workers and counting, `effect` the handler and its "
        "statements. What the whole run has more is time without the GIL: the client's threads, PostgreSQL, the "
        "processor given to others. A garbage collection counts for the stage that it interrupts."
    )
    return f"{text}\n\n{table(heads, rows)}"
