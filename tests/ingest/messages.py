"""Messages as ChirpStack v4 and The Things Stack v3 send them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from decaysketch.ingest.documents import DocumentMap, Message
from decaysketch.ingest.formats import Mappings, parse_message
from decaysketch.ingest.readings import Parsed

T0 = 1_700_000_000
UP = "application/app/device/70b3d54990000001/event/up"


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def chirpstack(counter: int = 7, /, at: float = T0, **changed: Any) -> dict[str, Any]:
    """An uplink; a counter of 0 is left out, as protobuf's JSON does."""
    uplink = {
        "deduplicationId": "3ac7e3c4-4401-4b8d-9386-a5c902f9202d",
        "time": stamp(at),
        "deviceInfo": {
            "applicationName": "ward",
            "deviceName": "door",
            "devEui": "70B3D54990000001",
        },
        "devAddr": "01ab0001",
        "fPort": 2,
        "data": "AA==",
        "object": {"temperature": 21.5, "humidity": 50.0, "open": True, "gps": {"alt": 120.5}},
        "rxInfo": [
            {"gatewayId": "gw1", "rssi": -90, "snr": 7.5},
            {"gatewayId": "gw2", "rssi": -101, "snr": -2.0},
        ],
        "txInfo": {"frequency": 868100000},
    }
    if counter:
        uplink["fCnt"] = counter
    return uplink | changed


def tts(counter: int = 7, /, at: float = T0, **uplink: Any) -> dict[str, Any]:
    message = {
        "session_key_id": "AYfg8rhha5n+FWx0ZaAprA==",
        "f_port": 1,
        "decoded_payload": {"t": 21.5, "battery": {"v": 3.1}},
        "rx_metadata": [
            {"gateway_ids": {"gateway_id": "g1"}, "rssi": -80},
            {"gateway_ids": {"gateway_id": "g2"}, "rssi": -95},
        ],
        "received_at": stamp(at),
    }
    if counter:
        message["f_cnt"] = counter
    return {
        "end_device_ids": {
            "device_id": "d1",
            "application_ids": {"application_id": "a"},
            "dev_eui": "70B3D57ED0000001",
            "dev_addr": "260B0001",
        },
        "received_at": stamp(at + 1),
        "uplink_message": message | uplink,
    }


def maps_of(*maps: dict[str, Any]) -> tuple[DocumentMap, ...]:
    return Mappings.model_validate({"map": list(maps)}).map


def parsed_of(
    document: object, *maps: dict[str, Any], topic: str = "", arrival_ns: int | None = None
) -> Parsed:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return parse_message(Message(body, topic, arrival_ns), maps[0]["format"], maps_of(*maps))
