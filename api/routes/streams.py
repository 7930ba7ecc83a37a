"""Streams: what the sketches of each share."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus

from fastapi import APIRouter, Depends, Response

from api import schemas
from api.routes.common import TheAggregator, json_only, problems
from api.streams import Stream

__all__ = ["router"]

router = APIRouter()


@router.put(
    "/v1/streams/{name}",
    tags=["streams"],
    summary="Create a stream",
    dependencies=[Depends(json_only)],
    status_code=HTTPStatus.OK,
    response_description="The stream existed with equal parameters.",
    responses={
        201: {"model": schemas.StreamState, "description": "The stream was created."},
        **problems(
            s409="The stream exists with another family or other parameters; every differing field "
            "is named.",
            s413="The body is too long.",
            s415="The body is not JSON.",
            s422="The name, a parameter or the decay is outside its domain.",
        ),
    },
)
def put_stream(
    name: schemas.StreamName,
    creation: schemas.StreamCreation,
    aggregator: TheAggregator,
    response: Response,
) -> schemas.StreamState:
    """Idempotent: the same parameters again are answered with 200 and change nothing."""
    stream, created = aggregator.create(name, creation.root.to_recipe())
    if created:
        response.status_code = HTTPStatus.CREATED
        response.headers["Location"] = f"/v1/streams/{name}"
    return _state(stream)


@router.get("/v1/streams", tags=["streams"], summary="List the streams")
def list_streams(aggregator: TheAggregator) -> schemas.StreamList:
    """Every stream at a glance."""
    return schemas.StreamList(streams=[_summary(stream) for stream in aggregator.streams()])


@router.get(
    "/v1/streams/{name}",
    tags=["streams"],
    summary="Read a stream",
    responses=problems(s404="No such stream.", s422="The name is outside its domain."),
)
def get_stream(name: schemas.StreamName, aggregator: TheAggregator) -> schemas.StreamState:
    """The parameters to build sketches with, and what the stream holds."""
    return _state(aggregator.stream(name))


def _summary(stream: Stream) -> schemas.StreamSummary:
    sources = stream.sources()
    merged = stream.snapshot()
    return schemas.StreamSummary(
        name=stream.name,
        family=stream.recipe.family,
        created=_utc(stream.created_us),
        digest=merged.digest,
        rows=len(merged),
        sources=len(sources),
        posts=sum(source.posts for source in sources),
    )


def _state(stream: Stream) -> schemas.StreamState:
    sources = stream.sources()
    merged = stream.snapshot()
    return schemas.StreamState(
        name=stream.name,
        family=stream.recipe.family,
        created=_utc(stream.created_us),
        params=stream.recipe.params.to_dict(),
        decay=stream.recipe.to_dict().get("decay"),
        fingerprint=stream.recipe.params.fingerprint.hex(),
        digest=merged.digest,
        rows=len(merged),
        bytes=len(merged.to_bytes()),
        watermarks=merged.watermarks,
        clock=merged.clock,
        posts=sum(source.posts for source in sources),
        posted_bytes=sum(source.posted_bytes for source in sources),
        sources=[
            schemas.SourceState(
                source=source.source,
                digest=source.merged.digest,
                rows=len(source.merged),
                posts=source.posts,
                posted_bytes=source.posted_bytes,
                last_received=_utc(source.last_received_us),
            )
            for source in sources
        ],
    )


def _utc(time_us: int) -> datetime:
    return datetime.fromtimestamp(time_us / 1e6, tz=UTC)
