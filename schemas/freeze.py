"""Freezing contracts: the next `.avsc` of each model that has changed, and the check that CI runs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offsetzero.errors import IncompatibleSchema
from offsetzero.schemas import avro, frozen, writer
from offsetzero.schemas.compatibility import full_transitive
from offsetzero.schemas.event import Event
from offsetzero.schemas.frozen import Contract
from offsetzero.schemas.writer import AvroSchema


@dataclass(frozen=True, slots=True)
class Change:
    """A model whose schema is not the newest contract. `version` is the one to be written."""

    event_type: str
    version: int
    schema: AvroSchema
    problems: tuple[str, ...]
    """Why it may not be frozen: what it would break."""


def changes(models: Mapping[str, type[Event]], directory: Path = frozen.DIRECTORY) -> list[Change]:
    """The models that differ from their newest contract, or have none.

    A changed docstring is no difference.

    Raises:
        SchemaError: a model without an Avro form, or a folder that holds no contracts.
    """
    contracts = frozen.read(directory)
    found = []
    for event_type, model in sorted(models.items()):
        old = contracts.get(event_type, [])
        schema = writer.of(avro.schema_of(model))
        if old and _essence(old[-1].schema) == _essence(schema):
            continue
        problems = tuple(full_transitive(schema, old))
        found.append(Change(event_type, len(old) + 1, schema, problems))
    return found


def freeze(models: Mapping[str, type[Event]], directory: Path = frozen.DIRECTORY) -> list[Path]:
    """Write the next contract of every model that has changed; all or none.

    Returns:
        The files that were written.

    Raises:
        IncompatibleSchema: one of them would break old readers or old writers; nothing is written.
        SchemaError: as `changes`.
    """
    found = changes(models, directory)
    problems = [f"{change.event_type}: {problem}" for change in found for problem in change.problems]
    if problems:
        raise IncompatibleSchema(
            "nothing was frozen:\n"
            + "\n".join(f"  {problem}" for problem in problems)
            + "\nGive new fields a default; keep removed ones, or make a new event type."
        )
    written = []
    for change in found:
        path = directory / change.event_type / f"v{change.version}.avsc"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(json.loads(change.schema.text), indent=2, ensure_ascii=False) + "\n", "utf-8")
        written.append(path)
    return written


def check(models: Mapping[str, type[Event]], directory: Path = frozen.DIRECTORY) -> list[str]:
    """What is wrong with models and contracts, a line each; empty when all is well.

    Raises:
        SchemaError: as `changes`.
    """
    problems = []
    for change in changes(models, directory):
        problems += [f"{change.event_type}: {problem}" for problem in change.problems] or [
            f"{change.event_type}: the model is not frozen as v{change.version}; run `offsetzero schema freeze`"
        ]
    for event_type, contracts in frozen.read(directory).items():
        if event_type not in models:
            problems.append(f"{event_type}: has contracts but no model; the log still holds such events")
        problems += _inconsistent(contracts)
    return problems


def _inconsistent(contracts: list[Contract]) -> list[str]:
    """Contracts that could not have been frozen one after the other: a file was edited afterwards."""
    return [
        f"{contract.label}: {problem}"
        for number, contract in enumerate(contracts)
        for problem in full_transitive(contract.schema, contracts[:number])
    ]


def _essence(schema: AvroSchema) -> Any:
    return _without_docs(json.loads(schema.text))


def _without_docs(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_docs(value) for key, value in node.items() if key != "doc"}
    if isinstance(node, list):
        return [_without_docs(item) for item in node]
    return node
