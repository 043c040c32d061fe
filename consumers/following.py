"""A member of a projection that works for whichever generation is read."""

from collections.abc import Callable

from offsetzero import logs, metrics
from offsetzero.consumers.record import Record
from offsetzero.consumers.runtime import GroupRuntime
from offsetzero.consumers.watching.health import Health

log = logs.get(__name__)


class FollowingMember:
    """Runs one member after the other in this process: when the pointer moves, the one that is there ends in order, and
    another begins for the generation that is read now.

    Args:
        make: makes a member for the generation that is read.
    """

    def __init__(self, make: Callable[[], GroupRuntime]) -> None:
        self._make = make
        self._member = make()
        self._stopped = False

    @property
    def name(self) -> str:
        """Of the group."""
        return self._member.name

    def run(self) -> list[Record]:
        """Work until `stop`; see `GroupRuntime.run`."""
        while True:
            left = self._member.run()
            if self._stopped or self._member.moved_to is None:
                return left
            log.info("another generation is read", group=self.name, generation=self._member.moved_to)
            metrics.forget(self._member.known_as)
            self._member = self._make()
            if self._stopped:  # between the two lines above: it was the last one that was told
                self._member.stop()

    def stop(self) -> None:
        """Ask `run` to end; any thread or signal handler may call this."""
        self._stopped = True
        self._member.stop()

    def health(self) -> Health:
        """How the member is that runs now."""
        return self._member.health()

    def running(self) -> int:
        """How many handlers run now."""
        return self._member.running()

    def stands(self) -> list[tuple[str, int, int, int]] | None:
        """As `GroupRuntime.stands`."""
        return self._member.stands()
