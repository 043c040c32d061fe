"""`make lock`: resolve Kafka's jars once and write `kafka.lock`. Run as `python -m offsetzero.embedded.lock`."""

import hashlib
import sys
import tempfile
from pathlib import Path

from offsetzero.embedded.jars import LOCK

_ROOTS = (
    "org.apache.kafka:kafka_2.13:4.4.0",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5",  # Kafka asks for slf4j's interface and brings no logs
)
_HEADER = """\
# Every jar of the embedded Kafka: coordinates, checksum, size in bytes. Made by `make lock`.
"""


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
