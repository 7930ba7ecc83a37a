"""Raw observations in, a row status for each out."""

from __future__ import annotations

import hashlib
from datetime import tzinfo
from functools import partial
from typing import Annotated, Any, Literal, get_args

import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field

from api import schemas
from api.errors import Fault, InvalidRequestError, NothingTakenError
from api.http.caller import caller_of, writes
from api.http.middleware import DirectRoute, require_media_type
from api.http.problems import ProblemResponse, presentable, problem_of, problems
from api.ingest.arrow import read_arrow
from api.ingest.building import READERS, Ingestion, count, refuse_other_unit
from api.ingest.checks import (
    check_length,
    doubts_of_columns,
    doubts_of_copies,
    doubts_of_ids,
    interval_of,
)
from api.journal.log import Interval
from api.routes.ingest import COST, Work, copies_of, count_rows, form_of, held, ingest, warnings_on
from api.service.aggregator import Aggregator
from api.service.committer import Receipt
from api.service.local_sources import Site
from api.service.streams import Stream
from api.settings import Settings
from decaysketch.core.row_check import Refusal, Verdict
from decaysketch.core.text_values import zone_of
from decaysketch.errors import ParameterError
from decaysketch.families import Sketch
from decaysketch.ingest.columns import REFUSALS_LISTED, Batch

__all__ = ["post_observations", "router"]

router = APIRouter(route_class=DirectRoute)

_LEAST_BYTES = 16  # of an observation in JSON
_Verdict = Literal["retained", "already_retained", "below_watermark", "refused"]
_NAMES: tuple[_Verdict, ...] = get_args(_Verdict)


class RefusedRow(BaseModel):
    """A rejected observation."""

    row: int = Field(description="Which of the body, from 0; empty lines do not count.")
    field: str = Field(description="The field at fault; `observation` for the row as a whole.")
    reason: str = Field(description="What is wrong with it.")
    value: Any = Field(default=None, description="What was given (shortened if long).")
    expected: Any = Field(default=None, description="What it should be.")


class PostedObservations(BaseModel):
    """The outcome for the observations in one post."""

    stream: str
    source: str
    token: str | None = Field(
        description="A query that names it sees these observations; null where none was taken."
    )
    duplicate: bool = Field(
        description="The same set of observations had been taken from this source before."
    )
    rows: int = Field(description="Observations in the body.")
    retained: int = Field(description="New to what the source has posted, and held.")
    already_retained: int = Field(description="Held before, or copies of others of this body.")
    below_watermark: int = Field(description="Taken and too old to be held.")
    refused: int = Field(description="Not taken.")
    verdicts: list[_Verdict] | None = Field(
        default=None, description="Of each observation, in order; with `verdicts=rows`."
    )
    refusals: list[RefusedRow] = Field(
        description=f"Observations that were refused, the first {REFUSALS_LISTED} of them."
    )
    warnings: list[str] = Field(
        default=[],
        description="What is probably a mistake, such as times in another unit. Often empty.",
    )


class ObservationParameters(BaseModel):
    """The query string of ``post_observations``."""

    source: schemas.SourceKey
    verdicts: Annotated[
        Literal["rows", "counts"],
        Query(description="`rows`: a verdict on each observation; `counts`: how many of each."),
    ] = "rows"
    first: schemas.IntervalFirst = None
    one_past: schemas.IntervalNext = None
    check_units: Annotated[
        bool,
        Query(
            description="Refuse a post if its times are dates in another unit: nearly all, or of "
            "the first one to a stream some."
        ),
    ] = True
    time_zone: Annotated[
        str | None,
        Query(
            max_length=100,
            description="Of times that name no zone, such as `Europe/Berlin`. Without it texts "
            "without a zone are rejected, and timestamps of Arrow are read as UTC.",
        ),
    ] = None


_KEY = {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "array"}]}
_ROW = {
    "type": "object",
    "required": ["time"],
    "properties": {
        "value": {
            "type": ["number", "string", "null"],
            "description": "A number; a text where the stream's `value_type` is `label`.",
        },
        "weight": {"type": "integer", "default": 1},
        "time": {"type": "integer"},
        "id": _KEY,
        "start": {
            "type": "integer",
            "description": "Of a series: when its counter began to count.",
        },
        "entity": _KEY | {"description": "Of a series: what is sampled. Left out: the series."},
        "attributes": {
            "type": "object",
            "description": "Of a series: texts or null, by the names that the stream declares.",
        },
        "key": _KEY | {"description": "Where a stream counts events of keys, in place of `id`."},
    },
}
_EXAMPLE = {"observations": [{"value": 21.5, "weight": 3, "time": 1700000000, "id": "t-7/4711"}]}


