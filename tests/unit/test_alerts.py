"""The alert rules of deploy/prometheus: their metrics and labels exist, their pages do, they fire when they should."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client.metrics import MetricWrapperBase

from offsetzero import metrics
from offsetzero.consumers.record import PauseReason

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
RULES = FOLDER / "offsetzero.rules.yml"
TEXT = RULES.read_text()
ALERTS = re.split(r"^      - alert: ", TEXT, flags=re.MULTILINE)[1:]
NAMES = [alert.split()[0] for alert in ALERTS]
EACH = pytest.mark.parametrize("alert", ALERTS, ids=NAMES)


def _labels() -> dict[str, set[str]]:
    """The labels of each series that a process may show, by its name."""
    found = {}
    for one in vars(metrics).values():
        if isinstance(one, MetricWrapperBase):
            for series in one.describe():
                suffix = "_total" if series.type == "counter" else ""
                found[series.name + suffix] = set(one._labelnames)
        elif isinstance(one, metrics.Rows):
            found[one._name] = set(one._labels)
    return found


def _expression(alert: str) -> str:
    match = re.search(r"expr: (.*?)\n        (?:for|labels):", alert, re.DOTALL)
    assert match is not None
    return match[1]


@EACH
def test_an_alert_looks_at_metrics_and_labels_that_exist(alert: str) -> None:
    labels, expression = _labels(), _expression(alert)
    used = set(re.findall(r"\boffsetzero_\w+", expression))
    assert used
    assert used <= set(labels)
    grouped = {name for names in re.findall(r"by \(([\w, ]+)\)", expression) for name in names.split(", ")}
    matched = set(re.findall(r"[{,](\w+)=", expression))
    for name in used:
        assert grouped <= labels[name], name
    assert matched <= set().union(*(labels[name] for name in used))
    shown = set(re.findall(r"\$labels\.(\w+)", alert))
    assert shown <= grouped


@EACH
def test_an_alert_names_a_page_that_is_there(alert: str) -> None:
    match = re.search(r"runbook: (docs/runbooks/\S+\.md)\n", alert)
    assert match is not None
    assert alert.split()[0] in (ROOT / match[1]).read_text(), "the page says which alerts it is for"


@EACH
def test_an_alert_is_tried_by_a_test_of_the_rules(alert: str) -> None:
    tried = (FOLDER / "offsetzero.rules.test.yml").read_text()
    assert f"alertname: {alert.split()[0]}\n" in tried, "it fires"
    assert f"alertname: {alert.split()[0]}, exp_alerts: []}}" in tried, "and not at once"


def test_each_reason_for_a_pause_has_an_alert() -> None:
    named = {reason for one in re.findall(r'reason=~?"([^"]+)"', TEXT) for reason in one.split("|")}
    assert named == set(PauseReason) - {PauseReason.LANE}, "a backfill may take days"


@pytest.mark.parametrize("command", [["check", "rules", RULES.name], ["test", "rules", "offsetzero.rules.test.yml"]])
def test_prometheus_itself_takes_the_rules(command: list[str]) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not on PATH: the rules were not tried (on Debian: apt install prometheus)")
    done = subprocess.run([tool, *command], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
