"""Line protocol: two ways to the same readings, another parser as a witness, what names one."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rows import for_each

from decaysketch import DecaySketch, SketchParams, observation_ids
from decaysketch.families import recipe_of
from decaysketch.ingest import line_protocol, series
from decaysketch.ingest.columns import Form, check, points_to_columns
from decaysketch.ingest.formats import Mappings
from decaysketch.ingest.line_protocol import MAX_LINE_BYTES, parse, steps
from decaysketch.ingest.points import Points
from decaysketch.ingest.readings import UnreadableError, finished
from decaysketch.ingest.series import SeriesIndex
from quality.messages import changed

PARAMS = SketchParams(max_weight=10, id_bits=40, time_unit="ms", value_type="float64")
FORM = Form(recipe_of(PARAMS), "s", None, 10_000)
T = 1_700_000_000_000_000_000


def maps(*given: dict[str, Any]) -> Any:
    return Mappings.model_validate({"map": [{"format": "influx"} | each for each in given]}).map


WEATHER = maps({"measurement": "weather", "value": "temp"})


def parse_each(body: bytes, groups: list[Any]) -> list[Points]:
    """By several streams."""
    return finished(steps(body, [SeriesIndex(group) for group in groups]))


def readings(points: Points) -> list[tuple[Any, ...]]:
    """Key, value, time, weight and line of each."""
    rest = zip(*map(points.listed, ("values", "times_ns", "weights", "places")), strict=True)
    return [(points.key(row), *each) for row, each in enumerate(rest)]


def carefully(body: bytes, given: Any) -> Points:
    """By the grammar alone."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(line_protocol, "_plain", lambda *_: False)
        return parse(body, given)


def test_a_line_is_a_reading() -> None:
    points = parse(b"weather,site=ward,host=a temp=21.5,hum=40i 1700000000000000000\n", WEATHER)
    key = ("weather,host=a,site=ward", "temp", T)
    assert readings(points) == [(key, 21.5, T, 1, 1)]
    batch = check(points_to_columns(points, FORM), FORM)
    ids = observation_ids(*([part] for part in key), params=PARAMS)
    assert batch.columns.ids.tolist() == ids.tolist()
    assert batch.columns.times.tolist() == [T // 10**6]


def test_tags_of_collectors_are_left_out_and_periods_have_one_reading() -> None:
    given = maps({"measurement": "cpu", "value": "load", "drop_tags": ["host"], "dedup": "10s"})
    lines = (
        b"cpu,host=a,cpu=0 load=1 1700000001000000000\ncpu,cpu=0,host=b load=2 1700000009000000000"
    )
    first, second = readings(parse(lines, given))
    assert first[0] == second[0] == ("cpu,cpu=0", "load", 170_000_000)


def test_fields_can_name_a_reading_in_place_of_the_time() -> None:
    given = maps({"measurement": "m", "value": "f", "id_fields": ["seq"]})
    keys = {
        key for key, *_ in readings(parse(b"m f=1,seq=7i 1\nm f=1,seq=7 2\nm f=1,seq=8i 1", given))
    }
    assert keys == {("m seq=7", "f", 0), ("m seq=8", "f", 0)}


@for_each(
    "line, reason",
    [
        (b"weather temp=1", "there is no time; with the server's time"),
        (b"weather temp=1 soon", "the time is 'soon'; expected an integer"),
        (b"weather temp=nan 1", "is 'nan'; expected a number"),
        (b'weather temp="warm" 1', "is 'warm'; expected a number"),
        (b"weather temp=1,temp=2 1", "field 'temp' is repeated"),
        (b"weather,a=1,a=2 temp=1 1", "tag 'a' is repeated"),
        (b"weather,a temp=1 1", "is not a tag: ',a'"),
        (b"weather temp 1", "is not a field: 'temp 1'"),
        (b"weather temp=1 1 2", "after a field is ' 1 2'; expected a time"),
        (b"weather,site=\xff temp=1 1", r"a tag is '\\xff'; expected UTF-8"),
        (b"weather,b=" + b"x" * MAX_LINE_BYTES + b" temp=1 1", "longer than"),
        (b"weather a=" + b"1" * MAX_LINE_BYTES + b",temp=1 1", "longer than"),
    ],
)
def test_what_is_wrong_is_refused_alone(line: bytes, reason: str) -> None:
    points = parse(b"weather temp=1 1\n" + line + b"\nweather temp=2 2\n", WEATHER)
    assert points.listed("values") == [1.0, 2.0]
    ((where, told),) = points.told.refused
    assert where.startswith("line 2")
    assert reason in told


def test_a_series_that_is_too_long_for_an_id_is_refused_alone() -> None:
    long = b"weather,site=" + b"x" * 2000 + b" temp=3 3\n"
    points = parse(b"weather temp=1 1\n" + long + long + b"weather temp=2 2", WEATHER)
    batch = check(points_to_columns(points, FORM), FORM)
    assert batch.columns.values.tolist() == [1.0, 2.0]
    assert [where for where, _ in points.told.refused] == ["line 2 temp", "line 3 temp"]
    alone = parse(long, WEATHER)
    assert (len(alone), alone.told.refusals) == (0, 1)


def test_several_streams_are_read_in_one_pass() -> None:
    groups = [
        maps({"measurement": "cpu", "value": "load", "where": {"host": "a"}}),
        maps({"measurement": "mem", "value": "free"}, {"measurement": "cpu", "value": "idle"}),
        maps({"measurement": "none", "value": "x"}),
    ]
    body = (
        b"cpu,host=a load=1,idle=9 1\ncpu,host=b load=2,idle=8 2\nmem,host=a free=3i 3\n"
        b'other x=1 4\ncpu broken 4\ncpu,host=a msg="a\nb",load=4 5\nmem,host=b used=1 6\n'
    )
    together = parse_each(body, groups)
    for found, group in zip(together, groups, strict=True):
        assert readings(found) == readings(parse(body, group))
    assert [found.told.skipped for found in together] == [
        {"where": 1, "measurement": 3},
        {"measurement": 1, "no value": 2},
        {"measurement": 6},
    ]
    assert [found.told.refused for found in together] == [
        [("line 5", "is not a field: 'broken 4'; expected 'name=value'")], [], []
    ]  # fmt: skip


@given(st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_each_of_several_streams_has_what_it_has_alone(seed: int) -> None:
    body = changed(random.Random(seed), "influx")[:20_000]
    groups = [
        maps({"measurement": "m", "value": "f", "scale": 2.0}),
        maps(
            {"measurement": "m", "value": "g", "dedup": "10s"}, {"measurement": "m", "value": "f"}
        ),
    ]
    for found, group in zip(parse_each(body, groups), groups, strict=True):
        alone = parse(body, group)  # in another order where blocks are read in the other way
        assert sorted(readings(found), key=str) == sorted(readings(alone), key=str)
        assert found.told.skipped == alone.told.skipped


def test_what_is_of_no_map_is_skipped() -> None:
    given = maps({"measurement": "weather", "value": "temp", "where": {"site": ["a", "b"]}})
    body = b"rain temp=1 1\nweather,site=c temp=1 1\nweather,site=a hum=1 1\n# temp\n\n"
    points = parse(body + b"weather,site=b temp=1 1", given)
    assert points.told.skipped == {"measurement": 1, "where": 1, "no value": 1}
    assert (len(points), points.told.refusals) == (1, 0)


@given(st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_both_ways_give_the_same(seed: int) -> None:
    body = changed(random.Random(seed), "influx")[:20_000]
    given = maps({"measurement": "m", "value": "f"}, {"measurement": "m", "value": "g"})
    plain, careful = parse(body, given), carefully(body, given)
    assert readings(plain) == readings(careful)
    assert plain.told == careful.told


# What its client writes without a backslash at an end, and the other parser takes: no NUL.
_NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters='\0\n\r\t\\"#'), min_size=1, max_size=6
)
_NUMBERS = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False) | st.integers(
    -(2**53), 2**53
)


