"""Usage: what a tenant has sent in the last hour and what became of it, as the members of the group `usage` know it."""

import asyncio
import functools
import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import httpx
from fastapi import APIRouter

from offsetzero import logs
from offsetzero.api.described import errors
from offsetzero.api.parameters import ExactRoute
from offsetzero.api.problems import Problem
from offsetzero.api.services import Tenant, WithServices
from offsetzero.api.usage_models import UsageAnswer, UsageCounts, UsageWindow
from offsetzero.consumers.groups.usage import windows

router = APIRouter(tags=["usage"], route_class=ExactRoute)
log = logs.get(__name__)

_SECONDS = 5.0


@router.get("/usage", operation_id="get_usage", summary="Read your usage", responses=errors("usage-unavailable"))
async def read(tenant: Tenant, services: WithServices) -> UsageAnswer:
    """What was uploaded and what became of it, a window at a time. A view for people and graphs, not for invoices."""
    async with httpx.AsyncClient(timeout=_SECONDS, trust_env=False, verify=_trusted()) as client:
        asked = await asyncio.gather(*(_ask(client, url, tenant) for url in services.settings.usage.urls))
    answers = [answer for answer in asked if answer is not None]
    if not answers:
        detail = "the group usage does not answer; it may be starting: try again"
        raise Problem(503, "usage-unavailable", detail, headers={"Retry-After": "5"})
    return added_up(answers)


def added_up(answers: Sequence[Mapping[str, Any]]) -> UsageAnswer:
    """One answer of those of several members. While a partition moves two may tell of it; the first one counts."""
    size, keep = answers[0]["window_seconds"], answers[0]["keep_seconds"]
    by_partition: dict[int, list[Mapping[str, Any]]] = {}
    for answer in answers:
        told: dict[int, list[Mapping[str, Any]]] = {number: [] for number in answer["partitions"]}
        for window in answer["windows"]:
            told[window["partition"]].append(window)
        by_partition = {**told, **by_partition}
    cells: dict[int, list[Mapping[str, Any]]] = {}
    for window in (window for found in by_partition.values() for window in found):
        cells.setdefault(window["start"], []).append(window)
    return UsageAnswer(
        window_seconds=size,
        keep_seconds=keep,
        complete=len(by_partition) == answers[0]["partition_count"],
        total=UsageCounts(**_counts((cell for found in cells.values() for cell in found), keep)),
        windows=[
            UsageWindow(start=datetime.fromtimestamp(start, UTC), **_counts(found, size))
            for start, found in sorted(cells.items())
        ],
    )


def _counts(cells: Any, seconds: int) -> dict[str, Any]:
    found = windows.total(cells)
    timed, spent, longest = found.pop("timed"), found.pop("seconds"), found.pop(windows.LONGEST)
    ended = found["succeeded"] + found["failed"] + found["cancelled"]
    return {
        **found,
        "uploaded_per_minute": round(found["uploaded"] * 60 / seconds, 3),
        "ended_per_minute": round(ended * 60 / seconds, 3),
        "mean_seconds": round(spent / timed, 3) if timed else None,
        "longest_seconds": longest if timed else None,
    }


async def _ask(client: httpx.AsyncClient, url: str, tenant: str) -> Mapping[str, Any] | None:
    try:
        answer = await client.get(f"{url.rstrip('/')}/usage/{tenant}")
        found: Mapping[str, Any] = answer.json()
        return found if answer.status_code == 200 else None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        log.warning("a member of the group usage does not answer", url=url, error=f"{type(error).__name__}: {error}")
        return None


@functools.cache
def _trusted() -> ssl.SSLContext:
    return ssl.create_default_context()
