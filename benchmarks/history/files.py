"""Files of a log: export, import and archive, as commands; records a second, processor time, and the most memory.

    python benchmarks/history/files.py [--events 100000] [--against 20000] [--only export,archive]

It starts the embedded Kafka, or uses the broker that OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS names. Each step is a process
of its own, on a topic of six partitions with so many events; the second number is the smaller topic that its memory is
compared with: flat memory has the ratio 1. The start of the process is in its times.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from offsetzero.clock import SYSTEM
from offsetzero.embedded.kafka import Kafka
from offsetzero.producers.publisher import Publisher
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.schemas.ids import uuid7
from offsetzero.settings import Settings
from offsetzero.topics import cluster
from offsetzero.topics.catalogue import Topic

FORMS = ("jsonl", "avro", "parquet")


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """`host:port` of the given broker, or of an embedded one."""
    given = os.environ.get("OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS")
    if given:
        yield given
        return
    with Kafka(folder / "kafka") as kafka:
        yield kafka.bootstrap_servers


def fill(settings: Settings, count: int) -> None:
    """A topic `documents` with so many events."""
    cluster.ensure(settings, [Topic("documents", 6, 1, config={"retention.ms": "-1"}), *copies()])
    with Publisher(settings, linger=0.02) as publisher:
        for number in range(count):
            publisher.publish(
                DocumentUploaded(
                    document_id=uuid7(),
                    tenant_id=f"tenant-{number % 50}",
                    run_id=uuid7(),
                    content_type="application/pdf",
                    uri=f"s3://documents/tenant-{number % 50}/{number}",
                    size_bytes=number,
                    sha256=f"{number:064x}",
                    uploaded_at=SYSTEM.now(),
                )
            )
        publisher.flush(120)


def copies() -> list[Topic]:
    """A topic for the import of each form."""
    return [Topic(f"copy-{form}", 6, 1, config={"retention.ms": "-1"}) for form in FORMS]


def run(settings: Settings, *arguments: str) -> tuple[float, float, float]:
    """Seconds, seconds of processor time, and MiB of a command."""
    env = {
        **os.environ,
        "OFFSETZERO_HOME": str(settings.home),
        "OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
        "OFFSETZERO_KAFKA__NAMESPACE": settings.kafka.namespace,
    }
    began = time.monotonic()
    child = os.posix_spawn(sys.executable, [sys.executable, "-m", "offsetzero", *arguments], env)
    _, status, used = os.wait4(child, 0)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"offsetzero {' '.join(arguments)} ended with {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def steps(settings: Settings, folder: Path, only: str) -> dict[str, tuple[float, float, float]]:
    """What each command took."""
    found = {}
    for form in FORMS if "export" in only or "import" in only else ():
        file, copy = str(folder / f"{settings.kafka.namespace}{form}"), f"copy-{form}"
        found[f"export as {form}"] = run(settings, "log", "export", "documents", "--format", form, "-o", file)
        if "import" in only:
            found[f"import {form} into an empty topic"] = run(settings, "log", "import", file, "--topic", copy)
            found[f"import {form} again: nothing is missing"] = run(settings, "log", "import", file, "--topic", copy)
        Path(file).unlink()
    if "archive" in only:
        found["archive, and read it back"] = run(settings, "log", "archive", "documents")
    return found


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--against", type=int, default=20_000)
    parser.add_argument("--only", default="export,import,archive")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="offsetzero-benchmark-"))
    try:
        with broker(folder) as bootstrap:
            measured = []
            for name, count in (("small.", given.against), ("large.", given.events)):
                home = folder / name
                home.mkdir()
                settings = Settings(home=home, kafka={"bootstrap_servers": bootstrap, "namespace": name})
                fill(settings, count)
                measured.append(steps(settings, folder, given.only))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    small, large = measured
    print(f"| {given.events:,} records | records/s | CPU µs a record | MiB | to the memory of {given.against:,} |")
    print("|---|---:|---:|---:|---:|")
    for step, (seconds, cpu, memory) in large.items():
        rate, ratio = given.events / seconds, memory / small[step][2]
        print(f"| {step} | {rate:,.0f} | {cpu / given.events * 1e6:.0f} | {memory:.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
