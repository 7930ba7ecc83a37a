"""The application: settings in, ASGI out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, partial
from typing import Any, ParamSpec, TypeVar

from fastapi import FastAPI

import decaysketch
from api import access, logs, monitors, routes
from api.http import middleware, problems
from api.http.middleware import DirectPosts
from api.http.openapi import describe
from api.http.responses import RequestLog
from api.journal.sql import SqlStorage
from api.monitors.saved_queries import Configured
from api.operations.signals import told_to_stop
from api.operations.starting import tell_failure
from api.service.aggregator import Aggregator, Limits
from api.service.metrics import Metrics
from api.service.threads import Compute, Threads, lanes_of, pools, turns_of
from api.settings import Settings
from decaysketch.core import special

__all__ = ["create_app"]

_log = logging.getLogger("api")

P = ParamSpec("P")
T = TypeVar("T")

_DESCRIPTION = """
Time-decayed aggregates of observations that arrive duplicated, late and out of order.

Create a **stream** with its parameters. Sensors and gateways read them, build sketches and **post**
the bytes. Then query any aggregate under any **decay**, which you choose in the query. Posts are
idempotent: if you send a sketch again, in any order, by any path, neither the merged sketch's bytes
nor any result changes. An acknowledged post is on disk.

Each stream has one **family**: for example sketches with a decay per query, sketches with one fixed
integral decay, or samplers for sums or quantiles over windows. A source that numbers its own
elements states the numbers in each post, and the server accepts each number once.

Errors are RFC 9457 problems. Times and ages are integers in the `time_unit` of the stream.
"""
_ABOUT: dict[str, Any] = {
    "title": "decaysketch aggregator",
    "version": decaysketch.__version__,
    "description": _DESCRIPTION,
    "license_info": {"name": "Apache-2.0"},
}


def create_app(settings: Settings | None = None) -> FastAPI:
    """Return the aggregator as an ASGI application.

    The application opens and reads the database when it starts. When it stops, it accepts nothing
    more, and acknowledges all accepted posts before it ends.

    Args:
        settings: read from the environment if not given.
    """
    chosen = settings or Settings.from_environment()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.callback(logs.finish)  # a process that a signal ends writes nothing afterwards
            try:
                aggregator = await _open(app, chosen, stack)
            except Exception as error:
                tell_failure(error, chosen.place)
                raise
            app.state.closing = asyncio.Event()

            def stop() -> None:
                app.state.closing.set()
                aggregator.stop()

            with told_to_stop(stop):
                async with routes.ROUTER.lifespan_context(app):
                    yield
            stop()
            try:
                async with asyncio.timeout(chosen.drain_s):
                    await aggregator.drain()
            except TimeoutError:
                _log.error("unacknowledged posts are dropped after %g s", chosen.drain_s)

    app = FastAPI(
        **_ABOUT,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would use the client's Host header
        routes=routes.ROUTER.routes,
        lifespan=lifespan,
    )
    app.state.settings = chosen
    app.state.metrics = Metrics()
    middleware.stand_outside(app, partial(DirectPosts, routes=routes.DIRECT))
    middleware.install(app, chosen)
    middleware.stand_outside(app, RequestLog)
    problems.install(app)
    app.openapi = _description  # type: ignore[method-assign]
    return app


@cache
def _description() -> dict[str, Any]:
    """The OpenAPI description. No setting changes it, and it takes a second of processor time."""
    return describe(routes.REQUESTS, **_ABOUT, tags=routes.TAGS, routes=routes.ROUTER.routes)


async def _open(app: FastAPI, settings: Settings, stack: AsyncExitStack) -> Aggregator:
    """Open the database and read it. ``stack`` closes the parts in reverse order."""
    compute, questions = pools(settings.compute_threads)
    decays, opening = Threads(1, "decays"), Threads(1, "streams")
    # No long post waits for the merges of other streams.
    large, long = Threads(1, "large"), Threads(1, "long")
    for threads in (compute, questions, decays, opening, large, long):
        stack.callback(threads.close)
    app.state.questions, app.state.decays = turns_of(questions, decays, settings, app.state.metrics)
    app.state.lanes = lanes_of(compute, long, app.state.metrics)
    opened = asyncio.Event()

    async def open_streams(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        streams = await opening(function, *args, **kwargs)
        opened.set()
        return streams

    storage = await SqlStorage.open(settings.database_url)
    aggregator = Aggregator(
        storage,
        compute,
        limits=Limits.of(settings),
        observer=app.state.metrics,
        opening=open_streams,
        large=large,
    )
    stack.push_async_callback(aggregator.close)
    keys = access.SqlKeyStore(settings.database_url)
    stack.push_async_callback(keys.close)
    app.state.keys = await access.start(settings, keys)
    await aggregator.start()
    started = await monitors.start(aggregator, storage, settings, stack)
    app.state.monitors, app.state.lists, app.state.functions = started
    app.state.configured = Configured(storage, settings)
    if settings.upstream:
        from api import relay  # brings an HTTP client, which takes a third of a second

        app.state.relay = await relay.start(aggregator, storage, settings, stack)
    loading = asyncio.create_task(_load_special_functions(opened, opening))
    stack.callback(loading.cancel)
    app.state.aggregator = aggregator
    _log.info("read %d streams from %s", aggregator.stream_count, settings.place)
    return aggregator


async def _load_special_functions(opened: asyncio.Event, compute: Compute) -> None:
    """Load them once there is a stream, so that its first result need not wait. A server without
    a stream is ready sooner and smaller.
    """
    await opened.wait()
    await compute(special.load)
