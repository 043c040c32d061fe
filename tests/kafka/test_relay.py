"""The relay on a real database and a real broker: order, exactly the committed rows, and going on after failures."""

import random
import secrets
import select
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock
from uuid import UUID, uuid4

import psycopg
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from kafka.relayed import BACKLOG, relaying
from pydantic import SecretStr

from offsetzero import metrics
from offsetzero.errors import ConfigurationError
from offsetzero.producers import batches, claims, outbox, relay, shards, waves
from offsetzero.producers.claims import Claimed
from offsetzero.producers.relay import Relay
from offsetzero.producers.waves import LEAST, MOST
from offsetzero.schemas import cloudevents
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentDeleted
from offsetzero.schemas.event import Event
from offsetzero.settings import Settings
from offsetzero.store import outbox as store
from offsetzero.store.script import run
from offsetzero.topics import catalogue, cluster
from offsetzero.topics.catalogue import Topic
from offsetzero.topics.names import Names
from offsetzero.topics.schema_log import SchemaLog
from support import wait_until

TOPICS = [Topic("documents", 2), Topic("documents.bulk", 2), Topic("schemas", 1, config={"cleanup.policy": "compact"})]


def _deleted(document_id: UUID | None = None, tenant: str = "t") -> DocumentDeleted:
    return DocumentDeleted(document_id=document_id or uuid4(), tenant_id=tenant, deleted_at=datetime.now(UTC))


@pytest.fixture
def connection(settings: Settings) -> Iterator[psycopg.Connection]:
    cluster.ensure(settings, TOPICS)
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as opened:
        yield opened


@pytest.fixture
def read(settings: Settings) -> Callable[..., list[Message]]:
    """Reads a topic from its start, in order within a partition, until so many records have come, or all there are."""

    def reading(topic: str, count: int | None = None, deadline: float = 60.0) -> list[Message]:
        name = Names(settings.kafka.namespace).topic(topic)
        partitions = cluster.partitions(settings)[topic]
        consumer = Consumer(
            {"bootstrap.servers": settings.kafka.bootstrap_servers, "group.id": f"read-{secrets.token_hex(4)}"}
        )
        places = [TopicPartition(name, number, OFFSET_BEGINNING) for number in range(partitions)]
        consumer.assign(places)
        wanted = sum(consumer.get_watermark_offsets(place, 10)[1] for place in places) if count is None else count
        found: list[Message] = []

        def enough() -> bool:
            found.extend(one for one in consumer.consume(1000, 0.1) if one.error() is None)
            return len(found) >= wanted

        try:
            wait_until(enough, deadline, what=f"{wanted} records in {topic}")
        finally:
            consumer.close()
        return found

    return reading


