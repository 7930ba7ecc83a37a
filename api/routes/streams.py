"""Streams: the shared configuration of their sketches, and their sources."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from itertools import islice
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response

from api import schemas
from api.access.keys import Caller, Role
from api.errors import Fault, InvalidRequestError
from api.http.caller import (
    Creates,
    Reads,
    administers,
    asker,
    check_creation,
    creates,
    left_of,
    reads,
)
from api.http.json_body import JsonRoute, asked_in_body, body_described, json_only
from api.http.problems import problems
from api.ingest.checks import (
    clock_lead_s,
    doubts_of_copies,
    doubts_of_maps,
    doubts_of_sketches,
    doubts_of_unit,
    doubts_of_views,
    interval_of,
)
from api.ingest.views import DEVICES, NAMES, ROWS_OF_A_NAME, view_forms
from api.queries import is_known
from api.queries.answers import etag
from api.routes.common import WITHOUT_BODY, TheAggregator, TheQuestions, TheStream, utc
from api.service.aggregator import Aggregator
from api.service.catalog import recipe_of_form
from api.service.source_stats import Notes, warnings_of
from api.service.streams import SourceInfo, Stream
from api.service.threads import Compute, Pauses, Turns, in_turns
from decaysketch.families import FAMILIES, Recipe
from decaysketch.ingest.formats import Mappings, ingest_of

__all__ = ["router"]

router = APIRouter(route_class=JsonRoute)

_SOURCES_LISTED = 100
_PROCESS = secrets.token_hex(8)
_TOO_MUCH = "Too many queries are running, for this caller or in total."
_UNCHANGED = {"description": "Unchanged since the response that If-None-Match names."}

IfNoneMatch = Annotated[
    str | None, Header(description="Entity tags of the client's stored responses.")
]

SourcePath = Annotated[str, Path(pattern=schemas.SOURCE, description="Name of the source.")]


@router.put(
    "/v1/streams/{name}",
    tags=["streams"],
    summary="Create a stream",
    dependencies=[Depends(creates), Depends(json_only)],
    status_code=HTTPStatus.OK,
    response_model=schemas.StreamState,
    response_description="The stream existed with equal parameters.",
    responses={
        201: {"model": schemas.StreamState, "description": "The stream was created."},
        **problems(
            s409="The stream exists with another family or other parameters, and the problem "
            "names each differing field. Or the server has the maximum number of streams.",
            s413="The body is too long.",
            s415="The body is not JSON.",
            s422="The name, a parameter or the decay is outside its domain, or the decay takes too "
            "long to compute.",
            s429="Too many decay computations are running, for this caller or for all.",
            s503="The journal is unreachable. The stream may have been created or not.",
            s507="There is no memory for another stream.",
        ),
    },
    openapi_extra=body_described(schemas.StreamCreation),
)
async def put_stream(
    http: Request,
    name: schemas.StreamName,
    creation: Annotated[schemas.StreamCreation, Depends(asked_in_body(schemas.StreamCreation))],
    aggregator: TheAggregator,
    access: Creates,
) -> Response:
    """Idempotent: the same parameters again return 200 and change nothing. Other mappings
    (`ingest`) and other texts (`unit`, `description`) replace the stored ones if the key has the
    role `admin`. `warnings` reports it if the new mappings give other ids to readings that the
    stream contains.
    """
    chosen = creation.root
    given = "max_clock_skew_s" in chosen.model_fields_set
    decays: Turns = http.app.state.decays
    questions: Turns = http.app.state.questions
    caller, pauses = asker(http), Pauses()

    async def compute_recipe(form: Mapping[str, Any], id_key: bytes | None) -> Recipe:
        if FAMILIES[chosen.family].input.decay == "query":
            return await aggregator.compute(recipe_of_form, form, id_key)
        with decays.asked(caller, left_of(http)) as compute:
            async with pauses.until(left_of(http)):
                return await compute(recipe_of_form, form, id_key, pauses)

    hashed = chosen if isinstance(chosen, schemas.HashedStream) else None
    if hashed is not None and hashed.views is not None:
        # Before the stream is created: of a request that is refused nothing is left.
        _check_views(http, access, name, hashed.views)
    before = await aggregator.maps_of(name)
    stream, created = await aggregator.catalog.create(
        name,
        chosen.form(),
        max_clock_skew_s=chosen.max_clock_skew_s if given else ...,
        secret_ids=hashed is not None and hashed.secret_ids,
        bind_keys=hashed is not None and hashed.bind_keys,
        ingest=None if hashed is None else ingest_of(hashed.ingest),
        about=chosen.about,
        from_level=0 if hashed is None else hashed.from_level,
        may_change=access.role.includes(Role.ADMIN),
        compute_recipe=compute_recipe,
        compute=questions.by(caller),
    )
    if hashed is not None and hashed.views is not None:
        await _make_views(aggregator, stream, hashed, questions.by(caller))
    views = aggregator.views_of(stream)
    doubts = [
        *doubts_of_unit(stream.recipe.params.time_unit),
        *_doubts_of_maps(stream, before, hashed),
    ]
    body = await _state_of(stream, questions.by(caller), views=views, doubts=doubts)
    if created:
        headers = {"Location": f"/v1/streams/{name}"}
        return Response(body, HTTPStatus.CREATED, headers, media_type="application/json")
    return Response(body, media_type="application/json")


def _doubts_of_maps(
    stream: Stream, before: Mappings | None, chosen: schemas.HashedStream | None
) -> list[str]:
    """Return warnings about new mappings in a stream that contains readings read by other
    mappings.
    """
    if before is None or chosen is None or chosen.ingest is None or not stream.source_count:
        return []
    return doubts_of_maps(before, chosen.ingest)


def _check_views(http: Request, access: Caller, name: str, views: schemas.Views) -> None:
    """Check that a key may create a stream's derived streams, and that there is space for them.

    Raises:
        ForbiddenError: the key's scope does not contain one.
        TooManyStreamsError: the scope would contain more streams than allowed.
        InvalidRequestError: the device names exceed the rows of one sketch.
    """
    aggregator: Aggregator = http.app.state.aggregator
    devices, names = f"{name}{DEVICES}", f"{name}{NAMES}"
    check_creation(access, aggregator, [name, devices, names])
    capacity, most = views.devices.capacity, aggregator.max_sketch_rows // ROWS_OF_A_NAME
    if capacity > most and not aggregator.knows(names):
        raise InvalidRequestError(
            f"views.devices.capacity is {capacity}; expected at most {most}: a device with its "
            f"name counts as some {ROWS_OF_A_NAME} rows, and one sketch has at most "
            f"{aggregator.max_sketch_rows} (max_sketch_rows)",
            [
                Fault(
                    field="views.devices.capacity",
                    reason="no capacity for so many names",
                    value=capacity,
                    expected=f"at most {most}",
                )
            ],
        )


async def _make_views(
    aggregator: Aggregator, stream: Stream, chosen: schemas.HashedStream, compute: Compute
) -> None:
    """Create a stream's missing derived streams.

    Raises:
        InvalidRequestError: a name is too long, or the stream is a derived stream itself.
        StreamConflictError: another stream already has that name.
    """
    assert chosen.views is not None
    devices, params = chosen.views.devices, stream.recipe.params
    forms = view_forms(stream.name, params, devices.parts, devices.capacity)
    for name, form, said in forms:
        if not re.fullmatch(schemas.STREAM, name) or stream.row.view is not None:
            raise InvalidRequestError(
                f"{stream.name!r} cannot have a derived stream {name!r}: the name is too long, or "
                "another derived stream has it",
                [Fault(field="views", reason="not a name for a derived stream", value=name)],
            )
        await aggregator.catalog.create(
            name,
            form,
            max_clock_skew_s=stream.row.max_clock_skew_s,
            secret_ids=stream.row.id_key is not None,
            bind_keys=stream.row.bind_keys,
            view=said,
            compute=compute,
        )


@router.get(
    "/v1/streams",
    tags=["streams"],
    summary="List the streams",
    response_model=schemas.StreamList,
    responses={
        304: _UNCHANGED,
        **problems(s422="`limit` or `after` is outside its domain.", s429=_TOO_MUCH),
    },
)
async def list_streams(
    aggregator: TheAggregator,
    caller: Reads,
    questions: TheQuestions,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries.")] = 100,
    after: Annotated[str, Query(max_length=100, description="Only names after this one.")] = "",
    if_none_match: IfNoneMatch = None,
) -> Response:
    """The streams that the caller may see, in pages. `next` and a link header name the start of
    the next page.
    """
    with questions() as compute:
        page = await compute(_page, aggregator, caller, after, limit)
        headers = {"ETag": page.tag, "Cache-Control": "no-cache"}
        if page.more:
            headers["Link"] = f'</v1/streams?limit={limit}&after={page.last}>; rel="next"'
        if is_known(page.tag, if_none_match):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        summaries = await in_turns(compute, map(_summary, page.streams))
        body = await compute(_listed, summaries, page)
    return Response(body, headers=headers, media_type="application/json")


@router.get(
    "/v1/streams/{name}",
    tags=["streams"],
    summary="Read a stream",
    dependencies=[Depends(reads)],
    response_model=schemas.StreamState,
    responses={
        304: _UNCHANGED,
        **problems(s404="No such stream.", s422="The name is outside its domain.", s429=_TOO_MUCH),
    },
)
async def get_stream(
    name: schemas.StreamName,
    stream: TheStream,
    aggregator: TheAggregator,
    questions: TheQuestions,
    sources: Annotated[
        int, Query(ge=0, le=1000, description="Maximum number of sources in the list.")
    ] = _SOURCES_LISTED,
    after_source: Annotated[
        str, Query(max_length=200, description="Only names after this one.")
    ] = "",
    replacing: Annotated[
        bool,
        Query(
            description="Count, for each source, the rows that replace a duplicate from "
            "another source."
        ),
    ] = False,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """The parameters for building sketches, and the stream's content."""
    counts = stream.replacing if replacing else None
    tag = etag(*_moment(stream), after_source, str(sources), str(counts))
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if is_known(tag, if_none_match):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    with questions() as compute:
        views = aggregator.views_of(stream)
        body = await _state_of(stream, compute, after_source, sources, counts, views=views)
    return Response(body, headers=headers, media_type="application/json")


