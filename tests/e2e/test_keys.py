"""The command keys: who may use the API, as an administrator says it."""

import json
from pathlib import Path

import psycopg
import pytest
from commands import CommandsHere

from offsetzero.settings import Settings
from offsetzero.store import tenants
from offsetzero.store.script import run


@pytest.fixture
def offsetzero(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandsHere:
    return CommandsHere(Settings(home=tmp_path, database_url=database_url), monkeypatch)


def tenant_of(url: str, key: str) -> str | None:
    with psycopg.connect(url) as connection:
        return run(connection, tenants.tenant_of(key))


def test_a_key_is_shown_once_listed_by_its_id_and_ended(offsetzero: CommandsHere, database_url: str) -> None:
    made = offsetzero("keys", "create", "acme", "--name", "nightly import")
    key = made.stdout.strip()
    assert tenant_of(database_url, key) == "acme"
    (row,) = json.loads(offsetzero("keys", "list", "--json").stdout)
    assert (row["tenant"], row["name"], row["revoked_at"]) == ("acme", "nightly import", None)
    assert row["id"] in made.stderr
    listed = offsetzero("keys", "list")
    assert key not in listed.stdout + made.stderr
    assert row["id"] in listed.stdout

    assert "that is a key, not its id" in offsetzero("keys", "revoke", key, status=1).stderr
    offsetzero("keys", "revoke", row["id"])
    assert tenant_of(database_url, key) is None
    (after,) = json.loads(offsetzero("keys", "list", "acme", "--json").stdout)
    assert after["revoked_at"] is not None
    assert f"was revoked at {after['revoked_at']} already" in offsetzero("keys", "revoke", row["id"], status=1).stderr


def test_only_the_key_of_that_id_is_ended(offsetzero: CommandsHere, database_url: str) -> None:
    first, second = (json.loads(offsetzero("keys", "create", tenant, "--json").stdout) for tenant in ("a", "b"))
    offsetzero("keys", "revoke", first["id"])
    assert (tenant_of(database_url, first["key"]), tenant_of(database_url, second["key"])) == (None, "b")
    assert [row["tenant"] for row in json.loads(offsetzero("keys", "list", "b", "--json").stdout)] == ["b"]


def test_a_mistake_in_keys_is_told(offsetzero: CommandsHere, postgres_url: str) -> None:
    assert "tenant id 'a b'" in offsetzero("keys", "create", "a b", status=1).stderr
    assert "there is no key 000000000000" in offsetzero("keys", "revoke", "000000000000", status=1).stderr
    assert "one line of 200 characters" in offsetzero("keys", "create", "a", "--name", "x" * 201, status=2).stderr
    assert (
        "run `offsetzero migrate`" in offsetzero("keys", "list", status=1, OFFSETZERO_DATABASE_URL=postgres_url).stderr
    )
