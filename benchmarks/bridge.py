"""``python -m benchmarks.bridge``: messages a second that are read and synced to the spool.

An uplink of ChirpStack is 600 bytes or so and gives one reading. Beside the whole way of the bridge
(maps, ids, checks, ``Sensor.update``, ``Sensor.sync``) stand its parser alone and the floor, which
is to have the JSON parsed by the standard library and nothing done with it. Processor time of the
process, all of its threads; the best of some rounds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from decaysketch.client import Sensor
from decaysketch.core.params import SketchParams
from decaysketch.families import recipe_of
from decaysketch.ingest.bridge.config import Config
from decaysketch.ingest.bridge.metrics import Metrics
from decaysketch.ingest.bridge.running import Taker
from decaysketch.ingest.bridge.translating import Arrived, Translator
from decaysketch.ingest.bridge.views import Views
from decaysketch.ingest.documents import Message
from decaysketch.ingest.views import ViewOf

_MESSAGES, _BATCH, _ROUNDS = 20_000, 1000, 3
_BEGIN_S = 1_700_000_000


def _uplink(number: int) -> bytes:
    device = f"70b3d5499000{number % 500:04x}"
    heard = [
        {"gatewayId": f"a84041ffff1e{gateway:04x}", "uplinkId": number, "rssi": -90, "snr": 7.5,
         "crcStatus": "CRC_OK"}
        for gateway in range(2)
    ]  # fmt: skip
    uplink = {
        "deduplicationId": f"{number:032x}",
        "time": f"2023-11-{14 + number // 86_400:02d}T22:13:20.123456+00:00",
        "deviceInfo": {"applicationName": "ward", "deviceName": "door", "devEui": device},
        "devAddr": "01ab0001", "adr": True, "dr": 5, "fCnt": number // 500, "fPort": 2,
        "confirmed": False, "data": "AA==", "object": {"temperature": 20 + number % 100 / 10},
        "rxInfo": heard, "txInfo": {"frequency": 868_100_000},
    }  # fmt: skip
    return json.dumps(uplink).encode()


def _best(work: Callable[[int], None]) -> float:
    """Messages for each second of processor time."""
    seconds = []
    for number in range(_ROUNDS):
        begin = time.process_time()
        work(number)
        seconds.append(time.process_time() - begin)
    return _MESSAGES / min(seconds)


def main() -> None:
    """Print the rates."""
    topic = "application/app/device/70b3d54990000001/event/up"
    bodies = [_uplink(number) for number in range(_MESSAGES)]
    arrived = [Arrived(Message(body, topic, _BEGIN_S * 10**9)) for body in bodies]
    batches: Sequence[list[Arrived]] = [
        arrived[place : place + _BATCH] for place in range(0, _MESSAGES, _BATCH)
    ]
    python = sys.version.split()[0]
    print(f"{len(bodies[-1])} bytes a message, {_BATCH} of them a batch; Python {python}")

    def parse(_: int) -> None:
        for body in bodies:
            json.loads(body)

    rates = {"the JSON alone, by the standard library": _best(parse)}
    with TemporaryDirectory() as folder:
        config = Config.model_validate(
            {
                "spool": folder,
                "server": {"url": "http://localhost:1"},
                "mqtt": {"broker": "mqtt://localhost", "client_id": "b", "topics": ["#"]},
                "map": [
                    {"format": "chirpstack", "stream": "t", "value": "object.temperature",
                     "where": {"deviceInfo.applicationName": "ward"}}
                ],
            }
        )  # fmt: skip
        translator = Translator(config.map, config.max_message_bytes)

        def translate(_: int) -> None:
            for batch in batches:
                translator.translate(batch)

        rates["read by a map"] = _best(translate)
        params = SketchParams(max_weight=1, id_bits=48, time_unit="ms")
        kinds: dict[str, Literal["float64", "label"]] = {
            "t.devices": "float64",
            "t.devices.names": "label",
        }
        recipes = {"t": recipe_of(params)} | {
            name: recipe_of(SketchParams(time_unit="ms", value_type=kind))
            for name, kind in kinds.items()
        }
        views = {"t": {name: ViewOf("t", (0,), kind == "label") for name, kind in kinds.items()}}

        def whole(number: int, views: Views) -> None:
            names = ["t", *views.get("t", ())]
            spool = Path(folder) / f"{number}-{len(names)}"
            sensors = {
                name: Sensor(
                    "http://localhost:1", name, "b", spool=spool / name, recipe=recipes[name]
                )
                for name in names
            }
            try:
                taker = Taker(config, sensors, Metrics(), None, views)
                for each in batches:
                    taker.take(each)
                assert all(each.status().synced_rows == _MESSAGES for each in sensors.values())
            finally:
                for sensor in sensors.values():
                    sensor.close()

        taken = "read, checked, given to the sensor and synced"
        rates[taken] = _best(lambda number: whole(number, {}))
        rates[f"{taken}, and to both views of devices"] = _best(lambda number: whole(number, views))
    for name, rate in rates.items():
        print(f"{rate:10,.0f} a second of processor time: {name}")


if __name__ == "__main__":
    main()
