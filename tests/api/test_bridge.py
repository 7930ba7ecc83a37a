"""The bridge between a real broker and a real aggregator, killed at moments of any kind."""

from __future__ import annotations

import json
import os
import random
import shutil
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
from support import fork_server
from support.debian import program

mqtt = pytest.importorskip("paho.mqtt.client")

PARAMS = {"max_weight": 1, "id_bits": 50, "time_unit": "ms", "capacity": 10_000}
WATCHED = {"views": {"devices": {"id": 0, "capacity": 100}}}  # of the first stream
STREAMS = ("temperature", "humidity", "alt")
DEVICES, FRAMES = 5, 300
PYTHON = sys.executable
MARK = 1e6  # which no other reading comes near


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


def config_of(folder: Path, port: int | None, url: str) -> Path:
    """The file of a bridge; without a port that of one without a broker."""
    maps = "".join(
        f'[[map]]\nformat = "chirpstack"\nstream = "{name}"\nvalue = "object.{path}"\n'
        for name, path in zip(STREAMS, ("temperature", "humidity", "gps.alt"), strict=True)
    )
    of_broker = (
        ""
        if port is None
        else f'[mqtt]\nbroker = "mqtt://127.0.0.1:{port}"\nclient_id = "bridge-1"\n'
        'topics = ["application/+/device/+/event/+"]\nbatch = 100\n'
    )
    path = folder / "bridge.toml"
    path.write_text(
        f'spool = "{folder}/spool"\n[server]\nurl = "{url}"\nsource = "bridge-1"\n{of_broker}{maps}'
    )
    return path


class Bridges:
    """Bridges of one file, one after the other."""

    def __init__(self, config: Path, *options: Any, road: str = "mqtt") -> None:
        self._log = config.with_suffix(".log")
        self._arguments = ["bridge", road, *options, "--config", config]
        self.start()

    def start(self) -> None:
        self.running = fork_server.start(self._arguments, self._log, program="decaysketch")

    def kill(self) -> None:
        self.running.kill()
        self.running.wait()

    def kill_and_start(self) -> None:
        self.kill()
        self.start()

    def __enter__(self) -> Bridges:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def publisher(port: int) -> Any:
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.max_inflight_messages_set(10)  # of QoS 2 more than 20 end the connection
    deadline = time.monotonic() + 600  # for what hangs
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


def create(client: httpx2.Client) -> None:
    """The streams; devices of the first of them are watched."""
    for name in STREAMS:
        form = {"params": PARAMS} | (WATCHED if name == STREAMS[0] else {})
        client.put(f"/v1/streams/{name}", json=form).raise_for_status()


def last_said(client: httpx2.Client) -> dict[str, float]:
    """What each device said last, by its name."""
    asked = client.get(f"/v1/streams/{STREAMS[0]}/devices", params={"listed": "latest"})
    told = asked.json().get("devices", ())  # nothing has come yet
    return {each["device"]: each["value"] for each in told}


def last_of(frames: list[tuple[str, bytes]]) -> dict[str, float]:
    """The same of frames in their order."""
    uplinks = [json.loads(body) for _, body in frames]
    return {each["deviceInfo"]["devEui"]: each["object"]["temperature"] for each in uplinks}


def wait_for(held: Callable[[], Any], expected: Any) -> None:
    deadline = time.monotonic() + 600  # for what hangs
    while (found := held()) != expected:
        assert time.monotonic() < deadline, (found, expected)
        time.sleep(0.2)


def test_every_frame_is_counted_once_whenever_the_bridge_is_killed(
    tmp_path: Path, free_port: int, server: Callable[..., AbstractContextManager[Any]]
) -> None:
    draw = random.Random(20)
    begin_s = time.time() - 3600
    with server(tmp_path / "aggregator.sqlite3") as (_, client), broker(tmp_path, free_port):
        create(client)
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
                each.wait_for_publish(600)
            sender.disconnect()
            sender.loop_stop()
            frames = DEVICES * FRAMES
            temperatures = DEVICES * sum(20 + number for number in range(FRAMES))
            alts = FRAMES * sum(range(DEVICES))
            expected = [(frames, temperatures), (frames, 50 * frames), (frames, alts)]
            wait_for(lambda: held(client), expected)
            devices = last_of(list(uplinks(begin_s)))
            wait_for(lambda: last_said(client), devices)

            letters = tmp_path / "spool" / "dead" / "dead.ndjson"
            wait_for(letters.exists, True)
            letter = json.loads(letters.read_text().splitlines()[-1])
            assert letter["topic"] == "application/app/device/x/event/up"
            assert letter["payload_base64"] == "/w=="
            assert "not JSON" in letter["reasons"][0]
            bridges.running.terminate()
            assert bridges.running.wait(600) == 0
        assert held(client) == expected
        assert last_said(client) == devices


