"""Prometheus remote write: both versions give the same readings; what names one; refusals."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest.exports import STALE, field, version_1, version_2

from decaysketch import DecaySketch, SketchParams, observation_ids
from decaysketch.families import recipe_of
from decaysketch.ingest.columns import Form, check, points_to_columns
from decaysketch.ingest.formats import Mappings
from decaysketch.ingest.points import Points
from decaysketch.ingest.readings import UnreadableError
from decaysketch.ingest.remote_write import parse, plain_length

PARAMS = SketchParams(max_weight=1, id_bits=40, time_unit="ms", value_type="float64")
FORM = Form(recipe_of(PARAMS), "s", None, 10_000)
T = 1_700_000_000_000
LABELS = {"__name__": "temp", "room": "r1", "replica": "a"}


def maps(*given: dict[str, Any]) -> Any:
    return Mappings.model_validate({"map": [{"format": "prometheus"} | each for each in given]}).map


TEMP = {"metric": "temp"}


def read(series: Any, *given: dict[str, Any]) -> Points:
    chosen = maps(*(given or (TEMP,)))
    found = parse(version_1(series), chosen)
    assert found == parse(version_2(series), chosen, version=2)
    return found


def test_a_sample_is_a_reading() -> None:
    found = read([(LABELS, [(21.5, T), (22.0, T + 5)])])
    key = ('{"replica":"a","room":"r1"}', "temp", T * 10**6)
    assert found.key(0) == key
    assert (found.values, found.times_ns) == ([21.5, 22.0], [T * 10**6, (T + 5) * 10**6])
    batch = check(points_to_columns(found, FORM), FORM)
    ids = observation_ids(*([part] for part in key), params=PARAMS)
    assert batch.columns.ids[0] == ids[0]


def test_a_pair_gives_one_reading_for_each_period() -> None:
    given = TEMP | {"drop_labels": ["replica"], "dedup": "10s"}
    pair = [(LABELS, [(1.0, T + 1)]), (LABELS | {"replica": "b"}, [(1.0, T + 9_000)])]
    found = read(pair, given)
    assert found.key(0) == found.key(1) == ('{"room":"r1"}', "temp", 170_000_000)


def test_what_is_no_value_is_skipped_and_what_is_no_sample_refused() -> None:
    series = [
        (LABELS, [(STALE, T), (float("nan"), T), (1.0, T)]),
        (LABELS | {"__name__": "other"}, [(1.0, T)]),
        (LABELS | {"room": "r2"}, [(float("inf"), T)]),
    ]
    found = read(series, TEMP, TEMP | {"where": {"room": "r1"}})
    assert found.values == [1.0, 1.0]
    assert found.told.skipped == {"no value": 4, "metric": 1, "where": 1}
    assert found.told.refused == [("series 3 temp", "is inf; expected a number")]
    histogram = version_1([(LABELS, [(1.0, T)])], more=field(4, b"\x08\x01"))
    told = parse(histogram, maps(TEMP)).told
    assert told.refused == [("series 1 temp", "is a native histogram; expected samples")]
    twice = field(1, 2 * field(1, field(1, b"__name__") + field(2, b"temp")) + field(2, b""))
    assert parse(twice, maps(TEMP)).told.refused == [
        ("series 1 a series", "a label is there twice")
    ]


def test_what_is_zero_is_left_out_by_its_writer() -> None:
    body = field(1, field(1, field(1, b"__name__") + field(2, b"temp")) + field(2, b""))
    found = parse(body, maps(TEMP))
    assert (found.values, found.times_ns) == ([0.0], [0])


def test_times_before_1970_are_negative() -> None:
    assert read([(LABELS, [(1.0, -5)])]).times_ns == [-5 * 10**6]


@given(st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_any_splitting_order_and_repetition_give_the_same_bytes(draw: random.Random) -> None:
    series = [
        ({"__name__": "temp", "room": f"r{n % 3}"}, [(float(n % 7), T + n)]) for n in range(40)
    ]

    def built(bodies: list[Any]) -> bytes:
        sketch = DecaySketch(PARAMS)
        for body in bodies:
            sketch.update(*check(points_to_columns(read(body), FORM), FORM).columns)
        return sketch.to_bytes()

    shuffled = series + draw.sample(series, 10)
    draw.shuffle(shuffled)
    cut = draw.randint(1, len(shuffled))
    assert built([shuffled[:cut], shuffled[cut:], shuffled[:5]]) == built([series])


@given(st.binary(max_size=200), st.sampled_from([1, 2]))
@settings(max_examples=300, deadline=None)
def test_no_body_raises_anything_else(body: bytes, version: int) -> None:
    for sent in (body, field(1, body), field(5, field(2, body)), field(1, field(1, body))):
        try:
            found = parse(sent, maps(TEMP), version=version)
        except UnreadableError:
            continue
        check(points_to_columns(found, FORM), FORM)


@pytest.mark.parametrize(
    "unit", [field(1, b""), field(5, b""), field(1, field(1, b"") * 3), b"\x08\x01"]
)
def test_empty_parts_take_time_in_proportion(unit: bytes) -> None:
    begin = time.process_time()
    parse(unit * (300_000 // len(unit)), maps(TEMP), version=1)
    assert time.process_time() - begin < 60  # for what hangs


def test_a_text_that_many_series_refer_to_is_made_by_none_of_them() -> None:
    series = [(LABELS | {"room": "x" * 100_000, "n": str(n)}, [(1.0, T)]) for n in range(300)]
    body = version_2([*series, (LABELS, [(2.0, T)])])
    begin = time.process_time()
    found = parse(body, maps(TEMP), version=2)
    assert time.process_time() - begin < 60  # for what hangs
    assert (found.values, found.told.refusals) == ([2.0], 300)
    assert "is 100" in found.told.refused[0][1]
    dropped = parse(body, maps(TEMP | {"drop_labels": ["room"]}), version=2)
    assert len(dropped) == 301


def test_a_block_says_how_long_it_will_be() -> None:
    assert plain_length(b"\xff\xff\xff\xff\x0f") == 2**32 - 1
    for body in (b"", b"\xff" * 20):
        with pytest.raises(UnreadableError):
            plain_length(body)
