"""Stands for an operator, who redrives or discards all dead letters that are open."""

from uuid import UUID

from offsetzero.retry import headers as retry_headers
from offsetzero.retry.headers import Origin
from simulation.clock import START_MS
from simulation.log import Stored, header
from simulation.plan import Effects, Kind
from simulation.world import DEAD, GROUP, REDRIVE, World


class Operator:
    """Works on one group.

    Args:
        world: has its dead letters.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._actions = 0
        self._sent: set[str] = set()  # places in the dead-letter topic

    def work(self, *, discard: bool = False) -> None:
        """Send back all that is open.

        Args:
            discard: to be ended unhandled. What nobody can read always is: to redrive it would be of no use.
        """
        world = self._world
        if world.plan.effects is not Effects.DATABASE:
            return  # only there an event that was redriven is told from one that was delivered twice
        events = world.plan.by_id
        sent = {record.event_id for place in world.log.places([REDRIVE]) for record in world.log[place].records}
        self._actions += 1
        for place in world.log.places([DEAD]):
            for letter in world.log[place].records:
                here = f"{place[1]}/{letter.offset}"
                if letter.event_id not in sent or (world.database.forced and here not in self._sent):  # dead once more
                    sent.add(letter.event_id)
                    self._sent.add(here)
                    self._send(letter, discard=discard or events[letter.event_id].behaviour.kind is Kind.POISON)

    def _send(self, letter: Stored, *, discard: bool) -> None:
        world = self._world
        now_ms = START_MS + round(world.baton.now * 1000)
        here = Origin("", DEAD, letter.partition, letter.offset)
        hop = retry_headers.redriven(
            retry_headers.read(letter.headers, here, letter.timestamp_ms), UUID(int=self._actions), discard=discard
        )
        headers = retry_headers.write(letter.headers, hop, None, GROUP)
        record = Stored.of((REDRIVE, letter.partition), letter.key, letter.value, headers, now_ms)
        world.laws.operates(record, "discarded" if header(headers, "oz_discard") else "applied")
        world.log.append(record)
        world.baton.say(f"an operator sends {record}{' to be discarded' if discard else ''}")
