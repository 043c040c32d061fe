"""Finds a consumer group by the name that people type."""

import importlib
import sys
from pathlib import Path

from offsetzero.consumers.group import ConsumerGroup
from offsetzero.errors import ConfigurationError

BUILT_IN = {
    "indexer": "offsetzero.consumers.groups.indexer:group",
    "summariser": "offsetzero.consumers.groups.summariser:group",
    "notifier": "offsetzero.consumers.groups.notifier:group",
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
        known = ", ".join(BUILT_IN)
        raise ConfigurationError(
            f"group {name!r}: not one of {known}; name one of your own as package.module:attribute"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise ConfigurationError(
                f"group {name!r}: {module_name} needs the package {error.name!r}, which is not installed"
            ) from error
        raise ConfigurationError(f"group {name!r}: there is no module {module_name} in {here} or installed") from error
    group = getattr(module, attribute, None)
    if not isinstance(group, ConsumerGroup):
        found = [key for key, value in vars(module).items() if isinstance(value, ConsumerGroup)]
        hint = f"; it has {', '.join(found)}" if found else ""
        raise ConfigurationError(f"group {name!r}: {module_name} has no ConsumerGroup named {attribute!r}{hint}")
    return group
