"""Dependencies that routes share."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError

from api import schemas
from api.http.caller import asker, left_of
from api.http.json_body import not_json
from api.service.aggregator import Aggregator
from api.service.streams import Stream
from api.service.threads import Compute, Turns
from api.settings import Settings

__all__ = [
    "WITHOUT_BODY",
    "TheAggregator",
    "TheQuestions",
    "TheSettings",
    "TheStream",
    "asked_json",
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


async def _questions(request: Request) -> Callable[[], AbstractContextManager[Compute]]:
    questions: Turns = request.app.state.questions
    return partial(questions.asked, asker(request), left_of(request))


#: ``with questions() as compute``: one request of its caller, worked at in turns with others.
TheQuestions = Annotated[Callable[[], AbstractContextManager[Compute]], Depends(_questions)]
#: For ``openapi_extra`` of a route that is ``json_only`` and looks at no body. It asks for the type
#: because a page of any site can have a browser post a form, or nothing, and cannot say that.
WITHOUT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": False,
        "description": "No body, or any JSON, which the server ignores. The media type is "
        "required.",
        "content": {"application/json": {"schema": {}}},
    }
}

TheAggregator = Annotated[Aggregator, Depends(_aggregator)]
TheSettings = Annotated[Settings, Depends(_settings)]


async def _stream(name: schemas.StreamName, aggregator: TheAggregator) -> Stream:
    return await aggregator.find(name)


TheStream = Annotated[Stream, Depends(_stream)]
