"""A started `offsetzero up`."""

import json
import subprocess
from typing import Any


def addresses(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """What a started `up` printed; fails with its errors when it ended."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr.read() if process.stderr is not None else ""
    found: dict[str, Any] = json.loads(line)
    return found
