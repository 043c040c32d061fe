"""Headers of retry and dead-letter records."""

import gc
import weakref
from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetzero.errors import DecodeError
from offsetzero.retry import headers
from offsetzero.retry.classify import classify
from offsetzero.retry.failures import Bug, Failure, Transient
from offsetzero.retry.headers import Hop, Origin

HERE = Origin("topic-id", "documents", 3, 42)


def test_a_source_record_is_its_own_origin() -> None:
    hop = headers.read([("ce_id", b"1"), ("x", None)], HERE, 5)
    assert hop == Hop(HERE, attempt=1, hop=0, due_ms=0, redrive_no=0, timestamp_ms=5)


def test_what_is_written_is_read_again() -> None:
    hop = Hop(HERE, 2, 1, 1_700_000_000_123, redrive_no=4, timestamp_ms=99, until_ms=1_700_000_000_456)
    written = headers.write([("ce_id", b"1")], hop, Transient("slow", "it took long"), "indexer")
    assert headers.read(written, Origin("other", "indexer.retry-1m", 3, 0), 1_700_000_000_000) == hop


def test_a_redriven_record_begins_anew_and_keeps_its_lineage() -> None:
    """gbrain#2974: a redriven job died at once of "attempt 4/3"."""
    letter = Hop(HERE, attempt=3, hop=7, due_ms=0, redrive_no=1, timestamp_ms=99)
    dead = headers.write([("ce_id", b"1")], letter, Transient("slow"), "indexer")
    action = uuid4()
    hop = headers.redriven(headers.read(dead, HERE, 0), action)
    assert hop == Hop(HERE, attempt=1, hop=8, due_ms=0, redrive_no=2, timestamp_ms=99, redrive=str(action))
    sent = headers.write(dead, hop, None, "indexer")
    assert [name for name, _ in sent] == [
        "ce_id",
        "oz_group",
        "oz_origin",
        "oz_topic",
        "oz_timestamp",
        "oz_attempt",
        "oz_hop",
        "oz_due",
        "oz_redrive_no",
        "oz_redrive",
    ]
    again = headers.write(sent, replace(headers.read(sent, HERE, 0), attempt=2, hop=9), Transient("slow"), "indexer")
    assert headers.read(again, HERE, 0).redrive == str(action), "its retries still name the operator's action"


def test_a_discard_is_told_to_the_member_that_owns_the_key() -> None:
    hop = headers.redriven(Hop(HERE), uuid4(), discard=True)
    sent = headers.write([("ce_id", b"1")], hop, None, "indexer")
    assert ("oz_discard", b"1") in sent
    assert headers.read(sent, HERE, 0) == hop


def test_headers_stay_in_their_budget_over_a_hundred_rounds_of_retries_and_redrives() -> None:
    """spring-kafka#1994, spring-kafka#2549, smallrye-reactive-messaging#2979, kafkaflow-retry-extensions#158."""
    with pytest.raises(RuntimeError) as caught:
        raise RuntimeError("x" * 20_000)
    failure, hop = classify(caught.value), Hop(HERE)
    written: headers.Headers = [("ce_id", b"1"), ("mine", b"m" * 2000)]
    for _ in range(100):
        for attempt in (2, 3):
            hop = replace(hop, attempt=attempt, hop=hop.hop + 1)
            written = headers.write(written, hop, failure, "g")
            assert headers.size_of(written) <= headers.MAX_BYTES
        hop = headers.redriven(headers.read(written, HERE, 0), uuid4())
        written = headers.write(written, hop, None, "g")
        assert headers.size_of(written) <= headers.MAX_BYTES
    assert (hop.hop, hop.redrive_no, hop.attempt) == (300, 100, 1)
    assert written[:2] == [("ce_id", b"1"), ("mine", b"m" * 2000)]


@pytest.mark.parametrize("size", [6 * 1024, 8 * 1024, 60 * 1024])
def test_headers_of_an_event_that_leave_no_room_are_kept_and_ours_are_cut(size: int) -> None:
    with pytest.raises(RuntimeError) as caught:
        raise RuntimeError("x" * 20_000)
    own = [("ce_id", b"1"), ("huge", b"h" * (size - 6 - 4))]
    long = Hop(replace(HERE, topic="t" * 180, topic_id="i" * 22), 1000, 10**6, 10**13, 2**31 - 1, 10**13, str(uuid4()))
    written = headers.write(own, long, classify(caught.value), "g" * 100)
    assert written[:2] == own
    assert headers.size_of(written) <= max(headers.MAX_BYTES, size + headers.MAX_REQUIRED)
    assert headers.read(written, HERE, 10**13) == long
    assert "oz_reason" in dict(written)