@router.delete(
    "/v1/streams/{name}",
    tags=["streams"],
    summary="Delete a stream",
    dependencies=[Depends(administers)],
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(
        s404="No such stream.",
        s422="The name is outside its domain.",
        s503="The journal is unreachable. The stream may have been created or not.",
    ),
)
async def delete_stream(name: schemas.StreamName, aggregator: TheAggregator) -> None:
    """Deletes all its posts. A new stream with the same name is another stream."""
    await aggregator.catalog.delete(name)


@router.post(
    "/v1/streams/{name}/sources/{source:path}/revoke",
    tags=["streams"],
    summary="Revoke a source",
    dependencies=[Depends(administers), Depends(json_only)],
    openapi_extra=WITHOUT_BODY,
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(
        s404="No such stream.",
        s422="The name or the source is outside its domain.",
        s503="The journal is unreachable. The change may have been stored or not.",
    ),
)
async def revoke_source(
    name: schemas.StreamName, source: SourcePath, aggregator: TheAggregator
) -> None:
    """Drop every post from the source, and reject it from now on. The stream is as if the source
    had never posted.
    """
    await aggregator.catalog.revoke(name, source)


@router.post(
    "/v1/streams/{name}/sources/{source:path}/reinstate",
    tags=["streams"],
    summary="Reinstate a source",
    dependencies=[Depends(administers), Depends(json_only)],
    openapi_extra=WITHOUT_BODY,
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(
        s404="No such stream, or the source was not revoked.",
        s422="The name or the source is outside its domain.",
        s503="The journal is unreachable. The change may have been stored or not.",
    ),
)
async def reinstate_source(
    name: schemas.StreamName, source: SourcePath, aggregator: TheAggregator
) -> None:
    """Accept posts from a revoked source again. Its earlier posts stay dropped."""
    await aggregator.catalog.reinstate(name, source)


