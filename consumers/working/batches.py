"""Many records in one call: what fails in it is found by halving, in the order of the records."""

from collections import Counter
from collections.abc import Sequence

from offsetzero.consumers.group import Batch
from offsetzero.consumers.order import Order
from offsetzero.consumers.record import Record
from offsetzero.consumers.working.atwork import raise_if_abandoned
from offsetzero.consumers.working.calls import Call
from offsetzero.consumers.working.handling import Parts, RecordHandling, failed
from offsetzero.consumers.working.run import Ending, Run
from offsetzero.consumers.working.transaction import NotNow
from offsetzero.errors import SchemasUnavailable


class BatchHandling(RecordHandling):
    """Works on whole runs for one worker of a group with a batch handler.

    Args:
        parts: see there.
        batch: the declaration.
        ordered: whether the order of a key survives retries.
    """

    def __init__(self, parts: Parts, batch: Batch, *, ordered: bool = True) -> None:
        super().__init__(parts)
        self._batch = batch
        self._ordered = ordered

    def work(self, run: Run) -> None:
        """Work on the records of a run in as few calls as can be; raises as `Handling.work`."""
        work = _Work(ordered=self._ordered)
        try:
            for record in run.begin_all():
                if not (work.keeps_others and work.must_wait(record)):
                    self._look_at(work, record)
            self._do(work)
            run.ended.extend(work.endings)  # all at once: while the call goes on, all of it runs
            run.running = ()
        finally:
            self._tally.tell()

    def _look_at(self, work: "_Work", record: Record) -> None:
        if record.provider is not None and self._waiting.must_wait(record):
            self._do(work)
            work.end(record, Ending.AGAIN)
            return
        try:
            call = self._reader.read(record)
        except SchemasUnavailable as error:
            self._do(work)  # what comes before it in its key does not have to wait for it
            work.end(record, self._settler.not_now(record, error))
            return
        if record.failed is not None or call.failure is not None:
            work.bad.append(call)
        elif call.route is None:
            self._tally.passed(call.label, "ignored")
            work.end(record, Ending.DONE)
        else:
            if work.bad and any(one.record.key == record.key is not None for one in work.bad):
                self._do(work)  # the outcome of a bad one is safe before the next of its key begins
                if work.must_wait(record):
                    return
            work.good.append(call)

    def _do(self, work: "_Work") -> None:
        """Work on what was read: no good one comes behind a bad one of its key."""
        good, bad, work.good, work.bad = work.good, work.bad, [], []
        self._perform(work, good)
        for call in bad:
            if not work.must_wait(call.record):
                ending = self._settle(call)
                work.end(call.record, ending)
                if call.record.is_suspect:
                    self._effects.leave(call, ending)

    def _perform(self, work: "_Work", calls: Sequence[Call]) -> None:
        if calls := work.that_may_begin(calls):
            self._perform_all(work, calls)
            if calls[0].record.is_suspect:
                self._effects.leave(calls[0], work.endings[-1][1])

    def _perform_all(self, work: "_Work", calls: Sequence[Call]) -> None:
        started = self._clock.monotonic()
        try:
            if calls[0].record.is_suspect:  # then it is alone in the call
                self._effects.begin(calls[0])
                if work.is_over(calls[0]):
                    return
            outcomes = self._effects.perform_batch(calls, self._batch, self._context)
        except BaseException as error:
            raise_if_abandoned(error)
            if len(calls) == 1:
                self._tally.read(calls[0].label)
                work.end(calls[0].record, failed(calls[0], error, self._effects, self._settler, self._waiting))
            elif (waits := next((call.record for call in calls if call.record.provider is not None), None)) is not None:
                for call in calls:
                    call.record.provider, call.record.again_at = waits.provider, waits.again_at
                    work.end(call.record, Ending.AGAIN)
            elif isinstance(error, NotNow) or self._effects.is_away(error.__cause__ or error, None):
                for call in calls:
                    work.end(call.record, Ending.AGAIN)
                self._settler.not_now(calls[0].record, error)
            else:
                half = len(calls) // 2
                self._perform(work, calls[:half])
                self._perform(work, calls[half:])
            return
        each = (self._clock.monotonic() - started) / len(calls)
        for (label, outcome), count in Counter(zip([call.label for call in calls], outcomes, strict=True)).items():
            self._tally.handled(label, outcome, each, count)
        work.end_all([call.record for call in calls])

    def _settle(self, call: Call) -> Ending:
        if call.record.failed is not None:
            self._tally.read(call.label)
            return self._settler.end(call, call.record.failed)
        try:
            verdict = self._effects.begin(call)
        except BaseException as error:
            self._tally.read(call.label)
            return failed(call, error, self._effects, self._settler, self._waiting)
        self._tally.passed(call.label, verdict or "ignored")
        return Ending.DONE


class _Work:
    """One run: what was read of it, how its records end, and which keys wait because one of their records does.

    The endings of a key are in the order of its records: those that run again keep it.

    Args:
        ordered: whether those behind a record that is retried wait for it.
    """

    def __init__(self, *, ordered: bool) -> None:
        self.good: list[Call] = []
        self.bad: list[Call] = []
        self.endings: list[tuple[Record, Ending]] = []
        self._ordered = ordered
        self._held: set[bytes] = set()
        self._left_for_retries: set[tuple[Order, bytes]] = set()

    def end(self, record: Record, ending: Ending) -> None:
        """Note how the work on a record ended."""
        if record.key is not None:
            if ending in (Ending.AGAIN, Ending.ALONE):
                self._held.add(record.key)
            elif self._ordered and (record.moved is not None or (record.held and not record.lifted)):
                self._left_for_retries.add((record.order, record.key))
        self.endings.append((record, ending))

    def end_all(self, records: Sequence[Record]) -> None:
        """Note that all of these are done."""
        if any(record.held or record.moved is not None for record in records):
            for record in records:
                self.end(record, Ending.DONE)
        else:
            self.endings += [(record, Ending.DONE) for record in records]

    @property
    def keeps_others(self) -> bool:
        """Whether any record has to wait for one before it."""
        return bool(self._held or self._left_for_retries)

    def that_may_begin(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Those that still belong to this member and have to wait for none."""
        if not self.keeps_others and all(call.record.owned.active for call in calls):
            return calls
        return [call for call in calls if not self.must_wait(call.record) and not self.is_over(call)]

    def is_over(self, call: Call) -> bool:
        """Whether its partition was revoked while others of the run were worked on: then another member begins it."""
        if call.record.owned.active:
            return False
        self.end(call.record, Ending.LEFT)
        return True

    def must_wait(self, record: Record) -> bool:
        """Whether an earlier record of its key runs again, now or as a retry; then so does this one, after it."""
        if record.key in self._held:
            self.end(record, Ending.AGAIN)
        elif record.key is not None and (record.order, record.key) in self._left_for_retries:
            self.end(record, Ending.BEHIND)
        else:
            return False
        return True
