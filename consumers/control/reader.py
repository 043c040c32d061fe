"""Reads the topic `control` from the moment on that it is made: what was said before is for nobody."""

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from offsetzero import logs
from offsetzero.client_log import LOGGER, watched
from offsetzero.schemas import cloudevents
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.event import Event, event_class
from offsetzero.settings import Settings
from offsetzero.topics import offsets
from offsetzero.topics.admin import ANSWER_SECONDS, client
from offsetzero.topics.catalogue import CONTROL
from offsetzero.topics.names import Names

BATCH = 100

log = logs.get(__name__)


class ControlReader:
    """Is told what to read, so it is a member of no group: no rebalance. Belongs to one thread, which closes it.

    Args:
        settings: name the cluster, which has the topic.

    Raises:
        TopicError: the cluster does not answer, or there is no such topic.
    """

    def __init__(self, settings: Settings) -> None:
        self._codec = Codec()
        self._told: set[int] = set()
        names, latest = Names(settings.kafka.namespace), OffsetSpec.latest()  # type: ignore[no-untyped-call]
        place = (CONTROL, 0)
        admin = client(settings)  # its end would end the request
        ends = offsets.ends(admin, names, [place], latest, timeout=ANSWER_SECONDS)
        self._consumer = Consumer(watched(_config(settings)), logger=LOGGER)
        self._consumer.assign([TopicPartition(names.topic(CONTROL), 0, ends[place])])

    def read(self, seconds: float = 0.0) -> list[Event]:
        """What has come since the last call; waits for the first for so long at most.

        What nobody here can read is left out, with a line in the log: it is of a later version, or somebody else's.
        """
        events = []
        # One poll, which waits for one message and no longer, then what is there already.
        first = self._consumer.poll(seconds)
        for message in [first, *self._consumer.consume(BATCH, 0)] if first is not None else []:
            if (event := self._event(message)) is not None:
                events.append(event)
        return events

    def close(self) -> None:
        """Let go of the client."""
        self._consumer.close()

    def _event(self, message: Message) -> Event | None:
        if (error := message.error()) is not None:
            self._tell(error)
            return None
        try:
            found = cloudevents.read(message.value(), message.headers())  # type: ignore[arg-type]  # a list, or None
            if found.data is None or event_class(found.meta.type) is None:
                return None
            return self._codec.decode(found.meta.type, found.data, found.content_type)
        except Exception as error:  # whatever bytes come to that nobody foresaw
            log.warning("not readable", topic=CONTROL, offset=message.offset(), error=str(error))
            return None

    def _tell(self, error: KafkaError) -> None:
        """Once a kind: the client goes on by itself, or there is nothing to be read."""
        if error.code() not in self._told:
            self._told.add(error.code())
            log.warning("the topic control cannot be read", error=error.str(), code=error.name())


def _config(settings: Settings) -> dict[str, object]:
    return {
        **settings.kafka.client_config(),
        "group.id": "offsetzero-control",  # the client wants one; nothing is committed, nobody joins
        "group.protocol": "classic",
        "session.timeout.ms": 45_000,
        "max.poll.interval.ms": 300_000,  # the group's own may be shorter than this session, which the client refuses
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "latest",  # of a topic that was made again: what is old is of no use
        "fetch.wait.max.ms": 500,
        "queued.max.messages.kbytes": 1_024,
    }
