"""The process itself: health, readiness, and statistics."""

from __future__ import annotations

import asyncio
import platform
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

import decaysketch
from api import schemas
from api.http.caller import watches
from api.http.problems import plain_problem, problems
from api.http.reasons import in_words
from api.monitors.function_metrics import functions_exposition
from api.monitors.group_metrics import groups_exposition
from api.routes.common import TheAggregator, utc
from api.service.aggregator import Aggregator
from api.service.metrics import MEDIA_TYPE, Metrics
from api.settings import Settings

__all__ = ["Readiness", "router"]

_PATIENCE_S = 2.0
_KEPT_S = 1.0
_FRESH = {"Cache-Control": "no-store"}


class Checks:
    """The health checks, run at most once in ``_KEPT_S`` for all callers: they take the writers'
    lock, and callers need no key.
    """

    def __init__(self) -> None:
        self._found: dict[str, bool | str] = {}
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()

    async def of(self, aggregator: Aggregator) -> dict[str, bool | str]:
        """The checks from this second."""
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
        return {"answered": f"no response within {_PATIENCE_S:g} s"}


class Disk:
    """The disk of a SQLite file, read at most once in ``_KEPT_S`` and by one caller at a time: a
    disk that does not respond blocks one thread only.
    """

    def __init__(self, settings: Settings) -> None:
        self._file = settings.database_file
        self._found: DiskState | None = None
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()

    async def state(self) -> DiskState | None:
        """The state in this second. None if the database is elsewhere, or the disk does not
        respond.
        """
        if self._file is None or self._asking.locked():
            return self._found
        async with self._asking:
            if time.monotonic() - self._asked_at >= _KEPT_S:
                self._found = await asyncio.to_thread(_disk_of, self._file)
                self._asked_at = time.monotonic()
        return self._found


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.checks = Checks()
    app.state.disk = Disk(app.state.settings)
    yield


router = APIRouter(lifespan=_lifespan)


class Readiness(BaseModel):
    """Whether the process accepts requests, and the reason if not."""

    ready: bool
    checks: dict[str, bool | str] = Field(
        description="Each check: true if passed, otherwise false or the reason."
    )


class DiskState(BaseModel):
    """The disk that contains the database."""

    free_bytes: int = Field(description="Free bytes on that disk.")
    total_bytes: int = Field(description="Size of that disk in bytes.")
    database_bytes: int = Field(
        description="Size of the database in bytes, with its write-ahead log."
    )


class Versions(BaseModel):
    """Versions of the running software."""

    decaysketch: str
    python: str
    database: str = Field(description="Kind of the database: `sqlite` or `postgresql`.")


class ServiceState(BaseModel):
    """The process that responds, for an operator. Each process reports its own state. `/metrics`
    covers all of them.
    """

    versions: Versions
    since: datetime = Field(description="Time at which the process began to read the database.")
    now: datetime = Field(description="The server's clock.")
    ready: bool
    checks: dict[str, bool | str] = Field(description="The checks of `/readyz`.")
    streams: int
    sources: int = Field(description="Number of sources with posts, over all streams.")
    last_post: datetime | None = Field(description="Time of the last accepted post in any process.")
    backlog_posts: int = Field(description="Posts that are stored and not merged yet.")
    backlog_rows: int = Field(description="Approximate number of their rows.")
    lag_rows: int = Field(description="Journal rows that the process has not read yet.")
    resident_rows: int = Field(description="Rows in memory.")
    resident_rows_limit: int = Field(description="Limit of these rows (`max_resident_rows`).")
    disk: DiskState | None = Field(
        description="Null if the database is not a file on this machine."
    )
    refused: dict[str, int] = Field(
        description="Posts and observations rejected since the process started, by reason."
    )
    reasons: dict[str, str] = Field(description="Explanations of these reasons.")


@router.get(
    "/v1/service",
    tags=["service"],
    summary="The state of the service",
    dependencies=[Depends(watches)],
    response_model=ServiceState,
)
async def get_service(
    request: Request, response: Response, aggregator: TheAggregator
) -> ServiceState:
    """Queues, the time of the last post, memory and disk use, and rejections. Checks and disk are
    at most a second old.
    """
    response.headers.update(_FRESH)
    settings: Settings = request.app.state.settings
    known: Checks = request.app.state.checks
    disk: Disk = request.app.state.disk
    last_us = aggregator.last_received_us
    checks = await known.of(aggregator)
    refused = dict(aggregator.senders.refused)
    return ServiceState(
        versions=Versions(
            decaysketch=decaysketch.__version__,
            python=platform.python_version(),
            database=settings.database_kind,
        ),
        since=utc(aggregator.senders.since_us),
        now=utc(aggregator.now_us()),
        ready=all(passed is True for passed in checks.values()),
        checks=checks,
        streams=aggregator.stream_count,
        sources=aggregator.source_count,
        last_post=utc(last_us) if last_us else None,
        backlog_posts=aggregator.backlog,
        backlog_rows=aggregator.backlog_rows,
        lag_rows=aggregator.lag_rows,
        resident_rows=aggregator.memory.resident.rows,
        resident_rows_limit=settings.max_resident_rows,
        disk=await disk.state(),
        refused=refused,
        reasons=in_words(refused),
    )


def _disk_of(file: Path) -> DiskState | None:
    """None if the folder does not exist."""
    size = 0
    for end in ("", "-wal"):
        with suppress(FileNotFoundError):  # the last who leaves a database takes its log along
            size += file.with_name(file.name + end).stat().st_size
    try:
        usage = shutil.disk_usage(file.parent)
    except FileNotFoundError:
        return None
    return DiskState(free_bytes=usage.free, total_bytes=usage.total, database_bytes=size)


@router.get("/healthz", tags=["service"], summary="Check that the process runs")
async def healthz() -> schemas.Health:
    """Responds while the process serves. Restart the process if it does not."""
    return schemas.Health(version=decaysketch.__version__)


@router.get(
    "/readyz",
    tags=["service"],
    summary="Check that the process accepts requests",
    response_model=Readiness,
    responses=problems(s503="Not ready. The member `checks` gives the reason."),
)
async def readyz(request: Request, aggregator: TheAggregator) -> Response:
    """Ready: the journal accepts writes, this process has replayed all of it, it merges commits
    without delay, and it is not shutting down. If it is not ready, send requests elsewhere and do
    not restart it. The result is valid for a second.
    """
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
            "description": "The Prometheus text format, for all workers.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    },
)
async def metrics(request: Request, aggregator: TheAggregator) -> Response:
    """The labels contain stream names."""
    counted: Metrics = request.app.state.metrics
    counted.holding(aggregator.stream_count, aggregator.source_count)
    counted.memory(aggregator.memory, request.app.state.settings)
    groups = groups_exposition(request.app.state.monitors.every())
    functions = functions_exposition(request.app.state.functions.every())
    body = await asyncio.to_thread(counted.exposition)
    return Response(body + groups + functions, media_type=MEDIA_TYPE)
