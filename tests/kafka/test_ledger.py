"""The ledger of dead letters: what the topics say is in the database once, whoever projects it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import hypothesis
import psycopg
import pytest
from commands import Commands
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql

from offsetzero.consumers.groups.ledger import LedgerMember
from offsetzero.producers.log import LogProducer
from offsetzero.retry import ledger
from offsetzero.retry.dead_letters import DeadLetter
from offsetzero.retry.headers import Hop, Origin
from offsetzero.schemas.metadata import Metadata
from offsetzero.settings import Settings
from offsetzero.store import dead_letters
from offsetzero.store.dead_letters import Filter
from offsetzero.store.script import run
from offsetzero.topics import catalogue, cluster, lag
from offsetzero.topics.names import Names
from support import wait_until


def make_topic(settings: Settings, group: str, partitions: int = 2) -> None:
    cluster.ensure(settings, catalogue.group_topics(group, partitions, []))


def dead_letter(settings: Settings, group: str, *, partition: int = 0, count: int = 1, reason: str = "corrupt") -> None:
    headers = {
        "oz_failure": "poison",
        "oz_reason": reason,
        "oz_fingerprint": f"f-{reason}",
        "ce_time": "2025-01-01T00:00:00Z",
    }
    with LogProducer(settings) as producer:
        for _ in range(count):
            producer.produce(
                Names(settings.kafka.namespace).topic(f"{group}.dlq"),
                key=b"k",
                value=b"\xff",
                headers=[(name, text.encode()) for name, text in headers.items()],
                partition=partition,
            )


@contextmanager
def running(settings: Settings) -> Iterator[LedgerMember]:
    """A member in a thread."""
    member, failed = LedgerMember(settings), []

    def work() -> None:
        try:
            member.run()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield member
    finally:
        member.stop()
        thread.join(30)
    assert not thread.is_alive()
    assert not failed


def places(connection: psycopg.Connection) -> list[tuple[str, int, int]]:
    return connection.execute(
        "SELECT group_name, partition, place FROM dead_letters ORDER BY 1, 2, 3, failed_at"
    ).fetchall()


@pytest.fixture
def connection(settings: Settings) -> Iterator[psycopg.Connection]:
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as made:
        yield made


def test_groups_of_different_partition_counts_are_in_one_ledger_and_new_ones_are_found(
    settings: Settings, connection: psycopg.Connection
) -> None:
    make_topic(settings, "audit", 3)
    make_topic(settings, "billing", 1)
    for partition in range(3):
        dead_letter(settings, "audit", partition=partition)
    with running(settings):
        dead_letter(settings, "billing", count=2)
        wait_until(lambda: len(places(connection)) == 5, what="two groups")
        make_topic(settings, "carrier", 2)
        dead_letter(settings, "carrier", partition=1)
        wait_until(lambda: len(places(connection)) == 6, what="a group that came later")
        wait_until(lambda: lag.group_state(settings, "ledger").members, what="a member in the list of groups")
        wait_until(lambda: _lags(settings) == {0}, what="no lag")
    assert places(connection) == [
        *(("audit", number, 0) for number in range(3)),
        ("billing", 0, 0),
        ("billing", 0, 1),
        ("carrier", 1, 0),
    ]
    assert not [name for name in cluster.partitions(settings) if name.startswith("ledger.")]


def _lags(settings: Settings) -> set[int]:
    return {one.lag for one in lag.group_offsets(settings, "ledger")}


def test_a_topic_that_was_made_again_is_another_one(settings: Settings, connection: psycopg.Connection) -> None:
    make_topic(settings, "audit", 1)
    dead_letter(settings, "audit", count=3, reason="before")
    with running(settings):
        wait_until(lambda: len(places(connection)) == 3, what="the first topic")
        delete_topic(settings, "audit.dlq")
        wait_until(lambda: "audit.dlq" not in cluster.partitions(settings), what="the topic is gone")
        make_topic(settings, "audit", 1)
        dead_letter(settings, "audit", count=2, reason="after")
        wait_until(lambda: len(places(connection)) == 5, what="the second topic")
    reasons = connection.execute("SELECT reason, place FROM dead_letters ORDER BY failed_at, place").fetchall()
    assert reasons == [("before", 0), ("before", 1), ("before", 2), ("after", 0), ("after", 1)]


def delete_topic(settings: Settings, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": settings.kafka.bootstrap_servers})
    (done,) = admin.delete_topics([Names(settings.kafka.namespace).topic(topic)]).values()
    done.result(10)


def test_who_catches_up_while_a_member_runs_doubles_nothing(settings: Settings, connection: psycopg.Connection) -> None:
    make_topic(settings, "audit", 2)
    dead_letter(settings, "audit", count=3_000)
    with running(settings), running(settings):
        for _ in range(3):
            dead_letter(settings, "audit", partition=1, count=500)
            assert list(ledger.catch_up(settings, connection, ledger.topics(settings))) is not None
            assert len(places(connection)) == len(set(places(connection)))
        wait_until(lambda: len(places(connection)) == 4_500, what="all")
    assert {(row[1], row[2]) for row in places(connection)} == {
        *((0, offset) for offset in range(3_000)),
        *((1, offset) for offset in range(1_500)),
    }


def test_a_ledger_that_was_emptied_is_the_same_again(settings: Settings, connection: psycopg.Connection) -> None:
    make_topic(settings, "audit", 2)
    dead_letter(settings, "audit", count=20)
    dead_letter(settings, "audit", partition=1, count=20, reason="other")

    def read() -> list[dead_letters.Known]:
        list(ledger.catch_up(settings, connection, ledger.topics(settings)))
        return run(connection, dead_letters.find(Filter()))

    first = read()
    assert len(first) == 40
    connection.execute("TRUNCATE dead_letters, dead_letter_positions")
    assert read() == first


def test_a_ledger_is_made_anew_in_one_transaction_while_its_group_runs(
    settings: Settings, connection: psycopg.Connection, tmp_path: Path
) -> None:
    make_topic(settings, "audit", 2)
    dead_letter(settings, "audit", count=20)
    with running(settings):
        wait_until(lambda: len(places(connection)) == 20, what="the first ones")
        connection.execute("UPDATE dead_letters SET reason = 'somebody has changed this'")
        connection.execute("DELETE FROM dead_letters WHERE place = 7")
        command = Commands(settings, tmp_path)
        assert "read 20 dead letters again" in command("rebuild", "ledger").stdout
        dead_letter(settings, "audit", count=3)
        command("rebuild", "ledger", "--yes")
        dead_letter(settings, "audit", partition=1, count=4)
        wait_until(lambda: len(places(connection)) == 27, what="all")
    assert {row[1:3] for row in places(connection)} == {*((0, at) for at in range(23)), *((1, at) for at in range(4))}
    assert not [one for one in run(connection, dead_letters.find(Filter())) if one.entry.reason.startswith("somebody")]
    assert "--yes alone" in command("rebuild", "ledger", "--prune", status=1).stderr


def test_it_goes_on_when_the_database_comes_back(
    settings: Settings, connection: psycopg.Connection, postgres_url: str
) -> None:
    make_topic(settings, "audit", 1)
    name = connection.info.dbname
    with running(settings) as member, psycopg.connect(postgres_url, autocommit=True) as admin:
        wait_until(lambda: member.health().ready, what="ready")
        connection.close()
        allow = sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS {}")
        admin.execute(allow.format(sql.Identifier(name), sql.Literal(False)))
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        dead_letter(settings, "audit", count=3)
        wait_until(lambda: not member.health().ready, what="it says that it waits")
        assert member.health().alive
        admin.execute(allow.format(sql.Identifier(name), sql.Literal(True)))
        with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as again:
            wait_until(lambda: len(places(again)) == 3, what="it went on")


texts = st.text(max_size=1_500) | st.sampled_from(["", "\0", "\ud800", "a\0b"])
numbers = st.integers(0, 2**31 - 1)


@pytest.fixture
def adding(database_url: str) -> Iterator[Callable[[DeadLetter], int]]:
    with psycopg.connect(database_url) as connection:
        topic = ledger.DeadLetterTopic("g", "id", 1)

        def add(letter: DeadLetter) -> int:
            added = 0
            with connection.transaction(force_rollback=True):
                added = ledger.project(connection, topic, [letter])
            return added

        yield add


@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_nothing_that_a_record_holds_can_stop_the_ledger(
    adding: Callable[[DeadLetter], int], data: st.DataObject
) -> None:
    text, number = (lambda: data.draw(texts)), (lambda: data.draw(numbers))
    meta = Metadata(id=text(), source=text(), type=text(), tenant_id=text(), run_id=text())
    letter = DeadLetter(
        group="g",
        partition=0,
        offset=data.draw(st.integers(0, 2**62)),
        failed_at_ms=data.draw(st.integers(-(2**62), 2**62)),
        key=data.draw(st.none() | st.binary(max_size=50)),
        value=b"",
        headers=[],
        hop=Hop(Origin(text(), text(), number(), data.draw(st.integers(0, 10**18 - 1))), number(), redrive_no=number()),
        meta=data.draw(st.sampled_from([meta, None])),
        failure=text(),
        reason=text(),
        detail=text(),
        fingerprint=text(),
        stack=text(),
    )
    assert adding(letter) == 1


def test_a_fingerprint_or_a_key_that_is_too_long_for_an_index_is_cut(adding: Callable[[DeadLetter], int]) -> None:
    long = "".join(chr(0x1F300 + number % 700) for number in range(1_000))
    for offset, key in enumerate((long.encode(), b"\0" * 5_000, b"\xff" * 5_000, None)):
        hop = Hop(Origin("T", "t", 0, 0))
        assert adding(DeadLetter("g", 0, offset, 0, key, b"", [], hop, None, "bug", "", "", long, "")) == 1
