"""Every command says the same, and soon, of a cluster that does not answer."""

import json
import sys
import time

import pytest

from offsetzero.cli import app as cli
from offsetzero.topics import admin

DELETED = {
    "document_id": "00000000-0000-0000-0000-000000000001",
    "tenant_id": "a",
    "deleted_at": "2026-01-31T12:00:00Z",
}


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "plan"],
        ["topics", "apply"],
        ["topics", "list"],
        ["groups", "list"],
        ["groups", "list", "indexer"],
        ["dlq", "list"],
        ["dlq", "list", "indexer"],
        ["dlq", "show", "indexer", "0/0"],
        ["publish", "document.deleted", "--data", json.dumps(DELETED)],
    ],
    ids=lambda arguments: " ".join(arguments[:3]),
)
def test_a_cluster_that_is_away_is_told_in_one_way(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(admin, "ANSWER_SECONDS", 0.3)
    monkeypatch.setenv("OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setattr(sys, "argv", ["offsetzero", *arguments])
    started = time.monotonic()
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert time.monotonic() - started < 10
    said = capfd.readouterr().err
    assert "Error: the cluster at 127.0.0.1:1 does not answer within 0.3 s; is it up?" in said
    assert "rdkafka#" not in said
    assert "landed" not in said  # it was asked before, not tried
