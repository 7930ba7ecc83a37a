"""Metrics of OpenTelemetry: what becomes a reading, what names it, what is refused and why."""

from __future__ import annotations

import json
import math
import random
import time
import tracemalloc
from collections import Counter
from dataclasses import replace
from itertools import repeat
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rows import for_each

from decaysketch import DecaySketch, SketchParams, observation_ids
from decaysketch.core.observations import decode_values
from decaysketch.core.ranges import Range
from decaysketch.families import recipe_of
from decaysketch.ingest import otlp, series
from decaysketch.ingest.columns import Form, check, points_to_columns
from decaysketch.ingest.formats import Mappings
from decaysketch.ingest.otlp import parse
from decaysketch.ingest.otlp_json import _modern, from_json
from decaysketch.ingest.points import Points
from decaysketch.ingest.readings import UnreadableError, finished

pytest.importorskip("opentelemetry.proto")
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from quality.messages import changed, in_protobuf

PARAMS = SketchParams(max_weight=10, id_bits=40, time_unit="ms", value_type="float64")
FORM = Form(recipe_of(PARAMS), "s", None, 10_000)
T = 1_700_000_000_000_000_000
INF = math.inf
SERVICE = {"key": "service.name", "value": {"stringValue": "ward"}}


def maps(*given: dict[str, Any]) -> Any:
    return Mappings.model_validate({"map": [{"format": "otlp"} | each for each in given]}).map


def request(*metrics: dict[str, Any], resource: Any = (SERVICE,)) -> dict[str, Any]:
    return {
        "resourceMetrics": [
            {
                "resource": {"attributes": list(resource)},
                "scopeMetrics": [{"metrics": list(metrics)}],
            }
        ]
    }


def gauge(*points: dict[str, Any], name: str = "temp") -> dict[str, Any]:
    return {"name": name, "gauge": {"dataPoints": list(points)}}


def point(value: float, at: int = T, **attributes: Any) -> dict[str, Any]:
    given = [{"key": key, "value": each} for key, each in attributes.items()]
    return {"asDouble": value, "timeUnixNano": str(at), "attributes": given}


def histogram(temporality: int = 1, **more: Any) -> dict[str, Any]:
    data = {
        "timeUnixNano": str(T), "count": "9", "sum": 40.0, "explicitBounds": [0, 5, 10],
        "bucketCounts": ["0", "4", "3", "2"], "min": 1.0, "max": 14.0,
    }  # fmt: skip
    points = [data | more]
    return {
        "name": "temp",
        "histogram": {"aggregationTemporality": temporality, "dataPoints": points},
    }


def read(document: dict[str, Any], *given: dict[str, Any], **more: Any) -> Points:
    """The readings of a document, which both encodings give alike."""
    chosen = maps(*(given or ({"metric": "temp"},)))
    exported = ExportMetricsServiceRequest()
    json_format.ParseDict(document, exported)
    binary = parse(exported.SerializeToString(), chosen, **more)
    text = parse(json.dumps(document).encode(), chosen, as_json=True, **more)
    assert binary == text
    return binary


def readings(points: Points) -> list[tuple[Any, ...]]:
    rest = zip(*map(points.listed, ("values", "times_ns", "weights")), strict=True)
    return [(points.key(row), *each) for row, each in enumerate(rest)]


def test_a_data_point_is_a_reading() -> None:
    host = {"key": "host.name", "value": {"stringValue": "a"}}
    other = {"key": "process.pid", "value": {"intValue": "7"}}
    found = read(
        request(gauge(point(21.5, room={"stringValue": "r1"})), resource=(other, SERVICE, host))
    )
    key = (
        '{"attributes":{"room":"r1"},"resource":{"host.name":"a","service.name":"ward"}}',
        "temp",
        T,
    )
    assert readings(found) == [(key, 21.5, T, 1)]
    batch = check(points_to_columns(found, FORM), FORM)
    ids = observation_ids(*([part] for part in key), params=PARAMS)
    assert batch.columns.ids.tolist() == ids.tolist()


