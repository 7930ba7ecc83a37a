"""The aggregates of SQL: batches of one group in, bytes out.

They use iterators, so a group is never completely in memory. Spark calls them once for each
group, after a shuffle by the keys. It has no partial aggregation in Python. polars uses them to
merge. DuckDB has no aggregates in Python.

The aggregates that build have two forms. In one, a rejected row, such as a row without a time, is
an error. The other drops it and returns the count next to the sketch, because bytes
alone cannot show missing rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

import pyarrow as pa

from decaysketch import families
from decaysketch.core.column_types import ColumnTypes
from decaysketch.errors import DecaySketchError, ObservationError, ParameterError
from decaysketch.families import FAMILIES, Recipe, Sketch
from decaysketch.tables import ColumnMapping, KeyedBuilder
from decaysketch.tables.columns import is_binary, is_text
from decaysketch.tables.keyed import COUNTS
from decaysketch.tables.sql.arguments import recipe_of_text
from decaysketch.tables.sql.decoded import decoded
from decaysketch.tables.sql.queries import FunctionError

__all__ = ["BUILT", "build", "build_by_name", "build_counted", "merge"]

Arrays = tuple[pa.Array, ...]

_SKETCHES_AT_A_TIME = 64
_LEADING = ("value", "weight", "time")
_CALL = "value, weight, time, id, ..."
_OF_SERIES = ("value", "start", "entity")
_FIELD = "value."  # before the name of a column, as in SQL

#: The result of the counting form: the sketch, counts of accepted and rejected rows, and the faults
#: of the group that its counts show (:func:`decaysketch.tables.keyed.warnings_of`).
BUILT = pa.struct(
    [
        ("sketch", pa.binary()),
        ("rows", pa.int64()),
        ("missing_values", pa.int64()),
        ("refused", pa.int64()),
        ("replaced", pa.int64()),
        ("first_refusal", pa.string()),
        ("warnings", pa.list_(pa.string())),
    ]
)


def build_by_name(
    function: str,
    streams: Mapping[str, Recipe],
    batches: Iterator[Arrays],
    refused: Literal["raise", "count"] = "raise",
) -> Any:
    """Build as :func:`build` or :func:`build_counted`, from columns whose first one names the
    sketch configuration.

    Args:
        function: its name, for errors.
        streams: by name; any other text is read as JSON.
        batches: of ``stream, value, weight, time, id, ...``.
        refused: "raise" for a rejected row, or "count" them.
    """
    recipe: Recipe | None = None
    said: str | None = None

    def others() -> Iterator[Arrays]:
        nonlocal recipe, said
        for columns in batches:
            columns = _as_tuple(columns)
            if not columns:
                raise FunctionError(
                    f"{function}(stream, {_CALL}) has positional arguments only, because an "
                    "aggregate of this kind does not receive their names"
                )
            if not is_text(columns[0].type):
                raise FunctionError(
                    f"{function}: stream is of type {columns[0].type}; expected a name or JSON"
                )
            for text in columns[0].unique().to_pylist():
                if said is None and text is not None:
                    said, recipe = text, _recipe(function, streams, text)
                elif text != said or text is None:
                    raise FunctionError(
                        f"{function}: stream is {said!r} and {text!r} in one group; expected one"
                    )
            yield columns[1:]

    remaining = others()
    for first in remaining:
        if recipe is not None:  # a batch without rows says nothing
            form = build if refused == "raise" else build_counted
            return form(function, recipe, None, _chained(first, remaining))
    return None


def _recipe(function: str, streams: Mapping[str, Recipe], text: str) -> Recipe:
    if text in streams:
        return streams[text]
    try:
        return recipe_of_text(text)
    except ParameterError as fault:
        known = f"one of {', '.join(sorted(streams))}, or " if streams else ""
        raise FunctionError(f"{function}: expected {known}JSON: {fault}") from None


def _chained(first: Arrays, others: Iterator[Arrays]) -> Iterator[Arrays]:
    yield first
    yield from others


def _as_tuple(columns: Any) -> Arrays:
    """Return a tuple of arrays. Spark gives one, or a single array."""
    return columns if isinstance(columns, tuple) else (columns,)


def build(
    function: str,
    recipe: Recipe,
    now: int | None,
    batches: Iterator[Arrays],
    mapping: ColumnMapping | None = None,
) -> bytes | None:
    """Build the sketch for one group.

    Args:
        function: its name, for errors.
        recipe: the sketch configuration.
        now: the time that the sketch gets; see :class:`decaysketch.tables.KeyedBuilder`.
        batches: ``value, weight, time, id, ...``. Struct ids are split into their fields. If the
            stream has columns, ``value`` is a struct. For series it may be a struct with
            ``value``, ``start``, ``entity`` and attributes. With a mapping: its columns.
        mapping: the meaning of the columns. None: by their place.

    Raises:
        FunctionError: a row or a column that the sketch rejects.
    """
    built = _built(function, recipe, now, batches, "raise", mapping)
    return None if built is None else bytes(built["sketch"])


def build_counted(
    function: str,
    recipe: Recipe,
    now: int | None,
    batches: Iterator[Arrays],
    mapping: ColumnMapping | None = None,
) -> dict[str, Any] | None:
    """Build as :func:`build`, without the rejected rows: fields of :data:`BUILT`.

    Raises:
        FunctionError: arguments that no row could be read from.
    """
    return _built(function, recipe, now, batches, "count", mapping)


def _built(
    function: str, recipe: Recipe, now: int | None, batches: Iterator[Arrays],
    refused: Literal["raise", "count"], mapping: ColumnMapping | None,
) -> dict[str, Any] | None:  # fmt: skip
    builder: KeyedBuilder | None = None
    first_refusal: str | None = None
    for number, columns in enumerate(batches):
        try:
            if mapping is None:
                names, arrays = _named(function, recipe, _as_tuple(columns))
            else:
                names, arrays = list(mapping.names), list(_as_tuple(columns))
            if builder is None:
                read = _mapping(recipe, names) if mapping is None else mapping
                builder = KeyedBuilder(recipe, read, now=now, refused=refused)
            table = pa.Table.from_arrays(arrays, names=names)
            builder.add(table)
            if first_refusal is None and _refused(builder):
                first_refusal = f"batch {number} of its group: {_first_refusal(builder, table)}"
        except FunctionError:
            raise
        except DecaySketchError as fault:
            reason = f"{type(fault).__name__}: {fault}"
            raise FunctionError(
                f"{function}: batch {number} of its group: {reason}{_advice(fault)}"
            ) from None
    if builder is None:
        return None
    rows = [row for batch in builder.batches() for row in batch.to_pylist()]
    if not rows:
        return None
    [row] = rows
    built = {name: row[name] for name in BUILT.names if name in row}
    said = list(builder.warnings().values())
    return built | {"first_refusal": first_refusal, "warnings": said}


def _refused(builder: KeyedBuilder) -> bool:
    return any(counts[COUNTS.index("refused")] for counts in builder.counts.values())


def _first_refusal(builder: KeyedBuilder, table: pa.Table) -> str:
    log = builder.mapping.read(table, builder.recipe, refused="count")
    fault = log.refusals.refusals()[0]
    return f"{fault.field}[{fault.row}] {fault.sentence}"


def _advice(fault: DecaySketchError) -> str:
    if isinstance(fault, ObservationError) and fault.row is not None:
        return "; sketch_build_counted skips and counts such rows"
    return ""


def _named(function: str, recipe: Recipe, columns: Arrays) -> tuple[list[str], list[pa.Array]]:
    """Return the given columns, with names. A NULL instead of a column means none."""
    if len(columns) <= len(_LEADING):
        raise FunctionError(
            f"{function}({_CALL}) is given {len(columns)} arguments; an id is missing"
        )
    ids: list[pa.Array] = []
    for column in columns[len(_LEADING) :]:
        ids += column.flatten() if pa.types.is_struct(column.type) else [column]
    taken, count = recipe.kind.input, len(ids)
    if taken.named_by == "sequence" and count != 2:
        raise FunctionError(
            f"{function}: {count} ids are given; a sampler of the family {recipe.family!r} "
            "takes two, the source and its sequence number"
        )
    if taken.sited and count < 2:
        raise FunctionError(
            f"{function}: {count} ids are given; the family {recipe.family!r} takes the site, and "
            "then the columns of the key that is counted"
        )
    places = [f"id{k + 1}" for k in range(count)]
    if taken.named_by == "sequence":
        places = ["source", "sequence"]
    elif taken.sited:
        places[0] = "source"
    named = {
        name: column
        for name, column in zip(_LEADING, columns, strict=False)
        if name == "time" or not pa.types.is_null(column.type)
    }
    named |= dict(zip(places, ids, strict=True))
    if "value" in named and (declared := getattr(recipe.params, "columns", ())):
        named = _split(function, declared, named.pop("value")) | named
    elif "value" in named and taken.series and pa.types.is_struct(named["value"].type):
        named = _split_series(function, recipe, named.pop("value")) | named
    return list(named), list(named.values())


def _split_series(function: str, recipe: Recipe, value: pa.Array) -> dict[str, pa.Array]:
    """Return a struct's fields for series: value, start, entity, attributes."""
    known = (*_OF_SERIES, *getattr(recipe.params, "attributes", ()))
    names = [each.name for each in value.type.fields]
    if unknown := [name for name in names if name not in known]:
        raise FunctionError(
            f"{function}: value has the field {unknown[0]!r}; expected some of {', '.join(known)}"
        )
    places = [name if name in _OF_SERIES else _FIELD + name for name in names]
    found = dict(zip(places, value.flatten(), strict=True))
    return {name: each for name, each in found.items() if not pa.types.is_null(each.type)}


