"""What SQL asks of sketches: Arrow columns in, one Arrow column of answers out; no engine here.

Row by row, an argument that is NULL makes the answer NULL. What cannot be read or answered is a
:class:`FunctionError` that names the function, the row of its batch and the reason.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from decaysketch import families
from decaysketch.answers import query
from decaysketch.answers.estimate import Estimate
from decaysketch.answers.query import HeavyHitter
from decaysketch.answers.sample import Sample
from decaysketch.batch.columns import is_binary, is_text
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.errors import DecaySketchError, ParameterError
from decaysketch.families import Recipe
from decaysketch.spark._opened import OpenedSketch, decoded, opened
from decaysketch.spark._texts import decay_of
from decaysketch.text.predicate import Predicate

__all__ = [
    "INFO",
    "QUESTIONS",
    "FunctionError",
    "Question",
    "answer",
    "answer_type",
    "describe",
    "unite",
]

Recipes = Sequence[Recipe]

_CONFIDENCE = 0.95
_ESTIMATE = (
    ("value", pa.float64()),
    ("lower", pa.float64()),
    ("upper", pa.float64()),
    ("exact", pa.bool_()),
)
_HITTER = (("item", pa.float64()), ("share", pa.float64()), *_ESTIMATE[1:])


class FunctionError(DecaySketchError, ValueError):
    """A function was given what it cannot read or answer; the message names it and the reason."""


class Question(NamedTuple):
    """One aggregate of a sketch.

    Attributes:
        method: what sketches call it; a family without that method is not asked.
        ask: the answer, from a sample, the argument and the confidence.
        argument: its name, or None where there is none.
        read: argument from the Python object of its column.
        type, plain_type: Arrow types of an answer, and of its value alone.
        write, write_plain: an answer as a Python object of these types.
    """

    method: str
    ask: Callable[[Sample, Any, float], Any]
    argument: str | None = None
    read: Callable[[Any], Any] = lambda _nothing: None
    type: pa.DataType = pa.struct(_ESTIMATE)
    plain_type: pa.DataType = pa.float64()
    write: Callable[[Any], Any] = lambda estimate: _estimate(estimate)
    write_plain: Callable[[Any], Any] = lambda estimate: _finite(estimate.value)


def answer_type(function: str) -> pa.DataType:
    """Arrow type of the answers of a function, by its name in SQL."""
    question, plain = _question(function)
    return question.plain_type if plain else question.type


def _question(function: str) -> tuple[Question, bool]:
    """What a function asks, and whether for the value alone."""
    name = function.removesuffix("_value")
    return QUESTIONS[name], name != function


def answer(
    function: str, recipes: Recipes, columns: Sequence[pa.Array], named: Mapping[str, pa.Array]
) -> pa.Array:
    """One answer a row.

    Args:
        function: its name in SQL, as in :data:`QUESTIONS`, perhaps with ``_value`` after it.
        recipes: see :func:`decaysketch.spark._opened.decoded`.
        columns, named: arguments by place and by name: ``sketch``, the question's own,
            ``decay, now``, and perhaps ``confidence``.

    Raises:
        FunctionError: a column of a wrong type, or a row that cannot be answered.
    """
    question, plain = _question(function)
    own = () if question.argument is None else (question.argument,)
    arguments = _bound(function, ("sketch", *own, "decay", "now"), columns, named)
    sketches, texts = arguments["sketch"], arguments["decay"]
    _check_type(function, "sketch", sketches, _is_blob(sketches.type), "the bytes of sketches")
    known = is_text(texts.type) or pa.types.is_null(texts.type)
    _check_type(function, "decay", texts, known, "texts")
    times = _Times(function, arguments["now"])
    ones = [1] * len(sketches)
    given = arguments[question.argument].to_pylist() if question.argument is not None else ones
    confidences = [_CONFIDENCE] * len(ones)
    if "confidence" in arguments:
        confidences = arguments["confidence"].to_pylist()
    write = question.write_plain if plain else question.write
    answers: list[Any] = []
    rows = zip(sketches.to_pylist(), given, texts.to_pylist(), confidences, strict=True)
    for row, (blob, argument, text, confidence) in enumerate(rows):
        if blob is None or argument is None or confidence is None:
            answers.append(None)
            continue
        try:
            sketch = opened(blob, recipes)
            now = times.at(row, sketch.time_unit)
            if now is None or (text is None and not sketch.has_fixed_decay):
                answers.append(None)
                continue
            _check_asked(sketch, question, text)
            decay = None if text is None else decay_of(text, sketch.time_unit)
            sample = sketch.sample(decay, now)
            confidence = _number("confidence", confidence)
            found = question.ask(sample, question.read(argument), confidence)
        except DecaySketchError as fault:
            raise _refusal(function, row, fault) from None
        answers.append(write(found))
    return pa.array(answers, answer_type(function))


def _bound(
    function: str, names: Sequence[str], columns: Sequence[pa.Array], named: Mapping[str, pa.Array]
) -> dict[str, pa.Array]:
    """Arguments by name; the confidence may be left out."""
    known = [*names, "confidence"]
    call = f"{function}({', '.join(names)}[, confidence])"
    if len(columns) > len(known):
        raise FunctionError(f"{call} is given {len(columns)} arguments; it takes {len(known)}")
    arguments = dict(zip(known, columns, strict=False))
    for name, column in named.items():
        if name not in known or name in arguments:
            how = "given twice" if name in known else "unknown"
            raise FunctionError(f"{call}: {name} is {how}")
        arguments[name] = column
    if missing := [name for name in names if name not in arguments]:
        raise FunctionError(f"{call}: {missing[0]} is missing")
    return arguments


def _check_asked(sketch: OpenedSketch, question: Question, decay: str | None) -> None:
    if not hasattr(sketch.sketch, question.method):
        recipe = families.FAMILIES
        family = next(n for n, r in recipe.items() if isinstance(sketch.sketch, r.sketch))
        raise ParameterError(f"a sketch of the family {family!r} has no {question.method}")
    if sketch.has_fixed_decay and decay is not None:
        raise ParameterError(
            f"decay is {decay!r}; expected NULL: that of this sketch was fixed when it was built"
        )


# --------------------------------------------------------------------------------------- arguments


class _Times:
    """A column of times, in whatever unit a row's sketch has."""

    def __init__(self, function: str, column: pa.Array) -> None:
        kind = column.type
        self._unit: str | None = None  # of the numbers; None: that of the sketch
        if pa.types.is_date(kind):
            column = column.cast(pa.timestamp("ms"))
        if pa.types.is_timestamp(column.type):
            self._unit = column.type.unit
            column = column.cast(pa.int64())
        known = pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_floating(kind)
        known = known or pa.types.is_null(kind) or self._unit is not None
        _check_type(function, "now", column, known, "integers, timestamps or dates")
        self._numbers = column.to_pylist()

    def at(self, row: int, unit: str) -> int | None:
        """The time of a row; a coarser unit rounds down."""
        number = self._numbers[row]
        if number is None:
            return None
        if number != number or number in (math.inf, -math.inf) or int(number) != number:
            raise ParameterError(f"now is {number}; expected an integer time")
        if self._unit is None or self._unit == unit:
            return int(number)
        if unit not in NANOSECONDS:
            raise ParameterError(
                f"now is a timestamp and cannot be converted to the stream's unit {unit!r}; known "
                f"are {', '.join(NANOSECONDS)}"
            )
        return int(number) * NANOSECONDS[self._unit] // NANOSECONDS[unit]


