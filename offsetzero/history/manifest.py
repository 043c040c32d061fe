"""What stands beside an exported file: of which topic and offsets it is, and how it must look to be whole."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from offsetzero.errors import HistoryError

FORM = "offsetzero-log-export/1"
_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Part:
    """What the file has of a partition: the offsets from `first` to before `end`, in `records` records."""

    partition: int
    first: int
    end: int
    records: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """An export. Times are in milliseconds since 1970; `schemas` are writer schemas, by fingerprint."""

    kind: str
    topic: str
    topic_id: str
    partition_count: int
    parts: list[Part]
    records: int
    first_ms: int | None
    last_ms: int | None
    bytes: int
    sha256: str
    schemas: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """As JSON."""
        return json.dumps({"form": FORM, **asdict(self)}, indent=2) + "\n"


def beside(path: Path) -> Path:
    """Where the manifest of a file is."""
    return path.with_name(f"{path.name}.manifest.json")


def load(path: Path) -> Manifest:
    """The manifest of a file, which is there as the manifest says, byte for byte.

    Raises:
        HistoryError: there is no such file or manifest, or they do not belong together.
    """
    at = beside(path)
    try:
        fields: dict[str, Any] = json.loads(at.read_text())
        if fields.pop("form") != FORM:
            raise ValueError("another form")
        found = Manifest(**{**fields, "parts": [Part(**one) for one in fields["parts"]]})
    except FileNotFoundError:
        missing = path if not path.exists() else at
        raise HistoryError(f"{missing}: no such file; `offsetzero log export` writes a file and its manifest") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HistoryError(f"{at}: not the manifest of an export ({error})") from error
    try:
        size, digest = path.stat().st_size, sha256(path)
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror}") from None
    if size != found.bytes:
        raise HistoryError(f"{path}: {size:,} bytes, and its manifest says {found.bytes:,}: it was cut off or changed")
    if digest != found.sha256:
        raise HistoryError(f"{path}: its SHA-256 is not the one that its manifest says: it was changed")
    return found


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
