"""When a schedule fires: by cron's rules, in zones whose clocks are changed."""

import re
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from debian_cron import debian
from offsetzero.errors import ConfigurationError
from offsetzero.producers.schedules.timetable import Timetable, forget, timetable

# cron, zone, after, what comes then; both as the wall clock has them, with its offset
CASES = {
    "an hour is skipped: at its end": (
        "30 2 * * *",
        "Europe/Berlin",
        "2026-03-28T12:00+01:00",
        ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"],
    ),
    "what is skipped more than once comes once": (
        "0,20,40 2 * * *",
        "Europe/Berlin",
        "2026-03-28T12:00+01:00",
        ["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00"],
    ),
    "what is skipped comes once with what is due then anyway": (
        "0,30 2,3 * * *",
        "Europe/Berlin",
        "2026-03-28T12:00+01:00",
        ["2026-03-29T03:00+02:00", "2026-03-29T03:30+02:00"],
    ),
    "an hour is doubled: the first time": (
        "30 2 * * *",
        "Europe/Berlin",
        "2026-10-24T12:00+02:00",
        ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"],
    ),
    "asked in the doubled hour, it is over": (
        "30 2 * * *",
        "Europe/Berlin",
        "2026-10-25T02:15+01:00",
        ["2026-10-26T02:30+01:00"],
    ),
    "a wild one leaves out the skipped hour": (
        "*/30 2 * * *",
        "Europe/Berlin",
        "2026-03-28T12:00+01:00",
        ["2026-03-30T02:00+02:00", "2026-03-30T02:30+02:00"],
    ),
    "a wild one has the doubled hour twice": (
        "*/30 2 * * *",
        "Europe/Berlin",
        "2026-10-24T12:00+02:00",
        ["2026-10-25T02:00+02:00", "2026-10-25T02:30+02:00", "2026-10-25T02:00+01:00", "2026-10-25T02:30+01:00"],
    ),
    "each hour is each hour": (
        "0 * * * *",
        "Europe/Berlin",
        "2026-03-29T00:30+01:00",
        ["2026-03-29T01:00+01:00", "2026-03-29T03:00+02:00"],
    ),
    "clocks that change by half an hour: skipped": (
        "15 2 * * *",
        "Australia/Lord_Howe",
        "2026-10-03T12:00+10:30",
        ["2026-10-04T02:30+11:00", "2026-10-05T02:15+11:00"],
    ),
    "clocks that change by half an hour: nothing of the hour after it is lost": (
        "*/20 3 * * *",
        "Australia/Lord_Howe",
        "2026-10-03T12:00+10:30",
        ["2026-10-04T03:00+11:00", "2026-10-04T03:20+11:00", "2026-10-04T03:40+11:00"],
    ),
    "clocks that change by half an hour: doubled": (
        "*/20 1 * * *",
        "Australia/Lord_Howe",
        "2026-04-05T00:30+11:00",
        ["2026-04-05T01:00+11:00", "2026-04-05T01:20+11:00", "2026-04-05T01:40+11:00", "2026-04-05T01:40+10:30"],
    ),
    "a zone with a half-hour offset": (
        "30 2 * * *",
        "Asia/Kolkata",
        "2026-03-28T12:00+05:30",
        ["2026-03-29T02:30+05:30"],
    ),
    "midnight is skipped": (
        "0 0 * * *",
        "America/Havana",
        "2026-03-07T12:00-05:00",
        ["2026-03-08T01:00-04:00", "2026-03-09T00:00-04:00"],
    ),
    "midnight is skipped, each hour of that day": (
        "0 * 8 3 *",
        "America/Havana",
        "2026-03-07T12:00-05:00",
        ["2026-03-08T01:00-04:00", "2026-03-08T02:00-04:00"],
    ),
    "a whole day is skipped": (
        "0 2 * * *",
        "Pacific/Apia",
        "2011-12-29T12:00-10:00",
        ["2011-12-31T00:00+14:00", "2011-12-31T02:00+14:00"],
    ),
    "the rules of a zone have changed: it has no summer time any more": (
        "0 2 * * *",
        "Europe/Istanbul",
        "2016-03-26T12:00+02:00",
        ["2016-03-27T02:00+02:00", "2016-03-28T02:00+03:00"],
    ),
    "winter in which clocks are not set back any more": (
        "30 3 30 10 *",
        "Europe/Istanbul",
        "2015-10-30T12:00+02:00",
        ["2016-10-30T03:30+03:00", "2017-10-30T03:30+03:00"],
    ),
    "a doubled hour of the day on which one asked, and a text that comes once a year": (
        "*/30 2 25 10 *",
        "Europe/Berlin",
        "2026-10-25T02:45+02:00",
        ["2026-10-25T02:00+01:00", "2026-10-25T02:30+01:00", "2027-10-25T02:00+02:00"],
    ),
    "either day where neither begins with a star": (
        "0 0 13 * 5",
        "UTC",
        "2026-11-06T00:00+00:00",
        ["2026-11-13T00:00+00:00", "2026-11-20T00:00+00:00", "2026-11-27T00:00+00:00", "2026-12-04T00:00+00:00"],
    ),
    "the last day of a month": (
        "0 0 L * *",
        "UTC",
        "2028-01-31T00:00+00:00",
        ["2028-02-29T00:00+00:00", "2028-03-31T00:00+00:00"],
    ),
    "Sunday is 0 and 7 and a name": ("0 0 * * SUN", "UTC", "2026-11-30T00:00+00:00", ["2026-12-06T00:00+00:00"]),
}


