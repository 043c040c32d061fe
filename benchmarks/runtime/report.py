"""Tables for people: on the screen, and as a section of docs/performance.md."""

import datetime
import importlib.metadata
import os
import platform
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).parents[2] / "docs" / "performance.md"
BEGIN = "<!-- begin of what `make bench` wrote -->"
OURS = ("confluent-kafka", "fastavro", "psycopg", "psycopg-binary", "pydantic")
END = "<!-- end of what `make bench` wrote -->"


def cell(value: float | None, form: str) -> str:
    """A number, or a dash where nothing was measured."""
    return "-" if value is None else format(value, form)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that reads well as plain text too: the first column left, the others right."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = [text.rjust(width) for text, width in zip(cells, widths, strict=True)]
        return "| " + " | ".join([cells[0].ljust(widths[0]), *padded[1:]]) + " |"

    rule = ["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]
    return "\n".join([line(heads), f"|{'|'.join(rule)}|", *map(line, rows)])


def now() -> str:
    """The time, in UTC."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M")


def machine() -> dict[str, Any]:
    """Where and with what this runs."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Of what offsetzero itself runs on."""
    return {name: importlib.metadata.version(name) for name in OURS}


def text(found: dict[str, Any], rows: Sequence[tuple[str, dict[str, Any], str]]) -> str:
    """The whole section.

    Args:
        found: the JSON of a run.
        rows: title, entry in the JSON, and text of each row.
    """
    where, versions = found["machine"], dict(found["versions"])
    own = versions.pop("offsetzero")
    others = [{name: one for name, one in pins.items() if own.get(name) != one} for pins in versions.values()]
    made = [
        "## Consuming: the runtime beside other ways",
        "",
        f"`make bench` on {where['cores']} cores ({where['cpu']}), {where['memory_gib']} GiB, {where['system']}, "
        f"Python {where['python']}; embedded Kafka and PostgreSQL on the same machine; {_listed(own)}. Beside them, in "
        f"environments of their own: {'; '.join(map(_listed, others))}.",
    ]
    made += [f"Left out: {name}, because {why}." for name, why in found["left_out"].items()]
    for title, entry, shown in rows:
        begin, end = entry["load"]
        scale = "" if entry["scale"] == 1 else f"; counts times {entry['scale']:g}: a quick look"
        made += ["", f"### {title}", "", shown, ""]
        made += [f"{entry['date']} UTC, repetitions: {entry['repetitions']}, load {begin:.1f} to {end:.1f}{scale}."]
    return "\n".join(_wrapped(line) for part in made for line in part.split("\n"))


def _wrapped(line: str) -> str:
    return line if line.startswith(("|", "#")) else textwrap.fill(line, 120, break_on_hyphens=False)


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def write(section: str) -> None:
    """Put the section into docs/performance.md, in the place of the one of the last run."""
    whole = DOCUMENT.read_text()
    block = f"{BEGIN}\n{section}\n{END}\n"
    if BEGIN in whole:
        before, rest = whole.split(BEGIN, 1)
        DOCUMENT.write_text(before + block + rest.split(END, 1)[1].lstrip("\n"))
    else:
        DOCUMENT.write_text(whole.rstrip("\n") + "\n\n" + block)
