"""Which tables and columns of two generations of a projection can be compared, and by what."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from offsetzero.store.script import Script

ONLY_OLD, ONLY_NEW, CHANGED = "only in the old", "only in the new", "changed"

# The comparison of a type is used where it has one and no collation is part of it, which the two might disagree on.
_COLUMNS = (
    "SELECT c.relname, a.attname, format_type(a.atttypid, NULL), a.attcollation = 0 AND EXISTS (SELECT"
    " FROM pg_opclass o JOIN pg_am m ON m.oid = o.opcmethod"
    " WHERE m.amname = 'btree' AND o.opcdefault AND o.opcintype = a.atttypid),"
    " coalesce(pg_get_expr(d.adbin, d.adrelid) ~* %s, false), array_position(k.conkey, a.attnum)"
    " FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
    " LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum"
    " LEFT JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype = 'p'"
    " WHERE c.relnamespace = to_regnamespace(quote_ident(%s)) AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
    " ORDER BY c.relname, a.attnum"
)
_NOW = (
    r"\m(now|transaction_timestamp|statement_timestamp|clock_timestamp|timeofday)\("
    r"|\m(current_(date|time|timestamp)|localtime(stamp)?)\M"
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: its name.
        type: its type's name, without a length.
        is_plain: values of the type can be compared and sorted as they are.
        is_made_at: its default is the time at which a row is made, so it differs between any two generations.
        key: its place in the primary key, from 1; None where it is not part of it.
    """

    name: str
    type: str
    is_plain: bool = True
    is_made_at: bool = False
    key: int | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a table of two generations is compared.

    Attributes:
        table: its name.
        key: the columns, old and new, of the primary key; without any, rows are compared as a whole, as bags.
        columns: the others that are compared, in the same way.
        left_out: names of those that are not.
        only_old: names of columns that the old table alone has.
        only_new: and of the new one.
        only: `ONLY_OLD` or `ONLY_NEW` for a table that one of the generations alone has: its rows are counted.
    """

    table: str
    key: tuple[tuple[Column, Column], ...] = ()
    columns: tuple[tuple[Column, Column], ...] = ()
    left_out: tuple[str, ...] = ()
    only_old: tuple[str, ...] = ()
    only_new: tuple[str, ...] = ()
    only: str | None = None


def tables(schema: str) -> Script[dict[str, list[Column]]]:
    """The tables of a schema with their columns, in the order of their names."""
    rows = yield _COLUMNS, (_NOW, schema)
    found: dict[str, list[Column]] = {}
    for table, *column in rows:
        columns = found.setdefault(table, [])
        if column[0] is not None:  # else it has none
            columns.append(Column(*column))
    return found


def compare(
    old: Mapping[str, Sequence[Column]],
    new: Mapping[str, Sequence[Column]],
    leave_out: Collection[str] = (),
    *,
    made_at: bool = False,
) -> list[Comparison]:
    """How the tables of two generations are compared. Pure.

    Args:
        old: tables with their columns.
        new: likewise.
        leave_out: names of columns that are not compared, in any table.
        made_at: compare those, too, that have the time of making for a default.
    """
    found = []
    for table in sorted({*old, *new}):
        if table not in old or table not in new:
            found.append(Comparison(table, only=ONLY_OLD if table in old else ONLY_NEW))
            continue
        olds, news = ({one.name: one for one in tables[table]} for tables in (old, new))
        both = [(one, news[name]) for name, one in olds.items() if name in news]
        out = [a.name for a, b in both if a.name in leave_out or (not made_at and (a.is_made_at or b.is_made_at))]
        pairs = [pair for pair in both if pair[0].name not in out]
        key = _key(olds.values(), news.values(), {a.name for a, _ in pairs})
        found.append(
            Comparison(
                table,
                tuple((olds[name], news[name]) for name in key),
                tuple(pair for pair in pairs if pair[0].name not in key),
                tuple(out),
                tuple(name for name in olds if name not in news),
                tuple(name for name in news if name not in olds),
            )
        )
    return found


def _key(old: Collection[Column], new: Collection[Column], compared: Collection[str]) -> list[str]:
    """The primary key, where both have the same one and all of it is compared; else nothing."""
    keys = [
        [name for _, name in sorted((one.key, one.name) for one in columns if one.key is not None)]
        for columns in (old, new)
    ]
    return keys[0] if sorted(keys[0]) == sorted(keys[1]) and all(name in compared for name in keys[0]) else []
