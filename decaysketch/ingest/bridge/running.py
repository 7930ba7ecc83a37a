"""The loop: gather, parse, update, sync, and only then acknowledge, or save the position in a file.

If the spool is full or the disk fails, the bridge acknowledges nothing and reads nothing more. It
tries the same messages again until there is space. Readings that it already accepted are accepted
again, which changes nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from decaysketch.client import Sensor, SpoolFullError
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.errors import ObservationError
from decaysketch.ingest.bridge.broker import Connection, Tag
from decaysketch.ingest.bridge.config import Config
from decaysketch.ingest.bridge.dead_letters import DeadLetters
from decaysketch.ingest.bridge.message_warnings import StoredCounts, Suspicions, remedy
from decaysketch.ingest.bridge.metrics import Metrics
from decaysketch.ingest.bridge.tail import Tail
from decaysketch.ingest.bridge.translating import Arrived, Translated, Translator
from decaysketch.ingest.bridge.views import Views
from decaysketch.ingest.columns import Columns, Form, Lead, check, of_devices, to_columns
from decaysketch.ingest.record_columns import Dropped

__all__ = ["Bridge", "FileLoop", "Loop", "Taker"]

_log = logging.getLogger(__name__)

_AGAIN_S = 1.0
_LOOK_S = 0.2
_CLOCK_OFF_S = 3600.0
_NS = 1_000_000_000


class Taker:
    """Accepts messages. Sound readings go to the sensors, the rest to the dead letters. Both are on
    disk when it returns.

    Args:
        config: of the bridge.
        sensors: of streams and derived streams.
        metrics: receives the counts.
        letters: the dead letters; None: they are not stored.
        views: the derived streams, which are fed from the same readings.
    """

    def __init__(
        self,
        config: Config,
        sensors: Mapping[str, Sensor],
        metrics: Metrics,
        letters: DeadLetters | None,
        views: Views | None = None,
    ) -> None:
        self._config = config
        self._sensors = sensors
        self._metrics = metrics
        self._letters = letters
        self._views = views or {}
        self._translator = Translator(config.map, config.max_message_bytes)
        self._off: set[str] = set()
        self._absent: set[str] = set()
        self._without: set[str] = set()
        self._suspicions = Suspicions()
        self._kept = StoredCounts(config.spool, config.map)
        self._suspected: set[tuple[str, str]] = set()

    def undelivered(self) -> str:
        """Wait for the aggregator, and return the names of streams with unacknowledged readings. An
        empty text: none.

        Raises:
            ClientError: a sensor does not run.
        """
        late = [name for name, sensor in self._sensors.items() if not sensor.flush(_AGAIN_S).done]
        return ", ".join(late)

    def take(self, arrived: list[Arrived]) -> Translated:
        """Accept messages.

        Raises:
            SpoolFullError: there is no space; some messages may have been accepted.
            OSError: a disk error; likewise.
        """
        found = self._translator.translate(arrived)
        rows, without = Counter[str](), Counter[str]()
        for stream in found.readings:
            self._update(stream, found, rows, without)
        for name in rows:
            self._sensors[name].sync()
        if found.dead and self._letters is not None:
            self._letters.keep(
                [(arrived[place].message, found.dead[place]) for place in sorted(found.dead)]
            )
        self._count(arrived, found, rows)
        self._tell_without(without)
        return found

    def _update(
        self, stream: str, found: Translated, rows: Counter[str], without: Counter[str]
    ) -> None:
        """Feed a stream and its derived streams. ``rows`` counts the readings that each accepted,
        and ``without`` the readings that have no device for a derived stream.
        """
        readings = found.readings[stream]
        recipe = self._sensors[stream].recipe
        ahead_ns = time.time_ns() + round(self._config.max_ahead_s * _NS)
        latest = ahead_ns // NANOSECONDS[recipe.params.time_unit]
        lead = Lead(self._config.max_ahead_s, "max_ahead_s")
        form = Form(recipe, self._config.source, latest, len(readings), lead=lead)
        batch = check(to_columns(readings, form), form)
        for refusal in batch.refusals:
            self._metrics.refused(stream, refusal.field)
            where = readings[refusal.row].where
            owner = found.owners[stream][refusal.row]
            found.refuse(owner, f"{where}: {refusal.field} {refusal.reason}")
        self._tell_suspicions(stream, self._suspicions.count(stream, recipe, batch))
        self._tell_dropped(stream, batch.dropped)
        positions, more = batch.positions, dict(batch.more)
        fed = np.array(self._feed(stream, stream, positions, batch.columns, more, found), np.int64)
        taken = np.flatnonzero(np.isin(batch.positions, fed))
        rows[stream] += len(taken)
        for name, view in self._views.get(stream, {}).items():
            form_of_view = replace(form, recipe=self._sensors[name].recipe)
            have, of_view = of_devices(batch, taken, view, form_of_view)
            rows[name] += len(self._feed(name, stream, positions[have], of_view, {}, found))
            without[name] += len(taken) - len(have)

    def _feed(
        self,
        name: str,
        stream: str,
        positions: npt.NDArray[np.int64],
        columns: Columns,
        more: dict[str, Any],
        found: Translated,
    ) -> list[int]:
        """Feed sound rows to a stream or a derived stream. Return the accepted readings."""
        left: list[int] = positions.tolist()
        while left:
            values, weights, times, ids = columns
            try:
                self._sensors[name].update(values, weights, times, ids, **more)
                break
            except ObservationError as fault:  # dated ahead of the aggregator's clock
                if fault.row is None:
                    raise
                row = left.pop(fault.row)
                self._metrics.refused(name, fault.column)
                where = found.readings[stream][row].where
                found.refuse(found.owners[stream][row], f"{where}: {fault}")
                keep = [place for place in range(len(times)) if place != fault.row]
                columns = Columns(*(column[keep] for column in columns))
                more = {name: _rows_of(column, keep) for name, column in more.items()}
        return left

    def _tell_suspicions(self, stream: str, found: Mapping[str, int]) -> None:
        """Count suspicious readings, and warn once for each stream and kind."""
        if found:
            self._kept.add(stream, found)
        for kind, count in found.items():
            self._metrics.suspicious(stream, kind, count)
            if (stream, kind) in self._suspected:
                continue
            self._suspected.add((stream, kind))
            if kind == "replaced":
                maps = self._config.maps_of(stream)
                _log.warning(
                    "readings of stream %s replace earlier ones with the same id, far away in "
                    "time, as after a counter restarted: %s",
                    stream, remedy(maps),
                )  # fmt: skip
            else:
                _log.warning(
                    "readings of stream %s lie outside the years 1990 to 2100: a device has a "
                    "wrong clock, or the mapping has a wrong `time_unit`",
                    stream,
                )

    def _tell_dropped(self, stream: str, dropped: Dropped) -> None:
        """Count values that fill no column, and report the first ones of each stream and reason."""
        declared = {name for name, _ in getattr(self._sensors[stream].recipe.params, "columns", ())}
        for (column, reason), count in dropped.items():
            self._metrics.dropped(stream, column if column in declared else "", reason, count)
            if (stream, f"dropped {reason}") not in self._suspected:
                self._suspected.add((stream, f"dropped {reason}"))
                _log.warning(
                    "values of stream %s are dropped, the first in column %r: %s",
                    stream, column, reason,
                )  # fmt: skip

    def _tell_without(self, without: Mapping[str, int]) -> None:
        """Count readings without a device, and report this once for each derived stream."""
        for name, count in without.items():
            self._metrics.without_device(name, count)
            if count and name not in self._without:
                self._without.add(name)
                _log.warning(
                    "%d readings have no device in derived stream %s: their ids lack this part, "
                    "or it is too long",
                    count, name,
                )  # fmt: skip

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
        self._say_clocks(metrics.clocks(found.clocks))
        for path, numbers in found.absent.items():
            if path not in self._absent:
                self._absent.add(path)
                listed = ", ".join(numbers) or "none"
                _log.info("a message has no value at %s; its numbers: %s", path, listed)
        for place, reasons in list(found.dead.items())[:1]:
            _log.warning(
                "%d of %d messages are dead letters, the first with topic %r: %s",
                len(found.dead), len(arrived), arrived[place].message.topic, reasons[0],
            )  # fmt: skip

    def _say_clocks(self, said: list[tuple[str, float]]) -> None:
        """Warn once about each clock that is off. Clocks found together share one line."""
        off = {
            gateway: lateness_s
            for gateway, lateness_s in said
            if abs(lateness_s) > _CLOCK_OFF_S and gateway not in self._off
        }
        if not off:
            return
        self._off |= off.keys()
        furthest = max(off, key=lambda gateway: abs(off[gateway]))
        more = f" (and {len(off) - 1} more gateways)" if len(off) > 1 else ""
        _log.warning(
            "the clock of gateway %s%s is off, or its messages are old: it is %s",
            furthest, more, _lateness(off[furthest]),
        )  # fmt: skip


def _lateness(seconds: float) -> str:
    word = "behind" if seconds > 0 else "ahead"
    hours = abs(seconds) / 3600
    return f"{hours / 24:,.0f} d {word}" if hours > 48 else f"{hours:.1f} h {word}"


class Loop(ABC):
    """Accepts messages, batch by batch, until it is stopped.

    Args:
        taker: of the messages.
        metrics: receives the counts.
    """

    def __init__(self, taker: Taker, metrics: Metrics) -> None:
        self._taker = taker
        self._metrics = metrics
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Make ``run`` end after the present batch."""
        self._stopped.set()

    @abstractmethod
    def run(self) -> None:
        """Run until stopped."""

    def _taken(self, arrived: list[Arrived]) -> bool:
        """Return whether the messages are on disk. False if the bridge is stopped before."""
        since, told = time.monotonic(), False
        while True:
            try:
                self._taker.take(arrived)
                self._metrics.oldest.set(0.0)
                return True
            except (SpoolFullError, OSError) as fault:
                if not told:
                    _log.error(
                        "the bridge accepts no messages, and they wait at the broker: %s", fault
                    )
                    told = True
            if not self._wait(arrived, since):
                return False

    def _wait(self, arrived: list[Arrived], since: float) -> bool:
        """Wait a while. False: the bridge was stopped."""
        tag = arrived[0].tag
        begun = tag.at if isinstance(tag, Tag) else since
        self._metrics.oldest.set(time.monotonic() - begun)
        return not self._stopped.wait(_AGAIN_S)


