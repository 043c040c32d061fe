"""One call of an OpenAI-compatible endpoint for vectors (`POST …/embeddings`), and what its answer must be."""

import math
from collections.abc import Sequence
from typing import Any

from offsetzero.consumers.groups.model_endpoint import ModelEndpoint
from offsetzero.retry.failures import ProviderDown, Transient
from offsetzero.settings import EmbeddingSettings
from offsetzero.store.embeddings import Model

PROVIDER = "embeddings"
"""The endpoint, as limits and metrics name it, where the indexer calls it."""
QUERIES = "embeddings-queries"
"""And where searches do: they must not wait behind the texts of a rebuild."""
_BYTES_OF_NUMBER = 32  # in the JSON of an answer, with room to spare
_BYTES_BESIDES = 64 * 1024


def model_of(settings: EmbeddingSettings) -> Model:
    """The model that the settings name."""
    return Model(settings.model, settings.dimensions)


async def ask(
    endpoint: ModelEndpoint, texts: Sequence[str], model: Model, *, shorten: bool, idempotency_key: str
) -> dict[str, Any]:
    """Ask for the vectors of some texts; `read` tells them.

    Args:
        endpoint: where.
        texts: at least one.
        model: whose vectors.
        shorten: ask for the dimensions of `model`, which may have more.
        idempotency_key: see `ModelEndpoint.post`.

    Raises:
        httpx.HTTPStatusError, httpx.TransportError, Transient: see `ModelEndpoint.post`.
    """
    body: dict[str, Any] = {"model": model.name, "input": list(texts), "encoding_format": "float"}
    if shorten:
        body["dimensions"] = model.dimensions
    most = len(texts) * model.dimensions * _BYTES_OF_NUMBER + _BYTES_BESIDES
    return await endpoint.post("embeddings", body, idempotency_key=idempotency_key, max_answer=most)


def read(answer: dict[str, Any], count: int, model: Model) -> list[list[float]]:
    """The vectors of an answer, in the order of the texts, of length 1 each. Pure.

    Which text a vector is of is what its `index` says, wherever it stands.

    Args:
        answer: of the endpoint.
        count: of the texts.
        model: that was asked for.

    Raises:
        ProviderDown: `provider-dimensions`, the vectors have another length than the settings say: those of every
            text would, so none is failed for it.
        Transient: `provider-answer`, it does not have one usable vector for each text.
    """
    data = answer.get("data")
    if not isinstance(data, list) or len(data) != count:
        got = f"{len(data)} vectors" if isinstance(data, list) else "no vectors"
        raise Transient("provider-answer", f"the answer has {got} for {count} texts")
    found: dict[int, list[float]] = {}
    for item in data:
        at, vector = (item.get("index"), item.get("embedding")) if isinstance(item, dict) else (None, None)
        if type(at) is not int or not 0 <= at < count or at in found:
            raise Transient("provider-answer", "the answer does not say which vector is of which text")
        if not isinstance(vector, list) or not vector:
            raise Transient("provider-answer", f"the answer has no vector for text {at}")
        found[at] = _unit(vector, at, model)
    return [found[at] for at in range(count)]


def _unit(vector: list[Any], at: int, model: Model) -> list[float]:
    """The same direction with length 1: only that is compared, and it fits into numbers of two bytes."""
    if len(vector) != model.dimensions:
        raise ProviderDown(
            "provider-dimensions",
            f"vectors of the model {model.name} have {len(vector)} dimensions, and the settings say {model.dimensions}",
        )
    try:
        numbers = [float(number) if type(number) in (float, int) else math.nan for number in vector]
    except OverflowError:  # an integer of some hundred digits
        numbers = [math.nan]
    if not all(map(math.isfinite, numbers)):
        raise Transient("provider-answer", f"the vector of text {at} has something that is no finite number")
    if not 0 < (length := math.hypot(*numbers)) < math.inf:
        raise Transient("provider-answer", f"the vector of text {at} has no direction")
    return [number / length for number in numbers]
