"""Columns of a log as the demonstration takes them: times, keys, values and weights of any type.

A column of a wrong kind is one error. A single wrong row is rejected: it is skipped, with its
column and the reason, and the report counts it. The rules are those of ``spark_jobs.build`` with a
quarantine. In addition, times and numbers may be text here, because a CSV file has nothing else.

A text is a time if it is a number, or a date as in ISO 8601 with or without a time of day, a
fraction of a second and a zone. Without a zone it is in UTC.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from decaysketch.core.hashing import MAX_KEY_BYTES
from decaysketch.core.plausible_times import likely_unit
from decaysketch.core.time_units import NANOSECONDS

__all__ = ["Refusals", "keys_of", "micros_of", "values_of", "weights_of"]

_MOST: Final = 1 << 62  # times and weights beyond it are none
_EXACT_IN_FLOAT: Final = 1 << 53
_MAX_WEIGHT: Final = 1 << 31

_INTEGER: Final = r"^\s*[+-]?\d{1,18}\s*$"
_WHOLE_KEY: Final = r"^(0|-?[1-9]\d{0,17})$"  # "007" is a name
_ISO: Final = (
    r"^\s*(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2})?)(?:[.,](\d{1,9}))?)?"
    r"\s*(Z|z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)?\s*$"
)

REFUSED: Final = {
    "row": pl.Int64, "column": pl.String, "found": pl.String, "reason": pl.String,
}  # fmt: skip


class Refusals:
    """Rows that are refused, each for the first reason found.

    Args:
        rows: how many rows the log has.

    Attributes:
        mask: bool[rows], those refused so far.
    """

    def __init__(self, rows: int) -> None:
        self.mask = pl.repeat(False, rows, dtype=pl.Boolean, eager=True)
        self._found: list[pl.DataFrame] = []

    def refuse(self, bad: pl.Series, column: str, reason: str, found: pl.Series) -> None:
        """Refuse the rows that are ``bad``, but for those that were refused before.

        Args:
            bad: bool[rows]; null is not bad.
            column: its name in the log.
            reason: the common fault of all entries.
            found: an example.
        """
        new = bad.fill_null(False) & ~self.mask
        if not new.any():
            return
        rows = new.arg_true()
        self._found.append(
            pl.DataFrame(
                {
                    "row": rows.cast(pl.Int64),
                    "column": pl.repeat(column, len(rows), dtype=pl.String, eager=True),
                    "found": _text(found.gather(rows)),
                    "reason": pl.repeat(reason, len(rows), dtype=pl.String, eager=True),
                }
            )
        )
        self.mask = self.mask | new

    def listing(self) -> pl.DataFrame:
        """Columns ``row, column, found, reason``, in the order of the rows."""
        return pl.concat([pl.DataFrame(schema=REFUSED), *self._found]).sort("row")


def _text(series: pl.Series) -> pl.Series:
    """Some rows as readable text, at most 60 characters each."""
    if series.dtype == pl.Binary:
        series = series.bin.encode("hex")
    shown = series.cast(pl.String).fill_null("")
    cut = shown.str.len_chars() > 60
    return shown.zip_with(~cut, shown.str.slice(0, 57) + "...")


# -------------------------------------------------------------------------------------------- times


def micros_of(series: pl.Series, name: str, unit: str | None, refusals: Refusals) -> pl.Series:
    """Times in microseconds since 1970, as int64; null stays null.

    Args:
        series: integers, numbers, timestamps (without a zone: UTC), dates, or text of any of them.
        name: of the column.
        unit: of times that are plain numbers; None: microseconds, unless they cannot be.
        refusals: takes the rows that hold no time.

    Raises:
        ValueError: the column holds no times, or numbers that are plainly of another unit.
    """
    kind = series.dtype
    if kind == pl.Null:
        return series.cast(pl.Int64)
    if isinstance(kind, pl.Datetime):
        ticks = series.to_physical()
        scale = {"ms": 1000, "us": 1, "ns": 1}[kind.time_unit]
        return ticks // 1000 if kind.time_unit == "ns" else ticks * scale
    if kind == pl.Date:
        return series.cast(pl.Int64) * 86_400_000_000
    if kind == pl.String:
        return _micros_of_text(series, name, unit, refusals)
    if kind.is_integer() or kind.is_float() or kind.is_decimal():
        return _micros_of_numbers(series, series, name, unit, refusals)
    raise ValueError(
        f"column {name!r} is of type {kind}; expected times: integers, timestamps or ISO 8601 text"
    )


def _micros_of_numbers(
    numbers: pl.Series, shown: pl.Series, name: str, unit: str | None, refusals: Refusals
) -> pl.Series:
    """Times that are plain numbers. ``shown`` has the entries of the log."""
    if numbers.dtype.is_float() or numbers.dtype.is_decimal():
        numbers = numbers.cast(pl.Float64)
        refusals.refuse(~numbers.is_finite(), name, "expected a finite time", shown)
        numbers = numbers.set(~numbers.is_finite(), None)
    else:
        numbers = numbers.cast(pl.Int128)  # so that nothing overflows before it is refused
    middle = numbers.cast(pl.Float64).median()
    if unit is None and isinstance(middle, float) and (other := likely_unit("us", int(middle))):
        raise ValueError(
            f"column {name!r} is about {middle:.15g}, which is {_date(middle, 'us')} in "
            f"microseconds and {_date(middle, other)} in {other!r}; say which it is: "
            f"--column-unit {other}, or --column-unit us"
        )
    factor = NANOSECONDS[unit or "us"] / 1000
    beyond = numbers.abs() > _MOST // max(factor, 1)
    refusals.refuse(beyond, name, "expected a time of at most 2^62 in magnitude", shown)
    numbers = numbers.set(beyond.fill_null(False), None)
    if numbers.dtype.is_integer():
        numbers = numbers.cast(pl.Int64)
        return numbers // 1000 if factor < 1 else numbers * int(factor)
    return (numbers * factor).round().cast(pl.Int64)


def _date(number: float, unit: str) -> str:
    micros = int(number * NANOSECONDS[unit] / 1000)
    stamp = pl.Series([micros]).cast(pl.Datetime("us"))
    return str(stamp.dt.strftime("%Y-%m-%d %H:%M")[0])


def _micros_of_text(
    series: pl.Series, name: str, unit: str | None, refusals: Refusals
) -> pl.Series:
    stripped = series.str.strip_chars()
    series = stripped.set(stripped == "", None)
    integers = series.str.contains(_INTEGER)
    if integers.all():
        return _micros_of_numbers(series.cast(pl.Int64), series, name, unit, refusals)
    numbers = series.cast(pl.Float64, strict=False)
    if numbers.null_count() == series.null_count():
        return _micros_of_numbers(numbers, series, name, unit, refusals)
    times = _iso_micros(series)
    if times.null_count() == len(times) > series.null_count():
        if numbers.null_count() == len(numbers):
            first = series.drop_nulls()[0]
            raise ValueError(
                f"column {name!r} holds no times, such as {first!r}; expected integers, or ISO "
                "8601 such as 2026-01-31T06:00:00Z"
            )
        times = _micros_of_numbers(numbers, series, name, unit, refusals)
    bad = times.is_null() & series.is_not_null()
    refusals.refuse(bad, name, "expected a time, as the other rows have", series)
    return times


def _iso_micros(series: pl.Series) -> pl.Series:
    """Microseconds since 1970 of dates and times as in ISO 8601; null where there is none."""
    parts = series.str.extract_groups(_ISO).struct.unnest()
    date, time, fraction, zone = (parts[name] for name in ("1", "2", "3", "4"))
    frame = pl.DataFrame({"date": date, "time": time, "fraction": fraction, "zone": zone})
    clock = pl.col("time").fill_null("00:00").str.pad_end(8, "_").str.replace("___", ":00")
    shift = (
        pl.col("zone").str.slice(1, 2).cast(pl.Int64, strict=False) * 60
        + pl.col("zone").str.slice(3).str.strip_chars(":").cast(pl.Int64, strict=False).fill_null(0)
    ) * pl.when(pl.col("zone").str.starts_with("-")).then(-1).otherwise(1)
    answers = frame.select(
        (pl.col("date") + " " + clock)
        .str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False)
        .cast(pl.Int64)
        + pl.col("fraction").fill_null("0").str.pad_end(9, "0").cast(pl.Int64) // 1000
        - shift.fill_null(0) * 60_000_000
    )
    return answers.to_series()


# ------------------------------------------------------------------------------- keys and numbers


def keys_of(series: pl.Series, name: str, refusals: Refusals | None) -> pl.Series:
    """A column that names something, as integers, text or bytes.

    Text in which every entry is an integer in its usual form becomes integers.

    Args:
        series: of any plain type.
        name: of the column.
        refusals: takes the rows without a name; None: a null is a name like any other.

    Raises:
        ValueError: the type cannot name anything.
    """
    kind, shown = series.dtype, series
    if kind in (pl.Categorical, pl.Enum):
        series = series.cast(pl.String)
    elif kind == pl.Null or kind == pl.Boolean:
        series = series.cast(pl.Int64)
    elif isinstance(kind, pl.Datetime | pl.Date | pl.Time):
        series = series.to_physical().cast(pl.Int64)
    elif kind.is_decimal():
        series = series.cast(pl.Float64)
    if series.dtype.is_float():
        whole = series.is_finite() & (series == series.round()) & (series.abs() <= _EXACT_IN_FLOAT)
        if refusals is None and not whole.all():
            raise ValueError(f"column {name!r} is of type {kind}; expected integers or text")
        if refusals is not None:
            refusals.refuse(~whole, name, "expected an integer", shown)
        series = series.set(~whole.fill_null(True), None).cast(pl.Int64)
    elif series.dtype == pl.String:
        if series.str.contains(_WHOLE_KEY).all() and series.null_count() < len(series):
            series = series.cast(pl.Int64)
        elif refusals is not None:
            long = series.str.len_bytes() > MAX_KEY_BYTES
            refusals.refuse(long, name, f"expected at most {MAX_KEY_BYTES} bytes", shown)
    elif series.dtype == pl.Binary:
        if refusals is not None:
            long = series.bin.size() > MAX_KEY_BYTES
            refusals.refuse(long, name, f"expected at most {MAX_KEY_BYTES} bytes", shown)
    elif not series.dtype.is_integer():
        raise ValueError(f"column {name!r} is of type {kind}; expected integers, text or bytes")
    if refusals is not None:
        refusals.refuse(series.is_null(), name, "is null", shown)
    return series


def values_of(series: pl.Series, name: str, refusals: Refusals) -> pl.Series:
    """Measured numbers as float64; null is a missing value.

    Raises:
        ValueError: the column holds no numbers.
    """
    kind = series.dtype
    if kind == pl.String:
        stripped = series.str.strip_chars()
        series = stripped.set(stripped == "", None)
        numbers = series.cast(pl.Float64, strict=False)
        if numbers.null_count() == len(numbers) > series.null_count():
            first = series.drop_nulls()[0]
            raise ValueError(f"column {name!r} holds no numbers, such as {first!r}")
        bad = numbers.is_null() & series.is_not_null()
        refusals.refuse(bad, name, "expected a number, as the other rows have", series)
    elif kind.is_integer():
        exact = series.cast(pl.Int128).abs() <= _EXACT_IN_FLOAT
        refusals.refuse(~exact, name, "expected at most 2^53, exact as float64", series)
        numbers = series.cast(pl.Float64)
    elif kind.is_float() or kind.is_decimal() or kind in (pl.Boolean, pl.Null):
        numbers = series.cast(pl.Float64)
    else:
        raise ValueError(f"column {name!r} is of type {kind}; expected numbers")
    bad = ~numbers.is_finite()
    refusals.refuse(bad, name, "expected a finite number, or null where it is missing", series)
    return numbers


def weights_of(series: pl.Series, name: str, refusals: Refusals) -> pl.Series:
    """Weights as int64 from 0 to 2^31.

    Raises:
        ValueError: the column holds no integers.
    """
    kind, shown = series.dtype, series
    if kind == pl.String or kind.is_decimal() or kind.is_float():
        series = series.cast(pl.Float64, strict=False)
        whole = series.is_finite() & (series == series.round()) & (series.abs() <= _EXACT_IN_FLOAT)
        bad = shown.is_not_null() & ~whole.fill_null(False)
        refusals.refuse(bad, name, "expected an integer", shown)
        series = series.set(bad, None).cast(pl.Int64)
    elif not kind.is_integer() and kind != pl.Null:
        raise ValueError(f"column {name!r} is of type {kind}; expected integers")
    refusals.refuse(series.is_null(), name, "is null", shown)
    series = series.cast(pl.Int128)  # no limit below is too large for it, no entry overflows
    outside = (series < 0) | (series > _MAX_WEIGHT)
    refusals.refuse(outside, name, "expected a weight from 0 to 2^31", shown)
    series = series.set(outside.fill_null(False), None)
    return series.cast(pl.Int64)
