"""The messages that each source heard: exclusive messages, overlaps, delivery ratios, silences."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response

from api.http.caller import reads
from api.http.problems import problems
from api.queries.answers import is_known
from api.queries.coverage import (
    CoverageAsked,
    CoverageEvaluation,
    CoverageResponse,
    check_cost,
)
from api.queries.sources import settle_of
from api.routes.common import TheAggregator, TheQuestions, TheStream
from api.service.aggregator import Aggregator
from api.service.streams import Stream
from api.service.threads import TURN_S
from decaysketch.core.text.grammar import MAX_TEXT
from decaysketch.query.query_syntax import is_integer

__all__ = ["router"]

router = APIRouter(tags=["queries"])

_LENGTH = "In the stream's unit, or a length such as `2s`."


async def _asked(
    decay: Annotated[
        str | None,
        Query(
            max_length=2000,
            description="Weight by age, such as `window(1d)`. Default: `none`. Omit it for a "
            "stream with a fixed decay.",
        ),
    ] = None,
    now: Annotated[
        str | None,
        Query(
            max_length=40,
            description="Query time, in the stream's unit or as a date with its zone. Default: "
            "the time of the newest message.",
        ),
    ] = None,
    expression: Annotated[
        str | None,
        Query(
            alias="set",
            max_length=MAX_TEXT,
            description='Adds the result for one set, such as `"gw-1" - "gw-2"`: `&`, `|`, `-`, '
            "`~`, `any`, `all`, `exactly(j)`, `at_least(j)` and source names, quoted "
            "unless they are identifiers.",
        ),
    ] = None,
    of: Annotated[
        str, Query(max_length=MAX_TEXT, description="The set that is the denominator.")
    ] = "any",
    guard: Annotated[
        str,
        Query(
            max_length=40,
            description=f"Bound on the time difference between duplicates. {_LENGTH} `auto`: "
            "twice the largest observed difference. `unbounded`: no bound.",
        ),
    ] = "auto",
    settle: Annotated[
        str | None,
        Query(
            max_length=40,
            description=f"Query this time ago, so that late posts are included. {_LENGTH} Default: "
            "the largest usual gap of a source that is not silent, plus its delay behind other "
            "sources.",
        ),
    ] = None,
    without_silence: Annotated[
        bool, Query(description="Skip periods in which a source heard nothing.")
    ] = False,
    limit: Annotated[
        int,
        Query(
            ge=1,
            le=1000,
            description="Maximum number of histories, ids, and pairs of many sources.",
        ),
    ] = 20,
    share: Annotated[
        float, Query(gt=0.0, le=1.0, description="Share at which `cover` ends.")
    ] = 0.99,
    confidence: Annotated[
        float, Query(gt=0.0, lt=1.0, description="Confidence of every interval.")
    ] = 0.95,
) -> CoverageAsked:
    at = None if now is None else _number(now)
    length = None if settle is None else _number(settle)
    return CoverageAsked(
        decay, at, _number(guard), length, without_silence, limit, share, expression, of, confidence
    )


@router.get(
    "/v1/streams/{name}/coverage",
    summary="Compare the sources",
    dependencies=[Depends(reads)],
    response_model=CoverageResponse,
    responses={
        304: {"description": "Unchanged since the response that If-None-Match names."},
        **problems(
            s404="No such stream, or no posts from one of the sources.",
            s422="A parameter is outside its domain, the family has no joint sample, ids are bound "
            "to their sources, or the request costs too much.",
            s429="Too many queries are running, for this caller or in total.",
        ),
    },
)
async def get_coverage(
    stream: TheStream,
    aggregator: TheAggregator,
    questions: TheQuestions,
    asked: Annotated[CoverageAsked, Depends(_asked)],
    source: Annotated[
        list[str] | None,
        Query(max_length=1000, description="These sources alone. May be given several times."),
    ] = None,
    if_none_match: Annotated[
        str | None, Header(description="Entity tags of the client's stored responses.")
    ] = None,
) -> Response:
    """For each source, its messages and those it alone heard. For each pair, the messages that both
    heard. Also the fewest sources that hear a share, spells of silence, and a range for messages
    that no source heard. Under any decay, from the posted sketches, without revoked sources.
    """
    with questions() as compute:
        evaluation = await compute(_begin, stream, aggregator, asked, source)
        headers = {"ETag": evaluation.tag, "Cache-Control": "no-cache"}
        if is_known(evaluation.tag, if_none_match):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        while (body := await compute(evaluation.work, TURN_S)) is None:
            pass
    return Response(body, headers=headers, media_type="application/json")


def _begin(
    stream: Stream, aggregator: Aggregator, asked: CoverageAsked, sources: list[str] | None
) -> CoverageEvaluation:
    names = [name for name in stream.source_names if sources is None or name in sources]
    held = (stream.source(name) for name in names)
    check_cost(sum(each[0].counted_rows for each in held if each is not None), len(names) or 1)
    snapshots = stream.snapshots(sources)
    if asked.settle is None:
        settle = settle_of(stream, snapshots, aggregator)
        asked = asked._replace(settle=settle)
    rows = sum(map(len, snapshots.values()))
    reading = aggregator.memory.reading
    reading.make_room(rows)
    made = CoverageEvaluation(stream.name, snapshots, asked, stream.row.from_level)
    return reading.charge(made, rows)


def _number(text: str) -> int | str:
    """An integer if the text is one, else the value of the text."""
    return int(text) if is_integer(text) else text
