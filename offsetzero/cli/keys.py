"""`offsetzero keys`: the API keys of tenants."""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from offsetzero.cli import database

if TYPE_CHECKING:
    from offsetzero.store.tenants import KeyInfo

app = typer.Typer(no_args_is_help=True, help="API keys of tenants: create, list, revoke.")

_MAX_NAME = 200


@app.command("create")
def create(
    tenant: Annotated[str, typer.Argument(help="Whose documents the key opens: letters, digits, '_' or '-'.")],
    name: Annotated[str, typer.Option(help="What the key is for, to find it in the list.")] = "",
    role: Annotated[Literal["reader", "writer"], typer.Option(help="What it may do: only read, or all.")] = "writer",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Make a key and print it, once: only its hash is stored.

    Standard output gets the key alone, so that `KEY=$(offsetzero keys create acme)` works.
    """
    from offsetzero.store import tenants

    if len(name) > _MAX_NAME or not name.isprintable():
        raise typer.BadParameter(f"one line of {_MAX_NAME} characters at most", param_hint="--name")
    with database.opened() as connection:
        key = tenants.create_key(connection, tenant, name, tenants.Role(role))
    if as_json:
        print(json.dumps({"key": key, "id": tenants.id_of(key), "tenant": tenant, "name": name, "role": role}))
        return
    print(key)
    print(
        f"This is the key of tenant {tenant}; it is not stored and cannot be shown again. "
        f"Its id is {tenants.id_of(key)}: `offsetzero keys revoke {tenants.id_of(key)}` ends it.",
        file=sys.stderr,
    )


@app.command("list")
def list_keys(
    tenant: Annotated[str | None, typer.Argument(help="Of this tenant only.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
) -> None:
    """List the keys with their ids, never the keys themselves; revoked ones too."""
    from offsetzero.cli import rows
    from offsetzero.store import tenants
    from offsetzero.store.script import run

    with database.opened() as connection:
        found = [_row(info) for info in run(connection, tenants.keys(tenant))]
    if as_json:
        print(json.dumps(found, indent=2))
        return
    if not found:
        print("No keys" + (f" of tenant {tenant}" if tenant else "") + ": `offsetzero keys create TENANT` makes one.")
        return
    columns = ("id", "tenant", "hint", "role", "created_at", "revoked_at", "name")
    rows.show(columns, [[row[column] or "-" for column in columns] for row in found], first=5)


@app.command("revoke")
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `keys list` shows it.")],
) -> None:
    """End a key at once. The list keeps it, with the time."""
    from offsetzero.errors import ConfigurationError
    from offsetzero.store import tenants
    from offsetzero.store.script import run

    with database.opened() as connection:
        ended = run(connection, tenants.revoke_by_id(key_id))
        known = [] if ended else [one for one in run(connection, tenants.keys()) if one.id == key_id]
    if known:
        when = _row(known[0])["revoked_at"]
        raise ConfigurationError(f"key {key_id} of tenant {known[0].tenant_id} was revoked at {when} already")
    if ended is None:
        said = "that is a key, not its id" if key_id.startswith(tenants.PREFIX) else f"there is no key {key_id}"
        raise ConfigurationError(f"{said}; `offsetzero keys list` shows the ids")
    print(f"Revoked: key {ended.id} ({ended.hint}) of tenant {ended.tenant_id}.")


def _row(info: "KeyInfo") -> dict[str, Any]:
    return {
        "id": info.id,
        "tenant": info.tenant_id,
        "name": info.name,
        "hint": info.hint,
        "role": info.role.value,
        "created_at": info.created_at.isoformat(timespec="seconds"),
        "revoked_at": info.revoked_at.isoformat(timespec="seconds") if info.revoked_at else None,
    }
