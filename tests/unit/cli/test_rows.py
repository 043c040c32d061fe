"""Rows that stay readable in a narrow terminal, and whole for grep."""

from offsetzero.cli.rows import layout

COLUMNS = ("group", "lag", "event types", "detail")
ROWS = [["indexer", "7", "document.uploaded, document.deleted", "a long explanation " * 3], ["n", "12", "-", "short"]]


def test_without_a_terminal_a_row_is_one_line_and_nothing_is_cut() -> None:
    lines = layout(COLUMNS, ROWS, width=None, first=2, right={"lag"}, cut_last=True)
    assert len(lines) == 3
    assert lines[1].split("  ")[0] == "indexer"
    assert all(text.strip() in lines[1] for text in ROWS[0])
    assert lines[2].startswith("n         12  -")


def test_a_terminal_that_is_too_narrow_gets_two_lines_and_only_the_last_column_is_cut() -> None:
    lines = layout(COLUMNS, ROWS, width=60, first=2, right={"lag"}, cut_last=True)
    assert lines[:2] == ["group    lag", "    event types  detail"]
    assert lines[2] == "indexer    7"
    assert lines[3].startswith("    document.uploaded, document.deleted  a long")
    assert (len(lines[3]), lines[3][-1]) == (60, "…")
    assert lines[4:] == ["n         12", "    short"]


def test_a_wide_terminal_gets_one_line() -> None:
    assert len(layout(COLUMNS, ROWS, width=200, first=2)) == 3


def test_wide_signs_keep_the_columns_aligned() -> None:
    assert layout(("a", "b"), [["文件", "x"], ["file", "y"]], width=None) == ["a     b", "文件  x", "file  y"]


def test_data_cannot_steer_a_terminal_or_add_a_line() -> None:
    (_, line) = layout(("detail",), [["red \x1b[31m and\nmore"]], width=None)
    assert line == "red \\x1b[31m and\\nmore"
