"""A small application behind the doors of the aggregator, to try the doors alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import PlainTextResponse

from api import access
from api.http import middleware, problems
from api.http.caller import Reads, Writes
from api.http.json_body import JsonRoute
from api.logs import REQUEST_ID
from api.routes import keys
from api.service.streams import Streams
from api.settings import Settings


def doorway(data: Path, **settings: Any) -> FastAPI:
    """``/v1/streams/{name}`` to read, ``/v1/streams/{name}/sketches`` to write; ``/json``; keys."""
    chosen = Settings(data=str(data), **settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        store = access.SqlKeyStore(chosen.database_url)
        app.state.keys = await access.start(chosen, store)
        yield
        await store.close()

    app = FastAPI(lifespan=lifespan)
    app.state.settings = chosen
    app.state.aggregator = SimpleNamespace(stream=Streams().__getitem__)  # of none are refusals
    app.include_router(keys.router)

    @app.get("/v1/streams/{name}")
    async def read(name: str, caller: Reads) -> dict[str, str]:
        return {"name": name, "role": caller.role}

    @app.post("/v1/streams/{name}/sketches")
    async def write(name: str, request: Request, _caller: Writes) -> dict[str, Any]:
        body, encoding = await request.body(), request.headers.get("content-encoding")
        return {"bytes": len(body), "encoding": encoding, "first": body[:8].decode("latin-1")}

    json_routes = APIRouter(route_class=JsonRoute)

    @json_routes.post("/json")
    async def read_json(body: list[Any], _caller: Writes) -> int:
        return len(body)

    app.include_router(json_routes)

    @app.get("/healthz")
    async def healthz() -> dict[str, str | None]:
        return {"request": REQUEST_ID.get()}

    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("a secret of the server")

    @app.get("/cached")
    async def cached() -> PlainTextResponse:
        return PlainTextResponse("", headers={"Cache-Control": "max-age=60"})

    problems.install(app)
    middleware.install(app, chosen)
    return app
