"""The client of OpenAI-compatible endpoints, against a real HTTP server."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import httpx
import pytest
import sick_servers
from local_http import LocalHttp, Reply, serve

from offsetzero.consumers.groups.model_endpoint import ModelEndpoint
from offsetzero.consumers.groups.summaries import provider
from offsetzero.consumers.groups.summaries.provider import Used
from offsetzero.consumers.groups.summaries.questions import Question
from offsetzero.retry.failures import Transient
from offsetzero.settings import LlmSettings
from offsetzero.store.chunk_results import Answer

DO, TEXT = "Do it, please.", "A text."
USAGE = {"prompt_tokens": 12, "completion_tokens": 3}


def _ask(server: LocalHttp, used: Used | None = None, text: str = TEXT) -> Answer:
    llm = LlmSettings(base_url=server.url + "/v1/", api_key="sk-test")

    async def ask() -> Answer:
        async with ModelEndpoint(llm) as endpoint:
            return await provider.ask(
                endpoint, "small", Question(DO, text), idempotency_key="key-1", used=used or Used()
            )

    return asyncio.run(ask())


def _answer(content: Any = "Short.", **more: Any) -> Reply:
    body = {"model": "small-2025", "choices": [{"message": {"role": "assistant", "content": content}}], **more}
    return Reply(200, json.dumps(body).encode())


def test_the_request_is_that_of_the_chat_completions_api() -> None:
    with serve(lambda _received: _answer(usage=USAGE)) as server:
        answer = _ask(server)
    assert answer == Answer("Short.", "small-2025", 12, 3)
    (received,) = server.received
    assert (received.method, received.path) == ("POST", "/v1/chat/completions")
    assert received.headers["authorization"] == "Bearer sk-test"
    assert received.headers["idempotency-key"] == "key-1"
    body = json.loads(received.body)
    assert body["model"] == "small"
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert [message["content"] for message in body["messages"]] == [DO, TEXT]


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, b'{"choices": []}'),
        _answer(None),
        _answer(" \0 "),
    ],
    ids=["no choice", "null", "blank"],
)
def test_an_answer_without_a_summary_is_worth_another_try(reply: Reply) -> None:
    with serve(lambda _received: reply) as server, pytest.raises(Transient) as caught:
        _ask(server)
    assert caught.value.reason == "provider-answer"


def test_the_summary_is_fit_to_be_stored() -> None:
    with serve(lambda _received: _answer("One\0 \ud800two.\n")) as server:
        assert _ask(server).text == "One two."


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (_answer(usage=USAGE), Used(12, 3, 0)),
        (_answer("", usage=USAGE), Used(12, 3, 0)),
        (_answer(usage={"prompt_tokens": 12}), Used(12, 2, 2)),
        (_answer(), Used(4 + 2, 2, 8)),
        (Reply(200, b"<html>"), Used(6, 0, 6)),
        (Reply(400), Used()),
        (Reply(503), Used()),
    ],
    ids=["exact", "no text", "half exact", "estimated", "no answer", "refused", "failed"],
)
def test_what_a_call_has_used_is_known_however_it_ends(reply: Reply, expected: Used) -> None:
    """What the provider says, else four bytes a token; what it refuses costs nothing."""
    used = Used()
    with serve(lambda _received: reply) as server, suppress(Transient, httpx.HTTPStatusError):
        _ask(server, used)
    assert used == expected


def test_a_call_that_is_cancelled_in_the_middle_has_used_its_question() -> None:
    async def main() -> Used:
        used, asked = Used(), asyncio.Event()

        async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            await sick_servers.request(reader)
            asked.set()
            await reader.read()

        async with sick_servers.serving(silent) as url, ModelEndpoint(LlmSettings(base_url=url)) as endpoint:
            question = Question(DO, TEXT)
            call = asyncio.create_task(provider.ask(endpoint, "small", question, idempotency_key="1", used=used))
            await asyncio.wait_for(asked.wait(), 20)
            call.cancel()
            await asyncio.wait({call}, timeout=20)
        return used

    assert asyncio.run(main()) == Used(6, 0, 6)


def test_a_question_that_never_arrived_costs_nothing() -> None:
    used = Used()
    with serve() as server:
        pass
    with pytest.raises(httpx.ConnectError):
        _ask(server, used)
    assert used == Used()
