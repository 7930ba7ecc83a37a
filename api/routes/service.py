"""The process itself: is it there, may it be sent work, what has it done."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field

import decaysketch
from api import schemas
from api.access.guard import watches
from api.metrics import MEDIA_TYPE, Metrics
from api.routes.common import TheAggregator

__all__ = ["Readiness", "router"]

router = APIRouter()

_PATIENCE_S = 2.0


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
    responses={503: {"description": "Not now; the checks say why.", "model": Readiness}},
)
async def readyz(aggregator: TheAggregator, response: Response) -> Readiness:
    """Ready: the journal takes writes, everything in it was replayed, what is committed is folded
    without delay, and nobody has told the process to stop. Send requests elsewhere if it is not;
    do not restart it."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            checks = await aggregator.ready()
    except TimeoutError:
        checks = {"answered": f"no answer within {_PATIENCE_S:g} s"}
    ready = all(passed is True for passed in checks.values())
    if not ready:
        response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
    response.headers["Cache-Control"] = "no-store"
    return Readiness(ready=ready, checks=checks)


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
    return Response(await asyncio.to_thread(counted.exposition), media_type=MEDIA_TYPE)
