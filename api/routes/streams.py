"""Streams: what the sketches of each share, and who posts to them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response

from api import schemas
from api.access.guard import Reads, administers, creates, reads
from api.errors import Fault, InvalidRequestError
from api.ingest.intervals import interval_of
from api.ingest.skew import clock_lead_s
from api.routes.common import TheAggregator, TheStream, json_only, problems
from api.streams import Stream

__all__ = ["router"]

router = APIRouter()

_SOURCES_LISTED = 100

SourcePath = Annotated[str, Path(pattern=schemas.SOURCE, description="Name of the source.")]


@router.put(
    "/v1/streams/{name}",
    tags=["streams"],
    summary="Create a stream",
    dependencies=[Depends(creates), Depends(json_only)],
    status_code=HTTPStatus.OK,
    response_description="The stream existed with equal parameters.",
    responses={
        201: {"model": schemas.StreamState, "description": "The stream was created."},
        **problems(
            s409="The stream exists with another family or other parameters; every differing field "
            "is named. Or there are as many streams as there may be.",
            s413="The body is too long.",
            s415="The body is not JSON.",
            s422="The name, a parameter or the decay is outside its domain.",
            s503="The journal is out of reach; the stream may or may not be there.",
        ),
    },
)
async def put_stream(
    name: schemas.StreamName,
    creation: schemas.StreamCreation,
    aggregator: TheAggregator,
    response: Response,
) -> schemas.StreamState:
    """Idempotent: the same parameters again are answered with 200 and change nothing."""
    chosen = creation.root
    given = "max_clock_skew_s" in chosen.model_fields_set
    hashed = chosen if isinstance(chosen, schemas.HashedStream) else None
    stream, created = await aggregator.create(
        name,
        chosen.form(),
        max_clock_skew_s=chosen.max_clock_skew_s if given else ...,
        secret_ids=hashed is not None and hashed.secret_ids,
        bind_keys=hashed is not None and hashed.bind_keys,
    )
    if created:
        response.status_code = HTTPStatus.CREATED
        response.headers["Location"] = f"/v1/streams/{name}"
    return await aggregator.compute(_state, stream)


@router.get("/v1/streams", tags=["streams"], summary="List the streams")
async def list_streams(aggregator: TheAggregator, caller: Reads) -> schemas.StreamList:
    """Every stream that the caller may see, at a glance."""
    streams = [stream for stream in aggregator.streams() if caller.sees(stream.name)]
    return schemas.StreamList(streams=await aggregator.compute(_summaries, streams))


@router.get(
    "/v1/streams/{name}",
    tags=["streams"],
    summary="Read a stream",
    dependencies=[Depends(reads)],
    responses=problems(s404="No such stream.", s422="The name is outside its domain."),
)
async def get_stream(
    name: schemas.StreamName,
    aggregator: TheAggregator,
    stream: TheStream,
    sources: Annotated[
        int, Query(ge=0, le=1000, description="List so many sources at most.")
    ] = _SOURCES_LISTED,
    after_source: Annotated[
        str, Query(max_length=200, description="Of those whose name comes after this.")
    ] = "",
    replacing: Annotated[
        bool, Query(description="Say of each source what it holds in place of another's.")
    ] = False,
) -> schemas.StreamState:
    """The parameters to build sketches with, and what the stream holds."""
    counts = stream.replacing if replacing else None
    return await aggregator.compute(_state, stream, after_source, sources, counts)


@router.delete(
    "/v1/streams/{name}",
    tags=["streams"],
    summary="Delete a stream",
    dependencies=[Depends(administers)],
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(
        s404="No such stream.",
        s422="The name is outside its domain.",
        s503="The journal is out of reach; the stream may or may not be there.",
    ),
)
async def delete_stream(name: schemas.StreamName, aggregator: TheAggregator) -> None:
    """With all that was posted to it. A stream of this name that is made anew is another one."""
    await aggregator.delete(name)


@router.post(
    "/v1/streams/{name}/sources/{source:path}/revoke",
    tags=["streams"],
    summary="Revoke a source",
    dependencies=[Depends(administers)],
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(
        s404="No such stream.",
        s422="The name or the source is outside its domain.",
        s503="The journal is out of reach; it may or may not have happened.",
    ),
)
async def revoke_source(
    name: schemas.StreamName, source: SourcePath, aggregator: TheAggregator
) -> None:
    """Drop all that the source has posted, and refuse it from now on: the stream is as if it had
    never been."""
    await aggregator.revoke(name, source)


@router.post(
    "/v1/streams/{name}/sources/{source:path}/reinstate",
    tags=["streams"],
    summary="Reinstate a source",
    dependencies=[Depends(administers)],
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(
        s404="No such stream, or the source was not revoked.",
        s422="The name or the source is outside its domain.",
        s503="The journal is out of reach; it may or may not have happened.",
    ),
)
async def reinstate_source(
    name: schemas.StreamName, source: SourcePath, aggregator: TheAggregator
) -> None:
    """Admit a revoked source again; what it had posted stays dropped."""
    await aggregator.reinstate(name, source)


@router.delete(
    "/v1/streams/{name}/sources/{source:path}/intervals",
    tags=["streams"],
    summary="Release an interval",
    dependencies=[Depends(administers)],
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(
        s404="No such stream, or the source has no such interval; those that share numbers with it "
        "are named.",
        s422="The name, the source, `first` or `next` is missing or outside its domain.",
        s503="The journal is out of reach; it may or may not have happened.",
    ),
)
async def release_interval(
    name: schemas.StreamName,
    source: SourcePath,
    aggregator: TheAggregator,
    first: schemas.IntervalFirst = None,
    one_past: schemas.IntervalNext = None,
) -> None:
    """Let the numbers `first` <= n < `next` of the source be posted again, which were acknowledged
    as this interval. What was posted under it stays in the answers; to drop that as well, revoke
    the source and reinstate it."""
    interval = interval_of(first, one_past)
    if interval is None:
        raise InvalidRequestError(
            "first and next are missing: which interval is to be released",
            [Fault(field=field, reason="missing") for field in ("first", "next")],
        )
    await aggregator.release(name, source, interval)


def _summaries(streams: list[Stream]) -> list[schemas.StreamSummary]:
    return [_summary(stream) for stream in streams]


def _summary(stream: Stream) -> schemas.StreamSummary:
    merged = stream.snapshot()
    totals = stream.totals()
    return schemas.StreamSummary(
        name=stream.name,
        family=stream.recipe.family,
        time_unit=stream.recipe.params.time_unit,
        created=_utc(stream.row.created_us),
        digest=merged.digest,
        rows=len(merged),
        newest=merged.newest,
        sources=stream.source_count,
        posts=totals.posts,
        posted_bytes=totals.posted_bytes,
        posted_rows=totals.rows,
        last_received=_utc(totals.last_received_us) if totals.posts else None,
    )


def _state(
    stream: Stream,
    after_source: str = "",
    sources: int = _SOURCES_LISTED,
    replacing: Mapping[str, int] | None = None,
) -> schemas.StreamState:
    merged = stream.snapshot()
    summary = dict(_summary(stream))
    count = summary.pop("sources")  # a number there, a list here
    return schemas.StreamState(
        **summary,
        incarnation=stream.row.incarnation,
        params=stream.recipe.params.to_dict(),
        decay=stream.recipe.to_dict().get("decay"),
        fingerprint=stream.recipe.params.fingerprint.hex(),
        max_clock_skew_s=stream.row.max_clock_skew_s,
        max_clock_lead_s=clock_lead_s(merged, stream.row.max_clock_skew_s),
        secret_ids=stream.row.id_key is not None,
        bind_keys=stream.row.bind_keys,
        bytes=len(merged.to_bytes()),
        watermarks=merged.watermarks,
        clock=merged.clock,
        revoked=stream.revoked,
        source_count=count,
        sources=[
            schemas.SourceState(
                source=each.source,
                digest=each.digest,
                rows=each.rows,
                posts=each.totals.posts,
                posted_bytes=each.totals.posted_bytes,
                posted_rows=each.totals.rows,
                last_received=_utc(each.totals.last_received_us),
                replacing_rows=None if replacing is None else replacing.get(each.source, 0),
            )
            for each in stream.sources(after_source, sources)
        ],
    )


def _utc(time_us: int) -> datetime:
    return datetime.fromtimestamp(time_us / 1e6, tz=UTC)
