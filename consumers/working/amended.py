"""What operators have decided about events of a projection, as a member that runs knows it."""

from typing import Any

import psycopg

from offsetzero.store import amendments
from offsetzero.store.amendments import Amendments
from offsetzero.store.script import run


class Amended:
    """One thread looks, all others read `events`: what was decided holds for what is read afterwards.

    Args:
        group: its name.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._mark: object = None
        self.events: Amendments = amendments.NONE
        """As of the last look; never changed, but replaced."""

    def look(self, connection: psycopg.Connection[Any]) -> None:
        """Ask the database, if anything was decided since the last time."""
        mark = run(connection, amendments.mark(self._group))  # first: what comes between is found at the next look
        if mark != self._mark:
            self.events = run(connection, amendments.of_group(self._group))
            self._mark = mark
