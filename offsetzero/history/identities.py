"""Which records of a file a topic has not got: compared by their digests, on disk, so that memory does not grow."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import IO, Self

DIGEST = 16
"""Bytes of the digest of a record's identity."""
_NUMBER = 8
_ENTRY = DIGEST + _NUMBER
_OF_TOPIC = b"\xff" * _NUMBER
_IN_MEMORY = 50_000
"""Records of the file in a bucket, of which one at a time is in memory, with about 150 bytes for each."""
_MOST = 256
_CHUNK = 4_096 * _ENTRY


class Identities:
    """The records of a file, and those of a topic, in buckets by the first bytes of their digests; a context manager.

    Args:
        expected: how many records the file has.
    """

    def __init__(self, expected: int) -> None:
        self._files = ExitStack()
        count = min(_MOST, max(1, -(-expected // _IN_MEMORY)))
        self._buckets: list[IO[bytes]] = [
            self._files.enter_context(tempfile.TemporaryFile(prefix="offsetzero-"))  # noqa: SIM115 - the stack closes it
            for _ in range(count)
        ]
        self.count = 0
        """Records of the file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    def add(self, digest: bytes) -> None:
        """The next record of the file."""
        self._bucket(digest).write(digest + self.count.to_bytes(_NUMBER, "big"))
        self.count += 1

    def take_out(self, digest: bytes) -> None:
        """A record of the topic; after all of the file."""
        self._bucket(digest).write(digest + _OF_TOPIC)

    def missing(self) -> "Missing":
        """Those of the file that the topic has not got; of each identity the first."""
        found = Missing(self.count)
        for bucket in self._buckets:
            firsts: dict[bytes, int] = {}
            bucket.seek(0)
            for digest, number in _entries(bucket):
                if number == _OF_TOPIC:
                    firsts.pop(digest, None)
                elif digest in firsts:
                    found.repeated += 1
                else:
                    firsts[digest] = int.from_bytes(number, "big")
            for one in firsts.values():
                found.add(one)
        return found

    def _bucket(self, digest: bytes) -> IO[bytes]:
        return self._buckets[int.from_bytes(digest[:2], "big") % len(self._buckets)]


class Missing:
    """Numbers of records of a file, from 0: a bit for each.

    Attributes:
        repeated: records of the file whose identity it has before them.
    """

    def __init__(self, count: int) -> None:
        self._bits = bytearray(-(-count // 8))
        self._count = 0
        self.repeated = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, number: int) -> bool:
        return bool(self._bits[number >> 3] >> (number & 7) & 1)

    def add(self, number: int) -> None:
        """Have a number in it that is not."""
        self._bits[number >> 3] |= 1 << (number & 7)
        self._count += 1


def _entries(bucket: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
    while chunk := bucket.read(_CHUNK):
        for at in range(0, len(chunk), _ENTRY):
            yield chunk[at : at + DIGEST], chunk[at + DIGEST : at + _ENTRY]
