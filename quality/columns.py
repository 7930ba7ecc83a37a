"""Columns beside one value: rows a second, and bytes a row beside Parquet.

    python -m quality.columns [--rows 1400000] [--capacity 24000] [--only rates bytes]

*Rates*: one number and two texts, and four of each, in batches, beside a sketch of one value in the
same run. Both take turns, and the best turn counts. Texts come as one Arrow dictionary, as an equal
dictionary that is new in each batch, or as a column without one. Processor time.

*Bytes*: three logs of ``../shared/data`` at the capacity, with ids of 40 bits, and the same rows as
Parquet with zstd. A log that is absent is skipped.
"""

from __future__ import annotations

import argparse
import io
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import decaysketch as ds

__all__ = ["main"]

_DATA: Final = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"
_TURNS: Final = 3
_LOG_ROWS: Final = 400_000

Column = npt.NDArray[Any]


def _params(capacity: int, **more: Any) -> ds.SketchParams:
    return ds.SketchParams(seed=3, max_weight=1, id_bits=40, capacity=capacity, **more)


# ------------------------------------------------------------------------------------------- rates


def _rate(params: ds.SketchParams, values_of: Callable[[int], Any], rows: int, batch: int) -> float:
    """Return rows a second of the second half, into a sketch that is full by then."""
    sketch, spent = ds.DecaySketch(params), 0.0
    for start in range(0, rows, batch):
        times = np.arange(start, start + batch)
        values, ids, ones = values_of(start), times * 7_919 % (1 << 40), np.ones(batch, np.int64)
        begun = time.process_time()
        sketch.update(values, ones, times, ids)
        spent += (time.process_time() - begun) * (start >= rows // 2)
    begun = time.process_time()
    len(sketch)  # compacts
    return rows / 2 / (spent + time.process_time() - begun)


def _columns(numbers: int, texts: int, distinct: int, form: str, rows: int, batch: int) -> Any:
    """Return the parameters' columns, and a function that returns a batch."""
    rng = np.random.default_rng(4)
    given: dict[str, Any] = {
        f"n{k}": np.round(rng.normal(20.0, 5.0, rows), 1) for k in range(numbers)
    }
    for k in range(texts):
        listed = [f"text-{k}-{each:05d}" for each in range(distinct)]
        column = pa.DictionaryArray.from_arrays(
            pa.array(rng.integers(0, distinct, rows).astype(np.int32)), pa.array(listed)
        )
        given[f"t{k}"] = column.dictionary_decode() if form == "plain texts" else column

    def part(column: Any, start: int) -> Any:
        if isinstance(column, np.ndarray):
            return column[start : start + batch]
        found = column.slice(start, batch)
        if form == "new dictionaries":
            again = pa.array(found.dictionary.to_pylist())
            return pa.DictionaryArray.from_arrays(found.indices, again)
        return found

    names = ", ".join(f"{name} {'float64' if name[0] == 'n' else 'text'}" for name in given)
    return names, lambda start: {name: part(each, start) for name, each in given.items()}


def _rates(rows: int, capacity: int) -> None:
    values = np.round(np.random.default_rng(4).normal(20.0, 5.0, rows), 1)
    print("columns           batch  texts                      M rows/s  one value  ratio")
    for numbers, texts, batch, distinct, form in (
        (1, 2, 10_000, 50, "one dictionary"), (1, 2, 10_000, 300, "one dictionary"),
        (1, 2, 10_000, 3_000, "one dictionary"), (1, 2, 10_000, 3_000, "new dictionaries"),
        (1, 2, 10_000, 3_000, "plain texts"), (1, 2, 100_000, 3_000, "one dictionary"),
        (4, 4, 10_000, 300, "one dictionary"),
    ):  # fmt: skip
        names, part = _columns(numbers, texts, distinct, form, rows, batch)
        found = []
        for _ in range(_TURNS):
            one = _rate(_params(capacity), lambda at: values[at : at + batch], rows, batch)  # noqa: B023
            found.append((_rate(_params(capacity, columns=names), part, rows, batch), one))
        ours, one = (max(each) / 1e6 for each in zip(*found, strict=True))
        print(
            f"{numbers} float {texts} texts  {batch:7d}  {distinct:5d}, {form:18s}  "
            f"{ours:8.1f}  {one:9.1f}  {ours / one:5.2f}"
        )


# ------------------------------------------------------------------------------------------- bytes


def _flights(table: pa.Table) -> tuple[Column, Mapping[str, Any]]:
    """Flights by scheduled minute: two texts, two numbers."""
    columns = ("origin", "destination", "delay_min", "distance")
    return table["sched_min"].to_numpy(), {name: table[name] for name in columns}


def _air(table: pa.Table) -> tuple[Column, Mapping[str, Any]]:
    """Air of 12 stations by second, float32 with gaps."""
    names = ("temp", "dewp", "pm25", "wspm", "station")
    return table["ts"].to_numpy().astype("datetime64[s]"), {name: table[name] for name in names}


def _ble(table: pa.Table) -> tuple[Column, Mapping[str, Any]]:
    """Beacons by microsecond: each message once, with its first receiver."""
    arrival, source, message, path, value = (
        table[name].to_numpy() for name in ("arrival_us", "source", "msg", "path", "value")
    )
    key = source.astype(np.int64) << 32 | message
    _, first, heard = np.unique(key, return_index=True, return_counts=True)
    texts = {
        name: pa.array([f"{prefix}-{each}" for each in column[first].tolist()])
        for name, prefix, column in (("place", "place", source), ("receiver", "rx", path))
    }
    return arrival[first], {**texts, "rssi": value[first], "heard": heard}


_LOGS: Final[Mapping[str, tuple[str, str, Any]]] = {
    "flights": ("plain/flights3m.parquet", "min", _flights),
    "air": ("plain/beijing_air.parquet", "s", _air),
    "ble": ("deliveries/ble_set2.parquet", "us", _ble),
}


def _parquet(columns: Mapping[str, Any]) -> int:
    sink = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), sink, compression="zstd")
    return sink.tell()


