"""Shared parts of the routes.

Dependencies, media types, routes that FastAPI only describes, and problems with the statuses and
texts that senders in other protocols understand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from inspect import signature
from typing import Annotated, Any, get_type_hints

from fastapi import Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from api import schemas
from api.http.caller import asker, writes
from api.http.json_body import not_json
from api.http.problems import ProblemResponse, handled
from api.http.refusals import CLIENT_LEFT, UnsupportedMediaTypeError
from api.service.aggregator import Aggregator
from api.service.streams import Stream
from api.service.threads import Compute, Turns
from api.settings import Settings

__all__ = [
    "BAD",
    "BUSY",
    "CLIENT_LEFT",
    "WITHOUT_BODY",
    "DirectPosts",
    "DirectRoute",
    "TheAggregator",
    "TheQuestions",
    "TheSettings",
    "TheStream",
    "as_understood",
    "asked_json",
    "direct",
    "json_only",
    "require_media_type",
    "translated",
    "understood_by",
    "utc",
]


def utc(time_us: int) -> datetime:
    """Return a time in microseconds since 1970, in the form that JSON responses use."""
    return datetime.fromtimestamp(time_us / 1e6, tz=UTC)


async def _aggregator(request: Request) -> Aggregator:
    aggregator: Aggregator = request.app.state.aggregator
    return aggregator


async def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


async def json_only(request: Request) -> None:
    require_media_type(request, "application/json")


async def asked_json(request: Request) -> Any:
    """The parsed JSON body, which the library reads. It is parsed before the stream is looked up,
    so that an unreadable body gives the same error everywhere.
    """
    if not await request.body():
        raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "missing"}])
    try:
        return await request.json()
    except json.JSONDecodeError as error:
        raise not_json(error) from None


def require_media_type(request: Request, *expected: str) -> str:
    """The media type of the body, one of the given.

    Raises:
        UnsupportedMediaTypeError: none of them.
    """
    given = request.headers.get("content-type")
    media = None if given is None else given.partition(";")[0].strip().lower()
    if media is None or media not in expected:
        raise UnsupportedMediaTypeError("content-type", given, " or ".join(expected))
    return media


def direct(endpoint: Callable[..., Awaitable[Response]]) -> Callable[[Request], Any]:
    """Return a handler that reads an endpoint's parameters by their pydantic model.

    FastAPI's own work for a request takes as long as a small post.

    Args:
        endpoint: has the stream's name, ``parameters`` and the request.
    """
    model: type[BaseModel] = get_type_hints(endpoint)["parameters"]

    async def handle(request: Request) -> Response:
        await writes(request)
        faults: list[dict[str, Any]] = []
        name, parameters = request.path_params["name"], None
        try:
            _NAME.validate_python(name)
        except ValidationError as error:
            faults += _located(error, "path", "name")
        try:
            parameters = model.model_validate(dict(request.query_params))
        except ValidationError as error:
            faults += _located(error, "query")
        if faults:
            raise RequestValidationError(faults)
        return await endpoint(name, parameters, request)

    return handle


_NAME: TypeAdapter[str] = TypeAdapter(schemas.StreamName)


def _located(error: ValidationError, *where: str) -> list[dict[str, Any]]:
    """Return faults as FastAPI locates them."""
    faults = error.errors(include_url=False)
    return [{**fault, "loc": (*where, *fault["loc"])} for fault in faults]


class DirectRoute(APIRoute):
    """A route that FastAPI describes by its signature, and :func:`direct` handles if it has
    ``parameters``.
    """

    @property
    def is_direct(self) -> bool:
        """Return whether FastAPI only describes it."""
        return "parameters" in signature(self.endpoint).parameters

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return direct(self.endpoint) if self.is_direct else super().get_route_handler()


class DirectPosts:
    """Handles the two busiest routes before the framework routes a request. ``app`` handles all
    other requests.

    A request to them came through the same layers as every other (``http.middleware``). FastAPI's
    route has the same handler, so there is one code path. A rejection comes from the same table of
    problems.

    Args:
        app: the next layer.
        routes: by the last part of their path, below a stream.
    """

    def __init__(self, app: ASGIApp, routes: Mapping[str, APIRoute]) -> None:
        self.app = app
        self._routes = routes
        self._handlers = {name: direct(route.endpoint) for name, route in routes.items()}
        self._path = re.compile(rf"/v1/streams/([^/]+)/({'|'.join(routes)})")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = None
        if scope["type"] == "http" and scope["method"] == "POST" and not scope.get("root_path"):
            path = self._path.fullmatch(scope["path"])
        if path is None:
            await self.app(scope, receive, send)
            return
        scope["route"] = self._routes[path[2]]  # for the log line, and the count of rejections
        scope["path_params"] = {"name": path[1]}
        request = Request(scope, receive)
        try:
            response = await self._handlers[path[2]](request)
        except Exception as error:
            response = await handled(request, error)
        await response(scope, receive, send)


async def _questions(request: Request) -> Callable[[], AbstractContextManager[Compute]]:
    questions: Turns = request.app.state.questions
    return partial(questions.asked, asker(request))


#: ``with questions() as compute``: one request of its caller, worked at in turns with others.
TheQuestions = Annotated[Callable[[], AbstractContextManager[Compute]], Depends(_questions)]
#: For ``openapi_extra`` of a route that is ``json_only`` and looks at no body. It asks for the type
#: because a page of any site can have a browser post a form, or nothing, and cannot say that.
WITHOUT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": False,
        "description": "Nothing, or any JSON, which is not looked at; the type must be named.",
        "content": {"application/json": {"schema": {}}},
    }
}

TheAggregator = Annotated[Aggregator, Depends(_aggregator)]
TheSettings = Annotated[Settings, Depends(_settings)]


async def _stream(name: schemas.StreamName, aggregator: TheAggregator) -> Stream:
    return await aggregator.find(name)


TheStream = Annotated[Stream, Depends(_stream)]


BAD = {
    HTTPStatus.UNPROCESSABLE_ENTITY.value: HTTPStatus.BAD_REQUEST.value,
    HTTPStatus.CONFLICT.value: HTTPStatus.BAD_REQUEST.value,
}
"""Some senders give up for good after 422. All treat 400 as a fault in the body."""

BUSY = {HTTPStatus.TOO_MANY_REQUESTS.value: HTTPStatus.SERVICE_UNAVAILABLE.value}
"""For senders that drop data after 429."""

Answer = Callable[[Request, ProblemResponse], Response]


def understood_by(answer: Answer) -> type[APIRoute]:
    """Return a route class with problems written by ``answer``."""

    class Understood(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handler = super().get_route_handler()

            async def handle(request: Request) -> Response:
                try:
                    return await handler(request)
                except Exception as error:
                    return answer(request, await handled(request, error))

            return handle

    return Understood


def translated(
    answer: ProblemResponse, statuses: Mapping[int, int]
) -> tuple[dict[str, Any], int, dict[str, str]]:
    """Return a problem's members, the response status, and the headers in addition to the
    content headers.
    """
    status = statuses.get(answer.status_code, answer.status_code)
    headers = {
        name: value
        for name, value in answer.headers.items()
        if name not in ("content-length", "content-type")
    }
    return json.loads(bytes(answer.body)), status, headers


def as_understood(
    answer: ProblemResponse, statuses: Mapping[int, int], **beside: Any
) -> ProblemResponse:
    """Return a problem with another status and additional members."""
    problem, status, headers = translated(answer, statuses)
    return ProblemResponse(problem | beside | {"status": status}, status, headers)
