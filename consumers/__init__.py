"""Consumer groups: declaration, runtime, offset tracking, key lanes, idempotency."""
