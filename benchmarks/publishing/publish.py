"""Publishing: Publisher against raw produce(), aiokafka and FastStream, turn by turn in one run.

    python benchmarks/publishing/publish.py [--events 200000] [--repetitions 3] [--only raw,publisher]

It starts the embedded Kafka, or uses the broker that OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS names. Each contestant runs
in a process and with a topic of its own; aiokafka and FastStream have an environment of their own, made once in the
user's cache.
Printed are medians: events a second, ratios, and the contestant's own processor time for an event.
"""

import argparse
import contextlib
import json
import os
import pickle
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import events
import platformdirs
from confluent_kafka.admin import AdminClient

from offsetzero.embedded.kafka import Kafka
from offsetzero.settings import Settings
from offsetzero.topics import cluster
from offsetzero.topics.catalogue import Topic

TURN = Path(__file__).with_name("turn.py")
PARTITIONS = 6
PINS = ("faststream[confluent]==0.7.8", "confluent-kafka==2.16.1", "aiokafka[lz4]==0.14.0")
# name -> module and function, what it is, and whether it publishes in a burst or one by one
ROWS = {
    "raw": ("clients.raw", "produce() with callbacks, poll(0) after 100", "burst"),
    "raw-documented": ("clients.raw_documented", "produce() with callbacks, poll(0) after each", "burst"),
    "by-hand": ("services.by_hand", "uuid4, headers, fastavro, produce()", "burst"),
    "publisher": ("services.publisher", "Publisher, then flush", "burst"),
    "publisher-linger": ("services.publisher_linger", "Publisher(linger=0.005), then flush", "burst"),
    "aiokafka": ("clients.aiokafka", "aiokafka send(), then gather", "burst"),
    "faststream": ("clients.faststream", "FastStream publish(no_confirm), then gather", "burst"),
    "publisher-result": ("services.publisher_result", "Publisher, .result() of each", "each"),
    "publisher-await": ("services.publisher_await", "Publisher, publish_async()", "each"),
    "aiokafka-await": ("clients.aiokafka_await", "aiokafka send_and_wait()", "each"),
    "faststream-await": ("clients.faststream_await", "FastStream publish()", "each"),
}
PEERS = ("aiokafka", "faststream")
BASE = {"burst": "raw", "each": "faststream-await"}
SHARE = {"burst": 1, "each": 50}
"""One by one, an event takes so much longer that a fiftieth of them is enough."""


@contextlib.contextmanager
def broker() -> Iterator[str]:
    """`host:port` of the given broker, or of an embedded one."""
    given = os.environ.get("OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS")
    if given:
        yield given
        return
    folder = Path(tempfile.mkdtemp(prefix="offsetzero-benchmark-"))
    try:
        with Kafka(folder / "kafka") as kafka:
            yield kafka.bootstrap_servers
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def topic(bootstrap: str, namespace: str) -> Iterator[None]:
    """A topic for one turn."""
    settings = Settings(kafka={"bootstrap_servers": bootstrap, "namespace": namespace})
    cluster.ensure(settings, [Topic("documents", PARTITIONS, 1)])
    try:
        yield
    finally:
        AdminClient({"bootstrap.servers": bootstrap}).delete_topics([f"{namespace}documents"])


def peer_python() -> str | None:
    """The interpreter of the peers' environment; None, with a message, when it cannot be made."""
    folder = Path(platformdirs.user_cache_dir("offsetzero")) / "benchmarks" / "publishing"
    python, ready = folder / "bin" / "python", folder / "ready"
    if ready.exists() and ready.read_text() == "\n".join(PINS):
        return str(python)
    try:
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *PINS], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"aiokafka and FastStream are left out, their environment cannot be made: {error}")
        return None
    ready.write_text("\n".join(PINS))
    return str(python)


def turn(name: str, python: str, bootstrap: str, namespace: str, records: Path, count: int) -> dict[str, Any]:
    """One contestant, once."""
    with topic(bootstrap, namespace):
        command = [python, str(TURN), *ROWS[name][0].split("."), bootstrap, namespace, str(records), str(count)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def report(found: dict[str, list[dict[str, Any]]]) -> None:
    """The table. A ratio is that to the turn of the same repetition, when the machine was as busy."""
    print(f"\n{'':46}{'events/s':>10}{'ratio':>8}{'ratios':>15}{'CPU us':>8}{'MiB':>6}")
    for name, turns in found.items():
        _, text, kind = ROWS[name]
        rate, cpu, memory = (statistics.median(one[what] for one in turns) for what in ("rate", "cpu_us", "memory_mib"))
        pairs = zip(turns, found.get(BASE[kind], []), strict=False)
        ratios = [one["rate"] / base["rate"] for one, base in pairs]
        ratio = f"{statistics.median(ratios):.2f}" if ratios else "-"
        span = f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else ""
        print(f"{text:46}{rate:>10,.0f}{ratio:>8}{span:>15}{cpu:>8.1f}{memory:>6.0f}")
    print("ratio: to produce() polled every 100, and one by one to FastStream's publish(), of the same repetition")


def main() -> None:
    """Run all contestants in turn, as often as asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--only", default=",".join(ROWS), help=f"some of {','.join(ROWS)}")
    arguments = parser.parse_args()
    names = [name for name in ROWS if name in arguments.only.split(",")]
    peers = [name for name in names if name.startswith(PEERS)]
    theirs = peer_python() if peers else None
    made = events.encode(events.make())
    print(
        f"{arguments.events:,} events of {len(made[0][1] or b'')} bytes, {len(made[0][2])} headers, {events.KEYS} keys,"
    )
    machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
    print(f"{PARTITIONS} partitions; {machine}")
    found: dict[str, list[dict[str, Any]]] = {}
    with broker() as bootstrap, tempfile.TemporaryDirectory() as folder:
        records = Path(folder) / "records"
        records.write_bytes(pickle.dumps(made))
        turn("raw", sys.executable, bootstrap, "warmup.", records, 50_000)  # the broker's own compiler
        for repetition in range(arguments.repetitions):
            for number, name in enumerate(names):
                python = theirs if name in peers else sys.executable
                if python is None:
                    continue
                count = max(arguments.events // SHARE[ROWS[name][2]], 1)
                outcome = turn(name, python, bootstrap, f"bench{os.getpid()}-{repetition}-{number}.", records, count)
                found.setdefault(name, []).append(outcome)
                print(f"  {repetition + 1} {ROWS[name][1]:46}{outcome['rate']:>10,.0f}/s", flush=True)
    report(found)


if __name__ == "__main__":
    main()
