"""Queries as one text, for columns of sketches: Arrow in, a row list out.

``decayed_query(sketch, decay, now, 'mean(v) by hour(time) where v > 3')`` has the same result type
for every text: a row for each estimate, with ``rows`` and ``caveats``. Every engine can unnest
a column with such a type.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from decaysketch.decay import Decay
from decaysketch.errors import DecaySketchError, ParameterError
from decaysketch.query.dispatch import View
from decaysketch.query.frames import ESTIMATED, rows_of
from decaysketch.query.query_syntax import Spelled, query_of
from decaysketch.query.tables import GroupTable
from decaysketch.sources import SourceSet
from decaysketch.tables.columns import is_text
from decaysketch.tables.sql.arguments import decay_of
from decaysketch.tables.sql.decoded import OpenedSketch, opened
from decaysketch.tables.sql.queries import (
    Recipes,
    Times,
    bound,
    check_has,
    check_type,
    finite,
    is_blob,
    number_of,
    refusal,
)
from decaysketch.tables.sql.sources import is_map, set_of

__all__ = ["QUERY", "ROW", "TYPE", "answer"]

QUERY = "decayed_query"

_KEY = pa.struct([("key", pa.string()), ("value", pa.string())])
#: A row of a result: an estimate, and the group that it is of.
ROW = pa.struct(
    [
        ("by", pa.list_(_KEY)),
        ("of", pa.string()),
        ("value", pa.float64()),
        ("lower", pa.float64()),
        ("upper", pa.float64()),
        ("exact", pa.bool_()),
        ("rows", pa.int64()),
        ("small", pa.bool_()),
        ("caveats", pa.list_(pa.string())),
        ("changed", pa.bool_()),
    ]
)
#: Of results.
TYPE = pa.list_(ROW)

_NAMES = ("sketch", "decay", "now", "query")
_query_of = lru_cache(maxsize=256)(query_of)


def answer(
    recipes: Recipes, columns: Sequence[pa.Array], named: Mapping[str, pa.Array]
) -> pa.Array:
    """Return a row list for each row.

    Args:
        recipes: see :func:`decaysketch.tables.sql.decoded.decoded`.
        columns, named: arguments by place and by name: ``sketch, decay, now, query`` and perhaps
            ``confidence``. A sketch may be a map of source names to sketches.

    Raises:
        FunctionError: a column with a wrong type, or a row without a result.
    """
    arguments = bound(QUERY, _NAMES, ("confidence",), columns, named)
    sketches = arguments["sketch"]
    of_sources = is_map(sketches.type)
    known = of_sources or is_blob(sketches.type)
    check_type(QUERY, "sketch", sketches, known, "the bytes of sketches, or maps of them")
    for name in ("decay", "query"):
        kind = arguments[name].type
        check_type(QUERY, name, arguments[name], is_text(kind) or pa.types.is_null(kind), "texts")
    times = Times(QUERY, arguments["now"])
    confidences: list[Any] = [0.95] * len(sketches)
    if "confidence" in arguments:
        confidences = arguments["confidence"].to_pylist()
    lists = (sketches, arguments["decay"], arguments["query"])
    found: list[Any] = []
    for row, (blob, decay, text) in enumerate(zip(*(c.to_pylist() for c in lists), strict=True)):
        if blob is None or text is None or confidences[row] is None:
            found.append(None)
            continue
        try:
            sketch = _Sources(set_of(blob, recipes)) if of_sources else opened(blob, recipes)
            now = times.at(row, sketch.time_unit)
            if now is None or (decay is None and not sketch.has_fixed_decay):
                found.append(None)
                continue
            confidence = number_of("confidence", confidences[row])
            found.append(list(_rows(sketch, decay, now, text, confidence)))
        except DecaySketchError as fault:
            raise refusal(QUERY, row, fault) from None
    return pa.array(found, TYPE)


class _Sources(NamedTuple):
    """A map of names to sketches, as :class:`OpenedSketch` is one sketch."""

    sources: SourceSet

    @property
    def time_unit(self) -> str:
        unit: str = self.sources.params.time_unit
        return unit

    @property
    def has_fixed_decay(self) -> bool:
        return self.sources.has_fixed_decay

    def at(self, decay: Decay | None, now: int) -> View:
        return self.sources.at(decay, now)


def _rows(
    sketch: OpenedSketch | _Sources, decay: str | None, now: int, text: str, confidence: float
) -> Iterator[dict[str, Any]]:
    question, arguments, modifiers = _asked(text)
    if isinstance(sketch, OpenedSketch):
        check_has(sketch, question)
    if sketch.has_fixed_decay and decay is not None:
        raise ParameterError(
            f"decay is {decay!r}; expected NULL, because this sketch was built with a fixed decay"
        )
    chosen = None if decay is None else decay_of(decay, sketch.time_unit)
    view = sketch.at(chosen, now).modified(modifiers)
    result = view.ask(question, confidence=confidence, **arguments)
    if not isinstance(result, GroupTable):
        for each in rows_of(question, result, arguments):
            yield _row({}, None, each)
        return
    for group in result:
        keys = {name: _text(value) for name, value in group.by.items()}
        for each in rows_of(question, group.answer, arguments):
            yield _row(keys, group.small, each)


def _asked(text: str) -> Spelled:
    return _query_of(text)


def _row(by: Mapping[str, Any], small: bool | None, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result row from a row of :func:`~decaysketch.query.frames.rows_of`."""
    estimated = "lower" in row
    keys = {name: value for name, value in row.items() if name not in (*ESTIMATED, "of")}
    of = [_text(value) for value in keys.values()] + [row["of"] for _ in range("of" in row)]
    value = row["value"]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not estimated and value is not None and not number:
        of = [_text(value), *of]
    return {
        "by": [{"key": key, "value": value} for key, value in by.items()],
        "of": " ".join(str(each) for each in of) or None,
        "value": finite(float(value)) if number else None,
        "lower": finite(row["lower"]) if estimated else None,
        "upper": finite(row["upper"]) if estimated else None,
        "exact": row["exact"] if estimated else True,
        "rows": row["rows"] if estimated else None,
        "small": small,
        "caveats": row["caveats"].split() if estimated else [],
        "changed": row.get("changed"),
    }


def _text(value: Any) -> str | None:
    """Return a key as a text, and a boolean as SQL writes it."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, bool | int | float) else str(value)
