"""What stands for a record that is too large for the dead letters."""

import pytest

from offsetzero.retry import headers as retry_headers
from offsetzero.retry import pointers
from offsetzero.retry.pointers import Pointer


@pytest.mark.parametrize("value", [None, b"", b"x" * 2_000_000])
def test_a_pointer_is_read_as_it_was_written(value: bytes | None) -> None:
    written = pointers.write([("ce_id", b"1"), ("oz_reason", b"r")], value, b"k")
    assert pointers.read(written) == Pointer.to(value)
    assert written[:2] == [("ce_id", b"1"), ("oz_reason", b"r")]


def test_a_record_without_a_value_is_told_from_one_whose_value_is_empty() -> None:
    assert Pointer.to(None) != Pointer.to(b"")


def test_a_pointer_is_small_whatever_it_stands_for() -> None:
    own = [
        ("huge", b"h" * 100_000),
        ("ce_id", b"i" * 2_000),
        ("b", b"x" * 3_000),
        ("ce_type", b"t" * 1_000),
        ("c", b""),
    ]
    written = pointers.write([*own, ("oz_stack", b"s" * 4_000)], b"v", None)
    assert [name for name, _ in written] == ["ce_id", "ce_type", "c", "oz_stack", "oz_pointer"]
    assert retry_headers.size_of(written) <= retry_headers.MAX_BYTES
    assert pointers.key_of(b"k" * 5_000) is None
    assert pointers.key_of(b"k") == b"k"


def test_written_again_there_is_one_pointer() -> None:
    twice = pointers.write(pointers.write([], b"first", b"k" * 5_000), b"second", b"k")
    assert len(twice) == 1
    assert pointers.read(twice) == Pointer.to(b"second")


@pytest.mark.parametrize(
    "forged", [b"", b"x", b"\xff", b"0" * 64, b"0" * 64 + b" -1", b"0" * 64 + b" " + b"9" * 19, None]
)
def test_what_nobody_of_us_wrote_is_no_pointer(forged: bytes | None) -> None:
    assert pointers.read([("oz_pointer", forged)]) is None


def test_of_the_events_own_headers_those_of_cloudevents_are_kept_first() -> None:
    own = [(f"x-{number}", b"x" * 1000) for number in range(10)]
    kept = dict(
        pointers.write([*own, ("ce_id", b"1"), ("ce_type", b"t" * 500), ("content-type", b"avro")], b"value", b"k")
    )
    assert {"ce_id", "ce_type", "content-type"} <= set(kept)
    assert "x-0" in kept, "as many as there is room for"
    assert "x-9" not in kept


def test_a_key_that_is_too_large_to_be_kept_is_known_to_be_missing() -> None:
    written = pointers.write([], b"v", b"k" * 5_000)
    assert pointers.key_of(b"k" * 5_000) is None
    found = pointers.read(written)
    assert found is not None
    assert found.key_size == 5_000
    assert found == pointers.Pointer.to(b"v"), "the hash is that of the value"
    for key in (None, b"k" * 4_096):
        kept = pointers.read(pointers.write([], b"v", key))
        assert kept is not None
        assert kept.key_size is None
