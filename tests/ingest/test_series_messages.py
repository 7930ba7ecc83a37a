"""JSON messages, ChirpStack and The Things Stack feed series: starts, devices and attributes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ingest.messages import T0, UP, chirpstack, tts
from pydantic import ValidationError
from support.rows import for_each

import decaysketch as ds
from decaysketch.errors import ParameterError
from decaysketch.families import recipe_of
from decaysketch.ingest.columns import Form, check, to_columns
from decaysketch.ingest.documents import Message
from decaysketch.ingest.formats import Mappings, check_suits, parse_message
from decaysketch.series import NO_START, SeriesParams, SeriesSketch

PARAMS = SeriesParams(attributes="app, port", time_unit="s", seed=7)
FORM = Form(recipe_of(PARAMS), "gw", None, 1000)
EUI = "70b3d54990000001"
JSON: dict[str, Any] = {
    "format": "json", "kind": "counter", "value": "n", "id": ["host", "name"], "time": "at",
    "time_unit": "s", "start": "begun", "entity": ["host"],
    "attributes": {"app": "tags.app", "port": "port"},
}  # fmt: skip


def mappings(*maps: dict[str, Any], params: Any = PARAMS) -> Mappings:
    found = Mappings.model_validate({"map": list(maps)})
    check_suits(found, recipe_of(params))
    return found


def batch_of(document: Any, *maps: dict[str, Any]) -> Any:
    message = Message(json.dumps(document).encode(), UP, T0 * 10**9)
    parsed = parse_message(message, maps[0]["format"], mappings(*maps).map)
    assert not parsed.refused
    return check(to_columns(parsed.readings, FORM), FORM)


def counter(**changed: Any) -> dict[str, Any]:
    found = {"host": "a", "name": "in", "n": 7, "at": T0, "begun": T0 - 9, "port": 80}
    return found | {"tags": {"app": "web"}} | changed


# Series, value, start, device, attributes. All are at T0.
Row = tuple[tuple[Any, ...], float | None, int, tuple[Any, ...], dict[str, Any]]
TEMPERATURE, HUMIDITY = (
    {"format": "chirpstack", "kind": "gauge", "value": f"object.{name}",
     "attributes": {"app": "deviceInfo.applicationName", "port": "fPort"}}
    for name in ("temperature", "humidity")
)  # fmt: skip
OF_UPLINK = {"app": "ward", "port": "2"}
CASES: dict[str, tuple[Any, tuple[dict[str, Any], ...], list[Row]]] = {
    "ChirpStack needs a kind alone": (
        chirpstack(), ({"format": "chirpstack", "kind": "gauge", "value": "object.temperature"},),
        [((EUI, "object.temperature"), 21.5, NO_START, (EUI,), {})],
    ),
    "two readings of a device are one entity": (
        chirpstack(), (TEMPERATURE, HUMIDITY),
        [((EUI, "object.temperature"), 21.5, NO_START, (EUI,), OF_UPLINK),
         ((EUI, "object.humidity"), 50.0, NO_START, (EUI,), OF_UPLINK)],
    ),
    "a frame counter, by device and a path": (
        chirpstack(), ({"format": "chirpstack", "kind": "counter", "value": "fCnt",
                        "id": ["deviceInfo.devEui"], "field": "",
                        "entity": ["deviceInfo.applicationName"]},),
        [(("70B3D54990000001",), 7, NO_START, ("ward",), {})],
    ),
    "The Things Stack": (
        tts(), ({"format": "tts", "kind": "gauge", "value": "uplink_message.decoded_payload.t",
                 "attributes": {"app": "end_device_ids.application_ids.application_id"}},),
        [(("70b3d57ed0000001", "uplink_message.decoded_payload.t"), 21.5, NO_START,
          ("70b3d57ed0000001",), {"app": "a"})],
    ),
    "JSON with a start": (
        counter(), (JSON,),
        [(("a", "in", "n"), 7, T0 - 9, ("a",), {"app": "web", "port": "80"})],
    ),
    "JSON without one, and an attribute that is null": (
        counter(begun=None, tags={"app": None}, n=None), (JSON,),
        [(("a", "in", "n"), None, NO_START, ("a",), {"port": "80"})],
    ),
    "each element, with times of arrival and a start as text": (
        [{"id": "x", "v": 1, "since": "2023-11-14T22:13:10Z"}, {"id": "y", "v": 2}],
        ({"format": "json", "kind": "counter", "each": "$", "value": "v", "id": ["id"],
          "time": "arrival", "start": "since"},),
        [(("x", "v"), 1, T0 - 10, ("x", "v"), {}), (("y", "v"), 2, NO_START, ("y", "v"), {})],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_messages_are_rows_of_series(case: str) -> None:
    document, maps, rows = CASES[case]
    batch = batch_of(document, *maps)
    assert not batch.refusals
    found, expected = FORM.recipe.empty(), SeriesSketch(PARAMS)
    found.update(*batch.columns, **batch.more)
    for key, value, start, entity, attributes in rows:
        expected.update(
            [value], 1, [T0], ds.observation_ids(*key, params=PARAMS),
            entities=ds.observation_ids(*entity, params=PARAMS), starts=[start],
            attributes=attributes,
        )  # fmt: skip
    assert found == expected


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"begun": T0 + 1}, "start"),
        ({"begun": 10**12}, "start"),
        ({"host": "h" * 70_000}, "id"),
        ({"tags": {"app": "x" * 1025}}, "attributes.app"),
        ({"tags": {"app": "x" * 600}, "port": "y" * 600}, "attributes"),
    ],
)
def test_a_row_at_fault_is_rejected_alone(changed: dict[str, Any], field: str) -> None:
    many = {**JSON, "each": "$", "check_units": False}
    batch = batch_of([counter(), counter(**changed), counter(name="out")], many)
    assert [(each.row, each.field) for each in batch.refusals] == [(1, field)]
    sketch = FORM.recipe.empty()
    sketch.update(*batch.columns, **batch.more)
    assert len(sketch) == 2


@pytest.mark.parametrize("changed", [{"begun": "soon"}, {"tags": {"app": []}}, {"host": None}])
def test_a_reading_at_fault_is_named(changed: dict[str, Any]) -> None:
    parsed = parse_message(
        Message(json.dumps(counter(**changed)).encode()), "json", mappings(JSON).map
    )
    assert len(parsed.refused) == 1
    assert not parsed.readings


ROWS = ds.SketchParams(id_bits=40, time_unit="s")
LORAWAN: dict[str, Any] = {"format": "chirpstack", "value": "object.t"}


@for_each(
    "changed, params, message",
    [
        (LORAWAN, PARAMS, r"map\[0\].id has '\$lorawan', which names a frame; expected '\$device'"),
        (LORAWAN | {"kind": "gauge"}, ROWS, "kind is 'gauge'"),
        (JSON | {"kind": None}, ROWS, "start is 'begun'"),
        (JSON | {"attributes": {"zone": "z"}}, PARAMS, "attributes has 'zone'; the stream has app"),
        (JSON | {"id": ["$device"]}, PARAMS, r"id has '\$device', and messages"),
        (JSON | {"entity": ["$device"]}, PARAMS, r"entity has '\$device', and messages"),
        (LORAWAN | {"entity": ["$lorawan"]}, PARAMS, r"entity has '\$lorawan', which names"),
        (JSON | {"start": "a["}, PARAMS, "path is 'a\\['"),
        (JSON | {"attributes": {"app": "a["}}, PARAMS, "path is 'a\\['"),
        ({"format": "json", "columns": "*", "kind": "gauge", "id": ["i"], "time": "t"}, PARAMS,
         "kind is 'gauge', and columns is given"),
    ],
)  # fmt: skip
def test_mappings_without_a_meaning_are_rejected(changed: Any, params: Any, message: str) -> None:
    with pytest.raises((ValidationError, ParameterError), match=message):
        mappings(changed, params=params)
