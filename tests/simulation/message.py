"""Stands for `confluent_kafka.Message`."""

from confluent_kafka import KafkaError

from simulation.log import Headers, Place, Stored


class SimMessage:
    """As `confluent_kafka.Message`: a record, or an event of the client when `error` is given."""

    __slots__ = ("_error", "_offset", "_place", "_record", "_value")

    def __init__(self, place: Place, offset: int, record: Stored | None, value: bytes | None, error: KafkaError | None):
        self._place, self._offset, self._record, self._value, self._error = place, offset, record, value, error

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._record.key if self._record else None

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> Headers:
        return list(self._record.headers) if self._record else []

    def timestamp(self) -> tuple[int, int]:
        return 1, self._record.timestamp_ms if self._record else -1

    def error(self) -> KafkaError | None:
        return self._error
