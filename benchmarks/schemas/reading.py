"""What reading one event costs, step by step, beside what fastavro needs for the same bytes.

    python benchmarks/schemas/reading.py [--events 1000] [--rounds 200]

An event of `document.uploaded` with its usual headers; each record has headers of its own, as they come from the
client. The steps take turns, a few milliseconds each, and the best turn of each counts: what else the machine does
then weighs on none of them. Read the ratios; the times are this machine's.
"""

import argparse
import gc
import io
import os
import platform
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from fastavro import schemaless_reader

from offsetzero.schemas import cloudevents
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.schemas.ids import uuid7
from offsetzero.schemas.metadata import Metadata

TYPE = DocumentUploaded.event_type
HEADER = 10
codec = Codec()
writer = codec.schema(DocumentUploaded)


class Sample(NamedTuple):
    """A record as the client hands it out."""

    value: bytes
    headers: list[tuple[str, bytes | None]]


def samples(count: int) -> list[Sample]:
    """Records of which no two share an object."""
    return [_sample(number) for number in range(count)]


def _sample(number: int) -> Sample:
    document, run = uuid7(), uuid7()
    event = DocumentUploaded(
        document_id=document,
        tenant_id=f"tenant-{number % 50}",
        run_id=run,
        name=f"Quarterly report {number}.pdf",
        content_type="application/pdf",
        uri=f"s3://documents/tenant-{number % 50}/2026/11/{document}.pdf",
        size_bytes=400_000 + number,
        sha256=f"{number:064x}",
        uploaded_at=datetime(2026, 11, 29, tzinfo=UTC) + timedelta(milliseconds=number),
    )
    meta = Metadata(
        id=str(uuid7()),
        source="offsetzero",
        type=TYPE,
        time=datetime(2026, 11, 29, 12, 0, 0, number + 1, tzinfo=UTC),
        subject=str(document),
        dataschema=f"urn:offsetzero:schema:{writer.fingerprint}",
        tenant_id=event.tenant_id,
        run_id=str(run),
    )
    headers = cloudevents.to_headers(meta, cloudevents.AVRO)
    return Sample(codec.encode(event), [(name.encode().decode(), value) for name, value in headers])


def _fastavro(sample: Sample) -> Any:
    source = io.BytesIO(sample.value)
    source.seek(HEADER)
    return schemaless_reader(source, writer.parsed, None)


def _look(sample: Sample) -> UUID:
    event: Any = codec.read(TYPE, sample.value, cloudevents.AVRO)
    found: UUID = event.document_id
    return found


STEPS: dict[str, Callable[[Sample], Any]] = {
    "fastavro.schemaless_reader, logical types": _fastavro,
    "the same, then model_validate": lambda sample: DocumentUploaded.model_validate(_fastavro(sample)),
    "cloudevents.read: headers to Metadata": lambda sample: cloudevents.read(sample.value, sample.headers),
    "cloudevents.glance": lambda sample: cloudevents.glance(sample.value, sample.headers),
    "cloudevents.glance, then meta": lambda sample: cloudevents.glance(sample.value, sample.headers).meta,
    "Codec.read, nobody looks": lambda sample: codec.read(TYPE, sample.value, cloudevents.AVRO),
    "Codec.read, one field": _look,
    "Codec.decode": lambda sample: codec.decode(TYPE, sample.value, cloudevents.AVRO),
}


def measure(records: Sequence[Sample], rounds: int) -> dict[str, float]:
    """Microseconds an event, the best round of each step, without the loop around it."""
    steps = {"": lambda _: None, **STEPS}
    best = dict.fromkeys(steps, float("inf"))
    gc.disable()
    for _ in range(rounds):
        for name, step in steps.items():
            begin = time.thread_time()
            for record in records:
                step(record)
            best[name] = min(best[name], time.thread_time() - begin)
        gc.collect()
    loop = best.pop("")
    return {name: (seconds - loop) / len(records) * 1e6 for name, seconds in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    records = samples(arguments.events)
    assert all(codec.decode(TYPE, value).model_dump() == _fastavro(Sample(value, [])) for value, _ in records)
    found = measure(records, arguments.rounds)
    reference = next(iter(found.values()))
    size = sum(len(record.value) for record in records) // len(records)
    print(
        f"{size} bytes an event, {len(records[0].headers)} headers; Python {platform.python_version()}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n"
    )
    print("| step | µs an event | ratio |\n|---|---:|---:|")
    for name, micros in found.items():
        print(f"| {name} | {micros:.2f} | {micros / reference:.2f} |")


if __name__ == "__main__":
    main()
