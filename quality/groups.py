"""Intervals of filters, groups, columns and comparisons: how often they hold the true result.

    python -m quality.groups [--seeds 500] [--capacities 24000 3000 800] [--logs flights air ...]
        [--only A/B]

Three real logs in ``../shared/data``, each as a stream with columns: flights (heavy tails), air
(follows the season) and beacons (few levels). An absent log is skipped. Seven made streams have a
property that is hard for a sample: groups of very different size, a heavy tail, a column that
follows the weight or the time, a group that appears late, nulls, and duplicates that disagree.

The 22 queries were fixed beforehand. Each seed is another hash function, so another sample of the
same rows. An exact sketch of all rows gives the true results. If intervals hold as they aim, the
coverage in 500 seeds lies below 93 % with a chance of 2 % for each query.

``flagged`` is the share of results with a caveat, which says that an interval may miss more often.
``silent`` is the share of all results that miss without a caveat.
"""

from __future__ import annotations

import argparse
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

import decaysketch as ds
from decaysketch import decay
from decaysketch.query.modifiers import Modifiers

_DATA = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"
_ROWS, _MADE = 400_000, 60_000

Column = npt.NDArray[Any]


@dataclass(frozen=True)
class Log:
    """A stream with columns.

    Attributes:
        name: its name.
        unit: unit of its times.
        types: the columns, as in sketch parameters.
        times, columns: its rows, NaN or None where null.
        half_life: of the decay.
        x, y: number columns that the queries read. ``y`` is positive.
        where, small, rare: conditions of half the rows, of a small group, of few rows.
        parts: conditions of two groups to compare.
        by: a key of many groups.
        weights, ids: of the rows.
    """

    name: str
    unit: str
    types: str
    times: Column
    columns: Mapping[str, Column]
    half_life: int
    x: str
    y: str
    where: str
    small: str
    rare: str
    parts: tuple[str, str]
    by: str
    weights: Any = 1
    ids: Column | None = field(default=None)

    @property
    def max_weight(self) -> int:
        """The largest weight."""
        return int(np.max(self.weights))


# --------------------------------------------------------------------------------------- real logs


def _flights(path: pathlib.Path) -> Log:
    table = pq.read_table(path).slice(0, _ROWS)
    numbers = {
        name: table[name].to_numpy(zero_copy_only=False).astype(np.float64)
        for name in ("delay_min", "distance")
    }
    origin = np.array(table["origin"].to_pylist(), object)
    names, counts = np.unique(origin.astype(str), return_counts=True)
    order = names[np.argsort(-counts)]
    return Log(
        "flights", "min", "delay_min float64, distance float64, origin text",
        table["sched_min"].to_numpy().astype(np.int64), numbers | {"origin": origin}, 7 * 1440,
        "delay_min", "distance", "distance > 700", f"origin == '{order[80]}'", "delay_min > 600",
        (f"origin == '{order[3]}'", f"origin == '{order[4]}'"), "origin",
    )  # fmt: skip


def _air(path: pathlib.Path) -> Log:
    names = ("pm25", "wspm", "temp")
    table = pq.read_table(path, columns=["ts", "station", *names])
    columns: dict[str, Column] = {
        name: table[name].to_numpy(zero_copy_only=False).astype(np.float64) for name in names
    }
    columns["station"] = np.array(table["station"].to_pylist(), object)
    first, second = np.unique(columns["station"].astype(str))[:2]
    small = f"station == '{first}' and hour(time) == 5 and wspm > 3"
    return Log(
        "air", "s", "pm25 float64, wspm float64, temp float64, station text",
        table["ts"].to_numpy().astype("datetime64[s]").astype(np.int64), columns, 90 * 86_400,
        "pm25", "wspm", "temp > 14", small, "pm25 > 600",
        (f"station == '{first}'", f"station == '{second}'"), "station, hour(time)",
    )  # fmt: skip


def _ble(path: pathlib.Path) -> Log:
    read = ("arrival_us", "source", "msg", "path", "value")
    table = pq.read_table(path, columns=list(read))
    arrival, source, msg, receiver, value = (
        table[name].to_numpy(zero_copy_only=False) for name in read
    )
    key = source.astype(np.int64) << 32 | msg
    _, first, copies = np.unique(key, return_index=True, return_counts=True)
    places = np.array([f"place-{each}" for each in source[first]], object)
    listed = np.unique(places.astype(str))
    columns = {
        "rssi": value[first].astype(np.float64), "heard": copies.astype(np.float64),
        "place": places, "receiver": np.array([f"rx-{each}" for each in receiver[first]], object),
    }  # fmt: skip
    return Log(
        "ble", "us", "rssi float64, heard float64, place text, receiver text",
        arrival[first].astype(np.int64), columns, int(np.ptp(arrival)) // 8, "rssi", "heard",
        "heard >= 11", f"place == '{listed[5]}' and heard < 9", "heard < 6",
        (f"place == '{listed[0]}'", f"place == '{listed[1]}'"), "place, receiver",
    )  # fmt: skip


