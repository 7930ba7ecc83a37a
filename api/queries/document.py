"""The table of queries in the documentation, generated from the service's models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from decaysketch.contract.family import Family
from decaysketch.families import FAMILIES
from decaysketch.query.catalog import QUESTIONS
from decaysketch.query.shapes import Argument, Column, Question

__all__ = ["questions_table"]


def questions_table() -> str:
    """Return every query with its arguments and its result, as a Markdown table."""
    head = "| `aggregate` | argument | what it is | in the answer | not of family |\n"
    return head + "| --- | --- | --- | --- | --- |\n" + "".join(map(_line, QUESTIONS.values()))


def _line(question: Question[Any]) -> str:
    without = (f"`{family}`" for family, recipe in FAMILIES.items() if not _has(recipe, question))
    cells = (
        f"`{question.name}`",
        "; ".join(map(_argument, question.travelling)),
        question.doc,
        ", ".join(_parts(question)),
        ", ".join(without),
    )
    return f"| {' | '.join(cells)} |\n"


def _has(family: Family, question: Question[Any]) -> bool:
    if question.asked_of == "sources":
        return family.joining is not None
    return question.name in family.sketch.questions


def _argument(argument: Argument) -> str:
    left_out = ""
    if argument.served is not None and not argument.required:
        shown = argument.served
        left_out = f" ({shown if isinstance(shown, str) else format(shown, ',')})"
    return f"`{argument.json}`{left_out}: {argument.doc.removesuffix('.')}"


def _parts(question: Question[Any]) -> Iterator[str]:
    rows = question.shape.rows
    if rows is not None:
        row = "{" + ", ".join(f'"{each.name}"' for each in rows.columns) + "}"
        yield f"`{rows.name}`: " + (f"`{row}` or `null`" if rows.single else f"`[{row}]`")
    yield from map(_single, question.shape.beside)


def _single(column: Column) -> str:
    return f"`{column.name}`"
