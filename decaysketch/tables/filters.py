"""Row filters for a log: a time range, and comparisons between columns and constants.

Comparisons have their SQL meaning. A null compares to nothing, so neither ``x = 1`` nor ``x != 1``
accepts a row with null in ``x``. A filter knows its columns. It decides on a table's rows, and on
complete row groups in a file by their statistics.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from decaysketch.core.observations import check_integer_time
from decaysketch.core.text.grammar import NUMBER, Tokens
from decaysketch.errors import ParameterError
from decaysketch.tables.columns import Entry

__all__ = ["ColumnStatistics", "Comparison", "RowFilter", "parse_where"]

Constant = bool | int | float | str | bytes | date | datetime

_COMPARE: dict[str, Callable[[pa.Array, pa.Scalar], pa.Array]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_NULL_TESTS = ("is null", "is not null")
_MOST_COMPARISONS = 100


class ColumnStatistics(NamedTuple):
    """Statistics for one column in a part of a log."""

    low: Entry = None  # the smallest entry, or None where that is not known
    high: Entry = None
    nulls: int | None = None  # how many, None where that is not known
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column compared with a constant.

    Args:
        column: its name.
        op: ``= != < <= > >=``, with a value, or ``is null``, ``is not null``, without one.
        value: a number, text, bytes, boolean, date or time.

    Raises:
        ParameterError: another ``op``, or a value that is not allowed, or a missing one.
    """

    column: str
    op: str
    value: Constant | None = None

    def __post_init__(self) -> None:
        if self.op not in _COMPARE and self.op not in _NULL_TESTS:
            raise ParameterError(
                f"op is {self.op!r}; expected one of {', '.join((*_COMPARE, *_NULL_TESTS))}"
            )
        if (self.value is None) != (self.op in _NULL_TESTS):
            wanted = "no value" if self.op in _NULL_TESTS else "a value; nothing compares to null"
            raise ParameterError(f"{self.column} {self.op} {self.value!r}; expected {wanted}")

    def mask(self, table: pa.Table) -> npt.NDArray[np.bool_]:
        """Return the mask of rows for which it is true.

        Raises:
            ParameterError: there is no such column, or its type does not compare to the value.
        """
        if self.column not in table.column_names:
            raise ParameterError(
                f"no column {self.column!r}; there are {', '.join(table.column_names)}"
            )
        column = table.column(self.column)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if self.op == "is null":
            true = column.is_null()
        elif self.op == "is not null":
            true = column.is_valid()
        else:
            true = _compare(column, self)
        mask: npt.NDArray[np.bool_] = true.to_numpy()
        return mask.astype(bool, copy=False)

    def may_match(self, statistics: ColumnStatistics) -> bool:
        """Return whether it can be true for some row in a part with these statistics."""
        nulls, rows = statistics.nulls, statistics.rows
        if self.op == "is null":
            return nulls is None or nulls > 0
        if nulls is not None and rows is not None and nulls == rows:
            return False
        low, high = statistics.low, statistics.high
        if self.op == "is not null" or low is None or high is None:
            return True
        try:
            match self.op:
                case "=":
                    return bool(low <= self.value <= high)
                case "!=":  # statistics of floats leave out NaN, which equals nothing
                    return isinstance(low, float) or not low == self.value == high
                case "<":
                    return bool(low < self.value)
                case "<=":
                    return bool(low <= self.value)
                case ">":
                    return bool(high > self.value)
                case _:
                    return bool(high >= self.value)
        except TypeError:  # statistics of another kind than the value: the rows will tell
            return True


