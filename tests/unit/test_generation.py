"""What a generation is called."""

import pytest

from offsetzero.generation import Generation


def test_the_first_generation_has_the_name_of_its_group_and_later_ones_their_number() -> None:
    assert [Generation("my-group", number).name for number in (1, 2, 12)] == ["my-group", "my-group.g2", "my-group.g12"]
    assert Generation("my-group", 12).schema == "my-group_g12"


@pytest.mark.parametrize("number", [1, 2, 999_999_999])
def test_a_generation_is_known_by_its_name(number: int) -> None:
    made = Generation("indexer", number)
    assert Generation.named(made.name) == made


@pytest.mark.parametrize("name", ["a.g0", "a.g01", "a.g", "a.g1234567890", ".g2", "a.gx", "a.g2.b", "a.g٢"])
def test_a_name_that_is_no_generation_is_that_of_a_group(name: str) -> None:
    assert Generation.named(name) == Generation(name)
