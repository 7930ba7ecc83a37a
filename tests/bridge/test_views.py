"""What a bridge makes of what an aggregator says of views, and how it feeds them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from ingest.messages import T0, UP, chirpstack
from support.rows import for_each

import decaysketch as ds
from decaysketch.client import ClientError, Sensor, SpoolFullError
from decaysketch.client.retrying_client import Asking, UnreachableError
from decaysketch.families import recipe_of
from decaysketch.ingest.bridge.config import Config
from decaysketch.ingest.bridge.metrics import Metrics
from decaysketch.ingest.bridge.opening import Streams
from decaysketch.ingest.bridge.running import Taker
from decaysketch.ingest.bridge.translating import Arrived
from decaysketch.ingest.bridge.views import Views, ask, keep
from decaysketch.ingest.documents import Message
from decaysketch.ingest.views import ViewOf

DEVICE = "70b3d54990000001"
OF = {"of": "ward", "id": [0], "names": False}


@for_each(
    "given",
    [
        None,
        "ward",
        [],
        {},
        {"of": 1, "id": [0]},
        {"of": "ward", "id": 0},
        {"of": "ward", "id": []},
        {"of": "ward", "id": [0, 1, 2, 3, 4]},
        {"of": "ward", "id": [8]},
        {"of": "ward", "id": [-1]},
        {"of": "ward", "id": [True]},
        {"of": "ward", "id": [0.0]},
        {"of": "ward", "id": [0], "names": 1},
    ],
)
def test_what_says_not_how_a_view_is_fed_is_refused(given: Any) -> None:
    with pytest.raises(ds.ParameterError, match="view_of is"):
        ViewOf.from_dict(given)


@pytest.mark.parametrize("view", [ViewOf("ward", (0,)), ViewOf("w", (2, 0), names=True)])
def test_what_feeds_a_view_comes_back(view: ViewOf) -> None:
    assert ViewOf.from_dict(json.loads(json.dumps(view.to_dict()))) == view


def asking(answers: dict[str, Any]) -> Asking:
    """One who is answered so by stream; what is a number is the status of a refusal."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        name = request.url.path.removeprefix("/v1/streams/")
        given = answers[name]
        if isinstance(given, int):
            return httpx2.Response(given, json={"detail": "no"})
        return httpx2.Response(200, json={"name": name} | given)

    client = httpx2.Client(base_url="http://there", transport=httpx2.MockTransport(answer))
    return Asking(client, attempts=2, wait=lambda _: None)


def test_what_is_said_of_views_is_learned() -> None:
    answers = {
        "ward": {"views": ["ward.a", "ward.b", "ward.c", "ward.d", "ward.e"]},
        "ward.a": {"view_of": OF},
        "ward.b": 403,
        "ward.c": {"view_of": OF | {"of": "other"}},
        "ward.d": {"view_of": "ward"},  # as an aggregator of before says it
        "ward.e": 404,
        "plain": {},
    }
    told = ask(asking(answers), "ward")
    assert told.views == {"ward.a": ViewOf("ward", (0,))}
    assert told.faults.keys() == {"ward.b", "ward.c", "ward.d", "ward.e"}
    assert "403: no" in told.faults["ward.b"]
    assert "it is derived from 'other'; expected 'ward'" in told.faults["ward.c"]
    assert ask(asking(answers), "plain") == ({}, {})
    with pytest.raises(UnreachableError):
        ask(asking(answers | {"ward.a": 503}), "ward")
    with pytest.raises(ClientError, match="404"):
        ask(asking(answers | {"ward": 404}), "ward")


@pytest.mark.parametrize(
    "names",
    [7, "ward.a", [7], ["other.a"], ["ward./../../a"], ["ward./etc"], ["ward.a\n"],
     ["ward." + "a" * 100], [f"ward.{n}" for n in range(17)]],
)  # fmt: skip
def test_names_that_are_none_of_views_are_refused(names: Any) -> None:
    with pytest.raises(ClientError, match="the server returned as views of stream 'ward':"):
        ask(asking({"ward": {"views": names}}), "ward")


def test_what_is_kept_is_written_where_it_is_new(tmp_path: Path) -> None:
    kept = tmp_path / "views.json"
    views: Views = {"ward": {"ward.a": ViewOf("ward", (0,), names=True)}}
    keep({}, kept)
    assert not kept.exists()
    keep(views, kept)
    written = kept.stat().st_mtime_ns, kept.stat().st_ino
    keep(views, kept)
    assert (kept.stat().st_mtime_ns, kept.stat().st_ino) == written
    assert json.loads(kept.read_bytes()) == {
        "ward": {"ward.a": {"of": "ward", "id": [0], "names": True}}
    }


