"""Rejections by the service: each a class, with its sentence and the fields at fault.

A rejection describes the fault in one sentence (its text). Where fields are at fault, it lists each
with the reason, the value given and the value expected (``faults``). Another module converts it
into a response (:mod:`api.http.problems`): neither this module nor code that raises these errors
knows the protocol of the request. The library and the journal have their own classes for their
rejections.
"""

from __future__ import annotations

import heapq
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from decaysketch.core.plausible_times import in_another_unit
from decaysketch.errors import (
    UnanswerableQueryError,
)
from decaysketch.families import FAMILIES

__all__ = [
    "MOST_FAULTS",
    "BusyError",
    "CapacityTooSmallError",
    "ClockAheadError",
    "ClockEarlyError",
    "ClosingError",
    "Fault",
    "ForeignSiteError",
    "IncompatibleStreamsError",
    "IngestBusyError",
    "IntervalConflictError",
    "InvalidRequestError",
    "KeyChangedError",
    "MapsKeptError",
    "NoRoomError",
    "NotCaughtUpError",
    "NothingTakenError",
    "ObservationsOnlyError",
    "PartialWriteError",
    "RevokedSourceError",
    "RowsAskedError",
    "RowsInFlightError",
    "ServiceError",
    "StaleTokenError",
    "StreamConflictError",
    "TokenBeyondError",
    "TooManyFunctionsError",
    "TooManyListsError",
    "TooManyMonitorsError",
    "TooManyQuestionsError",
    "TooManyRowsError",
    "TooManySketchRowsError",
    "TooManySourcesError",
    "TooManyStandingError",
    "TooManyStrataError",
    "TooManyStreamsError",
    "TooMuchAskedError",
    "UnanswerableQueriesError",
    "UnknownFunctionError",
    "UnknownIntervalError",
    "UnknownKeyError",
    "UnknownListError",
    "UnknownMonitorError",
    "UnknownQuestionError",
    "UnknownSourceError",
    "UnknownStandingError",
    "UnknownStreamError",
    "UnsupportedAggregateError",
    "differences",
]

MOST_FAULTS = 100
"""Maximum faulty fields to list."""


class Fault(BaseModel):
    """One invalid field."""

    field: str = Field(
        description="Path in the body, such as `queries[0].decay.rate`, or a parameter."
    )
    reason: str = Field(description="Description of the fault.")
    value: Any = Field(default=None, description="The given value, shortened if long.")
    expected: Any = Field(default=None, description="The expected value, if there is only one.")


class ServiceError(Exception):
    """Base class of the service's rejections, as opposed to the library's."""

    def __init__(self, detail: str, faults: Iterable[Fault] = ()) -> None:
        super().__init__(detail)
        self.faults = list(faults)


class UnknownStreamError(ServiceError):
    """No stream has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no stream {name!r}; create it with PUT /v1/streams/{name}")


class MapsKeptError(ServiceError):
    """A stream exists with other mappings or none, and the caller may not replace them."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"stream {name!r} exists with other mappings than `ingest`, or with none; a key with "
            "the role admin can replace them"
        )


class UnknownSourceError(ServiceError):
    """A stream has no sketch from some of the requested sources."""

    def __init__(self, stream: str, sources: Iterable[str]) -> None:
        count = len(unknown := list(sources))
        unknown = heapq.nsmallest(MOST_FAULTS, unknown)
        super().__init__(
            f"stream {stream!r} has no sketch from {count} of the requested sources: "
            f"{reprlib.repr(unknown)}",
            [Fault(field="source", reason="unknown source", value=name) for name in unknown],
        )


class StreamConflictError(ServiceError):
    """A stream with this name exists, with another family or other parameters."""

    def __init__(self, name: str, fields: Mapping[str, tuple[Any, Any]]) -> None:
        super().__init__(
            f"stream {name!r} exists with other parameters: {_listing(fields)}",
            differences(fields, "differs from the stream's"),
        )


class CapacityTooSmallError(ServiceError):
    """A posted sketch has a capacity below the stream's."""

    def __init__(self, name: str, ours: int, theirs: int) -> None:
        super().__init__(
            f"the sketch has capacity {theirs}; stream {name!r} has {ours}, and a merge uses the "
            "smaller one: it would make the complete stream coarser permanently",
            differences({"capacity": (ours, theirs)}, "smaller than the stream's"),
        )


