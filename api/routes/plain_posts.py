"""Posts that are nothing out of the ordinary, answered before the framework looks at them.

To have a request routed, its parameters found out and checked, and its answer checked as well costs
as much as all that the route itself does. So the busiest routes are answered here where a request
is what it mostly is: the path of a stream, parameters that stand for themselves. It came in by the
same doors as every other (``http.middleware``), and goes through the same guard, the same function
of the route and, if it is refused, the same table of problems. All else is for FastAPI, which
describes these routes: this is another way to the same answers.
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
    """Answers plain posts; ``app`` answers all else."""

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
