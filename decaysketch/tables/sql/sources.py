"""Queries to several sources, for columns with a map from names to sketches.

A map has one sketch per source: ``map_from_entries(collect_list(struct(source, sketch)))`` in
Spark, ``map(list(source), list(sketch))`` in DuckDB, a list of structs in polars. Each function
represents a query as one text (:mod:`decaysketch.query.query_syntax`), and ``decayed_query``
accepts a map for any other. The intervals for all rows of a table hold at once.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple

import pyarrow as pa

from decaysketch.errors import DecaySketchError, ParameterError
from decaysketch.families import Recipe
from decaysketch.query.estimate import Estimate
from decaysketch.query.query_syntax import query_of
from decaysketch.sources import SourceSet
from decaysketch.tables.columns import is_binary, is_text
from decaysketch.tables.sql.arguments import decay_of
from decaysketch.tables.sql.decoded import opened
from decaysketch.tables.sql.queries import (
    ESTIMATE,
    Recipes,
    Times,
    bound,
    check_type,
    estimate_of,
    number_of,
    refusal,
)

__all__ = ["NAMES", "answer", "answer_type", "functions_table", "is_map", "set_of", "takes_set"]


class Form(NamedTuple):
    """A function.

    Attributes:
        query: its meaning, as one text. ``{}`` represents the set that the caller gives.
        doc: its result.
    """

    query: str
    doc: str


_FORMS: Mapping[str, Form] = {
    "decayed_coverage": Form(
        "share by source order key", "Share of all heard messages that each source heard."
    ),
    "decayed_delivery": Form(
        "share by source, other order key",
        "Delivery ratios: the share of the messages of `other` that `source` heard.",
    ),
    "decayed_exclusive": Form(
        "count set exactly(1) by source order key",
        "Messages that each source alone heard: what the union loses without it.",
    ),
    "decayed_overlap": Form(
        "count by source, other order key", "Messages that each pair of sources both heard."
    ),
    "decayed_set_count": Form(
        "count set {}", "Messages in a set of sources, such as `'a & ~b'` or `'exactly(2)'`."
    ),
}

#: Every function, by its name in each engine.
NAMES = tuple(_FORMS)

_KEPT = 4  # sets of sources that were matched, those used last


def takes_set(called: str) -> bool:
    """Return whether a function has a set as its second argument."""
    return "{}" in _FORMS[called].query


def answer_type(called: str) -> pa.DataType:
    """Return a function's result type in Arrow."""
    if takes_set(called):
        return pa.struct(ESTIMATE)
    keys = [(name, pa.string()) for name in query_of(_FORMS[called].query).modifiers.by]
    return pa.list_(pa.struct([*keys, *ESTIMATE]))


def functions_table() -> str:
    """Return every function with its arguments and its result, as a Markdown table."""
    lines = []
    for name, form in _FORMS.items():
        kind = answer_type(name)
        fields = ", ".join(each.name for each in (kind if takes_set(name) else kind.value_type))
        shown = f"struct<{fields}>" if takes_set(name) else f"array<struct<{fields}>>"
        call = f"{name}({', '.join(_names(name))}[, confidence])"
        lines.append(f"| `{call}` | `{shown}` | {form.doc} |\n")
    return "| function | answer | what it is |\n|---|---|---|\n" + "".join(lines)


def _names(called: str) -> tuple[str, ...]:
    return ("sketches", *(("set",) if takes_set(called) else ()), "decay", "now")


