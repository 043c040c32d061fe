"""Asks a provider for the event in work, each question once: answers are kept, and what they cost is written down."""

import asyncio
import hashlib
from collections.abc import Sequence
from typing import TypeVar
from uuid import UUID

import psycopg

from offsetzero import metrics
from offsetzero.consumers.context import Context
from offsetzero.consumers.groups.in_run import run_id_of
from offsetzero.consumers.groups.model_endpoint import ModelEndpoint
from offsetzero.consumers.groups.summaries import provider, questions
from offsetzero.consumers.groups.summaries.provider import Used
from offsetzero.consumers.groups.summaries.questions import Question
from offsetzero.store import chunk_results, runs
from offsetzero.store.chunk_results import Answer, Asked
from offsetzero.store.processed import short
from offsetzero.store.script import Script, run

T = TypeVar("T")


class Erased(Exception):
    """The document was erased meanwhile: there is nothing more to do."""


class Asking:
    """The questions of one event.

    Args:
        ctx: of the event.
        document_id: whose text it is; what is kept is erased with it.
        step: the group's.
        name: of the provider, as limits and metrics know it.
        endpoint: is asked.
        model: as the endpoint names it.
    """

    def __init__(
        self, ctx: Context, document_id: UUID, step: str, name: str, endpoint: ModelEndpoint, model: str
    ) -> None:
        self._ctx = ctx
        self._document_id = document_id
        self._step = step
        self._name = name
        self._endpoint = endpoint
        self._asked = Asked(short(ctx.meta.source), short(ctx.meta.id), model)
        self._run_id = run_id_of(ctx)
        self._kept: dict[bytes, Answer] = {}
        self._parts = self._done = 0

    async def begin(self, first: Sequence[Question]) -> None:
        """Look for what is kept of the first questions, those of a text, and have the run show how many there are."""
        self._parts = len(first)
        await self._look(first)
        self._done = len(self._kept)
        await self._surely(self._progress(begins=True))

    async def ask(self, question: Question) -> Answer:
        """The answer to a question, kept or new.

        Raises:
            Erased: see there.
            ProviderWaits: as `Context.provider`.
            Exception: as `provider.ask`.
        """
        if question.instruction == questions.PARTS:  # of answers, and so not looked for in the beginning
            await self._look([question])
        if (answer := self._kept.get(question.hash)) is not None:
            metrics.PROVIDER_QUESTIONS.labels(self._name, "kept").inc()
            return answer
        used = Used()
        try:
            async with self._ctx.provider(self._name):
                metrics.PROVIDER_QUESTIONS.labels(self._name, "asked").inc()
                answer = await provider.ask(
                    self._endpoint,
                    self._asked.model,
                    question,
                    idempotency_key=self._key(question),
                    used=used,
                )
        except BaseException:
            if used.input_tokens:
                self._count(used)
                await self._surely(self._spend(used))
            raise
        self._count(used)
        self._done += question.instruction != questions.PARTS
        if await self._surely(self._keep(question, answer, used)) is False:
            raise Erased
        return answer

    def _key(self, question: Question) -> str:
        """The same for every attempt of the event, and another for each question."""
        key = f"{self._ctx.idempotency_key}|{question.hash.hex()}|{self._asked.model}"
        return hashlib.sha256(key.encode()).hexdigest()[:32]

    def _count(self, used: Used) -> None:
        said = "estimated" if used.estimated else "exact"
        metrics.PROVIDER_TOKENS.labels(self._name, "input", said).inc(used.input_tokens)
        metrics.PROVIDER_TOKENS.labels(self._name, "output", said).inc(used.output_tokens)

    async def _look(self, asked: Sequence[Question]) -> None:
        hashes = [question.hash for question in asked]
        self._kept |= await self._surely(chunk_results.kept(self._asked, hashes)) or {}

    # --- in one transaction each

    def _keep(self, question: Question, answer: Answer, used: Used) -> Script[bool]:
        is_there = yield from chunk_results.keep(self._asked, question.hash, self._document_id, answer)
        yield from self._progress()  # before the tokens: it locks the run, and whoever locks both begins with that
        yield from self._spend(used)
        return is_there

    def _spend(self, used: Used) -> Script[None]:
        if self._run_id is not None:
            yield from runs.spend(self._run_id, self._step, used.input_tokens, used.output_tokens, used.estimated)

    def _progress(self, *, begins: bool = False) -> Script[None]:
        if self._run_id is not None and self._parts > 1:
            fence = self._ctx.handled.fence
            yield from runs.progress(self._run_id, self._step, self._done, self._parts, begins=begins, fence=fence)

    async def _surely(self, script: Script[T]) -> T | None:
        """Run a script to its end, whatever becomes of this task; None while the database does not take it.

        What was answered is at hand all the same. The transaction of the handler will say what is wrong with the
        database, and count no attempt.
        """
        work = asyncio.ensure_future(asyncio.to_thread(self._run, script))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait({work})
            raise

    def _run(self, script: Script[T]) -> T | None:
        try:
            with self._ctx.pool.connection() as connection:
                return run(connection, script)
        except psycopg.Error as error:
            self._ctx.log.warning("not written down", error=str(error))
            return None
