"""`offsetzero diff`: what differs between the tables of two generations of a projection."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from offsetzero.store.comparison import Comparison
    from offsetzero.store.database import Connection
    from offsetzero.store.differences import Difference, Summary
    from offsetzero.store.generations import Known

EXIT_DIFFERS = 3
"""They differ. Not 1 and 2, as of `diff`: those are errors, and options that do not exist, of all commands."""
MAX_VALUE = 60
"""Characters that are shown of a value."""


def diff(
    name: Annotated[str, typer.Argument(metavar="GROUP", help="A projection: indexer, catalogue, package.module:name")],
    old: Annotated[str, typer.Argument(metavar="OLD", help="A generation: its number, or its name.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Another one.")],
    limit: Annotated[int, typer.Option("--limit", min=0, help="Rows that are shown of each table.")] = 20,
    leave_out: Annotated[
        list[str] | None, typer.Option("--except", metavar="COLUMN", help="Do not compare it; may be repeated.")
    ] = None,
    made_at: Annotated[
        bool, typer.Option("--made-at", help="Compare columns, too, whose default is the time at which a row is made.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="All rows that differ, and a summary of each table: a JSON object a line.")
    ] = False,
) -> None:
    """Show what differs between two generations of a projection, table by table, row by row, by primary key.

    `-` is a row that only the old one has, `+` one that only the new one has, `~` one that has changed. Both are seen
    as they are at one moment, and are not dropped meanwhile. Without a primary key, whole rows are compared.

    Exit status: 0 when nothing differs, 3 when something does, 1 for an error.

    Example: offsetzero diff indexer before-the-incident 2 --except language
    """
    import psycopg

    from offsetzero import settings
    from offsetzero.consumers import registry
    from offsetzero.store import comparison, differences
    from offsetzero.store.script import run

    group = registry.load(name).name if ":" in name else name
    config = settings.load(needs=frozenset({"database"}))
    with psycopg.connect(
        config.database_url.get_secret_value(), autocommit=True, connect_timeout=10, application_name="offsetzero diff"
    ) as connection:
        both = _Both(*_kept(connection, group, (old, new)))
        connection.execute("SET TimeZone = 'UTC'")
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        connection.autocommit = False
        olds, news = (run(connection, comparison.tables(one.schema)) for one in (both.old, both.new))
        out = leave_out or []
        _check(out, {one.name for columns in (*olds.values(), *news.values()) for one in columns})
        compared = comparison.compare(olds, news, out, made_at=made_at)
        differs = False
        try:
            for one in compared:
                differs |= (_as_json if as_json else _as_text)(connection, both, one, limit)
            sys.stdout.flush()
        except BrokenPipeError:  # as `| head`: who reads has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            schemas = both.old.schema, both.new.schema
            differs = any(differences.summary(connection, one, *schemas).differs for one in compared)
    if differs:
        raise typer.Exit(EXIT_DIFFERS)


@dataclass(frozen=True, slots=True)
class _One:
    """A generation, as it was asked for."""

    shown: str
    schema: str


@dataclass(frozen=True, slots=True)
class _Both:
    old: _One
    new: _One


def _kept(connection: "Connection", group: str, wanted: Sequence[str]) -> list[_One]:
    """The generations that are asked for; they are not dropped while the connection lives."""
    from offsetzero.errors import ConfigurationError
    from offsetzero.generation import Generation
    from offsetzero.store import generations
    from offsetzero.store.script import run

    for number in {one.number for one in run(connection, generations.known(group)) if _asked(one) & set(wanted)}:
        run(connection, generations.keep(Generation(group, number)))
    known = run(connection, generations.known(group))  # one of them may have been dropped before that
    if not known:
        others = ", ".join(run(connection, generations.groups())) or "none"
        raise ConfigurationError(f"group {group}: it has no generations in this database; groups that have: {others}")
    there = {asked: one for one in known for asked in _asked(one)}
    shown = ", ".join(f"{one.number} ({one.name})" if one.name else str(one.number) for one in known)
    if problems := [
        f"group {group}: there is no generation {given}; there {'is' if len(known) == 1 else 'are'} {shown}"
        for given in wanted
        if given not in there
    ]:
        raise ConfigurationError(problems)
    for given in wanted:
        if there[given].name is not None and there[given].filled_at is None:
            print(f"Generation {given} is not whole: what made it was interrupted, or is at work.", file=sys.stderr)
    return [_One(given, Generation(group, there[given].number).schema) for given in wanted]


def _asked(one: "Known") -> set[str]:
    """What a generation may be asked for by."""
    return {str(one.number), *([one.name] if one.name is not None else [])}


def _check(leave_out: Sequence[str], columns: set[str]) -> None:
    from offsetzero.errors import ConfigurationError

    if problems := [
        f"--except {name}: no table has such a column; there are {', '.join(sorted(columns)) or 'none'}"
        for name in leave_out
        if name not in columns
    ]:
        raise ConfigurationError(problems)


def _as_json(connection: "Connection", both: _Both, comparison: "Comparison", _limit: int) -> bool:
    from offsetzero.store import differences

    table = json.dumps(comparison.table)
    for one in differences.differences(connection, comparison, both.old.schema, both.new.schema):
        values = ", ".join(
            f'"{name}": {value}' for name, value in (("key", one.key), ("old", one.old), ("new", one.new)) if value
        )
        count = f', "count": {one.count}' if one.key is None else ""
        print(f'{{"table": {table}, "change": "{one.change}"{count}, {values}}}')
    total = differences.summary(connection, comparison, both.old.schema, both.new.schema)
    summary = {
        "table": comparison.table,
        "only_in_the_old": total.only_old,
        "only_in_the_new": total.only_new,
        "changed": total.changed,
        "same": total.same,
        "key": [old.name for old, _ in comparison.key],
        "left_out": comparison.left_out,
        "columns_only_in_the_old": comparison.only_old,
        "columns_only_in_the_new": comparison.only_new,
        "table_is": comparison.only or "in both",
    }
    print(json.dumps({"summary": summary}))
    return total.differs


def _as_text(connection: "Connection", both: _Both, comparison: "Comparison", limit: int) -> bool:
    from offsetzero.store import differences

    total = differences.summary(connection, comparison, both.old.schema, both.new.schema)
    print(f"{comparison.table}: {_told(comparison, total, both)}")
    count = 0
    if total.differs:
        for one in differences.differences(connection, comparison, both.old.schema, both.new.schema, limit + 1):
            count += 1
            if count > limit:
                print("  … more with --limit, or all with --json")
                break
            print(f"  {_line(one)}")
    return total.differs


def _told(comparison: "Comparison", total: "Summary", both: _Both) -> str:
    old, new = both.old.shown, both.new.shown
    if comparison.only is not None:
        from offsetzero.store.comparison import ONLY_OLD

        there, rows = (old, total.only_old) if comparison.only == ONLY_OLD else (new, total.only_new)
        return f"a table of generation {there} alone, with {_rows(rows)}"
    parts = [f"{_rows(total.only_old)} only in {old}", f"{total.only_new:,} only in {new}"]
    if comparison.key:
        parts.append(f"{total.changed:,} changed")
    told = ", ".join([*parts, f"{total.same:,} the same"])
    if not comparison.key:
        told += "; compared as whole rows, without a primary key"
    for names, what in (
        (comparison.left_out, "not compared"),
        (comparison.only_old, f"only in {old}, not compared"),
        (comparison.only_new, f"only in {new}, not compared"),
    ):
        if names:
            told += f"; {what}: {', '.join(names)}"
    return told


def _line(one: "Difference") -> str:
    from offsetzero.store.comparison import CHANGED, ONLY_OLD

    key = _pairs(_read(one.key))
    if one.change == CHANGED:
        old, new = _read(one.old), _read(one.new)
        changes = [f"{name}: {_value(old[name])} → {_value(new[name])}" for name in old]
        return f"~ {' '.join(key)}  {', '.join(changes)}"
    mark, values = ("-", one.old) if one.change == ONLY_OLD else ("+", one.new)
    times = f"  ({one.count:,} times)" if one.count > 1 else ""
    return f"{mark} {' '.join([*key, *_pairs(_read(values))])}{times}"


def _read(values: str | None) -> dict[str, Any]:
    """Its numbers keep their digits."""
    found: dict[str, Any] = json.loads(values or "{}", parse_float=Decimal)
    return found


def _pairs(values: dict[str, Any]) -> list[str]:
    return [f"{name}={_value(value)}" for name, value in values.items()]


def _value(value: Any) -> str:
    from offsetzero.cli.rows import printable

    if isinstance(value, str | Decimal):
        text = printable(str(value))
    else:
        text = printable(json.dumps(value, ensure_ascii=False, default=float))
    return text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 1] + "…"


def _rows(count: int) -> str:
    return f"{count:,} row" if count == 1 else f"{count:,} rows"
