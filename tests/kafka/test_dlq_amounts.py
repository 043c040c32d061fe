"""Many dead letters: at the rate that was asked for, and listed as quickly as few (`make amounts`)."""

import json
import os
import time

import psycopg
import pytest
from commands import CommandsHere
from kafka import letters
from kafka.letters import Letter

from offsetzero.retry.failures import Poison
from offsetzero.settings import Settings

pytestmark = pytest.mark.skipif("OZ_TEST_AMOUNTS" not in os.environ, reason="takes minutes: make amounts")


@pytest.fixture
def offsetzero(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> CommandsHere:
    return CommandsHere(settings, monkeypatch)


@pytest.mark.timeout(900)
def test_100_000_dead_letters_are_redriven_at_a_rate(settings: Settings, offsetzero: CommandsHere) -> None:
    count, rate = 100_000, 1_000
    letters.write(settings, "audit", [Letter(offset // 6, offset % 6) for offset in range(count)], partitions=6)
    offsetzero("dlq", "groups")  # reads them into the ledger
    begun = time.monotonic()
    offsetzero("dlq", "redrive", "audit", "--all", "--why", "again", "--rate", str(rate))
    took = time.monotonic() - begun
    times = sorted(one["timestamp_ms"] for one in letters.redriven(settings, "audit"))
    seen = count / (times[-1] - times[0]) * 1_000
    print(
        f"{count} redriven at {rate}/s asked, {seen:.0f}/s seen ({seen / rate - 1:+.1%}); the command took {took:.1f} s"
    )
    assert len(times) == count
    assert seen == pytest.approx(rate, rel=0.05)


@pytest.mark.timeout(900)
def test_a_million_dead_letters_are_listed_quickly(
    settings: Settings, offsetzero: CommandsHere, postgres_url: str
) -> None:
    """A million in the ledger alone, one in ten of them open, and a few discarded; and 100,000 in the log, too."""
    count = 100_000
    letters.write(settings, "audit", [Letter(0)], partitions=6)
    begun = time.monotonic()
    offsetzero("dlq", "list", "audit")
    few = time.monotonic() - begun
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as connection:
        for statement in _A_MILLION:
            connection.execute(statement)
        failed = [Letter(offset // 6, offset % 6, failure=Poison("in-the-log")) for offset in range(count)]
        letters.write(settings, "audit", failed, partitions=6)
        offsetzero("dlq", "groups")  # reads them into the ledger
        connection.execute("ANALYZE")
        (fingerprint,) = connection.execute(
            "SELECT DISTINCT fingerprint FROM dead_letters WHERE reason = 'in-the-log'"
        ).fetchone() or ("",)
        took = dict[str, float]()

        def seconds(name: str, *arguments: str) -> str:
            begun = time.monotonic()
            said = offsetzero("dlq", *arguments).stdout
            took[name] = round(time.monotonic() - begun, 2)
            return said

        seconds("list", "list", "audit")
        seconds("list of a cause", "list", "audit", "--fingerprint", "f9")
        for status in ("redriven", "resolved", "ended", "discarded"):
            seconds(status, "list", "audit", "--status", status)
        seconds("groups", "groups")
        seconds("show", "show", "audit", "event 4711")
        counted = seconds("dry run of a cause", "redrive", "audit", "--fingerprint", fingerprint, "--dry-run")
        assert counted == f"{count:,} dead letters of audit would be redriven.\n"
        counted = seconds("dry run of all", "redrive", "audit", "--all", "--dry-run")
        assert counted == f"{count + 1:,} dead letters of audit would be redriven.\n"
        connection.execute(
            "INSERT INTO processed_events SELECT group_name, 1, source, event_id, redrive_no + 1, 'applied', now() "
            "FROM dead_letters JOIN dead_letter_decisions USING (topic_id, partition, place)"
        )
        connection.execute("ANALYZE")
        for status in ("redriven", "resolved", "ended", "discarded"):
            seconds(f"{status} when all are resolved", "list", "audit", "--status", status)
    print(f"with one: {few:.2f} s; with a million, at load {os.getloadavg()[0]:.1f}: {json.dumps(took)}")
    assert took["list"] < few + 2
    assert max(took.values()) < few + 10


_REDRIVE, _DISCARD = "00000000-0000-7000-8000-000000000001", "00000000-0000-7000-8000-000000000002"
_A_MILLION = (
    "INSERT INTO dead_letters SELECT topic_id, n % 6, 10000000 + n, group_name, now() - n * interval '1 s', source, "
    "'event ' || n, 0, event_type, tenant_id, run_id, key, failure, reason, detail, "
    "'f' || n % 10, attempt, origin_topic_id, origin_topic, n % 6, n "
    "FROM dead_letters, generate_series(1, 1000000) AS n",
    "INSERT INTO dead_letter_actions SELECT id::uuid, kind, 'audit', 'ada', '', '', now(), now(), 'done' "
    f"FROM (VALUES ('{_REDRIVE}', 'redrive'), ('{_DISCARD}', 'discard')) AS a (id, kind)",
    f"INSERT INTO dead_letter_decisions SELECT topic_id, partition, place, '{_REDRIVE}', 1, now() FROM dead_letters "
    "WHERE place > 10 AND place % 10 < 9",
    f"INSERT INTO dead_letter_decisions SELECT topic_id, partition, place, '{_DISCARD}', 1, now() FROM dead_letters "
    "WHERE place IN (10000009, 10999999)",
    "ANALYZE",
)
