"""`offsetzero demo`: the whole path, once, on real servers that are gone afterwards."""

import contextlib
import fcntl
import html
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from offsetzero.cli.receiver import Receiver
from offsetzero.cli.scenario import QUERY, Outcome, Scenario
from offsetzero.cli.screen import Screen
from offsetzero.cli.up import demo_key, end_on_signals, log_to_file, stop
from offsetzero.embedded.postgres import UNSAFE_BUT_FAST, remove_data
from offsetzero.embedded.stack import Stack
from offsetzero.errors import OffsetzeroError
from offsetzero.settings import PREFIX

_PREFIX = "offsetzero-demo-"
_ANNOUNCED = "kept"
"""A file in each folder that somebody was told of: later demos leave it alone."""
_STYLES = {"succeeded": "green", "failed": "red", "running": "cyan", "waiting": "yellow", "queued": "dim"}


def demo(
    documents: Annotated[
        Path | None, typer.Option(help="Folder with policy.pdf, corrupt.pdf and handbook.pdf.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data folder and its logs.")] = False,
) -> None:
    """See three documents go through Kafka to search, summary and webhook: about a minute, nothing is left.

    Starts real servers in a temporary folder, uploads a policy, a handbook and a corrupt file, follows their runs,
    and checks what must have happened. The exit status is 0 only when all of it did. Settings in the environment
    are not used.
    """
    started = time.monotonic()
    folder = documents or Path(__file__).resolve().parents[2] / "examples" / "documents"
    if not (folder / "policy.pdf").exists():
        raise OffsetzeroError(f"the example documents are not in {folder}; name their folder with --documents")
    end_on_signals()
    _remove_leftovers()
    home = Path(tempfile.mkdtemp(prefix=_PREFIX))
    home.chmod(0o711)  # PostgreSQL's account must pass
    console = Console()
    good = False
    try:
        good = _run(home, folder, console, started)
    except KeyboardInterrupt:
        console.print("\nStopped.")
        sys.exit(130)
    finally:
        if keep or (not good and (home / "logs").exists()):
            (home / _ANNOUNCED).touch()
            console.print(f"Data and logs are in {home} until you remove them.", soft_wrap=True, highlight=False)
        else:
            _remove(home)
    sys.exit(0 if good else 1)


def _run(home: Path, folder: Path, console: Console, started: float) -> bool:
    screen = Screen(console)
    stack = Stack(home, screen, environment=_environment(), api_port=0, database=UNSAFE_BUT_FAST, supervise=False)
    log_to_file(home)
    try:
        with Receiver() as receiver:
            with screen:
                settings = stack.start()
            ready = time.monotonic() - started
            console.print(f"\nAll parts are ready after {ready:.1f} s. Uploading three documents …\n")
            scenario = Scenario(stack.api_url, demo_key(settings), folder, receiver, settings)
            with _Runs(console, scenario.outcome) as runs:
                outcome = scenario.run(runs.changed, stack.check)
        good = _show(console, outcome)
    finally:
        stop(stack)
        stack.close()
    console.print(f"Finished in {time.monotonic() - started:.1f} s; all servers are stopped.")
    return good


def _environment() -> dict[str, str]:
    return {
        PREFIX + "RETRY__DELAYS": json.dumps({"retry-1m": 1.0, "retry-10m": 2.0}),  # a minute is long in a demo
        PREFIX + "WEBHOOKS__ALLOW_PRIVATE_TARGETS": "true",  # the receiver is on this machine
    }


