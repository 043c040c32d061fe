"""Where the one value of each provider is: a row that all processes share, or the memory of this one."""

from offsetzero import logs
from offsetzero.clock import Clock
from offsetzero.retry.keeper import Decide
from offsetzero.retry.protection import Protection
from offsetzero.store import providers
from offsetzero.store.database import Pool

ANSWER_SECONDS = 5.0  # for a connection

log = logs.get(__name__)


class SharedStore:
    """The table `providers`; times are of the database's clock.

    Args:
        pool: one connection is used at a time, for a moment.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def change(self, name: str, decide: Decide) -> None:
        def decide_json(state: providers.State | None, now: float) -> providers.State | None:
            known = decide(_read(name, state), now)
            return known.to_json() if known is not None else None

        with self._pool.connection(ANSWER_SECONDS) as connection:
            providers.change(connection, name, decide_json)


def _read(name: str, state: providers.State | None) -> Protection | None:
    """What is stored; a version of ours that writes it otherwise has everything counted anew."""
    try:
        return Protection.from_json(state) if state is not None else None
    except (KeyError, TypeError, ValueError, AttributeError):
        log.warning("what is stored of a provider cannot be read: it begins anew", provider=name)
        return None


class OwnStore:
    """For a group without a database: limits hold in this process alone.

    Args:
        clock: monotonic.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, Protection] = {}

    def change(self, name: str, decide: Decide) -> None:
        if (known := decide(self._known.get(name), self._clock.monotonic())) is not None:
            self._known[name] = known
