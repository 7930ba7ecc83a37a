"""Logs at the edges of their types: what a type cannot say is refused by name, never misread."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import decaysketch as ds
from decaysketch.errors import ObservationError, ParameterError
from decaysketch.querytime import many as _many
from decaysketch.querytime import rows_by_key
from decaysketch.tables import (
    ColumnMapping,
    FileSplit,
    KeyedBuilder,
    RowFilter,
    file_refusal_finder,
    parse_where,
    refusal_finder,
    sketches_by_key,
)
from decaysketch.tables.workers import matching_row_groups, open_parquet

PARAMS = ds.SketchParams(max_weight=1, id_bits=40, capacity=30, seed=1, time_unit="us")
MAPPING = ColumnMapping(time="t", ids=("id",), value="v", time_unit="us")


def log(rows: int = 3, **columns: Any) -> pa.Table:
    plain = {"t": np.arange(rows), "id": np.arange(rows), "v": np.ones(rows)}
    return pa.table({**plain, **columns})


def groups_read(path: Path, table: pa.Table, only: RowFilter) -> tuple[int, ...]:
    pq.write_table(table, path)
    return matching_row_groups(open_parquet(str(path)), PARAMS, MAPPING, only)


def counted(table: pa.Table, params: Any = PARAMS, keys: tuple[str, ...] = ()) -> list[int]:
    """Rows taken and refused."""
    builder = KeyedBuilder(params, MAPPING, keys, refused="count")
    builder.add(table)
    totals = sum(builder.counts.values())
    return [int(totals[0]), int(totals[3])]


def test_many_rows_at_once_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    table = log(5_000, site=pa.array(["a", "b", "a", "a", "a"] * 1_000))
    whole = sketches_by_key(table, PARAMS, MAPPING, ["site"])
    monkeypatch.setattr(rows_by_key, "_ROWS_AT_A_TIME", 700)
    monkeypatch.setattr(rows_by_key, "_FIRST_LIMIT", 1_000)
    parts = sketches_by_key(table, PARAMS, MAPPING, ["site"])
    assert {key: each.to_bytes() for key, each in parts.items()} == {
        key: each.to_bytes() for key, each in whole.items()
    }


def test_dense_sketches_are_decoded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    [sketch] = sketches_by_key(log(20), PARAMS, MAPPING).values()
    blobs = [sketch.to_bytes()] * 3

    data = np.frombuffer(b"".join(blobs), np.uint8)
    offsets = np.cumsum([0, *map(len, blobs)])

    def rows_at_once() -> int:
        found = _many.decode_many(PARAMS, data, offsets)
        return sum(len(each.times) for each in found if isinstance(each, _many.ManySketches))

    assert rows_at_once() == 60
    monkeypatch.setattr(_many, "_MOST_ROWS", 45)
    assert rows_at_once() == 40


def test_a_field_of_a_struct_is_no_column(tmp_path: Path) -> None:
    table = log(2, **{"a.b": [10, 20], "a": [{"b": 1}, {"b": 2}]})
    only = RowFilter(where=parse_where('"a.b" > 5'))
    assert groups_read(tmp_path / "log.parquet", table, only) == (0,)


def test_statistics_beyond_the_years_of_python_tell_nothing(tmp_path: Path) -> None:
    for far in (
        pa.array([0, 1 << 60, 1], pa.timestamp("us")),
        pa.array([0, 1 << 30, 1], pa.date32()),
    ):
        only = RowFilter(since=0, where=parse_where("v > 0"))
        assert groups_read(tmp_path / "log.parquet", log(t=far), only) == (0,)


def test_times_beyond_those_years_are_listed_as_numbers(tmp_path: Path) -> None:
    far = (1 << 62) + 5
    table = log(t=pa.array([0, far, 1], pa.timestamp("us")), d=[date(2020, 1, 1)] * 3)
    assert counted(table) == [2, 1]
    [found] = refusal_finder(PARAMS, MAPPING)(iter(table.to_batches()))
    assert found.column("row").to_pylist() == [1]
    assert f'"t": {far}' in found.column("record")[0].as_py()
    pq.write_table(table, tmp_path / "log.parquet")
    splits = [FileSplit(str(tmp_path / "log.parquet"), (0,), 0)]
    numbers = [pa.record_batch({"id": pa.array([0])})]
    [found] = file_refusal_finder(splits, PARAMS, MAPPING)(iter(numbers))
    assert found.column("row").to_pylist() == [1]


def test_old_parquet_times_do_not_wrap_around(tmp_path: Path) -> None:
    """INT96, as Spark has long written times, has nanoseconds; 9999-12-31 is beyond them."""
    times = pa.array([1, 253_402_214_400_000_000, 2], pa.timestamp("us"))
    table = log(t=times)
    path = tmp_path / "log.parquet"
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    with open_parquet(str(path)) as file:
        assert (
            file.read().column("t").cast(pa.int64()).to_pylist()
            == times.cast(pa.int64()).to_pylist()
        )


def test_a_null_in_a_dictionary_is_no_id() -> None:
    table = log(id=pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), [None, "a"]))
    with pytest.raises(ObservationError, match=r"id\[0\] is missing"):
        sketches_by_key(table, PARAMS, MAPPING)
    assert counted(table) == [1, 2]


def test_full_dictionaries() -> None:
    words = [f"w{number}" for number in range(128)]
    indices = pa.array([*range(128), None], pa.int8())
    column = pa.DictionaryArray.from_arrays(indices, words)
    table = log(129, site=column)
    assert len(sketches_by_key(table, PARAMS, MAPPING, ["site"])) == 129
    assert counted(log(129, id=column)) == [128, 1]


def test_the_smallest_integer_is_refused_where_keys_are_many() -> None:
    params = ds.SketchParams(max_weight=1, id_bits=40, time_unit="us", value_type="int64")
    table = log(v=[1, -(1 << 63), 2], site=[1, 1, 2])
    assert counted(table, params, ("site",)) == [2, 1]


def test_a_timestamp_beyond_nanoseconds_is_no_id() -> None:
    table = log(id=pa.array([0, 1 << 60, 1], pa.timestamp("us")))
    with pytest.raises(ObservationError, match="id"):
        sketches_by_key(table, PARAMS, MAPPING)


@pytest.mark.parametrize(
    "site",
    [
        pa.array([1, 2, 3], pa.timestamp("ns")),
        pa.array([1, 2, 1 << 63], pa.uint64()),
        pa.array([b"a", b"\xff", b"b"]).view(pa.string()),
    ],
    ids=["nanoseconds", "unsigned", "no UTF-8"],
)
def test_keys_that_cannot_be_kept_are_named(site: pa.Array) -> None:
    with pytest.raises(ParameterError, match="site"):
        sketches_by_key(log(site=site), PARAMS, MAPPING, ["site"])


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("n >= 1.75e18", [False, True, True]),
        ("n < 1750000000000000001.0", [True, False, False]),
        ("n > 0.5", [False, True, True]),
        ("n = 0.5", [False, False, False]),
        ("n != 0.5", [True, True, True]),
    ],
)
def test_integers_compare_to_fractions_exactly(text: str, taken: list[bool]) -> None:
    numbers = pa.array([0, 1_750_000_000_000_000_000, 1_750_000_000_000_000_001])
    [comparison] = parse_where(text)
    assert comparison.mask(log(n=numbers)).tolist() == taken


def test_what_is_below_a_microsecond_is_refused() -> None:
    [comparison] = parse_where("n = '1970-01-01T00:00:00.000000001'")
    with pytest.raises(ParameterError, match="n"):
        comparison.mask(log(n=pa.array([0, 1, 2], pa.timestamp("ns"))))