def test_delta_sums_are_increments_and_integers_stay_integers() -> None:
    data = {"aggregationTemporality": 1, "isMonotonic": True,
            "dataPoints": [{"asInt": "5", "timeUnixNano": str(T)}]}  # fmt: skip
    found = read(request({"name": "temp", "sum": data}))
    assert [(type(value), value) for value in found.listed("values")] == [(int, 5)]


def test_a_bucket_is_a_reading_whose_weight_is_its_count() -> None:
    found = read(request(histogram()), max_weight=3)
    assert [(key[1:2], value, weight) for key, value, _, weight in readings(found)] == [
        (("temp bucket 1",), Range(1.0, 5.0, open=False), 3),  # from min
        (("temp bucket 1 part 1",), Range(1.0, 5.0, open=False), 1),
        (("temp bucket 2",), Range(5.0, 10.0), 3),
        (("temp bucket 3",), Range(10.0, 14.0), 2),  # to max
    ]


@pytest.mark.parametrize(
    ("more", "values"),
    [
        ({"min": None, "max": None, "bucketCounts": ["1", "3", "3", "2"]},
         [Range(-INF, 0.0, open=False), Range(0.0, 5.0), Range(5.0, 10.0), Range(10.0, INF)]),
        # A sum says that nothing is negative.
        ({"min": None, "max": None, "explicitBounds": [5, 10], "bucketCounts": ["4", "3", "2"]},
         [Range(0.0, 5.0, open=False), Range(5.0, 10.0), Range(10.0, INF)]),
        ({"min": None, "sum": None, "explicitBounds": [5, 10], "bucketCounts": ["4", "3", "2"]},
         [Range(-INF, 5.0, open=False), Range(5.0, 10.0), Range(10.0, 14.0)]),
        # One value is no range.
        ({"min": 10.5, "max": 10.5, "bucketCounts": ["0", "0", "0", "9"]}, [10.5]),
        ({"explicitBounds": [], "bucketCounts": [], "count": "4", "sum": 10.0},
         [Range(1.0, 14.0, mean=2.5)]),
        ({"explicitBounds": [], "bucketCounts": [], "count": "1", "sum": 10.0}, [10.0]),
    ],
)  # fmt: skip
def test_a_bucket_is_the_range_of_its_values(more: dict[str, Any], values: list[Any]) -> None:
    data = histogram(**more)["histogram"]["dataPoints"][0]
    point = {name: each for name, each in data.items() if each is not None}
    metric = {"name": "temp", "histogram": {"aggregationTemporality": 1, "dataPoints": [point]}}
    assert read(request(metric), max_weight=99).listed("values") == values


def test_a_scale_moves_the_bounds_and_other_values_reject_ranges() -> None:
    found = read(request(histogram()), {"metric": "temp", "scale": -0.5}, max_weight=9)
    assert found.listed("values")[0] == Range(-2.5, -0.5, open=False)
    batch = check(points_to_columns(found, FORM), FORM)
    middles, missing = decode_values(batch.columns.values.keys, "float64")
    assert (middles.tolist(), missing.any()) == ([-1.5, -3.75, -6.0], False)
    params = replace(PARAMS, value_type="int64")
    form = replace(FORM, recipe=recipe_of(params))
    refused = check(points_to_columns(found, form), form).refusals
    assert {each.field for each in refused} == {"value"}
    assert "value_type is 'int64'; expected 'float64'" in refused[0].reason


