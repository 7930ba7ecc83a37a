"""The loop: gather, parse, update, sync, and only then acknowledge.

Where the spool is full or the disk fails nothing is acknowledged and nothing more is read; the same
messages are tried again until there is room. What was taken of them meanwhile is taken again, which
changes nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from decaysketch.bridge.broker import Connection, Tag
from decaysketch.bridge.config import Config
from decaysketch.bridge.dead import DeadLetters
from decaysketch.bridge.metrics import Metrics
from decaysketch.bridge.translating import Arrived, Translated, Translator
from decaysketch.client import Sensor, SpoolFullError
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.errors import ObservationError
from decaysketch.ingest.columns import Form, check, check_takes_readings, to_columns

__all__ = ["Bridge", "Taker", "open_sensors"]

_log = logging.getLogger(__name__)

_AGAIN_S = 1.0
_CLOCK_OFF_S = 3600.0
_NS = 1_000_000_000


def open_sensors(config: Config, *, part: str = "", timeout_s: float = 30.0) -> dict[str, Sensor]:
    """A sensor for each stream, started.

    Args:
        config: of the bridge.
        part: of the spool and the name of the source, for what runs beside the bridge.
        timeout_s: patience for the aggregator.

    Raises:
        ClientError: a stream is not to be had, or another bridge has the spool.
        ParameterError: a stream takes no readings.
    """
    sensors: dict[str, Sensor] = {}
    suffix = f"-{part}" if part else ""
    try:
        for stream in config.streams:
            sensors[stream] = Sensor(
                config.server.url,
                stream,
                f"{config.source}{suffix}",
                spool=config.spool / f"streams{suffix}" / stream,
                api_key=config.api_key(),
                max_spool_bytes=config.max_spool_bytes,
                timeout_s=timeout_s,
                flush_age_s=1.0,
            )
            check_takes_readings(sensors[stream].start().recipe)
    except BaseException:
        for sensor in sensors.values():
            sensor.close(0.0)
        raise
    return sensors


class Taker:
    """Takes messages: what is sound goes to the sensors, the rest to the dead letters; both are on
    disk when it returns."""

    def __init__(
        self,
        config: Config,
        sensors: Mapping[str, Sensor],
        metrics: Metrics,
        letters: DeadLetters | None,
    ) -> None:
        self._config = config
        self._sensors = sensors
        self._metrics = metrics
        self._letters = letters
        self._translator = Translator(config.map, config.mqtt.max_message_bytes)
        self._off: set[str] = set()

    def take(self, arrived: list[Arrived]) -> Translated:
        """Take messages.

        Raises:
            SpoolFullError: there is no room; some of them may have been taken.
            OSError: the disk refused; likewise.
        """
        found = self._translator.translate(arrived)
        rows = {stream: self._update(stream, found) for stream in found.readings}
        for stream in rows:
            self._sensors[stream].sync()
        if found.dead and self._letters is not None:
            self._letters.keep(
                [(arrived[place].message, found.dead[place]) for place in sorted(found.dead)]
            )
        self._count(arrived, found, rows)
        return found

    def _update(self, stream: str, found: Translated) -> int:
        """Feed a stream; how many readings it took."""
        sensor, readings, owners = (
            self._sensors[stream],
            found.readings[stream],
            found.owners[stream],
        )
        recipe = sensor.recipe
        ahead_ns = time.time_ns() + round(self._config.max_ahead_s * _NS)
        latest = ahead_ns // NANOSECONDS[recipe.params.time_unit]
        form = Form(recipe, self._config.source, latest, len(readings))
        batch = check(to_columns(readings, form), form)
        for refusal in batch.refusals:
            self._metrics.refused(stream, refusal.field)
            where = readings[refusal.row].where
            found.refuse(owners[refusal.row], f"{where}: {refusal.field} {refusal.reason}")
        columns, positions = list(batch.columns), batch.positions.tolist()
        while positions:
            values, weights, times, ids = columns
            try:
                sensor.update(values, weights, times, ids)
                break
            except ObservationError as fault:  # dated ahead of the aggregator's clock
                if fault.row is None:
                    raise
                row = positions.pop(fault.row)
                self._metrics.refused(stream, fault.column)
                found.refuse(owners[row], f"{readings[row].where}: {fault}")
                keep = [place for place in range(len(times)) if place != fault.row]
                columns = [column[keep] for column in columns]
        return len(positions)

    def _count(self, arrived: list[Arrived], found: Translated, rows: Mapping[str, int]) -> None:
        metrics = self._metrics
        skipped = len(found.untouched - found.dead.keys())
        metrics.messages.labels("dead").inc(len(found.dead))
        metrics.messages.labels("skipped").inc(skipped)
        metrics.messages.labels("taken").inc(len(arrived) - len(found.dead) - skipped)
        metrics.skipped(found.skipped.items())
        for stream, count in rows.items():
            metrics.rows(stream, count)
        metrics.syncs.inc()
        for gateway, lateness_s in metrics.clocks(found.clocks):
            if abs(lateness_s) > _CLOCK_OFF_S and gateway not in self._off:
                self._off.add(gateway)
                _log.warning("gateway %s is %.3g h behind", gateway, lateness_s / 3600)
        for place, reasons in list(found.dead.items())[:1]:
            _log.warning(
                "%d of %d messages are dead letters, the first of topic %r: %s",
                len(found.dead), len(arrived), arrived[place].message.topic, reasons[0],
            )  # fmt: skip


class Bridge:
    """From the broker to the sensors.

    Args:
        connection: open.
        taker: of the messages.
        metrics: to count in.
    """

    def __init__(self, connection: Connection, taker: Taker, metrics: Metrics) -> None:
        self._connection = connection
        self._taker = taker
        self._metrics = metrics
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Have ``run`` end once the batch at hand is acknowledged."""
        self._stopped.set()

    def run(self) -> None:
        """Until it is stopped."""
        while not self._stopped.is_set():
            arrived = self._connection.gather(self._stopped.is_set)
            if arrived and self._taken(arrived):
                self._connection.acknowledge(arrived)
                self._metrics.oldest.set(0.0)

    def _taken(self, arrived: list[Arrived]) -> bool:
        """Whether they are on disk, at last; not where the bridge is stopped before."""
        told = False
        while True:
            try:
                self._taker.take(arrived)
                return True
            except (SpoolFullError, OSError) as fault:
                if not told:
                    _log.error("nothing is taken, the broker keeps what comes: %s", fault)
                    told = True
            tag = arrived[0].tag
            assert isinstance(tag, Tag)
            self._metrics.oldest.set(time.monotonic() - tag.at)
            if self._stopped.wait(_AGAIN_S):
                return False
