"""The application: settings in, ASGI out."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import decaysketch
from api import errors, routes
from api.settings import Settings
from api.store import Journal
from api.streams import Aggregator, ReplayError, warm_up

__all__ = ["create_app"]

_log = logging.getLogger("uvicorn.error")  # where uvicorn tells of starting and stopping

_DESCRIPTION = """
Time-decayed aggregates of observations that arrive duplicated, late and out of order.

Create a **stream** with its parameters; sensors and gateways read them, build sketches and
**post** the bytes; ask for any aggregate under any **decay chosen now**. Posting is idempotent:
send a sketch again, in any order, by any path, and neither the bytes of the merged sketch nor any
answer changes. A post that was answered is on disk.

A stream is of one **family**: sketches whose decay each query chooses, sketches of one fixed
integral decay, or samplers of sums or of quantiles over windows. A sampler that numbers its own
elements says which numbers a post holds; none of them is taken twice.

Errors are RFC 9457 problems. Times and ages are integers in the `time_unit` of the stream.
"""


def create_app(settings: Settings | None = None) -> FastAPI:
    """The aggregator as an ASGI application.

    The journal is opened and replayed when the application starts, and closed when it stops.

    Args:
        settings: from the environment if not given.
    """
    chosen = settings or Settings.from_environment()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        warm_up()
        try:
            with closing(Journal(chosen.database_url)) as journal:
                app.state.aggregator = Aggregator(journal)
                streams = len(app.state.aggregator.streams())
                _log.info("replayed %d streams from %s", streams, chosen.data)
                yield
        except (SQLAlchemyError, ReplayError) as error:
            _log.critical("cannot start from %s: %s", chosen.data, error)
            raise

    app = FastAPI(
        title="decaysketch aggregator",
        version=decaysketch.__version__,
        description=_DESCRIPTION,
        license_info={"name": "Apache-2.0"},
        openapi_tags=routes.TAGS,
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
        lifespan=lifespan,
    )
    app.state.settings = chosen
    app.include_router(routes.router)
    app.add_middleware(BodyLimit, limit_bytes=chosen.max_body_bytes)
    errors.install(app)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The description, with the schema of problems, which no route has as its own answer."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            license_info=app.license_info,
            tags=app.openapi_tags,
            routes=app.routes,
        )
        definition = errors.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas = schema.setdefault("components", {}).setdefault("schemas", {})
        schemas.update(definition.pop("$defs"))
        schemas["Problem"] = definition
        app.openapi_schema = schema
    return app.openapi_schema


class BodyLimit:
    """Refuses a body that is too long as soon as that is known, and never holds more of it.

    A declared length is believed; without one the bytes are counted as they come.
    """

    def __init__(self, app: ASGIApp, limit_bytes: int) -> None:
        self.app = app
        self.limit_bytes = limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "")
        too_large = declared.isdecimal() and int(declared) > self.limit_bytes
        taken_bytes = 0

        async def receive_within_limit() -> Message:
            nonlocal taken_bytes
            if too_large:
                raise errors.BodyTooLargeError(self.limit_bytes)
            message = await receive()
            taken_bytes += len(message.get("body", b""))
            if taken_bytes > self.limit_bytes:
                raise errors.BodyTooLargeError(self.limit_bytes)
            return message

        await self.app(scope, receive_within_limit, send)
