"""ChirpStack v4: JSON events from MQTT (``application/+/device/+/event/up``) or from its HTTP
integration (``?event=up``).

The name of a frame is ``deviceInfo.devEui``, ``devAddr`` (new with every join) and ``fCnt``.
``deduplicationId`` does not name it: a late duplicate from another gateway has another one. The
frame's time is the earliest ``gwTime`` in ``rxInfo``. Only gateways with a GPS send it. Without
it, the time is ``time``. See :mod:`decaysketch.ingest.lorawan`.
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
    """A reading of an uplink. Decoded values are in ``object``."""

    default_id: ClassVar[tuple[str, ...]] = (LORAWAN,)
    has_frames: ClassVar[bool] = True

    format: Literal["chirpstack"] = Field(description="Events of ChirpStack v4, as JSON.")


_DEVICE, _ADDRESS, _COUNTER = map(Path.of, ("deviceInfo.devEui", "devAddr", "fCnt"))
_HEARD, _GATEWAY, _GATEWAY_TIME = map(Path.of, ("rxInfo", "gatewayId", "gwTime"))
_TIME = Path.of("time")
_EVENT = "/event/"
_UPLINK = "up"


def topic_of(event: str) -> str:
    """Return the topic for an event that arrived by HTTP, which has no topics."""
    return f"{_EVENT}{event}"


def open_message(message: Message) -> Opened:
    """Open an uplink.

    Raises:
        SkippedError: an event of another kind.
        RefusedError: an uplink that names no frame, or has no times.
    """
    if message.topic and message.topic.rpartition(_EVENT)[2] != _UPLINK:
        raise SkippedError("event")
    here = Here(object_of(message.body), message.topic)
    device = text_of(_DEVICE, here).lower()
    if not device:
        raise RefusedError("there is no deviceInfo.devEui")
    session = text_of(_ADDRESS, here).lower()
    if not session:
        raise RefusedError("there is no devAddr to distinguish sessions")
    frame = Frame(device, session, counter_of(_COUNTER, here))
    clocks = clocks_of(_HEARD, _GATEWAY, _GATEWAY_TIME, here)
    time_ns, off = frame_time(clocks, server_time([_TIME], here))
    return Opened(here, message, frame, time_ns, clocks.said, off)
