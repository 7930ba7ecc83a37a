"""What sketches of several sources say of each other, against the truth of logs.

    python -m quality.coverage [--part intervals|guard|silence|cover|unheard|audit|files|levels]
                               [--seeds 40] [--log NAME]

``intervals``  the share of 95 % intervals that hold the truth, and the RMS error, over hashes:
               unions, overlaps, Jaccard, delivery ratios, exclusive counts, changes of a ratio, for
               three capacities and three decays. 500 hashes take about 1 s of processor time each.
``guard``      two sources, one of which is an hour and more behind: bias of exclusive counts
               without a guard, with the one that is derived, and unbounded.
``silence``    a receiver that was down for half of the time: its share with and without the spell,
               and false spells of the others.
``cover``      the share of the best five as chosen on the rows that judge it, and by halves.
``unheard``    models of messages that no receiver heard, where the others are hidden: how often an
               interval holds the result of its own model on all rows, and the truth.
``audit``      three stages of a pipeline that loses: share lost, since when, ids.
``files``      the same from a CSV file for each stage, by the command line alone. Ids that are
               reported as missing are looked up in the files.

``levels``     bytes that a relay forwards in 12 hours: the union of its sources, each source, and
               each source from a level on. With a share that such parts estimate.

Logs are those of ``../shared/data/deliveries``, skipped where that folder is absent, and five drawn
ones (:data:`DRAWN`): unequal sources, clustered outages, clocks that drift, messages that a source
posts again with a later time, sources that joined late, and all of these together. Messages are
thinned where that saves time and not truth.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

import decaysketch as ds
from decaysketch.sources.expression import quoted, read_expression

__all__ = ["DRAWN", "Log", "drawn", "main", "shared"]

CAPACITIES: Final = (100, 800, 3000)
HOUR_MS: Final = 3_600_000
FROM_LEVEL: Final = 4  # of the part levels

_FOLDER: Final = Path(__file__).resolve().parents[2] / "shared" / "data" / "deliveries"
_LOGS: Final = {"ble_set2": 6, "wifi_two_receivers": 4, "lorawan_tourperret": 1}  # every so many

Bools = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Log:
    """Messages by source.

    Attributes:
        name: of the log.
        names: of the sources.
        heard: bool[n, k].
        times: int64[n, k], in ms, of each duplicate.
        before: int64[n, k], earlier times with which a source posted its duplicates first.
    """

    name: str
    names: tuple[str, ...]
    heard: Bools
    times: Int64Array
    before: Int64Array | None = None

    @property
    def latest(self) -> Int64Array:
        """int64[n], the latest time of each message."""
        latest: Int64Array = np.where(self.heard, self.times, np.iinfo(np.int64).min).max(axis=1)
        return latest

    @property
    def now(self) -> int:
        return int(self.latest.max())

    @property
    def span(self) -> int:
        return self.now - int(self.latest.min())

    def sketches(self, capacity: int, seed: int) -> dict[str, ds.DecaySketch]:
        """One of each source."""
        params = ds.SketchParams(capacity=capacity, seed=seed, time_unit="ms")
        made = {}
        for source, name in enumerate(self.names):
            rows = np.flatnonzero(self.heard[:, source])
            made[name] = _built(params, self.times[rows, source], rows)
            if self.before is not None:
                first = _built(params, self.before[rows, source], rows)
                made[name] = ds.merge([made[name], first, made[name]])
        return made

    def only(self, sources: Any) -> Log:
        """Some of the sources, and the messages that they heard."""
        heard = self.heard[:, sources]
        some = heard.any(axis=1)
        names = tuple(self.names[source] for source in sources)
        before = None if self.before is None else self.before[:, sources][some]
        return Log(self.name, names, heard[some], self.times[:, sources][some], before)


def _built(params: ds.SketchParams, times: Int64Array, ids: Int64Array) -> ds.DecaySketch:
    made = ds.DecaySketch(params)
    made.looks_at_times = False  # of the logs, times begin in 1970
    made.update(None, 1, times, ids)
    return made


def shared(*, own_stamps: bool = False) -> Iterator[Log]:
    """The logs of the shared folder; duplicates at one time unless ``own_stamps``."""
    for name, step in _LOGS.items():
        path = _FOLDER / f"{name}.parquet"
        if path.exists():
            yield _read(path, step, own_stamps)


def _read(path: Path, step: int, own_stamps: bool) -> Log:
    table = pq.read_table(path, columns=["source", "msg", "arrival_us", "path"]).to_pandas()
    message = table.groupby(["source", "msg"], sort=False).ngroup().to_numpy()
    kept = message % step == 0
    names, source = np.unique(table["path"].to_numpy(str)[kept], return_inverse=True)
    message, arrival = message[kept] // step, table["arrival_us"].to_numpy()[kept] // 1000
    n = int(message.max()) + 1
    heard = np.zeros((n, len(names)), np.bool_)
    heard[message, source] = True
    if own_stamps:
        times = np.full(heard.shape, np.iinfo(np.int64).min)
        np.maximum.at(times, (message, source), arrival)
    else:
        first = np.full(n, np.iinfo(np.int64).max)
        np.minimum.at(first, message, arrival)
        times = np.repeat(first[:, np.newaxis], len(names), axis=1)
    return Log(path.stem, tuple(map(str, names)), heard, times)


DRAWN: Final = {
    "unequal": {"unequal"},
    "outages": {"outages"},
    "drift": {"drift"},
    "again": {"again"},
    "late": {"late"},
    "everything": {"unequal", "outages", "drift", "again", "late"},
}
"""Drawn logs, and what is hard about each."""


def drawn(name: str = "everything", *, seed: int = 1, n: int = 40_000) -> Log:
    """Eight sources in 30 days, some of whose messages are harder to hear than others."""
    rng, hard = np.random.default_rng(seed), DRAWN[name]
    rates = np.array([0.9, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.01])
    if "unequal" not in hard:
        rates = np.linspace(0.7, 0.4, len(rates))
    base = np.sort(rng.integers(0, 30 * 24 * HOUR_MS, n))
    faint = rng.normal(0.0, 1.0, n)[:, np.newaxis]
    heard = rng.random((n, len(rates))) < 1.0 / (1.0 + (1.0 / rates - 1.0) * np.exp(-faint))
    if "outages" in hard:
        for source in (1, 3):
            for begin in rng.choice(n, 12, replace=False):
                heard[begin : begin + int(rng.integers(20, 400)), source] = False
    if "late" in hard:
        heard[: n // 2, 4] = heard[: int(0.8 * n), 2] = False
    times = np.repeat(base[:, np.newaxis], len(rates), axis=1)
    if "drift" in hard:  # up to 2 s in a month, and 0.3 s of jitter
        drift = np.linspace(0.0, 1.0, n)[:, np.newaxis] * rng.integers(-2000, 2000, len(rates))
        times = times + drift.astype(np.int64) + rng.integers(0, 300, heard.shape)
    before = None
    if "again" in hard:  # a fifth comes again, about a minute later
        before = times
        again = rng.random(heard.shape) < 0.2
        times = times + again * rng.exponential(60_000.0, heard.shape).astype(np.int64)
    some = heard.any(axis=1)
    return Log(
        f"drawn, {name}", tuple("abcdefgh"), heard[some], times[some],
        None if before is None else before[some],
    )  # fmt: skip


def decays(log: Log) -> dict[str, ds.Decay]:
    """None, a half-life of a tenth of the log, and a window of its last 2 %."""
    return {
        "none": ds.decay.none(),
        "half-life": ds.decay.exponential(half_life=log.span // 10),
        "window": ds.decay.window(log.span // 50),
    }


class Held:
    """Intervals against truths, by what was asked."""

    def __init__(self) -> None:
        self._found: dict[Any, list[tuple[bool, float]]] = defaultdict(list)

    def add(self, key: Any, estimate: ds.Estimate, truth: float, *, absolute: bool = False) -> None:
        """A share without a row in its denominator has no result, and is not counted."""
        if np.isnan(estimate.value):
            return
        slack = 1e-9 * max(abs(truth), 1.0)
        held = estimate.lower - slack <= truth <= estimate.upper + slack
        error = estimate.value - truth
        self._found[key].append((held, error / truth if truth and not absolute else error))

    def lines(self) -> Iterator[str]:
        for key, found in sorted(self._found.items()):
            held, error = np.array(found, float).T
            rms, bias = float(np.sqrt(np.mean(error**2))), float(error.mean())
            yield (
                f"{' | '.join(map(str, key)):64s} held {held.mean():.3f} of {len(held):4d}  "
                f"RMS {rms:.4f}  bias {bias:+.4f}"
            )

    def rows(self) -> Iterator[str]:
        """A line for each log and result: the smallest share that held at each capacity, over the
        decays, and the RMS error at capacity 800 without a decay.
        """
        smallest: dict[Any, float] = defaultdict(lambda: 1.0)
        for (log, label, capacity, _), found in self._found.items():
            held = float(np.mean([each for each, _ in found]))
            smallest[log, label, capacity] = min(smallest[log, label, capacity], held)
        for log, label in dict.fromkeys(key[:2] for key in smallest):
            ends = " ".join(f"{smallest[log, label, each]:.3f}" for each in CAPACITIES)
            errors = [error for _, error in self._found.get((log, label, 800, "none"), ())]
            rms = float(np.sqrt(np.mean(np.square(errors)))) if errors else np.nan
            yield f"| {log} | {label} | {ends} | {rms:.3f} |"


def _sets(log: Log) -> list[tuple[str, str, str | None]]:
    """Name, expression, and the expression that it is a share of."""
    order = np.argsort(-log.heard.sum(axis=0), kind="stable")
    a = quoted(log.names[order[0]])
    b = quoted(log.names[order[min(5, len(order) - 1)]])
    alone = quoted(log.names[order[min(3, len(order) - 1)]])
    usual = 2 + int(np.bincount(log.heard.sum(axis=1))[2:].argmax())
    return [
        ("union", "any", None),
        ("overlap", f"{a} & {b}", None),
        ("Jaccard", f"{a} & {b}", f"{a} | {b}"),
        ("share of B that A heard", f"{a} & {b}", b),
        ("exclusive", f"{alone} & exactly(1)", None),
        (f"heard by exactly {usual}", f"exactly({usual})", None),
    ]


class _Truth:
    """Histories of all rows of a log, as an expression reads them."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.sources = len(log.names)
        self.degrees = log.heard.sum(axis=1).astype(np.int32)

    def heard(self, name: str) -> Bools:
        column: Bools = self._log.heard[:, self._log.names.index(name)]
        return column