class IntervalConflictError(ServiceError):
    """A source's numbers came before, in another interval or with other bytes."""

    def __init__(
        self, source: str, given: tuple[int, int], acknowledged: Sequence[tuple[int, int]]
    ) -> None:
        replayed = list(acknowledged) == [given]
        reason = "is used with other bytes" if replayed else "overlaps an earlier interval"
        listed = ", ".join(map(_interval, acknowledged))
        super().__init__(
            f"the sketch has the numbers {_interval(given)} of source {source!r}; acknowledged "
            f"before: {listed}{', with other bytes' if replayed else ''}",
            [
                Fault(
                    field="interval",
                    reason=f"{reason}: {_interval(each)}",
                    value=_interval(given),
                )
                for each in acknowledged
            ],
        )


class UnknownIntervalError(ServiceError):
    """A request releases an interval that was not acknowledged as such."""

    def __init__(
        self, source: str, given: tuple[int, int], overlapping: Sequence[tuple[int, int]]
    ) -> None:
        listed = ", ".join(map(_interval, overlapping)) or "none"
        super().__init__(
            f"no interval {_interval(given)} of source {source!r} was acknowledged; these "
            f"acknowledged intervals overlap it: {listed}",
            [
                Fault(
                    field="interval",
                    reason=f"shares numbers with {_interval(each)}; release that complete interval",
                    value=_interval(given),
                )
                for each in overlapping
            ],
        )


def _interval(interval: tuple[int, int]) -> str:
    return f"[{interval[0]}, {interval[1]})"


class ClockAheadError(ServiceError):
    """Times in a sketch lie further past this machine's clock than the stream allows."""

    def __init__(
        self, stream: str, limit: int, skew_s: float, times: Mapping[str, int], unit: str
    ) -> None:
        listed = ", ".join(f"{field} is {time}" for field, time in times.items())
        hint = in_another_unit(unit, max(times.values()))
        super().__init__(
            f"{listed}; stream {stream!r} accepts times up to {limit}, {skew_s:g} s ahead of this "
            f"server's clock{hint}",
            [
                Fault(
                    field=field,
                    reason=f"too far in the future{in_another_unit(unit, time)}",
                    value=time,
                    expected=limit,
                )
                for field, time in times.items()
            ],
        )


class ClockEarlyError(ServiceError):
    """A sketch's clock would make a stream forget rows that are not due yet by this machine's
    clock. They will be.
    """

    def __init__(self, stream: str, clock: int, limit: int, lead_s: float, wait_s: int) -> None:
        super().__init__(
            f"clock is {clock}; stream {stream!r} accepts clocks up to {limit} now, {lead_s:g} s "
            "ahead of this server's clock, because a later clock would discard rows of other "
            f"sources: send the same sketch again in {wait_s} s",
            [Fault(field="clock", reason="ahead of its time", value=clock, expected=limit)],
        )
        self.wait_s = wait_s


class ObservationsOnlyError(ServiceError):
    """A sketch was posted to a stream whose id key only this server knows."""

    def __init__(self, stream: str) -> None:
        super().__init__(
            f"stream {stream!r} has a secret id key and accepts no sketches; post observations to "
            f"/v1/streams/{stream}/observations"
        )


class TooManyRowsError(ServiceError):
    """A body has more observations, or more parts that may be observations, than one post may
    have.
    """

    def __init__(self, rows: int, limit: int, what: str = "observations") -> None:
        super().__init__(
            f"the body has {rows} {what} or more; expected at most {limit} in one post",
            [Fault(field=what, reason="too many", value=rows, expected=limit)],
        )


class TooManySketchRowsError(TooManyRowsError):
    """A post's sketches together have more rows than one post may have."""

    def __init__(self, rows: int, limit: int) -> None:
        ServiceError.__init__(
            self,
            f"the sketches in the body have {rows} rows together; expected at most {limit} in one "
            "post",
            [Fault(field="rows", reason="too many", value=rows, expected=limit)],
        )


class RowsInFlightError(ServiceError):
    """The sketches in all concurrent posts have more rows than this process may store."""

    def __init__(self, present: int, rows: int, limit: int) -> None:
        super().__init__(
            f"posts in progress have {present} rows and this one has {rows}; expected at most "
            f"{limit} at a time; the server stored nothing, send the request again later"
        )


class RowsAskedError(ServiceError):
    """The rows read by concurrent queries exceed this process's limit, or that for one caller."""

    def __init__(self, present: int, rows: int, limit: int, *, of_caller: bool = False) -> None:
        whose = "other queries with this key" if of_caller else "other queries"
        super().__init__(
            f"{whose} read {present} rows now, and this one reads {rows}; expected at most "
            f"{limit} at a time (max_read_rows); repeat the query when they have ended"
        )