@router.delete(
    "/v1/streams/{name}/sources/{source:path}/intervals",
    tags=["streams"],
    summary="Release an interval",
    dependencies=[Depends(administers)],
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(
        s404="No such stream, or the source has no such interval. The problem names overlapping "
        "intervals.",
        s422="The name, the source, `first` or `next` is missing or outside its domain.",
        s503="The journal is unreachable. The change may have been stored or not.",
    ),
)
async def release_interval(
    name: schemas.StreamName,
    source: SourcePath,
    aggregator: TheAggregator,
    first: schemas.IntervalFirst = None,
    one_past: schemas.IntervalNext = None,
) -> None:
    """Allow the source to post the numbers `first` <= n < `next` again, which the server
    acknowledged as this interval. Results still contain the data posted under it. To drop those
    data too, revoke the source and reinstate it.
    """
    interval = interval_of(first, one_past)
    if interval is None:
        raise InvalidRequestError(
            "first and next are missing; expected the interval to release",
            [Fault(field=field, reason="missing") for field in ("first", "next")],
        )
    await aggregator.catalog.release(name, source, interval)


class _Page(NamedTuple):
    streams: list[Stream]
    more: bool
    tag: str

    @property
    def last(self) -> str:
        return self.streams[-1].name


def _page(aggregator: Aggregator, caller: Caller, after: str, limit: int) -> _Page:
    """Return a page of the list, and its entity tag from the state before the page is written.
    O(streams on the page).
    """
    seen = aggregator.streams_after(after, None if caller.sees_all else caller)
    listed = list(islice(seen, limit + 1))
    page = listed[:limit]
    moments = (text for stream in page for text in _moment(stream))
    return _Page(page, len(listed) > limit, etag("streams", str(len(listed) > limit), *moments))


