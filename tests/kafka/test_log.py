"""The commands of `offsetzero log`, as a person runs them, on a broker."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from commands import Commands, CommandsHere
from confluent_kafka import Consumer, TopicPartition

from offsetzero.clock import SYSTEM
from offsetzero.producers.log import LogProducer
from offsetzero.producers.publisher import Publisher
from offsetzero.producers.transactions import TransactionalProducer
from offsetzero.schemas.documents import DocumentDeleted
from offsetzero.settings import Settings
from offsetzero.topics import admin, cluster, retained
from offsetzero.topics.catalogue import Topic
from offsetzero.topics.names import Names
from offsetzero.topics.partitioner import partition_of
from offsetzero.topics.reading import LogRecord, TopicReader
from support import wait_until

MANY = 100_000 if os.environ.get("OZ_TEST_PROFILE") == "nightly" else 6_000


@pytest.fixture
def offsetzero(settings: Settings, topics: None, monkeypatch: pytest.MonkeyPatch) -> CommandsHere:
    return CommandsHere(settings, monkeypatch)


@pytest.fixture
def empty(settings: Settings) -> Callable[..., str]:
    """Makes a topic."""

    def make(name: str, partitions: int = settings.kafka.partitions, **config: str) -> str:
        named = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in config.items()}}
        cluster.ensure(settings, [Topic(name, partitions, config=named).resolved(settings)])
        return name

    return make


def deleted(document: UUID) -> DocumentDeleted:
    return DocumentDeleted(document_id=document, tenant_id="acme", deleted_at=SYSTEM.now())


def everything(settings: Settings, topic: str) -> dict[int, list[LogRecord]]:
    spans = {number: (one.low, one.end) for number, one in retained.bounds(settings, topic).items()}
    found: dict[int, list[LogRecord]] = {number: [] for number in spans}
    with TopicReader(settings) as reader:
        for batch in reader.read(topic, spans):
            for one in batch:
                found[one.partition].append(one)
    return found


def contents(records: dict[int, list[LogRecord]]) -> dict[int, list[LogRecord]]:
    """The same without offsets."""
    return {number: [one._replace(offset=0) for one in found] for number, found in records.items()}


def delete_before(settings: Settings, topic: str, partition: int, offset: int) -> None:
    place = TopicPartition(Names(settings.kafka.namespace).topic(topic), partition, offset)
    asked = admin.client(settings)  # kept until the answer is there: its end would end the request
    for future in asked.delete_records([place]).values():
        future.result(30)


def fill(settings: Settings, topic: str, count: int) -> None:
    """Events of few keys, with what a log may hold besides: tombstones, null keys, odd bytes, repeated headers."""
    name, documents = Names(settings.kafka.namespace).topic(topic), [uuid4() for _ in range(40)]
    with Publisher(settings) as publisher:
        sample = publisher._codec.encode(deleted(documents[0]))
    with LogProducer(settings, linger=0.05) as producer:
        for number in range(count):
            headers: list[tuple[str, bytes | None]] = [
                ("ce_specversion", b"1.0"),
                ("ce_id", str(number).encode()),
                ("ce_source", b"tests"),
                ("ce_type", b"document.deleted"),
                ("ce_tenantid", b"acme"),
                ("content-type", b"application/avro"),
            ]
            producer.produce(
                name,
                key=str(documents[number % 40]),
                value=sample if number % 7 else None,
                headers=headers,
                timestamp_ms=1_700_000_000_000 + number,
            )
        odd = [("x", None), ("x", b"\xff\x00"), ("x", b"again")]
        producer.produce(name, key=None, value=b"\xff\xfe no event", headers=odd, partition=1)
        producer.produce(name, key=b"\xff", value=None, headers=None)
        producer.produce(name, key=b"", value=b"", headers=[])


def test_a_history_is_of_one_key_in_order_and_says_what_it_cannot_read(
    settings: Settings, offsetzero: CommandsHere, empty: Callable[..., str]
) -> None:
    document, other = uuid4(), uuid4()
    name = Names(settings.kafka.namespace).topic("documents")
    with Publisher(settings) as publisher:
        publisher.publish(deleted(document), event_id="first").result(30)
        publisher.publish(deleted(other)).result(30)
        publisher.tombstone("document.deleted", str(document), event_id="second").result(30)
    with TransactionalProducer(settings, "log-test") as producer:
        for outcome in (producer.abort, producer.commit):
            producer.begin()
            producer.produce(name, key=str(document), value=f"{outcome.__name__}\x1b[2J".encode())
            outcome()
    with LogProducer(settings) as plain:
        plain.produce(name, key=str(document), value=b"\xc3\x01" + b"\x07" * 9).result(30)

    shown = offsetzero("log", "show", "documents", "--key", str(document)).stdout
    places = [shown.index(one) for one in ("  first\n", "  second\n", "not a CloudEvent")]
    assert places == sorted(places)
    assert "ce_tenantid: acme" in shown
    assert '"tenant_id": "acme"' in shown
    assert "tombstone" in shown
    assert "abort" not in shown
    assert "\x1b" not in shown
    assert str(other) not in shown

    rows = offsetzero("log", "show", "documents", "--key", str(document), "--json").stdout.splitlines()
    found = [json.loads(row) for row in rows]
    assert [row["offset"] for row in found] == sorted(row["offset"] for row in found)
    assert len({row["partition"] for row in found}) == 1
    assert found[-1]["value"] == {"base64": "wwEHBwcHBwcHBwc="}

    nothing = offsetzero("log", "show", "documents", "--key", "nobody", status=1).stderr
    assert "no record with the key nobody in partition" in nothing
    assert "--all-partitions" in nothing
    assert "did you mean documents" in offsetzero("log", "show", "document", "--key", "x", status=1).stderr
    compacted = offsetzero("log", "show", "schemas", "--key", "x", status=1).stderr
    assert "schemas is compacted" in compacted


def test_only_the_partition_of_the_key_is_read_unless_all_are_asked_for(
    settings: Settings, offsetzero: CommandsHere
) -> None:
    name, count = Names(settings.kafka.namespace).topic("runs"), settings.kafka.partitions
    elsewhere = (partition_of(b"k", count) + 1) % count
    with LogProducer(settings) as producer:
        assert producer.produce(name, key="k", value=b"1").result(30).partition == partition_of(b"k", count)
        producer.produce(name, key="k", value=b"2", partition=elsewhere).result(30)
    assert len(offsetzero("log", "show", "runs", "--key", "k", "--json").stdout.splitlines()) == 1
    both = offsetzero("log", "show", "runs", "--key", "k", "--json", "--all-partitions").stdout
    assert len(both.splitlines()) == 2


def test_tail_shows_the_last_ones_of_a_type_and_tenant_however_far_back(
    settings: Settings, offsetzero: CommandsHere
) -> None:
    fill(settings, "documents", 3_000)
    with Publisher(settings) as publisher:
        publisher.publish(deleted(uuid4()), tenant_id="rare", event_id="needle").result(30)
    with LogProducer(settings) as producer:
        for number in range(5_000):
            producer.produce(Names(settings.kafka.namespace).topic("documents"), key=str(number), value=b"{}")
    rows = offsetzero("log", "tail", "documents", "-n", "7").stdout.splitlines()
    assert len(rows) == 7
    found = offsetzero("log", "tail", "documents", "--tenant", "rare", "--type", "document.deleted").stdout
    assert "needle" in found
    assert len(found.splitlines()) == 1
    assert offsetzero("log", "tail", "runs").stdout == ""


def test_tail_follows_until_ctrl_c_and_ends_well_when_its_reader_leaves(
    settings: Settings, topics: None, tmp_path: Path
) -> None:
    run = Commands(settings, tmp_path)
    with Publisher(settings) as publisher:
        publisher.publish(deleted(uuid4()), event_id="before").result(30)
        process = run.start("log", "tail", "documents", "--follow")
        assert process.stdout is not None
        assert "before" in process.stdout.readline()
        publisher.publish(deleted(uuid4()), event_id="after").result(30)
        assert "after" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, "", "")

        left = run.start("log", "tail", "documents", "--follow")
        assert left.stdout is not None
        left.stdout.readline()
        left.stdout.close()
        publisher.publish(deleted(uuid4())).result(30)
        publisher.publish(deleted(uuid4())).result(30)

        def ended() -> bool:
            publisher.publish(deleted(uuid4())).result(30)
            return left.poll() is not None

        wait_until(ended, 60, what="the end of the command")
        assert left.stderr is not None
        assert (left.returncode, left.stderr.read()) == (0, "")
        left.stderr.close()


@pytest.mark.parametrize("form", ["jsonl", "avro", "parquet"])
def test_an_export_into_an_empty_topic_gives_the_same_records_byte_for_byte(
    form: str, settings: Settings, offsetzero: CommandsHere, empty: Callable[..., str], tmp_path: Path
) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    fill(settings, "documents", MANY)
    empty("copy")
    file, again = tmp_path / "first", tmp_path / "second"
    said = offsetzero("log", "export", "documents", "--format", form, "-o", str(file)).stdout
    assert f"{MANY + 3:,} records of {settings.kafka.partitions} partitions" in said
    counted = offsetzero("log", "import", str(file), "--topic", "copy", "--dry-run").stdout
    assert f"{MANY + 3:,} records would be appended to copy; 0 of" in counted
    assert sum(map(len, everything(settings, "copy").values())) == 0
    offsetzero("log", "import", str(file), "--topic", "copy")
    assert contents(everything(settings, "copy")) == contents(everything(settings, "documents"))
    twice = offsetzero("log", "import", str(file), "--topic", "copy").stdout
    assert f"0 records appended to copy; {MANY + 3:,} of {MANY + 3:,} were there already" in twice
    offsetzero("log", "export", "copy", "--format", form, "-o", str(again))
    assert sorted(tmp_path.iterdir()) == sorted(
        [file, again, *(one.with_name(one.name + ".manifest.json") for one in (file, again))]
    )
    about = json.loads((tmp_path / "first.manifest.json").read_text())
    other = json.loads((tmp_path / "second.manifest.json").read_text())
    assert sum(one["records"] for one in about["parts"]) == about["records"] == other["records"] == MANY + 3
    assert about["schemas"]


def test_an_import_that_was_killed_goes_on_with_nothing_twice(
    settings: Settings, offsetzero: CommandsHere, empty: Callable[..., str], tmp_path: Path
) -> None:
    fill(settings, "documents", 20_000)
    empty("copy")
    file = tmp_path / "events.avro"
    offsetzero("log", "export", "documents", "--format", "avro", "-o", str(file))
    run = Commands(settings, tmp_path)
    for wanted in (1, 6_000):
        process = run.start("log", "import", str(file), "--topic", "copy")

        def begun(wanted: int = wanted, process: "subprocess.Popen[str]" = process) -> bool:
            return _ends(settings, "copy") >= wanted or process.poll() is not None

        wait_until(begun, 60, what="records of the import", interval=0.005)
        process.kill()
        process.communicate()
    offsetzero("log", "import", str(file), "--topic", "copy")
    assert contents(everything(settings, "copy")) == contents(everything(settings, "documents"))


def _ends(settings: Settings, topic: str) -> int:
    """Offsets that a topic has, those of open transactions too."""
    consumer = Consumer({**settings.kafka.client_config(), "group.id": "none", "isolation.level": "read_uncommitted"})
    name = Names(settings.kafka.namespace).topic(topic)
    try:
        places = [TopicPartition(name, number) for number in range(settings.kafka.partitions)]
        return sum(consumer.get_watermark_offsets(place, timeout=30)[1] for place in places)
    finally:
        consumer.close()


def test_what_the_topic_has_already_is_left_out_also_when_it_came_another_way(
    settings: Settings, offsetzero: CommandsHere, empty: Callable[..., str], tmp_path: Path
) -> None:
    fill(settings, "documents", 500)
    fill(settings, "documents", 500)  # the same events again, as a relay that crashed publishes them
    empty("copy", 3)
    fill(settings, "copy", 100)
    file = tmp_path / "events.jsonl"
    offsetzero("log", "export", "documents", "--format", "jsonl", "-o", str(file))
    said = offsetzero("log", "import", str(file), "--topic", "copy").stdout
    assert said.startswith("406 records appended to copy; 100 of 1,006 were there already; 500 are events that")
    found = everything(settings, "copy")
    ids = [dict(one.headers).get("ce_id") for part in found.values() for one in part]
    assert sorted(int(one) for one in ids if one is not None) == list(range(500))
    assert all(partition_of(one.key, 3) == number for number, part in found.items() for one in part if one.key)


def test_what_is_no_file_is_not_replaced(settings: Settings, offsetzero: CommandsHere, tmp_path: Path) -> None:
    """As root, `-o /dev/null --overwrite` put a file in the place of the device."""
    fill(settings, "documents", 1)
    os.mkfifo(pipe := tmp_path / "pipe")
    said = offsetzero(
        "log", "export", "documents", "--format", "jsonl", "-o", str(pipe), "--overwrite", status=1
    ).stderr  # fmt: skip
    assert "not a file" in said
    assert pipe.is_fifo()
    assert list(tmp_path.glob(".*")) == []


def test_spans_are_offsets_times_or_how_long_ago(settings: Settings, offsetzero: CommandsHere, tmp_path: Path) -> None:
    fill(settings, "documents", 600)

    def export(*arguments: str, status: int = 0) -> str:
        done = offsetzero(
            "log", "export", "documents", "--format", "jsonl", "-o", str(tmp_path / "x"), "--overwrite", *arguments,
            status=status,
        )  # fmt: skip
        return done.stdout if status == 0 else done.stderr

    assert export("--from", "2023-11-14T22:13:20.100Z", "--to", "2023-11-14T22:13:20.300Z").startswith("200 records")
    assert export("--from", "-2h").startswith("3 records")
    assert export("--partition", "0", "--from", "2", "--to", "5").startswith("3 records of 1 partitions")
    assert "say which of the" in export("--from", "2", status=1)
    assert "has the offsets from 0 to" in export("--from", "99999", "--partition", "0", status=1)
    assert "has no partition 77" in export("--partition", "77", status=1)
    assert "--to soon: give earliest" in export("--to", "soon", status=1)
    delete_before(settings, "documents", 0, 3)
    assert "has the offsets from 3 to" in export("--from", "2", "--partition", "0", status=1)


def test_files_that_are_not_whole_or_not_ours_are_refused(
    settings: Settings, offsetzero: CommandsHere, tmp_path: Path
) -> None:
    fill(settings, "documents", 300)
    file = tmp_path / "events.avro"
    beside = tmp_path / "events.avro.manifest.json"
    offsetzero("log", "export", "documents", "--format", "avro", "-o", str(file))
    there = offsetzero("log", "export", "documents", "--format", "avro", "-o", str(file), status=1).stderr
    assert "--overwrite replaces it" in there
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    assert "it was cut off or changed" in offsetzero("log", "import", str(file), status=1).stderr
    file.write_bytes(whole[:-1] + b"x")
    assert "SHA-256 is not the one" in offsetzero("log", "import", str(file), status=1).stderr
    beside.write_text("{}")
    assert "not the manifest of an export" in offsetzero("log", "import", str(file), status=1).stderr
    beside.unlink()
    assert "no such file" in offsetzero("log", "import", str(file), status=1).stderr


def test_records_that_nobody_could_read_are_refused_unless_they_are_wanted(
    settings: Settings, offsetzero: CommandsHere, empty: Callable[..., str], tmp_path: Path
) -> None:
    with LogProducer(settings) as producer:
        name = Names(settings.kafka.namespace).topic("documents")
        producer.produce(name, key="k", value=b"\xc3\x01" + b"\x07" * 9).result(30)
    file = tmp_path / "events.avro"
    empty("copy")
    offsetzero("log", "export", "documents", "--format", "avro", "-o", str(file))
    refused = offsetzero("log", "import", str(file), "--topic", "copy", status=1).stderr
    assert "0707070707070707: first in documents/" in refused
    assert _ends(settings, "copy") == 0
    said = offsetzero("log", "import", str(file), "--topic", "copy", "--keep-unreadable").stdout
    assert said.startswith("1 records appended")


def test_a_topic_that_would_delete_them_at_once_or_lose_their_times_takes_none(
    settings: Settings, offsetzero: CommandsHere, empty: Callable[..., str], tmp_path: Path
) -> None:
    """apache/kafka#22849: records with times of the past meet retention as soon as they are there."""
    fill(settings, "documents", 10)
    file = tmp_path / "events.avro"
    offsetzero("log", "export", "documents", "--format", "avro", "-o", str(file))
    empty("short", retention_ms="3600000")
    assert "would delete at once" in offsetzero("log", "import", str(file), "--topic", "short", status=1).stderr
    empty("own", message_timestamp_type="LogAppendTime")
    assert "times would be lost" in offsetzero("log", "import", str(file), "--topic", "own", status=1).stderr


def test_a_full_disk_leaves_nothing_behind(settings: Settings, topics: None, tmp_path: Path) -> None:
    fill(settings, "documents", 3_000)
    environment = Commands(settings, tmp_path).environment
    for form in ("jsonl", "avro", *(["parquet"] if _has_arrow() else [])):
        done = subprocess.run(
            [sys.executable, "-m", "offsetzero", "log", "export", "documents", "--format", form, "-o", "full"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
        )
        assert done.returncode == 1, done.stderr
        assert done.stderr.strip() == "Error: full: File too large; nothing was left behind"
        assert not list(tmp_path.iterdir())


def _has_arrow() -> bool:
    import importlib.util

    return importlib.util.find_spec("pyarrow") is not None


def test_without_pyarrow_parquet_says_what_to_install(
    offsetzero: CommandsHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = offsetzero("log", "export", "documents", "--format", "parquet", "-o", str(tmp_path / "x"), status=1)
    assert "pip install 'offsetzero[parquet]'" in done.stderr
    assert not list(tmp_path.iterdir())
