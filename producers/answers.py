"""Serves the answers to what one confluent-kafka Producer has sent: a thread polls, threads that produce help it."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaException, Producer

from offsetzero.clock import SYSTEM
from offsetzero.errors import PublishError

_log = logging.getLogger(__name__)

_SERVE_SECONDS = 0.1
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
        self.fatal: str | None = None
        """Why the client can never send again, once it cannot."""
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
                    self._serve(self._client.poll, 0)
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

    @contextmanager
    def entered(self, what: str) -> Iterator[None]:
        """For the time of a call into the client that calls back.

        Args:
            what: the call, for people.

        Raises:
            PublishError: the caller is called back already (confluent-kafka-python#457: the process ends).
        """
        if self.inside():
            raise PublishError(f"{what}: a delivery callback cannot do that with the producer that has called it")
        me = threading.get_ident()
        self._inside.add(me)
        try:
            yield
        finally:
            self._inside.discard(me)

    def flush(self, timeout: float) -> int:
        """Serve until every record has its answer; returns how many have none after `timeout` seconds.

        Raises:
            PublishError: called by a callback.
        """
        deadline = SYSTEM.monotonic() + timeout
        while True:
            left = max(deadline - SYSTEM.monotonic(), 0.0)
            # Not longer at a time: after a fatal error a long flush of the client goes on with its exception pending,
            # which is what the callbacks then fail with; their deliveries would never be done.
            if not self._serve(self._client.flush, min(left, _SERVE_SECONDS)) or not left:
                return len(self._client)

    def stop(self) -> None:
        """End the thread. What is answered later is served by `flush` alone."""
        self._stopped.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._stopped.is_set():
            self._serve(self._client.poll, _SERVE_SECONDS)

    def _serve(self, call: Callable[[float], int], seconds: float) -> int:
        """Call the client, which raises a fatal error here, once, instead of telling its `error_cb`."""
        with self.entered("serve"):
            try:
                return int(call(seconds))
            except KafkaException as error:
                self.fatal = error.args[0].str()
                _log.error("kafka producer: it can never send again: %s", self.fatal)
                return len(self._client)
