"""The two busiest routes, found before the framework routes a request.

A request to them came through the same layers as every other (``http.middleware``). FastAPI's route
has the same handler, so there is one code path. A rejection comes from the same table of problems.
"""

from __future__ import annotations

import re

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from api.http import problems
from api.routes import observations, sketches
from api.routes.common import direct, route_named

__all__ = ["PlainPosts"]

_PATH = re.compile(r"/v1/streams/([^/]+)/(sketches|observations)")
_HANDLERS = {
    "sketches": direct(sketches.post_sketches),
    "observations": direct(observations.post_observations),
}
_ROUTES = {
    "sketches": route_named(sketches.router, "post_sketches"),
    "observations": route_named(observations.router, "post_observations"),
}


class PlainPosts:
    """Handle posted sketches and observations. ``app`` handles all other requests."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = None
        if scope["type"] == "http" and scope["method"] == "POST" and not scope.get("root_path"):
            path = _PATH.fullmatch(scope["path"])
        if path is None:
            await self.app(scope, receive, send)
            return
        scope["route"] = _ROUTES[path[2]]  # for the log line, and the count of rejections
        scope["path_params"] = {"name": path[1]}
        request = Request(scope, receive)
        try:
            response = await _HANDLERS[path[2]](request)
        except Exception as error:
            response = await problems.handled(request, error)
        await response(scope, receive, send)
