"""The command line: one module a command family, imported when it is called."""

from offsetzero.cli.app import main

__all__ = ["main"]
