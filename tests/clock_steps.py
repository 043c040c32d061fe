"""Wall clocks that step while processes run: `sitecustomize` of our own, and libfaketime below PostgreSQL.

libfaketime is not put below Python (its clock_nanosleep breaks `time.sleep`, which sleeps by the monotonic clock) nor
below the JVM (its condition waits take seconds): tried, 0.9.10.
"""

from pathlib import Path

_SITE = """
import os
from datetime import timedelta

from offsetzero import clock


def _step():
    with open(os.environ["OZ_CLOCK_STEP"]) as file:
        return float(file.read() or 0)


_now, _now_ms = clock.SystemClock.now, clock.SystemClock.now_ms
clock.SystemClock.now = lambda self: _now(self) + timedelta(seconds=_step())
clock.SystemClock.now_ms = lambda self: _now_ms(self) + round(_step() * 1000)
"""


class SteppedClocks:
    """Steps by the seconds in a file."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "step"
        self._site = folder / "site"
        self._site.mkdir()
        (self._site / "sitecustomize.py").write_text(_SITE)
        self.step(0)

    def step(self, seconds: float) -> None:
        """Set all wall clocks so many seconds beside the true time."""
        temporary = self._file.with_suffix(".new")
        temporary.write_text(f"{seconds:+g}\n")
        temporary.chmod(0o644)
        temporary.replace(self._file)

    @property
    def of_our_processes(self) -> dict[str, str]:
        """The environment that makes `offsetzero.clock` follow."""
        return {"PYTHONPATH": str(self._site), "OZ_CLOCK_STEP": str(self._file)}

    @property
    def of_programs(self) -> dict[str, str] | None:
        """The environment that makes other programs follow; None without libfaketime."""
        found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
        if not found:
            return None
        return {
            "LD_PRELOAD": str(found[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