def _truth(log: Log, decay: ds.Decay, now: int, text: str, *, of: str | None = None) -> float:
    """The decayed count of a set, or its share. A message has its latest time among the sources
    that are read.
    """
    wanted = [read_expression(each) for each in (text, of) if each is not None]
    read = log
    if not any(each.reads_all for each in wanted):
        names = {name for each in wanted for name in each.names}
        read = log.only([place for place, name in enumerate(log.names) if name in names])
    latest = read.latest
    weights = np.zeros(len(latest))
    weights[latest <= now] = decay(np.int64(now) - latest[latest <= now])
    masses = [float(weights[each.holds(_Truth(read))].sum()) for each in wanted]
    if of is None:
        return masses[0]
    return masses[0] / masses[1] if masses[1] > 0.0 else np.nan


def intervals(seeds: int, chosen: str | None = None) -> Iterator[str]:
    """See the module."""
    for log in (*shared(), *map(drawn, DRAWN)):
        if chosen is not None and log.name != chosen:
            continue
        begun, held = time.process_time(), Held()
        asked = list(_asked(log))
        for seed in range(1000, 1000 + seeds):
            for capacity in CAPACITIES:
                sketches = log.sketches(capacity, seed)
                sources = ds.SourceSet(sketches, guard="auto" if "drawn" in log.name else 0)
                views = {name: sources.at(decay, log.now) for name, decay in decays(log).items()}
                for label, name, ask, truth in asked:
                    key = (log.name, label, capacity, name)
                    held.add(key, ask(views[name]), truth, absolute=label.startswith("change"))
        yield from held.lines()
        yield from held.rows()
        took = time.process_time() - begun
        yield f"{log.name}: {took:.0f} s of processor time for {seeds} hashes"


