"""`kafka.lock`: every jar of the embedded Kafka with its checksum.

`make lock` makes it anew: `python -m offsetzero.embedded.lock`. Nothing else resolves versions.
"""

import hashlib
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from offsetzero.errors import ServerError

LOCK = Path(__file__).with_name("kafka.lock")
_ROOTS = (
    "org.apache.kafka:kafka_2.13:4.4.0",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5",  # Kafka asks for slf4j's interface and brings no logs
)
_HEADER = """\
# Every jar of the embedded Kafka: coordinates, checksum, size in bytes. Made by `make lock`.
"""


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the lock."""

    group: str
    artifact: str
    version: str
    sha256: str
    size: int

    @property
    def file_name(self) -> str:
        """Its name in the cache and in Maven repositories."""
        return f"{self.artifact}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


def read_lock(path: Path = LOCK) -> list[Jar]:
    """The jars that the lock names, in the order of the class path.

    Raises:
        ServerError: the file is damaged.
    """
    jars = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            coordinates, checksum, size = line.split()
            group, artifact, version = coordinates.split(":")
            algorithm, _, digest = checksum.partition(":")
            if algorithm != "sha256" or len(digest) != 64:
                raise ValueError("no sha256 checksum")
            jars.append(Jar(group, artifact, version, digest, int(size)))
        except ValueError as error:
            raise ServerError(f"{path}:{number}: {error}; restore the file, or make it anew: make lock") from error
    return jars


def main() -> int:
    """Write the lock and print how many jars it holds."""
    from jgo.maven import MavenContext, PythonResolver

    with tempfile.TemporaryDirectory() as folder:
        context = MavenContext(resolver=PythonResolver(), repo_cache=Path(folder), timeout=60)
        # "!" keeps a root from being a bill of materials for the others: log4j's manages kafka-clients 3.9
        inputs, others = context.resolver.resolve([context.create_dependency(f"{root}!") for root in _ROOTS])
        lines = []
        for dependency in [*inputs, *sorted(others, key=lambda item: (item.groupId, item.artifactId))]:
            data = Path(dependency.artifact.resolve()).read_bytes()
            name = f"{dependency.groupId}:{dependency.artifactId}:{dependency.version}"
            lines.append(f"{name} sha256:{hashlib.sha256(data).hexdigest()} {len(data)}")
    versions = {line.split(":")[2].split()[0] for line in lines if line.startswith("org.apache.kafka:")}
    if len(versions) != 1:
        print(f"Kafka's own jars have different versions: {sorted(versions)}", file=sys.stderr)
        return 1
    LOCK.write_text(_HEADER + "\n".join(lines) + "\n")
    print(f"{LOCK}: {len(lines)} jars")
    return 0


if __name__ == "__main__":
    sys.exit(main())
