"""The admin client, and its futures as plain calls with our errors."""

from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from offsetzero.client_log import LOGGER
from offsetzero.errors import TopicError
from offsetzero.settings import Settings

T = TypeVar("T")

TIMEOUT = 30.0
"""Seconds that one request to the cluster may take."""


def client(settings: Settings) -> AdminClient:
    """An admin client of the cluster."""
    return AdminClient(settings.kafka.client_config(), logger=LOGGER)


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