_Ask = Callable[[Any], ds.Estimate]


def _asked(log: Log) -> Iterator[tuple[str, str, _Ask, float]]:
    """Label, decay, query and truth. Sets without a message in the denominator are skipped."""
    for name, decay in decays(log).items():
        for label, text, of in _sets(log):
            truth = _truth(log, decay, log.now, text, of=of)
            if of is None:
                yield label, name, partial(_count, text=text), truth
            elif np.isfinite(truth):
                yield label, name, partial(_share, text=text, of=of), truth
        sets = _sets(log)
        for label, text in (("union, joint", sets[0][1]), ("exclusive, joint", sets[4][1])):
            truth = _truth(log, decay, log.now, text)
            yield label, name, partial(_joint, text=text), truth
        _, text, of = sets[3]
        assert of is not None
        then = log.now - log.span // 5
        change = _truth(log, decay, log.now, text, of=of) - _truth(log, decay, then, text, of=of)
        if np.isfinite(change):
            ask = partial(_change, text=text, of=of, then=(decay, then))
            yield "change of that share", name, ask, change


def _count(view: Any, text: str) -> Any:
    return view.count(text)


def _share(view: Any, text: str, of: str) -> Any:
    return view.share(text, of=of)


def _joint(view: Any, text: str) -> Any:
    return view.where(text).ask("count")


