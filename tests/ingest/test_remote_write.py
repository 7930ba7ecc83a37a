"""Prometheus remote write: both versions give the same readings; what names one; refusals."""

from __future__ import annotations

import random
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.write_requests import STALE, field, messages, version_1, version_2
from decaysketch import DecaySketch, SketchParams, observation_ids
from decaysketch.families import recipe_of
from decaysketch.ingest import remote_write
from decaysketch.ingest import series as plans
from decaysketch.ingest.columns import Form, check, points_to_columns
from decaysketch.ingest.formats import Mappings
from decaysketch.ingest.points import Points
from decaysketch.ingest.readings import UnreadableError
from decaysketch.ingest.remote_write import most_samples, parse, plain_length
from quality.messages import changed

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
    assert found.listed("values") == [21.5, 22.0]
    assert found.listed("times_ns") == [T * 10**6, (T + 5) * 10**6]
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
    assert found.listed("values") == [1.0, 1.0]
    assert found.told.skipped == {"no value": 4, "metric": 1, "where": 1}
    assert found.told.refused == [("series 3 temp", "is inf; expected a number")]
    histogram = version_1([(LABELS, [(1.0, T)])], more=field(4, b"\x08\x01"))
    told = parse(histogram, maps(TEMP)).told
    assert told.refused == [("series 1 temp", "is a native histogram; expected samples")]
    elsewhere = parse(histogram, maps(TEMP | {"where": {"room": "r2"}})).told
    assert (elsewhere.refusals, elsewhere.skipped) == (0, {"where": 2})


def test_a_series_whose_labels_are_none_is_refused_alone() -> None:
    sound = version_1([(LABELS, [(1.0, T)])])
    label = field(1, field(1, b"__name__") + field(2, b"temp"))
    twice = field(1, 2 * label + field(2, b""))
    many = field(1, b"".join(field(1, field(1, b"%d" % n)) for n in range(1001)) + field(2, b""))
    found = parse(twice + many + sound, maps(TEMP))
    assert found.listed("values") == [1.0]
    assert found.told.refused == [
        ("series 1 a series", "a label is repeated"),
        ("series 2 a series", "there are more than 1000 labels"),
    ]


def test_an_empty_label_is_none() -> None:
    found = read([(LABELS | {"floor": ""}, [(1.0, T)]), (LABELS, [(1.0, T)])])
    assert found.key(0) == found.key(1)


def test_a_map_that_keeps_too_much_leaves_the_others_theirs() -> None:
    labels = LABELS | {"long": "x" * 2000}
    found = read([(labels, [(1.0, T)])], TEMP, TEMP | {"drop_labels": ["long"]})
    assert (found.listed("values"), found.told.refusals) == ([1.0], 1)


def test_a_body_of_the_other_version_is_unreadable_and_not_lost() -> None:
    series = [(LABELS, [(1.0, T)])]
    for body, version in ((version_1(series), 2), (version_2(series), 1)):
        with pytest.raises(UnreadableError, match=f"write version {version} does"):
            parse(body, maps(TEMP), version=version)


def test_numbers_of_labels_may_be_written_one_by_one() -> None:
    symbols = b"".join(field(4, text) for text in (b"", b"__name__", b"temp"))
    body = symbols + field(5, b"\x08\x01\x08\x02" + field(2, b"\x10\x05"))
    assert parse(body, maps(TEMP), version=2).key(0) == ("{}", "temp", 5 * 10**6)
    with pytest.raises(UnreadableError):  # a name without a text
        parse(symbols + field(5, b"\x08\x01"), maps(TEMP), version=2)


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
_SERIES = st.tuples(
    st.dictionaries(_TEXT.filter(bool), _TEXT, max_size=3),
    st.lists(
        st.tuples(st.floats(allow_infinity=False), st.integers(-(2**63), 2**63 - 1)), max_size=3
    ),
)


@given(st.lists(_SERIES, max_size=4))
@settings(max_examples=100, deadline=None)
def test_what_protobuf_writes_is_read(series: list[Any]) -> None:
    """Also what else such a message has, and nobody reads."""
    pytest.importorskip("google.protobuf")
    made = messages()
    first, second = made["WriteRequest"](), made["Request"](symbols=[""])
    first.metadata.add(type=1, metric_family_name="temp", help="help")
    expected = []
    for labels, samples in series:
        labels = {"__name__": "temp"} | labels
        one, two = first.timeseries.add(), second.timeseries.add(created=T)
        for pair in labels.items():
            one.labels.add(name=pair[0], value=pair[1])
            two.labels_refs.extend(range(len(second.symbols), len(second.symbols) + 2))
            second.symbols.extend(pair)
        one.exemplars.add(value=2.0, timestamp=T).labels.add(name="trace", value="x")
        for value, time_ms in samples:
            for each in (one, two):
                each.samples.add(value=value, timestamp=time_ms)
            if labels["__name__"] == "temp" and value == value and time_ms:  # 0 is none
                expected.append((value, time_ms * 10**6))
    for message, version in ((first, 1), (second, 2)):
        body = message.SerializeToString()
        found = parse(body, maps(TEMP), version=version)
        assert list(zip(found.listed("values"), found.listed("times_ns"), strict=True)) == expected
        assert len(found) <= most_samples(body)


