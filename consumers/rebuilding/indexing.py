"""What a generation has by the settings: one that was made by others is refused; indexes that come after its rows."""

from offsetzero.consumers import projection
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.projection import Extra
from offsetzero.generation import Generation
from offsetzero.settings import Settings
from offsetzero.store.database import session
from offsetzero.store.generations import Known


def refuse_another(settings: Settings, group: ConsumerGroup, found: Known) -> None:
    """See that a generation is what the settings say; see `offsetzero.consumers.projection.refuse_another`."""
    projection.refuse_another(group.name, found, _extra(settings, group))


def differs(settings: Settings, group: ConsumerGroup, found: Known) -> bool:
    """Whether a generation was made with other settings: its members must be started anew with these."""
    return not projection.is_as_settings_say(found, _extra(settings, group))


def make(settings: Settings, group: ConsumerGroup, generation: Generation) -> list[str]:
    """Make the indexes that come when a generation has read the log, where it lacks them.

    Returns:
        The names of those that were made.

    Raises:
        psycopg.Error: PostgreSQL refuses, or is away; the same call does the rest.
    """
    if group.projection is None:
        return []
    with session(settings, "offsetzero rebuild") as connection:
        return projection.make_indexes(connection, generation, group.projection, _extra(settings, group))


def _extra(settings: Settings, group: ConsumerGroup) -> Extra | None:
    return group.projection.by_settings(settings) if group.projection is not None else None
