"""Shared parts of the routes: dependencies and media types."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.routing import BaseRoute

from api import schemas
from api.http.caller import asker
from api.http.json_body import not_json
from api.http.refusals import CLIENT_LEFT, UnsupportedMediaTypeError
from api.service.aggregator import Aggregator
from api.service.fair_queue import Turns
from api.service.streams import Stream
from api.service.threads import Compute
from api.settings import Settings

__all__ = [
    "CLIENT_LEFT",
    "PLAIN_TEXT",
    "WITHOUT_BODY",
    "Plain",
    "TheAggregator",
    "TheQuestions",
    "TheSettings",
    "TheStream",
    "asked_json",
    "json_only",
    "require_media_type",
    "route_named",
]


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


PLAIN_TEXT = rb"[A-Za-z0-9._~-]"
"""A letter of a URL that stands for itself."""


@dataclass(frozen=True)
class Plain:
    """A route's way to handle common requests without FastAPI.

    Attributes:
        route: the same route in FastAPI.
        query: parameters without escapes.
        answer: called with the request, the name in its path and the match of ``query``.
    """

    route: BaseRoute
    query: re.Pattern[bytes]
    answer: Callable[[Request, str, re.Match[bytes]], Awaitable[Response]]


def route_named(router: APIRouter, name: str) -> BaseRoute:
    """The route with this function name in a router."""
    return next(route for route in router.routes if getattr(route, "name", None) == name)


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
