"""A group of a user's own, in a file of the user's own, run by the command line."""

import json
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from e2e.conftest import Pipeline, environment

from support import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_example_runs_from_its_folder_and_reads_from_offset_zero(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.start_intake()
    before = pipeline.upload("before.txt", b"published before the group existed")
    monkeypatch.chdir(EXAMPLES)
    group = pipeline.start("groups", "run", "audit:audit")
    after = pipeline.upload("after.txt", b"published while it runs")

    def lines() -> list[str]:
        with psycopg.connect(pipeline.settings.database_url.get_secret_value()) as connection:
            if connection.execute("SELECT to_regclass('audit_lines')").fetchone() == (None,):
                return []
            return [str(one) for (one,) in connection.execute("SELECT document_id FROM audit_lines")]

    assert wait_until(lambda: len(lines()) == 2)
    assert sorted(lines()) == sorted([before["document_id"], after["document_id"]])
    noted = [line for line in group.lines if line["event"] == "noted"]
    assert before["run_id"] in {line["run_id"] for line in noted}
    assert all(line["group"] == "audit" and line["attempt"] == 1 and line["event_id"] for line in noted)

    [listed] = json.loads(command(pipeline, "groups", "list", "audit", "--json").stdout)
    assert len(listed["members"]) == 1
    assert {one["topic"] for one in listed["partitions"]} == {
        "documents",
        "documents.bulk",
        "audit.retry-1m",
        "audit.retry-10m",
        "audit.redrive",
    }
    wait_until(lambda: json.loads(command(pipeline, "groups", "list", "audit", "--json").stdout)[0]["lag"] == 0)
    assert group.stop() == 0
    assert "audit" in command(pipeline, "groups", "list", "--partitions").stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nobody", "indexer, summariser, notifier"),
        ("no.such.module:group", "no module no.such.module"),
        ("audit:nothing", "it has audit"),
    ],
)
def test_a_group_that_is_not_there_is_one_clear_error(
    name: str, said: str, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EXAMPLES)
    ended = command(pipeline, "groups", "run", name)
    assert ended.returncode == 1
    assert said in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr


def command(pipeline: Pipeline, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "offsetzero", *arguments],
        env=environment(pipeline.settings),
        capture_output=True,
        text=True,
        timeout=60,
    )