class _Runs:
    """The table of runs and steps: live in a terminal, a line for each change elsewhere."""

    def __init__(self, console: Console, outcome: Outcome) -> None:
        self._console = console
        self._outcome = outcome
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=8)
        self._told: set[tuple[str, ...]] = set()

    def __enter__(self) -> "_Runs":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._console.is_terminal:
            self._live.stop()
        else:
            self._console.print(self._render())

    def changed(self) -> None:
        """Runs may have changed."""
        if self._console.is_terminal:
            return
        for name, run in self._outcome.runs.items():
            for step in run["steps"]:
                line = (name, step["step"], step["status"], step["reason"] or "")
                if line not in self._told:
                    self._told.add(line)
                    self._console.print("  ".join(line).rstrip(), highlight=False, markup=False)

    def _render(self) -> RenderableType:
        table = Table("document", "run", "indexer", "summariser", box=None, padding=(0, 2), header_style="bold")
        for name, run in self._outcome.runs.items():
            steps = {step["step"]: step for step in run["steps"]}
            table.add_row(name, _styled(run), _styled(steps.get("indexer")), _styled(steps.get("summariser")))
        return table


def _styled(item: dict[str, Any] | None) -> Text:
    if item is None:
        return Text("-", style="dim")
    reason = f" ({item['reason']})" if item.get("reason") else ""
    return Text(item["status"] + reason, style=_STYLES.get(item["status"], ""))


def _show(console: Console, outcome: Outcome) -> bool:
    for title, body in (
        ("Dead letters of corrupt.pdf", _dead_letters(outcome)),
        (f"Search: {QUERY}", _hits(outcome, color=console.color_system is not None)),
        ("Summaries, made on this machine", _summaries(outcome)),
        ("Webhooks received, signatures verified", _webhooks(outcome)),
    ):
        console.print(Panel(body, title=title, title_align="left", border_style="dim"))
    checks = outcome.checks()
    for text, good in checks:
        console.print(f"[green]✓[/] {text}" if good else f"[red]✗ {text}[/]", highlight=False)
    console.print(f"From the first upload to the last webhook: {outcome.seconds:.1f} s.")
    return all(good for _, good in checks)


def _dead_letters(outcome: Outcome) -> RenderableType:
    table = Table("group", "failure", "reason", "attempt", "detail", box=None, padding=(0, 1), header_style="bold")
    for letter in outcome.dead_letters:
        table.add_row(letter.group, letter.failure, letter.reason, str(letter.hop.attempt), letter.detail)
    return table if outcome.dead_letters else Text("none", style="red")


def _hits(outcome: Outcome, *, color: bool) -> RenderableType:
    lines: list[RenderableType] = []
    for hit in outcome.hits:
        head = Text().append(f"{hit['name']}, page {hit['page']}: ", style="bold")
        for number, piece in enumerate(hit["snippet"].replace("</mark>", "<mark>").split("<mark>")):
            text = html.unescape(piece)
            marked = number % 2 == 1
            head.append(text if color or not marked else f"*{text}*", style="bold black on yellow" if marked else "")
        lines.append(head)
    return Group(*lines) if lines else Text("nothing found", style="red")


def _summaries(outcome: Outcome) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for name, text in outcome.summaries.items():
        table.add_row(Text(name, style="bold"), text or Text("none", style="red"))
    return table


def _webhooks(outcome: Outcome) -> RenderableType:
    names = {str(run["run_id"]): name for name, run in outcome.runs.items()}
    table = Table.grid(padding=(0, 2))
    for item in outcome.webhooks:
        table.add_row(
            Text(item.event_type, style="bold"), names.get(str(item.data.get("run_id")), "?"), item.message_id
        )
    for problem in outcome.refused_webhooks:
        table.add_row(Text("refused", style="red"), problem, "")
    return table if outcome.webhooks or outcome.refused_webhooks else Text("none", style="red")


def _remove(home: Path) -> None:
    remove_data(home / "postgres")
    shutil.rmtree(home, ignore_errors=True)


def _remove_leftovers() -> None:
    """Remove the folders of demos that were killed: nobody was told of them, and nobody has locked them any more."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid != os.geteuid():  # a name anybody could have chosen
                continue
            if (folder / _ANNOUNCED).exists():
                continue
            with (folder / "up.lock").open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