def _change(view: Any, text: str, of: str, then: Any) -> Any:
    return view.versus(text, of=of, then=then)


def guard(seeds: int) -> Iterator[str]:
    """See the module."""
    for log in shared(own_stamps=True):
        if log.name != "ble_set2":
            continue
        order = np.argsort(-log.heard.sum(axis=0), kind="stable")[:2]
        two = log.only(order)
        rng = np.random.default_rng(5)
        late = two.times.copy()
        late[:, 0] += HOUR_MS + rng.exponential(HOUR_MS, len(late)).astype(np.int64)
        two = Log("ble, one an hour behind", two.names, two.heard, late)
        a, b = map(quoted, two.names)
        held = Held()
        for seed in range(seeds):
            for capacity in (100, 800):
                sketches = two.sketches(capacity, seed)
                for bound in (0, "auto", "unbounded"):
                    sources = ds.SourceSet(sketches, guard=bound)
                    for name, decay in decays(two).items():
                        view = sources.at(decay, two.now)
                        for text in (f"{a} - {b}", f"{a} & {b}"):
                            label = "A - B" if "-" in text else "A & B"
                            key = (label, capacity, name, f"guard {bound}")
                            truth = _truth(two, decay, two.now, text)
                            held.add(key, view.where(text).ask("count"), truth)
        yield from held.lines()


