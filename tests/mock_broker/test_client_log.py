"""What librdkafka says about brokers that are away: with real clients, on a clock that is moved by hand."""

import json
import logging
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from offsetzero.client_log import REPEAT_SECONDS, Watch
from support import ManualClock, wait_until

DEAD = "127.0.0.1:1"


class Lines(logging.Handler):
    """Counts what a client says, and keeps what passes the filter."""

    def __init__(self) -> None:
        super().__init__()
        self.logger = logging.Logger("test", level=1)
        self.clock = ManualClock()
        self.watch = Watch(self.logger, self.clock)
        self.said = 0
        self.passed: list[str] = []
        self.logger.addFilter(self._count)
        self.logger.addFilter(self.watch)
        self.logger.addHandler(self)

    def _count(self, _record: logging.LogRecord) -> bool:
        self.said += 1
        return True

    def emit(self, record: logging.LogRecord) -> None:
        self.passed.append(record.getMessage())


@pytest.fixture
def lines() -> Lines:
    return Lines()


def say(producer: Producer, lines: Lines, more: int) -> None:
    """Let the client say so many lines more."""
    wanted = lines.said + more

    def enough() -> bool:
        producer.poll(0.05)
        return lines.said >= wanted

    wait_until(enough, what=f"{more} lines of the client")


def test_a_broker_that_is_away_is_told_once_and_then_once_a_minute(lines: Lines) -> None:
    producer = Producer(
        {"bootstrap.servers": DEAD, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 20}, logger=lines.logger
    )
    say(producer, lines, 4)
    assert lines.passed == [f"Kafka at {DEAD} does not answer: Connect to ipv4#{DEAD} failed: Connection refused"]
    lines.clock.advance(REPEAT_SECONDS)
    say(producer, lines, 2)
    assert lines.passed[1:] == [
        f"Kafka at {DEAD} still does not answer: Connect to ipv4#{DEAD} failed: Connection refused"
    ]


@pytest.mark.parametrize(
    "thread", ["{0}/bootstrap]: {0}/bootstrap", "{0}/1]: {0}/1", "GroupCoordinator]: GroupCoordinator: {0}"]
)
def test_a_broker_that_is_back_is_told_once(lines: Lines, thread: str) -> None:
    told: list[str] = []
    producer = Producer({"test.mock.num.brokers": 1, "statistics.interval.ms": 50, "stats_cb": told.append})
    stats = wait_until(lambda: [producer.poll(0.05), *(text for text in told if '"state":"UP"' in text)][1:])[-1]
    address = next(iter(json.loads(stats)["brokers"].values()))["nodename"]
    lines.watch.on_stats(stats)
    assert lines.passed == []
    lines.logger.error(
        "%s [%s] %s",
        "FAIL",
        "rdkafka#producer-1",
        f"[thrd:{thread.format(address)}: Disconnected (after 3ms in state UP)",
    )
    assert lines.passed == [f"Kafka at {address} does not answer: Disconnected"]
    lines.watch.on_stats(json.dumps({"brokers": {"x": {"nodename": address, "state": "CONNECT"}}}))
    lines.watch.on_stats(json.dumps({"brokers": {"x": {"nodename": "another:9092", "state": "UP"}}}))
    assert len(lines.passed) == 1
    lines.watch.on_stats(stats)
    lines.watch.on_stats(stats)
    assert lines.passed[1:] == [f"Kafka at {address} answers again"]


def test_other_lines_pass_as_they_are_except_what_is_no_news(lines: Lines) -> None:
    for kind, text in (
        ("MAXPOLL", "[thrd:main]: Application maximum poll interval (300000ms) exceeded"),
        ("GETPID", "[thrd:main]: Failed to acquire transactional PID: retrying"),
        ("ERROR", "[thrd:app]: rdkafka#producer-1: 1/1 brokers are down"),
    ):
        lines.logger.error("%s [%s] %s", kind, "rdkafka#producer-1", text)
    assert [line.split()[0] for line in lines.passed] == ["MAXPOLL"]


def ask(make: Callable[..., AdminClient]) -> None:
    client = make()
    with pytest.raises(Exception, match="transport"):
        client.list_topics(timeout=0.5)


def test_an_admin_client_of_ours_writes_nothing_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    from offsetzero.settings import Settings
    from offsetzero.topics.admin import client

    ask(lambda: AdminClient({"bootstrap.servers": DEAD}))
    assert "FAIL" in capfd.readouterr().err  # as it is without a logger
    ask(lambda: client(Settings(kafka={"bootstrap_servers": DEAD})))
    assert capfd.readouterr().err == ""
