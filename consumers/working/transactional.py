"""The worker of a Kafka-transactional group: calls handlers one after the other, then commits what they led to."""

from collections.abc import Callable
from typing import Any

from offsetzero.clock import Clock
from offsetzero.consumers.context import Context
from offsetzero.consumers.reading.transaction_commits import TransactionCommits
from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.resources import Spawn
from offsetzero.consumers.working.appends import Append, Appender
from offsetzero.consumers.working.atwork import AtWork
from offsetzero.consumers.working.blame import Handled
from offsetzero.consumers.working.calls import Call
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.consumers.working.effects import AtLeastOnce
from offsetzero.consumers.working.handling import Handling, Parts
from offsetzero.consumers.working.kafka_commits import KafkaCommits
from offsetzero.consumers.working.run import Ending, Run
from offsetzero.producers.delivery import Delivery

MAX_RECORDS = 1_000  # in a transaction
MAX_BYTES = 8 * 1024 * 1024  # of what is appended in a transaction; one record may lead to more
WORK_SECONDS = 0.5  # of handling for a transaction; the record that is in work then ends it
TAIL_SECONDS = 0.5  # without records, before what lies behind the last of them is looked at
JOIN_SECONDS = 2.0


class Outputs:
    """What the record in work leads to; nothing is appended before its transaction."""

    def __init__(self) -> None:
        self._appends: list[Append] = []

    def add(self, append: Append) -> None:
        """Have a record appended in the transaction."""
        self._appends.append(append)

    def take(self) -> list[Append]:
        """What was added since the last call."""
        taken, self._appends = self._appends, []
        return taken


class OutputEffects(AtLeastOnce):
    """Handlers' outputs, kept for the transaction.

    Its producer, as that of `AtLeastOnce`, appends nothing but writer schemas, and those outside the transaction: one
    that was aborted with it would be missing for the next event.
    """

    def __init__(self, outputs: Outputs, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._outputs = outputs

    def send(self, call: Call, ctx: Context) -> list[Delivery]:
        for one in self.records(call, ctx):
            self._outputs.add(Append(one.topic, one.key, one.value, one.headers))
        return []


class OutputAppender(Appender):
    """Retry and dead-letter records, kept for the transaction.

    Args:
        outputs: where they are kept.
    """

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs

    def put(self, record: Record, append: Append) -> None:
        self._outputs.add(append)


class TransactionHandling(Handling):
    """Works on runs whose records end together.

    No transaction is open while a handler runs: one that takes long cannot reach the transaction's time-out.

    Args:
        parts: its effects and its settler add to `outputs`.
        outputs: what the record in work leads to.
        transactions: commits.
    """

    def __init__(self, parts: Parts, outputs: Outputs, transactions: KafkaCommits) -> None:
        super().__init__(parts)
        self._outputs = outputs
        self._transactions = transactions

    def work(self, run: Run) -> None:
        try:
            handled = self._handle_some(run)
            run.ended.extend(self._transactions.commit(handled))
            run.running = ()
        finally:
            self._tally.tell()

    def _handle_some(self, run: Run) -> list[Handled]:
        """As many as a transaction may have; what is left in the run goes back."""
        handled: list[Handled] = []
        begun: tuple[Record, ...] = ()
        held: set[OwnedPartition] = set()
        size, until = 0, self._clock.monotonic() + WORK_SECONDS
        while size < MAX_BYTES and (record := run.begin(begun)) is not None:
            begun = run.running
            run.begun_at = now = self._clock.monotonic()
            ending = Ending.AGAIN if record.owned in held else self._work(record, now)
            one = Handled(record, ending, self._outputs.take())
            handled.append(one)
            size += sum(append.size for append in one.appends)
            if ending is not Ending.DONE:
                held.add(record.owned)  # what follows it in its partition cannot be in this transaction
            if self._clock.monotonic() > until:
                break
        return handled


class TransactionWorkers:
    """The one thread of such a group that calls handlers and commits.

    Args:
        dispatcher: where records come from.
        handling: works on them.
        transactions: closed by the thread.
        commits: told when no transaction follows.
        crashed: told of an error that no rule explains.
        clock: for how long a handler has been at work.
        spawn: makes the thread.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        handling: TransactionHandling,
        transactions: KafkaCommits,
        commits: TransactionCommits,
        crashed: Callable[[BaseException], None],
        clock: Clock,
        spawn: Spawn,
    ) -> None:
        self._dispatcher = dispatcher
        self._handling = handling
        self._transactions = transactions
        self._commits = commits
        self._crashed = crashed
        self._clock = clock
        self._thread = spawn(self._run, "handler")

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Nothing to do: the thread waits inside the dispatcher."""

    def replace(self, run: Run) -> None:
        """Never called: such a group has no time limit for handlers."""

    def late(self) -> int:
        return 0

    def held_up(self) -> tuple[float, str | None]:
        return 0.0, None

    def join(self) -> None:
        self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        self._at_work = AtWork(self._clock)  # of this thread: tells what it executes
        try:
            while not self._dispatcher.closed:
                if (run := self._dispatcher.take(TAIL_SECONDS)) is not None:
                    self._work(run)
                else:
                    self._commit_rest()
            self._commits.await_last()
            self._commit_rest()
        except BaseException as error:
            self._crashed(error)
        finally:
            self._commits.finish()
            self._transactions.close()

    def _work(self, run: Run) -> None:
        run.at_work = self._at_work
        try:
            self._handling.work(run)
        finally:
            for record in run.running:  # an error of ours: nothing is taken for done
                run.ended.append((record, Ending.LEFT))
            self._dispatcher.end((run,))

    def _commit_rest(self) -> None:
        """Commit what no record commits: where reading has begun, and markers of transactions behind the last one."""
        if self._transactions.is_behind:
            with self._dispatcher.elsewhere():
                self._transactions.commit(())
