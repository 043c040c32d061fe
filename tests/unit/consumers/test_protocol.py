"""What the client is told for the protocol that a group's members speak."""

import pytest

from offsetzero.consumers.reading import protocol
from offsetzero.errors import ConfigurationError


@pytest.mark.parametrize(
    ("given", "heartbeat"),
    [
        ({}, None),
        ({"session.timeout.ms": "3000"}, 1000),
        ({"session.timeout.ms": 6000}, 2000),
        ({"session.timeout.ms": "45000"}, 3000),
        ({"session.timeout.ms": "3000", "heartbeat.interval.ms": "500"}, None),
        ({"session.timeout.ms": "soon"}, None),  # the client says what is wrong with it
    ],
)
def test_a_short_session_has_heartbeats_within_it(given: dict[str, object], heartbeat: int | None) -> None:
    """Java's client refuses 3 s for both; librdkafka's defaults with a session of 3 s expire it between two beats."""
    assert protocol.config(protocol.CLASSIC, given).get("heartbeat.interval.ms") == heartbeat


def test_a_heartbeat_that_comes_after_the_session_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"heartbeat\.interval\.ms \(3000\) must be lower .* \(3000\)"):
        protocol.config(protocol.CLASSIC, {"session.timeout.ms": "3000", "heartbeat.interval.ms": "3000"})


def test_the_newer_protocol_leaves_sessions_to_the_broker() -> None:
    """The client refuses both properties with it."""
    assert "heartbeat.interval.ms" not in protocol.config(protocol.CONSUMER, {"session.timeout.ms": "3000"})