@pytest.mark.parametrize(("cron", "zone", "after", "expected"), CASES.values(), ids=list(CASES))
def test_it_fires_when_the_wall_clock_says_so(cron: str, zone: str, after: str, expected: list[str]) -> None:
    found = islice(Timetable(cron, zone).all_after(datetime.fromisoformat(after)), len(expected))
    assert [one.astimezone(ZoneInfo(zone)).isoformat(timespec="minutes") for one in found] == expected


ROWS = re.findall(
    r"^\| `(.+)` \| (\S+/\S+) \| (\S+ \S+ \S+) \| (.+) \|$",
    (Path(__file__).parents[3] / "docs" / "schedules.md").read_text(),
    re.MULTILINE,
)


@pytest.mark.parametrize(("cron", "zone", "after", "expected"), ROWS)
def test_the_page_tells_when_it_fires(cron: str, zone: str, after: str, expected: str) -> None:
    begin = datetime.strptime(after, "%Y-%m-%d %H:%M %z")
    times = expected.split(", ")
    found = islice(Timetable(cron, zone).all_after(begin), len(times))
    shown = [one.astimezone(ZoneInfo(zone)).isoformat(" ", "minutes") for one in found]
    assert [f"{one[:16]} {one[16:]}" for one in shown] == times
    assert begin.utcoffset() == begin.astimezone(ZoneInfo(zone)).utcoffset(), "as the clock there says"


def test_the_page_has_its_examples() -> None:
    assert len(ROWS) == 12


def test_a_part_of_a_second_counts() -> None:
    table, at = Timetable("30 2 * * *", "UTC"), datetime(2026, 1, 1, 2, 30, tzinfo=UTC)
    assert table.after(at - timedelta(microseconds=1)) == at
    assert table.after(at) == table.after(at + timedelta(microseconds=1)) == at + timedelta(days=1)


# Each has a change of clocks on the day that is named, of three hours at most: cron takes more for a correction.
CHANGES = [
    ("Europe/Berlin", "2026-03-29T01:00"),
    ("Europe/Berlin", "2026-10-25T01:00"),
    ("America/New_York", "2026-03-08T07:00"),
    ("America/New_York", "2026-11-01T06:00"),
    ("Australia/Lord_Howe", "2026-10-03T15:30"),
    ("Australia/Lord_Howe", "2026-04-04T15:00"),
    ("America/Sao_Paulo", "2018-11-04T03:00"),
    ("America/Havana", "2026-11-01T05:00"),
    ("Asia/Kathmandu", "1985-12-31T18:30"),
    ("Asia/Pyongyang", "2015-08-14T15:00"),
    ("Europe/Istanbul", "2016-03-27T01:00"),
    ("Antarctica/Troll", "2026-03-29T01:00"),
    ("Antarctica/Troll", "2026-10-25T01:00"),
]
_MINUTES = st.sampled_from(["0", "30", "59", "0,30", "15-45/10", "*", "*/7", "*/30", "5/20"])
_HOURS = st.sampled_from(["0", "1", "2", "3", "1-3", "0,2", "23", "*", "*/2", "0-4/3"])
_DAYS = st.sampled_from(["*", "*", "*", "29", "L", "*/2"])
_WEEKDAYS = st.sampled_from(["*", "*", "0", "6-7", "SUN#4"])
CRONS = st.builds("{} {} {} * {}".format, _MINUTES, _HOURS, _DAYS, _WEEKDAYS)