def test_what_is_zero_is_left_out_by_its_writer() -> None:
    name = field(1, field(1, b"__name__") + field(2, b"temp"))
    found = parse(field(1, name + field(2, b"\x10\x05")), maps(TEMP))
    assert (found.listed("values"), found.listed("times_ns")) == ([0.0], [5 * 10**6])


def test_times_before_1970_are_negative() -> None:
    assert read([(LABELS, [(1.0, -5)])]).listed("times_ns") == [-5 * 10**6]


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
    sound = version_1([(LABELS, [(1.0, T)])]) if version == 1 else version_2([(LABELS, [(1.0, T)])])
    outer = 1 if version == 1 else 5
    inner = (field(outer, field(number, body)) for number in (1, 2))
    for sent in (body, field(outer, body), sound + body, *inner):
        try:
            found = parse(sent, maps(TEMP), version=version)
        except UnreadableError:
            continue
        check(points_to_columns(found, FORM), FORM)


_MANY = 40_000


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (1, field(1, b"") * _MANY),
        (1, b"\x10\x01" * _MANY),
        (1, field(1, field(1, b"") * _MANY)),
        (1, field(1, field(2, b"") * _MANY)),
        (2, field(5, b"") * _MANY),
        (2, field(4, b"") * _MANY),
        (2, field(4, b"") + field(5, field(1, bytes(2 * _MANY)))),
        (2, field(4, b"") + field(5, b"\x08\x00" * _MANY)),
    ],
)
def test_empty_parts_take_time_and_memory_in_proportion(version: int, body: bytes) -> None:
    begin = time.process_time()
    tracemalloc.start()
    parse(body, maps(TEMP), version=version)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert time.process_time() - begin < 60  # for what hangs
    assert peak < 30 * len(body)


def test_series_that_are_not_read_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MOST_PLAN_BYTES", 100_000)
    plans.forget_plans()
    body = b"".join(field(1, field(1, field(1, b"%d" % n)) + field(2, b"")) for n in range(6000))
    sound = version_1([(LABELS, [(1.0, T)])])
    tracemalloc.start()
    found = parse(sound + body + sound, maps(TEMP))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found.key(0), found.told.skipped) == (found.key(1), {"metric": 6000})
    assert peak < 5 * len(body)  # 6000 plans take many times as much


def test_a_text_that_many_series_refer_to_is_made_by_none_of_them() -> None:
    series = [(LABELS | {"room": "x" * 100_000, "n": str(n)}, [(1.0, T)]) for n in range(300)]
    body = version_2([*series, (LABELS, [(2.0, T)])])
    begin = time.process_time()
    found = parse(body, maps(TEMP), version=2)
    assert time.process_time() - begin < 60  # for what hangs
    assert (found.listed("values"), found.told.refusals) == ([2.0], 300)
    assert "has 100" in found.told.refused[0][1]
    dropped = parse(body, maps(TEMP | {"drop_labels": ["room"]}), version=2)
    assert len(dropped) == 301


def test_a_block_says_how_long_it_will_be() -> None:
    assert plain_length(b"\xff\xff\xff\xff\x0f") == 2**32 - 1
    for body in (b"", b"\xff" * 20):
        with pytest.raises(UnreadableError):
            plain_length(body)


def test_a_sample_without_a_time_is_refused() -> None:
    """Exporters without a clock send 0, which protobuf leaves out."""
    body = version_1([(LABELS, [(1.0, 0), (2.0, T)]), (LABELS | {"n": "1"}, [(3.0, 0)])])
    found = parse(body, maps(TEMP))
    assert found.listed("values") == [2.0]
    assert [reason for _, reason in found.told.refused] == ["there is no time"] * 2


@given(st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_both_ways_give_the_same(seed: int) -> None:
    body = changed(random.Random(seed), "prometheus")
    plain = _outcome(body)
    with pytest.MonkeyPatch.context() as patched:
        none = lambda _self, _body, samples, _before: np.zeros(len(samples), np.bool_)  # noqa: E731
        patched.setattr(remote_write._Reader, "take_plain", none)
        assert _outcome(body) == plain


def _outcome(body: bytes) -> Any:
    try:
        found = parse(body, maps(TEMP | {"metric": "m"}, {"metric": "m", "dedup": "10s"}))
    except UnreadableError as error:
        return str(error)
    rows = range(len(found))
    listed = found.listed("values"), found.listed("places")
    return [found.key(row) for row in rows], *listed, found.told