@given(
    st.dictionaries(_NAMES, _NAMES, max_size=3),
    st.dictionaries(_NAMES, _NUMBERS, min_size=1, max_size=3),
    st.integers(-(2**62), 2**62),
)
@settings(max_examples=200, deadline=None)
def test_another_parser_reads_the_same(
    tags: dict[str, str], fields: dict[str, float], time: int
) -> None:
    witness = pytest.importorskip("line_protocol_parser")
    from influxdb_client import Point, WritePrecision

    point = Point("m m").time(time, WritePrecision.NS)
    for name, text in tags.items():
        point.tag(name, text)
    for name, number in fields.items():
        point.field(name, number)
    line = point.to_line_protocol()
    if not line:
        return  # its client writes nothing of it
    theirs = witness.parse_line(line)
    named = [{"measurement": "m m", "value": name} for name in fields]
    points = parse(line.encode(), maps(*named))
    assert points.told.refusals == 0, points.told
    found = {key[1]: value for key, value, *_ in readings(points)}
    assert found == {name: theirs["fields"][name] for name in fields}
    assert set(points.listed("times_ns")) == {theirs["time"]}


@given(st.randoms(use_true_random=False), st.data())
@settings(max_examples=25, deadline=None)
def test_any_splitting_order_and_repetition_give_the_same_bytes(
    draw: random.Random, data: st.DataObject
) -> None:
    lines = [
        b"weather,site=%d,host=%d temp=%d %d" % (n % 3, n % 2, n % 7, T + 10**6 * n)
        for n in range(40)
    ]
    given = maps({"measurement": "weather", "value": "temp", "drop_tags": ["host"]})

    def built(bodies: list[list[bytes]]) -> bytes:
        sketch = DecaySketch(PARAMS)
        for body in bodies:
            columns = check(points_to_columns(parse(b"\n".join(body), given), FORM), FORM).columns
            sketch.update(*columns)
        return sketch.to_bytes()

    shuffled = lines + draw.sample(lines, 10)
    draw.shuffle(shuffled)
    cut = data.draw(st.integers(1, len(shuffled)))
    again = [line.replace(b"host=0", b"host=9") for line in shuffled[:cut]]
    assert built([again, shuffled[cut:], shuffled]) == built([lines])


