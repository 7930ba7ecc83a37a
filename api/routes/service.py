"""The process itself: is it there, may it be sent work, what has it done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

import decaysketch
from api import schemas
from api.http.guard import watches
from api.http.problems import plain_problem, problems
from api.routes.common import TheAggregator
from api.service.aggregator import Aggregator
from api.service.metrics import MEDIA_TYPE, Metrics

__all__ = ["Readiness", "router"]

_PATIENCE_S = 2.0
_KEPT_S = 1.0
_FRESH = {"Cache-Control": "no-store"}


class Checks:
    """What the aggregator says of itself, asked at most once in ``_KEPT_S``, however many want to
    know: to answer it takes the lock of writers, and who asks needs no key."""

    def __init__(self) -> None:
        self._found: dict[str, bool | str] = {}
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()

    async def of(self, aggregator: Aggregator) -> dict[str, bool | str]:
        """Those of this second."""
        async with self._asking:
            if time.monotonic() - self._asked_at >= _KEPT_S:
                self._found = await _asked(aggregator)
                self._asked_at = time.monotonic()
            return self._found


async def _asked(aggregator: Aggregator) -> dict[str, bool | str]:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await aggregator.ready()
    except TimeoutError:
        return {"answered": f"no answer within {_PATIENCE_S:g} s"}


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.checks = Checks()
    yield


router = APIRouter(lifespan=_lifespan)


class Readiness(BaseModel):
    """Whether requests should be sent here, and why not."""

    ready: bool
    checks: dict[str, bool | str] = Field(
        description="Each check: true if it is passed, otherwise false or what is wrong."
    )


@router.get("/healthz", tags=["service"], summary="Is the process there")
async def healthz() -> schemas.Health:
    """Answers as long as the process serves. Restart it if it does not."""
    return schemas.Health(version=decaysketch.__version__)


@router.get(
    "/readyz",
    tags=["service"],
    summary="May it be sent work",
    response_model=Readiness,
    responses=problems(s503="Not now; `checks`, beside the members of any problem, says why."),
)
async def readyz(request: Request, aggregator: TheAggregator) -> Response:
    """Ready: the journal takes writes, everything in it was replayed, what is committed is folded
    without delay, and nobody has told the process to stop. Send requests elsewhere if it is not;
    do not restart it. What is found is told for a second."""
    known: Checks = request.app.state.checks
    checks = await known.of(aggregator)
    failed = [name for name, passed in checks.items() if passed is not True]
    content: dict[str, Any] = {"ready": not failed, "checks": checks}
    if not failed:
        return JSONResponse(content, headers=_FRESH)
    return plain_problem(
        HTTPStatus.SERVICE_UNAVAILABLE,
        f"not passed: {', '.join(failed)}",
        {**_FRESH, "Retry-After": "1"},
        content,
    )


@router.get(
    "/metrics",
    tags=["service"],
    summary="Counters for Prometheus",
    dependencies=[Depends(watches)],
    response_class=Response,
    responses={
        200: {
            "description": "The text format of Prometheus; of every worker.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    },
)
async def metrics(request: Request, aggregator: TheAggregator) -> Response:
    """Names of streams are among the labels."""
    counted: Metrics = request.app.state.metrics
    streams = aggregator.streams()
    counted.holding(len(streams), sum(stream.source_count for stream in streams))
    counted.memory(aggregator.memory, request.app.state.settings)
    return Response(await asyncio.to_thread(counted.exposition), media_type=MEDIA_TYPE)
