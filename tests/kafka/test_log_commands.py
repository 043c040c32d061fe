"""The commands topics, schema and publish, run as a person runs them."""

import json
import re
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from commands import Commands, CommandsHere

from offsetzero.schemas import frozen
from offsetzero.settings import Settings
from offsetzero.topics import cluster

ID = str(UUID(int=1))
DELETED = {"tenant_id": "acme", "deleted_at": "2026-01-31T12:00:00Z"}


@pytest.fixture
def offsetzero(settings: Settings, tmp_path: Path) -> Commands:
    return Commands(settings, tmp_path)


@pytest.fixture
def here(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CommandsHere:
    monkeypatch.chdir(tmp_path)
    return CommandsHere(settings, monkeypatch)


def test_plan_apply_and_list_work_one_after_the_other(settings: Settings, offsetzero: Commands) -> None:
    assert "would    create documents with 6 partitions, 1 replicas" in offsetzero("topics", "plan").stdout
    offsetzero("topics", "plan", "--exit-code", status=3)
    assert cluster.partitions(settings) == {}
    applied = json.loads(offsetzero("topics", "apply", "--json").stdout)
    published = len({one.schema.fingerprint for versions in frozen.of_package().values() for one in versions})
    assert (applied["applied"], applied["schemas_published"]) == (True, published)
    assert "The topics are as declared." in offsetzero("topics", "plan", "--exit-code").stdout
    again = json.loads(offsetzero("topics", "apply", "--json").stdout)
    assert (again["actions"], again["schemas_published"]) == ([], 0)
    listed = {row["topic"]: row for row in json.loads(offsetzero("topics", "list", "--json").stdout)}
    assert listed["runs"]["event_types"] == ["run.succeeded", "run.failed", "run.cancelled"]
    assert listed["indexer.retry-1m"]["partitions"] == 6
    assert "documents.bulk" in offsetzero("topics", "list", COLUMNS="200").stdout
    fewer = offsetzero("topics", "apply", status=1, OFFSETZERO_KAFKA__PARTITIONS="3")
    assert "cannot take partitions away" in fewer.stderr
    more = offsetzero("topics", "plan", "--json", status=1, OFFSETZERO_KAFKA__PARTITIONS="8")
    assert len(json.loads(more.stdout)["refusals"]) == 20
    offsetzero("topics", "apply", "--allow-rekey", OFFSETZERO_KAFKA__PARTITIONS="8")
    assert cluster.partitions(settings)["notifier.dlq"] == 8


def test_the_topics_of_a_group_of_ones_own_are_planned_with_it(offsetzero: Commands, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from offsetzero import ConsumerGroup, RunFailed\n"
        "audit = ConsumerGroup('audit')\n"
        "@audit.handler(RunFailed)\n"
        "def note(event, ctx): pass\n"
    )
    plan = json.loads(offsetzero("topics", "plan", "--group", "mine:audit", "--json").stdout)
    assert "audit.retry-1m" in [action["topic"]["name"] for action in plan["actions"]]
    assert "no module nothere" in offsetzero("topics", "plan", "--group", "nothere:x", status=1).stderr


def test_publish_takes_text_a_file_or_standard_input(here: CommandsHere, tmp_path: Path) -> None:
    here("topics", "apply")
    document, event_id = uuid4(), uuid4()
    whole = json.dumps({"document_id": str(document), **DELETED})
    (tmp_path / "event.json").write_text(whole)
    said = here("publish", "document.deleted", "--data", whole).stdout
    assert f"document.deleted {document} is at" in said
    first = json.loads(here("publish", "document.deleted", "--data", "@event.json", "--json").stdout)
    second = json.loads(
        here(
            "publish", "document.deleted", "--data", "-", "--key", str(document), "--json", "--id", str(event_id),
            stdin=json.dumps(DELETED),
        ).stdout
    )  # fmt: skip
    assert second["key"] == str(document)
    assert second["id"] == str(event_id)
    assert UUID(first["id"]).version == 7
    assert re.search(r"event id [0-9a-f-]{36}$", said.strip())
    assert (second["partition"], second["offset"]) == (first["partition"], first["offset"] + 1)


def test_a_service_that_only_publishes_makes_its_topics_by_its_module(
    settings: Settings, offsetzero: Commands, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(
        "from offsetzero import Event\n"
        "from offsetzero.topics.catalogue import Topic, declare\n"
        "declare(Topic('invoices', event_types=('invoice.paid',), key='invoice number'))\n"
        "class Paid(Event, type='invoice.paid', key='number'):\n    number: str\n"
    )
    assert "create invoices with" in offsetzero("topics", "plan", "--module", "shop").stdout
    offsetzero("topics", "apply", "--module", "shop")
    assert cluster.partitions(settings)["invoices"] == settings.kafka.partitions
    (row,) = (
        row
        for row in json.loads(offsetzero("topics", "list", "--module", "shop", "--json").stdout)
        if row["topic"] == "invoices"
    )
    assert row["event_types"] == ["invoice.paid"]
    published = offsetzero("publish", "invoice.paid", "--module", "shop", "--data", '{"number": "7"}', "--json")
    assert json.loads(published.stdout)["topic"].endswith("invoices")
    assert "no module nothere" in offsetzero("topics", "plan", "--module", "nothere", status=1).stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no.such", "--data", "{}"], "is none of "),
        (["document.deleted", "--data", "{"], "not JSON"),
        (["document.deleted", "--data", "[]"], "JSON object"),
        (["document.deleted", "--data", "@missing.json"], "missing.json"),
        (["document.deleted", "--data", json.dumps(DELETED)], "document_id: Field required"),
        (["document.deleted", "--data", json.dumps(DELETED), "--key", "x"], "document_id"),
        (
            ["document.deleted", "--data", json.dumps({"document_id": ID, **DELETED}), "--key", "x"],
            "is not the event's document_id",
        ),
        (
            ["document.deleted", "--data", json.dumps({"document_id": ID, **DELETED}), "--id", "x"],
            "not a UUID",
        ),
        (
            ["document.deleted", "--data", json.dumps({**DELETED, "deleted_at": "2026-01-31T12:00:00"}), "--key", ID],
            "no time zone",
        ),
    ],
)
def test_a_mistake_in_publish_is_a_usage_error(here: CommandsHere, arguments: list[str], said: str) -> None:
    shown = " ".join(here("publish", *arguments, status=2, COLUMNS="300").stderr.split())
    assert said in shown