def test_a_body_of_too_many_readings_is_not_read_to_its_end() -> None:
    body = b"weather temp=1 1\n" * 100_000
    assert 10 < len(parse(body, WEATHER, most=10)) < 10_000


def test_numbers_are_what_the_protocol_writes() -> None:
    body = b"\n".join(
        b"weather temp=%b 1" % text
        for text in (b"1", b"-1.5e3", b"1i", b"7u", b"t", b"FALSE", b"+.5")
    )
    assert parse(body, WEATHER).listed("values") == [1.0, -1500.0, 1, 7, 1, 0, 0.5]
    assert np.isfinite(parse(body, WEATHER).listed("values")[0])


def test_what_is_known_of_series_is_let_go_of_where_there_are_very_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(series, "MOST_PLAN_BYTES", 64 * 1000)
    series.forget_plans()
    lines = [b"weather,t=%d temp=%d %d" % (n % 100, n, n) for n in range(1000)]
    index = SeriesIndex(WEATHER)
    few = parse(b"\n".join(lines), index)
    assert len(series.plans_of("influx", [index]).recent) < 100
    monkeypatch.undo()
    all_known = parse(b"\n".join(lines), WEATHER)
    assert [few.key(row) for row in range(1000)] == [all_known.key(row) for row in range(1000)]
    assert (few.values, len(all_known.series)) == (all_known.values, 100)


@pytest.mark.parametrize(
    "line", [b"weather,t=%d g=1 1", b"other,t=%d f=1 1", b"weather,t=\\ %d g=1 1"]
)
def test_series_without_a_reading_take_no_memory(
    line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "MOST_PLAN_BYTES", 150_000)
    parse(line % 0, WEATHER)  # what is imported and compiled first
    series.forget_plans()
    body = b"\n".join(line % n for n in range(2000))
    tracemalloc.start()
    found = parse(body, WEATHER)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(found.series), sum(found.told.skipped.values())) == (0, 2000)
    assert peak < 2**19  # 2000 plans take 600 kB and more


def test_a_body_of_which_nearly_nothing_is_sound_is_refused_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(line_protocol, "_MOST_REFUSED", 1_000)
    with pytest.raises(UnreadableError, match="more than 1000 lines are rejected, the first"):
        parse(b"weather temp=1 1\n" + b"weather\n" * 1_100, WEATHER)


def test_texts_of_series_are_bounded_before_they_are_made() -> None:
    """A letter beyond the BMP makes each of a text four bytes long, and maps multiply it."""
    each = [{"measurement": "m", "value": f"v{number}"} for number in range(20)]
    head = b"m,t=" + b"a" * 60_000 + "\U0001f600".encode()
    body = b"\n".join(head + b"%d v0=1 1" % number for number in range(20))
    points, peak = traced(body, maps(*each))
    assert (len(points), points.told.refusals) == (0, 20)
    assert peak < 3_000_000  # the texts of the maps alone would be 96 MB


def test_texts_of_all_series_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_TEXT_BYTES", 100_000)
    each = [{"measurement": "m", "value": "v", "drop_tags": [f"x{n}"]} for n in range(20)]
    body = b"\n".join(b"m,t=%d u=1 1" % number for number in range(10_000))
    with pytest.raises(UnreadableError, match="together"):
        traced(body, maps(*each))


def traced(body: bytes, given: Any) -> tuple[Points, int]:
    tracemalloc.start()
    try:
        return parse(body, given), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_plans_stay_from_body_to_body_and_share_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    series.forget_plans()
    monkeypatch.setattr(series, "MOST_PLAN_BYTES", 640_000)
    indexes = [SeriesIndex(WEATHER) for _ in range(5)]
    bodies = [b"\n".join(b"weather,t=%d-%d temp=1 1" % (n, m) for m in range(200))
              for n in range(5)]  # fmt: skip
    for index, body in zip(indexes, bodies, strict=True):
        first = readings(parse(body, index))
        known = list(series.plans_of("influx", [index]).recent.plans)
        assert readings(parse(body, index)) == first
        again = series.plans_of("influx", [index]).recent.plans
        assert len(known) == 200
        assert all(one is other for one, other in zip(again, known, strict=True))
    kept = [plans.bytes for plans, _ in series._kept.values()]
    assert 0 < sum(kept) == series._used.bytes <= 640_000
    assert len(kept) < 5  # those that were used long ago are gone
    series.forget_plans()
    assert series._used.bytes == 0


@pytest.mark.parametrize("before", [b"", b"weather temp=0 1\n"])
def test_a_byte_order_mark_is_no_part_of_a_line(before: bytes) -> None:
    mark = b"\xef\xbb\xbf"
    body = before + mark + b"weather,site=a temp=21.5 1\n" + mark + b"weather temp=22.5 2\r\n"
    points = parse(body, WEATHER)
    assert points.listed("values") == [0.0] * bool(before) + [21.5, 22.5]
    assert points.told.skipped == {}
    with pytest.raises(UnreadableError, match="UTF-16; expected UTF-8"):
        parse("weather temp=1 1\n".encode("utf-16"), WEATHER)
