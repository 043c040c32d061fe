"""The frozen contracts: `contracts/<event type>/vN.avsc`, one file for every shape an event type ever had."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from offsetzero.errors import SchemaError
from offsetzero.schemas import writer
from offsetzero.schemas.writer import AvroSchema

DIRECTORY = Path(__file__).resolve().parent / "contracts"
"""The contracts of the events that come with offsetzero."""
_FILE = re.compile(r"v([1-9][0-9]*)\.avsc", re.ASCII)


@dataclass(frozen=True, slots=True)
class Contract:
    """One frozen version of an event type's schema."""

    event_type: str
    version: int
    schema: AvroSchema

    @property
    def label(self) -> str:
        return f"{self.event_type} v{self.version}"


def read(directory: Path = DIRECTORY) -> dict[str, list[Contract]]:
    """All contracts of a folder by event type, oldest first.

    Raises:
        SchemaError: a file that is no schema, a foreign file, or a gap in the versions.
    """
    found: dict[str, list[Contract]] = {}
    for folder in sorted(directory.iterdir()) if directory.is_dir() else ():
        if folder.is_dir():
            found[folder.name] = _read_type(folder)
    return found


def _read_type(folder: Path) -> list[Contract]:
    contracts: list[Contract] = []
    for path in folder.iterdir():
        match = _FILE.fullmatch(path.name)
        if match is None:
            raise SchemaError(f"{path}: not a contract; they are called v1.avsc, v2.avsc, …")
        try:
            schema = writer.load(path.read_text(encoding="utf-8"))
        except SchemaError as error:
            raise SchemaError(f"{path}: {error}") from error
        contracts.append(Contract(folder.name, int(match[1]), schema))
    contracts.sort(key=lambda contract: contract.version)
    versions = [contract.version for contract in contracts]
    if versions != list(range(1, len(versions) + 1)):
        raise SchemaError(f"{folder}: versions {versions} have a gap; a frozen contract is never removed")
    return contracts


@cache
def of_package() -> dict[str, list[Contract]]:
    """The contracts that come with offsetzero, read once."""
    return read()