class NoRoomError(ServiceError):
    """Memory has no space for a post's rows. ``where`` names the place."""

    def __init__(self, where: str, field: str, rows: int, limit: int) -> None:
        super().__init__(
            f"{where} would hold {rows} rows with this (of 25 bytes each, labels included); it may "
            f"hold {limit} ({field}); nothing was taken",
            [Fault(field=field, reason="no room", value=rows, expected=limit)],
        )


class TooManyStrataError(ServiceError):
    """A post has a new stratum, and the stream's strata are at their limit."""

    def __init__(self, stream: str, stratum: str, new: int, limit: int) -> None:
        super().__init__(
            f"the post has {new} new strata, and stream {stream!r} has no space for {stratum}; it "
            f"may have {limit} (max_strata); nothing was taken",
            [Fault(field="max_strata", reason="no room", value=stratum, expected=limit)],
        )


class TooManyStandingError(ServiceError):
    """A stream has as many standing withdrawals as it may."""

    def __init__(self, stream: str, limit: int) -> None:
        super().__init__(
            f"stream {stream!r} has {limit} standing withdrawals; it may have {limit}: end one, or "
            "combine conditions, such as device in ('a', 'b')",
            [Fault(field="for", reason="too many", value=limit + 1, expected=limit)],
        )


class UnknownStandingError(ServiceError):
    """No withdrawal with this condition stands."""

    def __init__(self, stream: str, where: str) -> None:
        super().__init__(f"stream {stream!r} has no standing withdrawal where {where!r:.200}")


class TooManySourcesError(ServiceError):
    """A stream's source count is at its limit, and this is another source."""

    def __init__(self, stream: str, sources: int, limit: int) -> None:
        super().__init__(
            f"stream {stream!r} has {sources} sources; expected at most {limit} (max_sources), "
            "and this is a new one",
            [Fault(field="max_sources", reason="no room", value=sources + 1, expected=limit)],
        )


def families_that_have(aggregate: str) -> str:
    """Return an addition to a message that rejects an aggregate: the families that have it."""
    found = [each.name for each in FAMILIES.values() if aggregate in each.questions]
    return f"; {aggregate} is of streams of family {' or '.join(found)}" if found else ""


class UnsupportedAggregateError(ServiceError):
    """Some queries in a request need an aggregate that the stream's family does not have."""

    def __init__(
        self, stream: str, family: str, known: Iterable[str], refused: Mapping[int, str]
    ) -> None:
        first, aggregate = next(iter(refused.items()))
        listed = ", ".join(sorted(known))
        super().__init__(
            f"stream {stream!r} is of family {family!r}, which has no aggregate {aggregate!r} "
            f"(queries[{first}]); it has {listed}{families_that_have(aggregate)}",
            [
                Fault(
                    field=f"queries[{position}].aggregate",
                    reason=f"not of family {family!r}",
                    value=name,
                    expected=f"one of {listed}",
                )
                for position, name in refused.items()
            ],
        )


class UnanswerableQueriesError(ServiceError):
    """Some queries in a request need rows that the sketch has discarded at every level."""

    def __init__(self, asked: int, refused: Mapping[str, UnanswerableQueryError]) -> None:
        field, error = next(iter(refused.items()))
        super().__init__(
            f"{len(refused)} of {asked} queries have no result; {field}: {error}",
            [Fault(field=field, reason=str(error)) for field, error in refused.items()],
        )


class IncompatibleStreamsError(ServiceError):
    """A query covers several streams that cannot be joined."""

    def __init__(self, first: str, other: str, fields: Mapping[str, tuple[Any, Any]]) -> None:
        pairs = fields.items()
        listed = "; ".join(f"{name} is {ours!r} and {theirs!r}" for name, (ours, theirs) in pairs)
        super().__init__(
            f"streams {first!r} and {other!r} cannot be joined: {listed}",
            differences(fields, f"differs between {first!r} (expected) and {other!r}"),
        )


class TooMuchAskedError(ServiceError):
    """The count of running requests is at its limit."""

    def __init__(self, what: str, most: int, *, of_caller: bool) -> None:
        whose = "of this caller " if of_caller else ""
        super().__init__(
            f"{most} requests {whose}are running, the maximum ({what}); repeat the request later"
        )


class RevokedSourceError(ServiceError):
    """The source is revoked, and its posts were dropped."""

    def __init__(self, stream: str, source: str) -> None:
        super().__init__(
            f"source {source!r} of stream {stream!r} was revoked; an administrator can reinstate it"
        )


class StaleTokenError(ServiceError):
    """A token's stream was deleted since."""

    def __init__(self, stream: str) -> None:
        super().__init__(
            f"the token belongs to an earlier stream named {stream!r}, which was deleted since"
        )


