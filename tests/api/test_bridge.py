"""The bridge between a real broker and a real aggregator, killed at moments of any kind."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from ingest.messages import chirpstack
from support.debian import program

mqtt = pytest.importorskip("paho.mqtt.client")

PARAMS = {"max_weight": 1, "id_bits": 50, "time_unit": "ms", "capacity": 10_000}
STREAMS = ("temperature", "humidity", "alt")
DEVICES, FRAMES = 5, 300
PROGRAM = Path(sys.executable).with_name("decaysketch")


@contextmanager
def broker(folder: Path, port: int) -> Iterator[None]:
    """Mosquitto, set up as the documents say."""
    server = program(["mosquitto", "/usr/sbin/mosquitto"], ["mosquitto"])
    settings = folder / "mosquitto.conf"
    settings.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n"
        f"persistence true\npersistence_location {folder}/\n"
        + ("user root\n" if os.geteuid() == 0 else "")
    )
    with (folder / "mosquitto.log").open("ab") as log:
        process = subprocess.Popen([server, "-c", settings], stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def config_of(folder: Path, port: int, url: str) -> Path:
    maps = "".join(
        f'[[map]]\nformat = "chirpstack"\nstream = "{name}"\nvalue = "object.{path}"\n'
        for name, path in zip(STREAMS, ("temperature", "humidity", "gps.alt"), strict=True)
    )
    path = folder / "bridge.toml"
    path.write_text(
        f'spool = "{folder}/spool"\n'
        f'[server]\nurl = "{url}"\n'
        f'[mqtt]\nbroker = "mqtt://127.0.0.1:{port}"\nclient_id = "bridge-1"\n'
        f'topics = ["application/+/device/+/event/+"]\nbatch = 100\n{maps}'
    )
    return path


class Bridges:
    """Bridges of one file, one after the other."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self.running = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._config.with_suffix(".log").open("ab") as log:
            return subprocess.Popen(
                [PROGRAM, "bridge", "mqtt", "--config", self._config], stdout=log, stderr=log
            )

    def kill(self) -> None:
        self.running.kill()
        self.running.wait()

    def kill_and_start(self) -> None:
        self.kill()
        self.running = self._start()

    def __enter__(self) -> Bridges:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def publisher(port: int) -> Any:
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.max_inflight_messages_set(10)  # of QoS 2 more than 20 end the connection
    deadline = time.monotonic() + 60
    while True:
        try:
            client.connect("127.0.0.1", port)
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    client.loop_start()
    while not client.is_connected():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return client


def uplinks(begin_s: float) -> Iterator[tuple[str, bytes]]:
    """Frames of every device, in order; half way each joins again and counts from 0."""
    for number in range(FRAMES):
        session, counter = divmod(number, FRAMES // 2)
        for device in range(DEVICES):
            eui = f"70b3d5499000{device:04x}"
            values = {"temperature": 20 + number, "humidity": 50.0, "gps": {"alt": device}}
            uplink = chirpstack(
                counter,
                begin_s + 5 * number,
                devAddr=f"01ab{session:04x}",
                deviceInfo={"devEui": eui},
                object=values,
            )
            yield f"application/app/device/{eui}/event/up", json.dumps(uplink).encode()


def held(client: httpx2.Client) -> list[tuple[float, float]]:
    """Of each stream how many readings there are, and their sum."""
    found = []
    for name in STREAMS:
        queries = [{"aggregate": each, "decay": "none"} for each in ("count", "total")]
        told = client.post(f"/v1/streams/{name}/query", json={"queries": queries}).json()
        found.append(tuple(each["estimate"]["value"] for each in told["answers"]))
    return found


def wait_for(held: Callable[[], Any], expected: Any) -> None:
    deadline = time.monotonic() + 60
    while (found := held()) != expected:
        assert time.monotonic() < deadline, (found, expected)
        time.sleep(0.2)


def test_every_frame_is_counted_once_whenever_the_bridge_is_killed(
    tmp_path: Path, free_port: int, server: Callable[..., AbstractContextManager[Any]]
) -> None:
    draw = random.Random(20)
    begin_s = time.time() - 3600
    with server(tmp_path / "aggregator.sqlite3") as (_, client), broker(tmp_path, free_port):
        for name in STREAMS:
            client.put(f"/v1/streams/{name}", json={"params": PARAMS}).raise_for_status()
        config = config_of(tmp_path, free_port, str(client.base_url))
        sender = publisher(free_port)
        log = tmp_path / "bridge.log"
        sent: list[Any] = []
        with Bridges(config) as bridges:
            wait_for(lambda: log.exists() and "subscribed" in log.read_text(), True)
            lives = 0
            deaths = draw.sample(range(100, DEVICES * FRAMES - 100), 2)
            for number, (topic, body) in enumerate(uplinks(begin_s)):
                copies = 1 + (draw.random() < 0.3)
                qualities = [draw.choice((1, 1, 2)) for _ in range(copies)]
                sent += [sender.publish(topic, body, qos=each) for each in qualities]
                if number in deaths:
                    lives += 1
                    wait_for(lambda: log.read_text().count("subscribed") >= lives, True)  # noqa: B023
                    time.sleep(draw.random() / 10)  # it is busy with what has come meanwhile
                    bridges.kill_and_start()
            sent.append(sender.publish("application/app/device/x/event/join", b"{}", qos=1))
            sent.append(sender.publish("application/app/device/x/event/up", b"\xff", qos=1))
            for each in sent:
                each.wait_for_publish(60)
            sender.disconnect()
            sender.loop_stop()
            frames = DEVICES * FRAMES
            temperatures = DEVICES * sum(20 + number for number in range(FRAMES))
            alts = FRAMES * sum(range(DEVICES))
            expected = [(frames, temperatures), (frames, 50 * frames), (frames, alts)]
            wait_for(lambda: held(client), expected)

            letters = tmp_path / "spool" / "dead" / "dead.ndjson"
            wait_for(letters.exists, True)
            letter = json.loads(letters.read_text().splitlines()[-1])
            assert letter["topic"] == "application/app/device/x/event/up"
            assert letter["payload_base64"] == "/w=="
            assert "not JSON" in letter["reasons"][0]
            bridges.running.terminate()
            assert bridges.running.wait(60) == 0
        assert held(client) == expected
