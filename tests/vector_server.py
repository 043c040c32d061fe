"""A server that speaks the protocol of embeddings, and computes vectors of words: what is near what is known.

Words of one line of `ALIKE` mean the same; every other word has a direction of its own, as far as there are dimensions.
"""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from local_http import LocalHttp, Received, Reply, serve

DIMENSIONS = 64
ALIKE = (
    ("car", "automobile", "vehicle"),
    ("physician", "doctor", "surgeon"),
    ("salary", "wage", "pay"),
    ("house", "home", "dwelling"),
)
_OF_WORD = {word: number for number, line in enumerate(ALIKE) for word in line}


def vector(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """The vector of a text: how often each meaning is in it, and a little of the same in all."""
    found = [0.0] * (dimensions - 1) + [0.1]
    for word in "".join(letter if letter.isalnum() else " " for letter in text.lower()).split():
        at = _OF_WORD.get(word)
        if at is None:
            at = len(ALIKE) + zlib.crc32(word.encode()) % (dimensions - 1 - len(ALIKE))
        found[at] += 1.0
    return found


class Vectors:
    """What was asked, and how it is answered.

    Attributes:
        texts: that were asked about, of calls that were answered with vectors, in order.
        instead: gives another answer than vectors, by the body of the request; None for vectors.
    """

    def __init__(self, models: Mapping[str, int]) -> None:
        self.models = dict(models)
        self.texts: list[str] = []
        self.instead: Callable[[dict[str, Any]], Reply | None] = lambda _body: None
        self.http: LocalHttp

    @property
    def url(self) -> str:
        return self.http.url + "/v1"

    @property
    def calls(self) -> int:
        return len(self.http.received)

    def answer(self, received: Received) -> Reply:
        body = json.loads(received.body)
        if (other := self.instead(body)) is not None:
            return other
        dimensions = self.models.get(body["model"])
        if received.path != "/v1/embeddings" or dimensions is None:
            return Reply(404, b'{"error": {"message": "no such model"}}')
        self.texts += body["input"]
        data = [
            {"object": "embedding", "index": at, "embedding": vector(text, body.get("dimensions", dimensions))}
            for at, text in enumerate(body["input"])
        ]
        used = sum(len(text.split()) for text in body["input"])
        return Reply(200, json.dumps({"data": data[::-1], "usage": {"prompt_tokens": used}}).encode())


@contextmanager
def serving(**models: int) -> Iterator[Vectors]:
    """Serve models, by their names, with their dimensions; by default one called `words`."""
    made = Vectors(models or {"words": DIMENSIONS})
    with serve(made.answer) as made.http:
        yield made
