"""Counts of keys by others: exactly, without time, and by another ECM-sketch, in one run with ours.

All count the stream of ``ecm.py`` and are asked how often each key came in the last half of it, or
ever where they know no time; so is ours, beside those. Those that take one event at a time get
plain Python numbers.

* *a deque for each key*: its times in the window, in a dictionary; exact, for one window that was
  chosen beforehand.
* *polars*: all rows, grouped by key for each question; exact, for any.
* *count-min* and *frequent items* of Apache DataSketches: no window and no decay, so they can only
  be asked about all time.
* *probstructs*: the public ECM-sketch, in C++ behind Python, one event at a time, keys as text, one
  window at most as long as was chosen beforehand. It tells its size to nobody.

Errors are relative to all events that were asked about, and are means over keys.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import decaysketch as ds
from benchmarks import machine
from benchmarks.report import Comparison, Section, Table
from decaysketch.ecm import ECMParams, ECMSketch

__all__ = ["Events", "add"]

EPSILON, DELTA = 0.05, 0.1
BATCH = 10_000
SINGLES = 200_000  # events, for what takes them one by one
LG_ITEMS = 11  # frequent items: 2^11 places, of which it uses three quarters
TOP = 20
_NUMBER_BYTES = 28  # of a Python integer

Float64Array = npt.NDArray[np.float64]


class Events(NamedTuple):
    """A stream in order, and the window that is asked about.

    Attributes:
        words: uint64[n], keys.
        times: int64[n], not falling.
        window: time units, back from the last event.
    """

    words: npt.NDArray[np.uint64]
    times: npt.NDArray[np.int64]
    window: int

    def head(self, count: int) -> Events:
        """The first so many, with the window cut to half of their span where it is longer."""
        times = self.times[:count]
        window = min(self.window, int(times[-1] - times[0]) // 2)
        return Events(self.words[:count], times, window)

    def exact(self, window: int | None) -> tuple[npt.NDArray[np.uint64], Float64Array]:
        """Keys of a window, or of all time, and how often each came."""
        start = 0 if window is None else int(np.searchsorted(self.times, self.now - window))
        keys, counts = np.unique(self.words[start:], return_counts=True)
        return keys, counts.astype(np.float64)

    @property
    def now(self) -> int:
        return int(self.times[-1])


@dataclass(frozen=True)
class _Rival:
    """One way to count.

    Attributes:
        name, answers: as in the table.
        package: that must be installed, "" for none.
        singly: one event at a time.
        make: of the stream, an empty one.
        feed: it and a stream; everything.
        ask: it, the stream, keys; counts of the window, or of all time.
        size: bytes that it sends, or holds; None where it does not tell.
        window: whether it knows one.
    """

    name: str
    answers: str
    package: str
    singly: bool
    make: Callable[[Events], Any]
    feed: Callable[[Any, Events], Any]
    ask: Callable[[Any, Events, npt.NDArray[np.uint64]], Any]
    size: Callable[[Any], int | None]
    window: bool = True


def _ecm(_events: Events) -> ECMSketch:
    return ECMSketch(ECMParams.for_accuracy(EPSILON, DELTA, seed=1), source=0, epoch=1)


def _feed_batches(sketch: ECMSketch, events: Events) -> ECMSketch:
    for row in range(0, len(events.words), BATCH):
        sketch.update(events.words[row : row + BATCH], events.times[row : row + BATCH])
    return sketch


def _feed_singly(sketch: ECMSketch, events: Events) -> ECMSketch:
    update = sketch.update
    for word, when in zip(events.words.tolist(), events.times.tolist(), strict=True):
        update(word, when)
    return sketch


def _ask_ecm(sketch: ECMSketch, events: Events, keys: npt.NDArray[np.uint64]) -> Float64Array:
    return sketch.key_count(keys, ds.decay.window(events.window), now=events.now).value


def _ask_ecm_ever(sketch: ECMSketch, _events: Events, keys: npt.NDArray[np.uint64]) -> Float64Array:
    return sketch.key_count(keys, ds.decay.none()).value


Deques = defaultdict[int, deque[int]]


def _feed_deques(held: Deques, events: Events) -> Deques:
    window = events.window
    for word, when in zip(events.words.tolist(), events.times.tolist(), strict=True):
        times = held[word]
        times.append(when)
        while times[0] < when - window:
            times.popleft()
    return held


def _ask_deques(held: Deques, events: Events, keys: npt.NDArray[np.uint64]) -> list[int]:
    start = events.now - events.window
    counts = []
    for word in keys.tolist():
        times = held[word]
        while times and times[0] < start:
            times.popleft()
        counts.append(len(times))
    return counts


def _size_of_deques(held: Deques) -> int:
    times = sum(map(len, held.values())) * _NUMBER_BYTES
    return sys.getsizeof(held) + sum(map(sys.getsizeof, held.values())) + times


def _frame(_events: Events) -> list[Any]:
    return []


def _feed_frame(frames: list[Any], events: Events) -> list[Any]:
    import polars as pl

    frame = pl.DataFrame(schema={"word": pl.UInt64, "time": pl.Int64})
    for row in range(0, len(events.words), BATCH):
        part = slice(row, row + BATCH)
        frame.extend(pl.DataFrame({"word": events.words[part], "time": events.times[part]}))
    frames.append(frame)
    return frames


def _ask_frame(frames: list[Any], events: Events, keys: npt.NDArray[np.uint64]) -> Any:
    import polars as pl

    inside = frames[0].lazy().filter(pl.col("time") >= events.now - events.window)
    counts = inside.group_by("word").len()
    asked = pl.LazyFrame({"word": keys}).join(counts, on="word", how="left", maintain_order="left")
    return asked.collect()["len"].fill_null(0).to_numpy()


def _count_min(events: Events) -> Any:
    import datasketches

    params = _ecm(events).params
    return datasketches.count_min_sketch(params.depth, params.width)


def _frequent_items(_events: Events) -> Any:
    import datasketches

    return datasketches.frequent_items_sketch(LG_ITEMS)


def _feed_keys(sketch: Any, events: Events) -> Any:
    update = sketch.update
    for word in events.words.tolist():
        update(word)
    return sketch


def _ask_keys(sketch: Any, _events: Events, keys: npt.NDArray[np.uint64]) -> list[float]:
    return [sketch.get_estimate(word) for word in keys.tolist()]


def _size_of_items(sketch: Any) -> int:
    import datasketches

    return len(sketch.serialize(datasketches.PyLongsSerDe()))


def _probstructs(events: Events) -> Any:
    import probstructs

    params = _ecm(events).params
    return probstructs.ExponentialCountMinSketch(params.width, params.depth, events.window)


def _feed_texts(sketch: Any, events: Events) -> Any:
    count = sketch.inc
    for word, when in zip(events.words.tolist(), events.times.tolist(), strict=True):
        count(str(word), when, 1)
    return sketch


def _ask_texts(sketch: Any, events: Events, keys: npt.NDArray[np.uint64]) -> list[int]:
    window, now = events.window, events.now
    return [sketch.get(str(word), window, now) for word in keys.tolist()]


_OURS = "ECMSketch, batches"
_OURS_SINGLY = "ECMSketch, one by one"
_OURS_EVER = "ECMSketch, about all time"
_RIVALS = (
    _Rival(_OURS, "any window or decay", "", False, _ecm, _feed_batches, _ask_ecm,
           lambda sketch: len(sketch.to_bytes())),
    _Rival(_OURS_SINGLY, "any window or decay", "", True, _ecm, _feed_singly, _ask_ecm,
           lambda sketch: len(sketch.to_bytes())),
    _Rival(_OURS_EVER, "any window or decay", "", True, _ecm, _feed_singly, _ask_ecm_ever,
           lambda sketch: len(sketch.to_bytes()), window=False),
    _Rival("a deque for each key", "one window, exactly", "", True,
           lambda events: defaultdict(deque), _feed_deques, _ask_deques, _size_of_deques),
    _Rival("polars group-by", "any window or decay, exactly", "polars", False, _frame, _feed_frame,
           _ask_frame, lambda frames: int(frames[0].estimated_size())),
    _Rival("count-min", "all time: no window", "datasketches", True, _count_min, _feed_keys,
           _ask_keys, lambda sketch: len(sketch.serialize()), window=False),
    _Rival("frequent items", "all time: no window", "datasketches", True, _frequent_items,
           _feed_keys, _ask_keys, _size_of_items, window=False),
    _Rival("probstructs", "one window or shorter ones", "probstructs", True, _probstructs,
           _feed_texts, _ask_texts, lambda sketch: None),
)  # fmt: skip


class _Measured(NamedTuple):
    """Best rates, errors of all keys and of the heaviest, and bytes."""

    update: float
    question: float
    all_keys: float
    heaviest: float
    size: int | None


def _measure(rival: _Rival, events: Events, repetitions: int) -> _Measured:
    warm = events.head(1_000)  # imports, and what is compiled or started once
    rival.ask(rival.feed(rival.make(warm), warm), warm, warm.exact(None)[0])
    asked = events.exact(events.window if rival.window else None)
    update = question = float("inf")
    for _ in range(repetitions):
        empty = rival.make(events)
        start = time.process_time()
        fed = rival.feed(empty, events)
        update = min(update, time.process_time() - start)
        start = time.process_time()
        found = rival.ask(fed, events, asked[0])
        question = min(question, time.process_time() - start)
    errors = np.abs(np.asarray(found, np.float64) - asked[1]) / asked[1].sum()
    heaviest = errors[np.argsort(-asked[1], kind="stable")[:TOP]]
    # A question that takes no time that this clock can tell takes a tick of it.
    question = max(question, time.get_clock_info("process_time").resolution)
    return _Measured(
        len(events.words) / update, len(asked[0]) / question, float(errors.mean()),
        float(heaviest.mean()), rival.size(fed),
    )  # fmt: skip


def add(section: Section, events: Events, repetitions: int) -> None:
    """Put the rivals' tables and comparisons into a section."""
    few, found = events.head(SINGLES), {}
    for rival in _RIVALS:
        if rival.package and machine.installed(rival.package) is None:
            missing = f"{rival.package}: not installed"
            if missing not in section.skipped:
                section.skipped.append(missing)
            continue
        found[rival] = _measure(rival, few if rival.singly else events, repetitions)
    section.tables += [_rates(found), _errors(found)]
    section.comparisons += _comparisons(found)