def _split(function: str, declared: ColumnTypes, value: pa.Array) -> dict[str, pa.Array]:
    """Return the fields of a struct, which fill a stream's columns."""
    if not pa.types.is_struct(value.type):
        listed = ", ".join(f"{name} ({kind})" for name, kind in declared)
        raise FunctionError(
            f"{function}: value is of type {value.type}; expected a struct of the stream's "
            f"columns, {listed}, such as struct({declared[0][0]})"
        )
    names = [each.name for each in value.type.fields]
    return dict(zip([_FIELD + name for name in names], value.flatten(), strict=True))


def _mapping(recipe: Recipe, names: Sequence[str]) -> ColumnMapping:
    present: dict[str, Any] = {
        name: name for name in ("value", "weight", "source", "sequence", "start") if name in names
    }
    if "entity" in names:
        present["entity"] = ("entity",)
    ids = tuple(name for name in names if name.startswith("id"))
    present["columns"] = {
        name.removeprefix(_FIELD): name for name in names if name.startswith(_FIELD)
    }
    named: dict[str, Any] = {"key" if recipe.kind.input.named_by == "key" else "ids": ids}
    return ColumnMapping(time="time", **named, **present)


def merge(function: str, recipes: Sequence[Recipe], batches: Iterator[Any]) -> bytes | None:
    """Merge the sketches of one group. NULLs are skipped.

    Raises:
        FunctionError: bytes that are no sketch, or sketches that do not belong together.
    """
    merged: Sketch | None = None
    blobs = _blobs(function, batches)
    while some := list(islice(blobs, _SKETCHES_AT_A_TIME)):
        sketches = [_read(function, recipes, row, blob) for row, blob in some]
        try:
            merged = families.merge(sketches if merged is None else [merged, *sketches])
        except DecaySketchError as fault:
            raise FunctionError(f"{function}: {type(fault).__name__}: {fault}") from None
    return None if merged is None else merged.to_bytes()


def _read(function: str, recipes: Sequence[Recipe], row: int, blob: bytes) -> Sketch:
    try:
        FAMILIES[families.family_of(blob)].check_deliverable(function)
        return decoded(blob, recipes)
    except DecaySketchError as fault:
        raise FunctionError(
            f"{function}: row {row} of its group: {type(fault).__name__}: {fault}"
        ) from None


def _blobs(function: str, batches: Iterator[Any]) -> Iterator[tuple[int, bytes]]:
    """Yield the sketches of a group, each with its row. NULLs count as rows too."""
    first = 0
    for columns in batches:
        given = _as_tuple(columns)
        if len(given) != 1:
            raise FunctionError(
                f"{function}(sketch) is given {len(given)} arguments by place; expected one"
            )
        kind = given[0].type
        if not is_binary(kind) and not pa.types.is_null(kind):
            raise FunctionError(
                f"{function}: sketch is of type {kind}; expected the bytes of sketches"
            )
        rows = enumerate(given[0].to_pylist(), first)
        yield from ((row, blob) for row, blob in rows if blob is not None)
        first += len(given[0])
