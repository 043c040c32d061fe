"""What `offsetzero up` proposes to try: commands that work as they are when somebody pastes them."""

import os
import shlex
import shutil
import sys
from pathlib import Path

from offsetzero.settings import PREFIX, default_home

_EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "documents" / "handbook.pdf"
_TEXT = "The handbook: sort dead letters by reason."  # for an installed package, which has no examples
_QUERY = "dead+letters+by+reason"


def program() -> str:
    """How this program is called from another terminal: by name when PATH has it, else by its path."""
    own = Path(sys.executable).with_name("offsetzero")
    if not os.access(own, os.X_OK):
        return f"{shlex.quote(sys.executable)} -m offsetzero"
    found = shutil.which("offsetzero")
    return "offsetzero" if found and Path(found).samefile(own) else shlex.quote(str(own))


def commands(api: str, key: str, home: Path) -> list[tuple[str, list[str]]]:
    """Commands in groups, each with what they are for.

    Args:
        api: URL of the API.
        key: a key of it.
        home: the data folder.
    """
    name = program()
    found_by_itself = home == default_home().absolute()
    setting = "" if found_by_itself else f"{PREFIX}HOME={shlex.quote(str(home))} "
    authorized = f"curl -s -H 'Authorization: Bearer {key}'"
    upload = f"{authorized} -F file=@{shlex.quote(str(_EXAMPLE))} {api}/documents"
    if not _EXAMPLE.exists():
        file = "'file=@-;filename=handbook.txt;type=text/plain'"
        upload = f"echo {shlex.quote(_TEXT)} | {authorized} -F {file} {api}/documents"
    return [
        (
            "Groups and their lag, topics, dead letters:",
            [f"{setting}{name} {arguments}" for arguments in ("groups list", "topics list", "dlq list")],
        ),
        (
            "Upload a document, follow its run, search in it:",
            [upload, f"{authorized} '{api}/runs?limit=1'", f"{authorized} '{api}/search?q={_QUERY}'"],
        ),
    ]
