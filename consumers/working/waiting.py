"""Records that wait for a provider: they keep their place and their attempt, and their run shows why it waits."""

import functools
from collections.abc import Callable

from offsetzero import logs
from offsetzero.clock import Clock
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.record import Record
from offsetzero.consumers.resources import Spawn
from offsetzero.consumers.working import steps
from offsetzero.consumers.working.calls import Call
from offsetzero.consumers.working.run import Ending
from offsetzero.consumers.working.standing import Fence
from offsetzero.consumers.working.steps import Lessee
from offsetzero.retry.breaker import Caller
from offsetzero.retry.keeper import Keeper
from offsetzero.retry.protection import Limits, Wait
from offsetzero.retry.provider_calls import ProviderCall
from offsetzero.retry.provider_stores import OwnStore, SharedStore
from offsetzero.settings import ProviderSettings
from offsetzero.store.database import Pool
from offsetzero.store.script import run

REASON = "provider"
"""Of a step that waits."""

log = logs.get(__name__)


class Waiting:
    """One for all workers of a member.

    Args:
        group: whose handlers call.
        settings: limits of providers.
        pool: of a group with a database, where all processes meet.
        clock: when a next try is of use.
        spawn: makes the thread that asks for all.
        crashed: told of an error that no rule explains.
        fence: what its transactions have besides.
        lessee: as its group's step of runs is leased; None for a group that is no step.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        settings: ProviderSettings,
        pool: Pool | None,
        clock: Clock,
        spawn: Spawn,
        crashed: Callable[[BaseException], None],
        fence: Fence | None = None,
        lessee: Lessee | None = None,
    ) -> None:
        self._group = group
        self._fence = fence or Fence()
        self._lessee = lessee
        self._settings = settings
        self._pool = pool
        store = SharedStore(pool) if pool is not None else OwnStore(clock)
        self._keeper = Keeper(store, self._limits, clock, spawn, crashed)
        self.shown = self._keeper.shown
        self.close = self._keeper.close

    def told(self) -> list[str]:
        """A sentence for each provider that is down."""
        return [
            f"the provider {name} is down ({one['cause']}): what needs it waits"
            for name, one in self.shown().items()
            if one["cause"]
        ]

    def call(self, name: str, handled: Call) -> ProviderCall:
        """A call of a provider for the event in work."""
        caller = Caller(handled.idempotency_key, handled.meta.tenant_id or "")
        return ProviderCall(
            self._keeper, name, caller, functools.partial(self._note, handled.record), self._group.rules
        )

    def must_wait(self, record: Record) -> bool:
        """Whether a record that waits for a provider need not be begun yet; asks nobody."""
        if record.provider is None:
            return False
        if (wait := self._keeper.hold_back(record.provider)) is None:
            record.provider = None
            return False
        self._note(record, record.provider, wait)
        return True

    def show(self, call: Call) -> Ending:
        """Have the group's step of the run say that it waits, and why; what the database takes now."""
        if self._pool is not None and self._lessee is not None and call.run_id is not None:
            said = f"{call.record.provider} cannot be called now; it is tried again, and no attempt is counted."
            try:
                with self._pool.connection() as connection:
                    if run(connection, self._fence.enter()).is_read:
                        run(connection, steps.wait(call, self._lessee, reason=REASON, detail=said, due_ms=None))
            except Exception as error:  # whatever it is: the record waits all the same
                log.debug("a run does not show that it waits", run_id=str(call.run_id), error=str(error))
        return Ending.AGAIN

    def _note(self, record: Record, name: str, wait: Wait) -> None:
        record.provider = name
        record.again_at = self._keeper.slot(name, wait)

    def _limits(self, name: str) -> Limits:
        return Limits.of(self._settings, name)
