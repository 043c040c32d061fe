"""What others rely on in the HTTP server."""

from fastapi import FastAPI

from offsetzero.api.server import Server


def test_a_connection_is_kept_open_for_longer_than_proxies_keep_theirs() -> None:
    """Else some of their requests meet a connection that is just closed: 60 s is what many have."""
    assert Server(FastAPI()).config.timeout_keep_alive > 60