def silence(seeds: int) -> Iterator[str]:
    """See the module."""
    for log in shared():
        if log.name != "ble_set2":
            continue
        begin = int(log.latest.min())
        down = (begin + int(0.35 * log.span), begin + int(0.85 * log.span))
        heard = log.heard.copy()
        heard[(log.latest >= down[0]) & (log.latest <= down[1]), 3] = False
        cut = Log(log.name, log.names, heard, log.times)
        others = " | ".join(quoted(name) for place, name in enumerate(log.names) if place != 3)
        up = log.heard[:, [place for place in range(len(log.names)) if place != 3]].any(axis=1)
        truth, held, false, looks = float(log.heard[up, 3].mean()), Held(), 0, 0
        for seed in range(seeds):
            for capacity in (100, 800):
                sources = ds.SourceSet(cut.sketches(capacity, seed), guard=0)
                found = {each.source for each in sources.at("none", cut.now).silences()}
                false += len(found - {log.names[3]})
                looks += len(log.names) - 1
                for without in (False, True):
                    view = sources.at("none", cut.now, without_silence=without)
                    key = ("without the spell" if without else "as it stands", capacity)
                    held.add(key, view.share(quoted(log.names[3]), of=others), truth)
        yield f"share while up {truth:.3f}; false spells {false} in {looks} checks of the others"
        yield from held.lines()


def cover(seeds: int) -> Iterator[str]:
    """See the module."""
    for log in shared():
        most = min(5, len(log.names) - 1)
        for capacity in (100, 800):
            gain, honest, inside = [], [], 0
            for seed in range(seeds):
                view = ds.SourceSet(log.sketches(capacity, seed), guard=0).at("none", log.now)
                steps = view.cover(1.0)[:most]
                places = [log.names.index(each.source) for each in steps]
                truth = log.heard[:, places].any(axis=1).mean()
                gain.append(sum(each.gain for each in steps) - truth)
                covered = steps[-1].covered
                honest.append(covered.value - truth)
                inside += covered.lower <= truth <= covered.upper
            yield (
                f"{log.name} | best {most} | {capacity}: same rows {np.mean(gain):+.4f}, by halves "
                f"{np.mean(honest):+.4f}, held {inside / seeds:.2f} of {seeds}"
            )


def unheard(seeds: int) -> Iterator[str]:
    """See the module."""
    from decaysketch.sources.unheard import unheard_of

    for log in shared():
        if log.name != "ble_set2":
            continue
        rng, found = np.random.default_rng(11), defaultdict(list)
        for seed in range(seeds):
            ours = rng.choice(len(log.names), int(rng.choice([2, 3, 4])), replace=False)
            some = log.only(ours)
            truth = float(len(log.heard) - len(some.heard))
            view = ds.SourceSet(some.sketches(800, seed), guard=0).at("none", log.now)
            whole = unheard_of(
                np.ones(len(some.heard)),
                [np.flatnonzero(some.heard[:, place]) for place in range(len(ours))],
                confidence=0.95,
            )
            result = view.unheard()
            for model, full in zip(result.models, whole.models, strict=True):
                found[f"{model.name}, its own model"].append(
                    model.lower <= full.value <= model.upper
                )
                found[f"{model.name}, the truth"].append(model.lower <= truth <= model.upper)
            found["span, the truth"].append(result.lower <= truth <= result.upper)
        for key, held in sorted(found.items()):
            yield f"{key:40s} held {np.mean(held):.2f} of {len(held)}"


@dataclass(frozen=True)
class _Pipeline:
    """Broker, lake and warehouse. The warehouse loses 5 % from 70 % of the log on."""

    stages: Log
    broke: int
    lost: Bools
    there: Bools  # in the warehouse

    @classmethod
    def of(cls, log: Log) -> _Pipeline:
        rng, n = np.random.default_rng(4), len(log.latest)
        broke = int(log.latest.min()) + int(0.7 * log.span)
        lost = rng.random(n) < np.where(log.latest > broke, 0.05, 0.004)
        late = rng.exponential(20 * 60_000, n)
        there = ~lost & (log.latest + late <= log.now)
        heard = np.stack([np.ones(n, bool), rng.random(n) < 0.999, there], axis=1)
        names = "broker", "lake", "warehouse"
        return cls(Log("audit", names, heard, log.latest[:, None] + 0 * heard), broke, lost, there)

    @property
    def settled(self) -> int:
        return self.stages.now - 4 * HOUR_MS

    @property
    def truth(self) -> float:
        """The share that is lost in the last week, once settled."""
        times = self.stages.latest
        last = (times <= self.settled) & (times > self.settled - 7 * 24 * HOUR_MS)
        return float(self.lost[last].mean())

    def messages_between(self, after: int, before: int) -> int:
        """Messages by which a change that is reported between two misses the true one."""
        begin, middle, end = sorted((after, self.broke, before))
        times = self.stages.latest
        return 0 if middle == self.broke else int(((times > begin) & (times < end)).sum())


