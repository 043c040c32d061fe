"""Commits what handlers have led to in Kafka transactions, as often as it takes; a refusal stops its partition."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from offsetzero import logs
from offsetzero.clock import Clock
from offsetzero.consumers.reading.transaction_commits import Left, TransactionCommits
from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.working.appends import Refusals, is_too_large
from offsetzero.consumers.working.blame import Aborted, Blame, Handled, Shares, without
from offsetzero.consumers.working.effects import is_unsound
from offsetzero.consumers.working.kafka_transaction import KafkaTransaction
from offsetzero.consumers.working.run import Ending
from offsetzero.producers.transactions import TransactionalProducer
from offsetzero.retry.classify import classify
from offsetzero.store.starts import Place
from offsetzero.topics.names import Names
from offsetzero.topics.offsets import Committed

log = logs.get(__name__)


class KafkaCommits:
    """Commits in transactions, one at a time; belongs to one thread.

    Args:
        group: for log lines and metrics.
        make: makes a producer with the transactional id of a number; see `KafkaTransaction`.
        commits: knows the member, and where its partitions stand.
        committed: asks for committed offsets, once no transaction on them is open.
        short: of topics, the partitions that take nothing now for want of replicas; empty when nobody knows.
        names: of topics on the cluster.
        refusals: told what the broker does not take.
        clock: for pauses.
    """

    def __init__(
        self,
        group: str,
        make: Callable[[int], TransactionalProducer],
        commits: TransactionCommits,
        committed: Callable[[Sequence[Place]], Mapping[Place, Committed]],
        short: Callable[[Collection[str]], Collection[Place]],
        names: Names,
        refusals: Refusals,
        clock: Clock,
    ) -> None:
        self._group = group
        self._commits = commits
        self._short = short
        self._refusals = refusals
        self._clock = clock
        self._transaction = KafkaTransaction(group, make, commits, committed, names, refusals, clock)
        self._reached: dict[tuple[str, int], int] = {}  # by topic id and partition

    def commit(self, handled: Sequence[Handled]) -> list[tuple[Record, Ending]]:
        """Append what these records have led to and commit the offsets behind them, as often as it takes.

        Args:
            handled: of each partition the first records that are not done, in order.

        Returns:
            How each has ended: what was refused, and what follows it in its partition, is to run again; what was
            revoked meanwhile is left.

        Raises:
            GroupStopped: no producer gets through.
        """
        endings = {one.record: one.ending for one in handled}
        rest = without(handled, {one for one in handled if one.ending is not Ending.DONE}, endings)
        rest = [one for one in rest if not self._is_done(one.record)]
        shares = Shares(self._refusals.topics())
        try:
            while True:
                # In this order: what is owned after it was asked is fenced by the answer when it is owned no more.
                metadata = self._commits.metadata()
                endings.update((one.record, Ending.LEFT) for one in rest if one.record.owned.gone)
                rest = [one for one in rest if not one.record.owned.gone]
                share = shares.next(rest)
                if shares.is_doubtful and (blamed := self._look(share)):
                    rest = self._refuse(blamed, rest, endings)
                    continue
                if not (offsets := self._offsets(share)):
                    break
                begun = self._clock.monotonic()
                try:
                    if metadata is None:
                        raise Aborted("this member is joining the group again")
                    self._transaction.run(share, offsets, metadata, partial(self._look, share))
                except Aborted as error:
                    blamed = self._after(error, share, shares, self._clock.monotonic() - begun)
                    rest = self._refuse(blamed, rest, endings)
                    continue
                shares.took()
                self._note(share, offsets)
                committed = set(share)
                if not (rest := [one for one in rest if one not in committed]):
                    break
        except Left:
            endings.update((one.record, Ending.LEFT) for one in rest)
        self._refusals.go_on()
        return list(endings.items())

    @property
    def is_behind(self) -> bool:
        """Whether a partition stands further than was committed."""
        return bool(self._offsets(()))

    def close(self) -> None:
        """Let go of the producer; the broker aborts what is open after its time-out."""
        self._transaction.close()

    def _note(self, share: Iterable[Handled], offsets: Mapping[OwnedPartition, int]) -> None:
        for one in share:
            self._refusals.remove(one.record)
        for stay, offset in offsets.items():
            stay.committed = stay.acknowledged = self._reached[stay.topic_id, stay.partition] = offset

    def _look(self, share: Sequence[Handled]) -> dict[Handled, Blame]:
        """Those of a share that would wait for replicas: a transaction with them holds up others, and has no end."""
        short = self._short({topic for one in share for topic in one.topics})
        return {
            one: Blame(append.topic, f"{append.topic}/{append.partition}: too few replicas are in sync, or none leads")
            for one in share
            for append in one.appends
            if (append.topic, append.partition) in short
        }

    def _after(self, error: Aborted, share: Sequence[Handled], shares: Shares, seconds: float) -> dict[Handled, Blame]:
        """Those of the share that the broker does not take."""
        log.warning("transaction aborted", group=self._group, records=len(share), error=str(error))
        blamed = dict(error.blamed)
        if error.of_topic:
            said = str(error)
            blamed = {one: Blame(", ".join(sorted(one.topics)), said) for one in shares.not_allowed(share)}
        elif not blamed:
            self._refusals.hold_up(str(error))
            self._transaction.pause()
        for one in blamed:  # what takes long to be refused is tried so much less often: others wait for it meanwhile
            one.record.again_at = self._clock.monotonic() + seconds
        return blamed

    def _refuse(
        self, blamed: Mapping[Handled, Blame], rest: list[Handled], endings: dict[Record, Ending]
    ) -> list[Handled]:
        """Have the partitions of these rest; what is left of the rest is returned."""
        first = dict[OwnedPartition, Handled]()
        for one in blamed:
            first.setdefault(one.record.owned, one)
        for one in first.values():
            record, (topic, error, why) = one.record, blamed[one]
            self._refusals.add(record, topic, error)
            endings[record] = Ending.AGAIN
            if why is not None and record.failed is None and is_unsound(why):
                record.failed = classify(why)  # the handler's own outputs; next, it is settled
            elif why is not None and record.failed is not None and is_too_large(why):
                record.outgrown += 1  # what follows from its failure; next, it goes to another place
        return without(rest, set(first.values()), endings)

    def _is_done(self, record: Record) -> bool:
        """Whether it was committed for an earlier stay of its partition, which ended while that went on."""
        return record.offset < self._reached_before(record.owned)

    def _reached_before(self, stay: OwnedPartition) -> int:
        """What was committed for an earlier stay of a partition that was with this member all the time."""
        return self._reached.get((stay.topic_id, stay.partition), 0) if stay.resume_at is not None else 0

    def _offsets(self, handled: Iterable[Handled]) -> dict[OwnedPartition, int]:
        offsets = {
            stay: offset
            for stay, offset in self._commits.settled.items()
            if stay.active
            and (stay.committed is None or offset > stay.committed)
            and offset >= self._reached_before(stay)
        }
        for one in handled:
            offsets[one.record.owned] = one.record.offset + 1
        return offsets
