"""The public API, pinned: a name that goes or comes changes this file."""

import subprocess
import sys

import offsetzero


def test_every_public_name_can_be_imported() -> None:
    for name in offsetzero.__all__:
        assert getattr(offsetzero, name) is not None
    assert sorted(offsetzero._HOMES) == sorted(offsetzero.__all__)


def test_public_names() -> None:
    assert offsetzero.__all__ == [
        "BatchContext",
        "Cancelled",
        "ConsumerGroup",
        "Context",
        "DeadLetter",
        "Discard",
        "DocumentDeleted",
        "DocumentUploaded",
        "Event",
        "OffsetzeroError",
        "Permanent",
        "Poison",
        "Projection",
        "ProviderDown",
        "ProviderWaits",
        "Publisher",
        "Retry",
        "RunCancelled",
        "RunFailed",
        "RunSucceeded",
        "Throttled",
        "Tier",
        "Transient",
    ]


def test_an_event_model_loads_neither_kafka_nor_the_database() -> None:
    code = (
        "import sys; from offsetzero import DocumentUploaded;"
        "print([m for m in ('confluent_kafka', 'psycopg', 'fastapi', 'sqlalchemy') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