def _moment(stream: Stream) -> tuple[str, ...]:
    """Return a value that changes with the stream, without reading its sketch. It is valid within
    this process only.
    """
    row, noted = stream.row, stream.notes.counts.total() + stream.notes.dropped.total()
    counts = stream.generation, stream.disagreeing, stream.missed, noted
    return _PROCESS, stream.name, row.incarnation, *map(str, counts)


def _listed(summaries: list[schemas.StreamSummary], page: _Page) -> bytes:
    if page.more:
        return schemas.StreamList(streams=summaries, next=page.last).model_dump_json().encode()
    return schemas.StreamList(streams=summaries).model_dump_json(exclude={"next"}).encode()


def _notes(stream: Stream) -> Notes:
    """Return the suspicious readings in a stream, with the readings that any protocol and
    process replaced.
    """
    found = Notes()
    found.add(stream.notes)
    if stream.row.view is None:  # where each reading of a device replaces the one before
        found.counts["replaced"] = max(found.counts["replaced"], stream.replaced)
    return found


def _summary(stream: Stream) -> schemas.StreamSummary:
    merged = stream.snapshot()
    totals = stream.totals()
    return schemas.StreamSummary(
        name=stream.name,
        family=stream.recipe.family,
        time_unit=stream.recipe.params.time_unit,
        unit=stream.row.about.get("unit"),
        description=stream.row.about.get("description"),
        derived_from=None if stream.row.view is None else stream.row.view["of"],
        created=utc(stream.row.created_us),
        digest=merged.digest,
        rows=len(merged),
        newest=merged.newest,
        sources=stream.source_count,
        posts=totals.posts,
        posted_bytes=totals.posted_bytes,
        posted_rows=totals.rows,
        last_received=utc(totals.last_received_us) if totals.posts else None,
    )


async def _state_of(
    stream: Stream,
    compute: Compute,
    after_source: str = "",
    sources: int = _SOURCES_LISTED,
    replacing: Mapping[str, int] | None = None,
    *,
    views: Sequence[Stream] = (),
    doubts: Sequence[str] = (),
) -> bytes:
    """Return a stream's state as JSON, computed in time slices."""
    listed = map(partial(_source, replacing), stream.sources(after_source, sources))
    states = await in_turns(compute, listed)
    return await compute(_state, stream, states, [each.name for each in views], doubts)


def _source(replacing: Mapping[str, int] | None, each: SourceInfo) -> schemas.SourceState:
    return schemas.SourceState(
        source=each.source,
        digest=each.digest,
        rows=each.rows,
        posts=each.totals.posts,
        posted_bytes=each.totals.posted_bytes,
        posted_rows=each.totals.rows,
        last_received=utc(each.totals.last_received_us),
        replacing_rows=None if replacing is None else replacing.get(each.source),
    )


def _state(
    stream: Stream,
    sources: list[schemas.SourceState],
    views: list[str],
    doubts: Sequence[str] = (),
) -> bytes:
    merged = stream.snapshot()
    summary = dict(_summary(stream))
    count = summary.pop("sources")  # a number there, a list here
    summary.pop("derived_from")  # ``view_of`` here
    state = schemas.StreamState(
        **summary,
        incarnation=stream.row.incarnation,
        params=stream.recipe.params.to_dict(),
        decay=stream.recipe.to_dict().get("decay"),
        fingerprint=stream.recipe.params.fingerprint.hex(),
        max_clock_skew_s=stream.row.max_clock_skew_s,
        max_clock_lead_s=clock_lead_s(merged, stream.row.max_clock_skew_s),
        secret_ids=stream.row.id_key is not None,
        bind_keys=stream.row.bind_keys,
        from_level=stream.row.from_level or None,
        ingest=stream.mappings,
        views=views,
        view_of=None if stream.row.view is None else schemas.ViewOfModel(**stream.row.view),
        bytes=merged.size_bytes,
        watermarks=list(merged.complete_since),
        clock=merged.clock,
        revoked=stream.revoked,
        warnings=[
            *doubts,
            *doubts_of_sketches(stream.recipe.params.time_unit, [merged]),
            *doubts_of_copies(stream.disagreeing),
            *doubts_of_views(stream.missed, stream.missed_for),
            *warnings_of(_notes(stream), len(merged), stream.mappings),
            *filter(None, [merged.advice]),
            *merged.warnings,
        ],
        source_count=count,
        sources=sources,
    )
    silent = {name for name in ("ingest", "views", "view_of") if not getattr(state, name)}
    return state.model_dump_json(exclude=silent).encode()
