"""Send observations from a device or gateway to an aggregator (extra ``client``).

:class:`Sensor` and :class:`AsyncSensor` fill a sketch with observations that the aggregator has not
acknowledged, store it in a spool that survives crashes, and post it until it is acknowledged. The
sketch is insensitive to duplicates, so a post without a response is simply sent again.
:class:`Admin` defines and follows monitors. ``docs/client.md`` states the guarantees.
"""

from decaysketch.client.admin import Admin, MonitorEvent
from decaysketch.client.errors import (
    ClientError,
    SpoolFullError,
    SpoolInUseError,
    StreamUnknownError,
)
from decaysketch.client.sensor import AsyncSensor, Sensor
from decaysketch.client.status import Event, Status

__all__ = [
    "Admin",
    "AsyncSensor",
    "ClientError",
    "Event",
    "MonitorEvent",
    "Sensor",
    "SpoolFullError",
    "SpoolInUseError",
    "Status",
    "StreamUnknownError",
]