def answer(
    called: str, recipes: Recipes, columns: Sequence[pa.Array], named: Mapping[str, pa.Array]
) -> pa.Array:
    """Return one result for each row.

    Args:
        called: one of :data:`NAMES`.
        recipes: see :func:`decaysketch.tables.sql.decoded.decoded`.
        columns, named: positional and named arguments: ``sketches``, ``set`` (if the function
            has it), ``decay``, ``now``, and optionally ``confidence``.

    Raises:
        FunctionError: a column with a wrong type, or a row without a result.
    """
    arguments = bound(called, _names(called), ("confidence",), columns, named)
    maps, decays = arguments["sketches"], arguments["decay"]
    check_type(called, "sketches", maps, is_map(maps.type), "maps of names to sketches")
    for name in ("set", "decay"):
        if (column := arguments.get(name)) is not None:
            known = is_text(column.type) or pa.types.is_null(column.type)
            check_type(called, name, column, known, "texts")
    count = len(maps)
    sets = arguments["set"].to_pylist() if takes_set(called) else [""] * count
    confidences = [0.95] * count
    if "confidence" in arguments:
        confidences = arguments["confidence"].to_pylist()
    times = Times(called, arguments["now"])
    answers: list[Any] = []
    rows = zip(maps.to_pylist(), sets, decays.to_pylist(), confidences, strict=True)
    for row, (given, text, decay, confidence) in enumerate(rows):
        if None in (given, text, confidence):
            answers.append(None)
            continue
        try:
            sources = set_of(given, recipes)
            unit = sources.params.time_unit
            now = times.at(row, unit)
            if now is None or (decay is None and not sources.has_fixed_decay):
                answers.append(None)
                continue
            view = sources.at(None if decay is None else decay_of(decay, unit), now)
            answers.append(_found(called, view, text, number_of("confidence", confidence)))
        except DecaySketchError as fault:
            raise refusal(called, row, fault) from None
    return pa.array(answers, answer_type(called))


def _found(called: str, view: Any, text: str, confidence: float) -> Any:
    if takes_set(called):
        return _struct({}, view.count(text, confidence=confidence))
    question, arguments, modifiers = query_of(_FORMS[called].query)
    table = view.modified(modifiers).ask(question, confidence=confidence, **arguments)
    return [_struct(row.by, row.answer) for row in table]


def _struct(keys: Mapping[str, Any], estimate: Estimate) -> dict[str, Any]:
    names = [name for name, _ in ESTIMATE]
    return {**keys, **dict(zip(names, estimate_of(estimate), strict=True))}


# --------------------------------------------------------------------------------------------- maps


def is_map(kind: pa.DataType) -> bool:
    """Return whether a column has maps from texts to bytes, or lists with such pairs."""
    if pa.types.is_map(kind):
        return is_text(kind.key_type) and is_binary(kind.item_type)
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    pair = kind.value_type
    return (
        pa.types.is_struct(pair) and pair.num_fields == 2
        and is_text(pair.field(0).type) and is_binary(pair.field(1).type)
    )  # fmt: skip


_sets: OrderedDict[tuple[bytes, tuple[Recipe, ...]], SourceSet] = OrderedDict()
_lock = Lock()


def set_of(given: Sequence[Any], recipes: Recipes) -> SourceSet:
    """Return the sources in a map. The last sets are kept with their matches.

    Args:
        given: pairs or structs, each a name and sketch bytes.
        recipes: see :func:`decaysketch.tables.sql.decoded.decoded`.

    Raises:
        ParameterError: a name occurs twice, or there is no sketch for it.
        CorruptSketchError, IncompatibleSketchError: bytes that are no sketches of one stream.
    """
    pairs = [tuple(pair.values()) if isinstance(pair, dict) else pair for pair in given]
    name = hashlib.blake2b(digest_size=16)
    blobs: dict[str, bytes] = {}
    for source, blob in pairs:
        if source is None or blob is None or source in blobs:
            what = "twice" if source in blobs else "without a name or a sketch"
            raise ParameterError(f"sketches has source {source!r} {what}; expected each once")
        blobs[source] = blob
        for part in (source.encode(), blob):
            name.update(len(part).to_bytes(8, "little") + part)
    key = name.digest(), tuple(recipes)
    with _lock:
        if (found := _sets.get(key)) is not None:
            _sets.move_to_end(key)
            return found
    made = SourceSet({source: opened(blob, recipes).snapshot() for source, blob in blobs.items()})
    with _lock:
        _sets[key] = made
        while len(_sets) > _KEPT:
            _sets.popitem(last=False)
    return made
