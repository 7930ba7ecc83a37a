"""Every protocol fills columns: rows, ids and dropped values, as the library has them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ingest.messages import T0, UP, chirpstack, tts
from support.rows import for_each

import decaysketch as ds
from benchmarks.write_requests import version_1, version_2
from decaysketch.families import recipe_of
from decaysketch.ingest import line_protocol, otlp, remote_write
from decaysketch.ingest.columns import Form, check, points_to_columns, to_columns
from decaysketch.ingest.documents import Message
from decaysketch.ingest.formats import Mappings, check_suits, parse_message

T = T0 * 1000
TYPES = {"temp": "float64", "level": "int64", "ok": "bool", "site": "text", "metric": "text"}


def recipe(columns: Any = TYPES) -> Any:
    params = ds.SketchParams(max_weight=10, id_bits=48, seed=7, time_unit="ms", columns=columns)
    return recipe_of(params)


def mappings(format: str, *maps: dict[str, Any], columns: Any = TYPES) -> Mappings:
    found = Mappings.model_validate({"map": [{"format": format} | each for each in maps]})
    check_suits(found, recipe(columns))
    return found


def read(format: str, body: bytes, *maps: dict[str, Any], columns: Any = TYPES) -> tuple[Any, Any]:
    """The sketch of a body, and what the parser and the columns drop."""
    given, form = mappings(format, *maps, columns=columns), Form(recipe(columns), "s", None, 1000)
    index = given.indexes(form.columns)
    if format == "influx":
        raw = points_to_columns(line_protocol.parse(body, index[format]), form)
    elif format == "otlp":
        raw = points_to_columns(otlp.parse(body, index[format], as_json=True), form)
    elif format.startswith("prometheus"):
        version = 2 if body[:1] == b"\x22" else 1
        raw = points_to_columns(remote_write.parse(body, index[format], version=version), form)
    else:
        raw = to_columns(parse_message(Message(body, UP, T0), format, given.map).readings, form)
    batch = check(raw, form)
    assert not batch.refusals
    sketch = form.recipe.empty()
    sketch.update(*batch.columns)
    return sketch, dict(raw.dropped)


def built(rows: list[tuple[tuple[Any, ...], int, dict[str, Any]]], columns: Any = TYPES) -> Any:
    sketch = recipe(columns).empty()
    for key, time, values in rows:
        ids = ds.observation_ids(*key, params=sketch.params)
        sketch.update([values], 1, [time], ids)
    return sketch


def lines(*rows: str) -> bytes:
    return "\n".join(rows).encode()


def metrics(*points: dict[str, Any], name: str = "temp") -> bytes:
    resource = {"attributes": [{"key": "site", "value": {"stringValue": "yard"}}]}
    scope = {"metrics": [{"name": name, "gauge": {"dataPoints": list(points)}}]}
    return json.dumps(
        {"resourceMetrics": [{"resource": resource, "scopeMetrics": [scope]}]}
    ).encode()


VALUED = TYPES | {"value": "float64"}
_NAME = '{"attributes":{"level":7},"resource":{}}'
SERIES = [({"__name__": "up", "site": "a"}, [(1.0, T)]), ({"__name__": "temp"}, [(2.5, T + 1)])]
PROMETHEUS = [
    (('{"site":"a"}', "up", T * 10**6), T, {"value": 1.0, "site": "a", "metric": "up"}),
    (("{}", "temp", (T + 1) * 10**6), T + 1, {"value": 2.5, "metric": "temp"}),
]
UPLINK = ("70b3d54990000001", "01ab0001", 7)
CASES: dict[str, tuple[str, bytes, dict[str, Any], list[Any], Any]] = {
    "line protocol": (
        "influx",
        lines(f"m,site=a,host=x temp=1.5,level=4i,other=1 {T}", f"n,site=b temp=2,level=5i {T}",
              f'm,site=a,host=y temp=1.5,level=4i,text="t" {T}', f"n temp=3,ok=t {T + 1}"),
        {"columns": "*", "drop_tags": ["host"]},
        [(("m,site=a", T), T // 10**6, {"temp": 1.5, "level": 4, "site": "a"}),
         (("n,site=b", T), T // 10**6, {"temp": 2.0, "level": 5, "site": "b"}),
         (("n", T + 1), T // 10**6, {"temp": 3.0, "ok": True})],
        TYPES,
    ),
    "line protocol by name, with a field as text and a tag as number": (
        "influx",
        lines(f"m,rack=12,site=a temp=1.5,fw=\"2, 1\" {T}"),
        {"measurement": "m", "columns": {"temp": "temp", "site": "fw", "level": "rack",
                                         "metric": "measurement"}},
        [(("m,rack=12,site=a", T), T // 10**6,
          {"temp": 1.5, "site": "2, 1", "level": 12, "metric": "m"})],
        TYPES,
    ),
    "remote write": ("prometheus", version_1(SERIES), {"columns": "*"}, PROMETHEUS, VALUED),
    "remote write 2": ("prometheus", version_2(SERIES), {"columns": "*"}, PROMETHEUS, VALUED),
    "remote write by name": (
        "prometheus",
        version_1(SERIES[:1]),
        {"columns": {"temp": "value", "site": "metric"}, "dedup": "10s", "drop_labels": ["site"]},
        [(("{}", "up", T // 10**4), T, {"temp": 1.0, "site": "up"})],
        TYPES,
    ),
    "OTLP": (
        "otlp",
        metrics({"asDouble": 2.0, "timeUnixNano": str(T * 10**6),
                 "attributes": [{"key": "level", "value": {"intValue": "7"}}]}),
        {"columns": "*", "resource_keys": ["service.name"]},
        [((_NAME, "temp", T * 10**6), T, {"value": 2.0, "site": "yard", "level": 7,
                                         "metric": "temp"})],
        VALUED,
    ),
    "ChirpStack": (
        "chirpstack",
        json.dumps(chirpstack(object={"temp": "21,5", "level": 4.0, "gps": {"alt": 1}})).encode(),
        {"columns": {"*": "object.*", "site": "deviceInfo.applicationName"}, "decimal": ","},
        [(UPLINK, T, {"temp": 21.5, "level": 4, "site": "ward", "gps.alt": 1})],
        TYPES | {"gps.alt": "float64"},
    ),
    "ChirpStack by gateway": (
        "chirpstack",
        json.dumps(chirpstack()).encode(),
        {"columns": {"temp": "rssi", "site": "gatewayId"}, "each": "rxInfo",
         "id": ["$lorawan", "gatewayId"]},
        [((*UPLINK, "gw1"), T, {"temp": -90.0, "site": "gw1"}),
         ((*UPLINK, "gw2"), T, {"temp": -101.0, "site": "gw2"})],
        TYPES,
    ),
    "The Things Stack": (
        "tts",
        json.dumps(tts(decoded_payload={"temp": 3, "ok": True})).encode(),
        {"columns": "uplink_message.decoded_payload.*"},
        [(("70b3d57ed0000001", "AYfg8rhha5n+FWx0ZaAprA==", 7), T, {"temp": 3, "ok": True})],
        TYPES,
    ),
    "JSON": (
        "json",
        json.dumps([{"n": 1, "t": T, "temp": 1}, {"n": 2, "t": T, "site": ""}]).encode(),
        {"columns": "*", "each": "$", "id": ["n"], "time": "t", "time_unit": "ms"},
        [((1,), T, {"temp": 1.0}), ((2,), T, {"site": ""})],
        TYPES,
    ),
    "text": (
        "text",
        b"21.5",
        {"columns": {"temp": "$", "site": "topic[1]"}, "id": ["topic"], "time": "arrival"},
        [((UP,), T0 // 10**6, {"temp": 21.5, "site": "app"})],
        TYPES,
    ),
}  # fmt: skip


@for_each("case", CASES)
def test_a_protocol_gives_the_librarys_state(case: str) -> None:
    format, body, mapping, rows, columns = CASES[case]
    sketch, _ = read(format, body, mapping, columns=columns)
    assert sketch.digest() == built(rows, columns).digest()


def test_each_way_of_a_line_gives_the_same_rows() -> None:
    """A text in a line takes the careful way for all lines beside it."""
    some = [f"m,site=s{n % 3} temp={n}.5,level={n}i,ok=t {T + n}" for n in range(40)]
    some += [f"n,site=a level={n}i {T + n}" for n in range(40)]
    fast, dropped = read("influx", lines(*some), {"columns": "*"})
    slow, same = read("influx", lines(*some, f'z x="t" {T}'), {"columns": "*"})
    assert fast.digest() == slow.digest()
    assert len(fast) == 80
    assert dropped == {}
    assert same == {}


DROPPED: dict[str, tuple[str, bytes, dict[str, Any], dict[Any, int]]] = {
    "types": (
        "json",
        json.dumps({"n": 1, "t": T, "temp": "hot", "level": 1.5, "ok": 1, "site": 7}).encode(),
        {"columns": "*"},
        {("temp", "type"): 1, ("level", "type"): 1, ("ok", "type"): 1, ("site", "type"): 1,
         ("n", "undeclared"): 1, ("t", "undeclared"): 1},
    ),
    "ranges and lengths": (
        "json",
        json.dumps({"n": 1, "t": T, "temp": 2**53 + 1, "level": 2**63, "site": "x" * 1025,
                    "metric": "\ud800"}).encode(),
        {"columns": {name: name for name in TYPES}},
        {("temp", "range"): 1, ("level", "range"): 1, ("site", "too-long"): 1,
         ("metric", "type"): 1},
    ),
    "an explosion of members": (
        "json",
        json.dumps({"n": 1, "t": T, "temp": 1} | {f"a{k}": k for k in range(300)}).encode(),
        {"columns": "*"},
        {("", "too-many"): 47},
    ),
    "a number that is not finite": (
        "prometheus",
        version_1([({"__name__": "up", "site": "a"}, [(float("inf"), T)])]),
        {"columns": {"temp": "value"}},
        {("temp", "not-finite"): 1},
    ),
    "an explosion of labels": (
        "prometheus",
        version_1([({"__name__": "up"} | {f"l{k:03}": "x" for k in range(90)}, [(1.0, T)])] * 2),
        {"columns": {"temp": "value"}},
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DROPPED)
def test_a_value_that_fits_no_column_is_null_and_counted(case: str) -> None:
    format, body, mapping, expected = DROPPED[case]
    if format == "json":
        mapping = mapping | {"id": ["n"], "time": "t", "time_unit": "ms"}
    sketch, dropped = read(format, body, mapping)
    assert len(sketch) == 1
    named = {key: count for key, count in dropped.items() if key in expected}
    assert named == expected
    assert len(dropped) <= 41


def test_names_of_dropped_values_are_bounded() -> None:
    """Each line has other fields and tags, which no column has."""
    some = [f"m,{'q' * 300}{n}=1 temp=1,f{n}=1 {T + n}" for n in range(2000)]
    given = mappings("influx", {"columns": "*"}).indexes(recipe().params.columns)["influx"]
    form = Form(recipe(), "s", None, 10_000)
    raw = points_to_columns(line_protocol.parse(lines(*some), given), form)
    assert len(raw.dropped) <= 42
    assert raw.dropped.total() == 4000
    assert max(len(name) for name, _ in raw.dropped) <= 100


def test_a_mapping_of_all_names_yields_to_one_of_its_name() -> None:
    body = lines(f"m temp=1 {T}", f"n temp=2 {T}")
    own = {"measurement": "m", "columns": {"level": "temp"}}
    sketch, _ = read("influx", body, {"columns": "*"}, own)
    expected = built([(("m", T), T // 10**6, {"level": 1}), (("n", T), T // 10**6, {"temp": 2.0})])
    assert sketch.digest() == expected.digest()


def test_a_line_without_a_field_for_a_column_is_skipped() -> None:
    index = mappings("influx", {"columns": "*"}).indexes(recipe().params.columns)["influx"]
    points = line_protocol.parse(lines(f"m,site=a x=1 {T}", f'm,site=a x="t" {T}'), index)
    assert (len(points), points.told.skipped) == (0, {"no value": 2})


@for_each(
    "format, mapping, columns, reason",
    [
        ("influx", {"measurement": "m", "value": "v"}, TYPES, "has no columns, and the stream"),
        ("influx", {"columns": "*"}, (), "the stream declares no columns"),
        ("influx", {"columns": ["tmp"]}, TYPES, "did you mean 'temp'"),
        ("json", {"columns": {"tmp": "t"}, "id": ["n"], "time": "t"}, TYPES, "did you mean 'temp'"),
        ("prometheus", {"columns": "*"}, TYPES, "declare 'value float64'"),
        ("influx", {"columns": ["site"], "drop_tags": ["site"]}, TYPES, "differs between dupl"),
        ("influx", {"columns": "*", "scale": 2.0}, TYPES, "scale the column in the query"),
        ("influx", {"columns": "*", "measurement": "m", "value": "v"}, TYPES, "expected one"),
        ("influx", {"columns": "object.*"}, TYPES, "expected '*', a list of names"),
        ("influx", {"measurement": "m"}, TYPES, "value is missing"),
        ("prometheus", {}, TYPES, "metric is missing"),
        ("otlp", {}, TYPES, "metric is missing"),
        ("otlp", {"columns": "*", "value": "attr:x"}, VALUED, "expected one"),
        ("json", {"id": ["n"], "time": "t"}, TYPES, "value is missing"),
        ("json", {"columns": ["temp"], "id": ["n"], "time": "t"}, TYPES, "expected paths by col"),
        ("json", {"columns": "object", "id": ["n"], "time": "t"}, TYPES, "such as 'object.*'"),
    ],
)
def test_a_mapping_that_does_not_suit_says_what_to_change(
    format: str, mapping: dict[str, Any], columns: Any, reason: str
) -> None:
    with pytest.raises(ValueError, match="(?s)" + reason.replace("*", r"\*").replace("?", r"\?")):
        mappings(format, mapping, columns=columns)


def test_a_histogram_has_no_columns() -> None:
    data = {"timeUnixNano": str(T * 10**6), "count": "2", "sum": 3.0, "explicitBounds": [1],
            "bucketCounts": ["1", "1"]}  # fmt: skip
    metric = {"name": "m", "histogram": {"aggregationTemporality": 1, "dataPoints": [data]}}
    body = json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}).encode()
    index = mappings("otlp", {"columns": "*"}, columns=VALUED).indexes(
        recipe(VALUED).params.columns
    )
    points = otlp.parse(body, index["otlp"], as_json=True)
    assert len(points) == 0
    assert "whose buckets are ranges" in points.told.refused[0][1]


def test_a_body_whose_rows_are_all_refused_has_no_rows() -> None:
    index = mappings("influx", {"columns": "*"}).indexes(recipe().params.columns)["influx"]
    form = Form(recipe(), "s", None, 1000)
    points = line_protocol.parse(lines("m temp=1 9700000000000000000"), index)
    batch = check(points_to_columns(points, form), form)
    assert (len(batch.columns.ids), len(batch.refusals)) == (0, 1)
