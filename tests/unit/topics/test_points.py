"""Points in a log, as people write them."""

from datetime import UTC, datetime, timedelta

import pytest

from offsetzero.errors import ConfigurationError
from offsetzero.topics.points import parse_with_ago

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def test_a_time_that_has_not_come_yet_is_a_slip_and_not_the_end_of_the_log() -> None:
    """A group that is set to it would pass over all that it has not read."""
    with pytest.raises(ConfigurationError, match="--from 2036-11-30T12:00:00Z: that time has not come yet"):
        parse_with_ago("--from", "2036-11-30T12:00:00Z", NOW)


def test_the_clock_of_who_writes_may_be_a_little_ahead() -> None:
    assert parse_with_ago("--from", "2026-11-30T12:04:00Z", NOW) == NOW + timedelta(minutes=4)
    assert parse_with_ago("--from", "-2h", NOW) == NOW - timedelta(hours=2)
