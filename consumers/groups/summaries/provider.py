"""One question to an OpenAI-compatible endpoint (`POST …/chat/completions`), and what it has cost."""

from dataclasses import dataclass
from typing import Any

import httpx

from offsetzero.consumers.groups.documents.cleaning import clean
from offsetzero.consumers.groups.model_endpoint import ModelEndpoint, Usage
from offsetzero.consumers.groups.summaries.questions import Question
from offsetzero.retry.failures import Transient
from offsetzero.store.chunk_results import Answer

BYTES_PER_TOKEN = 4
"""Of UTF-8, for estimates: English has four letters a token, scripts of three bytes a letter a little less than one."""


@dataclass(slots=True)
class Used:
    """Tokens of a call, at any moment of it; `estimated` of these nobody has told."""

    input_tokens: int = 0
    output_tokens: int = 0
    estimated: int = 0

    def expect(self, question: Question) -> None:
        """The endpoint has the whole question: it may be at work on it."""
        self.input_tokens = self.estimated = estimate(question.instruction) + estimate(question.text)

    def learn(self, usage: Usage, content: str) -> None:
        """There is an answer."""
        if usage.input_tokens is not None:
            self.input_tokens, self.estimated = usage.input_tokens, 0
        if usage.output_tokens is not None:
            self.output_tokens = usage.output_tokens
        else:
            self.output_tokens = estimate(content)
            self.estimated += self.output_tokens

    def forget(self) -> None:
        """It was refused: no provider bills that."""
        self.input_tokens = self.output_tokens = self.estimated = 0


async def ask(endpoint: ModelEndpoint, model: str, question: Question, *, idempotency_key: str, used: Used) -> Answer:
    """Ask once.

    Args:
        endpoint: which.
        model: as the endpoint names it.
        question: what.
        idempotency_key: sent as `Idempotency-Key`: endpoints that know it bill a repeated call once.
        used: has the tokens when this ends, however it ends, by a cancellation too.

    Raises:
        httpx.HTTPStatusError, httpx.TransportError, Transient: as `ModelEndpoint.post`.
        Transient: `provider-answer`, too, for an answer without a text.
    """
    messages = [{"role": "system", "content": question.instruction}, {"role": "user", "content": question.text}]
    try:
        answer = await endpoint.post(
            "chat/completions",
            {"model": model, "messages": messages},
            idempotency_key=idempotency_key,
            sent=lambda: used.expect(question),
        )
    except httpx.HTTPStatusError:
        used.forget()
        raise
    content = _content(answer)
    used.learn(Usage.of(answer), content or "")
    if content is None:
        raise Transient("provider-answer", "the answer has no choices[0].message.content")
    if not (text := clean([content])[0]):
        raise Transient("provider-answer", "the text in the answer is empty")
    by = str(answer.get("model") or model)[:200]
    return Answer(text, by, used.input_tokens, used.output_tokens, used.estimated)


def estimate(text: str) -> int:
    """About how many tokens a text has."""
    return -(-len(text.encode(errors="replace")) // BYTES_PER_TOKEN)


def _content(answer: dict[str, Any]) -> str | None:
    try:
        content = answer["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        return None
    return content if isinstance(content, str) else None
