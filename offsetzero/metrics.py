"""Every metric of every process, in one list, and the server that shows them."""

from prometheus_client import Counter, Gauge, Histogram, start_http_server

# --- consumer groups -------------------------------------------------------------------------------
EVENTS_CONSUMED = Counter(
    "offsetzero_events_consumed", "Records read from Kafka", ["group", "type"]
)  # `type` is the event type, `tombstone`, or `unreadable`
EVENTS_HANDLED = Counter(
    "offsetzero_events_handled", "Records with a terminal outcome", ["group", "type", "outcome"]
)  # `outcome` is a value of offsetzero.store.processed.Outcome, `duplicate` or `ignored`
HANDLER_SECONDS = Histogram(
    "offsetzero_handler_seconds",
    "Time in prepare, handler and transaction of one record",
    ["group", "type"],
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)
RETRIES = Counter("offsetzero_retries", "Records appended to a retry topic", ["group", "tier", "failure"])
DEAD_LETTERS = Counter("offsetzero_dead_letters", "Records appended to the dead-letter topic", ["group", "failure"])
APPENDS_FAILED = Counter(
    "offsetzero_appends_failed",
    "Appends to a retry or dead-letter topic that the broker refused",
    ["group", "topic"],
)
LAG_RECORDS = Gauge(
    "offsetzero_lag_records", "High watermark minus the lowest undone offset", ["group", "topic", "partition"]
)
IN_FLIGHT = Gauge("offsetzero_in_flight_records", "Records delivered to this process and not done", ["group"])
PAUSES = Counter("offsetzero_partition_pauses", "Partitions paused for back-pressure", ["group"])

# --- outbox ----------------------------------------------------------------------------------------
OUTBOX_DEPTH = Gauge("offsetzero_outbox_depth", "Outbox rows that are not published yet")
OUTBOX_AGE = Gauge("offsetzero_outbox_oldest_seconds", "Age of the oldest outbox row that is not published, seconds")
OUTBOX_PUBLISHED = Counter("offsetzero_outbox_published", "Outbox rows published", ["topic"])
OUTBOX_FAILED = Counter("offsetzero_outbox_failed", "Outbox rows that the broker refused", ["topic"])

# --- HTTP ------------------------------------------------------------------------------------------
HTTP_SECONDS = Histogram("offsetzero_http_request_seconds", "Time to answer a request", ["method", "route", "status"])


def serve(port: int, host: str = "127.0.0.1") -> int:
    """Serve `/metrics` from a thread of its own until the process ends.

    Args:
        port: the TCP port; 0 takes a free one.
        host: the address to bind.

    Returns:
        The port that was bound.
    """
    server, _thread = start_http_server(port, addr=host)
    return int(server.server_port)
