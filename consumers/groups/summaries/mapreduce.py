"""A summary of a text of any length: its parts are asked about, some at once, and then what was answered of them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from offsetzero.consumers.groups.summaries import questions
from offsetzero.consumers.groups.summaries.questions import Question
from offsetzero.consumers.groups.summaries.summary import Summary
from offsetzero.errors import ProviderWaits
from offsetzero.store.chunk_results import Answer

Ask: TypeAlias = Callable[[Question], Awaitable[Answer]]


async def summarise(first: Sequence[Question], ask: Ask, *, size: int, at_once: int) -> Summary:
    """Ask until there is one answer.

    Args:
        first: what `questions.about` makes of a text.
        ask: asks one.
        size: most characters of a question's text.
        at_once: how many are asked at one time.

    Returns:
        The summary, and the tokens of all answers that it was made of.

    Raises:
        Exception: the first that `ask` has raised. What had been asked then was answered, or has failed, too.
    """
    answers = await ask_all(first, ask, at_once)
    used = list(answers)
    while len(answers) > 1:
        answers = await ask_all(questions.about_answers([answer.text for answer in answers], size), ask, at_once)
        used += answers
    return Summary(
        answers[0].text,
        answers[0].model,
        input_tokens=sum(answer.input_tokens for answer in used),
        output_tokens=sum(answer.output_tokens for answer in used),
        estimated_tokens=sum(answer.estimated_tokens for answer in used),
    )


async def ask_all(asked: Sequence[Question], ask: Ask, at_once: int) -> list[Answer]:
    """The answers to questions, in their order.

    After one has failed no other is begun, and those that have begun are let end: they are paid for. Where the provider
    has as many calls as it may have, fewer are asked at once: what is left is asked by those that are served.
    """
    answers: dict[int, Answer] = {}
    left = list(enumerate(asked))[::-1]
    failed: list[BaseException] = []
    at_work = 0

    async def work() -> None:
        nonlocal at_work
        at_work += 1
        try:
            while left and not failed:
                number, question = left.pop()
                try:
                    answers[number] = await ask(question)
                except ProviderWaits as error:
                    if at_work > 1:
                        left.append((number, question))
                    else:
                        failed.append(error)
                    return
                except Exception as error:
                    failed.append(error)
        finally:
            at_work -= 1

    tasks = [asyncio.create_task(work()) for _ in range(min(at_once, len(left)))]
    try:
        await asyncio.wait(tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    if failed:
        raise failed[0]
    return [answers[number] for number in range(len(asked))]
