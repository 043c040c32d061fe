"""How far clients fetch ahead, which is what their watch counts on."""

from typing import Any

import pytest

from offsetzero.consumers.groups.catalogue import group
from offsetzero.consumers.reading.handed import AHEAD, QUEUED
from offsetzero.consumers.replaying.looking import reader_config
from offsetzero.consumers.runtime import GroupRuntime
from offsetzero.settings import Settings

FASTEST = 100_000  # records that a member hands out in a second


def test_what_is_fetched_ahead_is_not_handed_out_before_more_is_fetched() -> None:
    """A partition rests once the client has enough, by its own default for a second: a member that catches up would be
    without records for most of it."""
    assert AHEAD["queued.min.messages"] == QUEUED
    assert AHEAD["fetch.queue.backoff.ms"] / 1_000 < QUEUED / FASTEST


@pytest.mark.parametrize("config", [GroupRuntime(group, Settings())._config(), reader_config(Settings())])
def test_every_client_with_handlers_fetches_so_far(config: dict[str, Any]) -> None:
    """With the client's own 100,000 ahead a replay's watch takes for stalled what lies behind these."""
    assert AHEAD.items() <= config.items()
