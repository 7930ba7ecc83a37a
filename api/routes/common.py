"""What the routes share: their dependencies, media types and the description of refusals."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request

from api.errors import PROBLEM_JSON, UnsupportedMediaTypeError
from api.settings import Settings
from api.streams import Aggregator

__all__ = ["TheAggregator", "TheSettings", "json_only", "problems", "require_media_type"]


async def _aggregator(request: Request) -> Aggregator:
    aggregator: Aggregator = request.app.state.aggregator
    return aggregator


async def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


async def json_only(request: Request) -> None:
    require_media_type(request, "application/json")


def require_media_type(request: Request, expected: str) -> None:
    encoding = request.headers.get("content-encoding")
    if encoding is not None and encoding.lower() != "identity":
        raise UnsupportedMediaTypeError("content-encoding", encoding, "identity")
    given = request.headers.get("content-type")
    if given is None or given.partition(";")[0].strip().lower() != expected:
        raise UnsupportedMediaTypeError("content-type", given, expected)


TheAggregator = Annotated[Aggregator, Depends(_aggregator)]
TheSettings = Annotated[Settings, Depends(_settings)]


def problems(**reasons: str) -> dict[int | str, dict[str, Any]]:
    """``problems(s404="no such stream")``: what the description says of refusals."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        int(status[1:]): {"description": text, "content": {PROBLEM_JSON: {"schema": schema}}}
        for status, text in reasons.items()
    }
