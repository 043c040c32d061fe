"""What the demo shows: the table of runs while they go, then all that was seen, and what was checked."""

import html
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from offsetzero.cli.scenario import QUERY, Outcome

_STYLES = {"succeeded": "green", "failed": "red", "running": "cyan", "waiting": "yellow", "queued": "dim"}


class Runs:
    """The table of runs and steps: live in a terminal, a line for each change elsewhere."""

    def __init__(self, console: Console, outcome: Outcome) -> None:
        self._console = console
        self._outcome = outcome
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=8)
        self._told: set[tuple[str, ...]] = set()

    def __enter__(self) -> "Runs":
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


def show(console: Console, outcome: Outcome) -> bool:
    """Print all that was seen, and what was checked; whether all of it is as it must be."""
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
