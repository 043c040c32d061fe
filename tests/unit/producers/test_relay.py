"""The relay without its servers."""

import threading

from pydantic import SecretStr

from offsetzero import metrics
from offsetzero.producers.relay import Relay
from offsetzero.settings import Settings
from support import wait_until


def test_a_relay_without_a_session_shows_no_shards() -> None:
    """Otherwise the sum over all relays would be whole while nobody publishes."""
    metrics.OUTBOX_SHARDS.set(32)
    stop = threading.Event()
    settings = Settings(database_url=SecretStr("postgresql://127.0.0.1:1/nothing"))
    relay = threading.Thread(target=Relay(settings).run, args=(stop,))
    relay.start()
    try:
        wait_until(lambda: metrics.OUTBOX_SHARDS.collect()[0].samples[0].value == 0, 20)
    finally:
        stop.set()
        relay.join(20)
    assert not relay.is_alive()
