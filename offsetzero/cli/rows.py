"""Rows for people and for grep: aligned columns, nothing cut that somebody may want to copy."""

import os
import shutil
import sys
from collections.abc import Collection, Sequence

_GAP = "  "
_INDENT = "    "


def show(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    first: int | None = None,
    right: Collection[str] = (),
    cut_last: bool = False,
) -> None:
    """Print rows below their column names: one line each, or two in a terminal that is too narrow for one.

    Args:
        columns: names of the columns.
        rows: a text for each column; control characters are shown escaped.
        first: how many columns stay on the first line when there are two; by default all.
        right: names of the columns that are aligned to the right.
        cut_last: the last column ends with … at the terminal's edge; elsewhere nothing is ever cut.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    bold = width is not None and not os.environ.get("NO_COLOR")
    lines = layout(columns, rows, width=width, first=first, right=right, cut_last=cut_last)
    head = len(lines) // (len(rows) + 1)
    for number, line in enumerate(lines):
        print(f"\x1b[1m{line}\x1b[0m" if bold and number < head else line)


def layout(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int | None,
    first: int | None = None,
    right: Collection[str] = (),
    cut_last: bool = False,
) -> list[str]:
    """The lines that `show` prints, the column names first. `width` is the terminal's; None is without limit."""
    texts = [[printable(text) for text in row] for row in rows]
    widths = [max(map(_cells, column)) for column in zip(columns, *texts, strict=True)]
    split = len(columns)
    if first is not None and width is not None and sum(widths) + len(_GAP) * (split - 1) > width:
        split = first
    lines: list[str] = []
    for row in [list(columns), *texts]:
        whole = [_aligned(row[:split], widths, columns, right)]
        if split < len(columns):
            whole.append(_INDENT + (_GAP.join(text for text in row[split:] if text and text != "-") or "-"))
        if cut_last and width is not None:
            whole[-1] = _cut(whole[-1], width)
        lines += whole
    return lines


def printable(text: str) -> str:
    """The text with line ends and control characters escaped: data of others must not steer a terminal."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def _aligned(texts: Sequence[str], widths: Sequence[int], columns: Sequence[str], right: Collection[str]) -> str:
    padded = []
    for text, width, name in zip(texts, widths, columns, strict=False):
        space = " " * (width - _cells(text))
        padded.append(space + text if name in right else text + space)
    return _GAP.join(padded).rstrip()


def _cut(line: str, width: int) -> str:
    if _cells(line) <= width:
        return line
    while _cells(line) > width - 1:
        line = line[:-1]
    return line + "…"


def _cells(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
