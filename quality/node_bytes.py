"""What a node sends with sketches, against its rows, on real logs: bytes, which cost energy.

    python -m quality.node_bytes

A radio's energy grows with the bytes that it sends, so a node that sends a bounded sketch per
period instead of all rows lives longer (Cormode, Tirthapura and Xu 2009, section 1, in words). Here
a node is a receiver in a log. Once per period it sends one message: its rows as JSON as the
aggregator reads them, its rows as packed columns under zlib (8 bytes of time, 4 of value, 6 of id),
or a :class:`decaysketch.DecaySketch` of them. Every message has 40 bytes of headers, as in the
paper's accounting. A small message contains every row in each form. A sketch begins to save where a
period has more rows than its capacity.

Energy itself is not measured: it depends on the radio.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

import decaysketch as ds

__all__ = ["Sent", "measure", "receptions", "table"]

FOLDER: Final = Path(__file__).resolve().parents[2] / "shared" / "data" / "deliveries"
LOGS: Final = {
    "BLE, 12 receivers": "ble_set2",
    "Wi-Fi, 2 receivers": "wifi_two_receivers",
    "LoRaWAN, 50 gateways": "lorawan_tourperret",
}
PERIODS: Final = {"10 min": 600, "1 h": 3_600, "1 day": 86_400}
CAPACITIES: Final = (100, 1_000)
HEADERS: Final = 40
_ROWS: Final = 200_000  # of a log, from its beginning
_DAY_S: Final = 86_400

Int64Array = npt.NDArray[np.int64]


class Receptions(NamedTuple):
    """Rows of a log: node, time in microseconds, id and value."""

    nodes: Int64Array
    times: Int64Array
    ids: Int64Array
    values: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sent:
    """Bytes that all nodes sent in one form per period.

    Attributes:
        messages, rows: of all nodes.
        node_days: number of nodes times days of the log.
        json, packed: bytes of rows.
        sketches: bytes, by capacity.
    """

    messages: int
    rows: int
    node_days: float
    json: int
    packed: int
    sketches: dict[int, int]


def receptions(name: str, folder: Path = FOLDER) -> Receptions | None:
    """Return a log's first rows. None if its file is not on this machine."""
    path = folder / f"{name}.parquet"
    if not path.exists():
        return None
    import pyarrow.parquet as pq

    log = pq.read_table(path, columns=["path", "arrival_us", "msg", "value"]).slice(0, _ROWS)
    columns = [each.to_numpy() for each in log.columns]
    known = np.isfinite(columns[3])
    nodes, times, ids = (column[known].astype(np.int64) for column in columns[:3])
    return Receptions(nodes, times, ids, columns[3][known])


def measure(log: Receptions, period_s: int) -> Sent:
    """Add up the messages of all nodes, one per period in which a node has rows."""
    period = log.times // (period_s * 1_000_000)
    order = np.lexsort((log.times, period, log.nodes))
    starts = np.flatnonzero(
        np.diff(log.nodes[order], prepend=-1) | np.diff(period[order], prepend=-1)
    )
    sizes = [[len(_json(part)), len(_packed(part)), *map(len, _sketches(part))]
             for part in _parts(log, order, starts)]  # fmt: skip
    total = np.sum(sizes, axis=0) + HEADERS * len(sizes)
    days = (log.times.max() - log.times.min()) / 1e6 / _DAY_S
    rows_json, packed, *sketches = total.tolist()
    return Sent(
        len(sizes), len(log.times), days * len(np.unique(log.nodes)), rows_json, packed,
        dict(zip(CAPACITIES, sketches, strict=True)),
    )  # fmt: skip


def _parts(log: Receptions, order: Int64Array, starts: Int64Array) -> Iterator[Receptions]:
    for some in np.split(order, starts[1:]):
        yield Receptions(log.nodes[some], log.times[some], log.ids[some], log.values[some])


def _json(part: Receptions) -> bytes:
    rows = zip(part.values.tolist(), part.times.tolist(), part.ids.tolist(), strict=True)
    named = [{"value": value, "timestamp": time, "id": id_} for value, time, id_ in rows]
    return json.dumps({"observations": named}, separators=(",", ":")).encode()


def _packed(part: Receptions) -> bytes:
    """Columns, times as differences."""
    ids = part.ids.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :6]
    times = np.diff(part.times, prepend=0).astype("<i8")
    return zlib.compress(times.tobytes() + part.values.astype("<f4").tobytes() + ids.tobytes())


def _sketches(part: Receptions) -> Iterator[bytes]:
    for capacity in CAPACITIES:
        params = ds.SketchParams(
            max_weight=1, id_bits=40, capacity=capacity, seed=1, time_unit="us"
        )
        sketch = ds.DecaySketch(params)
        sketch.update(part.values, 1, part.times, part.ids)
        yield sketch.to_bytes()


def table(logs: dict[str, Receptions]) -> str:
    """The bytes of a node per day, and how many times less the sketches are, as lines of text."""
    head: list[Any] = ["log", "period", "rows a message", "JSON", "packed", *CAPACITIES]
    form = "{:>22}{:>8}{:>16}{:>12}{:>12}" + "{:>18}" * len(CAPACITIES)
    lines = ["Bytes of a node per day (times less than packed rows)", form.format(*map(str, head))]
    for title, log in logs.items():
        for name, period_s in PERIODS.items():
            sent = measure(log, period_s)
            sketches = [
                f"{size / sent.node_days:,.0f} ({sent.packed / size:.1f})"
                for size in sent.sketches.values()
            ]
            rows = [f"{size / sent.node_days:,.0f}" for size in (sent.json, sent.packed)]
            a_message = f"{sent.rows / sent.messages:,.0f}"
            lines.append(form.format(title, name, a_message, *rows, *sketches))
    return "\n".join(lines)


if __name__ == "__main__":
    found = {title: receptions(name) for title, name in LOGS.items()}
    there = {title: log for title, log in found.items() if log is not None}
    sys.stdout.write(f"{table(there)}\n" if there else "no log is on this machine\n")