@contextmanager
def forwarding(port: int, host: str, to: int) -> Iterator[None]:
    """A TCP port that leads to the broker, so that a bootstrap address can come to life."""

    class Pipe(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((host, to)) as broker:
                both = {self.request: broker, broker: self.request}
                while True:
                    for ready in select.select(list(both), [], [])[0]:
                        data = ready.recv(65536)
                        if not data:
                            return
                        both[ready].sendall(data)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    with Server(("127.0.0.1", port), Pipe) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def _failed(topic: str) -> float:
    return metrics.OUTBOX_FAILED.labels(topic)._value.get()


def _parked(connection: psycopg.Connection) -> list[tuple[str | None, int]]:
    """Keys of parked rows, and how many rows wait for each."""
    return [(one.key, one.behind) for one in run(connection, store.troubled(100)) if one.parked_at]


def _shards(connection: psycopg.Connection) -> list[int]:
    """How many shards each relay has, in order."""
    held = """
        SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2
        AND classid = %s::bigint::oid AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        GROUP BY pid ORDER BY 1
    """
    return [int(row[0]) for row in connection.execute(held, (shards.SHARD_LOCK,))]


def _fair(relays: int) -> list[int]:
    each, rest = divmod(store.SHARDS, relays)
    return [each] * (relays - rest) + [each + 1] * rest


def _unpublished(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT count(*) FROM outbox WHERE published_at IS NULL").fetchone()
    assert row
    return int(row[0])


def test_committed_rows_are_published_with_headers_and_rolled_back_ones_are_not(
    settings: Settings, connection: psycopg.Connection, read: Callable[..., list[Message]]
) -> None:
    with relaying(settings):
        event = _deleted()
        with connection.transaction():
            event_id = outbox.add(connection, event, correlation_id="c-1", sequence=7, source="/test")
        with connection.transaction(force_rollback=True):
            outbox.add(connection, _deleted())
        last = _deleted()
        outbox.add(connection, last, bulk=True)
        (message,) = read("documents", 1)
        (bulk,) = read("documents.bulk", 1)
        wait_until(lambda: _unpublished(connection) == 0)
    found = cloudevents.read(message.value(), message.headers())
    assert message.key() == event.key.encode()
    assert (found.meta.id, found.meta.source, found.meta.type) == (str(event_id), "/test", "document.deleted")
    assert (found.meta.tenant_id, found.meta.correlation_id, found.meta.sequence) == ("t", "c-1", 7)
    assert found.content_type == "application/avro"
    assert found.data is not None
    assert Codec().decode(found.meta.type, found.data).key == event.key
    assert bulk.key() == last.key.encode()


def test_rows_of_one_key_keep_their_order(
    settings: Settings, connection: psycopg.Connection, read: Callable[..., list[Message]]
) -> None:
    keys = [uuid4() for _ in range(5)]
    with connection.transaction():
        for number in range(200):
            outbox.add(connection, _deleted(keys[number % 5]), sequence=number)
    with relaying(settings):
        messages = read("documents", 200)
    by_key: dict[bytes, list[int]] = {}
    for message in messages:
        sequence = cloudevents.read(message.value(), message.headers()).meta.sequence
        assert sequence is not None
        by_key.setdefault(message.key() or b"", []).append(sequence)
    assert len(by_key) == 5
    assert all(sequences == sorted(sequences) for sequences in by_key.values())


def test_a_row_that_commits_after_later_ids_is_not_skipped(
    settings: Settings, connection: psycopg.Connection, read: Callable[..., list[Message]]
) -> None:
    """watermill#311, kamu-cli#1398: ids are taken before commit; a cursor by id loses the slow transaction's row."""
    slow, fast = _deleted(), _deleted()
    url = settings.database_url.get_secret_value()
    with relaying(settings), psycopg.connect(url) as other:
        outbox.add(other, slow)
        outbox.add(connection, fast)
        (first,) = read("documents", 1)
        assert first.key() == fast.key.encode()
        wait_until(lambda: _unpublished(connection) == 0)
        other.commit()
        assert {message.key() for message in read("documents", 2)} == {fast.key.encode(), slow.key.encode()}


def test_a_row_that_says_nothing_of_its_transaction_is_found_by_a_look_back(
    settings: Settings, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore without triggers, beside a relay that works."""
    monkeypatch.setattr(relay, "_LOOK_BACK_SECONDS", 3_600.0)
    outbox.add(connection, _deleted())
    with relaying(settings):
        wait_until(lambda: _unpublished(connection) == 0, what="the relay has begun")
        connection.execute("ALTER TABLE outbox DISABLE TRIGGER outbox_written")
        connection.execute("ALTER TABLE outbox ALTER COLUMN xid SET DEFAULT '3'")
        outbox.add(connection, _deleted())
        connection.execute("ALTER TABLE outbox ALTER COLUMN xid SET DEFAULT pg_current_xact_id()")
        outbox.add(connection, _deleted())
        wait_until(lambda: _unpublished(connection) == 1, what="the one that names its own")
    monkeypatch.setattr(relay, "_LOOK_BACK_SECONDS", 0.1)
    monkeypatch.setattr(relay, "_SELDOM", 0)
    connection.execute("ALTER TABLE outbox ALTER COLUMN xid SET DEFAULT '3'")
    with relaying(settings):
        wait_until(lambda: _unpublished(connection) == 0, what="a new session begins at the beginning")
        outbox.add(connection, _deleted())
        wait_until(lambda: _unpublished(connection) == 0, what="a look back")


def test_a_tenant_that_writes_now_and_then_does_not_wait_for_the_backlog_of_another(
    settings: Settings, connection: psycopg.Connection, read: Callable[..., list[Message]]
) -> None:
    most = MOST + claims.NEWEST * store.SHARDS
    connection.execute(BACKLOG, (count := 6 * most,))
    outbox.add(connection, quiet := _deleted())
    with relaying(settings):
        (first,) = read("documents", 1)
        others = read("documents.bulk", count)
    assert first.key() == quiet.key.encode()
    later = [other for other in others if other.timestamp()[1] > first.timestamp()[1]]
    assert len(later) > count - 2 * most


def test_a_backlog_goes_in_small_waves_while_others_write_and_in_large_ones_when_they_do_not(
    settings: Settings, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TURN_SECONDS", "CLAIMS", "RESTS"):
        monkeypatch.setattr(waves, name, 0)  # each wave takes too long, and no turn is one of a rest
    sizes: list[int] = []
    claim = claims.claim

    def noted(*args: Any) -> Claimed:
        claimed = claim(*args)
        sizes.append(len(claimed.rows))
        return claimed

    monkeypatch.setattr(claims, "claim", noted)
    smallest = LEAST + store.SHARDS

    def writes() -> bool:
        run(connection, outbox.record(_deleted()))
        return any(1 < size <= smallest for size in sizes)

    connection.execute(BACKLOG, (6 * MOST,))
    with relaying(settings):
        wait_until(writes, what="small waves while somebody writes")
        monkeypatch.setattr(waves, "OTHERS_SECONDS", 0.0)
        run(connection, outbox.record(_deleted()))
        connection.execute(BACKLOG, (6 * MOST,))  # the first may have been sent
        sizes.clear()
        wait_until(lambda: any(size > MOST // 2 for size in sizes), what="a large one when nobody does")


def test_the_next_row_of_a_key_goes_when_an_answer_that_came_later_is_there(
    settings: Settings,
    connection: psycopg.Connection,
    read: Callable[..., list[Message]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a cluster that takes more than some milliseconds for an answer: each row of a key waited for the next poll."""
    monkeypatch.setattr(batches, "_ANSWER_SECONDS", 0.0)  # as if it took that long
    monkeypatch.setattr(batches, "_WAVE_SECONDS", 60.0)
    rested_with: list[int] = []
    await_notification = relay._await_notification

    def noted(session: psycopg.Connection, seconds: float) -> bool:
        if seconds == relay.POLL_SECONDS:
            rested_with.append(_unpublished(session))
        return await_notification(session, seconds)

    monkeypatch.setattr(relay, "_await_notification", noted)
    key = uuid4()
    with connection.transaction():
        ids = [outbox.add(connection, _deleted(key)) for _ in range(5)]
    with relaying(settings):
        found = read("documents", len(ids))
        wait_until(lambda: not _unpublished(connection), what="the last mark")
    assert [dict(one.headers() or [])["ce_id"] for one in found] == [str(one).encode() for one in ids]
    assert not any(rested_with), "it has slept while rows could go"


@pytest.mark.parametrize(("length", "is_taken"), [(2_600, True), (2_700, False)])
def test_a_key_is_of_so_many_bytes_at_most(connection: psycopg.Connection, *, length: int, is_taken: bool) -> None:
    """An index has it (docs/services.md)."""
    insert = "INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('t', %s, 't')"
    with nullcontext() if is_taken else pytest.raises(psycopg.errors.ProgramLimitExceeded):
        connection.execute(insert, ("".join(map(chr, random.Random(1).choices(range(33, 127), k=length))),))


def test_a_refused_row_stops_only_its_key(
    settings: Settings, connection: psycopg.Connection, read: Callable[..., list[Message]]
) -> None:
    """mopl#266: B passed A while A waited for its next try."""
    stuck, free = uuid4(), uuid4()
    outbox.add(connection, _deleted(stuck, tenant="x" * 1_500_000))
    outbox.add(connection, _deleted(stuck))
    outbox.add(connection, _deleted(free))
    with relaying(settings):
        (message,) = read("documents", 1)
        assert message.key() == str(free).encode()
        outbox.add(connection, _deleted(free))
        assert {one.key() for one in read("documents", 2)} == {str(free).encode()}
        wait_until(lambda: _unpublished(connection) == 2)
        assert _parked(connection) == [(str(stuck), 1)]
        connection.execute("UPDATE outbox SET payload = NULL, headers = '{}' WHERE length(payload) > 1000000")
        (found,) = run(connection, store.troubled(10))
        assert run(connection, store.retry([found.id])) == [found.id]
        mended = [one for one in read("documents", 4) if one.key() == str(stuck).encode()]
    assert [one.value() is None for one in mended] == [True, False]


@pytest.mark.parametrize("headers", ["[]", '{"a": 1}', '{"a": null}', '{"oz_schema": "{}"}', '"text"'])
def test_a_row_that_is_no_record_stops_only_itself(
    settings: Settings, connection: psycopg.Connection, read: Callable[..., list[Message]], headers: str
) -> None:
    """Anybody can insert rows; one by hand must not end the relay."""
    outbox.add(connection, _deleted())
    connection.execute("UPDATE outbox SET headers = %s::jsonb, payload = 'no avro'", (headers,))
    outbox.add(connection, _deleted())
    with relaying(settings):
        read("documents", 1)
        wait_until(lambda: len(_parked(connection)) == 1)


def test_a_topic_that_does_not_exist_stops_only_its_rows(
    settings: Settings, connection: psycopg.Connection, read: Callable[..., list[Message]]
) -> None:
    outbox.add(connection, _deleted())
    connection.execute("UPDATE outbox SET topic = 'nowhere'")
    outbox.add(connection, _deleted())
    tries = "SELECT max(attempts), bool_and(parked_at IS NULL) FROM outbox"
    with relaying(settings):
        wait_until(lambda: _unpublished(connection) == 1)
        assert connection.execute(tries).fetchone() == (0, True)  # nobody has waited for the ten seconds that it takes
        wait_until(lambda: connection.execute(tries).fetchone() == (1, True))
        outbox.add(connection, _deleted())
        read("documents", 2)


def test_a_partition_without_leader_stops_only_its_keys(
    settings: Settings, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records time out, as those of a topic that nobody knows yet do here. The broker was taken to be away."""
    monkeypatch.setattr(relay, "_DELIVERY_SECONDS", 3.0)
    for _ in range(3):
        outbox.add(connection, _deleted())
    connection.execute("UPDATE outbox SET topic = 'nowhere'")
    session = "SELECT pid FROM pg_stat_activity WHERE application_name = 'offsetzero-relay' AND datname = %s"
    refused = "SELECT count(*) FROM outbox WHERE topic = 'nowhere' AND attempts > 0 AND parked_at IS NULL"

    def sessions() -> list[int]:
        return [pid for (pid,) in connection.execute(session, (connection.info.dbname,))]

    def refused_meanwhile() -> bool:
        outbox.add(connection, _deleted())
        return connection.execute(refused).fetchone() == (3,)

    with relaying(settings):
        begun = wait_until(sessions)
        wait_until(refused_meanwhile, 60)
        assert sessions() == begun, "it has given no shard away"
        wait_until(lambda: _unpublished(connection) == 3)


def test_relays_share_the_keys_as_they_come_and_go_and_publish_nothing_twice(
    settings: Settings, connection: psycopg.Connection, read: Callable[..., list[Message]]
) -> None:
    written: list[str] = []
    stop = threading.Event()

    def write() -> None:
        with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as own:
            while not stop.wait(0.002):
                written.append(str(outbox.add(own, _deleted())))

    def share(relays: int) -> Callable[[], bool]:
        return lambda: (found := _shards(connection)) and sum(found) == 32 and found == _fair(relays)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with relaying(settings):
            wait_until(share(1))
            with relaying(settings), relaying(settings):
                wait_until(share(3))
            wait_until(share(1))
            stop.set()
            writer.join()
            wait_until(lambda: _unpublished(connection) == 0)
    finally:
        stop.set()
    found = [cloudevents.read(one.value(), one.headers()).meta.id for one in read("documents")]
    assert sorted(found) == sorted(written)


def test_a_relay_of_before_there_were_shards_is_waited_for(
    settings: Settings, connection: psycopg.Connection, read: Callable[..., list[Message]]
) -> None:
    """An update: the old one publishes all rows, and holds one lock alone for that."""
    outbox.add(connection, _deleted())
    connection.execute("SELECT pg_advisory_lock(%s)", (shards.MEMBER_LOCK,))
    with relaying(settings):
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'offsetzero-relay' AND datname = %s"
        wait_until(lambda: connection.execute(sessions, (connection.info.dbname,)).fetchone() == (1,))
        assert _shards(connection) == []
        assert _unpublished(connection) == 1
        connection.execute("SELECT pg_advisory_unlock(%s)", (shards.MEMBER_LOCK,))
        read("documents", 1)


def test_it_goes_on_when_its_database_session_is_ended(
    settings: Settings, connection: psycopg.Connection, read: Callable[..., list[Message]]
) -> None:
    mine = "FROM pg_stat_activity WHERE application_name = 'offsetzero-relay' AND datname = current_database()"
    with relaying(settings):
        outbox.add(connection, _deleted())
        read("documents", 1)
        connection.execute(f"SELECT pg_terminate_backend(pid) {mine}")
        outbox.add(connection, _deleted())
        read("documents", 2)
        wait_until(lambda: _unpublished(connection) == 0)


def test_it_goes_on_when_the_broker_comes_back(
    settings: Settings,
    connection: psycopg.Connection,
    read: Callable[..., list[Message]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker is away: no row is taken for refused, none is lost, and the first try after its return succeeds."""
    monkeypatch.setattr(relay, "_DELIVERY_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    away = settings.model_copy(
        update={"kafka": settings.kafka.model_copy(update={"bootstrap_servers": f"127.0.0.1:{port}"})}
    )
    key = uuid4()
    before = _failed("documents")
    for _ in range(3):
        outbox.add(connection, _deleted(key))
    with relaying(away):
        wait_until(lambda: _failed("documents") > before, what="a try that fails")
        assert _unpublished(connection) == 3
        host, _, real = settings.kafka.bootstrap_servers.rpartition(":")
        with forwarding(port, host, int(real)):
            assert len(read("documents", 3)) == 3
            wait_until(lambda: _unpublished(connection) == 0)


def test_a_database_without_outbox_ends_the_relay_with_the_remedy(settings: Settings, postgres_url: str) -> None:
    empty = settings.model_copy(update={"database_url": SecretStr(postgres_url)})
    with pytest.raises(ConfigurationError, match="offsetzero migrate"):
        Relay(empty).run(threading.Event())


def test_rows_that_were_published_long_ago_are_deleted_and_others_kept(
    settings: Settings, connection: psycopg.Connection
) -> None:
    for _ in range(3):
        outbox.add(connection, _deleted())
    connection.execute("UPDATE outbox SET published_at = now() - interval '2 hours'")
    outbox.add(connection, _deleted())
    connection.execute("UPDATE outbox SET published_at = now() WHERE published_at IS NULL")
    outbox.add(connection, _deleted())
    count = "SELECT count(*) FROM outbox"
    with relaying(settings):
        wait_until(lambda: connection.execute(count).fetchone() == (2,), what="two rows left")


def test_a_tombstone_goes_through_the_outbox(
    settings: Settings, connection: psycopg.Connection, read: Callable[..., list[Message]]
) -> None:
    run(connection, outbox.tombstone("document.deleted", "doc-1", tenant_id="t"))
    with relaying(settings):
        (message,) = read("documents", 1)
    assert message.value() is None
    assert cloudevents.read(None, message.headers()).meta.subject == "doc-1"


def test_the_schema_of_a_users_own_event_is_in_the_log_before_the_event(
    settings: Settings, connection: psycopg.Connection, read: Callable[..., list[Message]]
) -> None:
    class RelayedInvoice(Event, type="relayed.invoice", key="number"):
        number: str
        cents: int

    with catalogue.declared_for(Topic("invoices", 1, event_types=("relayed.invoice",))):
        cluster.ensure(settings, [Topic("invoices", 1)])
        outbox.add(connection, RelayedInvoice(number="1", cents=5))
        with relaying(settings):
            (message,) = read("invoices", 1)
    assert all(name != outbox.SCHEMA_HEADER for name, _ in message.headers() or ())
    log = SchemaLog(settings)
    reader = Codec(log.find)
    assert reader.decode_fields(message.value() or b"") == {"number": "1", "cents": 5}
    log.close()


def test_it_waits_while_the_database_only_reads(
    settings: Settings,
    connection: psycopg.Connection,
    read: Callable[..., list[Message]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A failover leaves a server that reads and does not write: SQLSTATE 25006, which is no OperationalError."""
    monkeypatch.setattr(relay, "_log", log := Mock(wraps=relay._log))
    name = settings.database_url.get_secret_value().rpartition("/")[2]
    with connection.transaction():
        event_id = outbox.add(connection, _deleted())
    connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with relaying(settings):
        wait_until(lambda: log.warning.called, what="a first refusal")
        assert "the database is away" in log.warning.call_args.args[0]
        connection.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
            (name,),
        )
        wait_until(lambda: _unpublished(connection) == 0, what="the mark")
    assert {dict(message.headers() or [])["ce_id"] for message in read("documents", 1)} == {str(event_id).encode()}
