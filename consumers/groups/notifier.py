"""The group `notifier`: tells subscribed services how runs ended, by signed webhooks.

Each receiver that took the message is recorded at once, so that a retry of the event goes only to the others.
"""

import asyncio
from collections.abc import Sequence

import httpx

from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.groups.webhooks import messages
from offsetzero.consumers.groups.webhooks.sending import GONE, Attempt, send
from offsetzero.retry.failures import Transient
from offsetzero.schemas.runs import RunCancelled, RunFailed, RunSucceeded
from offsetzero.store import webhook_deliveries, webhooks
from offsetzero.store.script import run
from offsetzero.store.webhook_deliveries import Target

RunEvent = RunSucceeded | RunFailed | RunCancelled
_NAMED = 5  # receivers in the text of a failure; GET /webhooks shows each

group = ConsumerGroup("notifier")


async def notify(event: RunEvent, ctx: Context) -> None:
    """Send to every subscription that the message is still owed to.

    Raises:
        Transient: `webhook-unreached`, at least one receiver did not take it.
    """
    message_id = messages.message_id(ctx.meta)
    owed = await asyncio.to_thread(_owed, event, ctx, message_id)
    body = messages.payload(event, event.finished_at)
    # All of them end before an error is raised: a delivery that is broken off would be sent twice.
    ends = await asyncio.gather(
        *(_deliver(target, event, ctx, message_id, body) for target in owed), return_exceptions=True
    )
    attempts = [_attempt(end) for end in ends]
    failed = [
        (target, attempt)
        for target, attempt in zip(owed, attempts, strict=True)
        if not attempt.delivered and not attempt.refused
    ]
    if failed:
        detail = f"{len(failed)} of {len(owed)} receivers did not take it: {_named(failed)}"
        waits = [attempt.retry_after for _, attempt in failed if attempt.retry_after is not None]
        raise Transient("webhook-unreached", detail, retry_after=max(waits, default=None))


def done(event: RunEvent, ctx: Context) -> None:
    """Nothing is left to do: the deliveries are recorded, and the event is now marked as handled."""
    ctx.log.debug("notified", run_id=str(event.run_id))


group.prepare(RunSucceeded)(notify)
group.prepare(RunFailed)(notify)
group.prepare(RunCancelled)(notify)
group.handler(RunSucceeded)(done)
group.handler(RunFailed)(done)
group.handler(RunCancelled)(done)


def _named(failed: Sequence[tuple[Target, Attempt]]) -> str:
    """Which receivers, by webhook id and host (not the whole URL, it may hold a secret), and what each said."""
    named = [
        f"webhook {target.id} at {httpx.URL(target.url).netloc.decode()}: {(attempt.error or '')[:80]}"
        for target, attempt in failed[:_NAMED]
    ]
    more = len(failed) - len(named)
    return "; ".join([*named, f"and {more} more"] if more else named)


def _attempt(end: Attempt | BaseException) -> Attempt:
    if isinstance(end, BaseException):
        raise end
    return end


def _owed(event: RunEvent, ctx: Context, message_id: str) -> list[Target]:
    with ctx.pool.connection() as connection:
        return run(connection, webhook_deliveries.owed(event.tenant_id, event.event_type, message_id, ctx.generation))


async def _deliver(target: Target, event: RunEvent, ctx: Context, message_id: str, body: str) -> Attempt:
    attempt = await send(target.url, target.secrets, message_id, body, ctx.settings.webhooks, ctx.trace_headers)
    await asyncio.to_thread(_record, target, event, ctx, message_id, attempt)
    told = {"webhook_id": str(target.id), "status": attempt.status_code, "error": attempt.error}
    if attempt.delivered:
        ctx.log.info("webhook delivered", **told)
    else:
        ctx.log.warning("webhook not delivered", **told)
    return attempt


def _record(target: Target, event: RunEvent, ctx: Context, message_id: str, attempt: Attempt) -> None:
    with ctx.pool.connection() as connection:
        run(
            connection,
            webhook_deliveries.record(
                target.id,
                message_id,
                event.event_type,
                delivered=attempt.delivered,
                status_code=attempt.status_code,
                error=attempt.error,
                generation=ctx.generation,
                seconds=attempt.seconds,
            ),
        )
        if attempt.status_code == GONE:
            run(connection, webhooks.disable(target.id))