# ---------------------------------------------------------------- sync, and then acknowledge

# The program, whose disk is about to take a batch when its machine dies, or has taken that of the
# streams and not of a view; and one that acknowledges before, as it must not: which shows that the
# test would see it.
DYING = """
import os, signal, sys, time
from decaysketch.ingest.bridge import running
from decaysketch.cli import app
from decaysketch.client import Sensor

sync, dies_at = Sensor.sync, sys.argv.pop(1)

def die(sensor):
    if dies_at not in ("first", sensor._core.stream):
        return sync(sensor)
    os.kill(os.getpid(), signal.SIGKILL)

def run_the_wrong_way_round(bridge):
    client, acknowledged, left = bridge._connection._client, 0, []
    send = client._sock_send

    def noted(packet):
        sent = send(packet)
        if packet[0] == 0x40:  # PUBACK
            left.append(packet)
        return sent

    client._sock_send = noted
    while True:
        arrived = bridge._connection.gather(lambda: False)
        if arrived:
            acknowledged += bridge._connection.acknowledge(arrived)
            while len(left) < acknowledged:
                time.sleep(0.01)
            bridge._taken(arrived)

Sensor.sync = die
if sys.argv.pop(1) == "acknowledge first":
    running.Bridge.run = run_the_wrong_way_round
app()
"""


@pytest.mark.parametrize(
    ("order", "dies_at"),
    [
        ("sync first", "first"),
        ("acknowledge first", "first"),
        ("sync first", f"{STREAMS[0]}.devices"),
        ("acknowledge first", f"{STREAMS[0]}.devices"),
    ],
)
def test_a_bridge_that_is_killed_before_its_disk_has_a_message_loses_none(
    order: str,
    dies_at: str,
    tmp_path: Path,
    free_port: int,
    server: Callable[..., AbstractContextManager[Any]],
) -> None:
    begin_s = time.time() - 3600
    ordered = [each for each, _ in zip(uplinks(begin_s), range(60), strict=False)]
    frames = ordered[::-1]  # so what is lost of the first batch is what a device said last
    values = {"temperature": MARK, "humidity": 0.0, "gps": {"alt": 0}}
    mark = chirpstack(1, begin_s, deviceInfo={"devEui": "70b3d5499000ffff"}, object=values)
    frames.append((frames[0][0], json.dumps(mark).encode()))
    count, expected = len(frames), last_of([*ordered, frames[-1]])
    with server(tmp_path / "aggregator.sqlite3") as (_, client), broker(tmp_path, free_port):
        create(client)
        config = config_of(tmp_path, free_port, str(client.base_url))
        sender = publisher(free_port)

        def send(some: list[tuple[str, bytes]]) -> None:
            for each in [sender.publish(topic, body, qos=1) for topic, body in some]:
                each.wait_for_publish(600)

        arguments = [PYTHON, "-c", DYING, dies_at, order, "bridge", "mqtt", "--config", config]
        with (tmp_path / "dying.log").open("wb") as log:
            dying = subprocess.Popen(arguments, stdout=log, stderr=log)
        wait_for(lambda: b"subscribed" in (tmp_path / "dying.log").read_bytes(), True)
        send(frames[:-1])
        assert dying.wait(600) == -9, (tmp_path / "dying.log").read_text()
        with Bridges(config):
            send(frames[-1:])  # behind all that the broker sends again
            wait_for(lambda: held(client)[0][1] >= MARK, True)
            wait_for(lambda: MARK in last_said(client).values(), True)
            if order == "sync first":
                wait_for(lambda: held(client)[0][0], count)
                wait_for(lambda: last_said(client), expected)
            else:
                assert last_said(client) != expected
                wait_for(lambda: held(client)[0][0] < count, dies_at == "first")
        sender.disconnect()
        sender.loop_stop()


