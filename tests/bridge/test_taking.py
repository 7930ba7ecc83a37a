"""From messages to sensors and dead letters, without a broker."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ingest.messages import T0, UP, chirpstack, stamp
from support.rows import for_each

import decaysketch as ds
from decaysketch.client import Sensor, SpoolFullError
from decaysketch.families import recipe_of
from decaysketch.ingest.bridge import checking
from decaysketch.ingest.bridge.broker import Connection, Tag
from decaysketch.ingest.bridge.checking import checks
from decaysketch.ingest.bridge.config import Config, read
from decaysketch.ingest.bridge.dead_letters import DeadLetters
from decaysketch.ingest.bridge.metrics import Metrics
from decaysketch.ingest.bridge.replay import batches, files_of
from decaysketch.ingest.bridge.running import Bridge, Taker
from decaysketch.ingest.bridge.translating import Arrived, Translator, matches
from decaysketch.ingest.documents import Message

ROOT = Path(__file__).parents[2]
PARAMS = ds.SketchParams(max_weight=1, id_bits=48, seed=7, time_unit="ms")
TEMPERATURE = {"format": "chirpstack", "stream": "temperature", "value": "object.temperature"}
POWER = {"format": "json", "stream": "power", "value": "w", "id": ["topic[1]", "seq"],
         "time": "ts", "time_unit": "ms", "topics": ["s/+/up"]}  # fmt: skip


def config_of(*maps: dict[str, Any], **more: Any) -> Config:
    return Config.model_validate(
        {
            "server": {"url": "http://localhost:1"},
            "mqtt": {"broker": "mqtt://localhost", "client_id": "b", "topics": ["#"]},
            "map": list(maps),
        }
        | more
    )


def arrived(document: object, topic: str = UP, **more: Any) -> Arrived:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Arrived(Message(body, topic, T0 * 10**9), **more)


class Bench:
    """A taker over sensors that know their stream and no network."""

    def __init__(self, folder: Path, *maps: dict[str, Any], **more: Any) -> None:
        self.config = config_of(*maps, spool=folder, **more)
        self.sensors = {
            stream: Sensor(
                "http://localhost:1", stream, "b", spool=folder / stream, recipe=recipe_of(PARAMS)
            )
            for stream in self.config.streams
        }
        self.metrics = Metrics()
        self.letters = DeadLetters(folder / "dead", 1 << 20)
        self.taker = Taker(self.config, self.sensors, self.metrics, self.letters)
        self.dead = folder / "dead" / "dead.ndjson"

    def counted(self, name: str, **labels: str) -> float:
        value = self.metrics.registry.get_sample_value(f"decaysketch_{name}", labels)
        assert value is not None, name
        return value

    def synced(self, stream: str) -> int:
        return self.sensors[stream].status().synced_rows

    def close(self) -> None:
        for sensor in self.sensors.values():
            sensor.close()


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    made: list[Bench] = []

    def make(*maps: dict[str, Any], **more: Any) -> Bench:
        made.append(Bench(tmp_path, *maps, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_readings_are_synced_and_what_cannot_be_read_is_kept(bench: Any) -> None:
    at = bench(TEMPERATURE, POWER)
    at.taker.take(
        [
            arrived(chirpstack()),
            arrived(b"\xff\x00"),
            arrived({"w": 5, "seq": 1, "ts": T0 * 1000}, "s/kitchen/up"),
            arrived({"w": "x", "seq": 1, "ts": 1}, "s/kitchen/up"),
            arrived({}, UP.replace("/up", "/join")),
            arrived(chirpstack(8, time=stamp(4_000_000_000))),
        ]
    )
    assert (at.synced("temperature"), at.synced("power")) == (1, 1)
    letters = [json.loads(line) for line in at.dead.read_text().splitlines()]
    assert [each["topic"] for each in letters] == [UP, "s/kitchen/up", UP]
    assert letters[0]["payload_base64"] == "/wA="
    assert "w: is 'x'; expected a number" in letters[1]["reasons"][0]
    assert "too far in the future" in letters[2]["reasons"][0]
    results = {each: at.counted("bridge_messages_total", result=each)
               for each in ("taken", "skipped", "dead")}  # fmt: skip
    assert results == {"taken": 2.0, "skipped": 1.0, "dead": 3.0}
    assert at.counted("ingest_rows_total", protocol="mqtt", stream="power") == 1.0
    # Of the map without topics power's messages are events as well.
    assert at.counted("ingest_skipped_total", protocol="mqtt", reason="event") == 3.0


def test_dead_letters_are_replayed_as_they_came(bench: Any, tmp_path: Path) -> None:
    at = bench(POWER)
    at.taker.take(
        [arrived({"w": "x", "seq": 1, "ts": 1}, "s/kitchen/up"), arrived(b"\xff", "s/a/up")]
    )
    (found,) = batches(files_of(tmp_path / "dead")[0], "", 100)
    assert [each.message for each in found] == [
        Message(b'{"w": "x", "seq": 1, "ts": 1}', "s/kitchen/up", T0 * 10**9),
        Message(b"\xff", "s/a/up", T0 * 10**9),
    ]
    plain = tmp_path / "log.ndjson"
    plain.write_bytes(b'{"w": 1}\n\n{"w": 2}\n{"topic": 3, "reasons": []}\n')
    found = [each.message for batch in batches(plain, "s/b/up", 2) for each in batch]
    assert [each.topic for each in found] == ["s/b/up"] * 3
    assert found[2].body == b'{"topic": 3, "reasons": []}'


def test_a_line_that_a_crash_has_broken_off_spoils_no_other(bench: Any) -> None:
    at = bench(POWER)
    at.dead.parent.mkdir()
    at.dead.write_bytes(b'{"topic": "a", "rea')
    at.taker.take([arrived(b"x", "s/a/up")])
    assert json.loads(at.dead.read_text().splitlines()[1])["topic"] == "s/a/up"


def test_where_there_is_no_room_for_dead_letters_nothing_is_taken(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path, 100)
    with pytest.raises(SpoolFullError, match="at most 100 are"):
        letters.keep([(Message(b"x" * 200), ["because"])])
    assert not list(tmp_path.glob("*.ndjson"))


def test_retained_messages_count_if_they_have_a_time_of_their_own(bench: Any) -> None:
    by_arrival = {"format": "json", "stream": "a", "value": "w", "id": ["seq"], "time": "arrival"}
    own = {"format": "json", "stream": "b", "value": "w", "id": ["seq"], "time": "ts",
           "time_unit": "s"}  # fmt: skip
    at = bench(by_arrival, own)
    at.taker.take([arrived({"w": 1, "seq": 1, "ts": 5}, "x", retained=True)])
    assert (at.synced("a"), at.synced("b")) == (0, 1)
    assert at.counted("ingest_skipped_total", protocol="mqtt", reason="retained") == 1.0


def test_the_clocks_of_gateways_are_told_apart(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    at = bench(TEMPERATURE)
    heard = [
        {"gatewayId": "good", "gwTime": stamp(T0)},
        {"gatewayId": "late", "gwTime": stamp(T0 - 936 * 86_400)},
    ]
    at.taker.take([arrived(chirpstack(rxInfo=heard))])
    name = "bridge_clock_median_lateness_seconds"
    assert at.counted(name, gateway="good") == 0.0
    assert at.counted(name, gateway="late") == 936 * 86_400
    said = "the clock of gateway late is off, or its messages are old: it is 936 d behind"
    assert [each for each in caplog.messages if "clock of" in each] == [said]
    at.taker.take([arrived(chirpstack(8, rxInfo=heard))])
    assert [each for each in caplog.messages if "clock of" in each] == [said]


def test_a_value_that_is_not_there_is_said_once_with_the_numbers_that_are(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    rssi = {"format": "chirpstack", "stream": "rssi", "each": "rxInfo", "value": "rsi",
            "id": ["$lorawan", "gatewayId"]}  # fmt: skip
    at = bench(TEMPERATURE | {"value": "object.temprature"}, rssi)
    heard = [{"gatewayId": "g", "rssi": -70, "snr": 1.5}]
    document = chirpstack(object={"temperature": 21.5, "humidity": 40, "text": "9"}, rxInfo=heard)
    for _ in range(2):
        found = at.taker.take([arrived(document), arrived(document)])
    assert found.skipped == {"no value": 4}
    numbers = found.absent["object.temprature"]
    assert set(numbers) >= {
        "object.temperature", "object.humidity", "rxInfo[0].rssi", "rxInfo[0].snr"
    }  # fmt: skip
    assert "object.text" not in numbers
    listed = ", ".join(numbers)
    assert [each for each in caplog.messages if each.startswith("a message has no value")] == [
        f"a message has no value at object.temprature; its numbers: {listed}",
        f"a message has no value at rxInfo[].rsi; its numbers: {listed}",
    ]


def test_a_message_that_is_too_long_is_not_parsed() -> None:
    found = Translator(config_of(TEMPERATURE).map, 10).translate([arrived(b"[" * 11)])
    assert found.dead == {0: ["11 bytes; at most 10 are read"]}


@for_each(
    "filter, topic, matched",
    [
        ("a/b", "a/b", True),
        ("a/+", "a/b", True),
        ("a/+", "a/b/c", False),
        ("a/+/c", "a//c", True),
        ("a/#", "a/b/c", True),
        ("a/#", "a", True),
        ("+", "a/b", False),
        ("#", "a/b", True),
        ("#", "$SYS/a", False),
        ("$SYS/#", "$SYS/a", True),
        ("a/b/c", "a/b", False),
    ],
)
def test_filters_match_as_mqtt_says(filter: str, topic: str, matched: bool) -> None:
    from paho.mqtt.client import topic_matches_sub

    assert matches(filter, topic) is matched
    assert bool(topic_matches_sub(filter, topic)) is matched


class Line:
    """A connection that gives messages and notes what is acknowledged."""

    def __init__(self, messages: list[Arrived]) -> None:
        self.messages, self.acknowledged = messages, list[Arrived]()

    def gather(self, _stopped: object) -> list[Arrived]:
        got, self.messages = self.messages, []
        return got

    def acknowledge(self, arrived: list[Arrived]) -> None:
        self.acknowledged += arrived


def test_nothing_is_acknowledged_while_the_spool_is_full(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decaysketch.ingest.bridge.running._AGAIN_S", 0.01)
    at = bench(TEMPERATURE)
    messages = [arrived(chirpstack(n), tag=Tag(1, n, 1, time.monotonic())) for n in range(1, 4)]
    line = Line(messages)
    tried, full = threading.Semaphore(0), threading.Event()
    take = at.taker.take
    full.set()

    def taken(some: list[Arrived]) -> Any:
        tried.release()
        if full.is_set():
            raise SpoolFullError("no room")
        return take(some)

    monkeypatch.setattr(at.taker, "take", taken)
    bridge = Bridge(line, at.taker, at.metrics)  # type: ignore[arg-type]
    thread = threading.Thread(target=bridge.run)
    thread.start()
    for _ in range(3):
        assert tried.acquire(timeout=600)
    assert not line.acknowledged
    full.clear()
    deadline = time.monotonic() + 600  # for what hangs
    while line.acknowledged != messages:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    bridge.stop()
    thread.join()
    assert at.synced("temperature") == 3


class Client:
    def __init__(self) -> None:
        self.acked: list[int] = []

    def ack(self, mid: int, _qos: int) -> None:
        self.acked.append(mid)


def test_a_puback_belongs_to_its_connection() -> None:
    connection = Connection(config_of(TEMPERATURE), Metrics())
    client = connection._client = Client()  # type: ignore[assignment]
    connection._generation, connection._connected = 2, True
    tags = [Tag(1, 7, 1, 0.0), Tag(2, 7, 1, 0.0), Tag(2, 8, 0, 0.0), Tag(2, 9, 1, 0.0)]
    messages = [arrived(b"", tag=each) for each in tags]
    assert connection.acknowledge(messages) == 2
    assert client.acked == [7, 9]
    connection._connected = False
    assert connection.acknowledge(messages) == 0


GOOD = """
spool = "spool"
[server]
url = "http://agg:8000"
[mqtt]
broker = "mqtts://host"
client_id = "b"
topics = ["application/+/device/+/event/up"]
[[map]]
format = "chirpstack"
stream = "temperature"
value = "object.temperature"
"""


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text(GOOD.replace("topics", 'share = "g"\ntopics'))
    config = read(tmp_path / "b.toml")
    assert (config.broker.host, config.broker.port, config.broker.secured) == ("host", 8883, True)
    assert config.broker.filters == ["$share/g/application/+/device/+/event/up"]
    assert (config.source, config.streams) == ("b", ["temperature"])


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("[server]", "[server", "is not TOML"),
        ('url = "http://agg:8000"', "", "server.url: Field required"),
        ("http://agg", "http://u:p@agg", "server.url"),
        ("mqtts://host", "http://host", "mqtt.broker: expected mqtt://host:1883"),
        ("mqtts://host", "mqtt://u:secret@host", "a user name in its own field"),
        ('stream = "temperature"', "", "map[0].stream is missing"),
        ('client_id = "b"', 'client_id = "b"\nqos = 2', "mqtt.qos: Extra inputs"),
        ("[[map]]", "[[map]]\nscale = 0", "scale is 0"),
        (
            'spool = "spool"',
            'ack = "server"',
            "ack: is not a field of this section; it belongs into [mqtt]",
        ),
        (
            "[mqtt]",
            'ack = "server"\n[mqtt]',
            "server.ack: is not a field of this section; it belongs",
        ),
        ('value = "o', 'valeu = "o', "map.0.chirpstack.valeu: Extra inputs are not permitted\n"),
        ('spool = "spool"', 'metrics = "0.0.0.0:9108"', "metrics"),
    ],
)
def test_a_file_that_means_nothing_is_refused(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    assert old in GOOD
    (tmp_path / "b.toml").write_text(GOOD.replace(old, new, 1))
    with pytest.raises(ds.ParameterError) as refused:
        read(tmp_path / "b.toml")
    assert reason in f"{refused.value}\n"
    assert "secret" not in str(refused.value)


def test_the_files_of_the_documents_are_read(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "bridge.md").read_text(encoding="utf-8")
    whole, more = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "b.toml").write_text(whole + more)
    assert read(tmp_path / "b.toml").streams == ["power", "rssi", "temperature"]
    text = (ROOT / "docs" / "start" / "lorawan.md").read_text(encoding="utf-8")
    (first,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "b.toml").write_text(first)
    assert read(tmp_path / "b.toml").streams == ["temperature"]


def test_replaced_readings_of_one_delta_are_in_the_check(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The aggregator sees the later one alone, so the bridge stores its own count."""
    at = bench(TEMPERATURE)
    at.taker.take([arrived(chirpstack(7, T0 + day * 86_400)) for day in (0, 9)])
    monkeypatch.setattr(checking, "_stream", lambda *_: (None, None, [], []))
    config = at.config.model_copy(update={"mqtt": None})
    (said,) = [fault for name, fault in checks(config) if name == "readings of temperature"]
    assert said is not None
    assert "at least 1 reading that replaced another one" in said
    assert "`reset`" in said
    other = config_of(TEMPERATURE | {"reset": "7d"}, spool=tmp_path)
    assert [name for name, fault in checks(other.model_copy(update={"mqtt": None})) if fault] == []
    (tmp_path / "suspicious.json").write_bytes(b"[")
    assert [name for name, fault in checks(config) if fault] == []
