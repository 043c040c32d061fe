"""Sends dead letters back to the group that failed on them: append, await the broker, then mark (design section 7).

What is to be sent is written before the first append, so an interrupted redrive goes on with what is not marked. A
letter whose mark was lost is sent twice, under one `redrive_no`: the group applies it once.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from offsetzero.clock import SYSTEM, Clock
from offsetzero.errors import PublishError
from offsetzero.generation import Generation
from offsetzero.producers.delivery import Delivery
from offsetzero.producers.log import LogProducer
from offsetzero.retry import headers as retry_headers
from offsetzero.retry import redrive_plan
from offsetzero.retry.dead_letters import DeadLetter, LetterReader
from offsetzero.store import dead_letter_actions as actions
from offsetzero.store import forced, generations, processed, runs
from offsetzero.store.database import Connection
from offsetzero.store.dead_letter_actions import Action, Planned
from offsetzero.store.script import Script, run
from offsetzero.topics.catalogue import REDRIVE
from offsetzero.topics.names import Names

CHUNK = 500
_WINDOW = 1_000
_WINDOW_BYTES = 64 * 1024 * 1024
_CHUNKS_A_SECOND = 4


@dataclass(slots=True)
class Progress:
    """How far a redrive is: dead letters sent by this process; not in the log any more; refused by the broker, and for
    what `reason`; ended without being sent again."""

    sent: int = 0
    gone: int = 0
    refused: int = 0
    reason: str = ""
    ended: int = 0
    last: int = 0
    """The number of the last one that was looked at."""

    @property
    def done(self) -> int:
        """How many there is nothing left to do about."""
        return self.sent + self.gone + self.refused + self.ended


class Redrive:
    """Carries out one action; the caller holds its lock (see `redrive_plan.lock`).

    Args:
        connection: in autocommit mode.
        producer: appends to the group's redrive topic.
        reader: reads the group's dead letters.
        names: topic names on the cluster.
        action: what is to be done.
        rate: the most dead letters sent in a second, on average from the first on; None for no limit.
        progress: told after each chunk.
        stop: ends it at the next chunk when it is set.
        discard: the keys of those that are discarded and hold up their keys, by their numbers: they are sent to be
            ended without their handler, and the key goes on. None for a redrive.
        clock: for the rate.
    """

    def __init__(
        self,
        connection: Connection,
        producer: LogProducer,
        reader: LetterReader,
        names: Names,
        action: Action,
        *,
        rate: float | None,
        progress: Callable[[Progress], None],
        stop: threading.Event,
        discard: Mapping[int, bytes] | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self._connection = connection
        self._producer = producer
        self._reader = reader
        self._topic = names.topic(f"{action.group}.{REDRIVE}")
        self._action = action
        self._rate = rate
        self._tell = progress
        self._stop = stop
        self._discard = discard
        self._clock = clock
        self._began: float | None = None
        self.progress = Progress()

    def send(self, limit: int | None = None) -> None:
        """Send what is not sent yet, in order.

        Args:
            limit: how many at most, with those that had been sent, and have ended; None for all.

        Raises:
            PublishError: the broker is away; what it took is marked, the rest is for another time. What it will never
                take is counted, and open again.
        """
        sent, window = 0, _WINDOW // 10
        while not self._stop.is_set() and (limit is None or sent < limit):
            most = window if limit is None else min(window, limit - sent)
            planned = run(self._connection, actions.planned(self._action.id, self.progress.last, most))
            if not planned:
                break
            found = self._fetch(planned)
            size = sum(len(letter.value or b"") for letter in found.values()) // len(planned)
            window = max(1, min(_WINDOW, _WINDOW_BYTES // max(1, size)))
            here = [(one, self._letter(one, found.get((one.entry.partition, one.entry.place)))) for one in planned]
            self._give_up([one.number for one, letter in here if letter is None])
            for chunk in chunks([(one, letter) for one, letter in here if letter is not None], self._most):
                self._keep_to_rate()
                if self._stop.is_set():
                    return
                sent += self._send(chunk)
            self.progress.last = max(self.progress.last, planned[-1].number)

    def _fetch(self, planned: Sequence[Planned]) -> dict[tuple[int, int], DeadLetter]:
        """Their records. In a topic that was deleted and made again others are at the same places: these are gone."""
        group = self._action.group
        topic_id = self._reader.topic_id(group)
        places = [(one.entry.partition, one.entry.place) for one in planned if one.entry.topic_id == topic_id]
        found = self._reader.fetch(group, places) if places else {}
        return found if self._reader.topic_id(group) == topic_id else {}

    def _letter(self, planned: Planned, found: DeadLetter | None) -> DeadLetter | None:
        """What there is to send; always what discards."""
        if self._discard is not None:
            return redrive_plan.discarding(planned.entry, self._discard.get(planned.number), found)
        return found if found is not None and found.is_whole(edited=planned.edited is not None) else None

    @property
    def _most(self) -> int:
        return CHUNK if self._rate is None else max(1, min(CHUNK, int(self._rate / _CHUNKS_A_SECOND)))

    def _keep_to_rate(self) -> None:
        now = self._clock.monotonic()
        if self._began is None:
            self._began = now
        if self._rate is not None:
            self._stop.wait(max(0.0, self._began + self.progress.sent / self._rate - now))

    def _give_up(self, numbers: list[int]) -> None:
        """The log does not have these any more: they are open again, and nobody can send them."""
        if numbers:
            self.progress.gone += run(self._connection, actions.release(self._action.id, numbers))
            self._tell(self.progress)

    def _send(self, chunk: Sequence[tuple[Planned, DeadLetter]]) -> int:
        """Send these and mark them; gives how many are marked: those that had ended too."""
        with self._connection.transaction():
            planned = [one for one, _ in chunk]
            ended = run(self._connection, _prepare(self._action.group, planned, again=self._discard is None))
        sending = [(planned, letter) for planned, letter in chunk if planned.number not in ended]
        failed = self._deliver(sending)
        # The broker refuses batches: one record that is too large takes the others along. Alone, each tells its own.
        for letter in sending:
            if (error := failed.get(letter[0].number)) is not None and not error.retriable:
                del failed[letter[0].number]
                failed |= self._deliver([letter])
        taken = [planned.number for planned, _ in sending if planned.number not in failed]
        refused = {number: error for number, error in failed.items() if not error.retriable}
        run(self._connection, actions.done(self._action.id, [*taken, *ended]))
        for number, error in refused.items():
            self.progress.refused += run(self._connection, actions.release(self._action.id, [number]))
            self.progress.reason = str(error)
        self.progress.sent += len(taken)
        self.progress.ended += len(ended)
        self.progress.last = max(self.progress.last, chunk[-1][0].number)
        self._tell(self.progress)
        for number, error in failed.items():
            if number not in refused:
                raise error
        return len(taken) + len(ended)

    def _deliver(self, letters: Sequence[tuple[Planned, DeadLetter]]) -> dict[int, PublishError]:
        """Append letters and wait for the broker's answers; gives those that it did not take, by their numbers."""
        deliveries = [(planned.number, self._append(planned, letter)) for planned, letter in letters]
        failed: dict[int, PublishError] = {}
        for number, delivery in deliveries:
            try:
                delivery.result()
            except PublishError as error:
                failed[number] = error
        return failed

    def _append(self, planned: Planned, letter: DeadLetter) -> Delivery:
        hop = retry_headers.redriven(letter.hop, self._action.id, discard=self._discard is not None)
        return self._producer.produce(
            self._topic,
            key=letter.key,
            value=letter.value if planned.edited is None or self._discard is not None else planned.edited,
            headers=retry_headers.write(letter.headers, hop, None, letter.group),
            partition=hop.origin.partition,
            timestamp_ms=self._clock.now_ms(),
        )


