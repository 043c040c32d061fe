"""Many dead letters: at the rate that was asked for, and listed as quickly as few (`make amounts`)."""

import json
import os
import time

import psycopg
import pytest
from commands import CommandsHere
from kafka import letters
from kafka.letters import Letter

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
    letters.write(settings, "audit", [Letter(0)])
    begun = time.monotonic()
    offsetzero("dlq", "list", "audit")
    few = time.monotonic() - begun
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as connection:
        connection.execute(
            "INSERT INTO dead_letters SELECT topic_id, n % 6, 10 + n, group_name, now() - n * interval '1 s', source, "
            "'event ' || n, 0, event_type, tenant_id, run_id, key, failure, reason, detail, "
            "'f' || n % 10, attempt, origin_topic_id, origin_topic, n % 6, n "
            "FROM dead_letters, generate_series(1, 1000000) AS n"
        )
        action = "00000000-0000-7000-8000-000000000001"
        connection.execute(
            "INSERT INTO dead_letter_actions VALUES (%s, 'redrive', 'audit', 'ada', '', '', now(), now(), 'done')",
            (action,),
        )
        connection.execute(
            "INSERT INTO dead_letter_decisions SELECT topic_id, partition, place, %s, 1, now() FROM dead_letters "
            "WHERE place > 10 AND place %% 10 < 9",
            (action,),
        )
        connection.execute("ANALYZE")
    took = {}
    for arguments in (
        ("list", "audit"),
        ("list", "audit", "--fingerprint", "f9"),
        *(("list", "audit", "--status", status) for status in ("redriven", "resolved", "discarded")),
        ("groups",),
        ("show", "audit", "event 4711"),
        ("redrive", "audit", "--all", "--dry-run"),
        ("redrive", "audit", "--fingerprint", "f9", "--dry-run"),
    ):
        begun = time.monotonic()
        offsetzero("dlq", *arguments)
        took[" ".join(arguments)] = round(time.monotonic() - begun, 2)
    print(f"with one: {few:.2f} s; with a million: {json.dumps(took)}")
    assert took["list audit"] < few + 2
    assert max(took.values()) < few + 10
