"""Results as tables, one row for each estimate: CSV for spreadsheets, Arrow for data frames.

A table is written from the JSON result, so nothing is computed twice and both agree. CSV follows
RFC 4180 (CRLF, and null is empty). A spreadsheet reads a text as a formula if it begins with ``= +
- @``, their full-width forms, a tab or a line end. Such a text gets an apostrophe in front, since
query names and keys may come from any client. Numbers are written as numbers. Arrow is one stream
with one record batch, and leaves texts unchanged.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from api.queries.answers import Form
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.query.catalog import QUESTIONS
from decaysketch.query.shapes import Question, Rows

__all__ = ["COLUMNS", "rows_of", "write"]


#: Name and Arrow type of each column; that of ``time`` has the unit of the stream.
COLUMNS: Mapping[str, pa.DataType] = {
    "query": pa.string(),
    "aggregate": pa.string(),
    "now": pa.int64(),
    "time": pa.timestamp("us", "UTC"),
    "key": pa.string(),
    "of": pa.string(),
    "value": pa.float64(),
    "lower": pa.float64(),
    "upper": pa.float64(),
    "stderr": pa.float64(),
    "confidence": pa.float64(),
    "exact": pa.bool_(),
    "rows": pa.int64(),
    "caveats": pa.string(),
    "sure_upper": pa.float64(),
    "changed": pa.bool_(),
}

_BY = "by"  # of a row of a group: its keys, each of which is a column of the table
_ESTIMATED = ("value", "lower", "upper", "stderr", "confidence", "exact", "rows")
# A spreadsheet may run such texts. Some programs skip white space before a sign, and read
# full-width and small signs as the usual ones. The same pattern is in ``api/page/taking.js``.
_FORMULA = re.compile(
    r"[\t\r\n]|[\s\u200b\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b]"
)
_ARROW_UNITS = ("s", "ms", "us", "ns")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def write(form: Form, answers: bytes, names: Sequence[str | None], time_unit: str) -> bytes:
    """Return results as a table.

    Args:
        form: CSV or Arrow.
        answers: as JSON.
        names: query names, where given. Other queries are named after their aggregate.
        time_unit: the stream's unit.
    """
    found = json.loads(answers)["answers"]
    rows = [
        row
        for name, answer in zip(names, found, strict=True)
        for point in answer.get("points", [answer])
        for row in rows_of(name or answer["aggregate"], point)
    ]
    keys = list(dict.fromkeys(key for row in rows for key in row.get(_BY, ())))
    return _csv(rows, keys, time_unit) if form is Form.CSV else _arrow(rows, keys, time_unit)


def rows_of(name: str, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return a row for each estimate in a result at one time, by column name."""
    question: Question[Any] = QUESTIONS[point["aggregate"]]
    first = {"query": name, "aggregate": question.name, "now": point["now"]}
    if "by" not in point:
        yield from _rows_of(question, first, point)
        return
    for group in point["groups"]:
        yield from _rows_of(question, first | {_BY: group["by"]}, group)


def _rows_of(
    question: Question[Any], first: dict[str, Any], point: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    shape = question.shape
    if shape.rows is not None:
        listed = point[shape.rows.name]
        if shape.rows.single:
            listed = [] if listed is None else [listed]
        for row in listed:
            yield from ({**first, **each} for each in _of_row(shape.rows, row))
    for column in shape.beside:
        if column.kind == "estimate":
            of_all = {"key": None if shape.rows is None else column.name}
            yield {**first, **of_all, **_estimate(point[column.name])}


def _of_row(rows: Rows, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if not rows.estimates:  # observed values, with their times
        value, *others = (row[column.name] for column in rows.keys)
        label = value if isinstance(value, str) else None
        number = None if isinstance(value, str) else value
        yield {"key": _joined(others), "of": label, "value": number, "exact": True}
        return
    key = _joined([row[column.name] for column in rows.keys])
    for column in rows.estimates:
        of = column.name if len(rows.estimates) > 1 else None
        yield {"key": key, "of": of, **_estimate(row[column.name])}


def _joined(keys: Sequence[Any]) -> Any:
    """Return the key of a row: one number or text unchanged, several as ``low..high``."""
    if len(keys) > 1:
        return "..".join(map(str, keys))
    return json.dumps(keys[0], ensure_ascii=False) if isinstance(keys[0], list) else keys[0]


def _estimate(estimate: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: estimate[name] for name in _ESTIMATED}
    found |= {name: estimate.get(name) for name in ("sure_upper", "changed")}
    return found | {"caveats": " ".join(estimate.get("caveats", ())) or None}


def _csv(rows: Sequence[Mapping[str, Any]], keys: Sequence[str], time_unit: str) -> bytes:
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\r\n")
    table.writerow([*COLUMNS, *(_cell(_column(key)) for key in keys)])
    for row in rows:
        dated = dict(row, time=_date(row["now"], time_unit))
        by = row.get(_BY, {})
        cells = [dated.get(name) for name in COLUMNS] + [by.get(key) for key in keys]
        table.writerow(map(_cell, cells))
    return text.getvalue().encode()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{value}" if _FORMULA.match(value) else value
    return repr(value)


def _date(now: int, time_unit: str) -> str | None:
    """Return a time by the wall clock. None where the unit has none, or it is no date there."""
    if time_unit not in NANOSECONDS:
        return None
    seconds, rest = divmod(now * NANOSECONDS[time_unit], 1_000_000_000)
    try:
        date = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return None
    fraction = f".{rest:09d}".rstrip("0").rstrip(".")
    return f"{date:%Y-%m-%dT%H:%M:%S}{fraction}Z" if date.year >= 1000 else None


def _arrow(rows: Sequence[Mapping[str, Any]], keys: Sequence[str], time_unit: str) -> bytes:
    unit = time_unit if time_unit in _ARROW_UNITS else "s"
    columns = {}
    for name, kind in COLUMNS.items():
        if name == "time":
            times = [_in_unit(row["now"], time_unit, unit) for row in rows]
            columns[name] = pa.array(times, pa.timestamp(unit, "UTC"))
        elif name == "key":
            texts = [None if row.get(name) is None else str(row[name]) for row in rows]
            columns[name] = pa.array(texts, kind)
        elif kind == pa.float64():
            numbers = [None if row.get(name) is None else float(row[name]) for row in rows]
            columns[name] = pa.array(numbers, kind)
        else:
            columns[name] = pa.array([row.get(name) for row in rows], kind)
    for key in keys:
        columns[_column(key)] = _keys_of([row.get(_BY, {}).get(key) for row in rows])
    table = pa.table(columns)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()


def _column(key: str) -> str:
    """Return the column name for a key. An estimate has some of these names, too."""
    return f"by {key}" if key in COLUMNS else key


def _keys_of(values: Sequence[Any]) -> pa.Array:
    """Return numbers, truth values or texts. Keys with more than one type become texts."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} or len(kinds) <= 1:
        return pa.array([float(v) if float in kinds and v is not None else v for v in values])
    return pa.array([None if value is None else str(value) for value in values])


def _in_unit(now: int, time_unit: str, unit: str) -> int | None:
    if time_unit not in NANOSECONDS:
        return None
    time = now * NANOSECONDS[time_unit] // NANOSECONDS[unit]
    return time if -(1 << 63) <= time < 1 << 63 else None