@for_each(
    "metric, reason",
    [
        (histogram(2), "the histogram is cumulative; expected delta: set OTEL_EXPORTER_OTLP"),
        ({"name": "temp", "sum": {"dataPoints": [point(1)]}}, "the sum is of no temporality"),
        ({"name": "temp", "summary": {"dataPoints": [{"count": "1"}]}}, "is a summary"),
        ({"name": "temp", "exponentialHistogram": {"dataPoints": [{}]}}, "exponential histogram"),
        (gauge(point(1, 0)), "there is no time"),
        (gauge({"asDouble": "NaN", "timeUnixNano": "1"}), "is nan; expected a number"),
        (gauge(point(1) | {"attributes": [SERVICE, SERVICE]}), "an attribute is repeated"),
        (histogram(count="8"), "count is 8; the bucket counts add up to 9"),
        (histogram(bucketCounts=["9"]), "3 bounds and 1 bucket counts; expected one more"),
        (histogram(explicitBounds=[0, 5, 5]), "explicit_bounds[2] is 5.0, after 5.0"),
        (histogram(explicitBounds=[0, "NaN", 5]), "explicit_bounds[1] is nan"),
        (histogram(explicitBounds=[0, "Infinity", 5]), "explicit_bounds[1] is inf"),
        (gauge({"timeUnixNano": str(T)}), "there is no value"),
        (histogram(explicitBounds=[], bucketCounts=["5"]), "count is 9; the bucket counts"),
        (histogram(explicitBounds=[], bucketCounts=[], sum=None), "no bounds, and no sum"),
        (histogram(min=3.0, max=1.0), "min is 3.0, max is 1.0"),
        (histogram(min="NaN"), "min is nan, max is 14.0"),
        (histogram(count="120", bucketCounts=["0", "60", "0", "60"]),
         "a count of 120, which is 120 readings of max_weight 1; at most 100 are"),
        (histogram(bucketCounts=["1", "4", "4", "0"], min="-Infinity"), "min is -inf"),
        (histogram(count=str(2**60), bucketCounts=["0", "0", "0", str(2**60)]),
         f"a count of {2**60}, which is {2**60} readings of max_weight 1; at most 100 are"),
    ],
)  # fmt: skip
def test_what_holds_no_reading_is_refused_alone(metric: dict[str, Any], reason: str) -> None:
    found = read(request(metric, gauge(point(2, T + 1))), most=100)
    assert found.listed("values") == [2.0]
    ((where, told),) = found.told.refused
    assert where.startswith("temp")
    assert reason in told


def test_what_is_not_of_the_stream_is_skipped() -> None:
    wanted = {"metric": "temp", "where": {"room": ["a", "b"], "resource.service.name": "ward"}}
    unrecorded = point(0, room={"stringValue": "a"}) | {"flags": 1}
    found = read(
        request(
            gauge(point(1), name="other"),
            gauge(
                point(1, room={"stringValue": "c"}), point(2, room={"stringValue": "b"}), unrecorded
            ),
        ),
        wanted,
    )
    assert found.listed("values") == [2.0]
    assert found.told.skipped == {"metric": 1, "where": 1, "no value": 1}


def test_what_names_a_series_is_bounded() -> None:
    """What data points share is in a body once, so that little of it may stand for much."""
    long = {"key": "host.name", "value": {"stringValue": "x" * 10**6}}
    rooms = [point(n, room={"intValue": str(n)}) for n in range(2000)]
    body = json.dumps(request(gauge(*rooms), resource=(SERVICE, long))).encode()
    tracemalloc.start()
    found = parse(body, maps({"metric": "temp"}), as_json=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(found), found.told.refusals) == (0, 2000)
    assert "drop some of its labels" in found.told.refused[0][1]
    assert peak < 10 * len(body)
    few = request(gauge(*rooms[:3]), resource=(SERVICE, long))
    assert len(read(few, {"metric": "temp", "resource_keys": ["service.name"]})) == 3


def test_texts_of_the_series_of_a_body_are_bounded_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(series, "MOST_TEXT_BYTES", 200)
    found = read(request(gauge(*(point(n, room={"intValue": str(n)}) for n in range(9)))))
    assert found.told.refusals == 9 - len(found) > 0
    assert "200 bytes of memory together" in found.told.refused[0][1]


