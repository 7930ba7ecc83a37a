"""Sketches in, the merged sketch out."""

from __future__ import annotations

from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request, Response

from api import schemas
from api.errors import Fault, InvalidRequestError
from api.routes.common import TheAggregator, problems, require_media_type
from api.store import Interval

__all__ = ["router"]

router = APIRouter()

SKETCH_MEDIA_TYPE = "application/octet-stream"


async def _sketch_body(request: Request) -> bytes:
    require_media_type(request, SKETCH_MEDIA_TYPE)
    return await request.body()


async def _interval(
    first: schemas.IntervalFirst = None, one_past: schemas.IntervalNext = None
) -> Interval | None:
    if first is None and one_past is None:
        return None
    for name, other, given in (("first", "next", first), ("next", "first", one_past)):
        if given is None:
            raise InvalidRequestError(
                f"{other} is given and {name} is not: an interval is given by both",
                [Fault(field=name, reason=f"missing, beside {other}")],
            )
    assert first is not None
    assert one_past is not None
    if first >= one_past:
        raise InvalidRequestError(
            f"the interval [{first}, {one_past}) is empty",
            [Fault(field="next", reason=f"expected more than first, {first}", value=one_past)],
        )
    return Interval(first, one_past)


SketchBody = Annotated[bytes, Depends(_sketch_body)]
TheInterval = Annotated[Interval | None, Depends(_interval)]


@router.post(
    "/v1/streams/{name}/sketches",
    tags=["sketches"],
    summary="Post a sketch",
    response_description="The sketch is on disk and folded in.",
    responses=problems(
        s404="No such stream.",
        s409="Of another family, built with other parameters, or of smaller capacity; both values "
        "are named. Or numbers of its interval came before, in another one or with other bytes.",
        s413="The body is too long.",
        s415="The body is not application/octet-stream.",
        s422="The bytes are damaged, or `source`, `first` or `next` is missing or outside its "
        "domain.",
        s503="The journal is out of reach; nothing was acknowledged, send it again.",
    ),
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "`to_bytes()` of a sketch, parameters embedded or by fingerprint.",
            "content": {SKETCH_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
def post_sketch(
    name: schemas.StreamName,
    source: schemas.SourceKey,
    interval: TheInterval,
    body: SketchBody,
    aggregator: TheAggregator,
) -> schemas.PostedSketch:
    """Once this is answered the sketch survives a crash. Post it as often as you like: what is
    there already changes nothing."""
    posted = aggregator.post(name, source, body, interval)
    return schemas.PostedSketch(
        stream=name,
        source=source,
        interval=None if interval is None else schemas.IntervalModel(**asdict(interval)),
        rows=posted.rows,
        duplicate=posted.duplicate,
        changed=posted.changed,
        merged=schemas.MergedSketch(rows=len(posted.merged), digest=posted.merged.digest),
    )


@router.get(
    "/v1/streams/{name}/sketch",
    tags=["sketches"],
    summary="Download the merged sketch",
    response_class=Response,
    responses={
        200: {
            "description": "`from_bytes` of the family reads it. The ETag is its digest.",
            "content": {SKETCH_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        },
        304: {"description": "It is the one that If-None-Match names."},
        **problems(
            s404="No such stream, or nothing came from that source.",
            s422="The name or the source is outside its domain.",
        ),
    },
)
def get_sketch(
    name: schemas.StreamName,
    aggregator: TheAggregator,
    source: schemas.SourceKey | None = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Equal bytes for equal sets of posts, whatever happened on the way. `source`: of that source
    alone, instead of the join of all."""
    merged = aggregator.stream(name).snapshot(None if source is None else [source])
    etag = f'"{merged.digest}"'
    headers = {
        "ETag": etag,
        "Content-Disposition": f'attachment; filename="{name}.sketch"',
    }
    known = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    if etag in known or "*" in known:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(merged.to_bytes(), media_type=SKETCH_MEDIA_TYPE, headers=headers)