_FILES: Mapping[str, tuple[str, Callable[[pathlib.Path], Log]]] = {
    "flights": ("plain/flights3m.parquet", _flights),
    "air": ("plain/beijing_air.parquet", _air),
    "ble": ("deliveries/ble_set2.parquet", _ble),
}


# ------------------------------------------------------------------------------------ made streams


def _made(name: str) -> Log:
    """Return a made stream. Its groups g0, g1, ... halve in size."""
    rng = np.random.default_rng(sum(map(ord, name)))
    n = _MADE
    times = np.sort(rng.integers(0, 100_000, n))
    sizes = 0.5 ** np.arange(12) if name == "uneven groups" else np.ones(12)
    group = rng.choice(12, n, p=sizes / sizes.sum())
    x, weights, ids = rng.normal(group, 3.0), np.ones(n, np.int64), np.arange(n)
    y = np.exp(rng.normal(0.0, 0.5, n)) + 0.1 * np.abs(x)
    if name == "heavy tail":
        x = 2.0 + group + rng.pareto(2.2, n)
    elif name == "follows the weight":
        weights = np.minimum(1 + rng.geometric(0.1, n), 60)
        x = x + weights
    elif name == "follows the time":
        x = x + times / 10_000.0
    elif name == "late group":
        late = (times > 97_000) & (rng.random(n) < 0.2)
        x, group = np.where(late, x + 20.0, x), np.where(late, 7, np.where(group == 7, 6, group))
    elif name == "nulls":
        x = np.where(rng.random(n) < 0.1 + 0.05 * group, np.nan, x)
        y = np.where(rng.random(n) < 0.3, np.nan, y)
    elif name == "duplicates disagree":
        twice = rng.random(n) < 0.5
        ids, times, y = (np.concatenate([each, each[twice]]) for each in (ids, times, y))
        x = np.concatenate([x, x[twice] + rng.normal(0.0, 2.0, int(twice.sum()))])
        group = np.concatenate([group, rng.choice(12, int(twice.sum()))])
        weights = np.ones(len(ids), np.int64)
    columns = {"x": x, "y": y, "g": np.array([f"g{each}" for each in group], object)}
    return Log(
        name, "s", "x float64, y float64, g text", times, columns, 25_000, "x", "y", "y > 1",
        "g == 'g9' and y < 0.8", "x > 25", ("g == 'g7'", "g == 'g1'"), "g, hour(time)", weights,
        ids,
    )  # fmt: skip


MADE = (
    "uneven groups", "heavy tail", "follows the weight", "follows the time", "late group", "nulls",
    "duplicates disagree",
)  # fmt: skip


def logs(names: list[str]) -> Iterator[Log]:
    """Yield the logs that exist."""
    for name in names:
        if name in MADE:
            yield _made(name)
            continue
        file, read = _FILES[name]
        path = _DATA / file
        if path.is_file():
            yield read(path)
        else:
            print(f"{name}: no {path.name}, skipped")


# ------------------------------------------------------------------------------------- the queries


def _sketch(log: Log, capacity: int, seed: int) -> Any:
    params = ds.SketchParams(
        max_weight=log.max_weight, id_bits=40, capacity=capacity, time_unit=log.unit, seed=seed,
        columns=log.types,
    )  # fmt: skip
    sketch: Any = ds.DecaySketch(params)
    number = np.arange(len(log.times)) if log.ids is None else log.ids
    sketch.update(log.columns, log.weights, log.times, ds.observation_ids(number, params=params))
    return sketch


_HOUR = "hour(time, 'America/New_York') == 9"
Ask = Callable[[Any, Log], Any]
QUERIES: Mapping[str, Ask] = {
    "count where": lambda v, log: v.given(where=log.where).ask("count"),
    "count rare": lambda v, log: v.given(where=log.rare).ask("count"),
    "count, small group": lambda v, log: v.given(where=log.small).ask("count"),
    "count, season": lambda v, log: v.given(weight="1 + cos(0.2618 * (hour(time) - 9))").ask(
        "count"
    ),
    "sum where": lambda v, log: v.given(where=log.where, of=log.x).ask("total"),
    "mean where": lambda v, log: v.given(where=log.where, of=log.x).ask("mean"),
    "mean at the hour": lambda v, log: v.given(where=_HOUR, of=log.x).ask("mean"),
    "mean, small group": lambda v, log: v.given(where=log.small, of=log.x).ask("mean"),
    "mean, rising weight": lambda v, log: v.given(
        weight=f"1 - exp(-age / {log.half_life})", of=log.x
    ).ask("mean"),
    "stddev where": lambda v, log: v.given(where=log.where, of=log.x).ask("stddev"),
    "median where": lambda v, log: v.given(where=log.where, of=log.x).ask("median"),
    "p90, small group": lambda v, log: v.given(where=log.small, of=log.x).ask("quantile", q=0.9)[0],
    "share where": lambda v, log: v.given(where=log.where, of=f"{log.y} > 1.5").ask("mean"),
    "ratio": lambda v, log: v.ask("ratio", columns=[log.x, log.y]),
    "covariance": lambda v, log: v.ask("covariance", columns=[log.x, log.y]),
    "correlation": lambda v, log: v.ask("correlation", columns=[log.x, log.y]),
    "correlation, small group": lambda v, log: v.given(where=log.small).ask(
        "correlation", columns=[log.x, log.y]
    ),
    "slope": lambda v, log: v.ask("regression", columns=[log.x, log.y])[1],
    "slope of two": lambda v, log: v.ask("regression", columns=[log.x, log.y, "hour(time)"])[2],
    "A/B: difference of means": lambda v, log: _compared(log, v, "mean", of=log.x),
    "A/B: ratio of counts": lambda v, log: _compared(log, v, "count", how="ratio"),
    "A/B: ratio of means": lambda v, log: _compared(log, v, "mean", of=log.y, how="ratio"),
}  # fmt: skip