def _rates(found: dict[_Rival, _Measured]) -> Table:
    return Table(
        "Counts of keys, beside others: rates and bytes",
        ("sketch", "answers", "M events/s", "M keys asked/s", "bytes"),
        [
            (
                rival.name, rival.answers, f"{m.update / 1e6:.2f}", f"{m.question / 1e6:.2f}",
                "unknown" if m.size is None else f"{m.size:,}",
            )
            for rival, m in found.items()
        ],
        labels=2,
        notes=[
            "Best of all repetitions, processor time. Contenders that accept one event at a time "
            f"counted the first {SINGLES:,}, the others all. Every key in the window is queried "
            "once, just after the last event. Bytes are sent bytes, and for deques and polars "
            "stored bytes."
        ],
    )  # fmt: skip


def _errors(found: dict[_Rival, _Measured]) -> Table:
    return Table(
        "Counts of keys, beside others: error over all events that were asked about",
        ("sketch", "asked about", "all keys", f"{TOP} heaviest"),
        [
            (
                rival.name, "the window" if rival.window else "all time",
                f"{m.all_keys:.3g}", f"{m.heaviest:.3g}",
            )
            for rival, m in found.items()
        ],
        labels=2,
        notes=[
            f"ECM-sketches have epsilon {EPSILON}, delta {DELTA}. Count-min and probstructs have "
            f"as many rows and columns, frequent items 2^{LG_ITEMS} places."
        ],
    )  # fmt: skip


def _comparisons(found: dict[_Rival, _Measured]) -> list[Comparison]:
    named = {rival.name: m for rival, m in found.items()}
    comparisons = []
    for rival, theirs in found.items():
        if rival.name in (_OURS, _OURS_SINGLY, _OURS_EVER):
            continue
        singly = _OURS_SINGLY if rival.window else _OURS_EVER
        ours = named[singly if rival.singly else _OURS]
        way = "one by one" if rival.singly else f"in batches of {BATCH:,}"
        task = f"counts of keys (rival: {rival.answers})"
        comparisons += [
            Comparison(f"{task}: events {way}", rival.name, "events a second",
                       ours.update, theirs.update, "more"),
            Comparison(f"{task}: all keys asked about", rival.name, "keys a second",
                       ours.question, theirs.question, "more"),
            Comparison(f"{task}: mean error of all keys", rival.name, "of all events",
                       ours.all_keys, theirs.all_keys, "less"),
        ]  # fmt: skip
        if ours.size and theirs.size:
            comparisons.append(
                Comparison(f"{task}: size", rival.name, "bytes", ours.size, theirs.size, "less")
            )
    return comparisons
