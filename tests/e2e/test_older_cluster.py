"""A cluster that does not serve KIP-848: groups speak the older protocol there, and say so."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from kafka.conftest import RunningGroup, uploaded

from broker_config import BROKER
from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.embedded.kafka import Kafka
from offsetzero.errors import GroupStopped
from offsetzero.producers.publisher import Publisher
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings
from offsetzero.topics import catalogue, cluster, lag
from support import wait_until


@contextmanager
def older_cluster(folder: Path) -> Iterator[str]:
    """As one before Kafka 4.0, or one where `group.version` is 0: members of KIP-848 are refused."""
    config = {**BROKER, "group.coordinator.rebalance.protocols": "classic"}
    with Kafka(folder, config=config) as broker:
        yield broker.bootstrap_servers


def test_auto_finds_out_and_consumer_says_why_not(
    tmp_path: Path, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "offsetzero")
    seen: list[str] = []
    audit = ConsumerGroup("audit", topics=["documents"])

    @audit.handler(DocumentUploaded)
    def note(event: DocumentUploaded, ctx: Context) -> None:
        seen.append(event.name)

    with older_cluster(tmp_path / "kafka") as servers:
        settings = Settings(
            home=tmp_path, database_url=database_url, kafka={"bootstrap_servers": servers, "partitions": 2}
        )
        cluster.ensure(settings, [topic.resolved(settings) for topic in catalogue.TOPICS])
        names = [str(uuid4()) for _ in range(20)]
        with Publisher(settings) as publisher:
            for name in names:
                publisher.publish(uploaded(name=name)).result(10)
        members = [RunningGroup(audit, settings), RunningGroup(audit, settings)]
        wait_until(lambda: len(seen) >= 20, what="all events")
        wait_until(
            lambda: [len(one.assignment) for one in lag.group_state(settings, "audit").members] == [4, 4],
            what="two members that share the partitions",
        )
        assert lag.group_state(settings, "audit").protocol == "classic"
        for member in members:
            member.stop()
        assert sorted(seen) == sorted(names)
        with psycopg.connect(database_url) as connection:
            assert connection.execute("SELECT count(*) FROM group_starts").fetchone() == (8,)
        kafka = settings.kafka.model_copy(update={"group_protocol": "consumer"})
        refused = RunningGroup(audit, settings.model_copy(update={"kafka": kafka}))
        wait_until(lambda: refused.error, what="the end of the group")
        assert isinstance(refused.error, GroupStopped)
        assert "API version not supported" in str(refused.error)
    said = caplog.text
    assert said.count("this cluster does not serve KIP-848") == 2
    assert "protocol='classic'" in said
