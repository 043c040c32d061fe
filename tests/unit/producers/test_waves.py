"""How much of a backlog a relay takes at a time."""

from offsetzero.producers.waves import (
    FIRST,
    LEAST,
    MOST,
    MOST_REST_SECONDS,
    OTHERS_SECONDS,
    RESTS,
    SEND_SECONDS,
    TURN_SECONDS,
    Waves,
)


def _rows(waves: Waves) -> int:
    """Of the next wave, once the rest is over."""
    return waves.begin(float("inf"))


def test_a_backlog_alone_goes_in_the_largest_waves_without_rest() -> None:
    waves = Waves()
    assert [waves.turned(MOST, 0.0, 5.0, float(now)) for now in range(3)] == [0.0] * 3
    assert (_rows(waves), waves.send_seconds) == (MOST, SEND_SECONDS)


def test_while_others_write_a_wave_takes_so_long_and_a_longer_rest_follows() -> None:
    waves, row_seconds = Waves(), TURN_SECONDS / 200
    waves.heard(10.0)
    for _ in range(5):
        seconds = _rows(waves) * row_seconds
        rest = waves.turned(_rows(waves), 0.0, seconds, 10.0)
        assert rest == RESTS * seconds
    assert abs(_rows(waves) - 200) <= 1
    assert waves.send_seconds < SEND_SECONDS
    assert waves.turned(_rows(waves), 0.0, 1_000.0, 10.0) == MOST_REST_SECONDS


def test_the_first_wave_is_small_for_nobody_knows_yet_how_long_it_takes() -> None:
    waves = Waves()
    waves.heard(0.0)
    assert _rows(waves) == FIRST
    waves.turned(FIRST, 0.0, 1e-6, 0.0)
    waves.heard(0.5 * OTHERS_SECONDS)
    assert _rows(waves) == 2 * FIRST, "they write still"
    waves.heard(2.0 * OTHERS_SECONDS)
    assert _rows(waves) == FIRST, "they write again"


def test_a_slow_turn_halves_the_wave_and_a_quick_one_doubles_it() -> None:
    waves = Waves()
    waves.heard(0.0)
    sizes = []
    for seconds in (1e-6, 1e-6, 1e-6, 1e-6, 9.0, 9.0, 9.0, 9.0, 9.0, 1e-6):
        waves.turned(_rows(waves), 0.0, seconds, 0.0)
        sizes.append(_rows(waves))
    assert sizes == [256, 512, MOST, MOST, 500, 250, 125, LEAST, LEAST, 128]


def test_where_a_claim_takes_long_a_wave_takes_twice_that() -> None:
    """Small ones would take as long each, behind an old transaction, and more would be written than is sent."""
    waves, row_seconds = Waves(), TURN_SECONDS / 200
    waves.heard(0.0)
    for claiming, rows in ((TURN_SECONDS * 0.1, 180), (TURN_SECONDS, 400), (TURN_SECONDS * 10, MOST)):
        for _ in range(5):
            waves.turned(_rows(waves), claiming, _rows(waves) * row_seconds, 0.0)
        assert abs(_rows(waves) - rows) <= 1


def test_a_turn_with_few_rows_says_nothing_and_needs_no_rest() -> None:
    waves = Waves()
    waves.heard(0.0)
    assert waves.turned(3, 0.0, 9.0, 0.0) == 0.0
    assert _rows(waves) == FIRST


def test_what_comes_in_a_rest_has_a_short_turn_and_then_the_rest_goes_on() -> None:
    waves = Waves()
    waves.heard(0.0)
    rest = waves.turned(waves.begin(0.0), 0.0, 0.02, 0.02)
    assert waves.begin(0.03) == LEAST
    waves.heard(0.03)
    assert abs(waves.turned(LEAST, 0.001, 9.0, 0.04) - (0.02 + rest - 0.04)) < 1e-9
    assert _rows(waves) == FIRST, "a short turn says nothing of what a wave takes"
    assert waves.begin(0.02 + rest) == FIRST


def test_a_short_turn_is_no_shorter_than_its_claim_is_worth() -> None:
    """Who writes all the time ends each rest: with few rows behind a slow claim more is written than is sent."""
    waves = Waves()
    waves.heard(0.0)
    now, sent, row_seconds, claiming = 0.0, 0, 50e-6, 0.05
    for _ in range(100):
        rows = waves.begin(now)
        now += claiming + rows * row_seconds
        sent += rows
        waves.heard(now)
        waves.turned(rows, claiming, rows * row_seconds, now)
    assert sent / now > 0.45 / row_seconds, "nearly half of what would be sent without claims"


def test_it_ends_some_time_after_the_last_of_the_others_has_written() -> None:
    waves = Waves()
    waves.heard(0.0)
    waves.turned(_rows(waves), 0.0, 9.0, 0.9 * OTHERS_SECONDS)
    assert _rows(waves) == FIRST // 2
    assert waves.turned(_rows(waves), 0.0, 9.0, OTHERS_SECONDS) == 0.0
    assert (_rows(waves), waves.send_seconds) == (MOST, SEND_SECONDS)
