"""The Things Stack v3: JSON messages from webhooks or from MQTT (``v3/+/devices/+/up``).

Its MQTT has only QoS 0 and no sessions, so messages without a listener are lost. Prefer webhooks.
The name of a frame is ``end_device_ids.dev_eui``, ``uplink_message.session_key_id`` (new with
every join, else ``end_device_ids.dev_addr``) and ``uplink_message.f_cnt``. Its time is the earliest
``time`` of ``rx_metadata``, else the time at which the server received it.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from decaysketch.ingest.documents import (
    LORAWAN,
    DocumentMap,
    Frame,
    Message,
    Opened,
    object_of,
)
from decaysketch.ingest.lorawan import clocks_of, counter_of, frame_time, server_time, text_of
from decaysketch.ingest.paths import Here, Path
from decaysketch.ingest.readings import RefusedError, SkippedError

__all__ = ["ThingsStackMap", "open_message"]


class ThingsStackMap(DocumentMap):
    """A reading of an uplink. Decoded values are in ``uplink_message.decoded_payload``."""

    default_id: ClassVar[tuple[str, ...]] = (LORAWAN,)
    has_frames: ClassVar[bool] = True

    format: Literal["tts"] = Field(description="Uplinks of The Things Stack v3, as JSON.")


_DEVICE, _NAME, _APPLICATION, _ADDRESS = map(
    Path.of,
    (
        "end_device_ids.dev_eui",
        "end_device_ids.device_id",
        "end_device_ids.application_ids.application_id",
        "end_device_ids.dev_addr",
    ),
)
_SESSION, _COUNTER = map(Path.of, ("uplink_message.session_key_id", "uplink_message.f_cnt"))
_HEARD, _GATEWAY, _GATEWAY_TIME = map(
    Path.of, ("uplink_message.rx_metadata", "gateway_ids.gateway_id", "time")
)
_TIMES = tuple(map(Path.of, ("uplink_message.received_at", "received_at")))


def open_message(message: Message) -> Opened:
    """Open an uplink.

    Raises:
        SkippedError: a message of another kind, or a simulated uplink.
        RefusedError: an uplink that names no frame, or has no times.
    """
    root = object_of(message.body)
    if "uplink_message" not in root:
        raise SkippedError("event")
    uplink = root["uplink_message"]
    if root.get("simulated") is True or (type(uplink) is dict and uplink.get("simulated") is True):
        raise SkippedError("simulated")
    here = Here(root, message.topic)
    frame = Frame(_device(here), _session(here), counter_of(_COUNTER, here))
    clocks = clocks_of(_HEARD, _GATEWAY, _GATEWAY_TIME, here)
    time_ns, off = frame_time(clocks, server_time(_TIMES, here))
    return Opened(here, message, frame, time_ns, clocks.said, off)


def _device(here: Here) -> str:
    """Return the EUI. LoRaWAN 1.0 devices with personalization may lack it: then their name in
    their application.
    """
    device = text_of(_DEVICE, here).lower()
    if device:
        return device
    application, name = text_of(_APPLICATION, here), text_of(_NAME, here)
    if not application or not name:
        raise RefusedError("there is neither end_device_ids.dev_eui nor the name of a device")
    return f"{application}/{name}"


def _session(here: Here) -> str:
    session = text_of(_SESSION, here) or text_of(_ADDRESS, here).lower()
    if not session:
        raise RefusedError("there is neither session_key_id nor dev_addr to distinguish sessions")
    return session