def test_series_of_equal_numbers_of_other_types_are_others() -> None:
    one = {"intValue": "1"}
    given = [one, {"doubleValue": 1.0}, {"boolValue": True}, {"stringValue": "1"},
             {"arrayValue": {"values": [one]}}, {"bytesValue": "MQ=="}, {}]  # fmt: skip
    found = read(request(gauge(*(point(1, x=each) for each in given))))
    assert len({key for key, *_ in readings(found)}) == len(given)


def test_exemplars_and_what_nobody_knows_are_disregarded() -> None:
    exemplar = {"traceId": "5b8aa5a2d2c872e8321cf37308d69df2", "asDouble": 1.0}
    document = request(gauge(point(1) | {"exemplars": [exemplar], "later": 1}))
    found = parse(json.dumps(document).encode(), maps({"metric": "temp"}), as_json=True)
    assert found.listed("values") == [1.0]


@given(st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_any_splitting_order_and_repetition_give_the_same_bytes(draw: random.Random) -> None:
    points = [point(n % 7, T + n * 10**6, room={"intValue": str(n % 3)}) for n in range(40)]

    def built(bodies: list[list[dict[str, Any]]]) -> bytes:
        sketch = DecaySketch(PARAMS)
        for body in bodies:
            found = read(request(gauge(*body)))
            sketch.update(*check(points_to_columns(found, FORM), FORM).columns)
        return sketch.to_bytes()

    shuffled = points + draw.sample(points, 10)
    draw.shuffle(shuffled)
    cut = draw.randint(1, len(shuffled))
    assert built([shuffled[:cut], shuffled[cut:], shuffled[:5]]) == built([points])


@pytest.mark.parametrize(
    "body",
    [b"\xff", b"\x0a\xff", b"[]", b'"', b"{", b'{"resourceMetrics": 1}', b'{"a":' * 10**5,
     b"9" * 10**5, b"\xef\xbb\xbf{"],
)  # fmt: skip
def test_what_is_no_export_is_unreadable(body: bytes) -> None:
    for as_json in (True, False):
        with pytest.raises(UnreadableError):
            parse(body, maps({"metric": "temp"}), as_json=as_json)


def test_json_in_steps_is_the_message_of_the_complete_document() -> None:
    """Of bodies that are changed at random. A member that is no object is rejected."""
    outcomes: Counter[str] = Counter()
    for number in range(300):
        body = changed(random.Random(number), "otlp")
        found, reason = _in_steps(body)
        outcomes["read" if reason is None else "rejected"] += 1
        assert found == _complete(body) or "expected an object" in str(reason), body
    assert min(outcomes["rejected"], outcomes["read"]) > 10


def _in_steps(body: bytes) -> tuple[Any, UnreadableError | None]:
    try:
        return finished(from_json(body)), None
    except UnreadableError as error:
        return None, error


def _complete(body: bytes) -> Any:
    try:
        document = json.loads(body, object_hook=_modern)
        json.dumps(document, ensure_ascii=False).encode()
        return json_format.ParseDict(
            document, ExportMetricsServiceRequest(), ignore_unknown_fields=True
        )
    except Exception:  # whatever it is, the body is none
        return None


def test_long_json_has_short_steps() -> None:
    many = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "m"}] * 500}]}] * 2}
    for body, steps in ((many, 1000), (request(gauge(*[point(1)] * 6400)), 100)):
        assert sum(1 for _ in from_json(json.dumps(body).encode())) >= steps


def _hostile() -> dict[str, bytes]:
    def field(number: int, content: bytes) -> bytes:
        length, head = len(content), bytearray([number << 3 | 2])
        while length > 0x7F:
            head.append(length & 0x7F | 0x80)
            length >>= 7
        return bytes([*head, length]) + content

    def metric(data: bytes) -> bytes:
        return field(1, field(2, field(2, field(1, b"temp") + data)))

    many = 200_000
    return {
        "resources": field(1, b"") * many,
        "metrics": field(1, field(2, field(2, field(1, b"temp")) * many)),
        "data points": metric(field(5, field(1, b"") * many)),
        "attributes": metric(field(5, field(1, field(7, b"") * many))),
        "buckets": metric(field(9, field(1, field(6, bytes(8 * many))) + b"\x10\x01")),
    }


