"""What all roads of other formats share: a body is read by the maps of a stream, and what is sound
of it is journaled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from fastapi import Request

from api.errors import (
    BusyError,
    Fault,
    IngestBusyError,
    InvalidRequestError,
    NoRoomError,
    RowsInFlightError,
    TooManySourcesError,
)
from api.http.caller import as_long_as_connected, asker
from api.ingest.building import Reader, Taken, take
from api.ingest.clock_skew import latest_time
from api.ingest.messages import MessageReader
from api.ingest.post_warnings import refuse_other_unit
from api.ingest.series import SeriesReader
from api.ingest.views import Fed, feed
from api.service.aggregator import Aggregator
from api.service.budget import Hold, Memory
from api.service.fair_queue import Lanes, by_steps
from api.service.posts import Draft
from api.service.streams import Stream
from api.service.suspicious_readings import notes_of, warnings_of
from api.settings import Settings
from decaysketch.core.row_status import Verdict
from decaysketch.errors import CapacityError
from decaysketch.ingest.columns import Form, Lead, Raw, Refusal
from decaysketch.ingest.mapping import Map
from decaysketch.ingest.readings import Steps
from decaysketch.ingest.series import SeriesIndex, SeriesMap

__all__ = [
    "Outcome",
    "Work",
    "bring",
    "bring_series",
    "form_of",
    "held",
    "index_of",
    "maps_of",
    "precision_check",
    "take_held",
]

_PATIENCE_S = 0.01
_COST = 32  # to read one takes as long as to decode so many rows of a sketch

M = TypeVar("M", bound=Map)
S = TypeVar("S", bound=SeriesMap)
T = TypeVar("T")


@dataclass(frozen=True)
class Work:
    """Where the work of a request is done.

    Attributes:
        request: whose client must still be there.
        rows: of a sketch, which take as long.
    """

    request: Request
    rows: int

    @property
    def caller(self) -> Any:
        """Whose it is."""
        return self.request.scope["state"].get("caller")

    async def by_steps(self, steps: Steps[T]) -> T:
        """What work returns that is done in steps, in time slices by caller.

        Raises:
            ClientLeftError: nobody waits for it any more.
        """
        lanes: Lanes = self.request.app.state.lanes
        caller = asker(self.request)
        async with as_long_as_connected(self.request), lanes.lane(caller, self.rows) as compute:
            return await by_steps(compute, steps)


@dataclass(frozen=True)
class Outcome:
    """What became of a body.

    Attributes:
        counts: of the readings that were taken, by verdict.
        refusals: of the others, each by its place among all.
        token: of their post; None where none was taken.
        warnings: sentences on what is suspicious.
    """

    counts: dict[Verdict, int]
    refusals: list[Refusal]
    token: str | None
    warnings: list[str]


def maps_of(stream: Stream, format: str, kind: type[M], example: str) -> list[M]:
    """The maps of a stream for a format.

    Args:
        stream: whose.
        format: their name for it.
        kind: of maps of the format.
        example: what else such a map says, for who has none.

    Raises:
        InvalidRequestError: it has none, with what to do.
    """
    given = () if stream.mappings is None else stream.mappings.map
    maps: list[M] = [each for each in given if isinstance(each, kind) and each.format == format]
    if not maps:
        reason = f"the stream has no map of format {format!r}"
        raise InvalidRequestError(
            f"{reason}; give it one: PUT /v1/streams/{stream.name} with "
            f'"ingest": {{"map": [{{"format": "{format}", {example}}}]}}, and a key of role admin',
            [Fault(field="format", reason=reason, value=format)],
        )
    return maps


def index_of(stream: Stream, format: str, kind: type[S], example: str) -> SeriesIndex[S]:
    """The compiled maps of a stream for a format of time series; see :func:`maps_of`."""
    maps_of(stream, format, kind, example)
    assert stream.mappings is not None
    return stream.mappings.series[format]


def form_of(
    aggregator: Aggregator,
    stream: Stream,
    source: str,
    settings: Settings,
    most: int | None = None,
    zone: tzinfo | None = None,
) -> Form:
    """What rows must look like; a body has ``most`` at most, or as few as the server takes."""
    skew_s = stream.row.max_clock_skew_s
    latest = latest_time(stream.recipe.params.time_unit, skew_s, aggregator.now_us() * 1000)
    lead = None if skew_s is None else Lead(skew_s, "max_clock_skew_s")
    copies = getattr(stream.recipe.params, "copies", 1)
    taken = min(settings.max_rows, settings.max_post_rows // copies)
    most = max(1, taken if most is None else min(most, taken))
    return Form(stream.recipe, source, latest, most, stream.row.bind_keys, lead, zone)


def precision_check(
    stream: Stream, unit: str, *, check_units: bool
) -> Callable[[npt.NDArray[np.int64]], None] | None:
    """What refuses a body whose times are hardly of its unit; None: nothing does."""
    if not check_units:
        return None
    cure = "another precision (ns, us, ms, s), or check_units=false"
    return partial(refuse_other_unit, stream, unit, cure=cure)


async def bring(
    request: Request, stream: Stream, reader: Reader, body: bytes, form: Form
) -> Outcome:
    """Read a body on a thread, and journal what is sound of it.

    Raises:
        IngestBusyError: not now; the sender is to come again.
        InvalidRequestError, TooManyRowsError: of the reader.
    """
    aggregator: Aggregator = request.app.state.aggregator
    try:
        taken, token = await _post(aggregator, request, stream, reader, body, form)
    except (BusyError, RowsInFlightError) as error:
        raise IngestBusyError(str(error)) from None
    counts = {verdict: int((taken.verdicts == verdict).sum()) for verdict in Verdict}
    for verdict, rows in counts.items():
        if rows:
            aggregator.observer.observations(stream.name, form.source, verdict.name.lower(), rows)
    aggregator.disagreeing(stream, taken.disagreeing)
    notes = notes_of(replaced=taken.replaced, undated=taken.undated, **suspicious(reader))
    aggregator.noted(stream, notes)
    warnings = warnings_of(notes, len(taken.batch.positions), stream.mappings)
    return Outcome(counts, taken.batch.refusals, token, warnings)


def suspicious(reader: Reader) -> dict[str, Any]:
    """What a parser found suspicious, as arguments of :func:`notes_of`."""
    if isinstance(reader, MessageReader):
        return {"off": reader.parsed.off}
    return {"unnamed": reader.points.told.unnamed} if isinstance(reader, SeriesReader) else {}


async def bring_series(
    request: Request, stream: Stream, reader: SeriesReader, body: bytes, form: Form, most_told: int
) -> tuple[int, list[str]]:
    """The same of a body of time series, with counts of what was refused and what was skipped.

    Returns:
        How many points, lines or samples were refused, and the first ``most_told`` of it, each with
        its place and the reason.
    """
    aggregator: Aggregator = request.app.state.aggregator
    outcome = await bring(request, stream, reader, body, form)
    told = reader.points.told
    for kind, count in told.skipped.items():
        aggregator.observer.skipped(stream.name, kind, count)
    if told.refusals:
        aggregator.refused(stream, form.source, reader.place, told.refusals)
    for refusal in outcome.refusals:
        aggregator.refused(stream, form.source, f"observation-{refusal.field}")
    listed = reader.told(outcome.refusals, most_told)[:most_told]
    return told.refusals + reader.count(outcome.refusals), listed


async def _post(
    aggregator: Aggregator,
    request: Request,
    stream: Stream,
    reader: Reader,
    body: bytes,
    form: Form,
) -> tuple[Taken, str | None]:
    """What became of the readings, and the token of their post."""
    rows = getattr(stream.recipe.params, "copies", 1) * form.max_rows
    caller: Any = request.scope["state"].get("caller")
    with aggregator.hold_observations(stream, form.source, rows, caller) as hold:
        taken = await take_held(
            aggregator, stream, reader, body, form, hold, Work(request, _COST * rows)
        )
        if taken.incoming is None:
            return taken, None
        draft = Draft.of(taken.incoming)
        receipt = await aggregator.post(stream, form.source, draft, hold, caller)
    return taken, receipt.token


async def take_held(
    aggregator: Aggregator,
    stream: Stream,
    reader: Reader,
    body: bytes,
    form: Form,
    hold: Hold,
    work: Work,
    *,
    check_times: Callable[[npt.NDArray[np.int64]], None] | None = None,
) -> Taken:
    """Read a body in time slices, and have the views of the stream hold what is theirs of it.

    Args:
        aggregator: to post to.
        stream: whose observations they are.
        reader, body, form: as of :func:`api.ingest.building.take`.
        hold: of the rows.
        work: where it is read.
        check_times: raises what refuses the body for the times of its sound rows.

    Raises:
        ServiceError: what refuses the body, or for now a post to a view; what the views before it
            took is there a second time when the body is, and changes nothing. A view that is full
            refuses nothing: what it did not take is counted.
    """
    views = aggregator.views_of(stream)
    reading = take(stream, reader, body, form)
    memory = aggregator.memory
    taken, fed = await work.by_steps(_fed(reading, memory, hold, views, form, check_times))
    for each in fed:
        if each.without:
            aggregator.observer.skipped(each.view.name, "no-device", each.without)
        if each.incoming is not None:
            draft = Draft.of(each.incoming)
            try:
                await aggregator.post(each.view, form.source, draft, None, work.caller)
            except (NoRoomError, TooManySourcesError, CapacityError) as error:
                # What a view adds may not take away what it is derived from.
                aggregator.missed(each.view, form.source, draft.rows, error)
    return taken


def _fed(
    reading: Steps[tuple[Taken, Raw]],
    memory: Memory,
    hold: Hold,
    views: Sequence[Stream],
    form: Form,
    check_times: Callable[[npt.NDArray[np.int64]], None] | None,
) -> Steps[tuple[Taken, list[Fed]]]:
    """What became of a body, and what of it is of the views. A step goes on to its end if who asked
    is gone by then, and holds the rows as long."""
    taken, raw = yield from held(reading, memory, hold)
    if check_times is not None:
        check_times(taken.batch.columns.times)
    yield
    if taken.incoming is None:
        return taken, []
    return taken, (yield from held(feed(views, raw, taken.batch, form), memory, hold))


def held(steps: Steps[T], memory: Memory, hold: Hold) -> Steps[T]:
    """Run the same steps, each of which holds the rows. A step of many rows runs while nothing else
    merges many rows. It never waits long for that, since other posts wait for its thread.
    """
    while True:
        with hold, memory.merging(hold.rows, _PATIENCE_S) as is_free:
            try:
                if is_free:
                    next(steps)
            except StopIteration as end:
                found: T = end.value
                return found
        yield
