"""What the log says of a failure."""

from offsetzero import logs
from offsetzero.consumers.working.calls import Call
from offsetzero.retry import headers as retry_headers
from offsetzero.retry.failures import Failure, FailureClass
from offsetzero.retry.policy import Again, Decision, End, ToTier
from offsetzero.topics.catalogue import DLQ

log = logs.get(__name__)


def tell(call: Call, failure: Failure, decision: Decision) -> None:
    """Log a failure, as its dead letter will name it, and where its record goes."""
    failure.trace = failure.trace or retry_headers.trace_of(failure)
    is_bug = failure.failure_class is FailureClass.BUG
    is_wanted = failure.failure_class in (FailureClass.CANCELLED, FailureClass.DISCARDED)
    write = log.error if is_bug else log.info if is_wanted else log.warning
    write(
        "handling ended" if is_wanted else "handling failed",
        record=str(call.record),
        event_type=call.meta.type,
        failure=failure.failure_class.value,
        reason=failure.reason,
        detail=failure.internal or failure.detail,
        next=_next(decision),
        fingerprint=failure.trace.fingerprint,
        exc_info=failure.__cause__ if is_bug else None,
    )


def _next(decision: Decision) -> str:
    """Where a record goes, for the log: the name of a tier, `dlq`, an outcome, or `again` in this process."""
    if isinstance(decision, ToTier):
        return decision.tier.name
    if isinstance(decision, End):
        return decision.outcome.value
    return "again" if isinstance(decision, Again) else DLQ