def _bytes(capacity: int) -> None:
    print("log          rows  B/row  without columns  Parquet  columns alone")
    for name, (file, unit, read) in _LOGS.items():
        if not (_DATA / file).is_file():
            continue
        times, columns = read(pq.read_table(_DATA / file).slice(0, _LOG_ROWS))
        times = times.astype(np.int64)
        plain = {
            key: each if isinstance(each, pa.ChunkedArray | pa.Array) else pa.array(each)
            for key, each in columns.items()
        }
        types = ", ".join(
            f"{key} {'text' if pa.types.is_string(each.type) else 'float64'}"
            for key, each in plain.items()
        )
        ids = ds.observation_ids(np.arange(len(times)), params=_params(capacity))
        both: tuple[tuple[Any, dict[str, Any]], ...] = ((plain, {"columns": types}), (None, {}))
        sizes = []
        for given, more in both:
            sketch = ds.DecaySketch(_params(capacity, time_unit=unit, **more))
            sketch.update(given, 1, times, ids)
            sizes.append(len(sketch.to_bytes()) / len(sketch))
        kept = sketch.snapshot().states[0].ids
        held = np.isin(ids, kept)
        rows = {key: each.filter(pa.array(held)) for key, each in plain.items()}
        whole = {"time": times[held], "id": ids[held], **rows}
        print(
            f"{name:8s}  {len(kept):7d}  {sizes[0]:5.2f}  {sizes[1]:15.2f}  "
            f"{_parquet(whole) / len(kept):7.2f}  {_parquet(rows) / len(kept):13.2f}"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study and print its tables."""
    parser = argparse.ArgumentParser(prog="python -m quality.columns", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_400_000)
    parser.add_argument("--capacity", type=int, default=24_000)
    parser.add_argument("--only", nargs="+", choices=("rates", "bytes"))
    options = parser.parse_args(arguments)
    chosen = options.only or ("rates", "bytes")
    if "rates" in chosen:
        _rates(options.rows, options.capacity)
    if "bytes" in chosen:
        _bytes(options.capacity)


if __name__ == "__main__":
    main()