def test_headers_are_replaced_never_added() -> None:
    """spring-kafka#1994: headers grew per retry until the record was too large."""
    carried: headers.Headers = [("ce_id", b"1"), ("odd", None), ("raw", b"\xff\xfe"), ("ce_id", b"2")]
    first = headers.write(carried, Hop(HERE), Transient("a"), "g")
    many = first
    for number in range(100):
        many = headers.write(many, Hop(HERE, attempt=2, hop=number), Transient("a"), "g")
    assert len(many) == len(first)
    assert many[:4] == carried, "the event's own headers stay as they came, doubled names and odd bytes included"


def test_a_long_stack_and_a_long_message_are_cut() -> None:
    def deep(level: int) -> None:
        if level:
            deep(level - 1)
        raise RuntimeError("é" * 20_000)

    with pytest.raises(RuntimeError) as caught:
        deep(50)
    written = headers.write([], Hop(HERE), classify(caught.value), "g")
    assert sum(len(name) + len(value or b"") for name, value in written) <= 8 * 1024
    for _, value in written:
        (value or b"").decode()  # cut between characters, not inside one


def test_a_failure_that_waits_holds_nothing_of_what_was_in_work() -> None:
    class Payload:
        pass

    def call(payload: Payload) -> None:
        raise RuntimeError("busy")

    def work() -> tuple[Failure, "weakref.ref[Payload]"]:
        payload = Payload()
        try:
            call(payload)
        except RuntimeError as error:
            return classify(error), weakref.ref(payload)
        raise AssertionError

    failure, payload = work()
    told = headers.write([], Hop(HERE), failure, "g")
    headers.let_go(failure)
    gc.collect()
    assert payload() is None
    assert headers.write([], Hop(HERE), failure, "g") == told, "its stack and fingerprint are remembered"


def test_one_cause_has_one_fingerprint_whatever_numbers_it_names() -> None:
    assert headers.fingerprint(Bug("row 17 of 99")) == headers.fingerprint(Bug("row 3 of 5"))
    assert headers.fingerprint(Bug("row 17")) != headers.fingerprint(Bug("column 17"))


@pytest.mark.parametrize("bad", [("oz_origin", b"nowhere"), ("oz_due", b"soon"), ("oz_hop", b"\xff")])
def test_unreadable_headers_are_one_clear_error(bad: tuple[str, bytes]) -> None:
    written = [h for h in headers.write([], Hop(HERE), Transient("a"), "g") if h[0] != bad[0]]
    with pytest.raises(DecodeError, match="documents/3@42"):
        headers.read([*written, bad], HERE, 0)


FORGED = [
    ("oz_attempt", b"-5"),
    ("oz_attempt", b"0"),
    ("oz_attempt", b"1001"),
    ("oz_attempt", "\u0665".encode()),
    ("oz_due", b"9" * 400),
    ("oz_due", b"99999999999999"),
    ("oz_redrive_no", b"1099511627776"),
    ("oz_redrive", b"not an id"),
    ("oz_until", b"99999999999999"),
    ("oz_origin", b"id/999/0"),
    ("oz_origin", b"id/3/-1"),
    ("oz_origin", b"id/1099511627776/0"),
]


@pytest.mark.parametrize("forged", FORGED, ids=lambda item: f"{item[0]}={item[1][:20]!r}")
def test_forged_headers_are_poison_not_trouble(forged: tuple[str, bytes]) -> None:
    written = [h for h in headers.write([], Hop(HERE), Transient("a"), "g") if h[0] != forged[0]]
    with pytest.raises(DecodeError):
        headers.read([*written, forged], HERE, 1_700_000_000_000)


NAMES = ["oz_attempt", "oz_hop", "oz_due", "oz_origin", "oz_topic", "oz_timestamp", "oz_redrive_no"]
NAMES += ["oz_redrive", "oz_discard", "oz_until"]
VALUES = st.one_of(st.none(), st.binary(max_size=40), st.integers().map(lambda number: str(number).encode()))


@given(given=st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=12))
def test_whatever_is_read_can_be_written(given: headers.Headers) -> None:
    try:
        hop = headers.read(given, HERE, 1_700_000_000_000)
    except DecodeError:
        return
    again = headers.write(given, hop, Transient("a"), "g")
    assert headers.read(again, HERE, 1_700_000_000_000) == hop
