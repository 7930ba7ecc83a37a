"""``python -m examples.broker``: uplinks of LoRaWAN by a broker, and a bridge that is killed.

Two gateways hear every frame, and both publish it. The bridge is killed in the middle, without a
warning, and started again: the broker sends again what it had not acknowledged, and copies do not
count.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from examples.serving import answer, free_port, serving

__all__ = ["main"]

_STREAM = "temperature"
_FORM = {"params": {"max_weight": 1, "time_unit": "ms"}}
_FRAMES = 300
_PROGRAM = Path(sys.executable).with_name("decaysketch")


@contextmanager
def _broker(folder: Path, port: int) -> Iterator[None]:
    server = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if server is None:
        raise SystemExit("no mosquitto here; install it: apt-get install mosquitto")
    settings = folder / "mosquitto.conf"
    settings.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n"
        f"persistence true\npersistence_location {folder}/\n"
        + ("user root\n" if os.geteuid() == 0 else "")
    )
    process = subprocess.Popen([server, "-c", settings], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _bridge(folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "bridge.log").open("ab") as log:
        return subprocess.Popen(
            [_PROGRAM, "bridge", "mqtt", "--config", folder / "bridge.toml"],
            stdout=log, stderr=log,
        )  # fmt: skip


def _uplink(number: int, gateway: str) -> bytes:
    heard = {"gatewayId": gateway, "rssi": -90}
    at = datetime.fromtimestamp(time.time() - _FRAMES + number, UTC)
    return json.dumps(
        {
            "time": at.isoformat(timespec="milliseconds"),
            "deviceInfo": {"devEui": f"70b3d549900000{number % 10:02x}"},
            "devAddr": "01ab0001",
            "fCnt": number // 10,
            "object": {"temperature": 20 + number % 7},
            "rxInfo": [heard],
        }
    ).encode()


def _connected(port: int) -> mqtt.Client:
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    while True:
        try:
            client.connect("127.0.0.1", port)
            break
        except OSError:
            time.sleep(0.05)
    client.loop_start()
    return client


def main() -> None:
    """Print how many readings there are."""
    port = free_port()
    with serving(_STREAM, _FORM) as (client, folder), _broker(folder, port):
        (folder / "bridge.toml").write_text(
            f'spool = "{folder}/spool"\n[server]\nurl = "{str(client.base_url).rstrip("/")}"\n'
            f'[mqtt]\nbroker = "mqtt://127.0.0.1:{port}"\nclient_id = "bridge-1"\n'
            'topics = ["application/+/device/+/event/+"]\n'
            f'[[map]]\nformat = "chirpstack"\nstream = "{_STREAM}"\nvalue = "object.temperature"\n'
        )
        publisher, bridge = _connected(port), _bridge(folder)
        try:
            while "subscribed" not in (said := (folder / "bridge.log").read_text()):
                if bridge.poll() is not None:
                    raise SystemExit(said)
                time.sleep(0.05)
            for number in range(_FRAMES):
                for gateway in ("gw1", "gw2"):
                    topic = f"application/a/device/70b3d549900000{number % 10:02x}/event/up"
                    publisher.publish(topic, _uplink(number, gateway), qos=1).wait_for_publish()
                if number == _FRAMES // 2:
                    bridge.kill()
                    bridge.wait()
                    print("the bridge was killed")
                    bridge = _bridge(folder)
            while True:
                query = {"aggregate": "count", "decay": "window(1h)"}
                count = answer(client, _STREAM, **query)["estimate"]["value"]
                if count >= _FRAMES:
                    break
                time.sleep(0.2)
        finally:
            bridge.kill()
            bridge.wait()
            publisher.loop_stop()
        print(f"{2 * _FRAMES} messages were published, {count:.0f} readings are counted")


if __name__ == "__main__":
    main()
