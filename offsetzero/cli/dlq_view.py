"""Dead letters as `offsetzero dlq` shows them."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offsetzero.cli.dlq_payload import Payloads
    from offsetzero.retry.dead_letters import DeadLetter
    from offsetzero.store.dead_letters import Known


def summary(one: "Known") -> dict[str, Any]:
    """A dead letter in a line."""
    entry = one.entry
    return {
        "group": entry.group_name,
        "place": f"{entry.partition}/{entry.place}",
        "failed_at": at(entry.failed_at),
        "event_type": entry.event_type,
        "event_id": entry.event_id if entry.event_type is not None else None,
        "run_id": str(entry.run_id) if entry.run_id is not None else None,
        "tenant_id": entry.tenant_id,
        "key": entry.key,
        "failure": entry.failure,
        "reason": entry.reason,
        "detail": entry.detail,
        "fingerprint": entry.fingerprint,
        "attempt": entry.attempt,
        "redriven": entry.redrive_no,
        "status": str(one.status),
        "outcome": one.outcome,
        "holds_key": one.holds,
    }


def fate(one: "Known") -> str:
    """Its status; of one that was sent again and not applied, also how it ended, such as `ended (failed)`; of one that
    is open, whether the events of its key wait for it."""
    if one.outcome is not None and str(one.status) == "ended":
        return f"{one.status} ({one.outcome})"
    return f"{one.status} (holds its key)" if one.holds and str(one.status) == "open" else str(one.status)


def details(one: "Known", letter: "DeadLetter | None", payloads: "Payloads", edited: bytes | None) -> dict[str, Any]:
    """All that is known of a dead letter; without its record what the ledger has."""
    from offsetzero.cli.dlq_payload import as_text

    entry = one.entry
    whole = {
        **summary(one),
        "origin": f"{entry.origin_topic}/{entry.origin_partition}@{entry.origin_offset}",
    }
    if letter is None:
        return {**whole, "payload": None, "payload_unreadable": "the log does not have the record any more"}
    payload, unreadable = payloads.decoded(letter)
    return {
        **whole,
        "headers": {name: as_text(value) for name, value in letter.headers},
        "payload": payload,
        "payload_unreadable": unreadable,
        "payload_edited": payloads.decoded(letter, edited)[0] if edited is not None else None,
        "payload_hex": letter.value.hex() if letter.value is not None else None,
        "stack": letter.stack or None,
    }


def step(one: "Known") -> dict[str, Any]:
    """A dead letter in the history of its event, and what was done about it."""
    return {
        "place": f"{one.entry.partition}/{one.entry.place}",
        "failed_at": at(one.entry.failed_at),
        "reason": one.entry.reason,
        "redriven": one.entry.redrive_no,
        "status": str(one.status),
        "outcome": one.outcome,
        "decided_by": one.decided_by,
        "decided_at": at(one.decided_at) if one.decided_at is not None else None,
        "action": str(one.action_id) if one.action_id is not None else None,
    }


def lines(value: Any) -> str:
    """A value as text: data as JSON, whose strings are escaped; a stack in its lines."""
    from offsetzero.cli.dlq_payload import plain
    from offsetzero.cli.rows import printable

    if isinstance(value, Mapping | list):
        return json.dumps(plain(value), indent=2, ensure_ascii=False)
    return "\n".join(printable(line) for line in str(value).splitlines())


def at(time: datetime) -> str:
    """A time, in UTC, to the second."""
    return time.astimezone(UTC).isoformat(timespec="seconds")


@contextmanager
def output(out: Path | None) -> "Iterator[Callable[[str], object]]":
    """Standard output, or a file that has its name when it is whole; a device or a pipe is written as it is."""
    from offsetzero.history.whole_file import whole_file

    if out is None:
        yield sys.stdout.write
    elif out.exists() and not out.is_file() and not out.is_dir():
        with out.open("w", encoding="utf-8") as device:
            yield device.write
    else:
        with whole_file(out) as file:
            yield lambda text: file.write(text.encode())
