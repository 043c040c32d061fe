"""What differs between a table of two generations of a projection: PostgreSQL compares, and rows come one by one."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from offsetzero.store.comparison import CHANGED, ONLY_NEW, ONLY_OLD, Column, Comparison
from offsetzero.store.database import Connection

_AT_ONCE = 1_000  # rows that come from the server together


class Summary(NamedTuple):
    """Rows of a table: only in the old one, only in the new one, in both but not the same, and the same."""

    only_old: int
    only_new: int
    changed: int
    same: int

    @property
    def differs(self) -> bool:
        """Whether there is a difference."""
        return any(self[:3])


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that differs; its values are JSON objects as text, as PostgreSQL writes them: no digit is lost.

    Attributes:
        change: `ONLY_OLD`, `ONLY_NEW` or `CHANGED`.
        count: how many such rows there are, where they have no key.
        key: the columns of the primary key; None without one.
        old: the other columns in the old table, only those that differ where it is changed; None where it is not there.
        new: likewise in the new one.
    """

    change: str
    count: int
    key: str | None
    old: str | None
    new: str | None


def summary(connection: Connection, comparison: Comparison, old: str, new: str) -> Summary:
    """Count the rows of a table that differ.

    Args:
        connection: in a transaction of one snapshot.
        comparison: how.
        old: the schema of the old generation.
        new: and of the new one.
    """
    if comparison.only is not None:
        schema = old if comparison.only == ONLY_OLD else new
        query = SQL("SELECT count(*) FROM {}").format(Identifier(schema, comparison.table))
        count = connection.execute(query).fetchone()
        assert count is not None  # noqa: S101 - an aggregate
        return Summary(count[0], 0, 0, 0) if comparison.only == ONLY_OLD else Summary(0, count[0], 0, 0)
    row = connection.execute(_summary(comparison, old, new)).fetchone()
    assert row is not None  # noqa: S101 - an aggregate
    return Summary(*row)


def differences(
    connection: Connection, comparison: Comparison, old: str, new: str, most: int | None = None
) -> Iterator[Difference]:
    """The rows of a table that differ, in the order of the key or of their text; of a table that one alone has, none.

    Args:
        connection: in a transaction of one snapshot.
        comparison: how.
        old: the schema of the old generation.
        new: and of the new one.
        most: how many; by default all.
    """
    if comparison.only is not None:
        return
    query = (_by_key if comparison.key else _as_bags)(comparison, old, new, most)
    with connection.cursor(name="differences") as cursor:
        cursor.itersize = _AT_ONCE
        cursor.execute(query)
        for row in cursor:
            yield Difference(*row)


def _summary(comparison: Comparison, old: str, new: str) -> Composed:
    if comparison.key:
        return SQL(
            "SELECT count(*) FILTER (WHERE {no_new}), count(*) FILTER (WHERE {no_old}),"
            " count(*) FILTER (WHERE NOT {no_old} AND NOT {no_new} AND ({changed})),"
            " count(*) FILTER (WHERE NOT {no_old} AND NOT {no_new} AND NOT ({changed})) FROM {joined}"
        ).format(**_joined(comparison, old, new))
    return SQL(
        "SELECT coalesce(sum(greatest(more, 0)), 0)::bigint, coalesce(sum(greatest(-more, 0)), 0)::bigint, 0::bigint,"
        " coalesce(sum(olds - greatest(more, 0)), 0)::bigint"
        " FROM (SELECT sum(side) AS more, count(*) FILTER (WHERE side = 1) AS olds FROM ({both}) b GROUP BY {all}) d"
    ).format(both=_both(comparison, old, new), all=_all(comparison))


def _by_key(comparison: Comparison, old: str, new: str, most: int | None) -> Composed:
    parts = _joined(comparison, old, new)
    differing = [
        SQL("CASE WHEN {} THEN {} END").format(_differs(pair), Literal(pair[0].name)) for pair in comparison.columns
    ]
    some = SQL(
        "CASE WHEN d.{side} IS NOT NULL THEN (SELECT coalesce(json_object_agg(e.key, e.value), '{{}}')"
        " FROM json_each(d.{side}) e WHERE d.differing IS NULL OR e.key = ANY (d.differing))::text END"
    )
    return SQL(
        "SELECT d.change, 1, d.key::text, {olds}, {news} FROM (SELECT"
        " CASE WHEN {no_new} THEN {only_old} WHEN {no_old} THEN {only_new} ELSE {is_changed} END AS change,"
        " {key} AS key, CASE WHEN NOT {no_old} THEN {old} END AS old, CASE WHEN NOT {no_new} THEN {new} END AS new,"
        " CASE WHEN NOT {no_old} AND NOT {no_new} THEN array_remove(ARRAY[{differing}]::text[], NULL) END AS differing"
        " FROM {joined} WHERE {no_old} OR {no_new} OR {changed} ORDER BY {order} {limit}) d"
    ).format(
        **parts,
        **_changes(),
        olds=some.format(side=Identifier("old")),
        news=some.format(side=Identifier("new")),
        key=_object((_either(pair), pair[0].name) for pair in comparison.key),
        old=_object((_of("o", a), a.name) for a, _ in comparison.columns),
        new=_object((_of("n", b), b.name) for _, b in comparison.columns),
        differing=SQL(", ").join(differing),
        order=SQL(", ").join(map(_either, comparison.key)),
        limit=_limit(most),
    )


