"""What a topic has, put into the archive and deleted from the log."""

from confluent_kafka import TopicPartition

from offsetzero.history import archive, spans
from offsetzero.settings import Settings
from offsetzero.topics import admin
from offsetzero.topics.names import Names


def archive_all(settings: Settings, topic: str, keep: int = 0) -> None:
    """Archive a topic to its end, and delete all but the last `keep` offsets of each partition."""
    kept = spans.resolve(settings, topic, "earliest", "latest")
    archive.archive(settings, topic, kept)
    delete_before(settings, topic, {number: end - keep for number, (first, end) in kept.items() if end - keep > first})


def delete_before(settings: Settings, topic: str, offsets: dict[int, int]) -> None:
    asked = admin.client(settings)  # held, as long as it is to answer
    name = Names(settings.kafka.namespace).topic(topic)
    places = [TopicPartition(name, number, offset) for number, offset in offsets.items()]
    for future in asked.delete_records(places).values():
        future.result(30)
