"""Posts of sketches, and the merged sketch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from http import HTTPStatus
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from pydantic import BaseModel

from api import schemas
from api.errors import InvalidRequestError
from api.http.caller import caller_of, reads, writes
from api.http.middleware import DirectRoute, require_media_type
from api.http.problems import problems
from api.ingest.checks import check_interval, check_times, doubts_of_sketches, interval_of
from api.journal.log import Interval, Post
from api.monitors.engine import Monitors, Reporting
from api.queries import is_known
from api.routes.common import TheAggregator, TheQuestions
from api.service.aggregator import Aggregator
from api.service.budget import PART_ROWS, Hold, Memory
from api.service.committer import rows_of
from api.service.streams import Stream
from api.settings import Settings
from decaysketch import Snapshot
from decaysketch.monitor import GRANTS_HEADER, SITE_HEADER, Report

__all__ = ["post_sketches", "router"]

router = APIRouter(route_class=DirectRoute)


class SketchParameters(BaseModel):
    """The query string for ``post_sketches``."""

    source: schemas.SourceKey
    first: schemas.IntervalFirst = None
    one_past: schemas.IntervalNext = None


SKETCH = "application/octet-stream"
SKETCHES = "application/vnd.decaysketch.sketches"

_LENGTH_BYTES = 4
_MOST_SKETCHES = 10_000
# The committer decodes small sketches. Moving them to another thread costs more than it saves.
_SMALL_BYTES = 256 * 1024
_FEW_ROWS = 1 << 15


@router.post(
    "/v1/streams/{name}/sketches",
    tags=["sketches"],
    summary="Post sketches",
    dependencies=[Depends(writes)],
    response_model=schemas.PostedSketches,
    response_description="The sketches are stored. Within milliseconds, results include them.",
    responses=problems(
        s403="The source was revoked, or the stream accepts raw observations only.",
        s404="No such stream.",
        s409="The sketch has another family, other parameters or a smaller capacity, and the "
        "problem names both values. Or numbers in its interval are already used, in another "
        "interval or with other bytes. Or it contradicts the stream's content under a "
        "shared name (`conflicting-sketch`).",
        s413="The body is too long, or its sketches have too many rows together.",
        s415="The body has another media type.",
        s422="The bytes are damaged, a time lies in the future, or `source`, `first` or `next` is "
        "missing or outside its domain.",
        s429="Too many posts wait to be written, too many rows are in progress, or the sketch's "
        "clock is a little ahead (`clock-ahead`). Send the request again after "
        "`Retry-After`.",
        s503="The journal is unreachable. Nothing was acknowledged. Send the request again.",
        s507="There is no capacity for its rows, for another source, or for another entry in the "
        "stream's sketch (`no-capacity`).",
    ),
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "One sketch from `to_bytes()`, with parameters or a fingerprint. "
            f"Or up to {_MOST_SKETCHES:,} sketches as `{SKETCHES}`, each after its length in bytes "
            "(4 bytes, little-endian).",
            "content": {
                media: {"schema": {"type": "string", "format": "binary"}}
                for media in (SKETCH, SKETCHES)
            },
        }
    },
)
async def post_sketches(
    name: schemas.StreamName,
    parameters: Annotated[SketchParameters, Query()],
    request: Request,
) -> Response:
    """After the response, the sketches survive a crash: the complete body, or nothing if one sketch
    is rejected. Post them as often as you like: repeated sketches change nothing.

    With the headers `Decaysketch-Site` and `Decaysketch-Grants` the post is also a report from a
    source that takes part in the stream's monitors, and the response has its `grants`.
    """
    media = require_media_type(request, SKETCH, SKETCHES)
    aggregator: Aggregator = request.app.state.aggregator
    source, interval = parameters.source, interval_of(parameters.first, parameters.one_past)
    stream = await aggregator.find(name)
    stream.admit(source)
    body = await request.body()
    bodies = [body] if media == SKETCH else list(_split(body))
    if interval is not None and len(bodies) != 1:
        raise InvalidRequestError("an interval belongs to a single sketch; the body has several")
    settings: Settings = request.app.state.settings
    is_small = len(body) <= _SMALL_BYTES and len(bodies) == 1
    now_us, most = aggregator.now_us(), settings.max_interval
    read = partial(_read, stream, interval, now_us, most)
    posts = [Post(stream.id, source, each, interval=interval, read=read) for each in bodies]
    if is_small:
        _peek(stream, posts)
    else:
        await aggregator.compute(_peek, stream, posts)
    rows = rows_of(posts)
    reporting = _reporting(request, stream, source, rows)
    beside = None if reporting is None else reporting.write
    caller = caller_of(request)
    with aggregator.hold(rows, beside=PART_ROWS * len(posts), caller=caller) as hold:
        if not is_small or rows > _FEW_ROWS:
            await aggregator.compute_of(rows)(_decode_held, aggregator.memory, hold, posts)
        receipt = await aggregator.post({stream: posts}, hold=hold, caller=caller, beside=beside)
    posted = {
        "stream": name,
        "source": source,
        "token": receipt.token,
        "sketches": [
            {
                "rows": post.rows,
                "bytes": len(post.body),
                "duplicate": duplicate,
                "interval": None if interval is None else asdict(interval),
            }
            for post, duplicate in zip(posts, receipt.duplicates, strict=True)
        ],
        "warnings": doubts_of_sketches(
            stream.recipe.params.time_unit, (post.decode() for post in posts)
        ),
        **({} if reporting is None else reporting.answer().to_dict()),
    }
    return Response(msgspec.json.encode(posted), media_type="application/json")


def _reporting(request: Request, stream: Stream, source: str, rows: int) -> Reporting | None:
    """Return the monitor report in a post's headers. None: there is none."""
    site = request.headers.get(SITE_HEADER)
    if site is None:
        return None
    report = Report.from_headers(site, request.headers.get(GRANTS_HEADER, ""))
    monitors: Monitors = request.app.state.monitors
    return monitors.reporting(stream, source, report, rows)


