"""Common posts, handled before the framework looks at them.

Routing a request, validating its parameters and its response costs as much as the work of the
route. So this module handles the most frequent requests to the busiest routes: the path of a
stream, and parameters without escapes. Such a request has passed the same layers as every other
(``http.middleware``). It passes the same guard, the same route function and, if rejected, the same
table of problems. FastAPI handles all others and describes these routes. Both ways give the same
responses.
"""

from __future__ import annotations

import re

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from api import schemas
from api.http import problems
from api.http.guard import writes
from api.routes import observations, sketches
from api.routes.common import Plain

__all__ = ["PlainPosts"]

_PATH = re.compile(rf"/v1/streams/({schemas.STREAM.strip('^$')})/(sketches|observations)")
_PLAIN: dict[str, Plain] = {"sketches": sketches.PLAIN, "observations": observations.PLAIN}


class PlainPosts:
    """Handle common posts. ``app`` handles all others."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope.get("root_path"):
            await self.app(scope, receive, send)
            return
        path = _PATH.fullmatch(scope["path"])
        plain = None if path is None else _PLAIN[path[2]]
        query = None if plain is None else plain.query.fullmatch(scope["query_string"])
        if path is None or plain is None or query is None:
            await self.app(scope, receive, send)
            return
        scope["route"] = plain.route  # for the line of the log, and the count of refusals
        scope["path_params"] = {"name": path[1]}
        request = Request(scope, receive)
        try:
            await writes(request)
            response = await plain.answer(request, path[1], query)
        except Exception as error:
            response = await problems.handled(request, error)
        await response(scope, receive, send)
