"""What an operator's action is for, written before it begins; and what its canaries say."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from uuid import UUID

from psycopg import Rollback

from offsetzero.errors import InvalidEvent, RedriveRefused
from offsetzero.retry.headers import Headers, Hop, Origin
from offsetzero.retry.ledger import DeadLetterTopic, ends
from offsetzero.retry.letter import DeadLetter
from offsetzero.schemas.cloudevents import to_headers
from offsetzero.schemas.ids import uuid7
from offsetzero.settings import Settings
from offsetzero.store import dead_letter_actions as actions
from offsetzero.store.database import Connection
from offsetzero.store.dead_letter_actions import Action, Kind
from offsetzero.store.dead_letter_status import Status
from offsetzero.store.dead_letters import Entry, Filter, Known
from offsetzero.store.script import run
from offsetzero.topics import cluster
from offsetzero.topics.catalogue import REDRIVE

_GOOD = frozenset({"applied", "stale"})


def sendable(settings: Settings, topic: DeadLetterTopic, which: Filter) -> Filter:
    """Of the dead letters that are meant, those that are open, and that the log still has.

    Raises:
        RedriveRefused: the group has no redrive topic that fits.
        TopicError: the cluster does not answer.
    """
    redrive = f"{topic.group}.{REDRIVE}"
    partitions = cluster.partitions(settings).get(redrive, 0)
    if partitions < topic.partitions:
        raise RedriveRefused(
            f"{redrive} has {partitions} partitions and {topic.name} has {topic.partitions}: start the group once, or "
            "run `offsetzero topics apply`"
        )
    lows = ends(settings, [topic], first=True)
    kept = {(one.id, number): low for (one, number), low in lows.items()}
    return replace(which, groups=[topic.group], status=Status.OPEN, kept=kept, free=True)


def check_named(named: Sequence[Known], which: Filter) -> None:
    """See that dead letters which an operator named can be taken.

    Args:
        named: them.
        which: what can be sent (see `sendable`).

    Raises:
        RedriveRefused: naming each one that cannot, and why.
    """
    kept = which.kept or {}
    problems = []
    for one in named:
        entry = one.entry
        place = f"{entry.group_name} {entry.partition}/{entry.place}"
        low = kept.get((entry.topic_id, entry.partition))
        if one.status is Status.ENDED:
            problems.append(
                f"{place} was redriven already, by {one.decided_by}, and has ended ({one.outcome}): where the event "
                f"failed again, redrive its newer dead letter; see `dlq show {entry.group_name} {entry.event_id}`"
            )
        elif one.action_id is not None and one.status is not Status.OPEN:
            problems.append(f"{place} is {one.status} already, by {one.decided_by}: see `dlq audit {entry.group_name}`")
        elif one.action_id is not None:
            problems.append(f"{place} is taken by an action that has not ended: {one.action_id}")
        elif which.kept is not None and (low is None or entry.place < low):
            problems.append(f"{place} is not in the log any more: its bytes are gone")
        elif which.kept is not None and not entry.origin_topic_id:
            problems.append(f"{place} names no origin: its group did not write it")
    if problems:
        raise RedriveRefused("\n  ".join(["nothing was done:", *problems]))


def begin(
    connection: Connection, kind: Kind, group: str, which: Filter, *, who: str, why: str, chosen: str
) -> Action | None:
    """Write an action and take the dead letters that it is for, in one transaction; None when there are none.

    Args:
        connection: in autocommit mode.
        kind: what is done.
        group: whose dead letters.
        which: those that are meant; what another action has taken is left out.
        who, why: for the audit.
        chosen: how they were chosen, in words.
    """
    action_id = uuid7()
    with connection.transaction() as transaction:
        run(connection, actions.begin(action_id, kind, group, who, why, chosen))
        if not run(connection, actions.decide(action_id, which)):
            raise Rollback(transaction)
    return run(connection, actions.find(action_id))


def find(connection: Connection, group: str, action_id: UUID) -> Action:
    """A redrive or discard of a group's dead letters that was interrupted.

    Raises:
        RedriveRefused: there is none, or it has ended.
    """
    action = run(connection, actions.find(action_id))
    if action is None or action.kind is Kind.EDIT or action.group != group:
        raise RedriveRefused(f"there is no redrive {action_id} of {group}; `offsetzero dlq audit` lists them")
    if action.ended is not None:
        raise RedriveRefused(f"the {action.kind} {action_id} has ended: {action.ended}")
    return action


def lock(connection: Connection, action_id: UUID) -> None:
    """Be the one process that carries out an action, as long as the connection lasts.

    Raises:
        RedriveRefused: another one does.
    """
    row = connection.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", (f"dlq {action_id}",)).fetchone()
    if row is None or not row[0]:
        raise RedriveRefused(f"{action_id} is being carried out by another process")


class Verdict(StrEnum):
    """What canaries say about the rest."""

    WAIT = "wait"
    GO = "go"
    STOP = "stop"


def judge(sent: int, outcomes: Mapping[str, int], limit: float) -> Verdict:
    """Whether the rest may follow, as soon as that is certain.

    Args:
        sent: how many canaries were sent.
        outcomes: how many of them ended with each outcome; the others are at work, or wait for a retry.
        limit: the share of failures, 0 to 1, above which the rest stays.
    """
    good = sum(count for outcome, count in outcomes.items() if outcome in _GOOD)
    bad = sum(outcomes.values()) - good
    if bad > limit * sent:
        return Verdict.STOP
    return Verdict.GO if sent - good <= limit * sent else Verdict.WAIT


def discard(connection: Connection, action: Action) -> dict[int, bytes]:
    """Carry out a discard, but for those that hold up their keys: only the member that owns such a key lets it go on.

    Returns:
        The keys of these by the letters' numbers; none, and the action has ended.
    """
    with connection.transaction():
        held = run(connection, actions.held(action))
        connection.execute(
            "UPDATE dead_letter_decisions SET done_at = now() WHERE action_id = %s AND done_at IS NULL "
            "AND number <> ALL (%s)",
            (action.id, list(held)),
        )
        if not held:
            run(connection, actions.end(action.id))
    return held


def discarding(entry: Entry, key: bytes | None, found: DeadLetter | None) -> DeadLetter:
    """What ends a dead letter that holds up its key: the attributes of its event as far as they are known, no payload.

    It is sent also when the record itself is not there any more: otherwise its key would be held for ever.
    """
    headers: Headers = []
    if found is not None and found.meta is not None:
        with contextlib.suppress(InvalidEvent):
            headers = to_headers(found.meta, None)
    origin = Origin(entry.origin_topic_id, entry.origin_topic, entry.origin_partition, entry.origin_offset)
    at_ms = round(entry.failed_at.timestamp() * 1000)
    hop = found.hop if found is not None else Hop(origin, redrive_no=entry.redrive_no, timestamp_ms=at_ms)
    return DeadLetter(
        entry.group_name, entry.partition, entry.place, at_ms, key, None, headers, hop, None, "", "", "", "", ""
    )