def _number(name: str, given: Any) -> int | float:
    """A number of SQL: an integer, a double, or a decimal, as literals are."""
    if isinstance(given, Decimal):
        return int(given) if given == given.to_integral_value() else float(given)
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise ParameterError(f"{name} is {given!r}; expected a number")
    return given


def _numbers(given: Any) -> list[int | float]:
    if not isinstance(given, list):
        raise ParameterError(f"q is {given!r}; expected an array of numbers")
    return [_number("q", each) for each in given]


def _predicate(given: Any) -> Predicate:
    if not isinstance(given, str):
        raise ParameterError(f"predicate is {given!r}; expected a text")
    return _parsed(given)


@lru_cache(maxsize=64)
def _parsed(text: str) -> Predicate:
    return Predicate(text)


def _is_blob(kind: pa.DataType) -> bool:
    return is_binary(kind) or pa.types.is_null(kind) is True


def _check_type(function: str, name: str, column: pa.Array, known: bool, expected: str) -> None:
    if not known:
        raise FunctionError(f"{function}: {name} is of type {column.type}; expected {expected}")


def _refusal(function: str, row: int, fault: DecaySketchError) -> FunctionError:
    return FunctionError(f"{function}: row {row} of its batch: {type(fault).__name__}: {fault}")


# ----------------------------------------------------------------------------------------- answers


def _finite(number: float) -> float | None:
    """SQL has NULL for what is not defined; infinities it has."""
    return None if math.isnan(number) else number


def _estimate(estimate: Estimate) -> tuple[float | None, float | None, float | None, bool]:
    ends = (estimate.value, estimate.lower, estimate.upper)
    value, lower, upper = map(_finite, ends)
    return value, lower, upper, estimate.exact


def _hitter(hitter: HeavyHitter) -> tuple[Any, ...]:
    return float(hitter.value), *_estimate(hitter.frequency)


def _plain_hitter(hitter: HeavyHitter) -> tuple[float, float | None]:
    return float(hitter.value), _finite(hitter.frequency.value)


