"""ChirpStack v4: events as JSON, of MQTT (``application/+/device/+/event/up``) or of its HTTP
integration (``?event=up``).

A frame is named by ``deviceInfo.devEui``, ``devAddr``, which is new with every join, and ``fCnt``.
Not by ``deduplicationId``: a copy that comes late by another gateway has another one. Its time is
the earliest ``gwTime`` of ``rxInfo``, which gateways with a GPS have, else ``time``.
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
    document_of,
    moment,
)
from decaysketch.ingest.lorawan import clocks_of, counter_of, text_of
from decaysketch.ingest.paths import Path
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
    root = document_of(message.body)
    device = text_of(_DEVICE, root).lower()
    if not device:
        raise RefusedError("there is no deviceInfo.devEui")
    session = text_of(_ADDRESS, root).lower()
    if not session:
        raise RefusedError("there is no devAddr, which tells sessions apart")
    frame = Frame(device, session, counter_of(_COUNTER, root))
    clocks = tuple(clocks_of(_HEARD, _GATEWAY, _GATEWAY_TIME, root))
    time_ns = min((at for _, at in clocks), default=None)
    if time_ns is None and (said := text_of(_TIME, root)):
        time_ns = moment(said, None, _TIME.text)
    return Opened(root, message, frame, time_ns, clocks)
