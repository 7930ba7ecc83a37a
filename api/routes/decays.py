"""Decays before their use: validity and shape."""

from __future__ import annotations

from typing import Annotated, Self

import numpy as np
from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from api.errors import Fault, InvalidRequestError
from api.http.caller import reads
from api.http.json_body import JsonRoute, asked_in_body, body_described, json_only
from api.http.problems import problems
from api.queries.decays import AnyDecay, NonNegative, decay_asked
from api.routes.common import TheQuestions
from api.schemas import RequestModel
from decaysketch.decay import Expression
from decaysketch.errors import ParameterError

__all__ = ["CurveRequest", "CurveResponse", "router"]

router = APIRouter(route_class=JsonRoute)

_OLDEST = 1 << 63


class Ages(RequestModel):
    """Ages at equal distances from `start` to `stop`, both included."""

    start: NonNegative = 0
    stop: NonNegative
    points: Annotated[int, Field(ge=2, le=2000)] = 200

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if not 0 <= self.start < self.stop <= _OLDEST:
            raise PydanticCustomError(
                "no_range",
                "start is {start} and stop is {stop}; expected 0 <= start < stop <= 2^63",
                {"start": self.start, "stop": self.stop},
            )
        return self


class CurveRequest(RequestModel):
    """A decay, and ages for its weights."""

    decay: AnyDecay
    ages: Ages
    time_unit: str | None = Field(
        default=None, max_length=100, description="Unit of the ages, for a decay with units."
    )


class CurveResponse(BaseModel):
    """A valid decay."""

    text: str = Field(description="The decay, an expression in its normal form.")
    ages: list[float]
    weights: list[float] = Field(description="At each age: finite, >= 0, not rising.")


@router.post(
    "/v1/decays/curve",
    tags=["queries"],
    summary="Try a decay",
    dependencies=[Depends(reads), Depends(json_only)],
    responses=problems(
        s413="The body is too long.",
        s415="The body is not JSON.",
        s422="The decay is invalid, and the problem names the reason. Or the ages are malformed.",
        s429="Too many queries are running, for this caller or in total.",
    ),
    openapi_extra=body_described(CurveRequest),
)
async def post_curve(
    request: Annotated[CurveRequest, Depends(asked_in_body(CurveRequest))], questions: TheQuestions
) -> CurveResponse:
    """Check a decay as each query does, and return its weights at some ages."""
    with questions() as compute:
        return await compute(_curve, request)


def _curve(request: CurveRequest) -> CurveResponse:
    try:
        decay = decay_asked(request.decay, request.time_unit)
        ages = np.linspace(request.ages.start, request.ages.stop, request.ages.points)
        weights = decay(ages)
    except ParameterError as error:
        raise InvalidRequestError(
            f"decay: {error}", [Fault(field="decay", reason=str(error))]
        ) from None
    return CurveResponse(
        text=decay.text if isinstance(decay, Expression) else str(decay),
        ages=ages.tolist(),
        weights=weights.tolist(),
    )
