"""Which records of a file a topic has not got, compared on disk."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetzero.history import identities
from offsetzero.history.identities import DIGEST, Identities

WHO = st.lists(st.integers(0, 30), max_size=60)


def digest(who: int) -> bytes:
    return hashlib.blake2b(str(who).encode(), digest_size=DIGEST).digest()


@pytest.fixture(scope="module", autouse=True, params=[1, 7, 50_000])
def _in_memory(request: pytest.FixtureRequest) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(identities, "_IN_MEMORY", request.param)
        yield


@settings(deadline=None)
@given(WHO, WHO)
def test_what_is_missing_is_the_first_of_each_that_the_topic_has_not(file: list[int], topic: list[int]) -> None:
    with Identities(len(file)) as known:
        for who in file:
            known.add(digest(who))
        for who in topic:
            known.take_out(digest(who))
        missing = known.missing()
    wanted = {file.index(who) for who in set(file) - set(topic)}
    assert {number for number in range(len(file)) if number in missing} == wanted
    assert len(missing) == len(wanted)
    # what the topic has is not told apart: present, or repeated
    assert missing.repeated == len(file) - len(set(file))
