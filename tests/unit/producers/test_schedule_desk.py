"""What people ask of schedules: what cannot be is refused, whatever it looks like."""

from datetime import UTC, datetime
from typing import Any

import pytest

from offsetzero.errors import ConfigurationError
from offsetzero.producers.schedules import desk
from offsetzero.store.schedules import Kind


def test_a_payload_that_is_too_deep_to_be_written_is_refused() -> None:
    """What could just be read was an error of its own when it was written again: 500."""
    payload: dict[str, Any] = {}
    for _ in range(5_000):
        payload = {"a": payload}
    with pytest.raises(ConfigurationError, match="payload: a value in it is no JSON"):
        desk.new("deep", Kind.EVENT, "0 0 * * *", event_type="document.deleted", payload=payload, at=datetime.now(UTC))
