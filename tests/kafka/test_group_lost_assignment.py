"""An answer to a heartbeat is lost, and in it a partition: for the coordinator it has an owner, and nobody reads it.

Seen on a busy machine after members were killed: for two minutes a partition had no owner, and nothing noticed.
"""

import contextlib
import threading

import psycopg
from kafka.conftest import RunningGroup, await_effects, uploaded
from kafka.proxied import Proxy

from offsetzero import metrics
from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.producers.publisher import Publisher
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings
from offsetzero.topics.lag import group_state
from support import PATIENCE, wait_until

GIVEN_UP = 3  # of six partitions by the member in the middle, once the first of three has left


def _owned(member: RunningGroup) -> set[int]:
    return {part["partition"] for part in member.runtime.health().body["partitions"] if part["topic"] == "documents"}


def test_a_member_that_was_not_told_of_a_partition_joins_anew(
    settings: Settings, topics: None, database: psycopg.Connection
) -> None:
    gate = threading.Event()
    audit = ConsumerGroup("audit")

    @audit.handler(DocumentUploaded)
    def note(event: DocumentUploaded, ctx: Context) -> None:
        if ctx.record.partition == GIVEN_UP:
            assert gate.wait(PATIENCE)
        ctx.connection.execute(
            "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, %s)",
            (event.document_id, event.name, ctx.attempt),
        )

    host, _, port = settings.kafka.bootstrap_servers.partition(":")
    before = metrics.JOINED_ANEW.labels("audit")._value.get()
    with Proxy(host, int(port)) as proxy, contextlib.ExitStack() as ended:
        lossy = settings.model_copy(
            update={
                "kafka": settings.kafka.model_copy(update={"bootstrap_servers": f"127.0.0.1:{proxy.port}"}),
                "groups": settings.groups.model_copy(update={"stall_seconds": 16.0}),
            }
        )
        members = [RunningGroup(audit, lossy) for _ in range(3)]
        for member in members:
            ended.callback(member.stop)
        ended.callback(gate.set)
        wait_until(lambda: sorted(map(sorted, map(_owned, members))) == [[0, 1], [2, 3], [4, 5]], what="two each")
        with Publisher(settings) as publisher:
            for number in range(60):
                publisher.publish(uploaded(name=f"before {number}"))
        first, middle, last = sorted(members, key=lambda one: min(_owned(one)))
        wait_until(middle.runtime.running, what="a handler that holds the partition")
        waits = next(one.id for one in group_state(settings, "audit").members if ("documents", 5) in one.assignment)
        epoch = proxy.epoch(waits)
        proxy.loses = True
        first.stop()
        wait_until(lambda: proxy.epoch(waits) > epoch, what="the epoch in which the partition will come")
        gate.set()
        wait_until(lambda: proxy.lost, what="the answer that gives the partition")
        wait_until(lambda: _owned(middle) == {0, 1, 2}, what="the partition to be given up")
        with Publisher(settings) as publisher:
            for number in range(60):
                publisher.publish(uploaded(name=f"after {number}"))
        assert len(await_effects(database, 120)) == 120, "each once"
        assert proxy.lost == [waits]
        assert metrics.JOINED_ANEW.labels("audit")._value.get() == before + 1
        wait_until(lambda: _owned(middle) | _owned(last) == set(range(6)), what="an owner of each")
