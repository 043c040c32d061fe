"""What requests work with, made once in `create_app`, and whose request it is."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Annotated, TypeVar, cast

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from offsetzero.api.limits import TenantLimits
from offsetzero.api.meaning import Meanings
from offsetzero.api.problems import Problem, too_many
from offsetzero.api.run_feeds import RunFeeds
from offsetzero.api.together import Together
from offsetzero.clock import SYSTEM, Clock
from offsetzero.producers import runs
from offsetzero.settings import Settings
from offsetzero.store import documents, generations, tenants
from offsetzero.store.database import AsyncConnection, AsyncPool, acommitting
from offsetzero.store.documents import Intake
from offsetzero.store.intake import New
from offsetzero.store.objects import Objects
from offsetzero.store.script import Script, arun
from offsetzero.store.tenants import Owner, Role

T = TypeVar("T")
Q = TypeVar("Q")
_READS = ("GET", "HEAD")
_TURN_SECONDS = 15.0
_STORE_BUSY = "the object store takes long; try again"


class _Turns:
    """Some at once, and some that wait for these: all others are refused, for who waits is counted as worked on.

    Args:
        at_once: how many.
        waiting: how many.
        code, detail: of the refusal, and of that of one who has waited for long.
    """

    def __init__(self, at_once: int, waiting: int, code: str, detail: str) -> None:
        self._free = asyncio.Semaphore(max(1, at_once))
        self._places = max(1, at_once) + max(1, waiting)
        self._code = code
        self._detail = detail

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        if self._places == 0:
            raise self._refusal()
        self._places -= 1
        try:
            try:
                async with asyncio.timeout(_TURN_SECONDS):
                    await self._free.acquire()
            except TimeoutError as error:
                raise self._refusal() from error
            try:
                yield
            finally:
                self._free.release()
        finally:
            self._places += 1

    def _refusal(self) -> Problem:
        return _busy(self._code, self._detail)


def _busy(code: str, detail: str) -> Problem:
    return Problem(503, code, detail, headers={"Retry-After": "5"})


class Firsts:
    """Of many requests for the same thing the first one does it, and the others see what has become of it: they hold
    nothing meanwhile that the first one, or requests for other things, may need."""

    def __init__(self) -> None:
        self._ended: dict[Hashable, asyncio.Event] = {}

    async def ended(self, what: Hashable) -> bool:
        """Wait for the request that does this now; False where none does.

        Raises:
            Problem: 503, it has not ended in 15 s: those who wait are counted as worked on, and others need the places.
        """
        if (ended := self._ended.get(what)) is None:
            return False
        try:
            async with asyncio.timeout(_TURN_SECONDS):
                await ended.wait()
        except TimeoutError as error:
            raise _busy("object-store-unavailable", _STORE_BUSY) from error
        return True

    @contextmanager
    def doing(self, what: Hashable) -> Iterator[None]:
        """Around what is done, however it ends. Who waited for one that has failed does it beside others."""
        if what in self._ended:
            yield
            return
        ended = self._ended[what] = asyncio.Event()
        try:
            yield
        finally:
            del self._ended[what]
            ended.set()


@dataclass(frozen=True, slots=True)
class Services:
    """What all requests share. `limits` is how much a tenant may ask, `tries` how often it may try its webhooks."""

    settings: Settings
    pool: AsyncPool
    objects: Objects
    limits: TenantLimits
    tries: TenantLimits
    feeds: RunFeeds
    meanings: Meanings
    clock: Clock = SYSTEM
    owners: Together[str, Owner | None] = field(init=False)
    """Whose an API key is."""
    intakes: Together[tuple[str, str], Intake | None] = field(init=False)
    """Where the document of a tenant and a SHA-256 stands."""
    taken_in: Together[New, Intake | None] = field(init=False)
    """Writes a document with its first run; None when its tenant has that content already."""
    again: Firsts = field(init=False, default_factory=Firsts)
    """Uploads that give a document another run, by tenant and SHA-256."""
    _stores: _Turns = field(init=False)
    _schedules: _Turns = field(init=False)

    def __post_init__(self) -> None:
        connections = self.settings.api.pool_size
        for name, many in (
            ("owners", tenants.owners_of),
            ("intakes", documents.find_intakes),
            ("taken_in", self._take_in),
        ):
            object.__setattr__(self, name, Together(self._asking(many)))
        waiting = self.settings.api.requests_at_once // 4
        stores = _Turns(connections // 2, waiting, "object-store-unavailable", _STORE_BUSY)
        schedules = _Turns(connections // 4, waiting, "overloaded", "schedules are at work; try again")
        object.__setattr__(self, "_stores", stores)
        object.__setattr__(self, "_schedules", schedules)

    @asynccontextmanager
    async def storing(self) -> AsyncIterator[None]:
        """Around a transaction that waits for the object store, before it takes its connection.

        Such transactions have half of the connections at most, and a quarter of the requests that are worked on wait
        for these: while the store stands still, all else goes on.

        Raises:
            Problem: 503, those before this one have not ended in 15 s, or are too many.
        """
        async with self._stores.turn():
            yield

    @asynccontextmanager
    async def scheduling(self) -> AsyncIterator[None]:
        """Around a transaction that takes a schedule, before it takes its connection: it waits while another one counts
        for a report, or counts itself.

        Such transactions have a quarter of the connections at most, and a quarter of the requests that are worked on
        wait for these: what one tenant has counted is no other's wait.

        Raises:
            Problem: 503, those before this one have not ended in 15 s, or are too many.
        """
        async with self._schedules.turn():
            yield

    def _asking(self, many: Callable[[Sequence[Q]], Script[list[T]]]) -> Callable[[Sequence[Q]], Awaitable[list[T]]]:
        async def ask(wanted: Sequence[Q]) -> list[T]:
            return await self.ask(many(wanted))

        return ask

    def _take_in(self, news: Sequence[New]) -> Script[list[Intake | None]]:
        return runs.take_in(news, self.settings)

    async def run(self, script: Script[T]) -> T:
        """Run a script in a transaction of its own."""
        async with self.pool.connection() as connection:
            return await arun(connection, script)

    async def ask(self, script: Script[T]) -> T:
        """Run a script of one statement, or of some that need not be of one moment: a round trip for each."""
        async with acommitting(self.pool) as connection:
            return await arun(connection, script)

    async def look(self, script: Script[T]) -> T:
        """Run a script that reads, all of it as of one moment."""
        async with self._one_moment() as connection:
            return await arun(connection, script)

    async def read(self, group: str, script: Script[T]) -> T:
        """Run a script that reads the projection of a group, all of it as of one moment.

        Raises:
            ConfigurationError: the projection is not made yet.
        """
        async with self._one_moment() as connection:
            await arun(connection, generations.read(group))
            return await arun(connection, script)

    @asynccontextmanager
    async def _one_moment(self) -> AsyncIterator[AsyncConnection]:
        async with self.pool.connection() as connection, connection.transaction():
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield connection


async def _services(request: Request) -> Services:  # a plain function would be sent to a thread
    return cast("Services", request.app.state.services)


WithServices = Annotated[Services, Depends(_services)]
_bearer = HTTPBearer(auto_error=False, description="An API key: `ozk_…`", bearerFormat="ozk_…")


async def _tenant(
    request: Request,
    services: WithServices,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> str:
    if credentials is None:
        detail = "send the API key of your tenant as `Authorization: Bearer ozk_…`"
        raise Problem(401, "key-needed", detail, headers={"WWW-Authenticate": "Bearer"})
    owner = await services.owners(credentials.credentials)
    if owner is None:
        headers = {"WWW-Authenticate": 'Bearer error="invalid_token"'}
        raise Problem(401, "key-unknown", "this API key is not known or was revoked", headers=headers)
    request.state.tenant_id = owner.tenant_id  # for the log
    request.state.key_id = tenants.id_of(credentials.credentials)  # for audits
    if (seconds := services.limits.take(owner.tenant_id)) > 0:
        detail = f"the tenant sends more than {services.settings.api.requests_per_second:g} requests a second"
        raise too_many(detail, seconds)
    if owner.role is Role.READER and request.method not in _READS:
        raise Problem(403, "read-only-key", "this key may only read; send one with the role 'writer'")
    return owner.tenant_id


Tenant = Annotated[str, Depends(_tenant)]
