"""How operators say when."""

from datetime import UTC, datetime, timedelta

import pytest

from offsetzero.cli.dlq_desk import letters, parse_time
from offsetzero.clock import SYSTEM
from offsetzero.errors import ConfigurationError


@pytest.mark.parametrize(("text", "ago"), [("30s", 30), ("5m", 300), ("2h", 7_200), ("7d", 604_800), ("1w", 604_800)])
def test_how_long_ago(text: str, ago: int) -> None:
    found = parse_time("--since", text)
    assert found is not None
    assert abs(SYSTEM.now() - timedelta(seconds=ago) - found) < timedelta(seconds=10)


def test_a_time_with_its_zone() -> None:
    assert parse_time("--since", "2026-01-31T13:00:00+01:00") == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert parse_time("--since", None) is None


@pytest.mark.parametrize(
    "text", ["", "now", "2h ago", "-2h", "2", "2026-01-31", "2026-01-31T12:00:00", "2026-02-31T12:00Z"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--until"):
        parse_time("--until", text)


def test_a_count_in_words() -> None:
    assert [letters(count) for count in (0, 1, 1_000)] == ["0 dead letters", "1 dead letter", "1,000 dead letters"]