@pytest.mark.parametrize("kind", sorted(_hostile()))
def test_empty_parts_take_time_in_proportion(kind: str) -> None:
    body = _hostile()[kind]
    begin = time.process_time()
    found = parse(body, maps({"metric": "temp"}), most=1000)
    assert time.process_time() - begin < 30  # for what hangs
    assert len(found) == 0


def text(value: str) -> dict[str, Any]:
    return {"stringValue": value}


def counter(*points: dict[str, Any]) -> dict[str, Any]:
    return {"name": "errors", "sum": {"aggregationTemporality": 1, "dataPoints": list(points)}}


def test_an_attribute_may_be_the_value_as_often_as_is_counted() -> None:
    (of_code,) = maps({"metric": "errors", "value": "attr:code"})
    (of_service,) = maps({"metric": "errors", "value": "attr:resource.service.name"})
    document = json.dumps(
        request(
            counter(
                point(25, code=text("E42")), point(1, T + 1, code={"intValue": "7"}),
                point(3, T + 2), point(0, T + 3, code=text("E1")),
                point(1.5, T + 4, code=text("E2")), point(-1, T + 5, code=text("E3")),
                point(float(1 << 63), T + 6, code=text("E4")),
            )
        )
    ).encode()  # fmt: skip
    found = parse(document, [of_code], as_json=True, max_weight=10)
    rows = list(zip(found.listed("values"), found.listed("weights"), strict=True))
    assert rows == [("E42", 10), ("E42", 10), ("E42", 5), ("7", 1)]
    assert len({found.key(row) for row in range(4)}) == 4
    assert found.told.refusals == 3
    assert "is 1.5 for a label; expected a count" in found.told.refused[0][1]
    assert dict(found.told.skipped) == {"where": 1}
    of_all = parse(document, [of_service], as_json=True, max_weight=100)
    assert of_all.listed("values") == ["ward"] * 3
    assert of_all.listed("weights") == [25, 1, 3]
    for metric, weights in ((gauge(point(3, code=text("a")), name="errors"), [1]),
                            (histogram() | {"name": "errors"}, [])):  # fmt: skip
        body = json.dumps(request(metric)).encode()
        assert parse(body, [of_code], as_json=True, max_weight=10).listed("weights") == weights
    many = json.dumps(request(counter(point(10**12, code=text("E"))))).encode()
    found = parse(many, [of_code], as_json=True, max_weight=10, most=1000)
    assert (len(found), found.told.refusals) == (0, 1)


@pytest.mark.parametrize(
    ("bounds", "counts", "expected"),
    [
        ([1.0, "Infinity"], ["1", "2", "0"], [0.5, 1.0]),
        ([1.0, 3.0, "Infinity"], ["0", "2", "1", "0"], [2.0, 3.0]),
        (["-Infinity", 1.0], ["0", "2", "1"], [0.5, 1.0]),
        (["-Infinity", 1.0, "Infinity"], ["0", "2", "1", "0"], [0.5, 1.0]),
    ],
)
def test_bounds_at_infinity_are_implied(
    bounds: list[Any], counts: list[str], expected: list[float]
) -> None:
    data = {"timeUnixNano": str(T), "count": "3", "explicitBounds": bounds, "bucketCounts": counts}
    metric = {"name": "temp", "histogram": {"aggregationTemporality": 1, "dataPoints": [data]}}
    found = read(request(metric), max_weight=10)
    middles = [each.middle for each in found.listed("values") if isinstance(each, Range)]
    assert middles == pytest.approx(expected, rel=1e-15)
    assert (len(found), sum(found.listed("weights"))) == (2, 3)


