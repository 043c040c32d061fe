"""The archive of a topic in the object store, and the way back over the seam."""

import json
from pathlib import Path
from threading import Thread
from urllib.parse import urlparse

import pytest
from commands import CommandsHere
from confluent_kafka import TopicPartition
from kafka import archived

from offsetzero.errors import HistoryError
from offsetzero.history import archive, missing, reading, spans
from offsetzero.producers.log import LogProducer
from offsetzero.producers.transactions import TransactionalProducer
from offsetzero.settings import Settings
from offsetzero.topics import admin, cluster, retained
from offsetzero.topics.catalogue import Topic
from offsetzero.topics.names import Names
from offsetzero.topics.reading import LogRecord, TopicReader

TOPIC = "old"


@pytest.fixture
def filled(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A topic of two partitions with 900 records, and gaps where transactions ended; segments are small."""
    monkeypatch.setattr(archive, "SEGMENT_OFFSETS", 200)
    cluster.ensure(settings, [Topic(TOPIC, 2, config={"retention.ms": "-1"}).resolved(settings)])
    fill(settings, 700)
    name = Names(settings.kafka.namespace).topic(TOPIC)
    with TransactionalProducer(settings, "archive-test") as producer:
        for ended in (producer.abort, producer.commit) * 10:
            producer.begin()
            for number in range(20):
                producer.produce(name, key=None, value=b"t", partition=number % 2)
            assert producer.flush(60) == 0  # else there may be nothing to end
            ended()
    return settings


def fill(settings: Settings, count: int) -> None:
    with LogProducer(settings, linger=0.02) as producer:
        for number in range(count):
            producer.produce(
                Names(settings.kafka.namespace).topic(TOPIC),
                key=None,
                value=None if number % 9 == 0 else str(number).encode(),
                headers=[("n", str(number).encode()), ("n", None)],
                partition=number % 2,
                timestamp_ms=1_700_000_000_000 + number,
            )


def of_the_log(settings: Settings) -> list[LogRecord]:
    wanted = {number: (one.low, one.end) for number, one in retained.bounds(settings, TOPIC).items()}
    with TopicReader(settings) as reader:
        return sorted(one for batch in reader.read(TOPIC, wanted) for one in batch)


def of_history(settings: Settings, starts: dict[int, int]) -> list[LogRecord]:
    return [one for batch in reading.history(settings, TOPIC, starts) for one in batch]


def to_the_end(settings: Settings) -> spans.Spans:
    return spans.resolve(settings, TOPIC, "earliest", "latest")


def delete_before(settings: Settings, offsets: dict[int, int]) -> None:
    archived.delete_before(settings, TOPIC, offsets)


def files(settings: Settings) -> dict[str, bytes]:
    folder = Path(urlparse(settings.objects).path) / "archive"
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def test_what_is_archived_is_what_was_in_the_log_and_is_not_archived_again(filled: Settings) -> None:
    before = of_the_log(filled)
    made = archive.archive(filled, TOPIC, to_the_end(filled))
    assert sum(one.records for one in made) == len(before)
    for partition in (0, 1):
        mine = [one for one in made if one.partition == partition]
        assert [one.first for one in mine] == [0, *(one.end for one in mine[:-1])]
    stored = files(filled)
    assert archive.archive(filled, TOPIC, to_the_end(filled)) == []
    assert files(filled) == stored
    fill(filled, 50)
    assert sum(one.records for one in archive.archive(filled, TOPIC, to_the_end(filled))) == 50
    store = archive.Archive(filled, TOPIC)
    back = [one for number in (0, 1) for segment in store.segments(number) for one in store.read(segment)]
    assert back == of_the_log(filled)


def test_of_two_archivers_at_once_each_segment_is_made_by_one(filled: Settings) -> None:
    made: list[list[archive.Segment]] = [[], []]
    wanted = to_the_end(filled)
    shorter = {number: (first, end - 130) for number, (first, end) in wanted.items()}

    def run(number: int, ends: spans.Spans) -> None:
        made[number] = archive.archive(filled, TOPIC, ends)

    threads = [Thread(target=run, args=(number, ends)) for number, ends in enumerate((wanted, shorter))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    store = archive.Archive(filled, TOPIC)
    assert sum(map(len, made)) == sum(len(store.segments(number)) for number in (0, 1))
    back = [one for number in (0, 1) for segment in store.segments(number) for one in store.read(segment)]
    assert back == of_the_log(filled)
    data = [name for name in files(filled) if name.endswith(".avro")]
    assert len(data) == sum(map(len, made))


def test_a_reader_goes_over_the_seam_without_doubling_or_missing_an_offset(filled: Settings) -> None:
    whole = of_the_log(filled)
    archive.archive(filled, TOPIC, to_the_end(filled))
    seam = {number: one.end for number, one in retained.bounds(filled, TOPIC).items()}
    fill(filled, 60)
    whole = of_the_log(filled)
    for low in ({0: 200, 1: 333}, {0: 399, 1: 401}, {number: end - 1 for number, end in seam.items()}, seam):
        delete_before(filled, low)
        assert of_history(filled, {0: 0, 1: 0}) == whole
    later = [one for one in whole if one.offset >= 150]
    assert of_history(filled, {0: 150, 1: 150}) == later


def test_records_that_are_deleted_while_they_are_read_come_from_the_archive(
    filled: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = of_the_log(filled)
    archive.archive(filled, TOPIC, to_the_end(filled))
    real, calls = TopicReader.read, []

    def deleting(self: TopicReader, topic: str, wanted: spans.Spans):  # type: ignore[no-untyped-def]
        """Reads a little, then everything up to some offset is gone, as with a slow reader behind retention."""
        [(partition, (first, end))] = wanted.items()
        calls.append(first)
        if len(calls) in (1, 3):
            yield from real(self, topic, {partition: (first, first + 40)})
            delete_before(filled, {partition: first + 250})
            yield from real(self, topic, {partition: (first + 40, end)})
        else:
            yield from real(self, topic, wanted)

    monkeypatch.setattr(TopicReader, "read", deleting)
    assert of_history(filled, {0: 0, 1: 0}) == whole
    assert len(calls) >= 4


def test_what_is_neither_in_the_log_nor_in_the_archive_is_named(filled: Settings) -> None:
    delete_before(filled, {0: 100})
    with pytest.raises(HistoryError, match="the offsets 0 to 99 are neither in the log nor in the archive"):
        of_history(filled, {0: 0})
    archive.archive(filled, TOPIC, {0: (100, 200), 1: (0, 0)})
    fill(filled, 10)
    delete_before(filled, {0: 300})
    with pytest.raises(HistoryError, match="the offsets 200 to 299 were deleted before they were archived"):
        archive.archive(filled, TOPIC, to_the_end(filled))


def test_a_file_of_the_archive_that_was_changed_is_not_read(filled: Settings) -> None:
    archive.archive(filled, TOPIC, to_the_end(filled))
    delete_before(filled, {0: 300})
    for path in (Path(urlparse(filled.objects).path) / "archive").rglob("*.avro"):
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(HistoryError, match="its SHA-256 is not the one of its manifest"):
        of_history(filled, {0: 0})


def test_what_the_archive_has_is_not_missing(filled: Settings) -> None:
    archive.archive(filled, TOPIC, {0: (0, 200), 1: (0, 0)})
    delete_before(filled, {0: 200, 1: 120})
    first, second = missing.from_zero(filled, [TOPIC])
    assert (first.partition, first.deleted, first.archived, first.missing, first.gaps) == (0, 200, 200, 0, ())
    assert (second.partition, second.deleted, second.archived, second.gaps) == (1, 120, 0, ((0, 120),))
    assert "the 200 offsets before 200 are deleted, all of them are in the archive; its first record" in str(first)
    delete_before(filled, {0: 260})
    [first, _] = missing.from_zero(filled, [TOPIC])
    assert (first.deleted, first.archived, first.gaps) == (260, 200, ((200, 260),))
    assert "the archive has 200 of them, nobody has 200 to 259;" in str(first)
    with pytest.raises(HistoryError, match="the offsets 200 to 259 are neither"):
        of_history(filled, {0: 0})


def test_the_commands_say_what_is_kept_what_is_missing_and_what_was_archived(
    filled: Settings, topics: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsetzero = CommandsHere(filled, monkeypatch)
    assert "Nothing of runs is deleted" in offsetzero("log", "missing", "notifier").stdout
    with LogProducer(filled) as producer:
        for number in range(10):
            runs = Names(filled.kafka.namespace).topic("runs")
            producer.produce(runs, key=None, value=b"x", partition=1, timestamp_ms=1_700_000_000_000 + number * 1000)
    asked = admin.client(filled)
    for future in asked.delete_records([TopicPartition(Names(filled.kafka.namespace).topic("runs"), 1, 4)]).values():
        future.result(30)
    said = offsetzero("log", "missing", "notifier").stdout
    assert said == "runs/1: the 4 offsets before 4 are deleted; its first record is of 2023-11-14 22:13:24Z\n"
    [row] = json.loads(offsetzero("log", "missing", "notifier", "--json").stdout)
    assert (row["topic"], row["partition"], row["missing"], row["first_retained"]) == ("runs", 1, 4, 4)
    assert (row["deleted"], row["archived"], row["gaps"]) == (4, 0, [[0, 4]])
    described = json.loads(offsetzero("topics", "describe", "runs", "--json").stdout)
    assert described["retention"] == "forever"
    assert described["partitions"][1]["deleted"] == 4
    assert "runs keeps: forever" in offsetzero("topics", "describe", "runs").stdout
    assert "did you mean runs?" in offsetzero("topics", "describe", "run", status=1).stderr
    said = offsetzero("log", "archive", TOPIC).stdout
    assert f"{TOPIC}/0: offsets 0 to 199" in said
    assert "0 records in 0 new segments" in offsetzero("log", "archive", TOPIC).stdout
