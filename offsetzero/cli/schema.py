"""`offsetzero schema`: freeze the contracts of events, and check them as CI does."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from offsetzero.schemas.event import Event

app = typer.Typer(no_args_is_help=True, help="Contracts of the events: freeze the next version, check them.")

Module = Annotated[
    str | None, typer.Option(help="Python module of your own events; by default those that come with offsetzero.")
]
Contracts = Annotated[Path | None, typer.Option(help="Folder of the contracts; needed with --module.", file_okay=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


@app.command()
def freeze(module: Module = None, contracts: Contracts = None, as_json: AsJson = False) -> None:
    """Write the next .avsc of every event model that has changed; refused when it would break anybody."""
    from offsetzero.schemas import freeze as freezing

    models, directory = _chosen(module, contracts)
    written = freezing.freeze(models, directory)
    if as_json:
        typer.echo(json.dumps([str(path) for path in written]))
        return
    for path in written:
        typer.echo(f"frozen  {path.relative_to(directory)}")
    if not written:
        typer.echo(f"{len(models)} event types, nothing has changed")


@app.command()
def check(module: Module = None, contracts: Contracts = None, as_json: AsJson = False) -> None:
    """Fail when a model differs from its newest contract, or a contract breaks an earlier one."""
    from offsetzero.schemas import freeze as freezing

    models, directory = _chosen(module, contracts)
    problems = freezing.check(models, directory)
    if as_json:
        typer.echo(json.dumps(problems))
    else:
        for problem in problems:
            typer.echo(problem, err=True)
        if not problems:
            typer.echo(f"{len(models)} event types agree with their contracts")
    if problems:
        raise typer.Exit(1)


def _chosen(module: str | None, contracts: Path | None) -> "tuple[Mapping[str, type[Event]], Path]":
    """The models and their folder; those of a module of the user's own, or those of the package."""
    from offsetzero.imports import import_module
    from offsetzero.schemas import frozen
    from offsetzero.schemas.codec import BUILT_IN
    from offsetzero.schemas.event import event_types

    if (module is None) != (contracts is None):
        raise typer.BadParameter("--module and --contracts belong together")
    if module is not None and contracts is not None:
        import_module(module)
        own = {name for built_in in BUILT_IN for name in _types_in(built_in.__name__)}
        return {name: model for name, model in event_types().items() if name not in own}, contracts
    names = {name for built_in in BUILT_IN for name in _types_in(built_in.__name__)}
    return {name: model for name, model in event_types().items() if name in names}, frozen.DIRECTORY


def _types_in(module: str) -> set[str]:
    from offsetzero.schemas.event import event_types

    return {name for name, model in event_types().items() if model.__module__ == module}