def test_schemas_are_checked_and_frozen_for_modules_of_ones_own(offsetzero: Commands, tmp_path: Path) -> None:
    assert f"{len(frozen.of_package())} event types agree" in offsetzero("schema", "check").stdout
    module = tmp_path / "shop.py"
    head = "from offsetzero import Event\nclass Paid(Event, type='invoice.paid', key='number'):\n    number: str\n"
    module.write_text(head)
    own = ("--module", "shop", "--contracts", "contracts")
    assert "not frozen as v1" in offsetzero("schema", "check", *own, status=1).stderr
    assert "invoice.paid/v1.avsc" in offsetzero("schema", "freeze", *own).stdout
    assert "1 event types agree" in offsetzero("schema", "check", *own).stdout
    module.write_text(head + "    cents: int\n")
    broken = offsetzero("schema", "freeze", *own, status=1).stderr
    assert "Paid.cents: not written, and without a default" in broken
    module.write_text(head + "    cents: int = 0\n")
    assert json.loads(offsetzero("schema", "freeze", *own, "--json").stdout) == ["contracts/invoice.paid/v2.avsc"]
    assert "belong together" in offsetzero("schema", "check", "--module", "shop", status=2).stderr
    assert (
        "there is no module nothere"
        in offsetzero("schema", "check", "--module", "nothere", "--contracts", "c", status=1).stderr
    )
