"""Who has had the processors: each part of `offsetzero up`, its servers, and all else that runs on this machine."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
OTHERS, STOLEN, SCRIPT = "other programs", "stolen", "this script"


@dataclass(frozen=True, slots=True)
class Spent:
    """Up to a moment: seconds of a processor, by who has had them."""

    at: float
    seconds: dict[str, float] = field(default_factory=dict)

    def since(self, before: "Spent") -> dict[str, float]:
        """How many processors each has had since, the most first; of what had a hundredth of one."""
        wall = self.at - before.at
        found = {name: (seconds - before.seconds.get(name, 0.0)) / wall for name, seconds in self.seconds.items()}
        return {name: share for name, share in sorted(found.items(), key=lambda one: -one[1]) if share >= 0.01}


def spent(root: int) -> Spent:
    """By all processes from a certain one down, this one, and the others of this machine.

    Args:
        root: the process of `offsetzero up`.
    """
    seconds: dict[str, float] = {}
    children: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            children.setdefault(int(fields[1]), []).append(int(folder.name))
            used[int(folder.name)] = sum(map(int, fields[11:15])) / _TICKS  # with those of its children that ended

    def add(pid: int, name: str) -> None:
        name = _name(pid) or name
        seconds[name] = seconds.get(name, 0.0) + used.get(pid, 0.0)
        for child in children.get(pid, []):
            add(child, name)

    add(root, "up")
    own = os.times()
    seconds[SCRIPT] = own.user + own.system
    machine = [int(one) / _TICKS for one in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _idle, _waits, irq, softirq, stolen = machine
    seconds[OTHERS] = user + nice + system + irq + softirq - sum(seconds.values())
    seconds[STOLEN] = stolen
    return Spent(time.monotonic(), seconds)


def _name(pid: int) -> str | None:
    """What a process is by its command line; None for what counts to its parent."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    if words[0].endswith("java"):
        return "Kafka"
    if words[0].startswith("postgres") or words[0].endswith("/postgres"):
        return "PostgreSQL"
    if "offsetzero" in words:
        rest = words[words.index("offsetzero") + 1 :]
        return rest[2] if rest[:2] == ["groups", "run"] else rest[0]
    return None
