"""A Kafka-transactional group is refused, where it is declared, what its one transaction cannot hold."""

from typing import Any

import pytest

from offsetzero.consumers.group import ConsumerGroup
from offsetzero.errors import ConfigurationError
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"database": True}, "what was published is lost or doubled"),
        ({"step": True}, "rows of the database"),
        ({"concurrency": 4}, "start more processes"),
        ({"per_key": 2}, "one after the other"),
        ({"per_tenant": 1}, "one after the other"),
        ({"timeout": 5.0}, "one after the other"),
        ({"start": "latest"}, "needs the database"),
    ],
)
def test_what_does_not_go_into_one_kafka_transaction_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        ConsumerGroup("enricher", transactional=True, **options)


def test_all_of_it_is_named_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        ConsumerGroup("enricher", transactional=True, database=True, step=True, concurrency=2)
    assert len(caught.value.problems) == 3


def test_a_set_up_function_is_refused_for_it_has_no_connection() -> None:
    group = ConsumerGroup("enricher", transactional=True)
    with pytest.raises(ConfigurationError, match="transactional=True"):
        group.setup(lambda connection: None)


@pytest.mark.parametrize("role", ["handler", "prepare", "tombstone"])
def test_async_functions_are_refused(role: str) -> None:
    group = ConsumerGroup("enricher", transactional=True)

    async def act(event: Any, ctx: Any) -> None: ...

    declare: Any = group.tombstone if role == "tombstone" else getattr(group, role)(DocumentUploaded)
    with pytest.raises(ConfigurationError, match="is async; it must be a sync function"):
        declare(act)


def test_a_batch_handler_is_refused() -> None:
    group = ConsumerGroup("enricher", transactional=True)
    with pytest.raises(ConfigurationError, match="transactional"):
        group.batch(DocumentUploaded)(lambda events, ctx: None)


def test_without_more_it_has_no_database_and_one_thread(tmp_path: Any) -> None:
    group = ConsumerGroup("enricher", transactional=True)
    assert not group.database
    assert group.concurrency(Settings(home=tmp_path)) == 1
    assert ConsumerGroup("audit").database