Feed = Callable[..., tuple[Taker, dict[str, Sensor], Metrics]]


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Feed]:
    """A taker of one stream with both of its views, without a network."""
    made: list[Sensor] = []

    def make(value_type: str = "float64") -> tuple[Taker, dict[str, Sensor], Metrics]:
        kinds = {"ward": value_type, "ward.devices": value_type, "ward.names": "label"}
        sensors = {}
        for name, kind in kinds.items():
            params = ds.SketchParams(time_unit="ms", value_type=kind)
            sensors[name] = Sensor(
                "http://localhost:1", name, "b", spool=tmp_path / name, recipe=recipe_of(params)
            )
        made.extend(sensors.values())
        views = {"ward.devices": ViewOf("ward", (0,)), "ward.names": ViewOf("ward", (0,), True)}
        labels = value_type == "label"
        value = "object.state" if labels else "object.temperature"
        map = {"format": "chirpstack", "stream": "ward", "value": value, "labels": labels}
        server = {"url": "http://localhost:1", "source": "b"}
        config = Config.model_validate({"server": server, "map": [map], "spool": tmp_path})
        metrics = Metrics()
        return Taker(config, sensors, metrics, None, {"ward": views}), sensors, metrics

    yield make
    for each in made:
        each.close()


def synced(sensors: dict[str, Sensor]) -> list[int]:
    return [sensor.status().synced_rows for sensor in sensors.values()]


def arrived(*documents: dict[str, Any]) -> list[Arrived]:
    return [Arrived(Message(json.dumps(each).encode(), UP)) for each in documents]


def test_what_the_stream_refuses_is_in_no_view(feed: Feed) -> None:
    taker, sensors, metrics = feed()
    late = chirpstack(8, 4_000_000_000)
    found = taker.take(arrived(chirpstack(7), late, chirpstack(9, object={"temperature": "x"})))
    assert synced(sensors) == [1, 1, 1]
    assert found.dead.keys() == {1, 2}
    assert len(found.dead[1]) == 1
    name = "decaysketch_ingest_rows_total"
    counted = [
        metrics.registry.get_sample_value(name, {"protocol": "mqtt", "stream": each})
        for each in sensors
    ]
    assert counted == [1, 1, 1]


def test_labels_are_last_words(feed: Feed) -> None:
    taker, sensors, _ = feed("label")
    states = ["shut", "open", "shut"]
    taker.take(
        arrived(*(chirpstack(n, T0 + n, object={"state": each}) for n, each in enumerate(states)))
    )
    assert synced(sensors) == [3, 3, 3]


def test_a_spool_of_a_view_that_is_full_holds_the_message_up(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    taker, sensors, metrics = feed()

    def refuse(*_: Any, **__: Any) -> int:
        raise SpoolFullError("no room")

    monkeypatch.setattr(sensors["ward.names"], "update", refuse)
    with pytest.raises(SpoolFullError):
        taker.take(arrived(chirpstack()))
    assert synced(sensors) == [0, 0, 0]
    monkeypatch.undo()
    taker.take(arrived(chirpstack()))
    assert synced(sensors) == [2, 2, 1]  # what was taken before, once more
    assert (
        metrics.registry.get_sample_value("decaysketch_bridge_messages_total", {"result": "taken"})
        == 1
    )


def test_a_row_that_a_view_refuses_makes_a_dead_letter(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock that a sensor knows of the aggregator's is its own."""
    taker, sensors, metrics = feed()
    update = sensors["ward.devices"].update

    def refuse(values: Any, weights: Any, times: Any, ids: Any) -> int:
        if len(times) > 1:
            raise ds.ObservationError("too far in the future", row=1, column="timestamp")
        return update(values, weights, times, ids)

    monkeypatch.setattr(sensors["ward.devices"], "update", refuse)
    found = taker.take(arrived(chirpstack(1, T0), chirpstack(2, T0 + 9)))
    assert synced(sensors) == [2, 1, 2]
    assert list(found.dead) == [1]
    labels = {"protocol": "mqtt", "stream": "ward.devices", "reason": "timestamp"}
    assert metrics.registry.get_sample_value("decaysketch_ingest_refused_total", labels) == 1


def test_all_sensors_have_one_patience_together_when_a_bridge_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("decaysketch.ingest.bridge.opening.time.monotonic", lambda: now[0])
    given = []

    class Slow:
        def close(self, timeout_s: float) -> None:
            given.append(timeout_s)
            now[0] += min(timeout_s, 20.0)

    sensors: Any = {name: Slow() for name in ("ward", "ward.devices", "ward.names")}
    Streams(sensors).close(30.0)
    assert given == [30.0, 10.0, 0.0]
