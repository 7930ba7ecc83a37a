"""Observations as an Arrow IPC stream: columns value, weight, time and id, or weight, time and key.

The bytes are untrusted. Columns are numbers, texts, bytes and timestamps, each also as a
dictionary, and texts as views: data frames write all of these. Extensions, nested types and
compressed buffers are rejected, since a few bytes could become gigabytes (``Content-Encoding``
compresses a body within bounds). So no buffer is larger than the body. Rows in a dictionary or in
views may share their bytes. The reader sums their lengths, bounded by MAX_TEXT_BYTES, before it
builds a text. Each batch is validated in full before a value is read.

A timestamp without a zone is read in the request's ``time_zone``, else as UTC.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from api.errors import Fault, InvalidRequestError, TooManyRowsError
from decaysketch.core.labels import MAX_LABEL_BYTES, EncodedLabels
from decaysketch.core.records import encode_records
from decaysketch.core.row_check import (
    BEYOND_64_BITS,
    EXACT_IN_FLOAT,
    INT64,
    MISSING,
    Parts,
    RowCheck,
)
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.ingest.batch import SeriesFields
from decaysketch.ingest.columns import (
    Batch,
    Form,
    Key,
    fault_of_key,
    value_column,
)
from decaysketch.ingest.series_rows import NO_START
from decaysketch.tables.columns import decoded
from decaysketch.tables.texts import local_to_utc

__all__ = ["MAX_TEXT_BYTES", "read_arrow"]

_MOST_BATCHES = 1024
_LONGEST_SCHEMA_BYTES = 1 << 16
_CONTINUATION = 0xFFFFFFFF
_FILE = b"ARROW1"
_HEADER_FIELD, _COMPRESSION_FIELD = 2, 3  # of the flatbuffers Message and RecordBatch
_DATA_FIELD = 1  # of DictionaryBatch

MAX_TEXT_BYTES = 1 << 26
"""Maximum text bytes in dictionaries and views."""

Mask = npt.NDArray[np.bool_]


def read_arrow(body: bytes, form: Form) -> Batch:
    """Read an IPC stream.

    Raises:
        InvalidRequestError: not a complete stream, or columns with other names or types.
        TooManyRowsError: more rows than one post may have.
    """
    try:
        batches = _batches(body, form)
    except (pa.ArrowException, OSError, ValueError, MemoryError, struct.error) as error:
        raise InvalidRequestError(
            f"the body is not an Arrow IPC stream: {error}",
            [Fault(field="body", reason="not an Arrow IPC stream")],
        ) from None
    raw = _columns(batches, form)
    raw.zoneless = form.zone is None and bool(batches) and _is_zoneless(body)
    return raw


def _is_zoneless(body: bytes) -> bool:
    kind = pa.ipc.open_stream(pa.py_buffer(body)).schema.field("time").type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_timestamp(kind)) and kind.tz is None


def _batches(body: bytes, form: Form) -> list[pa.RecordBatch]:
    if body.startswith(_FILE):
        raise ValueError("it is an Arrow file (Feather); send the stream format (new_stream)")
    if len(body) >= 8:
        marker, length = struct.unpack_from("<Ii", body)
        if marker == _CONTINUATION and length > _LONGEST_SCHEMA_BYTES:
            raise ValueError(f"the schema has {length} bytes, at most {_LONGEST_SCHEMA_BYTES}")
        if marker != _CONTINUATION and marker > _LONGEST_SCHEMA_BYTES:  # text, or another format
            raise ValueError(f"it begins with {body[:8]!r}; expected a schema")
    reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(body))
    first = _next(reader)
    if first is None or first.type != "schema":
        raise ValueError("it does not begin with a schema")
    schema = pa.ipc.read_schema(first)
    _check_schema(schema, form)
    batches: list[pa.RecordBatch] = []
    rows = texts = messages = 0
    while (message := _next(reader)) is not None:
        if message.type not in ("record batch", "dictionary"):
            raise ValueError(f"a message of type {message.type!r}; expected record batches")
        if messages == _MOST_BATCHES:
            raise ValueError(f"more than {_MOST_BATCHES} record batches and dictionaries")
        if _is_compressed(message.metadata.to_pybytes(), message.type == "dictionary"):
            raise ValueError("its buffers are compressed; compress the body instead")
        messages += 1
    for batch in pa.ipc.open_stream(pa.py_buffer(body)):
        rows += batch.num_rows
        if rows > form.max_rows:
            raise TooManyRowsError(rows, form.max_rows)
        batch.validate(full=True)
        texts += sum(map(_text_bytes, batch.columns))
        if texts > MAX_TEXT_BYTES:
            raise ValueError(f"its texts have more than {MAX_TEXT_BYTES} bytes")
        batches.append(_plain(batch, form))
    return batches


def _text_bytes(column: pa.Array) -> int:
    """Return the total bytes of a column's texts, each counted as often as it occurs. O(rows)."""
    if pa.types.is_dictionary(column.type):
        texts = column.dictionary
        if len(texts) == 0 or not _is_text(texts.type):
            return 0
        places = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return int(_lengths(texts)[places].sum())
    return int(_lengths(column).sum()) if _is_view(column.type) else 0


