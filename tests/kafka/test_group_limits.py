"""How many records of a key, and of a tenant, one process handles at once."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from uuid import uuid4

import pytest
from kafka.conftest import RunningGroup, uploaded

from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.errors import ConfigurationError
from offsetzero.producers.publisher import Publisher
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings
from support import wait_until

Running = Callable[..., AbstractContextManager[RunningGroup]]


class Gate:
    """Handlers stop in it until it is opened; it knows how many are inside at once, by a name."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.inside: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.passed = 0
        self._lock = threading.Lock()

    def enter(self, name: str) -> None:
        with self._lock:
            self.inside[name] += 1
            self.most[name] = max(self.most[name], self.inside[name])
        self.open.wait(30)
        with self._lock:
            self.inside[name] -= 1
            self.passed += 1


def publish(settings: Settings, tenants: dict[str, int]) -> None:
    with Publisher(settings) as publisher:
        for tenant, count in tenants.items():
            for _ in range(count):
                publisher.publish(uploaded(), tenant_id=tenant)


def test_a_busy_tenant_takes_no_more_than_its_share(settings: Settings, running: Running) -> None:
    publish(settings, {"busy": 60, "quiet": 5})
    group = ConsumerGroup("audit", database=False, concurrency=12, per_tenant=3)
    gate = Gate()

    @group.handler(DocumentUploaded)
    def note(event: DocumentUploaded, ctx: Context) -> None:
        gate.enter(ctx.meta.tenant_id or "")

    with running(group):
        wait_until(lambda: gate.inside["busy"] == 3 and gate.inside["quiet"] == 3, what="three of each tenant")
        gate.open.set()
        wait_until(lambda: gate.passed == 65, what="all handled")
    assert gate.most == {"busy": 3, "quiet": 3}


def test_a_tenant_limit_holds_in_an_async_group(settings: Settings, running: Running) -> None:
    publish(settings, {"busy": 40, "quiet": 4})
    group = ConsumerGroup("audit", database=False, concurrency=20, per_tenant=2)
    inside: Counter[str] = Counter()
    most: Counter[str] = Counter()
    handled: list[str] = []

    @group.handler(DocumentUploaded)
    async def note(event: DocumentUploaded, ctx: Context) -> None:
        tenant = ctx.meta.tenant_id or ""
        inside[tenant] += 1
        most[tenant] = max(most[tenant], inside[tenant])
        await asyncio.sleep(0.01)
        inside[tenant] -= 1
        handled.append(tenant)

    with running(group):
        wait_until(lambda: len(handled) == 44, what="all handled")
    assert most == {"busy": 2, "quiet": 2}
    assert handled.index("quiet") < 20, "the quiet tenant does not wait for the busy one"


def test_more_than_one_of_a_key_at_once_when_their_order_is_given_up(settings: Settings, running: Running) -> None:
    document = uuid4()
    with Publisher(settings) as publisher:
        for _ in range(12):
            publisher.publish(uploaded(document))
    group = ConsumerGroup("audit", database=False, concurrency=8, per_key=3)
    gate = Gate()

    @group.handler(DocumentUploaded)
    def note(event: DocumentUploaded, ctx: Context) -> None:
        gate.enter(str(event.document_id))

    with running(group):
        wait_until(lambda: gate.inside[str(document)] == 3, what="three of the key")
        gate.open.set()
        wait_until(lambda: gate.passed == 12, what="all handled")
    assert gate.most == {str(document): 3}


def test_limits_that_nobody_can_meet_are_refused_together() -> None:
    with pytest.raises(ConfigurationError) as refused:
        ConsumerGroup("audit", concurrency=0, per_key=0, per_tenant=-1, timeout=0)
    assert len(refused.value.problems) == 4
    with pytest.raises(ConfigurationError, match="step=True needs the database"):
        ConsumerGroup("audit", step=True, database=False)
    with pytest.raises(ConfigurationError, match="setup is given a database connection"):
        ConsumerGroup("audit", database=False).setup(lambda connection: None)
