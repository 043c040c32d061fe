"""Every metric of every process, in one list, and the server that shows them."""

import contextlib
import json
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, make_wsgi_app, start_http_server
from prometheus_client.metrics_core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

Page: TypeAlias = Callable[[], tuple[bool, Mapping[str, Any]]]
"""Whether all is well, for the status 200 or 503, and what to show as JSON."""


class Durations(Collector):
    """A histogram that takes many observations at once: one by one they cost more than what they measure.

    Args:
        name: of the metric.
        documentation: shown with it.
        labels: names of the labels.
        buckets: upper bounds in seconds, rising; the last one, infinity, is added.
    """

    def __init__(self, name: str, documentation: str, labels: Sequence[str], buckets: Sequence[float]) -> None:
        self._name = name
        self._documentation = documentation
        self._labels = labels
        self._buckets = buckets
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}
        REGISTRY.register(self)

    def observe(self, labels: tuple[str, ...], seconds: Iterable[tuple[float, int]]) -> None:
        """Add observations under the values of the labels: so long, so many times."""
        total = 0.0
        with self._lock:
            counts = self._counts.setdefault(labels, [0] * (len(self._buckets) + 1))
            for one, count in seconds:
                counts[bisect_left(self._buckets, one)] += count
                total += one * count
            self._sums[labels] = self._sums.get(labels, 0.0) + total

    def forget(self, group: str) -> None:
        """Show no more what was observed of a group."""
        at = self._labels.index("group")
        with self._lock:
            for labels in [one for one in self._counts if one[at] == group]:
                del self._counts[labels], self._sums[labels]

    def describe(self) -> Iterator[HistogramMetricFamily]:
        """Nothing but the name, which the registry asks for."""
        yield HistogramMetricFamily(self._name, self._documentation, labels=self._labels)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """The counts as they are now."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=self._labels)
        with self._lock:
            found = [(labels, list(counts), self._sums[labels]) for labels, counts in self._counts.items()]
        for labels, counts, total in found:
            running, buckets = 0, []
            for bound, count in zip([*map(str, map(float, self._buckets)), "+Inf"], counts, strict=True):
                running += count
                buckets.append((bound, float(running)))
            family.add_metric(labels, buckets=buckets, sum_value=total)
        yield family


class Rows(Collector):
    """A gauge whose rows are those that were last shown: what is no more is gone, whatever it was labelled.

    Args:
        name: of the metric.
        documentation: shown with it.
        labels: names of the labels after `group`.
    """

    def __init__(self, name: str, documentation: str, labels: Sequence[str]) -> None:
        self._name = name
        self._documentation = documentation
        self._labels = ["group", *labels]
        self._rows: dict[str, Mapping[tuple[str, ...], float]] = {}
        REGISTRY.register(self)

    def show(self, group: str, rows: Mapping[tuple[str, ...], float]) -> None:
        """Show these rows of a group, by the values of the labels, instead of those before."""
        self._rows[group] = rows

    def forget(self, group: str) -> None:
        """Show none of a group any more."""
        self._rows.pop(group, None)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing but the name, which the registry asks for."""
        yield GaugeMetricFamily(self._name, self._documentation, labels=self._labels)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The rows as they are now."""
        family = GaugeMetricFamily(self._name, self._documentation, labels=self._labels)
        for group, rows in list(self._rows.items()):
            for labels, value in rows.items():
                family.add_metric([group, *labels], value)
        yield family


# --- consumer groups -------------------------------------------------------------------------------
EVENTS_CONSUMED = Counter(
    "offsetzero_events_consumed", "Records read from Kafka", ["group", "type"]
)  # `type` is the event type, `tombstone`, or `unreadable`
EVENTS_HANDLED = Counter(
    "offsetzero_events_handled", "Records with a terminal outcome", ["group", "type", "outcome"]
)  # `outcome` is a value of offsetzero.store.processed.Outcome, `duplicate` or `ignored`
HANDLER_SECONDS = Durations(
    "offsetzero_handler_seconds",
    "Time from reading one record to its outcome; in a batch, its share",
    ["group", "type"],
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)
RETRIES = Counter("offsetzero_retries", "Records appended to a retry topic", ["group", "tier", "failure"])
PARKED = Counter(
    "offsetzero_parked", "Records appended to the first tier because an earlier one of their key waits", ["group"]
)
DEAD_LETTERS = Counter("offsetzero_dead_letters", "Records appended to the dead-letter topic", ["group", "failure"])
DEAD_LETTERS_OPEN = Rows(
    "offsetzero_dead_letters_open", "Dead letters that no operator has redriven or discarded", ["failure"]
)  # shown by the process `ledger`, as the next one
DEAD_LETTERS_OLDEST = Rows(
    "offsetzero_dead_letters_oldest_seconds", "Age of the oldest open dead letter, seconds", ["failure"]
)
APPENDS_FAILED = Counter(
    "offsetzero_appends_failed",
    "Appends to a retry or dead-letter topic that the broker refused",
    ["group", "topic"],
)
LAG_RECORDS = Gauge(
    "offsetzero_lag_records", "High watermark minus the lowest undone offset", ["group", "topic", "partition"]
)
IN_FLIGHT = Gauge("offsetzero_in_flight_records", "Records delivered to this process and not done", ["group"])
LIMITED = Gauge(
    "offsetzero_limited_records",
    "Records that wait because as many that are like them are handled as may be",
    ["group", "limit"],
)  # `limit` is `tenant` or `bulk`
AT_ONCE = Gauge(
    "offsetzero_records_at_once", "Records that are alike, of which so many may be handled at once", ["group", "limit"]
)
PAUSES = Counter(
    "offsetzero_partition_pauses", "Partitions paused because less must be in flight", ["group", "reason"]
)  # `reason` is a value of offsetzero.consumers.record.PauseReason
PAUSED = Gauge("offsetzero_partitions_paused", "Partitions that are not fetched now, by reason", ["group", "reason"])
HEAD_SECONDS = Rows(
    "offsetzero_head_of_line_seconds",
    "For how long the lowest undone record of a partition has been the lowest",
    ["topic", "partition"],
)
STUCK_SECONDS = Rows(
    "offsetzero_stuck_handler_seconds",
    "For how long a handler has been at work, for those longer than OFFSETZERO_GROUPS__STUCK_SECONDS; at most 20",
    ["topic", "partition", "offset", "key"],
)
HANDLER_TIMEOUTS = Counter("offsetzero_handler_timeouts", "Handlers that were given up: too slow", ["group"])
HANDLERS_LATE = Gauge("offsetzero_handlers_late", "Handlers that were given up and have not ended", ["group"])
WITHOUT_OWNER = Gauge(
    "offsetzero_group_partitions_without_owner",
    "Partitions that the coordinator has given to this member, whose client does not have them, and, told by one member"
    " of the group, those that it has given to nobody",
    ["group"],
)
JOINED_ANEW = Counter(
    "offsetzero_group_joined_anew", "Times that a member has joined anew for such a partition", ["group"]
)

# --- steps of runs --------------------------------------------------------------------------------
STEPS_FENCED = Counter(
    "offsetzero_steps_fenced", "Changes of a step that came too late: it was another's by then", ["group"]
)
STEPS_RUNNING = Gauge("offsetzero_steps_running", "Steps of runs that members work on, as the sweeper sees them")
STEPS_RESCUED = Counter(
    "offsetzero_steps_rescued", "Steps that the sweeper has taken away from their members", ["step", "reason"]
)  # `reason` is a value of offsetzero.consumers.sweeping.judging.Reason
OLDEST_TRANSACTION = Gauge(
    "offsetzero_oldest_transaction_seconds",
    "For how long the oldest transaction of the database has been open, as the sweeper sees it",
)

# --- usage ----------------------------------------------------------------------------------------
USAGE_RECENT = Rows(
    "offsetzero_usage_recent",
    "What was counted of a tenant in the last five minutes, for the 100 busiest; the members of the group add up",
    ["tenant", "what"],
)  # `what` is one of offsetzero.consumers.groups.usage.windows.COUNTS
USAGE_WINDOWS = Rows("offsetzero_usage_windows", "Windows that this member holds, each of one tenant and partition", [])

# --- providers ------------------------------------------------------------------------------------
PROVIDER_OPEN = Gauge(
    "offsetzero_provider_open", "Whether the breaker of a provider is open: nobody calls but one probe", ["provider"]
)
PROVIDER_REFUSES = Gauge(
    "offsetzero_provider_refuses", "Whether it is open because the provider refuses us: 401 or 403", ["provider"]
)
PROVIDER_CALLS = Counter(
    "offsetzero_provider_calls", "Calls of a provider by this process", ["provider", "answer"]
)  # `answer` is a value of offsetzero.retry.breaker.Answer
PROVIDER_WAITS = Counter(
    "offsetzero_provider_waits", "Records that had to wait for a provider", ["provider", "why"]
)  # `why` is a value of offsetzero.retry.protection.Why
PROVIDER_QUESTIONS = Counter(
    "offsetzero_provider_questions", "Questions to a model by the summariser", ["provider", "how"]
)  # `how` is `asked`, or `kept`: answered before, and not paid for again
PROVIDER_TOKENS = Counter(
    "offsetzero_provider_tokens",
    "Tokens of calls of a model, also of those that failed or were cancelled",
    ["provider", "way", "said"],
)  # `way` is `input` or `output`; `said` is `exact`, or `estimated` where the provider has not told all of a call
PROVIDER_RATE = Gauge("offsetzero_provider_rate", "Calls a second that a provider is given now", ["provider"])
PROVIDER_BUSY = Gauge("offsetzero_provider_running_calls", "Calls that run now, over all processes", ["provider"])

# --- search by meaning -----------------------------------------------------------------------------
EMBEDDED_TEXTS = Counter(
    "offsetzero_embedded_texts", "Texts of documents that were given a vector", ["how"]
)  # `how` is `asked`, of the endpoint, or `kept`: it was there
EMBEDDING_TOKENS = Counter("offsetzero_embedding_tokens", "Tokens of these texts that the endpoint says it has used")
SEARCHES = Counter(
    "offsetzero_searches", "Searches that were answered", ["method", "left_out"]
)  # `method` is a value of offsetzero.store.search.Method; `left_out` says why meaning was, as in the answer

# --- outbox ----------------------------------------------------------------------------------------
# The first three are of the shards that this relay has: the relays add up.
OUTBOX_DEPTH = Gauge("offsetzero_outbox_depth", "Outbox rows of this relay's shards that are not published yet")
OUTBOX_PARKED = Gauge(
    "offsetzero_outbox_parked", "Outbox rows of this relay's shards that cannot be published, and wait for an operator"
)
OUTBOX_AGE = Gauge(
    "offsetzero_outbox_oldest_seconds",
    "Age of the oldest outbox row of its shards that waits for this relay, and no operator, seconds",
)
OUTBOX_SHARDS = Gauge("offsetzero_outbox_shards", "Shards of the outbox that this relay publishes")
OUTBOX_PUBLISHED = Counter("offsetzero_outbox_published", "Outbox rows published", ["topic"])
OUTBOX_FAILED = Counter(
    "offsetzero_outbox_failed", "Times that an outbox row could not be published", ["topic"]
)  # `topic` is `other` for one that is not declared and has taken nothing

# --- schedules -------------------------------------------------------------------------------------
SCHEDULE_FIRES = Counter("offsetzero_schedule_fires", "Fire times that this scheduler has acted upon", ["kind"])
SCHEDULE_FAILURES = Counter("offsetzero_schedule_failures", "Times that a schedule could not be done", ["kind"])
SCHEDULE_DOCUMENTS = Counter("offsetzero_schedule_documents", "Documents that this scheduler has begun to re-index")
SCHEDULE_LATE = Gauge(
    "offsetzero_schedule_late_seconds", "For how long the schedule has been due that has been it the longest, seconds"
)

# --- intake ----------------------------------------------------------------------------------------
LANES = Counter(
    "offsetzero_intake_lanes", "Runs begun by this process, by the lane that their events take", ["lane", "why"]
)  # values of offsetzero.store.lanes.Lane and Why

# --- processes of which one should work at least ---------------------------------------------------
TURNED = Gauge(
    "offsetzero_turned_timestamp_seconds", "When this process has last looked for work, Unix time", ["process"]
)  # `process` is `relay`, `scheduler` or `sweeper`

# --- HTTP ------------------------------------------------------------------------------------------
HTTP_SECONDS = Histogram(
    "offsetzero_http_request_seconds",
    "Time to answer a request; of a stream, to begin with it",
    ["method", "route", "status"],
)
HTTP_AT_WORK = Gauge("offsetzero_http_at_work", "Requests that are worked on: uploads, and others", ["kind"])
HTTP_REFUSED = Counter(
    "offsetzero_http_refused",
    "Requests refused because too many were worked on; in no other metric",
    ["kind"],
)
HTTP_STREAMS = Gauge("offsetzero_http_streams", "Streams of runs that are open; above, each counts when it ends")


def remove(metric: Counter | Gauge, *labels: str) -> None:
    """Show a metric no more under these labels; nothing happens when it never was."""
    with contextlib.suppress(KeyError):
        metric.remove(*labels)


def forget(group: str) -> None:
    """Show nothing more of a group under this name, in whatever metric: this process works for it no more.

    Args:
        group: as Kafka knows it, with its generation.
    """
    for metric in list(globals().values()):
        if isinstance(metric, Durations | Rows):
            metric.forget(group)
        elif isinstance(metric, Counter | Gauge) and "group" in metric._labelnames:
            metric.remove_by_labels({"group": group})


def serve(port: int, host: str = "127.0.0.1", pages: Mapping[str, Callable[..., Any]] | None = None) -> int:
    """Serve `/metrics`, and other pages as JSON, from a thread of its own until the process ends.

    Args:
        port: the TCP port; 0 takes a free one.
        host: the address to bind.
        pages: by path; each is called by the thread of a request. One whose path ends with `/` serves all that is one
            step below it, and is called with the name of the step.

    Returns:
        The port that was bound.
    """
    server, _thread = start_http_server(port, addr=host)
    server.set_app(_application(pages or {}))
    return int(server.server_port)


def _page(pages: Mapping[str, Callable[..., Any]], path: str) -> Page | None:
    head, _, rest = path.rpartition("/")
    of_many = pages.get(head + "/") if rest else None
    return pages.get(path) if of_many is None else lambda: of_many(rest)


def _application(pages: Mapping[str, Callable[..., Any]]) -> Callable[..., Iterable[bytes]]:
    shown = make_wsgi_app()

    def application(environ: Any, start_response: Any) -> Iterable[bytes]:
        page = _page(pages, environ["PATH_INFO"])
        if page is None or environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return shown(environ, start_response)  # type: ignore[no-any-return]
        is_well, body = page()
        start_response(
            "200 OK" if is_well else "503 Service Unavailable",
            [("Content-Type", "application/json"), ("Cache-Control", "no-store")],
        )
        return [json.dumps(body, indent=2).encode() + b"\n"] if environ["REQUEST_METHOD"] == "GET" else []

    return application
