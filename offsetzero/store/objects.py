"""The object store: content of documents stays out of the log, events carry its URI (claim check)."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import IO, Any, Protocol

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import ObjectStore, from_url

from offsetzero.errors import OffsetzeroError

_CHUNK = 1024 * 1024
_PART = 5 * 1024 * 1024  # the smallest that S3 takes; two at once bound the memory of an upload


class ObjectMissing(OffsetzeroError):
    """The object is not there, or the URI is not one of this store."""


class ObjectTooLarge(OffsetzeroError):
    """The object has more bytes than the caller can take."""


class Writable(Protocol):
    """Where bytes go."""

    def write(self, data: Any, /) -> object: ...


class Objects:
    """One store: a folder, or a bucket with an optional prefix.

    Args:
        url: `file://`, `s3://`, `gs://` or `az://`; credentials come from the environment, as for the
            clouds' own tools.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._store: ObjectStore = _open(self._url)

    def uri(self, key: str) -> str:
        """The URI of an object, to be put into an event."""
        return f"{self._url}/{key}"

    async def put(self, key: str, file: IO[bytes]) -> None:
        """Store a file from its start; visible only when it is complete."""
        await obstore.put_async(self._store, key, file, chunk_size=_PART, max_concurrency=2)

    async def delete(self, key: str) -> None:
        """Remove an object; one that is not there is no error."""
        try:
            await obstore.delete_async(self._store, key)
        except FileNotFoundError:
            return

    def write(self, key: str, file: IO[bytes]) -> None:
        """Store a file from where it stands; visible only when it is complete. Blocks."""
        obstore.put(self._store, key, file, chunk_size=_PART, max_concurrency=2)

    def create(self, key: str, content: bytes) -> bool:
        """Store an object that is not there yet.

        Returns:
            False when it was there: of many who try at once, one succeeds.
        """
        try:
            obstore.put(self._store, key, content, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    def read(self, key: str) -> bytes:
        """A small object, whole.

        Raises:
            ObjectMissing: it is not there.
        """
        try:
            return bytes(obstore.get(self._store, key).bytes())
        except FileNotFoundError as error:
            raise ObjectMissing(f"{self.uri(key)}: no such object") from error

    def remove(self, key: str) -> None:
        """As `delete`; blocks."""
        try:
            obstore.delete(self._store, key)
        except FileNotFoundError:
            return

    def keys(self, prefix: str, *, before: datetime | None = None) -> list[str]:
        """The keys that begin with a prefix of whole folders, in order.

        Args:
            prefix: the folders.
            before: only of objects that were written before that time.
        """
        found = (meta for page in obstore.list(self._store, prefix) for meta in page)
        return sorted(meta["path"] for meta in found if before is None or meta["last_modified"] < before)

    def download(self, uri: str, file: Writable, limit: int) -> None:
        """Write an object to a file, a megabyte at a time.

        Args:
            uri: as `uri()` gave it. Any other is refused: an event must not make this process read what lies
                outside the store.
            file: where it is written, from where the file stands.
            limit: most bytes of the object.

        Raises:
            ObjectMissing: it is not there, or not of this store.
            ObjectTooLarge: it is larger than the limit.
        """
        with _missing(uri):
            found = obstore.get(self._store, self.key(uri))
        _check_size(uri, found.meta["size"], limit)
        for chunk in found.stream(min_chunk_size=_CHUNK):
            file.write(chunk)

    async def fetch(self, uri: str, file: Writable, limit: int) -> None:
        """As `download`, and blocks nobody: the file is written in a thread."""
        with _missing(uri):
            found = await obstore.get_async(self._store, self.key(uri))
        _check_size(uri, found.meta["size"], limit)
        async for chunk in found.stream(min_chunk_size=_CHUNK):
            await asyncio.to_thread(file.write, chunk)

    def key(self, uri: str) -> str:
        """The key of a URI.

        Raises:
            ObjectMissing: it is not of this store.
        """
        key = uri.removeprefix(self._url + "/")
        if key == uri or any(part in ("", ".", "..") for part in key.split("/")):
            raise ObjectMissing(f"{uri}: not an object of this store ({self._url})")
        return key


@contextmanager
def _missing(uri: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, ValueError) as error:  # ValueError: no key may have such characters
        raise ObjectMissing(f"{uri}: no such object") from error


def _check_size(uri: str, size: int, limit: int) -> None:
    if size > limit:
        raise ObjectTooLarge(f"{uri}: the object has {size} bytes; at most {limit} are read")


@lru_cache(maxsize=8)
def _open(url: str) -> ObjectStore:
    return from_url(url, mkdir=True) if url.startswith("file://") else from_url(url)
