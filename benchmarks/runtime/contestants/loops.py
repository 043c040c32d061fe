"""The ceiling of a rebuild: the consume() loop that only decodes, in one process or one for each core."""

import argparse
import json
import multiprocessing
import time
from io import BytesIO
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from fastavro import parse_schema, schemaless_reader
from terms import BATCH, HEADER, SCHEMA

parser = argparse.ArgumentParser()
for name in ("bootstrap", "topic", "group"):
    parser.add_argument(f"--{name}", required=True)
for name in ("count", "of", "partitions", "members"):
    parser.add_argument(f"--{name}", type=int, required=True)


def schema_of(path: Path) -> Any:
    """A frozen contract."""
    return parse_schema(json.loads(path.read_text()))


WAIT_SECONDS = 0.05  # for a batch to fill: at the end of the log none does, and a loop that waits is no ceiling
UPLOADED, DELETED = schema_of(SCHEMA), schema_of(SCHEMA.parents[1] / "document.deleted/v1.avsc")


def consume(args: argparse.Namespace, member: int) -> tuple[int, float, float, float]:
    """Read every so many-th partition to its end, as `loop.py` does.

    Returns:
        How many records there were, when the first and the last came, and the seconds of CPU time between.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": args.bootstrap,
            "group.id": args.group,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    mine = range(member, args.partitions, args.members)
    consumer.assign([TopicPartition(args.topic, number, 0) for number in mine])
    ended, count, started, cpu, uploaded = 0, 0, 0.0, 0.0, None
    last = 0.0
    while ended < len(mine):
        before = count
        for message in consumer.consume(BATCH, WAIT_SECONDS):
            if error := message.error():
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                ended += 1
                continue
            if not count:
                started, cpu = time.monotonic(), time.process_time()
            message.key(), message.headers(), message.offset()
            value = message.value()
            uploaded = uploaded or value[:HEADER]  # by the fingerprint: the first is of an upload
            source = BytesIO(value)
            source.seek(HEADER)
            schemaless_reader(source, UPLOADED if value[:HEADER] == uploaded else DELETED, None)
            count += 1
        if count > before:
            last = time.monotonic()
    found = count, started, last, time.process_time() - cpu
    consumer.close()
    return found


def main() -> None:
    """Run the members, and print what they did together."""
    args = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool(args.members) as pool:
        found = pool.starmap(consume, [(args, member) for member in range(args.members)])
    counts, starts, ends, cpu = zip(*found, strict=True)
    line = {
        "count": sum(counts),
        "seconds": max(ends) - min(start for start, count in zip(starts, counts, strict=True) if count),
        "cpu_seconds": sum(cpu),
        "problems": [f"{sum(counts):,} of {args.of:,} events read"] if sum(counts) != args.of else [],
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
