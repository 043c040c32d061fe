"""A side job: the handlers of a group run over spans of the log, beside the group and without its offsets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka.admin import OffsetSpec

from offsetzero import metrics
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.reading.commits import Commits
from offsetzero.consumers.record import Record
from offsetzero.consumers.replaying.looking import Wanted, reader_config
from offsetzero.consumers.replaying.seam import over_the_seam
from offsetzero.consumers.replaying.span_loop import SpanLoop, Waiting
from offsetzero.consumers.replaying.spans import Span
from offsetzero.consumers.runtime import GroupRuntime
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.consumers.working.parking import Parking
from offsetzero.errors import ConfigurationError
from offsetzero.generation import Generation
from offsetzero.producers.log import LogProducer
from offsetzero.settings import Settings
from offsetzero.store import forced, holds
from offsetzero.store.database import Pool
from offsetzero.store.script import run
from offsetzero.store.starts import Place
from offsetzero.topics import offsets
from offsetzero.topics.admin import client
from offsetzero.topics.names import Names


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is: offsets that need no work any more, and all of them; records that are meant, so far."""

    done: int
    total: int
    meant: int


class SideJob(GroupRuntime):
    """Runs the handlers of a group over spans; ends by itself, or by `stop`.

    What fails goes to the group's own retry topics and dead letters, and is the group's from then on.

    Args:
        group: the declaration.
        settings: of this process.
        spans: what is read.
        wanted: which of their records are meant.
        progress: called several times a second.
        generation: of a projection, which one; by default the one that is read.

    Raises:
        ConfigurationError: a transactional group, whose effects and offsets are one.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        settings: Settings,
        spans: Sequence[Span],
        wanted: Wanted,
        progress: Callable[[Progress], None] = lambda _progress: None,
        *,
        generation: int | None = None,
    ) -> None:
        if group.transactional:
            raise ConfigurationError(
                f"--to: group {group.name} is transactional: what it publishes and its offsets are one transaction, so"
                " nothing can read beside it; give it other offsets, without --to"
            )
        super().__init__(group, settings, generation=generation)
        self._spans = spans
        self._wanted = wanted
        self._progress = progress
        self._total = sum(span.records for span in spans)
        self._before: Mapping[str, float] = {}
        self._reading: SpanLoop | None = None
        self.is_complete = False
        """Whether it came to the end of what it was to do."""

    @property
    def outcomes(self) -> Mapping[str, int]:
        """How many records ended how."""
        now = _outcomes(self._generation.name)
        return {name: count for name, value in now.items() if (count := round(value - self._before.get(name, 0))) > 0}

    @property
    def meant(self) -> int:
        """Records that were read and are meant."""
        return self._reading.meant if self._reading is not None else 0

    def _make_loop(
        self,
        topic_ids: Mapping[str, str],
        dispatcher: Dispatcher,
        producer: LogProducer,
        connections: Pool | None,
        commits: Commits | None,
    ) -> SpanLoop:
        settings, generation = self._settings, self._generation
        self._before = _outcomes(generation.name)
        parking = Parking(generation.name, self._retries[0], producer, self._names, self._clock, self._refusals)
        self._reading = _ToldLoop(
            over_the_seam(self._resources.consumer(reader_config(settings)), settings, self._spans),
            self._spans,
            self._wanted,
            _waiting(settings, self._group, generation, self._retries, connections),
            self._names,
            dispatcher,
            parking,
            settings.groups,
            self._clock,
            self._complete,
        )
        self._reading.tell = lambda done, meant: self._progress(Progress(done, self._total, meant))
        return self._reading

    def _complete(self) -> None:
        self.is_complete = True
        self.stop()

    def run(self) -> list[Record]:
        """See `GroupRuntime.run`; returns the records that were begun and have not ended."""
        left = super().run()
        self.is_complete = self.is_complete and not left
        return left


class _ToldLoop(SpanLoop):
    """Tells how far it is, in each round."""

    tell: Callable[[int, int], None] = staticmethod(lambda _done, _meant: None)

    def turn(self) -> None:
        super().turn()
        self.tell(self.done, self.meant)


def _waiting(
    settings: Settings, group: ConsumerGroup, generation: Generation, retries: Sequence[str], connections: Pool | None
) -> Waiting:
    admin, names = client(settings), Names(settings.kafka.namespace)
    topics = offsets.describe(admin, names, retries)
    places: list[Place] = [(name, number) for name, one in topics.items() for number in range(one.partitions)]
    committed = offsets.committed(settings, generation.name, places, stable=False)
    low = offsets.ends(admin, names, places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    high = offsets.ends(admin, names, places, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    parts = {
        place: (max(low[place], committed[place].offset if place in committed else 0), high[place]) for place in places
    }
    if connections is None:
        return Waiting(parts)
    numbers = {number for _, number in parts} if group.on_dead_letter == "hold" else ()
    with connections.connection() as connection:
        held = run(connection, holds.of_partitions(generation.group, numbers, generation.number)) if numbers else ()
        opened = run(connection, forced.of_group(generation.group)) if group.projection is None else None
    return Waiting(parts, held, opened)


def _outcomes(group: str) -> dict[str, float]:
    """What this process has counted of a group, as Kafka knows it, by outcome."""
    found: dict[str, float] = {}
    for family in metrics.EVENTS_HANDLED.collect():
        for sample in family.samples:
            if sample.name.endswith("_total") and sample.labels["group"] == group:
                outcome = sample.labels["outcome"]
                found[outcome] = found.get(outcome, 0.0) + sample.value
    return found
