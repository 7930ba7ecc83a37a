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
from api.ingest.building import READERS, Ingestion, count, read_body, refuse_other_unit
from api.ingest.checks import (
    check_length,
    doubts_of_columns,
    doubts_of_copies,
    doubts_of_ids,
    interval_of,
)
from api.journal.log import Interval
from api.routes.ingest import (
    COST,
    ReadBody,
    Work,
    copies_of,
    count_rows,
    form_of,
    held,
    ingest,
    warnings_on,
)
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
from decaysketch.ingest.readings import Steps

__all__ = ["post_observations", "router"]

router = APIRouter(route_class=DirectRoute)

_LEAST_BYTES = 16  # of an observation in JSON
_Verdict = Literal["retained", "already_retained", "below_watermark", "refused"]
_NAMES: tuple[_Verdict, ...] = get_args(_Verdict)


class RefusedRow(BaseModel):
    """A rejected observation."""

    row: int = Field(description="Index in the body, from 0. Empty lines do not count.")
    field: str = Field(description="The invalid field. `observation` for the complete row.")
    reason: str = Field(description="Description of the fault.")
    value: Any = Field(default=None, description="The given value, shortened if long.")
    expected: Any = Field(default=None, description="The expected value.")


class PostedObservations(BaseModel):
    """The outcome for the observations in one post."""

    stream: str
    source: str
    token: str | None = Field(
        description="A query with this token as `after` includes these observations. Null if the "
        "server accepted none."
    )
    duplicate: bool = Field(
        description="The source has posted the same set of observations before."
    )
    rows: int = Field(description="Observations in the body.")
    retained: int = Field(
        description="Observations that are new in this source's posts and retained."
    )
    already_retained: int = Field(
        description="Duplicates of earlier observations, or of others in this body."
    )
    below_watermark: int = Field(
        description="Accepted observations that are too old to be retained."
    )
    refused: int = Field(description="Not taken.")
    verdicts: list[_Verdict] | None = Field(
        default=None, description="Status of each observation, in order, with `verdicts=rows`."
    )
    refusals: list[RefusedRow] = Field(
        description=f"Rejected observations, at most the first {REFUSALS_LISTED}."
    )
    warnings: list[str] = Field(
        default=[],
        description="Probable mistakes, such as times in another unit. Often empty.",
    )


class ObservationParameters(BaseModel):
    """The query string of ``post_observations``."""

    source: schemas.SourceKey
    verdicts: Annotated[
        Literal["rows", "counts"],
        Query(
            description="`rows`: a status for each observation. `counts`: the number of rows "
            "with each status."
        ),
    ] = "rows"
    first: schemas.IntervalFirst = None
    one_past: schemas.IntervalNext = None
    check_units: Annotated[
        bool,
        Query(
            description="Reject a post if its times are dates in another unit: nearly all times, "
            "or some times in the first post to a stream."
        ),
    ] = True
    time_zone: Annotated[
        str | None,
        Query(
            max_length=100,
            description="Zone of times without one, such as `Europe/Berlin`. Without it, texts "
            "without a zone are rejected, and Arrow timestamps are read as UTC.",
        ),
    ] = None


_KEY = {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "array"}]}
_ROW = {
    "type": "object",
    "required": ["time"],
    "properties": {
        "value": {
            "type": ["number", "string", "null"],
            "description": "A number, or a text if the stream's `value_type` is `label`.",
        },
        "weight": {"type": "integer", "default": 1},
        "time": {"type": "integer"},
        "id": _KEY,
        "start": {
            "type": "integer",
            "description": "For series: the time at which the counter began.",
        },
        "entity": _KEY | {"description": "For series: the sampled entity. Default: the series."},
        "attributes": {
            "type": "object",
            "description": "For series: texts or null, by the declared attribute names.",
        },
        "key": _KEY | {"description": "Key of an event, for streams of keys. It replaces `id`."},
    },
}
_EXAMPLE = {"observations": [{"value": 21.5, "weight": 3, "time": 1700000000, "id": "t-7/4711"}]}


