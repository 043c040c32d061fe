"""Finds a consumer group by the name that people type."""

from offsetzero.consumers.group import ConsumerGroup
from offsetzero.errors import ConfigurationError
from offsetzero.imports import import_module

BUILT_IN = {
    "indexer": "offsetzero.consumers.groups.indexer:group",
    "summariser": "offsetzero.consumers.groups.summariser:group",
    "notifier": "offsetzero.consumers.groups.notifier:group",
    "catalogue": "offsetzero.consumers.groups.catalogue:group",
}


def load(name: str) -> ConsumerGroup:
    """The group that comes with this package under `name`, or that `package.module:attribute` holds.

    Modules are looked for in the current folder too, as `python -m` does.

    Raises:
        ConfigurationError: there is none, with what was looked for and where.
    """
    target = BUILT_IN.get(name, name)
    module_name, colon, attribute = target.partition(":")
    if not colon:
        known = ", ".join([*BUILT_IN, "ledger", "usage"])
        raise ConfigurationError(
            f"group {name!r}: not one of {known}; name one of your own as package.module:attribute"
        )
    module = import_module(module_name)
    group = getattr(module, attribute, None)
    if not isinstance(group, ConsumerGroup):
        found = [key for key, value in vars(module).items() if isinstance(value, ConsumerGroup)]
        hint = f"; it has {', '.join(found)}" if found else ""
        raise ConfigurationError(f"group {name!r}: {module_name} has no ConsumerGroup named {attribute!r}{hint}")
    return group
