"""Ranges of times, and comparisons of two moments, for columns of sketches: Arrow in, Arrow out.

The query is a text, as on the command line: ``'mean'``, ``'rank:20'``, ``'mean(v) where w == 1'``
(:mod:`decaysketch.query.query_syntax`), if its result is one estimate. Everything else is as in the
query functions (:mod:`~decaysketch.tables.sql.queries`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from decaysketch.decay import window
from decaysketch.errors import DecaySketchError, ParameterError
from decaysketch.query.dispatch import QUESTIONS
from decaysketch.query.estimate import Estimate
from decaysketch.query.modifiers import Modifiers
from decaysketch.query.pair_view import RangeView, range_moment
from decaysketch.query.query_syntax import Spelled, query_of, question_of
from decaysketch.tables.columns import is_text
from decaysketch.tables.sql.arguments import decay_of
from decaysketch.tables.sql.decoded import OpenedSketch, opened
from decaysketch.tables.sql.queries import (
    ESTIMATE,
    Recipes,
    Times,
    bound,
    check_has,
    check_type,
    estimate_of,
    is_blob,
    number_of,
    refusal,
)

__all__ = ["BETWEEN", "COMPARE", "MOMENTS", "answer", "answer_type", "moments_table"]

BETWEEN, COMPARE = "decayed_between", "decayed_compare"

#: Argument names of each function. Optional ones follow the star.
MOMENTS: Mapping[str, tuple[str, ...]] = {
    BETWEEN: ("sketch", "aggregate", "start", "stop", "*", "confidence"),
    COMPARE: (
        "sketch", "aggregate", "decay", "now", "then_decay", "then_now", "*", "how", "confidence",
    ),
}  # fmt: skip
_SAID = {
    BETWEEN: "A question of the observations of `[start, stop)`.",
    COMPARE: "A question at one moment against the same at another: `how` is `'difference'` (if "
    "not given: now less then) or `'ratio'` (now over then). `changed`: 0, or 1 of a ratio, lies "
    "outside of the interval.",
}
_CHANGED = ("changed", pa.bool_())
_TIMES = ("start", "stop", "now", "then_now")
_TEXTS = ("aggregate", "decay", "then_decay", "how")


@lru_cache(maxsize=256)
def _query_of(text: str) -> Spelled:
    """Return the query that a text means, in the older form or with modifiers."""
    if text.partition(":")[0] in QUESTIONS:
        return Spelled(*question_of(text), Modifiers())
    return query_of(text)


def answer_type(function: str) -> pa.DataType:
    """Return the Arrow type of a function's results."""
    return pa.struct((*ESTIMATE, _CHANGED) if function == COMPARE else ESTIMATE)


def moments_table() -> str:
    """Return both functions, as a Markdown table."""
    rows = ""
    for function, names in MOMENTS.items():
        star = names.index("*")
        call = ", ".join(names[:star]) + "".join(f"[, {name}]" for name in names[star + 1 :])
        fields = ", ".join(each.name for each in answer_type(function))
        rows += f"| `{function}({call})` | `struct<{fields}>` | {_SAID[function]} |\n"
    return "| function | answer | what it is |\n|---|---|---|\n" + rows


def answer(
    function: str, recipes: Recipes, columns: Sequence[pa.Array], named: Mapping[str, pa.Array]
) -> pa.Array:
    """Return one result for each row.

    Args:
        function: one of :data:`MOMENTS`.
        recipes: see :func:`decaysketch.tables.sql.decoded.decoded`.
        columns, named: arguments by place and by name.

    Raises:
        FunctionError: a column of a wrong type, or a row without a result.
    """
    names = MOMENTS[function]
    star = names.index("*")
    arguments = bound(function, names[:star], names[star + 1 :], columns, named)
    sketches = arguments.pop("sketch")
    check_type(function, "sketch", sketches, is_blob(sketches.type), "the bytes of sketches")
    times = {name: Times(function, arguments.pop(name), name) for name in _TIMES if name in names}
    for name in _TEXTS:
        if name in arguments:
            kind = arguments[name].type
            check_type(
                function, name, arguments[name], is_text(kind) or pa.types.is_null(kind), "texts"
            )
    lists = {name: column.to_pylist() for name, column in arguments.items()}
    ask = _compared if function == COMPARE else _between
    answers: list[Any] = []
    for row, blob in enumerate(sketches.to_pylist()):
        given = {name: values[row] for name, values in lists.items()}
        try:
            sketch = None if blob is None else opened(blob, recipes)
            if sketch is not None:
                given |= {name: each.at(row, sketch.time_unit) for name, each in times.items()}
            if sketch is None or any(each is None for each in given.values()):
                answers.append(None)
                continue
            found = ask(sketch, **given)
        except DecaySketchError as fault:
            raise refusal(function, row, fault) from None
        ends = estimate_of(found)
        answers.append((*ends, found.changed) if function == COMPARE else ends)
    return pa.array(answers, answer_type(function))


def _asked(sketch: OpenedSketch, aggregate: str) -> Spelled:
    spelled = _query_of(aggregate)
    check_has(sketch, spelled.question)
    if sketch.has_fixed_decay:
        raise ParameterError("the decay of this sketch was fixed when it was built")
    return spelled


def _between(
    sketch: OpenedSketch, aggregate: str, start: int, stop: int, confidence: Any = 0.95
) -> Estimate:
    question, arguments, modifiers = _asked(sketch, aggregate)
    width, now = range_moment(start, stop)
    view = RangeView(sketch.at(window(width), now), stop - start).modified(modifiers)
    found = view.ask(question, confidence=number_of("confidence", confidence), **arguments)
    if isinstance(found, list) and len(found) == 1:  # one quantile
        (found,) = found
    if not isinstance(found, Estimate):
        raise ParameterError(
            f"aggregate is {aggregate!r}, whose answer is more than one estimate; expected one "
            "such as 'mean', 'quantile:0.9', 'rank:20'"
        )
    return found


def _compared(
    sketch: OpenedSketch,
    aggregate: str,
    decay: str,
    now: int,
    then_decay: str,
    then_now: int,
    how: Any = "difference",
    confidence: Any = 0.95,
) -> Estimate:
    question, arguments, modifiers = _asked(sketch, aggregate)
    more = {name: getattr(modifiers, name) for name in ("where", "of", "versus")}
    if replace(modifiers, where=None, of=None, versus=None):
        raise ParameterError(
            f"aggregate is {aggregate!r}; two moments are compared without by, set and weight: "
            "leave them out"
        )
    unit = sketch.time_unit
    moments = (decay_of(decay, unit), now), (decay_of(then_decay, unit), then_now)
    pair = sketch.snapshot().against(*moments)
    confidence = number_of("confidence", confidence)
    return pair.ask(question, how, confidence=confidence, **more, **arguments)
