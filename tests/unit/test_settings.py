"""Settings: every mistake at once, the environment before what `up` left behind, a document that is up to date."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from offsetzero import endpoints, settings
from offsetzero.cli.settings import table
from offsetzero.embedded.home import HomeLock
from offsetzero.errors import ConfigurationError

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"


def load_with(monkeypatch: pytest.MonkeyPatch, **variables: str) -> settings.Settings:
    for name, value in variables.items():
        monkeypatch.setenv(f"OFFSETZERO_{name}", value)
    return settings.load()


def test_all_mistakes_are_reported_together(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_with(
            monkeypatch,
            KAFKA__PARTITIONS="many",
            RETRY__DELAYS="1m, 10m",
            DATABASE_URL="mysql://root:secret@db/x",
            KAFKA__OPTIONS='{"sasl.password": ["secret"]}',
            LLM="gpt",
            KAFAK__NAMESPACE="typo",
        )
    named = [problem.partition(":")[0] for problem in caught.value.problems]
    assert sorted(named) == [
        "OFFSETZERO_DATABASE_URL",
        "OFFSETZERO_KAFAK__NAMESPACE",
        "OFFSETZERO_KAFKA__OPTIONS__SASL.PASSWORD",
        "OFFSETZERO_KAFKA__PARTITIONS",
        "OFFSETZERO_LLM",
        "OFFSETZERO_RETRY__DELAYS",
    ]
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://", "https:///v1", "http://[::1/v1", "http://a:99999", "http://a b/v1", "http://a/v1?x"]
)
def test_an_endpoint_that_no_call_could_reach_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """Each call was an error that nobody had foreseen: 500 to every search."""
    with pytest.raises(ConfigurationError, match=r"OFFSETZERO_EMBEDDINGS__BASE_URL: .*must be a URL with a host"):
        load_with(monkeypatch, EMBEDDINGS__BASE_URL=url)


def test_a_key_that_no_header_takes_is_refused_without_being_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of each call had the key in it, and went into the log and the dead letters."""
    assert load_with(monkeypatch, LLM__API_KEY="sk-1\n").llm.api_key.get_secret_value() == "sk-1"
    for key in ("sk secret", "secr\u00e9t", "a\nsecret"):
        with pytest.raises(ConfigurationError, match=r"OFFSETZERO_LLM__API_KEY: .*must be printable ASCII") as caught:
            load_with(monkeypatch, LLM__API_KEY=key)
        assert key not in str(caught.value)


def test_what_is_needed_and_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError) as caught:
        settings.load(needs=frozenset({"kafka", "database"}))
    assert len(caught.value.problems) == 2
    assert all("offsetzero up" in problem for problem in caught.value.problems)


def test_the_environment_wins_over_a_running_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    left = {
        "OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "OFFSETZERO_KAFKA__NAMESPACE": "left.",
        "OFFSETZERO_DATABASE_URL": "postgresql://left/behind",
    }
    with HomeLock(tmp_path):
        endpoints.write(tmp_path, left)
        assert endpoints.file(tmp_path).stat().st_mode & 0o077 == 0, "it holds a password"
        found = load_with(monkeypatch, HOME=str(tmp_path), KAFKA__NAMESPACE="mine.")
    assert found.kafka.bootstrap_servers == "127.0.0.1:1"
    assert found.kafka.namespace == "mine."
    assert found.database_url.get_secret_value() == "postgresql://left/behind"


@pytest.fixture
def killed_up(tmp_path: Path) -> Iterator[Path]:
    """The folder of an `up` that was killed while a guard of its servers still has the lock."""
    with HomeLock(tmp_path) as lock:
        dead = subprocess.Popen([sys.executable, "-c", ""])
        dead.wait()
        lock.path.write_text(f"{dead.pid}\n")
        endpoints.write(tmp_path, {"OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1"})
        yield tmp_path


def test_what_a_killed_up_left_is_not_believed(killed_up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_with(monkeypatch, HOME=str(killed_up)).kafka.bootstrap_servers == ""
    with pytest.raises(ConfigurationError, match=r"the last `offsetzero up` in .* died; start it again"):
        settings.load(needs=frozenset({"kafka"}))


def test_what_an_up_left_is_not_believed_when_nobody_has_the_lock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    HomeLock(tmp_path).release()  # this process's id is in it, and lives
    endpoints.write(tmp_path, {"OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1"})
    assert load_with(monkeypatch, HOME=str(tmp_path)).kafka.bootstrap_servers == ""
    HomeLock(tmp_path).release()  # asking has left no lock


@pytest.mark.parametrize("content", ["", "[]", "no json", json.dumps({"OTHER": 1})])
def test_endpoints_that_cannot_be_read_are_as_none(
    content: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with HomeLock(tmp_path):
        endpoints.file(tmp_path).write_text(content)
        assert load_with(monkeypatch, HOME=str(tmp_path)).kafka.bootstrap_servers == ""


def test_the_document_lists_every_setting_as_it_is() -> None:
    assert table() in DOCUMENT.read_text(), "run: offsetzero settings --markdown, and put it into the document"
