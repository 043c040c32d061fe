"""What operators and users are told of a provider: log lines when it changes, metrics, and a page."""

from offsetzero import logs, metrics
from offsetzero.retry.breaker import FORBIDDEN, UNAUTHORISED
from offsetzero.retry.protection import Limits, Protection

REFUSALS = (UNAUTHORISED, FORBIDDEN)
"""Causes that somebody has to see to: no waiting helps against a key that is not accepted."""

log = logs.get(__name__)


def tell(name: str, before: Protection | None, known: Protection | None, at: float, limits: Limits) -> None:
    """Log what has changed, and set the metrics.

    Args:
        name: the provider's.
        before: what this process knew.
        known: what it knows now.
        at: when, by the store's clock.
        limits: of the provider.
    """
    if known is None:
        return
    cause, was = known.breaker.cause, before.breaker.cause if before is not None else ""
    if cause and cause != was:
        to_do = "see to its key: docs/runbooks/provider.md" if cause in REFUSALS else "work goes on by itself"
        log.error("provider down", provider=name, cause=cause, next=to_do, probe_seconds=limits.interval)
    elif was and not cause:
        log.warning("provider well again", provider=name, cause=was)
    slowed = known.bucket.is_slowed(at, limits.rate)
    if slowed and known.bucket.slowed_at != (before.bucket.slowed_at if before is not None else 0.0):
        log.warning("provider throttles", provider=name, rate=round(known.bucket.rate, 2), ceiling=limits.rate)
    metrics.PROVIDER_OPEN.labels(name).set(bool(cause))
    metrics.PROVIDER_REFUSES.labels(name).set(cause in REFUSALS)
    metrics.PROVIDER_RATE.labels(name).set(known.bucket.at_time(at, limits.rate).rate)
    metrics.PROVIDER_BUSY.labels(name).set(sum(ends > at for ends in known.permits.values()))


def shown(known: Protection, now: float) -> dict[str, object]:
    """A provider on the page of a member."""
    breaker = known.breaker
    return {
        "state": "open" if breaker.cause else "closed",
        "cause": breaker.cause or None,
        "seconds": round(max(0.0, now - breaker.opened_at), 1) if breaker.cause else None,
        "calls": sum(ends > now for ends in known.permits.values()),
        "rate": round(known.bucket.rate, 2),
    }