#: By name in SQL; each has a twin of the name ``<name>_value``.
QUESTIONS: dict[str, Question] = {
    "decayed_sum": Question("sum", lambda s, _, c: query.sum(s, confidence=c)),
    "decayed_count": Question("count", lambda s, _, c: query.count(s, confidence=c)),
    "decayed_total": Question("total", lambda s, _, c: query.total(s, None, confidence=c)),
    "decayed_mean": Question("mean", lambda s, _, c: query.mean(s, confidence=c)),
    "decayed_variance": Question("variance", lambda s, _, c: query.variance(s, confidence=c)),
    "decayed_quantile": Question(
        "quantile",
        lambda s, q, c: query.quantile(s, q, confidence=c),
        "q",
        lambda given: _number("q", given),
    ),
    "decayed_quantiles": Question(
        "quantile",
        lambda s, q, c: query.quantile(s, q, confidence=c),
        "q",
        _numbers,
        pa.list_(pa.struct(_ESTIMATE)),
        pa.list_(pa.float64()),
        lambda found: list(map(_estimate, found)),
        lambda found: [_finite(each.value) for each in found],
    ),
    "decayed_rank": Question(
        "rank",
        lambda s, value, c: query.rank(s, value, confidence=c),
        "value",
        lambda given: _number("value", given),
    ),
    "heavy_hitters": Question(
        "heavy_hitters",
        lambda s, phi, c: query.heavy_hitters(s, phi, confidence=c),
        "phi",
        lambda given: _number("phi", given),
        pa.list_(pa.struct(_HITTER)),
        pa.list_(pa.struct(_HITTER[:2])),
        lambda found: list(map(_hitter, found)),
        lambda found: list(map(_plain_hitter, found)),
    ),
    "selectivity": Question(
        "selectivity",
        lambda s, holds, c: query.selectivity(s, holds, confidence=c),
        "predicate",
        _predicate,
    ),
}


# ----------------------------------------------------------------------------------------- others

INFO = pa.struct(
    [
        ("family", pa.string()),
        ("params", pa.string()),
        ("decay", pa.string()),
        ("time_unit", pa.string()),
        ("capacity", pa.int64()),
        ("rows", pa.int64()),
        ("oldest", pa.int64()),
        ("newest", pa.int64()),
        ("clock", pa.int64()),
        ("exact_after", pa.int64()),
        ("answerable_after", pa.int64()),
        ("bytes", pa.int64()),
        ("digest", pa.string()),
    ]
)


def describe(function: str, recipes: Recipes, sketches: pa.Array) -> pa.Array:
    """What the sketches hold, a struct of type :data:`INFO` a row."""
    _check_type(function, "sketch", sketches, _is_blob(sketches.type), "the bytes of sketches")
    answers: list[dict[str, Any] | None] = []
    for row, blob in enumerate(sketches.to_pylist()):
        try:
            answers.append(None if blob is None else _described(blob, opened(blob, recipes)))
        except DecaySketchError as fault:
            raise _refusal(function, row, fault) from None
    return pa.array(answers, INFO)


def _described(blob: bytes, found: OpenedSketch) -> dict[str, Any]:
    sketch: Any = found.sketch
    stats = sketch.stats()
    marks = stats.complete_since
    return {
        "family": families.family_of(blob),
        "params": json.dumps(sketch.params.to_dict()),
        "decay": json.dumps(sketch.decay.to_dict()) if found.has_fixed_decay else None,
        "time_unit": found.time_unit,
        "capacity": sketch.params.capacity,
        "rows": found.rows,
        "oldest": stats.oldest,
        "newest": stats.newest,
        "clock": getattr(stats, "clock", None),
        "exact_after": marks[0],
        "answerable_after": marks[-1],
        "bytes": len(blob),
        "digest": sketch.digest(),
    }


def unite(function: str, recipes: Recipes, columns: Sequence[pa.Array]) -> pa.Array:
    """The merge of the sketches in each row; columns of sketches, or of arrays of them."""
    if not columns:
        raise FunctionError(f"{function}(sketch, ...): sketch is missing")
    for column in columns:
        kind = column.type
        listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        _check_type(
            function, "sketch", column, _is_blob(kind.value_type if listed else kind),
            "the bytes of sketches, or arrays of them",
        )  # fmt: skip
    answers: list[bytes | None] = []
    for row, parts in enumerate(zip(*(column.to_pylist() for column in columns), strict=True)):
        try:
            found = [decoded(blob, recipes) for blob in _blobs(parts)]
            answers.append(families.merge(found).to_bytes() if found else None)
        except DecaySketchError as fault:
            raise _refusal(function, row, fault) from None
    return pa.array(answers, pa.binary())


def _blobs(parts: Sequence[Any]) -> Iterator[bytes]:
    for part in parts:
        together = part if isinstance(part, list) else [part]
        yield from (blob for blob in together if blob is not None)
