"""`offsetzero settings`: every setting, what it is here, and what it is for."""

import json
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from offsetzero.settings import PREFIX, Settings, load

_SECRET = re.compile(r"password|secret|jaas|key\.pem|client\.credentials|oauthbearer\.config")
"""Names of librdkafka's properties whose values are nobody's business."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable of the environment."""

    name: str
    default: str
    value: str
    description: str


def settings(
    markdown: Annotated[bool, typer.Option("--markdown", help="As the table of docs/configuration.md.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
) -> None:
    """List every setting with its value here; passwords and keys are not shown."""
    if markdown:
        print(table())
        return
    rows = list(_rows(Settings, load()))
    if as_json:
        fields = ("name", "value", "default", "description")
        print(json.dumps([{name: getattr(row, name) for name in fields} for row in rows], indent=2))
        return
    for row in rows:
        print(_line(row))


def _line(row: Setting) -> str:
    """A setting as a shell takes it, and what it is for: below it in a terminal, on the same line for grep."""
    changed = f" (default: {row.default})" if row.default not in ("", row.value) else ""
    assignment = f"{row.name}={shlex.quote(row.value) if row.value else ''}"
    description = row.description.replace("`", "") + changed
    if not sys.stdout.isatty():
        return f"{assignment}  # {description}"
    width = max(40, shutil.get_terminal_size().columns - 4)
    return f"{assignment}\n{textwrap.indent(textwrap.fill(description, width), '    ')}"


def table() -> str:
    """The settings as a Markdown table."""
    lines = ["| variable | default | what it is |", "|---|---|---|"]
    for row in _rows(Settings, None):
        default = f"`{row.default}`" if row.default else ""
        lines.append(f"| `{row.name}` | {default} | {row.description.replace('|', '&#124;')} |")
    return "\n".join(lines)


def _rows(model: type[BaseModel], given: BaseModel | None, prefix: str = PREFIX) -> Iterator[Setting]:
    for name, field in model.model_fields.items():
        value = getattr(given, name) if given is not None else None
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _rows(kind, value, f"{prefix}{name.upper()}__")
            continue
        description = " ".join((field.description or "").split())
        yield Setting(prefix + name.upper(), _default(field), _shown(value), description)


def _default(field: FieldInfo) -> str:
    return "" if field.default_factory is not None else _shown(field.default)


def _shown(value: Any) -> str:
    if isinstance(value, SecretStr):
        return "********" if value.get_secret_value() else ""
    if isinstance(value, dict):
        return json.dumps({name: "********" if _SECRET.search(name) else one for name, one in value.items()})
    if isinstance(value, list):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