class Bridge(Loop):
    """The loop from the broker to the sensors.

    Args:
        connection: open.
        taker: of the messages.
        metrics: receives the counts.
        ack: acknowledge messages that are on "disk" here, or that the "server" has acknowledged.
    """

    def __init__(
        self,
        connection: Connection,
        taker: Taker,
        metrics: Metrics,
        ack: Literal["disk", "server"] = "disk",
    ) -> None:
        super().__init__(taker, metrics)
        self._connection = connection
        self._ack = ack

    def run(self) -> None:
        while not self._stopped.is_set():
            arrived = self._connection.gather(self._stopped.is_set)
            if arrived and self._taken(arrived) and self._delivered(arrived):
                self._connection.acknowledge(arrived)

    def _delivered(self, arrived: list[Arrived]) -> bool:
        """Return whether the aggregator has the messages, if the bridge waits for that. False if
        the bridge is stopped before.
        """
        if self._ack == "disk":
            return True
        since, told = time.monotonic(), False
        while undelivered := self._taker.undelivered():
            if not told:
                _log.warning(
                    "messages are acknowledged once the aggregator has them: %s", undelivered
                )
                told = True
            if not self._wait(arrived, since):
                return False
        self._metrics.oldest.set(0.0)
        return True


class FileLoop(Loop):
    """The loop from a file to the sensors.

    Args:
        tail: of the file.
        taker: of its lines.
        metrics: receives the counts.
        batch: lines in one batch.
        once: stop at the end of the file.
    """

    def __init__(
        self, tail: Tail, taker: Taker, metrics: Metrics, *, batch: int, once: bool
    ) -> None:
        super().__init__(taker, metrics)
        self._tail = tail
        self._batch = batch
        self._once = once

    def run(self) -> None:
        while not self._stopped.is_set():
            arrived = self._tail.read(self._batch)
            if arrived and self._taken(arrived):
                self._kept()
            elif not arrived and (self._once or self._stopped.wait(_LOOK_S)):
                return

    def _kept(self) -> None:
        try:
            self._tail.keep_place()
        except OSError as fault:  # read again after a restart, which changes nothing
            _log.error("the position in the file cannot be stored: %s", fault)


def _rows_of(column: Any, rows: list[int]) -> Any:
    """Return some rows of a column, or of each of several columns."""
    if isinstance(column, Mapping):
        return {name: _rows_of(each, rows) for name, each in column.items()}
    return column[rows]
