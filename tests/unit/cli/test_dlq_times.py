"""How operators say when, and which."""

from datetime import UTC, datetime, timedelta

import pytest

from offsetzero.cli.dlq_desk import chosen, letters, no_match, parse_time
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


@pytest.mark.parametrize("option", ["type", "tenant", "fingerprint", "text"])
def test_an_empty_filter_is_refused_and_does_not_choose_everything(option: str) -> None:
    """A script gives one whose variable is not set; `dlq discard --fingerprint ""` gave up all that was open."""
    names = {"type": "event_type"}
    options = dict.fromkeys(("event_type", "tenant", "fingerprint", "since", "until", "text"))
    with pytest.raises(ConfigurationError, match=f"--{option} is empty"):
        chosen(**{**options, names.get(option, option): ""})


def test_a_fingerprint_is_hex_in_any_case() -> None:
    assert chosen(None, None, "CD28", None, None).fingerprint == "cd28"
    with pytest.raises(ConfigurationError, match="--fingerprint cd2%"):
        chosen(None, None, "cd2%", None, None)


def test_nothing_can_be_between_times_that_are_the_wrong_way_round() -> None:
    with pytest.raises(ConfigurationError, match="--until 2h: it is not after --since 1h"):
        chosen(None, None, None, "1h", "2h")


def test_what_was_not_found_is_told_with_how_it_was_chosen() -> None:
    assert no_match((), "all") == "No dead letters in any group."
    assert no_match(["audit"], "open", type=None, tenant="acme") == "No open dead letters in audit with --tenant acme."
