"""One member of the group `usage`: runs the Faust app until it is told to stop, and says what it has counted."""

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from offsetzero import logs, metrics
from offsetzero.clock import SYSTEM
from offsetzero.consumers.groups.usage import NAME, windows
from offsetzero.consumers.groups.usage.app import SOURCES, make_app
from offsetzero.consumers.groups.usage.windows import Cell, Key
from offsetzero.consumers.watching.health import SILENT_SECONDS, Health, Phase
from offsetzero.errors import GroupStopped, TopicError
from offsetzero.settings import Settings
from offsetzero.topics import catalogue, cluster, lag
from offsetzero.topics.names import Names
from offsetzero.topics.schema_log import SchemaLog

LOOK_SECONDS = 1.0
MEASURE_SECONDS = 5.0  # between two looks at the lag, two at the cells
SHOWN_TENANTS = 100
_CHATTY = ("faust", "mode", "aiokafka")

log = logs.get(__name__)


class UsageMember:
    """In the manner of `GroupRuntime`; the app and all that it holds belong to the thread that calls `run`.

    Args:
        settings: name the cluster, and say how long windows are and are kept.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._names = Names(settings.kafka.namespace)
        self._phase = Phase.STARTING
        self._turned_at = SYSTEM.monotonic()
        self._stop = False
        self._wake: Callable[[], None] = lambda: None
        self._app: Any = None
        self._table: Any = None
        self._owned: frozenset[int] = frozenset()
        self._lags: set[tuple[str, str, str]] = set()

    def stop(self) -> None:
        """Ask `run` to end; any thread or signal handler may call this."""
        self._stop = True
        self._wake()

    def running(self) -> int:
        """It has no handlers."""
        return 0

    def health(self) -> Health:
        """How this member is; any thread may ask."""
        silent = SYSTEM.monotonic() - self._turned_at
        reasons = [f"its event loop has not turned for {silent:.0f} s"] if silent > SILENT_SECONDS else []
        not_ready = [*reasons, *([f"it is {self._phase}"] if self._phase is not Phase.WORKING else [])]
        body = {
            "group": NAME,
            "state": self._phase,
            "reasons": reasons,
            "not_ready": not_ready,
            "partitions": sorted(self._owned),
        }
        return Health(not reasons, not not_ready, body)

    def of_tenant(self, tenant: str) -> tuple[bool, Mapping[str, Any]]:
        """The windows of a tenant, of the partitions that this member has; any thread may ask.

        Returns:
            Whether it can tell, and the answer: `partitions`, `partition_count`, and the `windows` that hold something,
            by partition.
        """
        usage, table, owned = self._settings.usage, self._table, self._owned
        if table is None or self._phase is not Phase.WORKING:
            return False, {"group": NAME, "not_ready": [f"it is {self._phase}"]}
        now, data, size = SYSTEM.now().timestamp(), table.data, usage.window_seconds
        first, last = windows.start_of(now - usage.keep_seconds, size), windows.start_of(now + usage.keep_seconds, size)
        shown = [
            {"start": start, "partition": number, **windows.total([cell])}
            for start in range(first, last + 1, size)
            if windows.is_kept(start, now, usage.keep_seconds, size)
            for number in sorted(owned)
            if (cell := data.get((number, tenant, start)))
        ]
        return True, {
            "group": NAME,
            "partitions": sorted(owned),
            "partition_count": self._partition_count,
            "window_seconds": size,
            "keep_seconds": usage.keep_seconds,
            "windows": shown,
        }

    def run(self) -> list[object]:
        """Work until `stop`.

        Returns:
            Nothing, as a list: what was in work is counted, and else read again.

        Raises:
            GroupStopped: topics are missing or do not go together, or Faust has given up.
            ConfigurationError: Faust's client cannot reach such a cluster.
        """
        for name in _CHATTY:
            logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
        self._check_topics()
        with tempfile.TemporaryDirectory(prefix="offsetzero-usage-") as folder:
            try:
                asyncio.run(self._run(Path(folder)))
            finally:
                self._phase = Phase.STOPPED
                self._show_lag([])
        return []

    def _check_topics(self) -> None:
        existing = cluster.partitions(self._settings)
        needed = (*SOURCES, catalogue.USAGE_CHANGELOG)
        if missing := [name for name in needed if name not in existing]:
            raise GroupStopped(f"topics {', '.join(missing)} do not exist; run `offsetzero topics apply`")
        counts = {name: existing[name] for name in needed}
        if len(set(counts.values())) != 1:
            raise GroupStopped(f"group {NAME}: its sources and its changelog need one partition count, not {counts}")
        self._partition_count = counts[SOURCES[0]]

    async def _run(self, folder: Path) -> None:
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is left to stop
                loop.call_soon_threadsafe(stopping.set)

        self._wake = wake
        if self._stop:
            return
        app, table = make_app(self._settings, SchemaLog(self._settings).find, folder)
        measuring: asyncio.Task[None] | None = None
        try:
            self._phase = Phase.JOINING
            await app.start()
            self._app, self._table = app, table
            measuring = asyncio.create_task(self._measure())
            while not stopping.is_set() and not app.crashed and not app.should_stop:
                self._look()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), LOOK_SECONDS)
        finally:
            self._phase = Phase.DRAINING
            if measuring is not None:
                measuring.cancel()
            await asyncio.wait_for(app.stop(), self._settings.groups.drain_seconds)
        if app.crashed:
            reason = app.crash_reason
            raise GroupStopped(f"group {NAME}: Faust has given up: {reason!r}") from reason

    def _look(self) -> None:
        """What the member has now, and what of it is past its time."""
        self._turned_at = SYSTEM.monotonic()
        app = self._app
        working = not app.rebalancing and app.tables.recovery.completed.is_set()
        if working:
            source = self._names.topic(SOURCES[0])
            self._owned = frozenset(tp.partition for tp in app.consumer.assignment() if tp.topic == source)
        self._phase = Phase.WORKING if working else Phase.JOINING

    async def _measure(self) -> None:
        while True:
            try:
                found = await asyncio.to_thread(lag.group_offsets, self._settings, NAME, SOURCES)
                self._look()  # another has partitions of a moment ago, or what is recovered is of new ones
                if self._phase is Phase.WORKING:
                    self._show_lag(one for one in found if one.partition in self._owned)
                    self._show_cells()
            except TopicError as error:
                log.warning("the lag is not known", group=NAME, error=str(error))
            await asyncio.sleep(MEASURE_SECONDS if self._lags else LOOK_SECONDS)

    def _show_lag(self, found: Iterable[lag.PartitionLag]) -> None:
        shown = set()
        for one in found:
            labels = (NAME, one.topic, str(one.partition))
            metrics.LAG_RECORDS.labels(*labels).set(one.lag)
            shown.add(labels)
        for labels in self._lags - shown:
            metrics.remove(metrics.LAG_RECORDS, *labels)
        self._lags = shown

    def _show_cells(self) -> None:
        """The latest counts as metrics; and what is past its time, or of a partition that another has now, goes.

        Faust's own windows are not used: it keeps a note of every update until the window expires, and none of what
        it has recovered. From the changelog the topic's retention deletes.
        """
        usage, now, data = self._settings.usage, SYSTEM.now().timestamp(), self._table.data
        cells: list[tuple[Key, Cell]] = [(Key(*key), cell) for key, cell in list(data.data.items()) if cell]
        for key, _ in cells:
            kept = windows.is_kept(key.start, now, usage.keep_seconds, usage.window_seconds)
            if key.partition not in self._owned or not kept:
                data.data.pop(key, None)
        mine = [(key, cell) for key, cell in cells if key.partition in self._owned]
        by_tenant = windows.recent(mine, now, usage.window_seconds)
        busiest = sorted(by_tenant, key=lambda tenant: -by_tenant[tenant]["uploaded"])[:SHOWN_TENANTS]
        rows: dict[tuple[str, ...], float] = {
            (tenant, what): float(by_tenant[tenant][what]) for tenant in busiest for what in windows.COUNTS
        }
        metrics.USAGE_RECENT.show(NAME, rows)
        metrics.USAGE_WINDOWS.show(NAME, {(): float(len(mine))})
