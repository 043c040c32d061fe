"""The data of the embedded Kafka: made complete or not at all, and known by their cluster id."""

import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from offsetzero.embedded import disk, java, kafka_config
from offsetzero.errors import ServerError

_VERSION = "1"  # of meta.properties: KRaft; 0 was ZooKeeper's


def make(folder: Path, command: list[str]) -> str:
    """Make the data in a broker's folder if there are none.

    Args:
        folder: the broker's.
        command: what `kafka_config.write` returned.

    Returns:
        The cluster's id.

    Raises:
        ServerError: they cannot be made, or are of a Kafka that this one cannot follow.
    """
    data = folder / kafka_config.DATA
    if not (data / "meta.properties").exists():
        _format(folder, command)
    found = _properties(data / "meta.properties")
    if found.get("version") != _VERSION or "cluster.id" not in found:
        raise ServerError(
            f"{data} was not made by a Kafka that this one can follow (meta.properties has version "
            f"{found.get('version', 'none')}, not {_VERSION}); move it away, or choose another OFFSETZERO_HOME"
        )
    return found["cluster.id"]


def last_lines(text: str, count: int = 12) -> str:
    """The last errors of a log, else its last lines."""
    lines = text.splitlines()
    errors = [line for line in lines if " ERROR " in line or " FATAL " in line or "Exception" in line]
    return "\n".join((errors or lines)[-count:])


def _format(folder: Path, command: list[str]) -> None:
    data, unfinished = folder / kafka_config.DATA, folder / kafka_config.UNFINISHED
    if data.exists() and any(data.iterdir()):
        raise ServerError(f"{data} holds something that is not Kafka's data (no meta.properties); move it away")
    shutil.rmtree(unfinished, ignore_errors=True)  # what a start that was cut short left
    cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    if cluster.startswith("-"):  # the tool would take it for an option
        cluster = "A" + cluster[1:]
    result = subprocess.run(
        [*command, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", kafka_config.FORMATTING],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        env=java.environment(),
        timeout=120,
        check=False,
    )
    if result.returncode != 0:
        said = result.stdout + result.stderr
        raise ServerError(f"Kafka's data folder {data} cannot be made:\n{last_lines(said)}{disk.hint(said, folder)}")
    if data.exists():
        data.rmdir()
    unfinished.rename(data)


def _properties(path: Path) -> dict[str, str]:
    lines = (line.partition("=") for line in path.read_text(errors="replace").splitlines() if line[:1] != "#")
    return {name.strip(): value.strip() for name, _, value in lines}
