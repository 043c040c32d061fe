"""The header `Idempotency-Key`."""

import pytest

from offsetzero.api.idempotency import MAX_CHARACTERS, parse
from offsetzero.api.problems import Problem


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ('"8e03978e-40d5-43dd-bc93-6894a57f9324"', "8e03978e-40d5-43dd-bc93-6894a57f9324"),
        ("8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324"),
        ("  bare ", "bare"),
        ('"a \\"b\\" \\\\"', 'a "b" \\'),
        ('"with a space"', "with a space"),
        ("k" * MAX_CHARACTERS, "k" * MAX_CHARACTERS),
    ],
)
def test_a_key_is_quoted_or_bare(value: str, key: str) -> None:
    """The draft wants an sf-string (RFC 8941); most clients send the bare text."""
    assert parse([value]) == key


def test_without_the_header_there_is_none() -> None:
    assert parse([]) is None


@pytest.mark.parametrize(
    "values",
    [
        [""],
        ["  "],
        ['""'],
        ['"open'],
        ['"a"b"'],
        ['"a\\b"'],
        ["two words"],
        ["a", "a"],
        ["tab\tbed"],
        ["Größe"],
        ["k" * (MAX_CHARACTERS + 1)],
        ['"' + "k" * (MAX_CHARACTERS + 1) + '"'],
    ],
)
def test_what_is_no_key_is_refused(values: list[str]) -> None:
    with pytest.raises(Problem, match="255 printable ASCII") as refused:
        parse(values)
    assert (refused.value.status, refused.value.code) == (400, "idempotency-key-invalid")
