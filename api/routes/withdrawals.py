"""Withdraw observations: no query reads them again, and no duplicate brings them back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field

from api import schemas
from api.errors import InvalidRequestError, UnknownStandingError
from api.http.caller import administers, caller_of
from api.http.json_body import JsonRoute, json_only
from api.http.problems import problems
from api.journal.log import Post
from api.routes.common import TheAggregator, TheQuestions
from api.service.budget import PART_ROWS
from api.service.streams import Stream
from decaysketch import Snapshot
from decaysketch.core.time_units import duration

__all__ = ["SOURCE", "router"]

router = APIRouter(route_class=JsonRoute, tags=["observations"])

SOURCE = "withdrawals"
"""The source of tombstones in a stream."""

_MOST_IDS = 100_000
_LONGEST_WHERE = 1_000
_LONGEST_US = 3_660 * 86_400_000_000  # ten years


class WithdrawalRequest(schemas.RequestModel):
    """The observations to withdraw: a condition, or ids."""

    where: str | None = Field(
        default=None, max_length=_LONGEST_WHERE, description="A condition, as in a query."
    )
    ids: list[int] | None = Field(
        default=None, max_length=_MOST_IDS, description="Ids, as integers."
    )
    lasting: str | None = Field(
        default=None,
        alias="for",
        max_length=100,
        description="A duration such as `30d`, at most ten years. Observations that arrive in this "
        "time and satisfy `where` are withdrawn, too. A later request with the same `where` "
        "replaces it.",
    )


class Standing(BaseModel):
    """A condition that also withdraws future observations."""

    where: str
    until: datetime = Field(description="The end.")


class StandingList(BaseModel):
    """The standing withdrawals of a stream, by their end."""

    stream: str
    standing: list[Standing]


class Withdrawal(BaseModel):
    """The withdrawal is stored, and no later result includes these observations."""

    stream: str
    withdrawn: int = Field(description="Stored observations that were withdrawn.")
    token: str | None = Field(description="Token of the post, for `Decaysketch-After`.")
    standing: Standing | None = Field(default=None, description="If the request has `for`.")


@router.post(
    "/v1/streams/{name}/withdrawals",
    summary="Withdraw observations",
    dependencies=[Depends(administers), Depends(json_only)],
    response_model=Withdrawal,
    responses=problems(
        s404="No such stream.",
        s409="The number of standing withdrawals is at its limit.",
        s415="The body is not JSON.",
        s422="The stream has no revision column, or the body has neither or both of `where` and "
        "`ids`, or `for` without `where`, or the condition cannot be read.",
        s429="Too many posts wait to be written.",
        s503="The journal is unreachable. No stored observation was withdrawn. A standing "
        "withdrawal may have been stored.",
        s507="There is no capacity for the tombstones.",
    ),
)
async def withdraw(
    name: schemas.StreamName,
    asked: WithdrawalRequest,
    request: Request,
    aggregator: TheAggregator,
    questions: TheQuestions,
) -> Withdrawal:
    """Withdraw stored observations. They stay withdrawn after a restart, in replicas and relays,
    and if a source sends them again. With `for`, observations that arrive for the first time after
    the request are withdrawn, too, in every replica.
    """
    stream = await aggregator.find(name)
    standing = None
    with questions() as compute:
        if asked.lasting is not None:
            until_us = aggregator.now_us() + _lasting_us(asked)
            standing = await compute(_checked, stream, asked, until_us)
            await aggregator.catalog.stand(stream, standing.where, until_us)
        made, body = await compute(_tombstones, stream, asked)
    if not len(made):
        return Withdrawal(stream=name, withdrawn=0, token=None, standing=standing)
    post, caller = Post(stream.id, SOURCE, body, snapshot=made), caller_of(request)
    with aggregator.hold(len(made), beside=PART_ROWS, caller=caller) as hold:
        receipt = await aggregator.post({stream: [post]}, hold=hold, caller=caller)
    withdrawn = made.thaw().stats().withdrawn  # type: ignore[attr-defined]
    return Withdrawal(stream=name, withdrawn=withdrawn, token=receipt.token, standing=standing)


@router.get(
    "/v1/streams/{name}/withdrawals",
    summary="List standing withdrawals",
    dependencies=[Depends(administers)],
    response_model=StandingList,
    responses=problems(s404="No such stream.", s422="The name is not a stream name."),
)
async def list_withdrawals(name: schemas.StreamName, aggregator: TheAggregator) -> StandingList:
    """List the conditions that withdraw future observations, by their end."""
    stream = await aggregator.find(name)
    found = stream.row.standing_at(aggregator.now_us())
    listed = [_standing(*each) for each in sorted(found.items(), key=lambda pair: pair[::-1])]
    return StandingList(stream=name, standing=listed)


@router.delete(
    "/v1/streams/{name}/withdrawals",
    summary="End a standing withdrawal",
    dependencies=[Depends(administers)],
    status_code=204,
    responses=problems(
        s404="No such stream, or no withdrawal with this condition stands.",
        s422="`where` is missing or too long, or the name is not a stream name.",
        s503="The journal is unreachable. The change may have been stored or not.",
    ),
)
async def end_withdrawal(
    name: schemas.StreamName,
    where: Annotated[str, Query(max_length=_LONGEST_WHERE, description="Its condition.")],
    aggregator: TheAggregator,
) -> None:
    """End a standing withdrawal. Its withdrawn observations stay withdrawn."""
    stream = await aggregator.find(name)
    if where not in stream.row.standing_at(aggregator.now_us()):
        raise UnknownStandingError(name, where)
    await aggregator.catalog.stand(stream, where, 0)


def _lasting_us(asked: WithdrawalRequest) -> int:
    """Return how long a condition stands."""
    if asked.where is None or asked.ids is not None:
        raise InvalidRequestError("for needs where; ids are known, so withdraw them without for")
    found = int(duration(asked.lasting or "", "us", name="for"))
    if not 0 < found <= _LONGEST_US:
        raise InvalidRequestError(f"for is {asked.lasting!r}; expected a duration up to 3660d")
    return found


def _checked(stream: Stream, asked: WithdrawalRequest, until_us: int) -> Standing:
    """Return a standing withdrawal that the stream can have."""
    assert asked.where is not None
    _stored(stream).check_standing(asked.where)
    return _standing(asked.where, until_us)


def _standing(where: str, until_us: int) -> Standing:
    return Standing(where=where, until=datetime.fromtimestamp(until_us / 1e6, UTC))


def _stored(stream: Stream) -> Any:
    """Return the stream's sketch, if its family has withdrawals."""
    found = stream.snapshot()
    if not hasattr(found, "withdrawal"):
        raise InvalidRequestError(
            f"stream {stream.name!r} is of family {stream.recipe.family!r}; only streams with a "
            "revision column have withdrawals"
        )
    return found


def _tombstones(stream: Stream, asked: WithdrawalRequest) -> tuple[Snapshot, bytes]:
    """Return the tombstones as a sketch, and its bytes."""
    made: Snapshot = _stored(stream).withdrawal(asked.ids, where=asked.where).snapshot()
    return made, made.to_bytes()
