"""The commands dlq, groups and topics on what a cluster holds, as a person reads them."""

import json
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from commands import CommandsHere
from kafka import letters

from offsetzero.producers.log import LogProducer
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentDeleted
from offsetzero.settings import Settings
from offsetzero.topics import catalogue, cluster
from offsetzero.topics.names import Names

LONG = "the reason why this one failed, told at length " * 4


@pytest.fixture
def offsetzero(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> CommandsHere:
    return CommandsHere(settings, monkeypatch, "own")


@pytest.fixture
def dead_letters(settings: Settings) -> None:
    """Three dead letters of two groups, whose times are not in the order of groups and partitions."""
    groups = ("audit", "billing")
    for group in groups:
        letters.make_topics(settings, group)
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
def test_dead_letters_are_listed_by_time_a_line_each_with_nothing_cut(offsetzero: CommandsHere) -> None:
    lines = offsetzero("dlq", "list", COLUMNS="80").stdout.splitlines()
    assert [line.split()[1:5] for line in lines[1:]] == [
        ["billing", "0/0", "poison", "corrupt"],
        ["audit", "1/0", "poison", "corrupt"],
        ["audit", "0/0", "poison", "corrupt"],
    ]
    assert all(line.startswith("1970-01-01T00:00:0") and line.endswith(LONG.strip()) for line in lines[1:])
    listed = json.loads(offsetzero("dlq", "list", "--json").stdout)
    assert [row["place"] for row in listed] == ["0/0", "1/0", "0/0"]


def test_a_dead_letter_is_shown_as_json_in_both_forms(settings: Settings, offsetzero: CommandsHere) -> None:
    cluster.ensure(settings, catalogue.group_topics("audit", 1, []))
    event = DocumentDeleted(document_id=UUID(int=7), tenant_id="acme", deleted_at=datetime(2026, 1, 31, 12, tzinfo=UTC))
    with LogProducer(settings) as producer:
        producer.produce(
            Names(settings.kafka.namespace).topic("audit.dlq"),
            key=b"\xff\x1b[31m",
            value=Codec().encode(event),
            headers=[("oz_failure", b"bug"), ("other", None), ("oz_stack", b"line 1\nline \x1b[2m2")],
        ).result(10)
    wanted = {"document_id": str(UUID(int=7)), "tenant_id": "acme", "deleted_at": "2026-01-31T12:00:00+00:00"}
    assert json.loads(offsetzero("dlq", "show", "audit", "0/0", "--json").stdout)["payload"] == wanted
    text = offsetzero("dlq", "show", "audit", "0/0").stdout
    assert json.loads(text.partition("payload: ")[2].partition("\n}")[0] + "\n}") == wanted
    assert json.loads(text.partition("headers: ")[2].partition("\n}")[0] + "\n}") == {"other": None}
    assert "line 1\nline \\x1b[2m2" in text
    assert "\x1b" not in text


def test_a_group_that_does_not_exist_is_named(offsetzero: CommandsHere) -> None:
    assert "there is no group nogroup" in offsetzero("dlq", "show", "nogroup", "0/0", status=1).stderr
    assert "there is no group nogroup" in offsetzero("dlq", "list", "nogroup", status=1).stderr
    assert "there is no group nogroup" in offsetzero("groups", "list", "nogroup", status=1).stderr


def test_topics_of_groups_of_others_are_told_from_unknown_ones(settings: Settings, offsetzero: CommandsHere) -> None:
    cluster.ensure(settings, [*catalogue.group_topics("billing", 1, ["soon"]), catalogue.Topic("billings", 1)])
    kinds = {line.split()[0]: line for line in offsetzero("topics", "list").stdout.splitlines()}
    assert all("of group billing" in kinds[f"billing.{name}"] for name in ("soon", "redrive", "dlq"))
    assert "undeclared" in kinds["billings"]
    rows = {row["topic"]: row for row in json.loads(offsetzero("topics", "list", "--json").stdout)}
    assert (rows["billing.soon"]["group"], rows["billings"]["group"], rows["indexer.dlq"]["group"]) == (
        "billing",
        None,
        "indexer",
    )


def test_topics_are_listed_a_line_each_with_all_event_types(offsetzero: CommandsHere) -> None:
    lines = offsetzero("topics", "list", COLUMNS="80").stdout.splitlines()
    (runs,) = (line for line in lines if line.startswith("runs "))
    assert runs.endswith("run.succeeded, run.failed, run.cancelled")
    assert "missing" in runs


def test_topics_of_a_group_of_ones_own_have_the_tiers_that_it_declares(
    offsetzero: CommandsHere, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(
        "from offsetzero import ConsumerGroup, DocumentUploaded, Tier\n"
        "own = ConsumerGroup('own', tiers=[Tier('retry-2s', 2)])\n"
        "own.handler(DocumentUploaded)(lambda event, ctx: None)\n"
    )
    planned = offsetzero("topics", "plan", "--group", "own:own").stdout
    made = [line.split()[2] for line in planned.splitlines() if " own." in line]
    assert made == ["own.retry-2s", "own.redrive", "own.dlq"]
