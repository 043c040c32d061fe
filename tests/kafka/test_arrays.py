"""What PostgreSQL makes of arrays that are given as text."""

from datetime import UTC, datetime, timedelta, timezone

import psycopg
import pytest

from offsetzero.settings import Settings
from offsetzero.store import arrays


def test_times_come_out_as_they_went_in(settings: Settings) -> None:
    """In 9999 a double has steps of 30 microseconds, and before 1970 a division goes up."""
    times = [
        datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime(1, 1, 1, 0, 0, 0, 1, UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime(2026, 11, 30, 12, 0, 0, 123_000, timezone(timedelta(hours=2))),
        None,
    ]
    query = f"SELECT {arrays.time_of('t')} FROM unnest(%s::bigint[]) WITH ORDINALITY AS g (t, n) ORDER BY n"
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        connection.execute("SET TimeZone = 'Asia/Kolkata'")
        shown = f"SELECT (t AT TIME ZONE 'UTC')::text FROM ({query}) AS found (t)"
        found = [row[0] for row in connection.execute(shown.encode(), (arrays.times(times),)).fetchall()]
    wanted = [None if one is None else one.astimezone(UTC).replace(tzinfo=None).isoformat(" ") for one in times]
    assert [None if one is None else datetime.fromisoformat(one).isoformat(" ") for one in found] == wanted


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(TypeError):
        arrays.times([datetime(2026, 1, 1)])  # noqa: DTZ001 - that is what it is about
