"""What `up` and `demo` show while parts start: a live list in a terminal, plain lines elsewhere."""

import threading
from collections.abc import Callable
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

_MARKS = {"ready": "[green]✓[/]", "stopped": "[dim]·[/]", "ended": "[red]✗[/]", "failed": "[red]✗[/]"}
_PASSING = ("starting", "stopping")
_PLAIN_JARS_STEP = 0.25


class Screen:
    """The parts and their states. A `Report` of `offsetzero.embedded.stack`; its methods may be called by threads.

    Args:
        console: where to write.
        extra: what to show below the list, asked for at each refresh.
    """

    def __init__(
        self, console: Console | None = None, extra: Callable[[], RenderableType | None] | None = None
    ) -> None:
        self.console = console or Console()
        self._live_wanted = self.console.is_terminal
        self._extra = extra
        self._parts: dict[str, tuple[str, str, RenderableType]] = {}
        self._lock = threading.Lock()
        self._live: Live | None = None
        self._plain_jars = 0.0
        self._progress = Progress(
            TextColumn("  Kafka's jars"), BarColumn(30), DownloadColumn(), TransferSpeedColumn(), console=self.console
        )
        self._jars_task = self._progress.add_task("jars", total=None, visible=False)

    def __enter__(self) -> "Screen":
        if self._live_wanted:
            self._live = Live(get_renderable=self._render, console=self.console, refresh_per_second=8, transient=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def step(self, name: str, state: str, detail: str = "") -> None:
        """A part has come to a state."""
        mark: RenderableType = Text.from_markup(_MARKS[state]) if state in _MARKS else Spinner("dots", style="cyan")
        first, _, rest = detail.partition("\n")
        with self._lock:
            self._parts[name] = (state, first, mark)
        if self._live is None and (state not in _PASSING or detail):
            self.console.print(f"{name:<12} {state:<9} {first}".rstrip(), markup=False, highlight=False, soft_wrap=True)
        if rest:
            self.console.print(rest, markup=False, highlight=False, soft_wrap=True)

    def jars(self, done: int, total: int) -> None:
        """So many bytes of Kafka's jars have arrived."""
        with self._lock:
            self._progress.update(self._jars_task, completed=done, total=total, visible=done < total)
            share = done / total if total else 1.0
            show = self._live is None and share >= self._plain_jars
            if show:
                self._plain_jars = share + _PLAIN_JARS_STEP if share < 1 else 2.0
        if show:
            self.console.print(
                f"{'Kafka':<12} fetching  jars, {done / 1e6:.0f} of {total / 1e6:.0f} MB", markup=False, highlight=False
            )

    def _render(self) -> RenderableType:
        table = Table.grid(padding=(0, 1))
        with self._lock:
            for name, (state, detail, mark) in self._parts.items():
                table.add_row(mark, Text(name, style="bold"), Text(state), Text(detail, style="dim"))
        items: list[RenderableType] = [table]
        if self._progress.tasks[0].visible:
            items.append(self._progress.get_renderable())
        extra = self._extra() if self._extra is not None else None
        if extra is not None:
            items.append(extra)
        return Group(*items)