def chunks(letters: Iterable[tuple[Planned, DeadLetter]], most: int) -> Iterator[list[tuple[Planned, DeadLetter]]]:
    """Cut letters into what may be under way together: of a key the next one is sent when the broker has the last.

    Otherwise a failed append could let a later one of its key pass.
    """
    chunk: list[tuple[Planned, DeadLetter]] = []
    keys: set[bytes | None] = set()
    for planned, letter in letters:
        if len(chunk) == most or (letter.key is not None and letter.key in keys):
            yield chunk
            chunk, keys = [], set()
        chunk.append((planned, letter))
        keys.add(letter.key)
    if chunk:
        yield chunk


def _prepare(group: str, planned: Sequence[Planned], *, again: bool) -> Script[set[int]]:
    """Have the steps of their runs wait again, where the group's generation ends steps; gives the numbers of those that
    have ended since, sent by a process that could not mark them: what became of them stays.

    The runs are locked first: an outcome is written in one transaction with the end of its step.
    """
    generation = Generation.named(group)
    steps = {one.number: (one.entry.run_id, generation.group) for one in planned if one.entry.run_id is not None}
    yield from runs.lock_all([run_id for run_id, _ in steps.values()])
    numbers = yield from _ended(generation, planned)
    read = yield from generations.active(generation.group)
    if again and read in (None, generation.number):  # another generation ends no step, so it would wait for ever
        yield from runs.requeue_steps([step for number, step in steps.items() if number not in numbers])
    return numbers


def _ended(generation: Generation, planned: Sequence[Planned]) -> Script[set[int]]:
    """The numbers of those whose events have ended since, each in the generation in which its record counts now."""
    again = yield from forced.of_group(generation.group)
    by_generation: dict[int, list[tuple[int, tuple[str, str, int]]]] = {}
    for one in planned:
        entry, number = one.entry, generation.number
        if again is not None:
            key = entry.key.encode() if entry.key is not None else None
            origin = entry.origin_topic_id, entry.origin_partition, entry.origin_offset
            number = max(number, again.generation_of(*origin, key, entry.event_type))
        sent = entry.source, entry.event_id, entry.redrive_no + 1
        by_generation.setdefault(number, []).append((one.number, sent))
    numbers: set[int] = set()
    for number, letters in by_generation.items():
        name = Generation(generation.group, number).name
        ended = yield from processed.ended(name, [sent for _, sent in letters])
        numbers |= {letter for letter, sent in letters if sent in ended}
    return numbers
