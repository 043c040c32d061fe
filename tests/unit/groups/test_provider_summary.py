"""The client of OpenAI-compatible endpoints, against a real HTTP server."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from local_http import LocalHttp, Reply, serve

from offsetzero.consumers.groups.summaries import Summary, provider
from offsetzero.retry.failures import Transient
from offsetzero.settings import LlmSettings


def _ask(server: LocalHttp, text: str = "A text.", **settings: Any) -> Summary:
    llm = LlmSettings(base_url=server.url + "/v1/", api_key="sk-test", model="small", **settings)
    return asyncio.run(provider.summarise(text, llm, idempotency_key="key-1"))


def _answer(content: Any = "Short.") -> Reply:
    body = {
        "model": "small-2025",
        "choices": [{"message": {"role": "assistant", "content": content}}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 3},
    }
    return Reply(200, json.dumps(body).encode())


def test_the_request_is_that_of_the_chat_completions_api() -> None:
    with serve(lambda _received: _answer()) as server:
        summary = _ask(server)
    assert summary == Summary("Short.", "small-2025", 12, 3)
    (received,) = server.received
    assert (received.method, received.path) == ("POST", "/v1/chat/completions")
    assert received.headers["authorization"] == "Bearer sk-test"
    assert received.headers["idempotency-key"] == "key-1"
    body = json.loads(received.body)
    assert body["model"] == "small"
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["messages"][1]["content"] == "A text."


def test_a_long_text_is_cut_with_a_warning() -> None:
    with serve(lambda _received: _answer()) as server:
        summary = _ask(server, "x" * (provider.MAX_CHARACTERS + 1))
    sent = json.loads(server.received[0].body)["messages"][1]["content"]
    assert len(sent) == provider.MAX_CHARACTERS
    assert summary.warnings == ["the summary covers only the first 60,000 characters"]


@pytest.mark.parametrize("status", [302, 400, 401, 429, 503])
def test_a_status_is_left_to_the_runtime_to_judge(status: int) -> None:
    reply = Reply(status, headers={"Retry-After": "7"})
    with serve(lambda _received: reply) as server, pytest.raises(httpx.HTTPStatusError) as caught:
        _ask(server)
    assert caught.value.response.status_code == status
    assert caught.value.response.headers["retry-after"] == "7"


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


def test_a_closed_port_is_a_connection_error() -> None:
    with serve() as server:
        pass
    with pytest.raises(httpx.ConnectError):
        _ask(server)
