"""sentry-arroyo: a StreamProcessor whose strategy is RunTask, then CommitOffsets."""

from collections.abc import Mapping

from arroyo.backends.kafka import KafkaConsumer, KafkaPayload
from arroyo.backends.kafka.configuration import build_kafka_consumer_configuration
from arroyo.processing import StreamProcessor
from arroyo.processing.strategies import CommitOffsets, ProcessingStrategy, ProcessingStrategyFactory, RunTask
from arroyo.types import Commit, Message, Partition, Topic
from terms import NUMBER, Meter, arguments, decode, report

args = arguments()
meter = Meter(args.count, lambda: processor.signal_shutdown())


def handle(message: Message[KafkaPayload]) -> None:
    """Reads a field."""
    meter.one(decode(message.payload.value)[NUMBER])


class Factory(ProcessingStrategyFactory[KafkaPayload]):
    """One step, then the commit."""

    def create_with_partitions(
        self, commit: Commit, _partitions: Mapping[Partition, int]
    ) -> ProcessingStrategy[KafkaPayload]:
        return RunTask(handle, CommitOffsets(commit))


config = build_kafka_consumer_configuration(
    {}, bootstrap_servers=[args.bootstrap], auto_offset_reset="earliest", group_id=args.group
)
processor = StreamProcessor(KafkaConsumer(config), Topic(args.topic), Factory())
processor.run()
report(meter, of=args.of)