def _as_bags(comparison: Comparison, old: str, new: str, most: int | None) -> Composed:
    """As EXCEPT ALL both ways, in one pass."""
    names = (one.name for one, _ in comparison.columns)
    columns = (Identifier("b", f"c{number}") for number in range(len(comparison.columns)))
    return SQL(
        "SELECT CASE WHEN more > 0 THEN {only_old} ELSE {only_new} END, abs(more), NULL,"
        " CASE WHEN more > 0 THEN whole END, CASE WHEN more < 0 THEN whole END"
        " FROM (SELECT sum(side) AS more, {whole}::text AS whole FROM ({both}) b GROUP BY {all} HAVING sum(side) <> 0"
        " ORDER BY whole {limit}) d"
    ).format(
        **_changes(),
        whole=_object(zip(columns, names, strict=True)),
        both=_both(comparison, old, new),
        all=_all(comparison),
        limit=_limit(most),
    )


def _joined(comparison: Comparison, old: str, new: str) -> dict[str, Composable]:
    """The two tables by their primary key; which side is missing is told by it, for it is never null."""
    return {
        "joined": SQL("{} o FULL JOIN {} n ON {}").format(
            Identifier(old, comparison.table),
            Identifier(new, comparison.table),
            SQL(" AND ").join(SQL("{} = {}").format(*_sides(pair)) for pair in comparison.key),
        ),
        "no_old": SQL("({} IS NULL)").format(_of("o", comparison.key[0][0])),
        "no_new": SQL("({} IS NULL)").format(_of("n", comparison.key[0][1])),
        "changed": SQL(" OR ").join([SQL("false"), *map(_differs, comparison.columns)]),
    }


def _both(comparison: Comparison, old: str, new: str) -> Composed:
    """The rows of both tables, one below the other, with a side: 1 for the old one, -1 for the new one."""
    parts = []
    for number, (name, schema, side) in enumerate((("o", old, 1), ("n", new, -1))):
        columns = [
            SQL("{} AS {}").format(_sides(pair)[number], Identifier(f"c{at}"))
            for at, pair in enumerate(comparison.columns)
        ]
        parts.append(
            SQL("SELECT {} FROM {} {}").format(
                SQL(", ").join([*columns, SQL("{} AS side").format(Literal(side))]),
                Identifier(schema, comparison.table),
                Identifier(name),
            )
        )
    return SQL(" UNION ALL ").join(parts)


def _all(comparison: Comparison) -> Composable:
    columns = [Identifier("b", f"c{number}") for number in range(len(comparison.columns))]
    return SQL(", ").join(columns) if columns else SQL("()")


def _sides(pair: tuple[Column, Column]) -> tuple[Composable, Composable]:
    """A column of both, so that they can be compared: as text, where the types differ or cannot be compared."""
    old, new = pair
    sides = _of("o", old), _of("n", new)
    if old.is_plain and new.is_plain and old.type == new.type:
        return sides
    as_text = SQL('{}::text COLLATE "C"')
    return as_text.format(sides[0]), as_text.format(sides[1])


def _differs(pair: tuple[Column, Column]) -> Composed:
    return SQL("({} IS DISTINCT FROM {})").format(*_sides(pair))


def _either(pair: tuple[Column, Column]) -> Composed:
    return SQL("coalesce({}, {})").format(*_sides(pair))


def _of(side: str, column: Column) -> Identifier:
    return Identifier(side, column.name)


def _object(values: Iterable[tuple[Composable, str]]) -> Composed:
    """A JSON object; not by json_build_object, which takes fifty columns."""
    columns = SQL(", ").join(SQL("{} AS {}").format(value, Identifier(name)) for value, name in values)
    return SQL("row_to_json((SELECT r FROM (SELECT {}) r))").format(columns)


def _changes() -> dict[str, Composable]:
    return {"only_old": Literal(ONLY_OLD), "only_new": Literal(ONLY_NEW), "is_changed": Literal(CHANGED)}


def _limit(most: int | None) -> Composable:
    return SQL("") if most is None else SQL("LIMIT {}").format(Literal(most))
