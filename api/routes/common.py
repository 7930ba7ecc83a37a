"""What the routes share: their dependencies, media types and the description of refusals."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request

from api import schemas
from api.aggregator import Aggregator
from api.errors import PROBLEM_JSON, UnsupportedMediaTypeError
from api.settings import Settings
from api.streams import Stream

__all__ = [
    "TheAggregator",
    "TheSettings",
    "TheStream",
    "json_only",
    "problems",
    "require_media_type",
]


async def _aggregator(request: Request) -> Aggregator:
    aggregator: Aggregator = request.app.state.aggregator
    return aggregator


async def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


async def json_only(request: Request) -> None:
    require_media_type(request, "application/json")


def require_media_type(request: Request, *expected: str) -> str:
    """Which of these the body is said to be.

    Raises:
        UnsupportedMediaTypeError: none of them.
    """
    given = request.headers.get("content-type")
    media = None if given is None else given.partition(";")[0].strip().lower()
    if media is None or media not in expected:
        raise UnsupportedMediaTypeError("content-type", given, " or ".join(expected))
    return media


TheAggregator = Annotated[Aggregator, Depends(_aggregator)]
TheSettings = Annotated[Settings, Depends(_settings)]


async def _stream(name: schemas.StreamName, aggregator: TheAggregator) -> Stream:
    return await aggregator.find(name)


TheStream = Annotated[Stream, Depends(_stream)]


def problems(**reasons: str) -> dict[int | str, dict[str, Any]]:
    """``problems(s404="no such stream")``: what the description says of refusals."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        int(status[1:]): {"description": text, "content": {PROBLEM_JSON: {"schema": schema}}}
        for status, text in reasons.items()
    }