@given(CRONS, st.sampled_from(CHANGES), st.integers(1, 200))
@example("0,30 2,3 * * *", ("Europe/Berlin", "2026-03-29T01:00"), 60)
@example("*/10 3 * * *", ("Australia/Lord_Howe", "2026-10-03T15:30"), 60)
def test_it_fires_in_the_minutes_of_debians_cron(cron: str, change: tuple[str, str], before: int) -> None:
    zone, moment = change
    begin = datetime.fromisoformat(moment).replace(tzinfo=UTC) - timedelta(minutes=before)
    end = begin + timedelta(minutes=before + 200)
    found = Timetable(cron, zone).newest(begin, end, 10_000)
    assert found == sorted(set(debian(cron, zone, begin, end)))  # cron runs what it makes up for as often as it was due


@given(CRONS, st.sampled_from(CHANGES), st.integers(-90, 90), st.integers(0, 60))
def test_wherever_one_asks_from_the_next_is_the_same(
    cron: str, change: tuple[str, str], begin: int, length: int
) -> None:
    """Two schedulers, or one that has begun anew, see the same fire times; each is after what was asked."""
    zone, moment = change
    table = Timetable(cron, zone)
    start = datetime.fromisoformat(moment).replace(tzinfo=UTC) + timedelta(minutes=begin)
    from_before = [one for one in islice(table.all_after(start - timedelta(minutes=70)), 140) if one > start]
    until = start + timedelta(minutes=length)
    assert [one for one in from_before if one <= until] == table.newest(start, until, 10_000)
    if from_before:
        assert table.after(start) == from_before[0]


@given(st.integers(1, 40), st.integers(1, 3_000))
def test_the_newest_are_the_last_of_all(most: int, hours: int) -> None:
    table, after = Timetable("0 */15 * * *", "Europe/Berlin"), datetime(2026, 1, 1, tzinfo=UTC)
    until = after + timedelta(hours=hours)
    all_of_them = [one for one in islice(table.all_after(after), 300) if one <= until]
    assert table.newest(after, until, most) == all_of_them[-most:]


@pytest.mark.parametrize(
    ("cron", "zone", "said"),
    [
        ("* * * *", "UTC", r"cron '\* \* \* \*': five fields are needed"),
        ("0 * * * * *", "UTC", "five fields"),
        ("@daily", "UTC", "five fields"),
        ("", "UTC", "five fields"),
        ("0 0 * * " + "1," * 200 + "1", "UTC", "five fields"),
        ("61 * * * *", "UTC", "field minute cannot be read"),
        ("0 24 * * *", "UTC", "field hour cannot be read"),
        ("0 0 30 2 *", "UTC", "field day-of-month cannot be read, or never comes"),
        ("0 0 */31 2 MON#5", "UTC", "no such day comes in 50 years"),
        ("٠ 0 * * *", "UTC", "field minute cannot be read"),
        ("0 0 * * *", "Mars/Olympus", "zone 'Mars/Olympus': no such time zone; give a name such as Europe/Berlin"),
        ("0 0 * * *", "Europe", "no such time zone"),
        ("0 0 * * *", "../etc/passwd", "no such time zone"),
        ("0 0 * * *", "", "no such time zone"),
        ("0 0 * * *", "a\0b", "no such time zone"),
        ("0 0 * * *", "x" * 5_000, "no such time zone"),
        ("0 0 * * *", "localtime", "no such time zone"),
    ],
)
def test_a_mistake_is_told_in_one_line(cron: str, zone: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as raised:
        Timetable(cron, zone)
    assert len(raised.value.problems) == 1
    assert len(raised.value.problems[0]) < 200


def test_what_is_asked_often_is_made_once_until_rules_are_read_again() -> None:
    first = timetable("0 2 * * *", "Europe/Berlin")
    assert timetable("0 2 * * *", "Europe/Berlin") is first
    forget()
    assert timetable("0 2 * * *", "Europe/Berlin") is not first


def test_a_day_that_comes_each_40_years_is_found_and_a_minute_of_years_is_not_counted() -> None:
    assert Timetable("0 0 29 2 SUN#5", "Europe/Berlin").after(datetime(2004, 3, 1, tzinfo=UTC)) is not None
    each_minute = Timetable("* * * * *", "Europe/Berlin")
    newest = each_minute.newest(datetime(1990, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC), 100)
    assert len(newest) == 100
    assert newest[-1] == datetime(2026, 1, 1, tzinfo=UTC)
    assert re.fullmatch(r"2025-12-31 22:21:00\+00:00", str(newest[0]))
