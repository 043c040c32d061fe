"""Receive one file as multipart/form-data: streamed to a temporary file, with the limit held while reading.

The framework's own parser reads a whole request, of any size, before it asks whose it is.
"""

import hashlib
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import IO

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from offsetzero.api.problems import Problem
from offsetzero.consumers.groups.documents import formats
from offsetzero.consumers.groups.documents.cleaning import clean_line

FIELD = "file"
IN_MEMORY = 1024 * 1024
_ENVELOPE = 64 * 1024  # bytes around the file: boundaries, headers, small fields
_MAX_PARTS = 20


@dataclass(slots=True)
class Upload:
    """A received file; `file` stands anywhere and is closed with the request."""

    file: IO[bytes]
    name: str
    content_type: str
    size_bytes: int = 0
    sha256: str = ""


@asynccontextmanager
async def receive(request: Request, limit: int) -> AsyncIterator[Upload]:
    """The file in the field `file` of a request.

    A refusal is answered at once; what the client still sends is read and dropped by the server.

    Args:
        limit: most bytes of the file.

    Raises:
        Problem: 413 over the limit, 415 for a type that is not taken, 422 without a file or for an empty one,
            400 for a body that is no multipart/form-data.
    """
    with tempfile.SpooledTemporaryFile(IN_MEMORY) as file:
        yield await _read(request, file, limit)


async def _read(request: Request, file: IO[bytes], limit: int) -> Upload:
    kind, options = parse_options_header(request.headers.get("content-type"))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise Problem(
            415, "not-multipart", f"send the file as multipart/form-data in the field {FIELD!r}, or its URI as JSON"
        )
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit + _ENVELOPE:
        raise too_large(limit)
    form = _Form(file, limit)
    received = 0
    try:
        parser = MultipartParser(boundary, form.callbacks())  # type: ignore[arg-type]
        async for chunk in request.stream():
            received += len(chunk)
            if received > limit + _ENVELOPE:
                raise too_large(limit)
            parser.write(chunk)
        parser.finalize()
    except FormParserError as error:
        raise Problem(400, "malformed-body", f"the body is not multipart/form-data: {error}") from error
    if not form.complete:
        raise Problem(400, "malformed-body", "the body ends before its last boundary")
    return form.upload()


@dataclass(slots=True)
class _Form:
    """The parser's callbacks. Other fields than the file are skipped."""

    file: IO[bytes]
    limit: int
    complete: bool = False
    _headers: dict[bytes, bytes] = field(default_factory=dict)
    _name: bytes = b""
    _value: bytes = b""
    _parts: int = 0
    _found: Upload | None = None
    _inside: bool = False
    _digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def callbacks(self) -> dict[str, Callable[..., None]]:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._on_name,
            "on_header_value": self._on_value,
            "on_header_end": self._on_header,
            "on_headers_finished": self._on_headers,
            "on_part_data": self._on_data,
            "on_part_end": self._on_end,
            "on_end": self._on_complete,
        }

    def upload(self) -> Upload:
        if self._found is None:
            raise Problem(422, "no-file", f"the request has no file in the field {FIELD!r}")
        if self._found.size_bytes == 0:
            raise empty(self._found.name)
        self._found.sha256 = self._digest.hexdigest()
        return self._found

    def _begin(self) -> None:
        self._headers, self._name, self._value = {}, b"", b""
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise Problem(400, "malformed-body", f"the request has more than {_MAX_PARTS} parts")

    def _on_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name, self._value = b"", b""

    def _on_headers(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition"))
        if options.get(b"name") != FIELD.encode():
            return
        if self._found is not None:
            raise Problem(422, "several-files", f"the request has more than one file in the field {FIELD!r}")
        name = file_name(options.get(b"filename", b""))
        self._found = Upload(self.file, name, content_type_of(self._headers.get(b"content-type", b""), name))
        self._inside = True

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        if not self._inside or self._found is None:
            return
        self._found.size_bytes += end - start
        if self._found.size_bytes > self.limit:
            raise too_large(self.limit)
        self._digest.update(data[start:end])
        self.file.write(data[start:end])

    def _on_end(self) -> None:
        self._inside = False

    def _on_complete(self) -> None:
        self.complete = True


def file_name(raw: bytes) -> str:
    """The last part of a name or a path, fit to be shown."""
    name = PurePosixPath(raw.decode("utf-8", "replace").replace("\\", "/")).name
    return clean_line(name)[:255] or "document"


def content_type_of(declared: bytes, name: str) -> str:
    """The type of a document, by what is declared and else by its name.

    Raises:
        Problem: 415.
    """
    kind = parse_options_header(declared)[0].decode("ascii", "replace").lower()
    found = formats.find(kind, name)
    if found is None:
        said = f"{name!r} is {kind or 'of an unknown type'!r}; accepted are {formats.ACCEPTED}"
        raise Problem(415, "unsupported-type", f"{said}. {_hint(name)}")
    return found.content_type


def _hint(name: str) -> str:
    shown = name if name.replace(".", "").replace("-", "").replace("_", "").isalnum() else "FILE"
    known = formats.find("", name)
    kind = known.content_type if known else "text/plain"
    return f"If it is one of these all the same, say so, with curl: -F '{FIELD}=@{shown};type={kind}'"


def empty(name: str) -> Problem:
    """The refusal of a file of no bytes."""
    return Problem(422, "empty-file", f"{name!r} is empty: there is nothing to work on")


def too_large(limit: int) -> Problem:
    """The refusal of one of too many."""
    return Problem(413, "too-large", f"the file is larger than {limit} bytes", max_bytes=limit)
