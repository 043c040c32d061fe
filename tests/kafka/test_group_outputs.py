"""What handlers publish without a database: an output that cannot be appended holds nothing up for ever."""

import secrets
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from kafka.conftest import RunningGroup, await_dead_letters, uploaded
from kafka.enriching import DocumentEnriched, outputs

from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.producers.publisher import Publisher
from offsetzero.retry.policy import Tier
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings
from support import wait_until


@pytest.mark.usefixtures("enriched")
@pytest.mark.parametrize("transactional", [True, False])
def test_an_output_that_no_topic_takes_is_a_failure_of_its_handler(
    settings: Settings, running: Callable[..., AbstractContextManager[RunningGroup]], transactional: bool
) -> None:
    """Of the kind of spring-kafka#1494: the handler was called once a second for ever, and nothing passed it."""
    group = ConsumerGroup("enricher", tiers=[Tier("retry-1m", 0.2)], database=False, transactional=transactional)
    calls: Counter[str] = Counter()

    @group.handler(DocumentUploaded)
    def enrich(event: DocumentUploaded, ctx: Context) -> None:
        calls[event.name] += 1
        name = secrets.token_hex(2_000_000) if event.name == "large" else event.name  # nothing compresses it enough
        ctx.publish(DocumentEnriched(document_id=event.document_id, name=name, attempt=ctx.attempt))

    with Publisher(settings) as publisher:
        for name in ("1", "large", "2"):
            publisher.publish(uploaded(name=name), event_id=name)
    with running(group):
        [letter] = await_dead_letters(settings, "enricher", 1)
        wait_until(lambda: outputs(settings)["2"], what="the output behind it")
    assert letter.failure == "bug"
    assert calls["large"] == 2
