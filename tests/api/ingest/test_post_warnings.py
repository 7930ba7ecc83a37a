"""Times of another unit: refused with the unit that is likely, or taken and said to be doubtful."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from families import CASES
from fastapi.testclient import TestClient
from service import OCTETS, PARAMS, problem

import decaysketch as ds

S = 1_700_000_000
DATE = "2023-11-14 22:1"
NONE = {"kind": "none"}


def create(client: TestClient, unit: str, name: str = "s", **form: Any) -> ds.SketchParams:
    params = ds.SketchParams(max_weight=9, id_bits=40, capacity=100, time_unit=unit)
    body = {"params": params.to_dict(), **form}
    assert client.put(f"/v1/streams/{name}", json=body).status_code == 201
    return params


def observe(client: TestClient, *times: int, name: str = "s", how: str = "") -> Any:
    rows = [{"time": time, "id": place} for place, time in enumerate(times)]
    answer = client.post(
        f"/v1/streams/{name}/observations?source=a{how}", json={"observations": rows}
    )
    assert answer.status_code in (200, 422), answer.text
    return answer.json()


def post(client: TestClient, params: ds.SketchParams, *times: int) -> Any:
    sketch = ds.DecaySketch(params)
    sketch.update(None, 1, np.array(times), np.arange(len(times)))
    return client.post("/v1/streams/s/sketches?source=b", content=sketch.to_bytes(), headers=OCTETS)


def test_refusals_of_the_future_name_the_likely_unit(client: TestClient) -> None:
    params = create(client, "s")
    refused = observe(client, S, S * 1000, 10**11)["refusals"]
    of_ms, of_none = (each["reason"] for each in refused)
    assert of_ms == "too far in the future; in ms it would be 2023-11-14 22:13:20 UTC"
    ahead = (
        r"too far in the future, 98\d{9} s ahead of this machine's clock; at most 300 \(max_clock_s"
    )
    assert re.match(ahead, of_none)
    content = problem(post(client, params, S, S * 10**6), 422, "clock-ahead")
    assert f"; in us it would be {DATE}" in content["detail"]
    assert f"; in us it would be {DATE}" in content["errors"][0]["reason"]


def test_accepted_input_that_is_probably_a_mistake_has_a_warning(client: TestClient) -> None:
    """Seconds, to a stream that counts in milliseconds."""
    params = create(client, "ms")
    refused = observe(client, S, S + 5)  # the first one
    assert refused["detail"].startswith("times are probably not in ms: ")
    assert "check_units=false" in refused["detail"]
    assert client.get("/v1/streams/s").json()["sources"] == []
    first = observe(client, S, S + 5, how="&check_units=false")
    for answer in (first, observe(client, S), post(client, params, S, S + 5).json()):
        [said] = answer["warnings"]
        assert said.startswith("times are probably not in ms: ")
        assert f"in s it would be {DATE}" in said
    [said] = client.get("/v1/streams/s").json()["warnings"]
    assert f"in s it would be {DATE}" in said


def test_nearly_all_of_another_unit_are_refused_where_dates_are_held(client: TestClient) -> None:
    create(client, "ms")
    observe(client, S * 1000)
    seconds = [S + each for each in range(99)]
    refused = observe(client, *seconds)
    assert refused["detail"].startswith("times are probably not in ms: ")
    assert client.get("/v1/streams/s").json()["rows"] == 1
    # One device among others, whose clock is of another unit, holds up nobody.
    mixed = observe(client, *(S * 1000 + each for each in range(90)), *seconds[:9])
    assert mixed["refused"] == 0
    assert mixed["warnings"][0].startswith("times are probably not in ms: ")
    assert mixed["warnings"][1].startswith("9 readings outside the years 1990 to 2100")
    assert observe(client, *seconds, how="&check_units=false")["refused"] == 0
    assert observe(client, *(each // 1000 for each in seconds))["refused"] == 0  # of no unit


def test_a_stream_that_counts_from_its_own_beginning_is_taken_for_ever(client: TestClient) -> None:
    """Milliseconds since a start: after a week they would be dates in seconds."""
    create(client, "ms")
    week = 7 * 86_400_000
    for at in (0, week, 2 * week, 5 * week):
        assert observe(client, at, at + 1)["refused"] == 0


def test_observations_that_pass_for_copies_are_told(client: TestClient) -> None:
    create(client, "s")

    def observed(*values: float) -> list[str]:
        rows = [{"time": S, "id": 7, "value": value} for value in values]
        body = {"observations": rows}
        answer = client.post("/v1/streams/s/observations?source=a", json=body).json()
        warnings: list[str] = answer["warnings"]
        return warnings

    assert observed(20, 20) == []
    assert observed(20) == []
    [said] = observed(98.9, 98.9)  # with what was posted before
    assert said.startswith("1 observation has the id and the time of another one, and another")
    [said] = observed(98.9, 5, 6)  # and within the post
    assert said.startswith("2 observations")
    assert client.get("/v1/streams/s").json()["warnings"][0].startswith("3 observations")


def test_sound_and_small_times_are_taken_without_a_word(client: TestClient) -> None:
    for times in ((S, S + 5), (0, 10)):
        params = create(client, "s")
        assert observe(client, *times)["warnings"] == []
        assert post(client, params, *times).json()["warnings"] == []
        assert client.get("/v1/streams/s").json()["warnings"] == []
        assert client.delete("/v1/streams/s").status_code < 300


@pytest.mark.usefixtures("data")  # a new aggregator, which counts from 0
def test_times_outside_1990_to_2100_beside_others_are_told_and_counted(client: TestClient) -> None:
    create(client, "ms")
    rows = [
        {"time": at, "id": n, "value": 1} for n, at in enumerate((0, 315_964_800_000, S * 1000))
    ]
    answer = client.post("/v1/streams/s/observations?source=a", json={"observations": rows})
    [said] = answer.json()["warnings"]
    assert said.startswith("2 readings outside the years 1990 to 2100")
    [said] = client.get("/v1/streams/s").json()["warnings"]
    assert said.startswith("2 readings outside")
    counted = 'decaysketch_suspicious_total{kind="undated",stream="s"} 2.0'
    assert counted in client.get("/metrics").text


@pytest.mark.usefixtures("data")  # a new aggregator, which counts from 0
def test_a_counter_that_restarts_is_told_and_counted(client: TestClient) -> None:
    create(client, "s")

    def observed(begin: int, value: float) -> list[str]:
        rows = [{"time": begin + 600 * n, "id": ["d", n], "value": value + n} for n in range(50)]
        body = {"observations": rows}
        answer = client.post("/v1/streams/s/observations?source=a", json=body).json()
        warnings: list[str] = answer["warnings"]
        return warnings

    assert observed(S, 20) == observed(S, 20) == []
    [said] = observed(S + 86_400, 30)
    assert said.startswith("50 readings were replaced by a later one with the same id")
    [said] = client.get("/v1/streams/s").json()["warnings"]
    assert said.startswith("50 readings were replaced")
    counted = 'decaysketch_suspicious_total{kind="replaced",stream="s"} 50.0'
    assert counted in client.get("/metrics").text


def test_readings_that_posted_sketches_replace_are_told(client: TestClient) -> None:
    params = create(client, "s")
    for begin in (S, S + 86_400 * 2):
        post(client, params, begin, begin + 5)
    [said] = client.get("/v1/streams/s").json()["warnings"]
    assert said.startswith("2 readings were replaced")


@pytest.mark.parametrize(
    ("times", "now", "message"),
    [
        ((S, S + 5), (S + 5) * 1000, f"now is probably not in s: .*in ms it would be {DATE}"),
        (
            (S * 1000, S * 1000 + 5),
            S,
            f"contains times that are probably not in s: .*in ms .* {DATE}",
        ),
        (
            (0, 10**5),
            None,
            "the newest observation is of 100000 s: they are probably from different clocks",
        ),
        ((S, S + 5), S + 5, None),
        ((0, 10**5), 10**5, None),
    ],
)
def test_results_that_probably_do_not_fit_the_query_have_a_warning(
    start: Callable[..., TestClient], times: tuple[int, int], now: int | None, message: str | None
) -> None:
    client = start(max_clock_skew_s=None)
    create(client, "s")
    token = observe(client, *times, how="&check_units=false")["token"]
    query = {"aggregate": "count", "decay": {"kind": "window", "width": 60}}
    asked = {"queries": [query if now is None else query | {"now": now}], "after": token}
    joined = {**asked, "streams": ["s"]}
    for _ in range(2):  # the second time from the cache
        for path, body in (("/v1/streams/s/query", asked), ("/v1/query", joined)):
            answer = client.post(path, json=body)
            assert answer.status_code == 200, answer.text
            said = answer.json()["warnings"]
            assert len(said) == (message is not None)
            if message is not None:
                assert re.search(message, said[0])


@pytest.mark.parametrize("family", CASES)
def test_the_oldest_time_of_every_family(family: str) -> None:
    sketch = CASES[family].build(3, 0)
    assert sketch.snapshot().oldest == sketch.stats().oldest


INFLUX = {"format": "influx", "measurement": "cpu", "value": "usage"}
JSON = {"format": "json", "value": "t", "id": ["id"], "time": "time", "time_unit": "s"}


@pytest.mark.parametrize(
    ("before", "now", "named"),
    [
        ([INFLUX], [INFLUX | {"drop_tags": ["host"]}], ["map[0] has another drop_tags, of"]),
        ([INFLUX], [INFLUX | {"id_tags": ["host"], "dedup": "10s"}],
         ["map[0] has another id_tags and dedup, of"]),
        ([INFLUX], [INFLUX | {"id_fields": ["seq"]}], ["map[0] has another id_fields, of"]),
        ([JSON], [JSON | {"id": ["id", "port"]}], ["map[0] has another id, of"]),
        ([INFLUX, JSON], [INFLUX, JSON | {"field": "u"}], ["map[1] has another field, of"]),
        ([{"format": "otlp", "metric": "m"}],
         [{"format": "otlp", "metric": "m", "resource_keys": ["host.name"]}],
         ["map[0] has another resource_keys, of"]),
        ([{"format": "prometheus", "metric": "m"}],
         [{"format": "prometheus", "metric": "m", "drop_labels": ["replica"]}],
         ["map[0] has another drop_labels, of"]),
        ([INFLUX], [INFLUX], []),
        ([INFLUX], [INFLUX | {"scale": 2.0, "where": {"site": "yard"}, "missing": [-1]}], []),
        ([INFLUX], [INFLUX | {"value": "idle", "drop_tags": ["host"]}], []),  # other readings
        ([INFLUX], [INFLUX, INFLUX | {"drop_tags": ["host"], "where": {"site": "yard"}}], []),
        ([INFLUX, JSON], [JSON, INFLUX], []),
    ],
)  # fmt: skip
def test_maps_that_name_anew_what_is_held_are_told(
    stream: TestClient, before: list[Any], now: list[Any], named: list[str]
) -> None:
    def put(maps: list[Any]) -> list[str]:
        form = {"params": PARAMS.to_dict(), "ingest": {"map": maps}}
        answer = stream.put("/v1/streams/s", json=form)
        assert answer.status_code == 200, answer.text
        warnings: list[str] = answer.json()["warnings"]
        return warnings

    put(before)
    assert put(now) == []  # where nothing is held there is nothing that could count twice
    put(before)
    body = {"observations": [{"value": 1, "time": 5, "id": 5}]}
    assert stream.post("/v1/streams/s/observations?source=a", json=body).status_code == 200
    said = put(now)
    assert [each.split(" which ids are made")[0] for each in said] == named
    assert all("counted again if it is sent again; delete the stream" in each for each in said)
    assert put(now) == []  # they are these already


@pytest.mark.parametrize(("unit", "meant"), [("msec", "ms"), ("seconds", "s"), ("minutes", "min")])
def test_a_unit_without_a_clock_that_is_called_as_one_that_has_is_said(
    client: TestClient, unit: str, meant: str
) -> None:
    body = {"params": {"time_unit": unit}}
    for _ in range(2):  # to be created, and again
        [said] = client.put("/v1/streams/s", json=body).json()["warnings"]
        assert said.startswith(f"time_unit is '{unit}', which has no clock")
        assert said.endswith(f"did you mean '{meant}'?")
    for sound in ("ticks", meant):
        form = {"params": {"time_unit": sound}}
        assert client.put(f"/v1/streams/of-{sound}", json=form).json()["warnings"] == []


def test_ids_that_name_the_device_and_not_the_message_are_said(client: TestClient) -> None:
    create(client, "s")

    def said(*rows: dict[str, Any]) -> list[str]:
        form = {"observations": [{"value": 1.5} | each for each in rows]}
        answer = client.post("/v1/streams/s/observations?source=a", json=form)
        assert answer.status_code == 200, answer.text
        found = answer.json()["warnings"]
        assert isinstance(found, list)
        return found

    rows = [{"id": ["m1", n], "time": S + n} for n in range(20)]
    assert said(*rows, *rows, *rows[:5]) == []  # copies
    short = [each | {"id": f"m{n % 2}"} for n, each in enumerate(rows)]
    [found] = said(*short)
    assert found.startswith("observations of 20 different times have 2 ids, and only the latest")
    corrected = [each | {"time": S + 30 + n} for n, each in enumerate(rows)]
    assert said(*rows, *corrected) == []
    assert said(*short[:9]) == []  # too few to tell


def test_a_length_without_a_unit_that_leaves_the_newest_instant_alone_is_said(
    client: TestClient,
) -> None:
    params = create(client, "ms")
    sketch = ds.DecaySketch(params)
    sketch.update([1.0, 2.0], 1, [S * 1000, S * 1000 + 3_600_000], [1, 2])
    client.post("/v1/streams/s/sketches?source=b", content=sketch.to_bytes(), headers=OCTETS)

    def warned(decay: Any, **more: Any) -> list[str]:
        query = {"aggregate": "mean", "decay": decay, "now": S * 1000 + 3_600_000} | more
        answer = client.post("/v1/streams/s/query", json={"queries": [query, query]})
        found = answer.json()["warnings"]
        assert isinstance(found, list)
        return found

    for short in ("exponential(half_life=3600)", {"kind": "window", "width": 3600}):
        [said] = warned(short)
        assert "only the newest instant has weight, and the next one is 1h older" in said
        assert "a length without a unit is in ms" in said
    assert warned("exponential(half_life=1h)") == warned("window(10s)") == warned("none") == []
    assert warned({"kind": "window", "width": 3_600_000}) == []
