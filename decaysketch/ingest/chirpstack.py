"""ChirpStack v4: events as JSON, of MQTT (``application/+/device/+/event/up``) or of its HTTP
integration (``?event=up``).

A frame is named by ``deviceInfo.devEui``, ``devAddr``, which is new with every join, and ``fCnt``.
Not by ``deduplicationId``: a copy that comes late by another gateway has another one. Its time is
the earliest ``gwTime`` of ``rxInfo``, which gateways with a GPS have, else ``time``; see
:mod:`decaysketch.ingest.lorawan`.
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

__all__ = ["ChirpStackMap", "open_message", "topic_of"]


class ChirpStackMap(DocumentMap):
    """A reading of an uplink; decoded values stand under ``object``."""

    default_id: ClassVar[tuple[str, ...]] = (LORAWAN,)
    has_frames: ClassVar[bool] = True

    format: Literal["chirpstack"] = Field(description="Events of ChirpStack v4, as JSON.")


_DEVICE, _ADDRESS, _COUNTER = map(Path.of, ("deviceInfo.devEui", "devAddr", "fCnt"))
_HEARD, _GATEWAY, _GATEWAY_TIME = map(Path.of, ("rxInfo", "gatewayId", "gwTime"))
_TIME = Path.of("time")
_EVENT = "/event/"
_UPLINK = "up"


def topic_of(event: str) -> str:
    """As which an event counts that came by HTTP, where topics are none."""
    return f"{_EVENT}{event}"


def open_message(message: Message) -> Opened:
    """An uplink.

    Raises:
        SkippedError: an event of another kind.
        RefusedError: an uplink that names no frame, or says no times.
    """
    if message.topic and message.topic.rpartition(_EVENT)[2] != _UPLINK:
        raise SkippedError("event")
    here = Here(object_of(message.body), message.topic)
    device = text_of(_DEVICE, here).lower()
    if not device:
        raise RefusedError("there is no deviceInfo.devEui")
    session = text_of(_ADDRESS, here).lower()
    if not session:
        raise RefusedError("there is no devAddr, which tells sessions apart")
    frame = Frame(device, session, counter_of(_COUNTER, here))
    clocks = clocks_of(_HEARD, _GATEWAY, _GATEWAY_TIME, here)
    time_ns, off = frame_time(clocks, server_time([_TIME], here))
    return Opened(here, message, frame, time_ns, clocks.said, off)