@router.post(
    "/v1/streams/{name}/observations",
    tags=["observations"],
    summary="Post raw observations",
    dependencies=[Depends(writes)],
    response_model=PostedObservations,
    response_description="The accepted observations are stored.",
    responses=problems(
        s403="The source was revoked.",
        s404="No such stream.",
        s409="Numbers in its interval are already used, in another interval or with another body.",
        s413="The body is too long, or has too many observations.",
        s415="The body is neither JSON, NDJSON nor an Arrow stream.",
        s422="The body cannot be read, or `source`, `first` or `next` is missing or outside its "
        "domain. Or the stream is empty and the times are probably not in its unit. Or "
        "every observation was rejected, and the problem has the members of a post's "
        "response in addition.",
        s429="Too many posts wait to be written, or too many rows are in progress. Send the "
        "request again after Retry-After.",
        s503="The journal is unreachable. Nothing was acknowledged. Send the request again.",
        s507="There is no capacity for its rows, for another source, or for another entry.",
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
    ingestion = Ingestion(
        stream=stream,
        form=form,
        views=views,
        check_times=refuse if parameters.check_units else None,
    )
    read = partial(read_body, reader=reader, form=form)
    if interval is None:
        receipt, [batch] = await ingest(request, [ingestion], body, read, rows=rows, cost=cost)
    else:
        checking = _checked(ingestion, read, body)
        receipt, batch = await _ingest_numbered(
            request, ingestion, body, checking, interval, rows=rows, cost=cost
        )
    counts = _counts(batch)
    if counts["refused"]:
        aggregator.observer.observations(name, source, "refused", counts["refused"])
    for field, rows in _refused_by_field(batch).items():
        aggregator.refused(stream, source, f"observation-{field}", rows)
    posted = PostedObservations(
        stream=name,
        source=source,
        token=None if receipt is None else receipt.token,
        duplicate=receipt is not None and receipt.duplicates == [True],
        rows=batch.rows,
        **counts,
        verdicts=[_NAMES[code] for code in batch.statuses.tolist()]
        if parameters.verdicts == "rows"
        else None,
        refusals=[_presented(each) for each in batch.refusals[:REFUSALS_LISTED]],
        warnings=[
            *doubts_of_columns(recipe.params.time_unit, batch.columns.times),
            *([_ZONELESS] if batch.zoneless else []),
            *doubts_of_copies(batch.disagreeing),
            *doubts_of_ids(*batch.joined),
            *warnings_on(stream, batch),
        ],
    )
    if posted.rows and posted.refused == posted.rows:
        return _nothing_taken(posted)
    return Response(posted.model_dump_json(), media_type="application/json")


_ZONELESS = "the times have no zone and were read as UTC; set time_zone in the request"


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
                f"first and next are given: rows of family {family.name!r} are identified by "
                f"their {family.input.named_by}, not by numbers in a post",
                [Fault(field="first", reason="not allowed here", value=first)],
            )
        return None
    if interval is None:
        raise InvalidRequestError(
            f"first and next are missing: rows of the family {family.name!r} have no ids, so the "
            "post must give their sequence numbers at the source",
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


def _checked(ingestion: Ingestion, read: ReadBody[Batch], body: bytes) -> Steps[Batch]:
    """Read a body for one stream, and check its rows."""
    [batch] = yield from read(body)
    yield from ingestion.check(batch)
    return batch


async def _ingest_numbered(
    request: Request,
    ingestion: Ingestion,
    body: bytes,
    checking: Steps[Batch],
    interval: Interval,
    *,
    rows: int,
    cost: int,
) -> tuple[Receipt | None, Batch]:
    """Count rows at their source's site, and journal the resulting state."""
    aggregator: Aggregator = request.app.state.aggregator
    stream, source = ingestion.stream, ingestion.form.source
    caller = caller_of(request)
    name = f"{interval.first} {interval.next} ".encode()
    sent = hashlib.sha256(name + body).digest()

    async def post(site: Site) -> tuple[Receipt | None, Sketch | None]:
        compute = aggregator.compute_of(len(site.sketch) + batch.rows)
        new, sketch = await compute(count, batch, site, interval, sent)
        if new is None:
            return None, None
        receipt = await aggregator.post({stream: [new]}, hold=hold, caller=caller, check=site.check)
        if receipt.duplicates != [True]:
            return receipt, sketch
        batch.statuses[batch.positions] = Verdict.ALREADY_RETAINED
        return receipt, None

    with aggregator.hold_observations([stream], source, rows, caller) as hold:
        steps = held(checking, aggregator.memory, hold)
        batch = await Work(request, cost * rows).by_steps(steps)
        _check_numbers(batch, interval)
        receipt = await aggregator.sites.count(stream, source, post)
    count_rows(aggregator, ingestion, batch)
    return receipt, batch


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
            f"none of the {posted.rows} observations was accepted; {first.field}: {first.reason}",
            faults,
        ),
        posted.model_dump(),
    )


def _counts(batch: Batch) -> dict[_Verdict, int]:
    found = np.bincount(batch.statuses, minlength=len(_NAMES)).tolist()
    return dict(zip(_NAMES, found, strict=True))


def _refused_by_field(batch: Batch) -> dict[str, int]:
    fields: dict[str, int] = {}
    for refusal in batch.refusals:
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