def _wifi() -> Iterator[Log]:
    return (log for log in shared() if log.name == "wifi_two_receivers")


def audit(seeds: int) -> Iterator[str]:
    """See the module."""
    for log in _wifi():
        pipeline = _Pipeline.of(log)
        week = ds.decay.window(7 * 24 * HOUR_MS)
        shares: dict[str, list[float]] = defaultdict(list)
        wrong = told = 0
        for seed in range(seeds):
            sources = ds.SourceSet(pipeline.stages.sketches(3000, seed), guard=0)
            for name, at in (("as of now", log.now), ("settled", pipeline.settled)):
                found = sources.at(week, at).share("broker - warehouse", of="broker")
                shares[name].append(found.value)
            view = sources.at("none", pipeline.settled)
            change = view.since("broker - warehouse", of="broker")
            assert change is not None
            apart = pipeline.messages_between(change.after, change.before)
            shares["messages between"].append(float(apart))
            ids = [each.id for each in view.missing("broker - warehouse", 10_000)]
            told += len(ids)
            wrong += int(pipeline.there[ids].sum())
        yield f"truly lost in the last week, settled: {pipeline.truth:.4f}"
        for name, values in shares.items():
            yield f"{name}: median {np.median(values):.4f}"
        yield f"ids told as missing: {told}, of which the warehouse has {wrong}"


def files(seeds: int) -> Iterator[str]:
    """See the module. ``seeds`` has no meaning: there is one run."""
    for log in _wifi():
        pipeline = _Pipeline.of(log)
        with tempfile.TemporaryDirectory() as folder:
            yield from _of_files(pipeline, Path(folder))


def _of_files(pipeline: _Pipeline, folder: Path) -> Iterator[str]:
    stages = pipeline.stages
    for place, name in enumerate(stages.names):
        rows = np.flatnonzero(stages.heard[:, place])
        log = pa.table(
            {
                "time": pa.array(stages.times[rows, place]).cast(pa.timestamp("ms", "UTC")),
                "device": [f"d-{row % 997}" for row in rows.tolist()],
                "counter": rows // 997,
            }
        )
        pa_csv.write_csv(log, folder / f"{name}.csv")
        _command(
            "build", folder / f"{name}.csv", "--out", folder / f"{name}.sketch", "--id-columns",
            "device,counter", "--value-column", "", "--time-unit", "ms", "--capacity", 3000,
        )  # fmt: skip
    files = [folder / f"{name}.sketch" for name in stages.names]
    lost = ("--set", "broker - warehouse", "--of", "broker", "--json")
    for name, *more in (("as of now",), ("settled", "--settle", "4h")):
        found = json.loads(_command("coverage", *files, "--decay", "window(7d)", *lost, *more))
        share = found["share"]
        ends = "{value:.4f} [{lower:.4f}, {upper:.4f}]".format(**share)
        unsettled = f", unsettled: {', '.join(found['unsettled']) or 'none'}"
        yield f"share lost in the last week, {name}: {ends}; truly {pipeline.truth:.4f}{unsettled}"
    found = json.loads(_command("coverage", *files, *lost, "--settle", "4h", "--missing", 10_000))
    since = found["since"]
    apart = pipeline.messages_between(since["after"], since["before"])
    yield (
        f"changed from {since['was']:.4f} to {since['became']:.4f}, {apart} messages of "
        f"{len(stages.latest):,} away from the true moment"
    )
    missing = {each["id"] for each in found["missing"]}
    yield f"ids reported as missing: {len(missing)}"
    params = ds.SketchParams(time_unit="ms", capacity=3000)
    for name in stages.names:
        log = pa_csv.read_csv(folder / f"{name}.csv")
        ids = ds.observation_ids(log["device"].to_numpy(), log["counter"].to_numpy(), params=params)
        yield f"of them in {name}.csv: {len(missing & set(ids.tolist()))}"