def _compared(log: Log, view: Any, question: str, **more: Any) -> Any:
    where, versus = log.parts
    return view.modified(Modifiers(where=versus, versus=where, **more)).ask(question)


def _table(log: Log, view: Any, question: str, of: str | None, **more: Any) -> Any:
    given = view if of is None else view.given(of=of)
    return given.by([key.strip() for key in log.by.split(", ")], **more).ask(question)


TABLES: Mapping[str, Ask] = {
    "all group means": lambda v, log: _table(log, v, "mean", log.x),
    "all group counts": lambda v, log: _table(log, v, "count", None),
    "all group medians": lambda v, log: _table(log, v, "median", log.x),
}


class Truth:
    """The results of a log's queries, from all its rows.

    Args:
        log: the log.
        only: part of the names of the queries.
    """

    def __init__(self, log: Log, only: str = "") -> None:
        sketch = _sketch(log, 1 << 20, 1)
        self.now = int(log.times.max())
        view = sketch.at(decay.exponential(half_life=log.half_life), self.now)
        self.found = {name: ask(view, log).value for name, ask in QUERIES.items() if only in name}
        self.groups = {
            name: {tuple(row.by.values()): row.answer.value for row in ask(view, log)}
            for name, ask in TABLES.items()
            if only in name
        }


class Seen(NamedTuple):
    """One result: whether its interval held, whether it has a caveat, and its relative width."""

    held: bool
    flagged: bool
    width: float


def holds(true: float, lower: float, upper: float) -> bool:
    """Return whether an interval contains a number, up to rounding."""
    slack = 1e-9 * (1.0 + abs(true))
    return bool(np.isnan(true) or lower - slack <= true <= upper + slack)


def _one(log: Log, truth: Truth, capacity: int, seed: int, tally: dict[str, list[Seen]]) -> None:
    view = _sketch(log, capacity, seed).at(decay.exponential(half_life=log.half_life), truth.now)

    def add(name: str, held: bool, flagged: bool = False, width: float = np.nan) -> None:
        tally.setdefault(name, []).append(Seen(held, flagged, width))

    for name, true in truth.found.items():
        found = QUERIES[name](view, log)
        width = (found.upper - found.lower) / max(abs(true), 1e-300)
        add(name, holds(true, found.lower, found.upper), bool(found.caveats), width)
    for name, true in truth.groups.items():
        table = TABLES[name](view, log)
        rows = {tuple(row.by.values()): row.answer for row in table}
        add(name, all(holds(true[key], each.lower, each.upper) for key, each in rows.items()))
        if name == "all group counts":
            unseen = (value for key, value in true.items() if key not in rows)
            add("unseen groups within bound", max(unseen, default=0.0) <= table.unseen_at_most)
            listed = _table(log, view, "count", None, limit=5)
            add("certain groups are largest", _is_certain(listed, true))


def _is_certain(table: Any, true: Mapping[Any, float]) -> bool:
    listed = {tuple(row.by.values()): row.certain for row in table}
    rest = max((value for key, value in true.items() if key not in listed), default=0.0)
    return all(true[key] >= rest for key, certain in listed.items() if certain)


def main() -> None:
    """Measure, and print a table for each log and capacity."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--capacities", type=int, nargs="+", default=[24_000, 3_000, 800])
    parser.add_argument("--logs", nargs="+", choices=[*_FILES, *MADE], default=[*_FILES, *MADE])
    parser.add_argument("--only", default="", help="queries whose names contain this")
    asked = parser.parse_args()
    for log in logs(asked.logs):
        truth = Truth(log, asked.only)
        for capacity in asked.capacities:
            begun, tally = time.process_time(), dict[str, list[Seen]]()
            for seed in range(1, asked.seeds + 1):
                _one(log, truth, capacity, seed, tally)
            spent = time.process_time() - begun
            print(f"\n{log.name}, capacity {capacity}, {asked.seeds} seeds, {spent:.0f} s")
            for name, seen in tally.items():
                held, flagged, _ = np.mean(np.array(seen, float), axis=0)
                silent = np.mean([not each.held and not each.flagged for each in seen])
                width = float(np.median([each.width for each in seen]))
                shown = "" if np.isnan(width) else f"  width {width:.3g}"
                print(
                    f"  {name:28} {100 * held:6.1f} %  flagged {100 * flagged:3.0f} %  "
                    f"silent {100 * silent:4.1f} %{shown}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
