"""Vectors of texts: how texts become calls, and which answers of an endpoint are none."""

import asyncio
import itertools
import json
import math
from contextlib import AsyncExitStack
from typing import Any

import pytest
import sick_servers
from hypothesis import given
from hypothesis import strategies as st
from local_http import Reply, serve

from offsetzero.consumers.groups.embeddings import ask, batches, read
from offsetzero.consumers.groups.model_endpoint import ModelEndpoint
from offsetzero.retry.classify import classify
from offsetzero.retry.failures import Failure, FailureClass, ProviderDown, Transient
from offsetzero.settings import EmbeddingSettings
from offsetzero.store.embeddings import Model

MODEL = Model("words", 2)


def _answer(*items: Any) -> dict[str, Any]:
    return {"data": list(items)}


def _one(index: Any = 0, embedding: Any = (3, 4)) -> dict[str, Any]:
    return {"index": index, "embedding": list(embedding) if isinstance(embedding, tuple) else embedding}


@given(st.lists(st.text(max_size=30)), st.integers(1, 5), st.integers(1, 60))
def test_batches_have_all_texts_in_order_within_both_limits(texts: list[str], most: int, size: int) -> None:
    found = list(batches.split(texts, most, size))
    assert [text for batch in found for text in batch] == texts
    for batch in found:
        assert 1 <= len(batch) <= most
        assert len(batch) == 1 or sum(len(text.encode()) for text in batch) <= size
    for batch, after in itertools.pairwise(found):
        full = sum(len(text.encode()) for text in [*batch, after[0]]) > size
        assert len(batch) == most or full, "a batch that another text would have gone into"


def test_vectors_go_to_the_texts_that_their_index_names_and_have_the_length_one() -> None:
    assert read(_answer(_one(1, (0, -2)), _one(0)), 2, MODEL) == [[0.6, 0.8], [0.0, -1.0]]


@pytest.mark.parametrize(
    ("answer", "reason", "kind"),
    [
        ({}, "provider-answer", Transient),
        ({"data": {"0": [1, 2]}}, "provider-answer", Transient),
        (_answer(_one()), "provider-answer", Transient),
        (_answer(_one(0), _one(1), _one(2)), "provider-answer", Transient),
        (_answer(_one(0), _one(0)), "provider-answer", Transient),
        (_answer(_one(0), _one(2)), "provider-answer", Transient),
        (_answer(_one(0), _one(-1)), "provider-answer", Transient),
        (_answer(_one(0), _one(True)), "provider-answer", Transient),
        (_answer(_one(0), {"embedding": [3, 4]}), "provider-answer", Transient),
        (_answer(_one(0), "vector"), "provider-answer", Transient),
        (_answer(_one(0), _one(1, None)), "provider-answer", Transient),
        (_answer(_one(0), _one(1, "AAAA")), "provider-answer", Transient),
        (_answer(_one(0), _one(1, ())), "provider-answer", Transient),
        (_answer(_one(0), _one(1, (1, math.nan))), "provider-answer", Transient),
        (_answer(_one(0), _one(1, (1, -math.inf))), "provider-answer", Transient),
        (_answer(_one(0), _one(1, (1, 10**400))), "provider-answer", Transient),
        (_answer(_one(0), _one(1, (1, "2"))), "provider-answer", Transient),
        (_answer(_one(0), _one(1, (1, True))), "provider-answer", Transient),
        (_answer(_one(0), _one(1, (1.7e308, 1.7e308))), "provider-answer", Transient),
        (_answer(_one(0), _one(1, (0, 0))), "provider-answer", Transient),
        (_answer(_one(0, (1, 2, 3)), _one(1, (1, 2, 3))), "provider-dimensions", ProviderDown),
        (_answer(_one(0, (1,)), _one(1)), "provider-dimensions", ProviderDown),
    ],
)
def test_an_answer_that_is_not_a_vector_for_each_text_is_refused(
    answer: dict[str, Any], reason: str, kind: type[Failure]
) -> None:
    """Vectors of another length are so for every text: the provider is down, and no document fails for it."""
    with pytest.raises(Failure) as caught:
        read(answer, 2, MODEL)
    assert (caught.value.reason, type(caught.value)) == (reason, kind)


def _ask(url: str, texts: list[str], *, shorten: bool = False, **times: float) -> dict[str, Any]:
    async def main() -> dict[str, Any]:
        settings = EmbeddingSettings(base_url=url, api_key="sk-1", **times)  # type: ignore[arg-type]
        async with ModelEndpoint(settings) as endpoint:
            return await ask(endpoint, texts, MODEL, shorten=shorten, idempotency_key="key-1")

    return asyncio.run(main())


@pytest.mark.parametrize("shorten", [False, True])
def test_the_request_is_that_of_the_embeddings_api(shorten: bool) -> None:
    answer = {"data": [], "usage": {"prompt_tokens": 3}}
    with serve(lambda _received: Reply(200, json.dumps(answer).encode())) as server:
        assert _ask(server.url + "/v1/", ["one", "two"], shorten=shorten) == answer
    (received,) = server.received
    assert (received.method, received.path) == ("POST", "/v1/embeddings")
    assert (received.headers["authorization"], received.headers["idempotency-key"]) == ("Bearer sk-1", "key-1")
    expected = {"model": "words", "input": ["one", "two"], "encoding_format": "float"}
    assert json.loads(received.body) == (expected | {"dimensions": 2} if shorten else expected)


def test_an_answer_may_be_as_large_as_its_vectors_and_no_larger() -> None:
    with serve(lambda _received: Reply(200, b" " * 200_000 + b"{}")) as server:
        with pytest.raises(Transient, match="larger"):
            _ask(server.url, ["one"])
        assert _ask(server.url, ["one"] * 3_000) == {}


@pytest.mark.parametrize(
    ("does", "times"),
    [
        (sick_servers.silent, {"read_timeout": 0.2}),
        (sick_servers.dripping(0.05), {"total_timeout": 0.5}),
    ],
    ids=["silent", "drips"],
)
def test_silence_and_drips_end_in_their_time(does: sick_servers.Behaviour, times: dict[str, float]) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(sick_servers.serving(does))
            settings = EmbeddingSettings(base_url=url, **times)  # type: ignore[arg-type]
            endpoint = await stack.enter_async_context(ModelEndpoint(settings))
            await ask(endpoint, ["one"], MODEL, shorten=False, idempotency_key="1")

    with pytest.raises(Failure) as caught:
        asyncio.run(main())
    failure = classify(caught.value)
    assert (failure.failure_class, failure.reason) == (FailureClass.TRANSIENT, "provider-timeout")
