"""Withdraw observations: no query reads them again, and no duplicate brings them back."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field

from api import schemas
from api.errors import InvalidRequestError
from api.http.caller import administers, caller_of
from api.http.json_body import JsonRoute
from api.http.problems import problems
from api.journal.model import Post
from api.routes.common import TheAggregator, TheQuestions, json_only
from api.service.budget import PART_ROWS
from api.service.streams import Stream
from decaysketch import Snapshot

__all__ = ["SOURCE", "router"]

router = APIRouter(route_class=JsonRoute, tags=["observations"])

SOURCE = "withdrawals"
"""The source of tombstones in a stream."""

_MOST_IDS = 100_000


class WithdrawalRequest(schemas.RequestModel):
    """The observations to withdraw: a condition, or ids."""

    where: str | None = Field(
        default=None, max_length=1_000, description="A condition, as in a query."
    )
    ids: list[int] | None = Field(
        default=None, max_length=_MOST_IDS, description="Ids, as integers."
    )


class Withdrawal(BaseModel):
    """The withdrawn observations. They are on disk, and in no later answer."""

    stream: str
    withdrawn: int = Field(description="Stored observations that were withdrawn.")
    token: str | None = Field(description="Of the post, for `Decaysketch-After`.")


@router.post(
    "/v1/streams/{name}/withdrawals",
    summary="Withdraw observations",
    dependencies=[Depends(administers), Depends(json_only)],
    response_model=Withdrawal,
    responses=problems(
        s404="No such stream.",
        s415="The body is not JSON.",
        s422="The stream has no revision column, or the body has neither or both of `where` and "
        "`ids`, or the condition cannot be read.",
        s429="Too much waits to be written.",
        s503="The journal is out of reach. Nothing was withdrawn.",
        s507="There is no room for the tombstones.",
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
    and if a source sends them again. Repeat the request for observations that arrive for the first
    time after it.
    """
    stream = await aggregator.find(name)
    with questions() as compute:
        made, body = await compute(_tombstones, stream, asked)
    if not len(made):
        return Withdrawal(stream=name, withdrawn=0, token=None)
    post, caller = Post(stream.id, SOURCE, body, snapshot=made), caller_of(request)
    with aggregator.hold(len(made), beside=PART_ROWS, caller=caller) as hold:
        receipt = await aggregator.post({stream: [post]}, hold=hold, caller=caller)
    withdrawn = made.thaw().stats().withdrawn  # type: ignore[attr-defined]
    return Withdrawal(stream=name, withdrawn=withdrawn, token=receipt.token)


def _tombstones(stream: Stream, asked: WithdrawalRequest) -> tuple[Snapshot, bytes]:
    """Return the tombstones as a sketch, and its bytes."""
    held = stream.snapshot()
    withdrawal = getattr(held, "withdrawal", None)
    if withdrawal is None:
        raise InvalidRequestError(
            f"stream {stream.name!r} is of family {stream.recipe.family!r}; only streams with a "
            "revision column have withdrawals"
        )
    made: Snapshot = withdrawal(asked.ids, where=asked.where).snapshot()
    return made, made.to_bytes()
