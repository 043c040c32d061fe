"""The admin client, and its futures as plain calls with our errors."""

from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from offsetzero.client_log import LOGGER
from offsetzero.errors import TopicError
from offsetzero.settings import Settings

T = TypeVar("T")

TIMEOUT = 30.0
"""Seconds that one request to the cluster may take."""
ANSWER_SECONDS = 10.0
"""Seconds within which a cluster that is up answers a first question."""


class Asks(Protocol):
    """A client that can be asked for metadata: of any kind."""

    def list_topics(self, topic: Any = ..., timeout: float = ...) -> Any: ...

    def poll(self, timeout: float = ...) -> Any: ...


def client(settings: Settings) -> AdminClient:
    """An admin client of the cluster."""
    return AdminClient(settings.kafka.client_config(), logger=LOGGER)


def metadata(asked: Asks, settings: Settings, topic: str | None = None) -> Any:
    """The metadata of all topics, or of one. Asked first, so that a cluster that is away is told soon.

    Args:
        asked: any client of the cluster.
        settings: name the cluster, for the message.
        topic: its name on the cluster.

    Raises:
        TopicError: the cluster does not answer within `ANSWER_SECONDS`.
    """
    try:
        if topic is None:
            return asked.list_topics(timeout=ANSWER_SECONDS)
        return asked.list_topics(topic, timeout=ANSWER_SECONDS)
    except KafkaException as error:
        asked.poll(0)  # lets the client's log line come, which says why
        raise TopicError(no_answer(settings)) from error


def no_answer(settings: Settings) -> str:
    """What to say of a cluster that does not answer."""
    return (
        f"the cluster at {settings.kafka.bootstrap_servers} does not answer within {ANSWER_SECONDS:g} s; "
        "is it up? See OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS"
    )


def answer(future: "Future[T]", what: str) -> T:
    """The result of a request.

    Args:
        future: as the admin client gives it.
        what: what was asked, for the message.

    Raises:
        TopicError: the cluster refused, or did not answer in time.
    """
    try:
        return future.result(TIMEOUT)
    except KafkaException as error:
        raise TopicError(f"{what}: {error_of(error).str()}") from error
    except TimeoutError:
        raise TopicError(f"{what}: no answer within {TIMEOUT:g} s; is the cluster up?") from None


def error_of(error: KafkaException) -> Any:
    """The KafkaError in an exception."""
    return error.args[0]
