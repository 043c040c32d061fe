"""Imports a user's own module by name, from the current folder too, as `python -m` does."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

from offsetzero.errors import ConfigurationError


def import_module(name: str) -> ModuleType:
    """The module of that name.

    Raises:
        ConfigurationError: there is none, or it needs a package that is not installed.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigurationError(f"there is no module {name} in {here} or installed") from error
        package, dot, _ = (error.name or "").partition(".")
        if dot and package in sys.modules:
            raise ConfigurationError(f"{name} imports {error.name}, and {package} has no such module") from error
        raise ConfigurationError(f"{name} needs the package {error.name!r}, which is not installed") from error
