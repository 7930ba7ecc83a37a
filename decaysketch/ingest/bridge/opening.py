"""The sensors of a bridge: one for each stream of its mappings, and one for each derived stream.

A derived stream has its own spool and the same source name, so a revocation covers both.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from decaysketch.client import ClientError, Sensor
from decaysketch.families import Recipe
from decaysketch.ingest.bridge.config import Config
from decaysketch.ingest.bridge.views import Views, keep, learn
from decaysketch.ingest.columns import check_takes_readings
from decaysketch.ingest.formats import check_suited
from decaysketch.ingest.views import ViewOf

__all__ = ["Streams", "open_streams"]


@dataclass(frozen=True)
class Streams:
    """The streams that a bridge feeds.

    Attributes:
        sensors: of streams and derived streams, started, by name.
        views: the derived streams, by stream.
    """

    sensors: dict[str, Sensor] = field(default_factory=dict)
    views: Views = field(default_factory=dict)

    def undone(self) -> list[str]:
        """Wait for each stream, and return the names of streams with undelivered rows."""
        return [name for name, sensor in self.sensors.items() if not sensor.flush().done]

    def close(self, timeout_s: float) -> None:
        """Close all sensors in parallel. Rows that are undelivered after the timeout wait in the
        spool.
        """
        until = time.monotonic() + timeout_s
        for sensor in self.sensors.values():
            sensor.close(max(0.0, until - time.monotonic()))


def open_streams(config: Config, *, part: str = "", timeout_s: float = 30.0) -> Streams:
    """Start a sensor for each stream and each derived stream.

    Args:
        config: the bridge's configuration.
        part: of the spool and the source name, for programs that run along with the bridge.
        timeout_s: time limit for the aggregator.

    Raises:
        ClientError: a stream is not available, or another bridge has the spool.
        ParameterError: a stream accepts no readings, or a mapping does not fill its columns.
        OSError: a disk error.
    """
    suffix = f"-{part}" if part else ""
    kept = config.spool / f"views{suffix}.json"
    streams = Streams()

    def open_one(name: str) -> Recipe:
        streams.sensors[name] = Sensor(
            config.server.url,
            name,
            f"{config.source}{suffix}",
            spool=config.spool / f"streams{suffix}" / name,
            api_key=config.api_key(),
            ca_file=config.server.ca_file,
            max_spool_bytes=config.max_spool_bytes,
            timeout_s=timeout_s,
            flush_age_s=1.0,
        )
        return streams.sensors[name].start().recipe

    try:
        for name in config.streams:
            recipe = open_one(name)
            check_takes_readings(recipe)
            for each in config.maps_of(name):
                check_suited(each, recipe, f"a map of stream {name}")
        streams.views.update(learn(config, kept))
        for stream, views in streams.views.items():
            for name, view in views.items():
                # A mapping in the file may feed the derived stream, too. Duplicates change nothing.
                recipe = streams.sensors[name].recipe if name in streams.sensors else open_one(name)
                _check_alike(streams.sensors[stream].recipe, recipe, name, view)
        keep(streams.views, kept)
    except BaseException:
        streams.close(0.0)
        raise
    return streams


def _check_alike(stream: Recipe, recipe: Recipe, name: str, view: ViewOf) -> None:
    """Check that rows of a stream mean the same in a derived stream. Spools may remain from
    earlier streams.

    Raises:
        ClientError: they do not.
    """
    kind = "label" if view.names else stream.params.value_type
    expected = {"time_unit": stream.params.time_unit, "value_type": kind}
    found = {each: getattr(recipe.params, each) for each in expected}
    if found != expected:
        raise ClientError(
            f"view {name!r} is built with {found}; expected {expected}, as stream {view.of!r} is: "
            "one of the spools belongs to an earlier stream; move it away"
        )
