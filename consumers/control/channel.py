"""The way to a running member: what is said to its group comes in, answers go out."""

from typing import Protocol

from offsetzero import logs
from offsetzero.consumers.control.reader import ControlReader
from offsetzero.errors import PublishError
from offsetzero.producers import records
from offsetzero.producers.log import LogProducer
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.control import GroupReplayAnswered
from offsetzero.schemas.event import Event
from offsetzero.settings import Settings
from offsetzero.topics.names import Names

log = logs.get(__name__)


class Channel(Protocol):
    """Belongs to the polling thread; no call waits."""

    def news(self) -> list[Event]:
        """What was said about this group since the last call, its members' answers included; some of it twice."""
        ...

    def answer(self, answer: GroupReplayAnswered) -> None:
        """Say what has become of one partition."""
        ...

    def close(self) -> None:
        """Listen no more."""
        ...


class ControlTopic:
    """By the topic `control`.

    The polling thread reads it, with a client of its own that is told what to read: a look costs microseconds when
    nothing has come, and there is no thread to be started, watched and joined.

    Args:
        settings: name the cluster.
        group: what Kafka knows the group by.
        producer: sends answers; its owner closes it.

    Raises:
        TopicError: the cluster does not answer, or the topic is missing.
    """

    def __init__(self, settings: Settings, group: str, producer: LogProducer) -> None:
        self._group = group
        self._source = settings.source
        self._topic = Names(settings.kafka.namespace).topic
        self._producer = producer
        self._codec = Codec()
        self._reader = ControlReader(settings)

    def news(self) -> list[Event]:
        """See `Channel`."""
        return [one for one in self._reader.read() if one.key == self._group]

    def answer(self, answer: GroupReplayAnswered) -> None:
        """See `Channel`. One that gets lost is asked for again."""
        record = records.build(self._codec, answer, {"source": self._source})
        try:
            self._producer.produce(
                self._topic(record.topic), key=record.key, value=record.value, headers=record.headers
            )
        except PublishError as error:
            log.warning("not answered", group=self._group, request=str(answer.request_id), error=str(error))

    def close(self) -> None:
        """See `Channel`."""
        self._reader.close()
