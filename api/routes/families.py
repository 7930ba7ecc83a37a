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
        description="Whether it is a list. `either`: a list or a single value."
    )
    required: bool
    default: Any = Field(default=None, description="Default value.")
    least: float | None = None
    most: float | None = None
    below: float | None = Field(default=None, description="The true value is smaller.")
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
        description="Name of the list in the result. Null if it is not a list."
    )
    columns: list[ColumnModel] = Field(description="Kind of a row in that list.")
    beside: list[ColumnModel] = Field(description="Name in the result.")
    numbers: bool = Field(default=False, description="Not available if values are labels.")
    compared: bool = Field(
        default=False,
        description="It supports comparisons. `versus` in its query names the other time or rows.",
    )


class InputModel(BaseModel):
    """The rows in a family's sketches."""

    named_by: Literal["ids", "sequence", "key"] = Field(
        description="`ids`: keys are hashed to ids. `numbers`: the source numbers its rows. "
        "`key`: nothing names a row, so rows are events of a key and a repeated "
        "event counts again."
    )
    joined: bool = Field(
        description="Whether rows with one name are one observation. Then the latest row "
        "represents it."
    )
    series: bool = Field(
        default=False,
        description="Whether ids name series. Series and time then identify a row.",
    )
    value: Literal["optional", "required", "none"]
    value_bound: str | None = Field(
        description="The parameter with the maximum value, for integers from 1. Null: any number."
    )
    ranges: bool = Field(
        default=False, description="Whether a value may be a range, such as a histogram's bucket."
    )
    weight_bound: str | None = Field(
        description="The parameter with the maximum weight. Null: rows have no weight."
    )
    weighted: bool = Field(default=False, description="Whether rows may have unbounded weights.")
    sited: bool = Field(
        default=False, description="Whether a single builder must count all rows of a source."
    )
    clock: bool = Field(description="Whether sketches have a clock, and discard rows by it.")
    decay: Literal["query", "fixed"] = Field(description="Time at which the decay is chosen.")
    age_bound: str | None = Field(description="The parameter with the maximum age, if it is set.")


class OptionModel(BaseModel):
    """A stream parameter, under its name."""

    kind: Literal["integer", "text"]
    description: str
    required: bool
    default: Any = Field(default=None, description="Default value.")
    choices: list[str] = Field(description="Pattern of a text. Absent: any text.")
    nullable: bool
    example: Any = None


class PromisesModel(BaseModel):
    """The laws of merging, for any order, repetition and merge tree."""

    idempotent: bool = Field(
        description="Merging a sketch again changes nothing. The server requires this of every "
        "family."
    )
    canonical: bool = Field(description="Equal sets of observations give equal bytes.")
    lossless: bool = Field(description="A merge equals a single sketch of all rows.")
    conflicts: bool = Field(
        default=False,
        description="Two sketches of one stream may contradict each other. The server rejects "
        "the later one.",
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
    summary="List the sketch families",
    dependencies=[Depends(reads)],
    response_model=FamiliesResponse,
    responses={304: {"description": "Unchanged since the response that If-None-Match names."}},
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
