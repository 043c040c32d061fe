"""How a long text becomes questions, and their answers one summary."""

import asyncio
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetzero.consumers.groups.summaries import mapreduce, questions
from offsetzero.consumers.groups.summaries.questions import PART, PARTS, WHOLE, Question
from offsetzero.errors import ProviderWaits
from offsetzero.retry.failures import Transient
from offsetzero.store.chunk_results import Answer

PIECES = st.sampled_from(["word", "Ω", "a sentence. ", "\n", "\n\n", " ", "x" * 3000])
TEXTS = st.lists(PIECES, max_size=300).map("".join)


@given(text=TEXTS, size=st.integers(2_000, 5_000))
def test_parts_hold_all_of_a_text_and_none_is_too_long(text: str, size: int) -> None:
    parts = questions.split(text, size)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(0 < len(part) <= size for part in parts)
    assert len(parts) <= 2 * len(text) // size + 1


@given(answers=st.lists(st.text("ab. \n", min_size=1, max_size=9_000), min_size=2, max_size=50), size=st.just(2_000))
def test_questions_about_answers_become_fewer_and_none_is_too_long(answers: Sequence[str], size: int) -> None:
    asked = questions.about_answers(answers, size)
    assert len(asked) <= (len(answers) + 1) // 2
    assert all(one.instruction == PARTS and len(one.text) <= size for one in asked)


def test_the_same_text_makes_the_same_questions_and_another_instruction_others() -> None:
    text = "A sentence of a long text. " * 1_000
    assert [one.hash for one in questions.about(text, 5_000)] == [one.hash for one in questions.about(text, 5_000)]
    assert [one.instruction for one in questions.about("Short.", 5_000)] == [WHOLE]
    assert {one.instruction for one in questions.about(text, 5_000)} == {PART}
    assert Question(WHOLE, "a").hash != Question(PART, "a").hash
    assert Question("a", "b").hash != Question("ab", "").hash


class Model:
    """Answers with the numbers that it finds in a text; knows how many it was asked at once."""

    def __init__(self, fail: dict[str, Exception] | None = None) -> None:
        self.asked: list[Question] = []
        self.most = self._now = self.ended = self.before = 0
        self._fail = fail or {}
        self._dice = random.Random(1)

    async def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            for _ in range(self._dice.randint(1, 9)):
                await asyncio.sleep(0)
            for word, error in self._fail.items():
                if word in question.text.split():
                    self.before = len(self.asked)
                    raise error
            numbers = [word for word in question.text.split() if word.isdigit()]
            self.ended += 1
            return Answer(" ".join(numbers), "small", 10, 1, 1)
        finally:
            self._now -= 1


def _text(parts: int) -> str:
    return "\n\n".join(f"{number} {'x' * 1_900}" for number in range(parts))


def _summarise(model: Model, parts: int, at_once: int = 4) -> mapreduce.Summary:
    first = questions.about(_text(parts), 2_000)
    assert len(first) == parts
    return asyncio.run(mapreduce.summarise(first, model.ask, size=2_000, at_once=at_once))


@pytest.mark.parametrize("parts", [1, 2, 30, 700])
def test_every_part_is_asked_about_once_in_order_and_so_many_at_once(parts: int) -> None:
    model = Model()
    summary = _summarise(model, parts)
    assert summary.text.split()[:100] == [str(number) for number in range(parts)][:100]
    firsts = [one for one in model.asked if one.instruction in (PART, WHOLE)]
    assert len({one.hash for one in firsts}) == len(firsts) == parts
    assert model.most == min(4, parts)
    assert (summary.input_tokens, summary.output_tokens) == (10 * len(model.asked), len(model.asked))
    assert summary.estimated_tokens == len(model.asked)


def test_after_a_failure_none_is_begun_and_those_at_work_end() -> None:
    model = Model({"10": Transient("provider-503", "")})
    with pytest.raises(Transient, match="provider-503"):
        _summarise(model, 30)
    assert len(model.asked) == model.before < 30
    assert model.ended == model.before - 1


def test_a_busy_provider_is_asked_fewer_questions_at_once() -> None:
    """Whoever gets no place leaves its question to those that have one."""

    class Busy(Model):
        async def ask(self, question: Question) -> Answer:
            if self._now >= 2:
                raise ProviderWaits("llm", "busy", 1.0)
            return await super().ask(question)

    model = Busy()
    assert _summarise(model, 30).text.startswith("0 1 2")
    assert model.most == 2


def test_a_provider_that_serves_nobody_is_waited_for() -> None:
    waits = ProviderWaits("llm", "down", 1.0)
    model = Model({str(number): waits for number in range(30)})
    with pytest.raises(ProviderWaits):
        _summarise(model, 30)
    assert len(model.asked) == 4, "nobody tries for each part"


def test_a_cancellation_ends_all_questions_at_once() -> None:
    async def main() -> int:
        begun, ended = asyncio.Event(), 0

        async def ask(_question: Question) -> Answer:
            nonlocal ended
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended += 1
            raise AssertionError

        first = questions.about(_text(9), 2_000)
        task = asyncio.create_task(mapreduce.summarise(first, ask, size=2_000, at_once=3))
        await begun.wait()
        task.cancel()
        await asyncio.wait({task}, timeout=20)
        assert task.cancelled()
        return ended

    assert asyncio.run(main()) == 3