def _split(body: bytes) -> Iterator[bytes]:
    """Return the sketches in a body with several."""
    position = count = 0
    while position < len(body):
        begin = position + _LENGTH_BYTES
        end = begin + int.from_bytes(body[position:begin], "little")
        if end > len(body):
            raise InvalidRequestError(
                f"sketch {count} of the body ends at byte {end}; the body ends at {len(body)}"
            )
        yield body[begin:end]
        position, count = end, count + 1
        if count > _MOST_SKETCHES:
            raise InvalidRequestError(f"the body has more than {_MOST_SKETCHES} sketches")
    if not count:
        raise InvalidRequestError("the body has no sketch")


def _peek(stream: Stream, posts: Sequence[Post]) -> None:
    """Find each post's row count, before any post is decoded."""
    for post in posts:
        post.rows = stream.peek_post(post.body)


def _read(
    stream: Stream, interval: Interval | None, now_us: int, max_interval: int, body: bytes
) -> Snapshot:
    """Return the sketch in a body, decoded and checked."""
    sketch = stream.decode_post(body)
    stream.check_strata(sketch)
    check_times(
        sketch,
        stream=stream.name,
        max_clock_skew_s=stream.row.max_clock_skew_s,
        now_ns=now_us * 1000,
    )
    if interval is not None:
        check_interval(interval, sketch, max_interval=max_interval)
    return sketch


def _decode_held(memory: Memory, hold: Hold, posts: Sequence[Post]) -> None:
    """Decode on a thread. The thread continues if the client has left by then."""
    with hold, memory.merging(rows_of(posts)):
        for post in posts:
            post.decode()


@router.get(
    "/v1/streams/{name}/sketch",
    tags=["sketches"],
    summary="Download the merged sketch",
    dependencies=[Depends(reads)],
    response_class=Response,
    responses={
        200: {
            "description": "Read it with `from_bytes` of the family. The ETag is its digest. "
            "`Decaysketch-From-Level` is the stream's `from_level`, if it has "
            "one: pass it to `SourceSet`.",
            "content": {SKETCH: {"schema": {"type": "string", "format": "binary"}}},
        },
        304: {"description": "Unchanged since the response that If-None-Match names."},
        **problems(
            s404="No such stream, or no posts from that source.",
            s409="The stream of the token was deleted, or the token belongs to no post.",
            s422="The name or the source is outside its domain.",
            s429="Too many queries are running, for this caller or in total.",
            s503="The post of the token did not arrive here in time.",
        ),
    },
)
async def get_sketch(
    name: schemas.StreamName,
    aggregator: TheAggregator,
    questions: TheQuestions,
    source: schemas.SourceKey | None = None,
    if_none_match: Annotated[str | None, Header()] = None,
    decaysketch_after: schemas.AfterHeader = None,
) -> Response:
    """Equal sets of posts give equal bytes, for any order and repetition. `source`: this source
    alone, instead of all sources merged.
    """
    if decaysketch_after is not None:
        await aggregator.reached(decaysketch_after, [name])
    stream = await aggregator.find(name)
    with questions() as compute:
        merged, digest = await compute(_merged, stream, None if source is None else [source])
        etag = f'"{digest}"'
        headers = {
            "ETag": etag,
            "Content-Disposition": f'attachment; filename="{name}.sketch"',
        }
        if stream.row.from_level:
            headers["Decaysketch-From-Level"] = str(stream.row.from_level)
        if is_known(etag, if_none_match):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        body = await compute(merged.to_bytes)
    return Response(body, media_type=SKETCH, headers=headers)


def _merged(stream: Stream, sources: list[str] | None) -> tuple[Snapshot, str]:
    merged = stream.snapshot(sources)
    return merged, merged.digest