@router.post(
    "/v1/streams/{name}/observations",
    tags=["observations"],
    summary="Post raw observations",
    dependencies=[Depends(writes)],
    response_model=PostedObservations,
    response_description="Those that were taken are on stable storage.",
    responses=problems(
        s403="The source was revoked.",
        s404="No such stream.",
        s409="Numbers of its interval came before, in another one or with another body.",
        s413="The body is too long, or has too many observations.",
        s415="The body is neither JSON, NDJSON nor an Arrow stream.",
        s422="The body as a whole cannot be read, or `source`, `first` or `next` is missing or "
        "outside its domain; or the stream is empty and the times are probably not in its unit; or "
        "every observation was refused, which is told beside the members of any problem as in the "
        "answer to a post.",
        s429="Too much waits to be written, or too many rows are being taken; send it again after "
        "Retry-After.",
        s503="The journal is out of reach; nothing was acknowledged, send it again.",
        s507="There is no room for its rows, for another source, or for another entry.",
    ),
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "Observations: one document, an object a line, or Arrow columns.",
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["observations"],
                        "properties": {"observations": {"type": "array", "items": _ROW}},
                    },
                    "example": _EXAMPLE,
                },
                "application/x-ndjson": {"schema": _ROW},
                "application/vnd.apache.arrow.stream": {
                    "schema": {"type": "string", "format": "binary"}
                },
            },
        }
    },
)
async def post_observations(
    name: schemas.StreamName,
    parameters: Annotated[ObservationParameters, Query()],
    request: Request,
) -> Response:
    """For devices too small to build a sketch. The server accepts sound observations even if it
    rejects others in the body. Posting them again, in any grouping, changes nothing.

    Key events have no ids. There the source numbers its rows, and `first` and `next` contain the
    numbers. Posting the same body again, with the same numbers, changes nothing.
    """
    aggregator: Aggregator = request.app.state.aggregator
    settings: Settings = request.app.state.settings
    stream = await aggregator.find(name)
    reader = READERS[require_media_type(request, *READERS)]
    source = parameters.source
    stream.admit(source)
    recipe = stream.recipe
    zone = _zone(parameters.time_zone)
    form = form_of(aggregator, stream, source, settings, zone=zone)
    interval = _interval(stream, parameters.first, parameters.one_past, settings.max_interval)
    body = await request.body()
    is_arrow = reader is read_arrow
    most = form.max_rows if is_arrow else min(form.max_rows, len(body) // _LEAST_BYTES + 1)
    rows, cost = copies_of(stream) * most, 1 if is_arrow else COST
    refuse = partial(refuse_other_unit, stream, recipe.params.time_unit)
    views = aggregator.views_of(stream) if interval is None else ()
    ingestion = Ingestion(stream, reader, form, views, refuse if parameters.check_units else None)
    if interval is None:
        receipt = await ingest(request, [ingestion], body, rows=rows, cost=cost)
    else:
        receipt = await _ingest_numbered(request, ingestion, body, interval, rows=rows, cost=cost)
    counts = _counts(ingestion)
    if counts["refused"]:
        aggregator.observer.observations(name, source, "refused", counts["refused"])
    for field, rows in _refused_by_field(ingestion).items():
        aggregator.refused(stream, source, f"observation-{field}", rows)
    batch, statuses = ingestion.batch, ingestion.statuses
    posted = PostedObservations(
        stream=name,
        source=source,
        token=None if receipt is None else receipt.token,
        duplicate=receipt is not None and receipt.duplicates == [True],
        rows=batch.rows,
        **counts,
        verdicts=[_NAMES[code] for code in statuses.tolist()]
        if parameters.verdicts == "rows"
        else None,
        refusals=[_presented(each) for each in batch.refusals[:REFUSALS_LISTED]],
        warnings=[
            *doubts_of_columns(recipe.params.time_unit, batch.columns.times),
            *([_ZONELESS] if batch.zoneless else []),
            *doubts_of_copies(ingestion.disagreeing),
            *doubts_of_ids(*ingestion.joined),
            *warnings_on(ingestion),
        ],
    )
    if posted.rows and posted.refused == posted.rows:
        return _nothing_taken(posted)
    return Response(posted.model_dump_json(), media_type="application/json")


_ZONELESS = "the times name no zone and were read as UTC; set time_zone of the request"


def _zone(name: str | None) -> tzinfo | None:
    try:
        return None if name is None else zone_of(name)
    except ParameterError as error:
        raise InvalidRequestError(
            str(error), [Fault(field="time_zone", reason="no time zone", value=name)]
        ) from None


def _interval(
    stream: Stream, first: int | None, one_past: int | None, most: int
) -> Interval | None:
    """Return the interval of row numbers that a post must state if its rows have no ids. None for
    rows with ids.
    """
    interval = interval_of(first, one_past)
    family = stream.recipe.kind
    if not family.input.sited:
        if interval is not None:
            raise InvalidRequestError(
                f"first and next are given: rows of family {family.name!r} are told apart by "
                f"their {family.input.named_by}, not by numbers of a post",
                [Fault(field="first", reason="of no use here", value=first)],
            )
        return None
    if interval is None:
        raise InvalidRequestError(
            f"first and next are missing: nothing names the rows of family {family.name!r}, so "
            "they say which of the rows of the source these are",
            [Fault(field=name, reason="missing") for name in ("first", "next")],
        )
    check_length(interval, most)
    return interval


def _check_numbers(batch: Batch, interval: Interval) -> None:
    if batch.rows > interval.next - interval.first:
        raise InvalidRequestError(
            f"the body has {batch.rows} rows, and the interval [{interval.first}, "
            f"{interval.next}) {interval.next - interval.first} numbers",
            [
                Fault(
                    field="next",
                    reason="fewer numbers than rows",
                    value=interval.next,
                    expected=f"at least {interval.first + batch.rows}",
                )
            ],
        )


async def _ingest_numbered(
    request: Request,
    ingestion: Ingestion,
    body: bytes,
    interval: Interval,
    *,
    rows: int,
    cost: int,
) -> Receipt | None:
    """Count rows at their source's site, and journal the resulting state."""
    aggregator: Aggregator = request.app.state.aggregator
    stream, source = ingestion.stream, ingestion.form.source
    caller = caller_of(request)
    name = f"{interval.first} {interval.next} ".encode()
    sent = hashlib.sha256(name + body).digest()

    async def post(site: Site) -> tuple[Receipt | None, Sketch | None]:
        batch = ingestion.batch
        compute = aggregator.compute_of(len(site.sketch) + batch.rows)
        ingestion.statuses, new, sketch = await compute(count, batch, site, interval, sent)
        if new is None:
            return None, None
        receipt = await aggregator.post({stream: [new]}, hold=hold, caller=caller, check=site.check)
        if receipt.duplicates != [True]:
            return receipt, sketch
        ingestion.statuses[batch.positions] = Verdict.ALREADY_RETAINED
        return receipt, None

    with aggregator.hold_observations([stream], source, rows, caller) as hold:
        checking = held(ingestion.check(body), aggregator.memory, hold)
        await Work(request, cost * rows).by_steps(checking)
        _check_numbers(ingestion.batch, interval)
        receipt = await aggregator.sites.count(stream, source, post)
    count_rows(aggregator, ingestion)
    return receipt


def _nothing_taken(posted: PostedObservations) -> ProblemResponse:
    """Return a problem that also contains all fields of a post's response."""
    faults = [
        Fault(
            field=f"observations[{each.row}].{each.field}",
            reason=each.reason,
            value=each.value,
            expected=each.expected,
        )
        for each in posted.refusals
    ]
    first = faults[0]
    return problem_of(
        NothingTakenError(
            f"none of the {posted.rows} observations was taken; {first.field}: {first.reason}",
            faults,
        ),
        posted.model_dump(),
    )


def _counts(ingestion: Ingestion) -> dict[_Verdict, int]:
    found = np.bincount(ingestion.statuses, minlength=len(_NAMES)).tolist()
    return dict(zip(_NAMES, found, strict=True))


def _refused_by_field(ingestion: Ingestion) -> dict[str, int]:
    fields: dict[str, int] = {}
    for refusal in ingestion.batch.refusals:
        fields[refusal.field] = fields.get(refusal.field, 0) + 1
    return fields


def _presented(refusal: Refusal) -> RefusedRow:
    value = None if refusal.value is None else presentable(refusal.value)
    if isinstance(value, str):  # JSON lets text have halves of surrogate pairs
        value = value.encode("utf-8", "backslashreplace").decode("utf-8")
    return RefusedRow(
        row=refusal.row,
        field=refusal.field,
        reason=refusal.reason,
        value=value,
        expected=refusal.expected,
    )
