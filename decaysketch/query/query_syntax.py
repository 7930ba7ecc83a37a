"""A query as a text: an aggregate with its column and arguments, followed by modifiers.

    ``quantile(v, 0.9) by bucket(time, '1h') where v > 3 weight exp(-v) limit 20 order key``
    ``mean(v) set gw7 - gw8 by source where v > -90``
    ``mean(v) where w == 1 versus w == 2 how ratio``

The parts stand in this order. All but the aggregate are optional. A column is any expression
(:mod:`decaysketch.core.text.expression`). Without a column, or without brackets, the aggregate is
over ``v``. The older form of an aggregate has its argument after a colon, such as
``quantile:0.5,0.9``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from decaysketch.core.text.expression import MAX_EXPRESSION
from decaysketch.core.text.grammar import PIECE, split_commas
from decaysketch.errors import ParameterError
from decaysketch.query.dispatch import QUESTIONS, modified_question, needed_by, read_predicate
from decaysketch.query.modifiers import Modifiers
from decaysketch.query.other_names import meant, rewritten
from decaysketch.query.shapes import Argument, Question

__all__ = [
    "Spelled",
    "argument_of",
    "is_integer",
    "parts_of",
    "proposal",
    "query_of",
    "question_of",
]

_INTEGER = re.compile(r"[+-]?\d+")


def question_of(text: str) -> tuple[Question[Any], dict[str, Any]]:
    """Return the query that a text names, and its argument.

    Raises:
        ParameterError: the query does not exist, or does not accept the argument.
    """
    name, _, argument = text.partition(":")
    if name not in QUESTIONS:
        raise ParameterError(f"aggregate is {name!r}; expected one of {', '.join(QUESTIONS)}")
    try:
        return QUESTIONS[name], argument_of(QUESTIONS[name], argument)
    except ValueError as fault:
        raise ParameterError(f"aggregate {text!r}: {fault}") from None


class Spelled(NamedTuple):
    """The meaning of a query text.

    Attributes:
        question: the aggregate.
        arguments: its arguments.
        modifiers: modifiers of the query.
    """

    question: Question[Any]
    arguments: dict[str, Any]
    modifiers: Modifiers


_CLAUSES = ("set", "by", "where", "versus", "how", "weight", "limit", "order")
_HEAD = re.compile(r"\s*([A-Za-z_][0-9A-Za-z_]*)\s*(?:\((.*)\))?\s*", re.DOTALL)
_NAMED = re.compile(r"\s*([a-z_]+)\s*=(?!=)\s*(.*)", re.DOTALL)
_NUMBER = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")


def query_of(text: str) -> Spelled:
    """Return the query that a text means.

    Args:
        text: at most 1,000 characters.

    Raises:
        ParameterError: the aggregate does not exist, does not accept an argument, or the clauses
            have another order. The message has the query that another tool's form means.

    Example:
        >>> query_of("mean(v) by hour(time) where v > 3").modifiers.to_dict()
        {'by': ['hour(time)'], 'where': 'v > 3'}
    """
    parts = parts_of(text)
    try:
        return _spelled(parts)
    except ParameterError as fault:
        near = _proposal(parts) or meant(parts[""].partition("(")[0].strip())
        if near is None:
            raise
        raise ParameterError(f"{fault}; did you mean {near!r}?") from None


def proposal(text: str) -> str | None:
    """Return the query that a text in another tool's form means, and that can be read. None:
    unknown.

    Example:
        >>> proposal("p95"), proposal("avg(x) by host"), proposal("x")
        ('quantile(0.95)', 'mean(x) by host', None)
    """
    try:
        found = _proposal(parts_of(text))
    except ParameterError:
        return None
    return None if found == text.strip() else found


def _proposal(parts: Mapping[str, str]) -> str | None:
    found = rewritten(parts, QUESTIONS)
    if found is None:
        return None
    try:
        question, arguments, _ = _spelled(parts_of(found))
    except ParameterError:
        return None
    missing = [each for each in question.travelling if each.required and each.name not in arguments]
    return None if missing else found


def _spelled(parts: Mapping[str, str]) -> Spelled:
    by = tuple(key.strip() for key in split_commas(parts["by"])) if "by" in parts else ()
    limit = parts.get("limit")
    if limit is not None and not is_integer(limit):
        raise ParameterError(f"the query has limit {limit.strip()!r:.80}; expected a whole number")
    question, arguments, of = _head(parts[""])
    modifiers = Modifiers(
        of=of, by=by, where=parts.get("where"), weight=parts.get("weight"),
        limit=None if limit is None else int(limit),
        order=parts.get("order", "largest"),  # type: ignore[arg-type]  # which is checked
        set=parts.get("set"), versus=parts.get("versus"),
        how=parts.get("how", "difference"),  # type: ignore[arg-type]  # which is checked
    )  # fmt: skip
    return Spelled(modified_question(question, modifiers), arguments, modifiers)


def parts_of(text: str) -> dict[str, str]:
    """Return the aggregate in a text, by the empty name, and its clauses by their names: words
    outside quotes and brackets.

    Raises:
        ParameterError: no text, a text that is too long, or clauses in another order.
    """
    if not isinstance(text, str) or len(text) > MAX_EXPRESSION:
        found = f"{len(text)} characters" if isinstance(text, str) else f"{text!r:.80}"
        raise ParameterError(f"the query has {found}; expected a text of at most {MAX_EXPRESSION}")
    parts, clause, depth, at = {"": ""}, "", 0, 0
    for piece in PIECE.findall(text):
        depth += (piece == "(") - (piece == ")")
        if depth == 0 and piece in _CLAUSES and (piece != "how" or "versus" in parts):
            order = ("", *_CLAUSES)
            if order.index(piece) <= order.index(clause):
                raise ParameterError(
                    f"the query has {piece!r} at character {at}; expected an aggregate, then set, "
                    "by, where, versus, how, weight, limit and order, each at most once and in "
                    "this order"
                )
            clause = piece
            parts[clause] = ""
        else:
            parts[clause] += piece
        at += len(piece)
    stripped = {name: part.strip() for name, part in parts.items()}
    if empty := [name for name, part in stripped.items() if name and not part]:
        raise ParameterError(f"the query has nothing after {empty[0]!r}")
    return stripped


def _head(text: str) -> tuple[Question[Any], dict[str, Any], str | None]:
    """Return an aggregate, its arguments and its column."""
    head = _HEAD.fullmatch(text)
    if head is None:
        name, colon, _ = text.partition(":")
        if colon and name.strip() in QUESTIONS:
            return *question_of(text), None
        raise ParameterError(
            f"the query begins with {text[:40]!r}; expected an aggregate such as mean(v), then "
            "set, by, where, weight and limit"
        )
    question = _aggregate(head[1])
    given = split_commas(head[2]) if head[2] and head[2].strip() else []
    arguments = {argument.name: argument for argument in question.travelling}
    found: dict[str, Any] = {}
    places: list[str] = []
    for piece in given:
        if (named := _NAMED.fullmatch(piece)) and named[1] in arguments:
            found[named[1]] = _read(question, arguments[named[1]], [named[2]])
        else:
            places.append(piece.strip())
    of = None
    takes_column = "values" in question.needs or question.name in ("sum", "last")
    if places and takes_column and not _NUMBER.fullmatch(places[0]):
        of = places.pop(0)
    if places:
        leading = question.leading
        if leading is None or not leading.travels:
            raise ParameterError(
                f"{question.name} is given {places[0][:80]!r}; expected "
                + (f"{question.name}(column)" if takes_column else f"{question.name}()")
                + (f", which needs {needed_by(question)}" if question.asked_of != "rows" else "")
            )
        found[leading.name] = _read(question, leading, places)
    plain = of == "v" and question.name != "sum"
    return question, found, None if plain else of


def _aggregate(name: str) -> Question[Any]:
    if name in QUESTIONS:
        return QUESTIONS[name]
    known = [each for each, question in QUESTIONS.items() if question.asked_of == "rows"]
    raise ParameterError(f"aggregate is {name[:80]!r}; expected one of {', '.join(known)}")


def _read(question: Question[Any], argument: Argument, pieces: list[str]) -> Any:
    """Return an argument, from the texts between commas."""
    try:
        if argument.kind == "predicate":
            return read_predicate(", ".join(pieces).strip())
        if argument.kind in ("number", "share", "integer"):
            numbers = [_number(piece) for piece in pieces]
            if argument.many == "no" and len(numbers) > 1:
                raise ValueError("expected one number")
            if argument.kind == "share" and any(number > 1 for number in numbers):
                raise ValueError("expected a number from 0 to 1")
            return numbers if argument.many != "no" else numbers[0]
        if argument.kind == "set":
            return ", ".join(pieces).strip()
        if argument.kind == "column":
            return [piece.strip() for piece in pieces]
        return argument_of(question, ",".join(piece.strip() for piece in pieces))[argument.name]
    except (ValueError, KeyError) as fault:
        if isinstance(fault, ParameterError):
            raise
        given = ", ".join(pieces)
        raise ParameterError(
            f"{question.name} has {argument.name} {given[:80]!r}: {fault}"
        ) from None


def argument_of(question: Question[Any], text: str) -> dict[str, Any]:
    """Return the text after the colon, by the name of the argument. Without a colon, return
    nothing.

    Raises:
        ValueError: the text is no such argument.
    """
    leading = question.leading
    if leading is None or not leading.travels:
        if text:
            raise ValueError(f"it takes no argument, not {text!r}")
        return {}
    if not text and leading.kind in ("share", "number", "column"):
        one = leading.example
        shown = ",".join(map(str, one)) if isinstance(one, list) else one
        raise ValueError(f"it takes {leading.name} after a colon, as in {question.name}:{shown}")
    if leading.kind == "sketch":
        raise ValueError("its argument is another sketch, not a text")
    if leading.kind == "predicate":
        return {leading.name: read_predicate(text)}
    if leading.kind == "set":
        return {leading.name: text or leading.default}
    if leading.kind == "keys":
        return {leading.name: _keys(text)}
    if leading.kind == "column":
        return {leading.name: [piece.strip() for piece in split_commas(text)]}
    read = float if leading.kind == "share" else _number
    if leading.many == "no":
        return {leading.name: read(text)}
    return {leading.name: [read(part) for part in text.split(",")]}


def _keys(text: str) -> list[Any]:
    """Return keys. The text has keys with commas between them, each read as an integer if it is
    one, else as a text. Or it is JSON, with lists for tuples: ``["12", ["JFK", "LAX"]]``.
    """
    if text.startswith("["):
        given = json.loads(text)
        return [tuple(each) if isinstance(each, list) else each for each in given]
    return [int(part) if is_integer(part) else part for part in text.split(",")]


def _number(text: str) -> float | int:
    """Return an integer if the text is one. It may have more digits than a float64 can
    represent.
    """
    return int(text) if is_integer(text) else float(text)


def is_integer(text: str) -> bool:
    """Return whether ``int`` can read it: digits, after at most one sign."""
    return _INTEGER.fullmatch(text.strip()) is not None
