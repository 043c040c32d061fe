"""The commands dlq, groups and topics on what a cluster holds, as a person reads them."""

import json
from pathlib import Path

import pytest
from commands import Commands

from offsetzero.producers.log import LogProducer
from offsetzero.settings import Settings
from offsetzero.topics import catalogue, cluster
from offsetzero.topics.names import Names

LONG = "the reason why this one failed, told at length " * 4


@pytest.fixture
def offsetzero(settings: Settings, tmp_path: Path) -> Commands:
    return Commands(settings, tmp_path)


@pytest.fixture
def dead_letters(settings: Settings) -> None:
    """Three dead letters of two groups, whose times are not in the order of groups and partitions."""
    groups = ("audit", "billing")
    cluster.ensure(settings, [topic for group in groups for topic in catalogue.group_topics(group, 2, [])])
    names = Names(settings.kafka.namespace)
    with LogProducer(settings) as producer:
        for group, partition, at in (("audit", 1, 3_000), ("billing", 0, 2_000), ("audit", 0, 4_000)):
            headers = {
                "oz_failure": "poison",
                "oz_reason": "corrupt",
                "oz_detail": LONG,
                "ce_time": "2025-01-01T00:00:00Z",
            }
            producer.produce(
                names.topic(f"{group}.dlq"),
                key=f"key of {group}",
                value=b"\xff",
                headers=[(name, text.encode()) for name, text in headers.items()],
                partition=partition,
                timestamp_ms=at,
            ).result(10)


@pytest.mark.usefixtures("dead_letters")
def test_dead_letters_are_listed_by_time_a_line_each_with_nothing_cut(offsetzero: Commands) -> None:
    lines = offsetzero("dlq", "list", COLUMNS="80").stdout.splitlines()
    assert [line.split()[1:5] for line in lines[1:]] == [
        ["billing", "0/0", "poison", "corrupt"],
        ["audit", "1/0", "poison", "corrupt"],
        ["audit", "0/0", "poison", "corrupt"],
    ]
    assert all(line.startswith("1970-01-01T00:00:0") and line.endswith(LONG.strip()) for line in lines[1:])
    listed = json.loads(offsetzero("dlq", "list", "--json").stdout)
    assert [row["place"] for row in listed] == ["0/0", "1/0", "0/0"]


def test_topics_are_listed_a_line_each_with_all_event_types(offsetzero: Commands) -> None:
    lines = offsetzero("topics", "list", COLUMNS="80").stdout.splitlines()
    (runs,) = (line for line in lines if line.startswith("runs "))
    assert runs.endswith("run.succeeded, run.failed, run.cancelled")
    assert "missing" in runs
