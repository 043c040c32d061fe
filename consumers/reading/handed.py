"""What a client has fetched and not handed out yet: its queue is one, for all partitions."""

from confluent_kafka import Consumer, Message

QUEUED = 10_000
"""Records that a client fetches ahead (`queued.min.messages`): what comes now in another partition, as a retry does, is
handed out behind them. Its own 100,000 are minutes where a handler takes milliseconds."""
AHEAD = {
    "queued.min.messages": QUEUED,
    "queued.max.messages.kbytes": 32_768,
    # So long a partition rests once either is reached. In the client's own second the 10,000 are handed out, and there
    # is nothing for the rest of it: of 4.1 s for 200,000 small records of one partition 3.9 were spent waiting.
    "fetch.queue.backoff.ms": 50,
    # One answer, of all partitions of a broker: its own 50 MiB are half a million small records behind one fetch.
    "fetch.max.bytes": 8 * 1024 * 1024,
}
"""How far a client that hands records to handlers fetches ahead."""
_TURNED_OVER = 10 * QUEUED  # handed out, and whatever an answer of each broker brought at once is among it


class Handed:
    """Counts what a client has handed out; belongs to the thread that polls it."""

    def __init__(self) -> None:
        self._count = 0

    def fetch(self, consumer: Consumer, count: int, timeout: float) -> list[Message]:
        """What a client has to hand out, at most `count`; nothing when it has had none for `timeout` seconds."""
        # consume() waits for a full batch or the whole timeout: so one poll, then what is there already.
        if (first := consumer.poll(timeout)) is None:
            self._count += _TURNED_OVER
            return []
        found = [first, *consumer.consume(count - 1, 0)] if count > 1 else [first]
        self._count += len(found)
        return found

    @property
    def turnovers(self) -> int:
        """How often all that the client had fetched has been handed out, at least: what is fetched after one of these
        is handed out before the next but one."""
        return self._count // _TURNED_OVER
