"""A stream's sources, for an operator: activity, delay, silence and rejections.

It reads no sketch.
"""

from __future__ import annotations

import heapq
from datetime import datetime
from itertools import groupby, islice
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, Field

from api.http.caller import reads
from api.http.problems import problems
from api.http.reasons import in_words
from api.journal.log import Totals
from api.routes.common import TheAggregator, TheQuestions, TheStream, utc
from api.service.source_stats import KNOWN_POSTS, LATE_S, SILENT_GAPS, SILENT_S, Sender, Senders
from api.service.streams import Stream

__all__ = ["router"]

router = APIRouter(tags=["streams"])

_FRESH = {"Cache-Control": "no-store"}


class Lateness(BaseModel):
    """The age of a post's newest observation at its arrival, by the server's clock."""

    posts: list[int] = Field(
        description="Number of posts by delay: up to each bound in `late_s`, and beyond the last."
    )
    latest_s: float = Field(description="Delay of the last post.")
    least_s: float = Field(
        description="The smallest delay. If it is negative, the source's clock is ahead by at "
        "least this amount."
    )


class SourceReport(BaseModel):
    """A source in a stream. Null fields: not seen since the process began."""

    source: str
    revoked: bool
    silent: bool | None = Field(
        description=f"It has posted nothing for {SILENT_GAPS} usual gaps and {SILENT_S:g} s. "
        f"Known from its post {KNOWN_POSTS}."
    )
    posts: int = Field(
        description="Sketches in the journal since the beginning. Posts of "
        "revoked sources are not counted."
    )
    posted_bytes: int = Field(description="Their bytes.")
    posted_rows: int = Field(description="Observations in them, including duplicates.")
    last_received: datetime | None = Field(description="Time of the last one.")
    usual_gap_s: float | None = Field(description="Usual time between two posts.")
    lateness: Lateness | None = Field(description="Also null if times have no clock.")
    refused: dict[str, int] = Field(description="Rejected posts and observations, by reason.")
    last_refused: datetime | None


class SourceReports(BaseModel):
    """A stream's sources, sorted by name, including sources with rejections only."""

    since: datetime = Field(
        description="Start of the responding process. Delays, gaps and rejections are those "
        "since then. With several processes, each reports its own."
    )
    now: datetime = Field(description="The server's clock.")
    late_s: list[float] = Field(description="Bounds by which lateness is counted.")
    refused_unnamed: dict[str, int] = Field(
        description="Rejections without a named source, by reason."
    )
    reasons: dict[str, str] = Field(
        description="An explanation of each rejection reason in the response."
    )
    sources: list[SourceReport]
    next: str | None = Field(
        description="Pass it as `after` for the next page. Null on the last page."
    )


@router.get(
    "/v1/streams/{name}/sources",
    summary="List the sources",
    dependencies=[Depends(reads)],
    response_model=SourceReports,
    responses=problems(
        s404="No such stream.",
        s422="The name, `limit` or `after` is outside its domain.",
        s429="Too many queries are running, for this caller or in total.",
    ),
)
async def list_sources(
    stream: TheStream,
    aggregator: TheAggregator,
    questions: TheQuestions,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries.")] = 100,
    after: Annotated[str, Query(max_length=200, description="Only names after this one.")] = "",
) -> Response:
    """Sources that post to the stream, their delay and frequency, silent sources, and
    rejections.
    """
    with questions() as compute:
        body = await compute(_listed, stream, aggregator.senders, aggregator.now_us(), after, limit)
    return Response(body, headers=_FRESH, media_type="application/json")


def _listed(stream: Stream, senders: Senders, now_us: int, after: str, limit: int) -> bytes:
    unnamed = senders.sender(stream.id, "") or Sender()
    revoked = set(stream.revoked)
    found = heapq.merge(
        stream.source_names_after(after, limit + 1),
        senders.names_after(stream.id, after, limit + 1),
        sorted(each for each in revoked if each > after),
    )
    names = list(islice((name for name, _ in groupby(found)), limit + 1))
    listed = names[:limit]
    known = ((each, senders.sender(stream.id, each)) for each in listed)
    seen = {each: sender for each, sender in known if sender is not None}
    refused = [unnamed.refused, *(seen[each].refused for each in listed if each in seen)]
    return (
        SourceReports(
            since=utc(senders.since_us),
            now=utc(now_us),
            late_s=list(LATE_S),
            refused_unnamed=dict(unnamed.refused),
            reasons=in_words(sorted(set().union(*refused))),
            sources=[
                _report(each, _totals(stream, each), each in revoked, seen.get(each), now_us)
                for each in listed
            ],
            next=listed[-1] if len(names) > limit else None,
        )
        .model_dump_json()
        .encode()
    )


def _totals(stream: Stream, source: str) -> Totals:
    found = stream.source(source)
    return Totals() if found is None else found[1]


def _report(
    source: str, totals: Totals, revoked: bool, sender: Sender | None, now_us: int
) -> SourceReport:
    seen = sender or Sender()
    took = seen if totals.posts else Sender()  # without its posts, a source has no delays
    latest_s, least_s = took.latest_late_s, took.least_late_s
    return SourceReport(
        source=source,
        revoked=revoked,
        silent=took.is_silent(now_us),
        posts=totals.posts,
        posted_bytes=totals.posted_bytes,
        posted_rows=totals.rows,
        last_received=utc(totals.last_received_us) if totals.posts else None,
        usual_gap_s=took.gap_s,
        lateness=None
        if latest_s is None or least_s is None
        else Lateness(posts=list(took.late), latest_s=latest_s, least_s=least_s),
        refused=dict(seen.refused),
        last_refused=None if seen.refused_us is None else utc(seen.refused_us),
    )
