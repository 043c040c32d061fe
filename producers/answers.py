"""Serves the answers to what one confluent-kafka Producer has sent: a thread polls, threads that produce help it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from offsetzero.errors import PublishError

_POLL_SECONDS = 0.1
HELP_EVERY = 100
"""Records, after which the thread that produces them serves what is answered."""


class Answers:
    """Calls the deliveries of one client back.

    The client calls back once for each record, and each time a thread must take Python's interpreter from the one that
    produces. So a thread that produces much serves by itself now and then, which halves the cost of a record
    (docs/performance.md). It never does once somebody has registered a callback: that must not find itself inside
    a `produce` that knows nothing of it, among locks that its caller holds.

    Args:
        client: whose answers these are.
    """

    def __init__(self, client: Producer) -> None:
        self.lock = threading.Lock()
        """Of what changes in a delivery; held for a few instructions."""
        self._client = client
        self._records = 0
        self._helping = threading.RLock()  # a log handler that publishes may run while its thread helps
        self._called_back = False
        self._inside: set[int] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="offsetzero-producer", daemon=True)
        self._thread.start()

    def help(self) -> None:
        """Called by a thread that has produced a record: serves, at times, what is answered; never waits."""
        self._records += 1
        if self._records < HELP_EVERY or self._called_back or self.inside():
            return
        self._records = 0
        if self._helping.acquire(blocking=False):
            try:
                if not self._called_back:
                    with self._serving():
                        self._client.poll(0)
            finally:
                self._helping.release()

    def no_help(self) -> None:
        """From now on no thread serves in `help`; returns when none does any more."""
        if not self._called_back:
            with self._helping:
                self._called_back = True

    def inside(self) -> bool:
        """Whether the caller is called back by the client, which must not be entered a second time: it would crash."""
        return threading.get_ident() in self._inside

    def flush(self, timeout: float) -> int:
        """Serve until every record has its answer; returns how many have none after `timeout` seconds.

        Raises:
            PublishError: called by a callback.
        """
        if self.inside():
            raise PublishError("a delivery callback cannot flush the producer that has called it")
        with self._serving():
            return int(self._client.flush(timeout))

    def stop(self) -> None:
        """End the thread. What is answered later is served by `flush` alone."""
        self._stopped.set()
        self._thread.join()

    @contextmanager
    def _serving(self) -> Iterator[None]:
        me = threading.get_ident()
        self._inside.add(me)
        try:
            yield
        finally:
            self._inside.discard(me)

    def _poll(self) -> None:
        with self._serving():
            while not self._stopped.is_set():
                self._client.poll(_POLL_SECONDS)
