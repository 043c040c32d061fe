"""What `offsetzero rebuild` does before the switch: plans, and fills a generation with processes of its own."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import psycopg

from offsetzero.cli.catching_up import Pace, Sight
from offsetzero.cli.rebuild_members import Members
from offsetzero.clock import SYSTEM
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.rebuilding import beginning, indexing
from offsetzero.consumers.rebuilding.alone import Alone
from offsetzero.consumers.rebuilding.reach import Reach, look
from offsetzero.errors import RebuildRefused, TopicError
from offsetzero.generation import Generation
from offsetzero.history import missing
from offsetzero.settings import Settings
from offsetzero.store import generations, switches
from offsetzero.store.availability import is_away
from offsetzero.store.database import Connection, session
from offsetzero.store.generations import Known
from offsetzero.store.script import run

LOOK_SECONDS = 0.5
NEAR_SECONDS = 1.0  # of reading that may be left when a switch is tried
AWAY_SECONDS = 300.0  # for the database, or the cluster, to come back


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be done.

    Attributes:
        read: the generation that is read.
        target: the one that is to be; its number, if it exists.
        back: whether that was read before.
        reach: how far it is.
        gone: what it will not see, in sentences.
    """

    read: Known
    target: Known | None
    back: bool
    reach: Reach
    gone: Sequence[str]


class Rebuild:
    """One rebuild of one group.

    Args:
        settings: name the servers.
        group: the declaration; it is a projection.
        name: of the group, as it was typed: its members are started with it.
        say: told what goes on, in sentences.
    """

    def __init__(self, settings: Settings, group: ConsumerGroup, name: str, say: Callable[[str], None]) -> None:
        self.group = group
        self.settings = settings
        self.name = name
        self.say = say
        self.topics = group.topics()
        self.tiers = [tier.name for tier in group.policy(settings).tiers]
        self.alone = Alone(settings, group.name, say)

    @property
    def connection(self) -> Connection:
        """To the database, in autocommit; another one after an outage."""
        return self.alone.connection

    def close(self) -> None:
        """Let go of the database."""
        self.alone.close()

    def plan(self, *, back: bool) -> Plan:
        """What would be done; nothing is changed.

        Args:
            back: to the generation that was read before.

        Raises:
            RebuildRefused: there is nothing to go back to, or the group has never run.
            TopicError: a source is missing, or the cluster does not answer.
        """
        found = beginning.known(self.connection, self.group.name)
        read = next(one for one in found if one.is_read)
        if back:
            before = run(self.connection, switches.before(self.group.name))
            target = next((one for one in found if one.number == before and not one.is_read), None)
            if target is None:
                raise RebuildRefused(
                    f"group {self.group.name}: none of the generations that were read before is left to go back to"
                )
        else:
            target = beginning.unfinished(found)
        number = target.number if target is not None else 0
        reach = look(self.settings, self.connection, Generation(self.group.name, number), self.topics)
        return Plan(read, target, back, reach, self.unseen() if target is None else [])

    def unseen(self) -> list[str]:
        """What one that begins now will not see, in sentences."""
        found = missing.from_zero(self.settings, self.topics)
        return [f"{'It will not see all' if one.missing else 'Read from the archive first'}: {one}." for one in found]

    def begin(self, plan: Plan) -> Generation:
        """Be the only one, and make the tables where they are not made yet.

        Raises:
            RebuildRefused: somebody else rebuilds the group, or has done so since it was planned.
            ConfigurationError: the SQL of its projection is refused; or the one that was begun, or is to be read again,
                is not what the settings say.
        """
        if plan.target is not None:
            indexing.refuse_another(self.settings, self.group, plan.target)
        self.alone.begin()
        now = self.plan(back=plan.back)
        if (now.read, now.target) != (plan.read, plan.target):
            raise RebuildRefused(
                f"group {self.group.name}: another rebuild of it has changed its generations meanwhile; give the"
                " command again"
            )
        if plan.target is not None:
            return Generation(self.group.name, plan.target.number)
        return beginning.begin(self.settings, self.connection, self.group, self.tiers)

    def fill(
        self, generation: Generation, members: Members, shown: Callable[[Sight, int], None], *, whole: bool
    ) -> None:
        """Wait until a generation is near the end of the log.

        Args:
            generation: which.
            members: that read.
            shown: told how far it is, and how many records that is in all.
            whole: wait until it has read all that is in the log now.

        Raises:
            ServerError: a member has ended by itself.
            TopicError, psycopg.Error: the servers are away for too long.
        """
        pace, wanted = Pace(), None
        for reach in self._looks(generation, members):
            stands = [
                (topic, number, reach.end[topic, number] - reach.behind((topic, number), end), end)
                for (topic, number), end in reach.end.items()
            ]
            sight = pace.look(SYSTEM.monotonic(), stands)
            shown(sight, reach.total)
            wanted = wanted or reach.end
            if reach.lacks(wanted) == 0 or (not whole and reach.left <= NEAR_SECONDS * (sight.rate or 0.0)):
                return

    def is_read(self, generation: Generation) -> bool:
        """Whether readers have it, asked anew: whatever the own connection was interrupted in."""
        try:
            with session(self.settings, "offsetzero rebuild") as connection:
                return run(connection, generations.active(self.group.name)) == generation.number
        except psycopg.Error:
            return False

    def _looks(self, generation: Generation, members: Members) -> Iterator[Reach]:
        away_since: float | None = None
        while True:
            members.check()
            try:
                yield look(self.settings, self.connection, generation, self.topics)
                away_since = None
            except (psycopg.Error, TopicError) as error:
                now = SYSTEM.monotonic()
                away_since = now if away_since is None else away_since
                if now - away_since > AWAY_SECONDS or (isinstance(error, psycopg.Error) and not is_away(error)):
                    raise
                self.alone.mend()
            time.sleep(LOOK_SECONDS)
