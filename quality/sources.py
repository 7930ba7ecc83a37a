"""Streams on disk, with what a study must know of each: the simulated one and real logs.

A stream is prepared once, as one ``.npy`` file for each column, and mapped by every process that
reads it. The real logs are in ``../shared/data/deliveries``; where that folder is absent there are
none. Their messages have no weights of their own that all copies share, so each weighs 999: a count
in thousandths, which integral decays can resolve. Times are taken in units that make the decays of
section 5 (200 units, 0.01 per unit) reach over more observations than the largest sample holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

import decaysketch as ds
from quality import stream
from quality.stream import Columns, Distinct

__all__ = ["LOGS", "PAPER_RATIOS", "Predicate", "Source", "log", "simulated"]

_FOLDER: Final = Path(__file__).resolve().parents[2] / "shared" / "data" / "deliveries"
_LOG_ID_BITS: Final = 40


@dataclass(frozen=True)
class Predicate:
    """``v / w >= limit``, or, where values are signal strengths in dBm, ``v >= limit``."""

    limit: int
    per_weight: bool

    def __call__(self, values: Any, weights: Any) -> Any:
        return values >= (self.limit * weights if self.per_weight else self.limit)

    def __str__(self) -> str:
        return f"v/w ≥ {self.limit}" if self.per_weight else f"signal ≥ {self.limit} dBm"


# P1, P2 and P3 of section 5.2.
PAPER_RATIOS: Final = tuple(Predicate(limit, per_weight=True) for limit in (2, 3, 4))


@dataclass(frozen=True)
class Source:
    """A prepared stream.

    Attributes:
        name: as in names of files.
        title: as in headings.
        folder: where the columns are.
        rows: elements, copies included.
        distinct: distinct observations of weight 1 or more.
        now: time of the queries: the processing time of the last element.
        id_bits: ids are below ``2^id_bits``.
        unit: of times.
        predicates: what selectivity is measured for.
    """

    name: str
    title: str
    folder: Path
    rows: int
    distinct: int
    now: int
    id_bits: int
    unit: str
    predicates: tuple[Predicate, ...]

    def params(self, capacity: int, seed: int) -> ds.SketchParams:
        """Build parameters for this stream."""
        return ds.SketchParams(
            max_weight=stream.MAX_WEIGHT,
            id_bits=self.id_bits,
            capacity=capacity,
            seed=seed,
            value_type="int64",
        )

    def columns(self) -> Columns:
        """The elements."""
        return _columns(self.folder)

    def truth(self) -> Distinct:
        """The distinct observations."""
        return Distinct(*_read(self.folder, "distinct", Distinct._fields))


def simulated(folder: Path, rows: int, *, seed: int = 1) -> Source:
    """The stream of section 5.1; see :mod:`quality.stream`."""
    columns = stream.simulate(rows, seed=seed)
    return _prepared(
        folder / "simulated", columns, "simulated", "simulated web log", stream.ID_BITS, "s",
        PAPER_RATIOS,
    )  # fmt: skip


@dataclass(frozen=True)
class _Log:
    file: str
    title: str
    unit: str
    unit_s: int
    limits: tuple[int, int, int]  # of signal strength, dBm


LOGS: Final = {
    "wifi": _Log(
        "wifi_two_receivers", "Wi-Fi probe requests, two receivers", "h", 3600, (-80, -70, -60)
    ),
    "ble": _Log("ble_set2", "Bluetooth beacons, twelve receivers", "10 min", 600, (-74, -70, -66)),
}


def log(folder: Path, name: str) -> Source | None:
    """A real log, or None where it is not on this machine."""
    entry = LOGS[name]
    path = _FOLDER / f"{entry.file}.parquet"
    if not path.exists():
        return None
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["arrival_us", "event_us", "source", "msg", "value"])
    arrival, event, source, message, value = (column.to_numpy() for column in table.columns)
    unit_us = entry.unit_s * 1_000_000
    timestamps = event // unit_us
    params = ds.SketchParams(max_weight=stream.MAX_WEIGHT, id_bits=_LOG_ID_BITS)
    columns = Columns(
        values=value.astype(np.int64),
        weights=np.full(len(value), stream.MAX_WEIGHT),
        timestamps=timestamps,
        ids=ds.observation_ids(source, message, params=params),
        clocks=np.maximum.accumulate(np.maximum(arrival // unit_us, timestamps)),
    )
    predicates = tuple(Predicate(limit, per_weight=False) for limit in entry.limits)
    return _prepared(
        folder / name, columns, name, entry.title, _LOG_ID_BITS, entry.unit, predicates
    )


def _prepared(
    folder: Path,
    columns: Columns,
    name: str,
    title: str,
    id_bits: int,
    unit: str,
    predicates: tuple[Predicate, ...],
) -> Source:
    folder.mkdir(parents=True)
    exact = stream.distinct(columns)
    for label, table in (("element", columns), ("distinct", exact)):
        for field, column in table._asdict().items():
            np.save(folder / f"{label}-{field}.npy", column)
    return Source(
        name=name,
        title=title,
        folder=folder,
        rows=len(columns.ids),
        distinct=len(exact.weights),
        now=int(columns.clocks[-1]),
        id_bits=id_bits,
        unit=unit,
        predicates=predicates,
    )


@lru_cache(maxsize=2)
def _columns(folder: Path) -> Columns:
    return Columns(*_read(folder, "element", Columns._fields))


def _read(folder: Path, label: str, fields: tuple[str, ...]) -> Iterator[Any]:
    """Mapped columns. Private to the process and so writable, which is what kernels are compiled
    for; nothing is written."""
    for field in fields:
        yield np.asarray(np.load(folder / f"{label}-{field}.npy", mmap_mode="c"))