def _lengths(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return upper bounds on the lengths of a column's texts."""
    if not _is_view(column.type):
        lengths = pc.binary_length(column).fill_null(0)
        return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)
    views = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, 4)
    return views[column.offset : column.offset + len(column), 0].astype(np.int64)


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _is_text(kind: pa.DataType) -> bool:
    return _is_view(kind) or any(
        suits(kind)
        for suits in (
            pa.types.is_string, pa.types.is_large_string, pa.types.is_binary,
            pa.types.is_large_binary,
        )
    )  # fmt: skip


def _plain(batch: pa.RecordBatch, form: Form) -> pa.RecordBatch:
    """Return columns without dictionaries, views and timestamps."""
    columns = [_plain_column(column, form) for column in batch.columns]
    return pa.record_batch(columns, names=batch.schema.names)


def _plain_column(column: pa.Array, form: Form) -> pa.Array:
    column = decoded(column)
    kind = column.type
    if pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    if pa.types.is_binary_view(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_timestamp(kind):
        return _whole_units(column, form)
    return column


def _whole_units(column: pa.Array, form: Form) -> pa.Array:
    """Return timestamps as integers in the stream's unit, rounded down."""
    size, unit = NANOSECONDS[column.type.unit], NANOSECONDS[form.params.time_unit]
    if column.type.tz is None and form.zone is not None:
        local = column
        column, known = local_to_utc(local, form.zone)
        if not known.all():
            row = int(np.argmin(known))
            reason = f"is {local[row]}, which clocks in {form.zone} skip"
            raise InvalidRequestError(
                f"time[{row}] {reason}; expected an existing time, or times with a zone",
                [Fault(field="time", reason=reason, value=str(local[row]))],
            )
        size = NANOSECONDS[column.type.unit]
    numbers = column.cast(pa.int64())
    if size >= unit:
        return pc.multiply_checked(numbers, pa.scalar(size // unit, pa.int64()))
    return pa.array(
        np.ma.masked_array(
            numbers.fill_null(0).to_numpy(zero_copy_only=False) // (unit // size),
            numbers.is_null().to_numpy(zero_copy_only=False),
        )
    )


def _next(reader: pa.ipc.MessageReader) -> pa.ipc.Message | None:
    try:
        return reader.read_next_message()
    except StopIteration:
        return None


def _is_compressed(metadata: bytes, is_dictionary: bool) -> bool:
    """Return whether a flatbuffer Message's record batch, or its dictionary's, has the field
    ``compression``.

    The reader has verified the flatbuffer. Positions beyond its end raise struct.error.
    """
    (root,) = struct.unpack_from("<I", metadata)
    header = _field(metadata, root, _HEADER_FIELD)
    if header is None:
        raise ValueError("a message without a header")
    (offset,) = struct.unpack_from("<I", metadata, header)
    table = header + offset
    if is_dictionary:
        data = _field(metadata, table, _DATA_FIELD)
        if data is None:
            raise ValueError("a dictionary without its values")
        table = data + struct.unpack_from("<I", metadata, data)[0]
    return _field(metadata, table, _COMPRESSION_FIELD) is not None


def _field(metadata: bytes, table: int, number: int) -> int | None:
    """Return the position of a flatbuffer table's field, or None where it is absent."""
    (back,) = struct.unpack_from("<i", metadata, table)
    vtable = table - back
    (size,) = struct.unpack_from("<H", metadata, vtable)
    entry = 4 + 2 * number
    if entry + 2 > size:
        return None
    (offset,) = struct.unpack_from("<H", metadata, vtable + entry)
    return table + offset if offset else None


def _check_schema(schema: pa.Schema, form: Form) -> None:
    is_key = [_is_text] if form.takes_keys else []
    values = [pa.types.is_integer] + ([] if form.integers else [_is_float])
    said = "integers" if form.integers else "float64, float32 or integers"
    if form.labels:
        said = "text, value_type is label"
        values = [pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view]
    clocked = [pa.types.is_timestamp] if form.params.time_unit in NANOSECONDS else []
    expected = {
        "value": (values, said),
        "weight": ([pa.types.is_integer], "integers"),
        "time": (
            [pa.types.is_integer, *clocked],
            "integers, in the stream's time_unit, or timestamps where it has a clock",
        ),
        form.fields[-1]: (
            [pa.types.is_integer, *is_key],
            "integers, text or binary" if is_key else "integers",
        ),
    }
    if form.names_series:
        expected["start"] = expected["time"]
        expected["entity"] = expected[form.fields[-1]]
    expected = {name: what for name, what in expected.items() if name in form.fields}
    expected = {name: _SUITED[kind] for name, kind in form.columns} | expected
    expected = dict.fromkeys(form.attributes, _SUITED["text"]) | expected
    repeated = {name for name, count in Counter(schema.names).items() if count > 1}
    faults = [Fault(field=name, reason="several columns of this name") for name in sorted(repeated)]
    for field in schema:
        if field.name not in expected:
            text = f"one of {', '.join(expected)}"
            faults.append(Fault(field=field.name, reason="unknown column", expected=text))
        elif not any(suits(_content(field.type)) for suits in expected[field.name][0]):
            text = expected[field.name][1]
            given = str(field.type)
            faults.append(
                Fault(field=field.name, reason="of another type", value=given, expected=text)
            )
    absent = [name for name in ("time", form.fields[-1]) if name not in schema.names]
    faults += [Fault(field=name, reason="there is no such column") for name in absent]
    if faults:
        listed = "; ".join(f"{fault.field}: {fault.reason}" for fault in faults[:3])
        raise InvalidRequestError(f"the columns are not columns of observations: {listed}", faults)


def _is_string(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _records(batches: list[pa.RecordBatch], rows: int, form: Form, check: RowCheck) -> Any:
    """Return the declared columns. A value that does not fit rejects its row, and is null."""
    given: dict[str, pa.Array] = {}
    for name, kind in form.columns:
        if not batches or name not in batches[0].schema.names:
            continue
        parts = [batch.column(name) for batch in batches]
        column = pa.chunked_array(parts).combine_chunks()
        bad = _misfits(column, kind)
        if bad.any():
            check.refuse(bad, f"columns.{name}", partial(_misfit, column, kind))
            column = pc.if_else(pa.array(bad), pa.scalar(None, column.type), column)
        given[name] = column
    return encode_records(given, form.columns, rows)


def _misfit(column: pa.Array, kind: str, row: int) -> Parts:
    """Return the words of a rejection: the reason, the value, the expected type."""
    return "does not fit", column[row].as_py(), kind


def _misfits(column: pa.Array, kind: str) -> Mask:
    """Return the rows whose value the type does not allow."""
    if kind == "text":
        return _lengths(column) > MAX_LABEL_BYTES
    if pa.types.is_floating(column.type):
        found = pc.is_inf(column)
    elif kind == "bool" or pa.types.is_null(column.type):
        return np.zeros(len(column), np.bool_)
    else:
        most = EXACT_IN_FLOAT if kind == "float64" else (1 << 63) - 1
        numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
        return np.asarray((numbers > most) | (numbers < -most), np.bool_)
    return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def _content(kind: pa.DataType) -> pa.DataType:
    """Return a dictionary's value type, or any other type unchanged."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_float(kind: pa.DataType) -> bool:
    return bool(pa.types.is_float64(kind) or pa.types.is_float32(kind))


_SUITED: dict[str, tuple[list[Any], str]] = {
    "float64": ([pa.types.is_integer, _is_float], "float64, float32 or integers"),
    "int64": ([pa.types.is_integer], "integers"),
    "bool": ([pa.types.is_boolean], "bool"),
    "text": ([_is_string], "text"),
}


def _columns(batches: list[pa.RecordBatch], form: Form) -> Batch:
    rows = sum(batch.num_rows for batch in batches)
    identity = form.fields[-1]
    check = RowCheck(rows)

    values: Any
    if form.columns:
        values = _records(batches, rows, form, check)
        missing = np.zeros(rows, dtype=bool)
    else:
        values, missing = _sound_values(batches, rows, form, check)
    integers = {}
    of_texts = batches and not pa.types.is_integer(batches[0].schema.field(identity).type)
    for name, default in (("weight", 1), ("time", 0), (identity, 0)):
        if name == identity and of_texts:
            continue
        column, absent = _numbers(batches, name, rows, default)
        if batches and name in batches[0].schema.names:
            check.refuse(absent, name, lambda row: (MISSING, None))
        check.within(column, name, INT64, BEYOND_64_BITS)
        integers[name] = column.astype(np.int64)
    texts: list[Any] = []
    if identity not in integers:
        integers[identity] = np.zeros(rows, dtype=np.int64)
        texts = [text for batch in batches for text in batch.column(identity).to_pylist()]
        faults = {
            row: MISSING if text is None else fault_of_key((text,))
            for row, text in enumerate(texts)
        }
        bad = np.array([fault is not None for fault in faults.values()], dtype=bool)
        check.refuse(bad, identity, lambda row: (faults[row] or "", texts[row]))
    series = _series_fields(batches, rows, form, check) if form.names_series else None
    keys: dict[int, Key] = {}
    good = check.accepted
    if texts:
        places = enumerate(np.flatnonzero(good).tolist())
        keys = {place: (texts[row],) for place, row in places}
    return Batch(
        rows,
        np.flatnonzero(good),
        values[good]
        if form.labels or form.columns
        else values[good].astype(np.int64 if form.integers else np.float64),
        missing[good],
        integers["weight"][good],
        integers["time"][good],
        integers[identity][good],
        keys,
        check.refusals(),
        of_series=None if series is None else series(good),
    )


def _series_fields(
    batches: list[pa.RecordBatch], rows: int, form: Form, check: RowCheck
) -> Callable[[Mask], SeriesFields]:
    """Check the columns that only rows of series have. Return a function that returns those of some
    rows.
    """
    given = {name for batch in batches[:1] for name in batch.schema.names}
    starts = None
    if "start" in given:
        column, absent = _numbers(batches, "start", rows, 0)
        check.within(column, "start", INT64, BEYOND_64_BITS)
        starts = np.where(absent, NO_START, column.astype(np.int64))
    entities: list[Any] = [None] * rows
    if "entity" in given:
        entities = [each for batch in batches for each in batch.column("entity").to_pylist()]
        faults = {
            row: fault_of_key((each,)) for row, each in enumerate(entities) if each is not None
        }
        bad = np.array([bool(faults.get(row)) for row in range(rows)], bool)
        check.refuse(bad, "entity", lambda row: (faults[row] or "", entities[row]))
    names = [name for name in form.attributes if name in given]
    columns = {name: _attribute(batches, name) for name in names}

    def fields(good: Mask) -> SeriesFields:
        found = SeriesFields(None if starts is None else starts[good])
        for place, row in enumerate(np.flatnonzero(good).tolist()):
            entity = entities[row]
            if type(entity) is int:
                found.entity_ids[place] = entity
            elif entity is not None:
                found.entity_keys[place] = (entity,)
        if names:
            found.attributes = {
                name: EncodedLabels(column.texts, column.numbers[good])
                for name, column in columns.items()
            }
        return found

    return fields


def _attribute(batches: list[pa.RecordBatch], name: str) -> EncodedLabels:
    column = pa.chunked_array([batch.column(name) for batch in batches]).combine_chunks()
    if pa.types.is_null(column.type):
        return EncodedLabels([], np.full(len(column), -1, np.int64))
    encoded = column.dictionary_encode()
    numbers = encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return EncodedLabels(encoded.dictionary.to_pylist(), numbers)


def _sound_values(
    batches: list[pa.RecordBatch], rows: int, form: Form, check: RowCheck
) -> tuple[npt.NDArray[Any], Mask]:
    """Return the value column with the stream's type, and where it is null."""
    values, missing = _values(batches, rows, form)
    if not (form.integers or form.labels) and values.dtype.kind in "iu":
        check.exact(values, "value")
    if values.dtype == np.uint64:
        check.within(values, "value", INT64, BEYOND_64_BITS)
    return values, missing


def _values(batches: list[pa.RecordBatch], rows: int, form: Form) -> tuple[npt.NDArray[Any], Mask]:
    """Return the value column, with 0 or an empty text for null, and where it is null."""
    if not form.labels:
        return _numbers(batches, "value", rows, 0)
    texts: list[str | None] = [None] * rows
    if batches and "value" in batches[0].schema.names:
        texts = [text for batch in batches for text in batch.column("value").to_pylist()]
    missing = np.array([text is None for text in texts], dtype=bool)
    return value_column(["" if text is None else text for text in texts], form), missing


def _numbers(
    batches: list[pa.RecordBatch], name: str, rows: int, default: int
) -> tuple[npt.NDArray[Any], Mask]:
    """Return a number column with ``default`` for null, and where it is null."""
    if not batches or name not in batches[0].schema.names:
        return np.full(rows, default, dtype=np.int64), np.ones(rows, dtype=bool)
    columns = [batch.column(name) for batch in batches]
    filled = [column.fill_null(default).to_numpy(zero_copy_only=False) for column in columns]
    nulls = [column.is_null().to_numpy(zero_copy_only=False) for column in columns]
    return np.concatenate(filled), np.concatenate(nulls)