def test_replicas_that_nothing_distinguishes_are_counted() -> None:
    def attribute(name: str, text: str) -> dict[str, Any]:
        return {"key": name, "value": {"stringValue": text}}

    metric = gauge(point(1))
    pod, instance = attribute("k8s.pod.name", "a"), attribute("service.instance.id", "i")
    given = {"metric": "temp"}
    assert read(request(metric, resource=[SERVICE, pod])).told.unnamed == {"k8s.pod.name": 1}
    for resource, more in (
        ([SERVICE, instance], {}),
        ([SERVICE, pod, instance], {}),
        ([SERVICE, pod], {"resource_keys": ["service.name", "k8s.pod.name"]}),
        ([SERVICE], {}),  # two of them have times of their own
    ):
        assert read(request(metric, resource=resource), given | more).told.unnamed == {}
    found = read(request(metric), given | {"dedup": "10s"})
    assert found.told.unnamed == {"service.instance.id": 1}


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ({"resourceMetrics": [{"instrumentationLibraryMetrics": []}]}, "scopeMetrics"),
        (request({"name": "temp", "intGauge": {"dataPoints": [{"value": "1"}]}}), "intGauge"),
        (request({"name": "temp", "doubleSum": {}}), "doubleSum"),
        (request(gauge({"asInt": "1", "timeUnixNano": str(T), "labels": []})), "'labels'"),
        ({"resourceSpans": []}, "resourceMetrics"),
        ({"resourceLogs": []}, "resourceLogs"),
        ([], "is not an object"),
    ],
)
def test_what_would_be_ignored_is_refused_by_name(document: Any, name: str) -> None:
    with pytest.raises(UnreadableError, match=name):
        parse(json.dumps(document).encode(), maps({"metric": "temp"}), as_json=True)


def test_a_byte_order_mark_is_no_part_of_a_body() -> None:
    body = json.dumps(request(gauge(point(1)))).encode()
    chosen = maps({"metric": "temp"})
    assert parse(b"\xef\xbb\xbf" + body, chosen, as_json=True).listed("values") == [1.0]
    with pytest.raises(UnreadableError, match="UTF-16"):
        parse(body.decode().encode("utf-16"), chosen, as_json=True)


@given(st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_both_ways_give_the_same(seed: int) -> None:
    body = in_protobuf(json.dumps(request(gauge(point(1), point(2)))).encode()) or b""
    draw = random.Random(seed)
    sent = changed(draw, "otlp")
    plain = _outcome(sent), _outcome(body)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(otlp, "_numbers", lambda _data, count: repeat(None, count))
        assert (_outcome(sent), _outcome(body)) == plain


def test_data_points_of_every_layout_are_read_alike() -> None:
    """The fast reader must leave each unusual layout to the other one, and stay in step."""
    many = {"asDouble": 1.5, "timeUnixNano": str(T + 1)}
    text = {"key": "k", "value": {"stringValue": "x" * 130}}  # a length of two bytes
    points = [
        many, {}, many | {"flags": 1}, many | {"flags": 1, "attributes": [text]},
        many | {"attributes": [text], "startTimeUnixNano": str(T)},
        {"timeUnixNano": str(T), "asInt": "3"}, {"asDouble": 2.0}, {"timeUnixNano": str(T)},
        many | {"exemplars": [{"asDouble": 1.0}]}, many | {"attributes": [text, text]},
        {"asDouble": "Infinity", "timeUnixNano": str(T)}, many | {"attributes": [text]}, many,
    ]  # fmt: skip
    body = in_protobuf(json.dumps(request(gauge(*points, name="m"))).encode())
    assert body is not None
    fast = _outcome(body)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(otlp, "_numbers", lambda _data, count: repeat(None, count))
        series.forget_plans()
        assert _outcome(body) == fast
    assert [len(found) for found, _ in fast] == [6, 6]


def _outcome(body: bytes) -> Any:
    one, another = {"metric": "m"}, {"metric": "m", "where": {"a": "1"}, "scale": 2.0}
    try:
        found = [parse(body, maps(*given), max_weight=10, most=10_000)
                 for given in ((one,), (one, another))]  # fmt: skip
    except UnreadableError as error:
        return str(error)
    return [(readings(each), each.told) for each in found]
