"""Raw observations in, a verdict on each of them out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import tzinfo
from functools import partial
from typing import Annotated, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field

from api import schemas
from api.errors import Fault, InvalidRequestError, NothingTakenError
from api.http.guard import writes
from api.http.problems import ProblemResponse, presentable, problem_of, problems
from api.ingest.arrow import read_arrow
from api.ingest.building import READERS, Reader, Taken, count, read
from api.ingest.intervals import check_length, interval_of
from api.ingest.post_warnings import (
    doubts_of_columns,
    doubts_of_copies,
    doubts_of_ids,
    refuse_other_unit,
)
from api.journal.model import Interval
from api.routes.common import (
    PLAIN_TEXT,
    Plain,
    TheAggregator,
    TheSettings,
    TheStream,
    require_media_type,
    route_named,
)
from api.routes.ingest import Work, form_of, held, take_held
from api.service.aggregator import Aggregator, Receipt
from api.service.budget import Hold
from api.service.local_sources import Site
from api.service.posts import Draft
from api.service.streams import Scoped, Stream
from api.service.suspicious_readings import notes_of, warnings_of
from decaysketch.core.row_status import Verdict
from decaysketch.core.text_values import zone_of
from decaysketch.errors import ParameterError
from decaysketch.families import Sketch
from decaysketch.ingest.columns import REFUSALS_LISTED, Batch, Form, Refusal, check
from decaysketch.ingest.readings import Steps

__all__ = ["PLAIN", "router"]

router = APIRouter()

_LEAST_BYTES = 16  # of an observation in JSON
_COST = 32  # to read one takes as long as to decode so many rows of a sketch
_Verdict = Literal["retained", "already_retained", "below_watermark", "refused"]
_NAMES: tuple[_Verdict, ...] = get_args(_Verdict)


class RefusedRow(BaseModel):
    """An observation that was not taken."""

    row: int = Field(description="Which of the body, from 0; empty lines do not count.")
    field: str = Field(description="The field at fault; `observation` for the row as a whole.")
    reason: str = Field(description="What is wrong with it.")
    value: Any = Field(default=None, description="What was given (shortened if long).")
    expected: Any = Field(default=None, description="What it should be.")


class PostedObservations(BaseModel):
    """What became of the observations of one post."""

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
        default=[], description="What is hardly meant, such as times of another unit; often none."
    )


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
        "outside its domain; or the stream is empty and the times are hardly of its unit; or "
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
    source: schemas.SourceKey,
    request: Request,
    aggregator: TheAggregator,
    stream: TheStream,
    settings: TheSettings,
    verdicts: Annotated[
        Literal["rows", "counts"],
        Query(description="`rows`: a verdict on each observation; `counts`: how many of each."),
    ] = "rows",
    first: schemas.IntervalFirst = None,
    one_past: schemas.IntervalNext = None,
    check_units: Annotated[
        bool,
        Query(
            description="Refuse a post if its times are dates in another unit: nearly all, or of "
            "the first one to a stream some."
        ),
    ] = True,
    time_zone: Annotated[
        str | None,
        Query(
            max_length=100,
            description="Of times that name no zone, such as `Europe/Berlin`. Without it texts "
            "without a zone are rejected, and timestamps of Arrow are read as UTC.",
        ),
    ] = None,
) -> PostedObservations | ProblemResponse:
    """For devices too thin to build a sketch. Sound observations are taken even if others of the
    body are refused. Posting them again, in any grouping, changes nothing.

    Events of keys have no ids. There the source numbers its rows, `first` and `next` say which
    these are, and posting the same body again, with the same numbers, changes nothing."""
    reader = READERS[require_media_type(request, *READERS)]
    stream.admit(source)
    recipe = stream.recipe
    form = form_of(aggregator, stream, source, settings, zone=_zone(time_zone))
    most, copies = form.max_rows, getattr(recipe.params, "copies", 1)
    interval = _interval(stream, first, one_past, settings.max_interval)
    body = await request.body()
    rows = copies * (most if reader is read_arrow else min(most, len(body) // _LEAST_BYTES + 1))
    memory, receipt = aggregator.memory, None
    refuse = partial(refuse_other_unit, stream, recipe.params.time_unit)
    check_times = refuse if check_units else None
    caller = request.scope["state"].get("caller")
    with aggregator.hold_observations(stream, source, rows, caller) as hold:
        cost = rows if reader is read_arrow else _COST * rows
        work = Work(request, cost)
        if interval is not None:
            checking = held(_checked(reader, body, form, check_times), memory, hold)
            batch = await work.by_steps(checking)
            _check_numbers(batch, interval)
            sent = hashlib.sha256(f"{interval.first} {interval.next} ".encode() + body).digest()
            taken, receipt = await _count(
                aggregator, stream, source, batch, interval, sent, hold, caller
            )
        else:
            taken = await take_held(
                aggregator, stream, reader, body, form, hold, work, check_times=check_times
            )
            if taken.incoming is not None:
                draft = Draft.of(taken.incoming)
                receipt = await aggregator.post(stream, source, draft, hold, caller)
    counts = _counts(taken)
    for verdict, rows in counts.items():
        if rows:
            aggregator.observer.observations(name, source, verdict, rows)
    aggregator.disagreeing(stream, taken.disagreeing)
    notes = notes_of(replaced=taken.replaced, undated=taken.undated)
    aggregator.noted(stream, notes)
    for field, rows in _refused_by_field(taken).items():
        aggregator.refused(stream, source, f"observation-{field}", rows)
    posted = PostedObservations(
        stream=name,
        source=source,
        token=None if receipt is None else receipt.token,
        duplicate=receipt is not None and receipt.duplicates == [True],
        rows=taken.batch.rows,
        **counts,
        verdicts=[_NAMES[code] for code in taken.verdicts.tolist()] if verdicts == "rows" else None,
        refusals=[_presented(each) for each in taken.batch.refusals[:REFUSALS_LISTED]],
        warnings=[
            *doubts_of_columns(recipe.params.time_unit, taken.batch.columns.times),
            *doubts_of_copies(taken.disagreeing),
            *doubts_of_ids(*taken.joined),
            *warnings_of(notes, len(taken.batch.positions), stream.mappings),
        ],
    )
    return posted if posted.refused < posted.rows or not posted.rows else _nothing_taken(posted)


def _zone(name: str | None) -> tzinfo | None:
    try:
        return None if name is None else zone_of(name)
    except ParameterError as error:
        raise InvalidRequestError(
            str(error), [Fault(field="time_zone", reason="no time zone", value=name)]
        ) from None


async def _post_plain(request: Request, name: str, query: re.Match[bytes]) -> Response:
    state = request.app.state
    stream = await state.aggregator.find(name)
    posted = await post_observations(
        name,
        query[1].decode("ascii"),
        request,
        state.aggregator,
        stream,
        state.settings,
        "counts" if query[2] == b"counts" else "rows",
    )
    if isinstance(posted, Response):
        return posted
    return Response(posted.model_dump_json(), media_type="application/json")


PLAIN = Plain(
    route_named(router, "post_observations"),
    re.compile(
        rb"source=(%b{1,200})(?:&verdicts=(rows|counts))?"
        rb"(?:&(?!source=|first=|next=|verdicts=)[a-z]+=%b*)*" % (PLAIN_TEXT, PLAIN_TEXT)
    ),
    _post_plain,
)


def _interval(
    stream: Stream, first: int | None, one_past: int | None, most: int
) -> Interval | None:
    """The numbers of the rows, where nothing else tells a post from the same one, sent again; None
    where ids do."""
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


async def _count(
    aggregator: Aggregator,
    stream: Stream,
    source: str,
    batch: Batch,
    interval: Interval,
    sent: bytes,
    hold: Hold,
    caller: Scoped | None,
) -> tuple[Taken, Receipt | None]:
    """Count rows at the site of their source, and journal the state that comes of it."""

    async def post(site: Site) -> tuple[tuple[Taken, Receipt | None], Sketch | None]:
        compute = aggregator.compute_of(len(site.sketch) + batch.rows)
        taken, sketch = await compute(count, batch, site, interval, sent)
        if taken.incoming is None:
            return (taken, None), None
        draft = Draft.of(taken.incoming, check=site.check)
        receipt = await aggregator.post(stream, source, draft, hold, caller)
        if receipt.duplicates != [True]:
            return (taken, receipt), sketch
        verdicts = taken.verdicts.copy()
        verdicts[batch.positions] = Verdict.ALREADY_RETAINED
        return (replace(taken, verdicts=verdicts), receipt), None

    return await aggregator.sites.count(stream, source, post)


def _checked(
    reader: Reader,
    body: bytes,
    form: Form,
    check_times: Callable[[npt.NDArray[np.int64]], None] | None,
) -> Steps[Batch]:
    batch = check((yield from read(reader, body, form)), form)
    if check_times is not None:
        check_times(batch.columns.times)
    return batch


def _nothing_taken(posted: PostedObservations) -> ProblemResponse:
    """A problem, and beside its members all that the answer to a post says."""
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


def _counts(taken: Taken) -> dict[_Verdict, int]:
    found = np.bincount(taken.verdicts, minlength=len(_NAMES)).tolist()
    return dict(zip(_NAMES, found, strict=True))


def _refused_by_field(taken: Taken) -> dict[str, int]:
    fields: dict[str, int] = {}
    for refusal in taken.batch.refusals:
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