def test_what_only_the_server_has_acknowledged_may_be_lost_with_the_machine(
    tmp_path: Path, free_port: int, server: Callable[..., AbstractContextManager[Any]]
) -> None:
    """With ``--ack server`` the spool is no disk: it is lost with every death of the bridge, and
    the aggregator is away for a while."""
    frames = [each for each, _ in zip(uplinks(time.time() - 3600), range(300), strict=False)]
    data = tmp_path / "aggregator.sqlite3"
    with broker(tmp_path, free_port):
        with server(data) as (_, client):
            create(client)
            url = str(client.base_url)
            port = client.base_url.port
            config = config_of(tmp_path, free_port, url)
            sender = publisher(free_port)
            log = tmp_path / "bridge.log"
            with Bridges(config, "--ack", "server") as bridges:
                wait_for(lambda: log.exists() and "subscribed" in log.read_text(), True)
                for topic, body in frames[:150]:
                    sender.publish(topic, body, qos=1)
                wait_for(lambda: held(client)[0][0] > 0, True)
                bridges.kill()
        # The aggregator is gone as well, and with the machine what the bridge had not delivered.
        shutil.rmtree(tmp_path / "spool")
        sent = [sender.publish(topic, body, qos=1) for topic, body in frames[150:]]
        for each in sent:
            each.wait_for_publish(600)
        with server(data, port=port) as (_, client), Bridges(config, "--ack", "server"):
            wait_for(lambda: held(client)[0][0], len(frames))
            temperatures = sum(json.loads(body)["object"]["temperature"] for _, body in frames)
            assert held(client)[0] == (len(frames), temperatures)
            wait_for(lambda: last_said(client), last_of(frames))
        sender.disconnect()
        sender.loop_stop()


# --------------------------------------------------------------------------------------- a file


def test_a_file_is_followed_whenever_who_follows_it_is_killed(
    tmp_path: Path, server: Callable[..., AbstractContextManager[Any]]
) -> None:
    draw = random.Random(21)
    lines = [body for _, body in uplinks(time.time() - 3600)]
    with server(tmp_path / "aggregator.sqlite3") as (_, client):
        create(client)
        config = config_of(tmp_path, None, str(client.base_url))
        path = tmp_path / "events.ndjson"
        topic = ["--topic", "application/app/device/x/event/up"]
        with Bridges(config, path, *topic, road="tail") as bridges:
            for number in range(0, len(lines), 100):
                with path.open("ab") as file:
                    file.write(b"".join(line + b"\n" for line in lines[number : number + 100]))
                if number % 500 == 200:
                    wait_for(lambda: held(client)[0][0] > 0, True)
                    time.sleep(draw.random() / 5)
                    bridges.kill()
                    path.rename(tmp_path / f"events.ndjson.{number}")
                    bridges.start()
            expected = (DEVICES * FRAMES, DEVICES * sum(20 + number for number in range(FRAMES)))
            wait_for(lambda: held(client)[0], expected)
            wait_for(lambda: last_said(client), last_of([("", line) for line in lines]))
            bridges.running.terminate()
            assert bridges.running.wait(600) == 0
        with path.open("ab") as file:
            file.write(b"no JSON\n")
        command = ["bridge", "tail", path, "--config", config, *topic]
        looked = fork_server.run([*command, "--print", "2"], program="decaysketch")
        shown = [line.split() for line in looked.stdout.splitlines() if "70b3d" in line]
        assert all("+00:00" in line for line in looked.stdout.splitlines() if "70b3d" in line)
        assert [row[1] for row in shown].count("temperature") == 2
        done = fork_server.run([*command, "--once"], program="decaysketch")
        assert done.returncode == 0, done.stderr
        assert held(client)[0] == expected
        letters = (tmp_path / "spool" / "dead" / "dead.ndjson").read_text().splitlines()
        assert json.loads(letters[-1])["payload"] == "no JSON"
