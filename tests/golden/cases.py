"""What the golden files hold: by family, what each is about and the sketch.

None is ever changed, nor is how it is made. A new family begins with one of its example.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
from wire.states import MISSING, state_of_columns, states_of

from decaysketch import DecaySketch, IntegralDecaySketch
from decaysketch.asyncwindow import MedianParams, MedianSampler, SumParams, SumSampler
from decaysketch.core import hashing
from decaysketch.core.observations import encode_values
from decaysketch.core.params import SketchParams
from decaysketch.decay import integral
from decaysketch.ecm import ECMCollection, ECMParams
from decaysketch.extremes import ExtremesParams, ExtremesSketch
from decaysketch.querytime.state import SketchState
from decaysketch.series import NO_START, SeriesParams, SeriesSketch
from quality.examples import EXAMPLES, feed, stream

SMALL = SketchParams(max_weight=20, id_bits=16, capacity=30, seed=7, value_type="int64")
TABLE = integral.table([[w - x if w > x else 0 for x in range(21)] for w in range(21)])

_LARGEST = sys.float_info.max
_SMALLEST = 5e-324


@dataclass(frozen=True)
class Case:
    family: str
    name: str
    about: str
    sketch: Any
    embed_params: bool = True

    @property
    def blob(self) -> bytes:
        blob: bytes = self.sketch.to_bytes(**({} if self.embed_params else {"embed_params": False}))
        return blob


def cases() -> Iterator[Case]:
    yield from of_decay()
    yield from of_integral()
    yield from of_samplers()
    yield from of_sites()
    yield from of_extremes()
    yield from of_series()
    for family, example in EXAMPLES.items():
        sketch = example.recipe.empty()
        rows = stream(example, example.recipe, 60)
        feed(sketch, example, example.recipe, rows, told=[150] * example.clock)
        yield Case(family, "example", "the example of the family after 60 observations", sketch)


def _below(bound: int, purpose: int, index: int, of: int = 2026) -> int:
    """Numbers that look random and are the same for ever."""
    return hashing.derive(of, purpose, index) % bound


def _case(name: str, about: str, states: Sequence[SketchState], embed_params: bool = True) -> Case:
    """A query-time sketch, from states that were made by definition."""
    return Case("decay", name, about, DecaySketch.from_state(states), embed_params)


def _observations(
    params: SketchParams, rows: int, *, first: int = 1_700_000_000, span: int = 3600
) -> tuple[list[int], list[int], list[int]]:
    """Weights, times and ids."""
    return (
        [1 + _below(params.max_weight, 1, i) for i in range(rows)],
        [first + _below(span, 2, i) for i in range(rows)],
        [_below(1 << params.id_bits, 3, i) for i in range(rows)],
    )


def _states(params: SketchParams, values: list[Any], **times: int) -> list[SketchState]:
    weights, stamps, ids = _observations(params, len(values), **times)
    keys = [MISSING if v is None else int(encode_values([v], params.value_type)[0]) for v in values]
    return states_of(params, zip(keys, weights, stamps, ids, strict=True))


def of_decay() -> Iterator[Case]:
    params = SketchParams(max_weight=999, id_bits=40, capacity=24_000, seed=42)
    integers = SketchParams(
        max_weight=999, id_bits=40, capacity=24_000, seed=42, value_type="int64", time_unit="ms"
    )
    yield _case("empty", "no observation", states_of(params, []))
    yield _case("one_row", "one observation", _states(params, [21.5]))
    ten = [round(20 + _below(1000, 4, i) / 100, 2) for i in range(10)]
    yield _case("ten_rows", "ten readings, parameters in full", _states(params, ten))
    yield _case("ten_rows_by_fingerprint", "the same ten readings", _states(params, ten), False)
    some = [None if _below(3, 4, i) == 0 else float(_below(100, 5, i)) for i in range(300)]
    yield _case("missing_values", "a third of the values missing", _states(params, some))
    without = _states(params, [None] * 20)
    yield _case("no_values", "every value missing", without)
    # Time falls with the index, so that each block of 256 rows has decimals of its own.
    count = 256 * 5 + 3
    places = [0, 1, 2, 7, 14, 3]
    decimals = [(_below(200_000, 4, i) - 100_000) / 10.0 ** places[i // 256] for i in range(count)]
    weights, _, ids = _observations(params, count)
    times = [10_000_000 - 7 * i for i in range(count)]
    yield _case(
        "float_decimals",
        "blocks of 0, 1, 2, 7, 14 and 3 decimals",
        [state_of_columns(params, decimals, weights, times, ids)],
    )
    raw = [_below(1 << 53, 4, i) / (1 << 53) for i in range(30)]
    raw += [_LARGEST, -_LARGEST, _SMALLEST, -_SMALLEST, 0.0, -0.0, 1e300]
    yield _case(
        "float_raw", "floats without a short decimal form, and extremes", _states(params, raw)
    )
    extremes = [2**63 - 1, 1 - 2**63, 0, -1, 1, 2**53 + 1, None]
    yield _case("int64_extremes", "the largest and smallest int64", _states(integers, extremes))
    yield _case(
        "negative_times",
        "times before the epoch, and the earliest and latest allowed",
        states_of(
            integers,
            [(7, 1, -(2**62), 5), (8, 2, 2**62, 5), (9, 3, -1, 5), (10, 4, 0, 2**40 - 1)]
            + [(i, 999, -1000 * i, i) for i in range(10)],
        ),
    )
    count = 700
    weights = [1 if _below(10, 4, i) else 999 for i in range(count)]
    values = [_below(50, 5, i) if _below(20, 6, i) else _below(1 << 40, 7, i) for i in range(count)]
    steps = [1 if _below(50, 8, i) else 86_400 for i in range(count)]
    times = [5_000_000 - passed for passed in accumulate(steps)]
    ids = [10_000 * (count - i) + _below(4, 9, i) for i in range(count)]
    yield _case(
        "several_blocks",
        "ids by steps, exceptions by position and by bitmap",
        [state_of_columns(integers, values, weights, times, ids)],
    )
    minutes = [60 * (28_000_000 - 3 * i - _below(3, 2, i)) for i in range(count)]
    seconds = [time - (i >= 512) * _below(60, 8, i) for i, time in enumerate(minutes)]
    yield _case(
        "divided_times",
        "two blocks of times in whole minutes, which have a divisor, and one of other times",
        [state_of_columns(integers, values, weights, seconds, ids)],
    )
    small = SketchParams(max_weight=20, id_bits=16, capacity=40, seed=7, value_type="int64")
    states = _states(small, [_below(1000, 4, i) for i in range(900)], span=500)
    yield _case("watermarks", "capacity 40 after 900 observations", states)
    tiny = SketchParams(max_weight=1, id_bits=8, capacity=1, seed=3)
    tied = states_of(tiny, [(0, 1, 77, i) for i in range(256)])
    yield _case("only_watermarks", "256 observations at one time, capacity 1", tied)
    secret = SketchParams(
        max_weight=999, id_bits=40, capacity=24_000, seed=42, id_key=bytes(range(32))
    )
    yield _case("secret_key", "ids mixed under a secret key", _states(secret, ten))
    plain = SketchParams(
        max_weight=999, id_bits=40, capacity=24_000, seed=42, id_mix="none", time_unit="h"
    )
    yield _case("ids_not_mixed", "id_mix none, hours", _states(plain, ten, first=470_000, span=12))
    three = SketchParams(max_weight=20, id_bits=16, capacity=12, copies=3, seed=7)
    yield _case("three_copies_exact", "three copies, each holds all", _states(three, ten))
    readings = [round(20 + _below(1000, 4, i) / 100, 2) for i in range(150)]
    overflowed = _states(three, readings, span=100)
    yield _case("three_copies", "three copies of capacity 12 after 150 observations", overflowed)
    yield from _of_labels()
    yield from _of_columns()
    yield from _of_objectives()
    yield from _of_strata()
    yield from _of_revisions()
    yield _case("three_copies_by_fingerprint", "the same three copies", overflowed, False)


def _of_objectives() -> Iterator[Case]:
    """Samples by weight and by count, of weights from 1 to 2^12."""
    two = SketchParams(
        max_weight=1 << 12, id_bits=24, capacity=12, seed=7, objectives=("weight", "count")
    )
    rows = 300
    _, times, ids = _observations(two, rows, span=500)
    weights = [1 + _below(1 << _below(13, 6, i), 7, i) for i in range(rows)]
    values = [round(20 + _below(1000, 4, i) / 100, 2) for i in range(rows)]
    for name, about, more in (
        ("objectives", "by weight and by count, capacity 12 after 300 observations", {}),
        ("objectives_by_fingerprint", "the same by fingerprint", {}),
        ("objectives_columns", "the same with columns", {"columns": "temp float64, site text"}),
    ):
        sketch = DecaySketch(replace(two, **more))
        given: Any = values
        if more:
            given = {"temp": values, "site": [f"s{_below(5, 8, i)}" for i in range(rows)]}
        sketch.update(given, weights, times, ids)
        yield Case("decay", name, about, sketch, name != "objectives_by_fingerprint")


def _labels(rows: int) -> list[str | None]:
    """Few and many, of several alphabets, and gaps."""
    some = ["E42", "", "überhitzt", "溫度", "A1"]
    found = [_below(9, 4, i, of=2028) for i in range(rows)]
    return [some[k] if k < 5 else None if k == 5 else f"E{_below(40, 5, i, of=2028)}"
            for i, k in enumerate(found)]  # fmt: skip


def _of_columns() -> Iterator[Case]:
    types = "site text, temp float64, level int64, ok bool, empty text, single float64, raw float64"
    for name, about, more in (
        ("columns", "columns, capacity 40 after 300 observations", {}),
        ("columns_secret_key", "the same under a secret key", {"id_key": bytes(range(32))}),
        ("columns_three_copies", "the same, three copies", {"copies": 3}),
        ("columns_by_fingerprint", "the same, three copies, by fingerprint", {"copies": 3}),
        ("columns_empty", "columns without observations", {}),
    ):
        params = SketchParams(
            max_weight=20, id_bits=16, capacity=40, seed=7, columns=types, **more
        )  # fmt: skip
        sketch = DecaySketch(params)
        rows = 0 if name == "columns_empty" else 300
        sketch.update(_values_of_columns(rows), *_observations(params, rows, span=500))
        yield Case("decay", name, about, sketch, name != "columns_by_fingerprint")


def _of_revisions() -> Iterator[Case]:
    for name, about, more in (
        ("revisions", "corrections and tombstones, capacity 40 after 300 observations", {}),
        ("revisions_in_strata", "the same in strata by site", {"strata": "site"}),
    ):
        params = SketchParams(
            max_weight=20, id_bits=16, capacity=40, seed=7, revision="rev",
            columns="site text, temp float64, rev int64, ok bool", **more,
        )  # fmt: skip
        sketch = DecaySketch(params)
        weights, times, ids = _observations(params, 300, span=500)
        values = _values_of_columns(300)
        values = {each: values[each] for each in ("site", "temp", "ok")}
        sketch.update(values | {"rev": [k % 3 for k in range(300)]}, weights, times, ids)
        sketch.withdraw(where="temp > 50")
        yield Case("decay", name, about, sketch)


def _of_strata() -> Iterator[Case]:
    types = "site text, temp float64, level int64, ok bool, empty text, single float64, raw float64"
    for name, about, more in (
        ("strata", "columns in strata by site, capacity 20 after 300 observations", {}),
        ("strata_two_by_fingerprint", "strata by site and an empty column, a lower limit of strata",
         {"strata": "site, empty", "max_strata": 300}),
        ("strata_secret_key", "strata by site, under a secret key", {"id_key": bytes(range(32))}),
        ("strata_empty", "strata without observations", {}),
    ):  # fmt: skip
        given: dict[str, Any] = {"strata": "site"} | more
        params = SketchParams(
            max_weight=20, id_bits=16, capacity=20, seed=7, columns=types, **given
        )  # fmt: skip
        sketch = DecaySketch(params)
        rows = 0 if name == "strata_empty" else 300
        weights, times, ids = _observations(params, rows, span=500)
        values = _values_of_columns(rows)
        sketch.update(values, weights, times, ids)
        if rows:  # as many at one time that nothing of a stratum is left but its watermarks
            tied = {"site": ["tied"] * 900}
            sketch.update(tied, 1, [7] * 900, range(30_000, 30_900))
        yield Case("decay", name, about, sketch, name != "strata_two_by_fingerprint")


def _values_of_columns(rows: int) -> dict[str, list[Any]]:
    """Rows of each type: nulls, negative numbers, texts beyond ASCII and with equal beginnings,
    decimals of float32, and a column without any value."""
    drawn = [[_below(1000, 20 + k, i) for i in range(rows)] for k in range(6)]
    sites = ["", "site-1", "site-10", "site-2", "zürich", "東京"]
    return {
        "site": [None if x < 100 else sites[x % 6] for x in drawn[0]],
        "temp": [None if x < 50 else (x - 300) / 10 for x in drawn[1]],
        "level": [None if x < 50 else (x - 500) * 10**13 for x in drawn[2]],
        "ok": [None if x < 50 else x % 2 == 0 for x in drawn[3]],
        "empty": [None] * rows,
        "single": [float(np.float32(x / 100)) for x in drawn[4]],
        "raw": [1.0 / (1 + x) for x in drawn[5]],
    }


def _of_labels() -> Iterator[Case]:
    for name, about, more in (
        ("labels", "labels, capacity 40 after 300 observations", {}),
        ("labels_secret_key", "the same under a secret key", {"id_key": bytes(range(32))}),
        ("labels_three_copies", "the same, three copies", {"copies": 3}),
    ):
        params = SketchParams(
            max_weight=20, id_bits=16, capacity=40, seed=7, value_type="label", **more
        )
        sketch = DecaySketch(params)
        sketch.update(_labels(300), *_observations(params, 300, span=500))
        yield Case("decay", name, about, sketch)
    yield Case("decay", "labels_by_fingerprint", "as of three copies", sketch, False)


def _sketch(
    decay: integral.IntegralDecay, rows: int, clock: int | None, of: SketchParams = SMALL
) -> IntegralDecaySketch:
    sketch = IntegralDecaySketch(of, decay)
    for i in range(rows):
        sketch.update(
            _below(1000, 4, i, of=2027),
            1 + _below(of.max_weight, 1, i, of=2027),
            1_700_000_000 + _below(200, 2, i, of=2027),
            _below(1 << of.id_bits, 3, i, of=2027),
        )
    if clock is not None:
        sketch.advance(clock)
    return sketch


def of_integral() -> Iterator[Case]:
    exponential = integral.exponential(rate=0.02)
    yield Case("integral", "empty", "nothing seen, no clock", _sketch(integral.window(60), 0, None))
    labelled = replace(SMALL, value_type="label")
    sketch = IntegralDecaySketch(labelled, integral.halving(60))
    sketch.update(_labels(300), *_observations(labelled, 300, span=200), now=1_700_000_100)
    yield Case("integral", "labels", "labels after 300 observations", sketch)
    yield Case("integral", "clock", "a clock alone", _sketch(integral.window(60), 0, -5))
    yield Case(
        "integral", "exponential", "500 observations", _sketch(exponential, 500, 1_700_000_150)
    )
    yield Case(
        "integral",
        "by_fingerprint",
        "the same 500",
        _sketch(exponential, 500, 1_700_000_150),
        False,
    )
    yield Case(
        "integral", "polynomial", "no clock", _sketch(integral.polynomial(0.5, scale=3), 500, None)
    )
    yield Case("integral", "window", "a window", _sketch(integral.window(3600), 500, 1_700_000_100))
    yield Case(
        "integral", "halving", "half-lives", _sketch(integral.halving(60), 500, 1_700_000_100)
    )
    yield Case("integral", "table", "w - x, not decomposable", _sketch(TABLE, 500, 1_700_000_100))
    one = SketchParams(max_weight=1, id_bits=8, capacity=1, seed=3)
    tied = IntegralDecaySketch(one, integral.window(10))
    tied.update(None, 1, [77] * 256, list(range(256)))
    yield Case(
        "integral", "only_watermarks", "256 observations that expire at once, capacity 1", tied
    )


def of_samplers() -> Iterator[Case]:
    of_sum = SumParams(max_sum=10**6, capacity=40, max_window=3600, seed=42)
    yield Case("sum", "empty", "nothing but parameters", SumSampler(of_sum))
    one = SumSampler(of_sum)
    one.update(490, 1_700_001_790, 0, source="node-7")
    yield Case("sum", "one_row", "one element, without a clock", one)
    for name, eager in (("lazy", None), ("eager", 3)):
        params = SumParams(
            max_sum=10**6, capacity=40, max_window=3600, seed=42, eager_from_level=eager
        )
        sampler = SumSampler(params)
        for i in range(900):
            time = 1_700_000_000 + _below(5000, 2, i)
            sampler.update(1 + _below(300, 1, i) ** 2 % 300, time, i, source="node-7")
        sampler.advance(1_700_004_500)
        about = "several blocks, ties, watermarks, a clock that forgot some"
        yield Case("sum", name, about, sampler)
    floats = MedianSampler(
        MedianParams(max_count=1 << 20, capacity=60, seed=2**64 - 1, time_unit="ms")
    )
    for i in range(700):
        floats.update(_below(400, 3, i) / 10, -(10**12) + _below(300, 2, i), i, source="node-7")
    yield Case("median", "floats", "one decimal, before 1970, no largest window", floats)
    integers = MedianSampler(
        MedianParams(max_count=2, capacity=5, max_window=0, value_type="int64")
    )
    for i in range(9):
        integers.update(-(2**62) + i, 2**62 - i // 3, i, source=i)
    integers.advance(-(2**62))
    yield Case("median", "integers", "extreme values and times, two levels", integers)


def _counted(params: ECMParams, rows: int, *, late: bool = False) -> ECMCollection:
    """Of three sites, one of them begun anew; some of the events in lanes of their own."""
    collection = ECMCollection(params)
    for site, (source, epoch) in enumerate([("north", 1), ("north", 2), (17, 2**63)]):
        times = sorted(1_700_000_000 + _below(400, 2, 1000 * site + i) for i in range(rows))
        for i, time in enumerate(times):
            key = _below(40, 3, 1000 * site + i) * _below(6, 4, 1000 * site + i)
            collection.update(key, time, 1 + _below(9, 1, i) ** 3, source=source, epoch=epoch)
            if late and i % 20 == 19:
                assert len(collection)  # read: what comes now and is earlier is late
                collection.update(key, time - 30 * site, source=source, epoch=epoch)
    return collection


def of_sites() -> Iterator[Case]:
    params = ECMParams(width=7, depth=2, slots=3, seed=42)
    yield Case("ecm", "empty", "nothing but parameters", ECMCollection(params))
    told = ECMCollection(params)
    told.advance(1_700_000_000)
    yield Case("ecm", "clock", "a clock alone", told)
    one = ECMCollection(params)
    one.update("ada", 1_700_000_100, 3, source="tap-7", epoch=5)
    yield Case("ecm", "one_event", "one event of weight 3, of a key that is a text", one)
    sites = _counted(params, 150, late=True)
    yield Case("ecm", "lanes", "waves of three sites, with events in several lanes", sites)
    horizon = ECMParams(
        width=5, depth=3, slots=2, kind="eh", horizon=90, time_unit="ms", capacity=9
    )
    forgets = _counted(horizon, 150)
    forgets.advance(1_700_000_440)
    about = "histograms with a horizon, and a clock that was told"
    yield Case("ecm", "horizon", about, forgets)
    prefixes = ECMParams(width=9, depth=2, slots=2, key_bits=9, fanout_bits=3, hold=25)
    yield Case(
        "ecm", "prefixes_held_back", "integer keys by prefix, events held back",
        _counted(prefixes, 60),
    )  # fmt: skip
    region = ECMCollection(params, [sites.compact(source="region", epoch=3)])
    yield Case("ecm", "compacted", "three sites in one entry, which has slack", region)
    last = ECMCollection(ECMParams(width=5, depth=2, slots=2, clock="arrivals", seed=2**64 - 1))
    last.update([b"a", b"b", b"a", b"c"] * 9, source="tap", epoch=0)
    yield Case("ecm", "arrivals", "windows of the last arrivals", last)


def of_extremes() -> Iterator[Case]:
    params = ExtremesParams(seed=42, time_unit="us")
    yield Case("extremes", "empty", "no observation", ExtremesSketch(params))
    one = ExtremesSketch(params)
    one.update(21.5, 1, 1_700_000_000_000_000)
    yield Case("extremes", "one_row", "one observation, both a high and a low", one)
    some = ExtremesSketch(params)
    for i in range(600):
        time = 1_700_000_000_000_000 + 1_000 * _below(10**7, 2, i, of=2029)
        some.update((_below(4_000, 4, i, of=2029) - 2_000) / 100, 1, time)
    yield Case("extremes", "readings", "600 readings of two decimals", some)
    yield Case("extremes", "readings_by_fingerprint", "the same readings", some, False)
    falls = ExtremesSketch(
        ExtremesParams(capacity=3, value_type="int64", time_unit="ms", id_key=bytes(range(32)))
    )
    for i in range(900):
        falls.update(-i * i, 1, -40_000 + 100 * i + _below(50, 2, i, of=2029))
    yield Case("extremes", "falls", "values that fall, capacity 3, under a secret key", falls)
    ends = ExtremesSketch(ExtremesParams(capacity=1, value_type="int64"))
    for value, time in ((2**63 - 1, -(2**62)), (1 - 2**63, 2**62), (0, 0), (7, -1), (-7, 1)):
        ends.update(value, 1, time)
    yield Case("extremes", "ends", "extreme values and times, capacity 1", ends)


def _scraped(sketch: SeriesSketch, rows: int, *, weighted: bool = False) -> SeriesSketch:
    """Counters of 40 series, about every 15 s, with restarts, missing values and one in four rows
    twice."""
    for i in range(rows):
        series, tick = i % 40, i // 40
        time = 1_700_000_000_000 + 15_000 * tick + 350 * series + _below(9, 2, i, of=2030)
        reset = _below(12, 3, series, of=2030)
        shown = (1 + series) * (tick - reset if tick >= reset else tick)
        value = None if _below(30, 4, i, of=2030) == 0 else shown
        weight = 1 << series % 4 if weighted else 1
        for _ in range(1 + (_below(4, 5, i, of=2030) == 0)):
            sketch.update(
                np.ma.MaskedArray([shown], mask=[value is None]), weight, [time], [series]
            )
    return sketch


def of_series() -> Iterator[Case]:
    params = SeriesParams(seed=42, time_unit="ms")
    yield Case("series", "empty", "no row", SeriesSketch(params))
    one = SeriesSketch(params)
    one.update(21.5, 1, 1_700_000_000_000, 7)
    yield Case("series", "one_row", "one row", one)
    some = _scraped(SeriesSketch(params), 800)
    yield Case("series", "counters", "counters that restart, with missing values", some)
    yield Case("series", "counters_by_fingerprint", "the same counters", some, False)
    small = SeriesParams(
        capacity=60, resolution=60_000, max_weight=8, seed=7, time_unit="ms", value_type="int64",
        id_key=bytes(range(32)),
    )  # fmt: skip
    about = "declared weights, resolution of a minute, capacity 60, under a secret key"
    yield Case("series", "weights", about, _scraped(SeriesSketch(small), 1_600, weighted=True))
    started = SeriesSketch(SeriesParams(seed=3))
    for i in range(300):
        series, time = _below(20, 2, i, of=2031), 10 * _below(90, 3, i, of=2031)
        start = NO_START if series % 5 == 0 else time - time % 200 - series
        value = _below(10**6, 4, i, of=2031) / 1000
        started.update([value], 1, [time], [series], entities=[series // 3], starts=[start])
    yield Case("series", "starts", "start times, several series of an entity", started)
    attributed = SeriesSketch(SeriesParams(capacity=30, seed=6, attributes="region, job, zone"))
    for i in range(300):
        series = _below(25, 2, i, of=2034)
        texts = {"job": f"job-{series % 4}", "region": ("", "eu", None, "ü")[i // 90]}
        attributed.update([i * series], 1, [i], [series], attributes=texts)
    about = "three attributes, one without a text, another that changes, capacity 30"
    yield Case("series", "attributes", about, attributed)
    states = SeriesSketch(SeriesParams(capacity=20, seed=5))
    for i in range(400):
        states.update(_below(3, 2, i // 7, of=2032), 1, i * i, i % 9)
    yield Case("series", "states", "three states, capacity 20", states)
    raw = SeriesSketch(SeriesParams())
    for i in range(300):
        raw.update(_below(1 << 53, 4, i, of=2033) / (1 << 53), 1, i, i % 5)
    yield Case("series", "raw", "floats without a short decimal form", raw)
    ends = SeriesSketch(SeriesParams(value_type="int64"))
    for value, time in ((2**63 - 1, -(2**62)), (1 - 2**63, 2**62), (0, 0), (7, -1), (-7, 1)):
        ends.update(value, 1, time, 2**56 - 1)
    yield Case("series", "ends", "extreme values, times and ids", ends)
    tied = SeriesSketch(SeriesParams(capacity=1))
    tied.update(None, 1, [77] * 64, list(range(64)))
    yield Case("series", "only_watermarks", "64 rows of one time, capacity 1", tied)
