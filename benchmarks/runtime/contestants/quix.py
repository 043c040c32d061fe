"""quixstreams: a StreamingDataFrame with one update step, the value read by the topic's deserializer."""

import logging
import tempfile
from typing import Any

from quixstreams import Application
from quixstreams.models.serializers import Deserializer, SerializationContext
from terms import NUMBER, Meter, arguments, decode, report

args = arguments()


class Avro(Deserializer):
    """Reads the value of a record."""

    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:
        return decode(value)


with tempfile.TemporaryDirectory() as state:
    app = Application(
        args.bootstrap,
        consumer_group=args.group,
        auto_offset_reset="earliest",
        state_dir=state,
        loglevel=logging.WARNING,
    )
    meter = Meter(args.count, app.stop)
    events = app.dataframe(app.topic(args.topic, value_deserializer=Avro(), key_deserializer="bytes"))
    events.update(lambda event: meter.one(event[NUMBER]))
    app.run()
report(meter, of=args.of)
