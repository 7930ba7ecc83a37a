"""Sketch family descriptions, for clients that build on them.

Rows, parameters, merge laws, and queries.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from http import HTTPStatus
from typing import Any, Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field

from api.http.caller import reads
from api.queries import is_known
from api.queries.answers import etag
from decaysketch.core.params import Option
from decaysketch.families import FAMILIES, Family
from decaysketch.query.catalog import QUESTIONS
from decaysketch.query.estimate import CAVEATS
from decaysketch.query.shapes import Argument, Column, ColumnKind, Question, ServedKind

__all__ = ["router"]

router = APIRouter()


class ArgumentModel(BaseModel):
    """An aggregate's argument, under its name in a query."""

    kind: ServedKind = Field(
        description="`share`: a number from 0 to 1. `predicate`: a text over `v` and `w`. "
        "`keys`: each an integer, a text or a list of these. `sketch`: the name of another "
        "stream. `set`: an expression over sources. `column`: a column, or an expression over "
        "columns."
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
    """A part of a result."""

    name: str
    kind: ColumnKind


class QuestionModel(BaseModel):
    """One aggregate."""

    description: str
    arguments: dict[str, ArgumentModel]
    rows: str | None = Field(
        description="Name of the list in the answer; null where it is not a list."
    )
    columns: list[ColumnModel] = Field(description="Of a row of that list.")
    beside: list[ColumnModel] = Field(description="What stands in the answer itself.")
    numbers: bool = Field(
        default=False, description="It is refused where values are labels, which are no numbers."
    )
    compared: bool = Field(
        default=False,
        description="Two moments can be compared by it: `versus` of a query of it says which.",
    )


class InputModel(BaseModel):
    """The rows in a family's sketches."""

    named_by: Literal["ids", "sequence", "key"] = Field(
        description="By ids, which keys are hashed to; by numbers that their source gives them; or "
        "by nothing: rows are events of a `key`, and one that comes again counts again."
    )
    joined: bool = Field(
        description="Whether rows of one name are one observation, of which the latest row is kept."
    )
    series: bool = Field(
        default=False,
        description="Whether ids name the series that rows are of. A row is then known by its "
        "series and its time.",
    )
    value: Literal["optional", "required", "none"]
    value_bound: str | None = Field(
        description="The parameter that values, integers from 1, do not exceed; null: any number."
    )
    ranges: bool = Field(
        default=False, description="Whether a value may be a range, such as a histogram's bucket."
    )
    weight_bound: str | None = Field(
        description="The parameter that weights do not exceed; null: rows have no weight."
    )
    weighted: bool = Field(
        default=False, description="Whether rows may have a weight that no parameter bounds."
    )
    sited: bool = Field(
        default=False, description="Whether all rows of a source are counted by one builder."
    )
    clock: bool = Field(description="Whether sketches are told times, by which they forget.")
    decay: Literal["query", "fixed"] = Field(description="When a decay is chosen.")
    age_bound: str | None = Field(
        description="The parameter that ages of weight do not exceed, where it is set."
    )


class OptionModel(BaseModel):
    """A stream parameter, under its name."""

    kind: Literal["integer", "text"]
    description: str
    required: bool
    default: Any = Field(default=None, description="What it is where it is left out.")
    choices: list[str] = Field(description="Of a text; none: any.")
    nullable: bool
    example: Any = None


class PromisesModel(BaseModel):
    """The laws that a merge keeps, in any order, repetition and tree."""

    idempotent: bool = Field(
        description="What was merged before changes nothing when it is merged again. This service "
        "relies on it: a stream cannot be of a family without."
    )
    canonical: bool = Field(description="Equal sets of observations give equal bytes.")
    lossless: bool = Field(description="A merge holds what a single sketch of all would hold.")
    conflicts: bool = Field(
        default=False,
        description="Two sketches of one stream may contradict each other; the later is refused.",
    )


class FamilyModel(BaseModel):
    """One sketch family."""

    description: str
    input: InputModel
    options: dict[str, OptionModel]
    promises: PromisesModel
    questions: dict[str, QuestionModel]


class FamiliesResponse(BaseModel):
    """Every family available to a stream."""

    families: dict[str, FamilyModel]
    caveats: dict[str, str] = Field(description="The meaning of each caveat in an estimate.")


@router.get(
    "/v1/families",
    tags=["queries"],
    summary="What families there are",
    dependencies=[Depends(reads)],
    response_model=FamiliesResponse,
    responses={304: {"description": "It is the one that If-None-Match names."}},
)
async def get_families(request: Request) -> Response:
    """Stream parameters in each family, the content of their rows, and their aggregates with
    arguments and results. The response stays the same until another release.
    """
    body, tag = _families()
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if is_known(tag, request.headers.get("if-none-match")):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


@cache
def _families() -> tuple[bytes, str]:
    """Return the body and its entity tag."""
    families = {name: _family(family) for name, family in FAMILIES.items()}
    body = FamiliesResponse(families=families, caveats=dict(CAVEATS)).model_dump_json()
    return body.encode(), etag(body)


def _family(family: Family) -> FamilyModel:
    return FamilyModel(
        description=f"`{family.sketch.__name__}`: {family.doc}",
        input=InputModel(**asdict(family.input)),
        options={each.name: _option(each) for each in family.options},
        promises=PromisesModel(**asdict(family.promises)),
        questions={
            name: _question(each, family.input.decay)
            for name, each in QUESTIONS.items()
            if name in family.questions
        },
    )


def _option(option: Option) -> OptionModel:
    required = option.default is ...
    return OptionModel(
        kind="integer" if option.type is int else "text",
        description=option.doc,
        required=required,
        default=None if required else option.default,
        choices=list(option.choices),
        nullable=option.optional,
        example=option.example,
    )


def _question(question: Question[Any], decay: Literal["query", "fixed"]) -> QuestionModel:
    rows = question.shape.rows
    return QuestionModel(
        description=question.doc,
        arguments={each.json: _argument(each) for each in question.travelling},
        rows=None if rows is None else rows.name,
        columns=[] if rows is None else _columns(rows.columns),
        beside=_columns(question.shape.beside),
        numbers="numbers" in question.needs,
        compared=question.compared and decay == "query",
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
