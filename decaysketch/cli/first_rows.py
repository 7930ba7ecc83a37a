"""Options that depend on a log's first rows: number format, labels, column types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from decaysketch.cli.dialect import TextOptions
from decaysketch.cli.options import Columns, Parameters, names
from decaysketch.cli.output import CommandError, warn
from decaysketch.cli.recipes import Configuration, recipe_from_options
from decaysketch.cli.tables import FORMATS, Reading, first_rows, texts_of
from decaysketch.core.column_types import ColumnTypes, read_column_types
from decaysketch.core.text_values import Numerals
from decaysketch.families import DEFAULT, FAMILIES, Family, Recipe
from decaysketch.tables.records import ALL, read_columns, types_of
from decaysketch.tables.texts import holds_numbers, looks_like_numbers, numerals_of

__all__ = ["First", "check_no_types", "numerals_from", "recipe_from_rows"]


class First(NamedTuple):
    """The first file's first rows.

    Attributes:
        path: the file.
        format: its format, if it was read.
        rows: None if they cannot be read before the others.
        others: columns that no other option names.
    """

    path: Path
    format: str = ""
    rows: pa.Table | None = None
    others: Sequence[str] = ()

    @property
    def names(self) -> list[str]:
        """The columns."""
        return [] if self.rows is None else self.rows.column_names

    @classmethod
    def of(
        cls, path: Path, format: str, columns: Columns, keys: Sequence[str], options: TextOptions
    ) -> First:
        """Read the columns that options depend on.

        Args:
            path: the first file. Something else, such as a pipe, is read once, and not here.
            format: its format.
            columns: the options for columns.
            keys: key columns.
            options: for text files.

        Raises:
            CommandError: a declared column is not there, or the file cannot be read and its columns
                are to be declared.
        """
        value, declared = columns.text("value"), columns.text("columns")
        if not (value or declared) or not path.is_file() or format not in FORMATS:
            return cls(path)
        if not declared:
            rows = first_rows(path, format, Reading([str(value)], options=options))
            return cls(path, format, rows)
        used = {columns.text("time") or "", *keys}
        for name in ("ids", "weight", "fallback_time"):
            used |= {*names(columns.text(name) or "")}
        wanted = [name for name in sorted(used) if name]
        if declared != ALL:
            wanted = list(dict.fromkeys(read_columns(declared)[0].values()))
        reading = Reading(wanted, options=options, everything=declared == ALL)
        rows = first_rows(path, format, reading, strict=True)
        assert rows is not None  # it would have raised
        return cls(path, format, rows, [name for name in rows.column_names if name not in used])


def numerals_from(columns: Columns, first: First) -> Numerals:
    """Return the number format, from the options or from unambiguous first values."""
    decimal, thousands = columns.text("decimal"), columns.text("thousands")
    if decimal is None and thousands is None:
        pairs, types = read_columns(columns.text("columns") or "")
        declared_texts = {pairs[name] for name, kind in types.items() if kind == "text"}
        declared_texts |= {*names(columns.text("casts") or "")}
        for column in first.names:
            if column in declared_texts:
                continue
            texts = texts_of(first.rows, column)
            found = None if texts is None or holds_numbers(texts) else numerals_of(texts)
            if found is not None:
                said = f"--decimal '{found.decimal}'"
                said += f" --thousands {found.thousands!r}" if found.thousands else ""
                warn(f"{first.path}: numbers of column {column!r} are read with {said}")
                return found
    numerals = Numerals(decimal or ".", thousands or "")
    numerals.check()
    return numerals


def recipe_from_rows(
    configuration: Configuration, parameters: Parameters, columns: Columns, first: First,
    defaults: Mapping[str, Any], *, numerals: Numerals, by_key: bool,
) -> Recipe:  # fmt: skip
    """Return the sketch configuration. Types that no option declares are those of the first rows.

    Raises:
        CommandError, ParameterError: see :func:`decaysketch.cli.recipes.recipe_from_options`.
    """
    chosen = dict(defaults)
    declared: ColumnTypes = ()
    if configuration.params is not None:
        check_no_types(columns, "--params")
    elif columns.text("columns") and not parameters.get("attributes"):
        declared = _declared(columns, first, numerals)
    elif "value_type" not in parameters and (value := columns.text("value")):
        family = FAMILIES.get(configuration.family or DEFAULT)
        if family is not None and _takes_labels(family) and _are_labels(first, value, numerals):
            chosen["value_type"] = "label"
    return recipe_from_options(configuration, parameters, chosen, by_key=by_key, columns=declared)


def check_no_types(columns: Columns, option: str) -> None:
    """Reject types next to an option that gives all types.

    Raises:
        CommandError: there are some.
    """
    _, types = read_columns(columns.text("columns") or "")
    if types:
        raise CommandError(
            f"--columns has the type {next(iter(types.values()))!r}, and {option} gives all types; "
            "give names alone"
        )


def _declared(columns: Columns, first: First, numerals: Numerals) -> ColumnTypes:
    """Return the declaration of the columns, from their types or from the first rows."""
    text = columns.text("columns") or ""
    pairs, types = read_columns(text)
    if text == ALL:
        pairs, types = {name: name for name in first.others}, {}
    texts = names(columns.text("casts") or "")
    types = {name: "text" for name, column in pairs.items() if column in texts} | types
    if pairs and not pairs.keys() - types.keys():
        return read_column_types(types)
    if first.rows is None:
        raise CommandError(
            f"the types of --columns are not known before {first.path} is read; declare them, as "
            "in 'temp float64, site text'"
        )
    return types_of(first.rows, pairs, types, numerals if first.format == "csv" else None)


def _takes_labels(family: Family) -> bool:
    return any("label" in option.choices for option in family.options)


def _are_labels(first: First, column: str, numerals: Numerals) -> bool:
    """Return whether values are labels, from the values alone.

    Raises:
        CommandError: they look like numbers in another number format.
    """
    texts = texts_of(first.rows, column)
    if texts is None or holds_numbers(texts, numerals):
        return False
    if (found := looks_like_numbers(texts)) is not None:
        raise CommandError(
            f"{first.path}: column {column!r} has {found!r}, which looks like a number; give the "
            "number format with --decimal and --thousands, or keep texts with --value-type label"
        )
    return True
