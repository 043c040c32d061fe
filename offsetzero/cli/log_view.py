"""How `offsetzero log` shows a record: a block, a line, or JSON."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from offsetzero.cli.rows import printable
from offsetzero.history.decoding import as_text
from offsetzero.history.lines import as_fields

if TYPE_CHECKING:
    from offsetzero.history.looking import Seen

_CUT = 160


def line(topic: str, seen: "Seen") -> str:
    """A record on one line."""
    return _head(topic, seen) + "  " + _data(seen, _CUT)


def block(topic: str, seen: "Seen") -> str:
    """A record with its headers and all of its data."""
    headers = [f"    {printable(name)}: {_shown(value)}" for name, value in seen.record.headers]
    return "\n".join([_head(topic, seen), *headers, f"    {_data(seen, None)}"])


def as_json(topic: str, seen: "Seen") -> str:
    """A record as one JSON object: as `log export` writes it, with the topic."""
    fields: dict[str, Any] = {"topic": topic, **as_fields(seen.record), "data": seen.decoded.data}
    if seen.decoded.problem is not None:
        fields["problem"] = seen.decoded.problem
    return json.dumps(fields)


def _head(topic: str, seen: "Seen") -> str:
    record, meta = seen.record, seen.decoded.meta
    at = datetime.fromtimestamp(max(0, record.timestamp_ms) / 1000, UTC).isoformat(timespec="milliseconds")
    what = f"{printable(meta.type)}  {printable(meta.id)}" if meta is not None else "no event"
    return f"{topic}/{record.partition}@{record.offset}  {at}  {_shown(record.key)}  {what}"


def _data(seen: "Seen", limit: int | None) -> str:
    problem = f"cannot be read: {printable(seen.decoded.problem)}" if seen.decoded.problem is not None else ""
    if seen.record.value is None:
        return "tombstone" + (f" ({problem})" if problem else "")
    if seen.decoded.data is None:
        return f"{problem or 'null'} ({len(seen.record.value):,} bytes)"
    text = printable(json.dumps(seen.decoded.data, ensure_ascii=False))
    if limit is not None and len(text) > limit:
        text = text[:limit] + "…"
    return f"{text}  ({problem})" if problem else text


def _shown(value: bytes | None) -> str:
    return "-" if value is None else printable(as_text(value) or "")
