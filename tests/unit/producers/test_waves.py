"""How much of a backlog a relay takes at a time."""

from offsetzero.producers.waves import LEAST, MOST, MOST_REST_SECONDS, OTHERS_SECONDS, SEND_SECONDS, TURN_SECONDS, Waves


def test_a_backlog_alone_goes_in_the_largest_waves_without_rest() -> None:
    waves = Waves()
    assert [waves.turned(MOST, 0.0, 5.0, float(now)) for now in range(3)] == [0.0] * 3
    assert (waves.rows, waves.send_seconds) == (MOST, SEND_SECONDS)


def test_while_others_write_a_wave_takes_so_long_and_as_long_a_rest_follows() -> None:
    waves, row_seconds = Waves(), TURN_SECONDS / 200
    waves.heard(10.0)
    for _ in range(5):
        seconds = waves.rows * row_seconds
        rest = waves.turned(waves.rows, 0.0, seconds, 10.0)
        assert rest == min(seconds, MOST_REST_SECONDS)
    assert abs(waves.rows - 200) <= 1
    assert waves.send_seconds < SEND_SECONDS


def test_a_slow_turn_halves_the_wave_and_a_quick_one_doubles_it() -> None:
    waves = Waves()
    waves.heard(0.0)
    sizes = []
    for seconds in (9.0, 9.0, 9.0, 9.0, 9.0, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6):
        waves.turned(waves.rows, 0.0, seconds, 0.0)
        sizes.append(waves.rows)
    assert sizes == [500, 250, 125, LEAST, LEAST, 128, 256, 512, MOST, MOST]


def test_where_a_claim_takes_long_a_wave_takes_twice_that() -> None:
    """Small ones would take as long each, behind an old transaction, and more would be written than is sent."""
    waves, row_seconds = Waves(), TURN_SECONDS / 200
    waves.heard(0.0)
    for claiming, rows in ((TURN_SECONDS * 0.1, 180), (TURN_SECONDS, 400), (TURN_SECONDS * 10, MOST)):
        for _ in range(5):
            waves.turned(waves.rows, claiming, waves.rows * row_seconds, 0.0)
        assert abs(waves.rows - rows) <= 1


def test_a_turn_with_few_rows_says_nothing_and_needs_no_rest() -> None:
    waves = Waves()
    waves.heard(0.0)
    assert waves.turned(3, 0.0, 9.0, 0.0) == 0.0
    assert waves.rows == MOST


def test_it_ends_some_time_after_the_last_of_the_others_has_written() -> None:
    waves = Waves()
    waves.heard(0.0)
    for now in (0.5 * OTHERS_SECONDS, 0.9 * OTHERS_SECONDS):
        waves.turned(waves.rows, 0.0, 9.0, now)
    assert waves.rows == MOST // 4
    assert waves.turned(waves.rows, 0.0, 9.0, OTHERS_SECONDS) == 0.0
    assert (waves.rows, waves.send_seconds) == (MOST, SEND_SECONDS)
