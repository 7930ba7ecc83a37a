"""Queries on columns of sketches: Arrow in, one Arrow column of results out.

Functions, their arguments and their result types follow from the query table
(:mod:`decaysketch.query.catalog`).

Row by row, a NULL argument gives a NULL result. If a row cannot be read or has no result, a
:class:`FunctionError` names the function, the row in its batch and the reason.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa

from decaysketch import families
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.errors import DecaySketchError, ParameterError
from decaysketch.families import FAMILIES, Recipe, Sketch
from decaysketch.query.catalog import QUESTIONS
from decaysketch.query.estimate import Estimate
from decaysketch.query.shapes import Question, Rows
from decaysketch.tables.columns import is_binary, is_text
from decaysketch.tables.sql.arguments import decay_of
from decaysketch.tables.sql.decoded import OpenedSketch, decoded, opened

__all__ = [
    "ESTIMATE",
    "FUNCTIONS",
    "INFO",
    "Form",
    "FunctionError",
    "Recipes",
    "Times",
    "answer",
    "answer_type",
    "bound",
    "check_has",
    "check_type",
    "describe",
    "estimate_of",
    "finite",
    "functions_table",
    "is_blob",
    "number_of",
    "refusal",
    "unite",
]

Recipes = Sequence[Recipe]

_CONFIDENCE = 0.95
ESTIMATE = (
    ("value", pa.float64()),
    ("lower", pa.float64()),
    ("upper", pa.float64()),
    ("exact", pa.bool_()),
    ("rows", pa.int64()),
    ("caveats", pa.list_(pa.string())),
)
_SURE = ("sure_upper", pa.float64())


class FunctionError(DecaySketchError, ValueError):
    """A function cannot read its arguments or compute a result. The message names it and the
    reason.
    """


class Form(NamedTuple):
    """One of the functions of a query.

    Attributes:
        question: the query.
        one: whether it accepts one value of an argument that may be given once or several times.
        labels: whether it queries labels, and its rows name them.
    """

    question: Question[Any]
    one: bool = False
    labels: bool = False

    @property
    def argument(self) -> str | None:
        """Name of the query's own argument, or None."""
        leading = self.question.leading
        return leading.name if leading is not None and leading.travels else None

    @property
    def estimate(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Fields of one of its estimates. For keys also the guaranteed bound, if there is one."""
        return (*ESTIMATE, _SURE) if self.question.of_keys else ESTIMATE


def _forms() -> Iterator[tuple[str, Form]]:
    for question in QUESTIONS.values():
        if question.asked_of == "sources":  # of a map: see decaysketch.tables.sql.sources
            continue
        if question.leading is not None and question.leading.many == "either":
            yield question.sql, Form(question, one=True)
            yield f"{question.sql}s", Form(question)
        else:
            yield question.sql, Form(question)
        if _shows_values(question):
            yield f"{question.sql}_of_labels", Form(question, labels=True)


def _shows_values(question: Question[Any]) -> bool:
    """Return whether result rows have a value of the stream, which may be a label."""
    if question.asked_of != "rows":
        return False
    rows = question.shape.rows
    shown = rows is not None and any(each.kind == "number" for each in rows.keys)
    return shown and "numbers" not in question.needs


#: By name in SQL; each has a twin of the name ``<name>_value``.
FUNCTIONS: dict[str, Form] = dict(_forms())


def answer_type(function: str) -> pa.DataType:
    """Return the Arrow type of a function's results, by its name in SQL."""
    form, plain = _form(function)
    return _type(form, plain)


def _form(function: str) -> tuple[Form, bool]:
    """Return a function's query, and whether it returns the value alone."""
    name = function.removesuffix("_value")
    return FUNCTIONS[name], name != function


def functions_table() -> str:
    """Return every function with its arguments and its result, as a Markdown table."""
    return "| function | answer | what it is |\n|---|---|---|\n" + "".join(
        f"| `{name}({', '.join(_names(form))}[, confidence])` | `{_sql(_type(form, False))}` "
        f"| {form.question.doc}{' Of a stream of labels: values are texts.' * form.labels} |\n"
        for name, form in FUNCTIONS.items()
    )


def _sql(kind: pa.DataType) -> str:
    """Return a type as SQL writes it. For an estimate, the names are enough."""
    if pa.types.is_struct(kind):
        inner = (f"{each.name} {_sql(each.type)}".rstrip() for each in kind)
        return f"struct<{', '.join(inner)}>"
    if pa.types.is_list(kind) and (of := _sql(kind.value_type)):
        return f"array<{of}>"
    return ""


def _names(form: Form) -> tuple[str, ...]:
    own = () if form.argument is None else (form.argument,)
    return ("sketch", *own, "decay", "now")


def answer(
    function: str, recipes: Recipes, columns: Sequence[pa.Array], named: Mapping[str, pa.Array]
) -> pa.Array:
    """Return one result for each row.

    Args:
        function: its name in SQL, as in :data:`FUNCTIONS`, perhaps with ``_value`` after it.
        recipes: see :func:`decaysketch.tables.sql.decoded.decoded`.
        columns, named: arguments by place and by name: ``sketch``, the query's own,
            ``decay, now``, and perhaps ``confidence``.

    Raises:
        FunctionError: a column of a wrong type, or a row without a result.
    """
    form, plain = _form(function)
    arguments = bound(function, _names(form), ("confidence",), columns, named)
    sketches, texts = arguments["sketch"], arguments["decay"]
    check_type(function, "sketch", sketches, is_blob(sketches.type), "the bytes of sketches")
    known = is_text(texts.type) or pa.types.is_null(texts.type)
    check_type(function, "decay", texts, known, "texts")
    times = Times(function, arguments["now"])
    ones = [1] * len(sketches)
    given = arguments[form.argument].to_pylist() if form.argument is not None else ones
    confidences = [_CONFIDENCE] * len(ones)
    if "confidence" in arguments:
        confidences = arguments["confidence"].to_pylist()
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
            _check_asked(sketch, form, text)
            decay = None if text is None else decay_of(text, sketch.time_unit)
            view = sketch.at(decay, now)
            confidence = number_of("confidence", confidence)
            asked = _arguments(form, argument, recipes)
            found = view.ask(form.question, confidence=confidence, **asked)
        except DecaySketchError as fault:
            raise refusal(function, row, fault) from None
        answers.append(_written(form, plain, form.question.parts(found, asked)))
    return pa.array(answers, answer_type(function))


def bound(
    function: str,
    names: Sequence[str],
    optional: Sequence[str],
    columns: Sequence[pa.Array],
    named: Mapping[str, pa.Array],
) -> dict[str, pa.Array]:
    """Return arguments by name. Some may be omitted."""
    known = [*names, *optional]
    call = f"{function}({', '.join(names)}{''.join(f'[, {name}]' for name in optional)})"
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


def _check_asked(sketch: OpenedSketch, form: Form, decay: str | None) -> None:
    question = form.question
    check_has(sketch, question)
    labels = sketch.sketch.params.value_type == "label"
    if labels is not form.labels and _shows_values(question):
        kind, name = (
            ("labels", f"{question.sql}_of_labels") if labels else ("numbers", question.sql)
        )
        raise ParameterError(f"the values of this sketch are {kind}; expected {name}")
    if sketch.has_fixed_decay and decay is not None:
        raise ParameterError(
            f"decay is {decay!r}; expected NULL, because this sketch was built with a fixed decay"
        )


def check_has(sketch: OpenedSketch, question: Question[Any]) -> None:
    """Reject a query that the family of a sketch does not support."""
    if question.name not in sketch.sketch.questions:
        recipe = families.FAMILIES
        family = next(n for n, r in recipe.items() if isinstance(sketch.sketch, r.sketch))
        raise ParameterError(f"a sketch of the family {family!r} has no {question.name}")


# --------------------------------------------------------------------------------------- arguments


class Times:
    """A time column, in the unit of each row's sketch."""

    def __init__(self, function: str, column: pa.Array, name: str = "now") -> None:
        kind = column.type
        self._name = name
        self._unit: str | None = None  # of the numbers; None: that of the sketch
        if pa.types.is_date(kind):
            column = column.cast(pa.timestamp("ms"))
        if pa.types.is_timestamp(column.type):
            self._unit = column.type.unit
            column = column.cast(pa.int64())
        known = pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_floating(kind)
        known = known or pa.types.is_null(kind) or self._unit is not None
        check_type(function, name, column, known, "integers, timestamps or dates")
        self._numbers = column.to_pylist()

    def at(self, row: int, unit: str) -> int | None:
        """Return the time of a row. A coarser unit rounds down."""
        number = self._numbers[row]
        if number is None:
            return None
        if number != number or number in (math.inf, -math.inf) or int(number) != number:
            raise ParameterError(f"{self._name} is {number}; expected an integer time")
        if self._unit is None or self._unit == unit:
            return int(number)
        if unit not in NANOSECONDS:
            raise ParameterError(
                f"{self._name} is a timestamp and cannot be converted to the stream's unit "
                f"{unit!r}; known are {', '.join(NANOSECONDS)}"
            )
        return int(number) * NANOSECONDS[self._unit] // NANOSECONDS[unit]


def number_of(name: str, given: Any) -> int | float:
    """Return a number of SQL: an integer, a double, or a decimal, such as a literal."""
    if isinstance(given, Decimal):
        return int(given) if given == given.to_integral_value() else float(given)
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise ParameterError(f"{name} is {given!r}; expected a number")
    return given


def _arguments(form: Form, given: Any, recipes: Recipes) -> dict[str, Any]:
    """Return a query's arguments, from the Python object of its column."""
    argument = form.question.leading
    if form.argument is None or argument is None:
        return {}
    read: Callable[[str, Any], Any] = number_of
    if argument.kind == "predicate":
        return {argument.name: given}
    if argument.kind == "sketch":
        if not isinstance(given, bytes):
            raise ParameterError(f"{argument.name} is {given!r}; expected the bytes of a sketch")
        return {argument.name: opened(given, recipes).snapshot()}
    if argument.kind == "keys":
        read = _one_key
    if argument.kind == "column":
        read = _text_of
    if argument.many == "no":
        return {argument.name: read(argument.name, given)}
    if form.one:
        return {argument.name: [read(argument.name, given)]}
    if not isinstance(given, list):
        raise ParameterError(f"{argument.name} is {given!r}; expected an array")
    return {argument.name: [read(argument.name, each) for each in given]}


def _text_of(name: str, given: Any) -> str:
    if not isinstance(given, str):
        raise ParameterError(f"{name} has {given!r}; expected texts")
    return given


def _one_key(name: str, given: Any) -> Any:
    """Return a key of SQL: an integer, a text, bytes, or a structure of these with any field
    names.
    """
    if isinstance(given, dict):
        return tuple(_one_key(name, each) for each in given.values())
    if isinstance(given, Decimal) and given == given.to_integral_value():
        return int(given)
    if isinstance(given, bool) or not isinstance(given, (int, str, bytes)):
        raise ParameterError(f"{name} is {given!r}; expected an integer, a text or bytes")
    return given


def is_blob(kind: pa.DataType) -> bool:
    return is_binary(kind) or pa.types.is_null(kind) is True


def check_type(function: str, name: str, column: pa.Array, known: bool, expected: str) -> None:
    if not known:
        raise FunctionError(f"{function}: {name} is of type {column.type}; expected {expected}")


def refusal(
    function: str, row: int, fault: DecaySketchError, place: int | None = None
) -> FunctionError:
    where = f"row {row} of its batch" + (f", sketch {place}" if place is not None else "")
    return FunctionError(f"{function}: {where}: {type(fault).__name__}: {fault}")


# ----------------------------------------------------------------------------------------- answers


def finite(number: float) -> float | None:
    """Return NULL for an undefined number. SQL has infinities."""
    return None if math.isnan(number) else number


def estimate_of(estimate: Estimate) -> tuple[Any, ...]:
    """Return an estimate's fields, as in :data:`ESTIMATE`."""
    ends = (estimate.value, estimate.lower, estimate.upper)
    return (*map(finite, ends), estimate.exact, estimate.rows, list(estimate.caveats))


def _estimate_of_keys(estimate: Estimate) -> tuple[Any, ...]:
    sure = estimate.sure_upper
    return (*estimate_of(estimate), None if sure is None else finite(sure))


_KINDS = {
    "number": pa.float64(), "float": pa.float64(), "time": pa.int64(), "integer": pa.int64(),
    "key": pa.decimal128(20), "flag": pa.bool_(),
}  # fmt: skip


def _type(form: Form, plain: bool) -> pa.DataType:
    """Return the type: an estimate, a list for each entry of an argument, or rows with further
    fields.
    """
    shape, rows = form.question.shape, form.question.shape.rows
    estimate = pa.float64() if plain else pa.struct(form.estimate)
    if rows is None:
        return estimate
    if rows.each is not None:
        return estimate if form.one else pa.list_(estimate)
    row = pa.struct(_row_type(form, rows, plain))
    if rows.single:
        return row.field(0).type if plain else row
    if not shape.beside:
        return pa.list_(row)
    beside = [(each.sql, _KINDS.get(each.kind, estimate)) for each in shape.beside]
    return pa.struct([(rows.name, pa.list_(row)), *beside])


def _row_type(form: Form, rows: Rows, plain: bool) -> list[tuple[str, pa.DataType]]:
    """Return the row type. The bounds of one estimate stand next to it. Several estimates are
    structures of their own.
    """
    kinds = _KINDS | {"number": pa.string()} if form.labels else _KINDS
    keys = [(each.sql, kinds[each.kind]) for each in rows.keys]
    estimate = form.estimate
    if plain:
        return keys + [(each.sql, pa.float64()) for each in rows.estimates]
    if len(rows.estimates) == 1:
        (only,) = rows.estimates
        return [*keys, (only.sql, pa.float64()), *estimate[1:]]
    return keys + [(each.sql, pa.struct(estimate)) for each in rows.estimates]


def _written(form: Form, plain: bool, parts: Mapping[str, Any]) -> Any:
    """Return the parts of a result as a Python object of :func:`_type`."""
    shape, rows = form.question.shape, form.question.shape.rows
    write: Callable[[Estimate], Any] = _plain
    if not plain:
        write = _estimate_of_keys if form.question.of_keys else estimate_of
    if rows is None:
        return write(parts[shape.beside[0].name])
    listed = parts[rows.name]
    if rows.each is not None:
        (column,) = rows.estimates
        estimates = [write(each[column.name]) for each in listed]
        return estimates[0] if form.one else estimates
    written = [_row(rows, write, each) for each in listed]
    if rows.single:
        first = next(iter(written), None)
        return first[0] if plain and first is not None else first
    if not shape.beside:
        return written
    beside = (
        write(parts[each.name]) if each.kind == "estimate" else parts[each.name]
        for each in shape.beside
    )  # fmt: skip
    return (written, *beside)


def _row(rows: Rows, write: Callable[[Estimate], Any], row: Mapping[str, Any]) -> tuple[Any, ...]:
    keys = [_key(row[each.name]) if each.kind == "number" else row[each.name] for each in rows.keys]
    estimates = [write(row[each.name]) for each in rows.estimates]
    if len(estimates) == 1 and isinstance(estimates[0], tuple):
        return (*keys, *estimates[0])
    return (*keys, *estimates)


def _key(value: float | int | str | None) -> float | str | None:
    return value if value is None or isinstance(value, str) else float(value)


def _plain(estimate: Estimate) -> float | None:
    return finite(estimate.value)


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
    """Return the properties of sketches, a struct of type :data:`INFO` for each row."""
    check_type(function, "sketch", sketches, is_blob(sketches.type), "the bytes of sketches")
    answers: list[dict[str, Any] | None] = []
    for row, blob in enumerate(sketches.to_pylist()):
        try:
            answers.append(None if blob is None else _described(blob, opened(blob, recipes)))
        except DecaySketchError as fault:
            raise refusal(function, row, fault) from None
    return pa.array(answers, INFO)


def _described(blob: bytes, found: OpenedSketch) -> dict[str, Any]:
    sketch: Any = found.sketch
    with found.lock:
        stats, digest = sketch.stats(), sketch.digest()
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
        "digest": digest,
    }


