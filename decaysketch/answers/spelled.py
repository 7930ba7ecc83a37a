"""A question as a text: its name, and behind a colon its argument, such as ``quantile:0.5,0.9``."""

from __future__ import annotations

import json
import re
from typing import Any

from decaysketch.answers.asking import QUESTIONS, read_predicate
from decaysketch.answers.shapes import Question
from decaysketch.errors import ParameterError

__all__ = ["PERCENTILE", "argument_of", "is_integer", "meant", "question_of"]

PERCENTILE = re.compile(r"p(\d+)")
"""What other tools call a quantile, such as p95."""
_ELSEWHERE = {  # what other tools call it
    "avg": "mean", "average": "mean", "std": "stddev", "stdev": "stddev", "sd": "stddev",
    "var": "variance", "percentile": "quantile", "percentiles": "quantile", "topk": "heavy_hitters",
    "top_k": "heavy_hitters", "maximum": "max", "minimum": "min",
}  # fmt: skip
_INTEGER = re.compile(r"[+-]?\d+")


def question_of(text: str) -> tuple[Question[Any], dict[str, Any]]:
    """The question that a text names, and its argument.

    Raises:
        ParameterError: no such question, or no such argument of it.
    """
    name, _, argument = text.partition(":")
    if name not in QUESTIONS:
        raise ParameterError(f"aggregate is {name!r}; expected one of {', '.join(QUESTIONS)}")
    try:
        return QUESTIONS[name], argument_of(QUESTIONS[name], argument)
    except ValueError as fault:
        raise ParameterError(f"aggregate {text!r}: {fault}") from None


def meant(word: str) -> str | None:
    """The question that a word of other tools means; None: none is known.

    Example:
        >>> meant("avg"), meant("p95"), meant("x")
        ('mean', 'quantile', None)
    """
    if PERCENTILE.fullmatch(word):
        return "quantile"
    return _ELSEWHERE.get(word.lower())


def argument_of(question: Question[Any], text: str) -> dict[str, Any]:
    """What stands after the colon, by the name of the argument; of none, nothing.

    Raises:
        ValueError: it is no such argument.
    """
    leading = question.leading
    if leading is None or not leading.travels:
        if text:
            raise ValueError(f"it takes no argument, not {text!r}")
        return {}
    if not text and leading.kind in ("share", "number"):
        one = leading.example
        shown = ",".join(map(str, one)) if isinstance(one, list) else one
        raise ValueError(f"it takes {leading.name} after a colon, as in {question.name}:{shown}")
    if leading.kind == "sketch":
        raise ValueError("it takes another sketch, which is no text")
    if leading.kind == "predicate":
        return {leading.name: read_predicate(text)}
    if leading.kind == "keys":
        return {leading.name: _keys(text)}
    read = float if leading.kind == "share" else _number
    if leading.many == "no":
        return {leading.name: read(text)}
    return {leading.name: [read(part) for part in text.split(",")]}


def _keys(text: str) -> list[Any]:
    """Keys with commas between them, each an integer where it is one, else a text; or JSON, in
    which lists are tuples: ``["12", ["JFK", "LAX"]]``."""
    if text.startswith("["):
        given = json.loads(text)
        return [tuple(each) if isinstance(each, list) else each for each in given]
    return [int(part) if is_integer(part) else part for part in text.split(",")]


def _number(text: str) -> float | int:
    """An integer where it is one, which may have more digits than a float64 holds."""
    return int(text) if is_integer(text) else float(text)


def is_integer(text: str) -> bool:
    """Whether ``int`` reads it: digits behind one sign at the most."""
    return _INTEGER.fullmatch(text.strip()) is not None
