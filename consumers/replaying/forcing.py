"""What `replay --force` means for a group: decided from its declaration, with no I/O."""

from enum import StrEnum

from offsetzero.consumers.group import ConsumerGroup
from offsetzero.errors import ConfigurationError


class Forcing(StrEnum):
    """How what is done is done again."""

    REBUILD = "rebuild"
    """A projection is made anew, all of it, beside the one that is read."""
    GENERATION = "generation"
    """The records are handled again in a generation that is opened for them; the outcomes of others stay theirs."""


def meant(group: ConsumerGroup, *, whole: bool) -> Forcing:
    """What is to be done.

    Args:
        group: the declaration.
        whole: whether all that is retained is meant: `--from earliest`, and nothing that leaves a part of it out.

    Raises:
        ConfigurationError: it cannot be, with what to do instead.
    """
    if group.projection is not None:
        if not whole:
            raise ConfigurationError(
                f"--force: group {group.name} is a projection: its tables are made of all of the log, and cannot have a"
                f" part of it twice. `offsetzero rebuild {group.name}` makes them anew, and so does --force with"
                " --from earliest alone"
            )
        return Forcing.REBUILD
    if not group.database:
        raise ConfigurationError(f"--force: group {group.name} keeps no outcomes: without it all is done again, too")
    return Forcing.GENERATION