class TokenBeyondError(ServiceError):
    """No post has a token's number."""

    def __init__(self, token: str, last: int) -> None:
        super().__init__(
            f"the token {token!r} belongs to no post: the last row in the journal is {last}",
            [Fault(field="after", reason="of no post", value=token, expected=f"at most {last}")],
        )


class BusyError(ServiceError):
    """Too much waits to be written or merged."""

    def __init__(self) -> None:
        super().__init__(
            "too many posts wait to be written; the server stored nothing, send the "
            "request again later"
        )


class IngestBusyError(ServiceError):
    """The same, for a client that repeats a request only after 503."""


class ClosingError(ServiceError):
    """This process is about to end."""

    def __init__(self) -> None:
        super().__init__(
            "this server is stopping; the server stored nothing, send the request again"
        )


class NotCaughtUpError(ServiceError):
    """This process has not read a token's post."""

    def __init__(self, token: str) -> None:
        super().__init__(
            f"the post of token {token!r} did not arrive here in time; repeat the query"
        )


class InvalidRequestError(ServiceError):
    """A request is well-formed JSON and yet outside the limits of this service."""


class PartialWriteError(InvalidRequestError):
    """Some readings in a body were rejected, and counted one by one. The others are stored."""


class NothingTakenError(ServiceError):
    """Every observation in a body was rejected, each for its own fault."""


class TooManyStreamsError(ServiceError):
    """There is no capacity for one more stream."""


class UnknownMonitorError(ServiceError):
    """A stream has no monitor with this name."""

    def __init__(self, stream: str, monitor: str) -> None:
        super().__init__(f"stream {stream!r} has no monitor {monitor!r}")


class TooManyMonitorsError(ServiceError):
    """There is no capacity for one more monitor. ``where`` names the place."""

    def __init__(self, where: str, monitors: int, most: int) -> None:
        super().__init__(f"{where} {monitors} monitors; expected at most {most}")


class UnknownQuestionError(ServiceError):
    """A stream has no configured query with this name, or none in a set."""

    def __init__(self, stream: str, what: str) -> None:
        super().__init__(f"stream {stream!r} has no {what}")


class TooManyQuestionsError(ServiceError):
    """There is no capacity for one more configured query. ``where`` names the place."""

    def __init__(self, where: str, questions: int, most: int) -> None:
        super().__init__(f"{where} {questions} saved queries; expected at most {most}")


class UnknownFunctionError(ServiceError):
    """A stream has no function across sources with this name."""

    def __init__(self, stream: str, name: str) -> None:
        super().__init__(f"stream {stream!r} has no function {name!r}")


class TooManyFunctionsError(ServiceError):
    """There is no capacity for one more function. ``where`` names the place."""

    def __init__(self, where: str, functions: int, most: int) -> None:
        super().__init__(f"{where} {functions} functions; expected at most {most}")


class UnknownListError(ServiceError):
    """A stream has no top-k list with this name."""

    def __init__(self, stream: str, name: str) -> None:
        super().__init__(f"stream {stream!r} has no top-k list {name!r}")


class TooManyListsError(ServiceError):
    """There is no capacity for one more top-k list. ``where`` names the place."""

    def __init__(self, where: str, lists: int, most: int) -> None:
        super().__init__(f"{where} {lists} top-k lists; expected at most {most}")


class ForeignSiteError(ServiceError):
    """A source is not in a top-k list's sites, or is one too many."""

    def __init__(self, name: str, source: str, sites: int, most: int | None) -> None:
        super().__init__(
            f"source {source!r} is not one of the {sites} sources of list {name!r}"
            + ("" if most is None else f", which accepts any source, {most} at most"),
            [Fault(field="source", reason="not a source of the list", value=source)],
        )


class UnknownKeyError(ServiceError):
    """No key that the caller may manage has this prefix."""

    def __init__(self, prefix: str) -> None:
        super().__init__(f"there is no key {prefix!r}")


class KeyChangedError(ServiceError):
    """A key was changed by another request while this one was to change it."""

    def __init__(self, prefix: str) -> None:
        super().__init__(f"key {prefix!r} was changed or revoked by another request")


def differences(fields: Mapping[str, tuple[Any, Any]], reason: str) -> list[Fault]:
    """Faults for ``{name: (ours, theirs)}``."""
    return [
        Fault(field=name, reason=reason, value=theirs, expected=ours)
        for name, (ours, theirs) in fields.items()
    ]


def _listing(fields: Mapping[str, tuple[Any, Any]]) -> str:
    pairs = fields.items()
    return "; ".join(f"{name} is {ours!r}, not {theirs!r}" for name, (ours, theirs) in pairs)
