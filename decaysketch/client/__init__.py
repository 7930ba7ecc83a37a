"""What a sensor or a gateway uses to bring observations to an aggregator (extra ``client``).

:class:`Sensor` and :class:`AsyncSensor` fill a sketch of what is not acknowledged yet, keep it in a
spool that survives a crash, and post it until the aggregator has it. The sketch is insensitive to
duplicates, so nothing has to be known of a post whose answer never came: it is sent again.
:class:`Admin` defines and watches monitors.
``docs/client.md`` says what is guaranteed.
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
