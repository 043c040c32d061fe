"""Event ids."""

import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetzero.errors import InvalidEvent
from offsetzero.schemas import ids
from offsetzero.schemas.ids import Uuid7Source, time_of, uuid7, uuid_text
from support import ManualClock


def test_an_id_is_a_uuid_of_version_7_with_its_time() -> None:
    clock = ManualClock(datetime(2026, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC))
    made = Uuid7Source(clock).next()
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert time_of(made) == datetime(2026, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC)
    assert abs(time_of(uuid7()) - datetime.now(UTC)) < timedelta(minutes=1)


def test_ids_rise_within_a_millisecond_and_when_the_clock_steps_back() -> None:
    clock = ManualClock()
    source = Uuid7Source(clock)
    ids = []
    for number in range(3000):
        ids.append(source.next())
        if number % 100 == 0:
            clock.step(-5 if number % 200 else 1)
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_a_full_counter_goes_on_in_the_next_millisecond() -> None:
    source = Uuid7Source(ManualClock())
    first = source.next()
    source._counter = (1 << 42) - 1
    second = source.next()
    assert second > first
    assert time_of(second) - time_of(first) == timedelta(milliseconds=1)


def test_threads_never_get_the_same_id() -> None:
    source = Uuid7Source()
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: [source.next() for _ in range(500)], range(8)))
    assert len({one for ids in made for one in ids}) == 4000
    assert all(ids == sorted(ids) for ids in made)


def test_a_forked_child_has_other_random_bits_and_a_lock_that_nobody_holds() -> None:
    uuid7()
    reading, writing = os.pipe()
    with ids._process._lock:
        child = os.fork()
        if not child:
            os.write(writing, b"".join(uuid7().bytes[12:] for _ in range(3)))
            os._exit(0)
    here = b"".join(uuid7().bytes[12:] for _ in range(3))
    assert os.waitpid(child, 0)[1] == 0
    there = os.read(reading, 12)
    assert not {here[at : at + 4] for at in (0, 4, 8)} & {there[at : at + 4] for at in (0, 4, 8)}
    os.close(reading)
    os.close(writing)


def test_an_id_as_text_and_as_a_uuid_are_of_one_order() -> None:
    source = Uuid7Source(ManualClock())
    made = [source.text() if number % 2 else str(source.next()) for number in range(1000)]
    assert made == sorted(set(made))
    assert all(str(uuid.UUID(text)) == text for text in made)


@given(st.uuids())
def test_a_uuid_as_text_is_what_str_makes_of_it(value: uuid.UUID) -> None:
    assert uuid_text(value) == str(value)


def test_other_ids_tell_no_time() -> None:
    with pytest.raises(InvalidEvent, match="version 7"):
        time_of(uuid.uuid4())