def _compare(column: pa.ChunkedArray, comparison: Comparison) -> pa.ChunkedArray:
    value = comparison.value
    kind = column.type
    if pa.types.is_null(kind):
        return pa.chunked_array([pa.array(np.zeros(len(column), dtype=bool))])
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number != _is_number(kind) or isinstance(value, bool) != pa.types.is_boolean(kind):
        _refuse(comparison, kind)
    if pa.types.is_integer(kind) and isinstance(value, int):
        limits = np.iinfo(kind.to_pandas_dtype())
        if not limits.min <= value <= limits.max:  # every entry stands on the same side of it
            always = _COMPARE[comparison.op](0, 1 if value > 0 else -1)
            return pc.and_(column.is_valid(), always)
    try:
        if isinstance(value, float) and pa.types.is_integer(kind) and np.isfinite(value):
            # x < 1.5 is x < 2: integers and floats compare in Arrow up to 2^53 alone
            if value != math.floor(value) and comparison.op in ("=", "!="):
                return pc.and_(column.is_valid(), pa.scalar(comparison.op == "!="))
            up = comparison.op in ("<", ">=")
            whole = math.ceil(value) if up else math.floor(value)
            return _compare(column, Comparison(comparison.column, comparison.op, whole))
        scalar = _scalar(value, kind)
        return pc.fill_null(_COMPARE[comparison.op](column, scalar), False)
    except (ValueError, TypeError, OverflowError, NotImplementedError):  # Arrow's among them
        _refuse(comparison, kind)


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _scalar(value: Constant | None, kind: pa.DataType) -> pa.Scalar:
    """Return a constant with a type that makes the comparison exact."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        # Text as in SQL; a time without a zone is meant in UTC, as everywhere.
        if isinstance(value, str) and re.search(r"[.,]\d{7}", value):
            raise ValueError("Python would drop what is below a microsecond")
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if pa.types.is_timestamp(kind) and kind.tz and getattr(moment, "tzinfo", 1) is None:
            return pa.scalar(moment, pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
        if pa.types.is_date(kind) and isinstance(moment, datetime):
            return pa.scalar(moment, pa.timestamp("us"))
        return pa.scalar(moment)
    if pa.types.is_integer(kind) and isinstance(value, int):
        return pa.scalar(value, kind)
    return pa.scalar(value)


def _refuse(comparison: Comparison, kind: pa.DataType) -> NoReturn:
    raise ParameterError(
        f"{comparison.column} {comparison.op} {comparison.value!r}: the column is of type {kind}, "
        "which does not compare to that"
    ) from None


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Rows with ``since <= time < until`` that satisfy every comparison.

    Times are the times that a sketch would see: in the stream's unit, with the fallback for a null
    time. A row with an unreadable time is in no range. With ``since`` or ``until`` it is dropped
    like any other excluded row.

    Args:
        since, until: times, or None for no limit.
        where: see :func:`parse_where`.

    Raises:
        ParameterError: limits that are not integers.
    """

    since: int | None = None
    until: int | None = None
    where: tuple[Comparison, ...] = ()

    def __post_init__(self) -> None:
        for name in ("since", "until"):
            if getattr(self, name) is not None:
                check_integer_time(name, getattr(self, name))

    @property
    def columns(self) -> tuple[str, ...]:
        """The compared columns, each once. The mapping names the time column."""
        return tuple(dict.fromkeys(comparison.column for comparison in self.where))

    def mask(self, table: pa.Table) -> npt.NDArray[np.bool_]:
        """Return the mask of rows that satisfy every comparison. It does not check times.

        Raises:
            ParameterError: see :meth:`Comparison.mask`.
        """
        mask = np.ones(table.num_rows, dtype=bool)
        for comparison in self.where:
            mask &= comparison.mask(table)
        return mask

    def may_match(
        self, statistics: Mapping[str, ColumnStatistics], times: tuple[int, int] | None = None
    ) -> bool:
        """Return whether a part of a log can contain a matching row.

        Args:
            statistics: the part's statistics, by column. Missing columns are unknown.
            times: the earliest and the latest time in it, in the stream's unit, if they are known.
        """
        if times is not None:
            if self.since is not None and times[1] < self.since:
                return False
            if self.until is not None and times[0] >= self.until:
                return False
        return all(
            comparison.may_match(statistics.get(comparison.column, ColumnStatistics()))
            for comparison in self.where
        )


# ------------------------------------------------------------------------------------------- text

_TOKEN = re.compile(
    rf"""(?P<number>[+-]?{NUMBER}(?![\w.]))
    | (?P<text>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")+"|`(?:[^`]|``)+`)
    | (?P<keyword>(?i:and|is|not|null|true|false)(?![\w.]))
    | (?P<word>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
    | (?P<op><=|>=|<>|!=|==|=|<|>)""",
    re.VERBOSE,
)
_SAME = {"<>": "!=", "==": "="}
_LONGEST_TEXT = 10_000


def parse_where(text: str) -> tuple[Comparison, ...]:
    """Parse comparisons, such as ``valid = true and site != 'x'``.

    Only AND joins comparisons. A column is a name, in double quotes or backticks unless it is a
    plain word. Constants are numbers, 'text' (with doubled quotes inside), true and false. IS NULL
    or IS NOT NULL may also follow a column. Keywords may be in any case.

    Raises:
        ParameterError: anything else, naming the place.
    """
    tokens = Tokens(_TOKEN, "where", text, _LONGEST_TEXT, _MOST_COMPARISONS, "comparisons")
    comparisons = [_comparison(tokens)]
    while not tokens.take("end"):
        tokens.want("AND or the end", "keyword", "and")
        comparisons.append(_comparison(tokens))
    return tuple(comparisons)


def _comparison(tokens: Tokens) -> Comparison:
    tokens.count()
    if quoted := tokens.take("quoted"):
        quote = quoted.text[0]
        column = quoted.text[1:-1].replace(2 * quote, quote)
    else:
        column = tokens.want("a column", "word").text
    if tokens.take("keyword", "is"):
        negated = tokens.take("keyword", "not")
        tokens.want("NULL" if negated else "NULL or NOT NULL", "keyword", "null")
        return Comparison(column, "is not null" if negated else "is null")
    op = tokens.want("one of = != < <= > >= or IS", "op").text
    value: Constant
    if number := tokens.take("number"):
        value = number.number
    elif quoted := tokens.take("text"):
        value = quoted.text[1:-1].replace("''", "'")
    else:
        word = tokens.want("a number, 'text', true or false", "keyword", "true", "false")
        value = word.text.lower() == "true"
    return Comparison(column, _SAME.get(op, op), value)
