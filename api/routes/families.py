"""What each family of sketches can be asked, for clients that build their questions from it."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from typing import Any, Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field

from api.http.guard import reads
from api.queries import is_known
from api.queries.caching import etag
from decaysketch.answers.questions import QUESTIONS
from decaysketch.answers.shapes import Argument, Column, Question
from decaysketch.families import FAMILIES

__all__ = ["router"]

router = APIRouter()


class ArgumentModel(BaseModel):
    """What a question is asked with, under its name in a query."""

    kind: Literal["number", "share", "integer", "predicate"] = Field(
        description="`share`: a number of 0..1; `predicate`: a text over `v` and `w`."
    )
    description: str
    many: Literal["no", "yes", "either"] = Field(
        description="Whether a list is taken; `either`: a list or one."
    )
    required: bool
    default: Any = Field(default=None, description="What it is where it is left out.")
    least: float | None = None
    most: float | None = None
    below: float | None = Field(default=None, description="It is less than this.")
    example: Any = None


class ColumnModel(BaseModel):
    """A part of an answer."""

    name: str
    kind: Literal["estimate", "number", "float", "time", "integer"]


class QuestionModel(BaseModel):
    """One aggregate."""

    description: str
    arguments: dict[str, ArgumentModel]
    rows: str | None = Field(
        description="Name of the list in the answer; null where it is not a list."
    )
    columns: list[ColumnModel] = Field(description="Of a row of that list.")
    beside: list[ColumnModel] = Field(description="What stands in the answer itself.")


class FamilyModel(BaseModel):
    """One family of sketches."""

    questions: dict[str, QuestionModel]


class FamiliesResponse(BaseModel):
    """Every family that a stream may be of."""

    families: dict[str, FamilyModel]


@router.get(
    "/v1/families",
    tags=["queries"],
    summary="What can be asked",
    dependencies=[Depends(reads)],
    response_model=FamiliesResponse,
    responses={304: {"description": "It is the one that If-None-Match names."}},
)
async def get_families(request: Request) -> Response:
    """The questions that streams of each family answer, what they are asked with, and what their
    answers hold. It is the same until another release of the service."""
    body, tag = _families()
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if is_known(tag, request.headers.get("if-none-match")):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


@cache
def _families() -> tuple[bytes, str]:
    """The body, and its entity tag."""
    families = {
        family: FamilyModel(
            questions={
                name: _question(each)
                for name, each in QUESTIONS.items()
                if name in recipe.sketch.questions
            }
        )
        for family, recipe in FAMILIES.items()
    }
    body = FamiliesResponse(families=families).model_dump_json()
    return body.encode(), etag(body)


def _question(question: Question[Any]) -> QuestionModel:
    rows = question.shape.rows
    return QuestionModel(
        description=question.doc,
        arguments={each.json: _argument(each) for each in question.travelling},
        rows=None if rows is None else rows.name,
        columns=[] if rows is None else _columns(rows.columns),
        beside=_columns(question.shape.beside),
    )


def _argument(argument: Argument) -> ArgumentModel:
    fields = {name: getattr(argument, name) for name in ("kind", "many", "least", "most", "below")}
    return ArgumentModel(
        description=argument.doc,
        required=argument.required,
        default=None if argument.required else argument.served,
        example=argument.example,
        **fields,
    )


def _columns(columns: tuple[Column, ...]) -> list[ColumnModel]:
    return [ColumnModel(name=each.name, kind=each.kind) for each in columns]