def levels(seeds: int) -> Iterator[str]:
    """See the module. ``seeds`` has no meaning: there is one run."""
    path = _FOLDER / "ble_set2.parquet"
    if not path.exists():
        return
    log = _read(path, 1, own_stamps=False)
    some = np.argsort(log.latest, kind="stable")
    some = some[log.latest[some] > log.now - 12 * HOUR_MS]
    log = Log(log.name, log.names, log.heard[some], log.times[some])
    params = ds.SketchParams(capacity=800, time_unit="ms")
    for flush_s in (60, 600):
        bins = (log.latest - log.now) // (1000 * flush_s)
        size, parts = _forwarded(log, params, np.flatnonzero(np.diff(bins, prepend=bins[0] - 1)))
        listed = ", ".join(f"{name} {bytes_ / 1000:.0f} kB" for name, bytes_ in size.items())
        yield f"a post each {flush_s} s: {listed}"
    first_two = [quoted(name) for name in log.names[:2]]
    truth = float(log.heard[log.heard[:, 1], 0].mean())
    for level, sketches in parts.items():
        view = ds.SourceSet(sketches, guard=0, from_level=level).at("none", log.now)
        found = view.share(" & ".join(first_two), of=first_two[1])
        yield f"share from level {level}: {found!r}; truly {truth:.3f}"


def _forwarded(
    log: Log, params: ds.SketchParams, begins: Int64Array
) -> tuple[dict[str, int], dict[int, dict[str, ds.DecaySketch]]]:
    """Bytes of the posts that begin at these rows, and the sketches upstream by level."""
    size: dict[str, int] = defaultdict(int)
    known = {
        level: {name: ds.DecaySketch(params) for name in log.names} for level in (0, FROM_LEVEL)
    }
    for begin, end in zip(begins, [*begins[1:], len(log.times)], strict=True):
        heard = log.heard[begin:end]
        posts = [
            _built(params, log.times[begin:end, place][heard[:, place]],
                   begin + np.flatnonzero(heard[:, place]))
            for place in range(len(log.names))
        ]  # fmt: skip
        size["one union"] += len(ds.merge(posts).to_bytes())
        for name, post in zip(log.names, posts, strict=True):
            for level in known:
                part = post.snapshot().part(level)
                if len(part):
                    size[f"each source from level {level}"] += len(part.to_bytes())
                    known[level][name].merge(part)
    return size, known


def _command(*arguments: object) -> str:
    """Run the command line as a program; returns its standard output."""
    program = [str(Path(sys.executable).parent / "decaysketch"), *map(str, arguments)]
    return subprocess.run(program, check=True, capture_output=True, text=True, timeout=600).stdout


_PARTS: Final[dict[str, Callable[[int], Iterator[str]]]] = {
    "intervals": intervals,
    "guard": guard,
    "silence": silence,
    "cover": cover,
    "unheard": unheard,
    "audit": audit,
    "files": files,
    "levels": levels,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m quality.coverage", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--part", choices=_PARTS, action="append")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--log", help="a single log of the part intervals")
    options = parser.parse_args(arguments)
    parts = _PARTS | {"intervals": partial(intervals, chosen=options.log)}
    for name in options.part or parts:
        print(f"# {name}", flush=True)
        for line in parts[name](options.seeds):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