def unite(function: str, recipes: Recipes, columns: Sequence[pa.Array]) -> pa.Array:
    """Merge the sketches in each row, from columns of sketches, or of arrays of them."""
    if not columns:
        raise FunctionError(f"{function}(sketch, ...): sketch is missing")
    for column in columns:
        kind = column.type
        listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        check_type(
            function, "sketch", column, is_blob(kind.value_type if listed else kind),
            "the bytes of sketches, or arrays of them",
        )  # fmt: skip
    answers: list[bytes | None] = []
    for row, parts in enumerate(zip(*(column.to_pylist() for column in columns), strict=True)):
        found: list[Sketch] = []
        for place, blob in _blobs(parts):
            try:
                if not found:
                    FAMILIES[families.family_of(blob)].check_deliverable(function)
                found.append(decoded(blob, recipes))
            except DecaySketchError as fault:
                raise refusal(function, row, fault, place) from None
        try:
            answers.append(families.merge(found).to_bytes() if found else None)
        except DecaySketchError as fault:
            raise refusal(function, row, fault) from None
    return pa.array(answers, pa.binary())


def _blobs(parts: Sequence[Any]) -> Iterator[tuple[int, bytes]]:
    """Yield the sketches of a row, each with its position. NULLs have positions too."""
    listed = (part if isinstance(part, list) else [part] for part in parts)
    places = enumerate(chain.from_iterable(listed))
    yield from ((place, blob) for place, blob in places if blob is not None)
