"""Counts of a bridge, and a page with them for Prometheus at an address of this machine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from statistics import median
from threading import Thread
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

__all__ = ["Metrics"]

_GATEWAYS = 1000
_CLOCKS_KEPT = 101  # of each gateway
_NS = 1_000_000_000
_ROAD = "mqtt"


class Metrics:
    """The counts of a bridge.

    Attributes:
        registry: of ``prometheus_client``.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"decaysketch_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"decaysketch_{name}", text, labels, registry=self.registry)

        self._rows = counter("ingest_rows", "Readings handed on.", "protocol", "stream")
        self._refused = counter(
            "ingest_refused",
            "Readings that do not fit the stream.",
            "protocol",
            "stream",
            "reason",
        )
        self._skipped = counter(
            "ingest_skipped", "Skipped messages or parts, by kind.", "protocol", "reason"
        )
        self._without_device = counter(
            "bridge_no_device", "Readings without an id part that names a device.", "stream"
        )
        self._suspicious = counter(
            "bridge_suspicious",
            "Readings that were forwarded and are suspicious: replaced (another reading has their "
            "id), undated (outside the years 1990 to 2100).",
            "stream",
            "kind",
        )
        self._dropped = counter(
            "bridge_dropped_values",
            "Dropped values, by declared column (empty: undeclared name) and reason.",
            "stream",
            "column",
            "reason",
        )
        self.messages = counter(
            "bridge_messages", "Messages by outcome: taken, skipped or dead.", "result"
        )
        self.redelivered = counter("bridge_redelivered", "Messages that the broker sent again.")
        self.retained = counter("bridge_retained", "Messages that the broker had retained.")
        self.lost = counter(
            "bridge_lost_qos0",
            "QoS 0 messages that were lost because the bridge could not accept them.",
        )
        self.syncs = counter("bridge_syncs", "Batches that were synced to the spool.")
        self.unacked = gauge("bridge_unacked", "Messages that wait for their acknowledgement.")
        self.oldest = gauge("bridge_oldest_unacked_seconds", "Age of the oldest of them.")
        self.connected = gauge("bridge_connected", "Whether the broker is connected.")
        self.session_present = gauge(
            "bridge_session_present",
            "Whether the broker resumed the session at the last connection.",
        )
        self._lateness = gauge(
            "bridge_clock_median_lateness_seconds",
            "Median time from a gateway's clock to the arrival of its message, over its last 101 "
            "messages.",
            "gateway",
        )
        self._clocks: dict[str, deque[int]] = {}
        for result in ("taken", "skipped", "dead"):
            self.messages.labels(result)

    def rows(self, stream: str, count: int) -> None:
        self._rows.labels(_ROAD, stream).inc(count)

    def refused(self, stream: str, field: str) -> None:
        self._refused.labels(_ROAD, stream, field).inc()

    def skipped(self, words: Iterable[tuple[str, int]]) -> None:
        for word, count in words:
            self._skipped.labels(_ROAD, word).inc(count)

    def without_device(self, view: str, count: int) -> None:
        self._without_device.labels(view).inc(count)

    def suspicious(self, stream: str, kind: str, count: int) -> None:
        self._suspicious.labels(stream, kind).inc(count)

    def dropped(self, stream: str, column: str, reason: str, count: int) -> None:
        self._dropped.labels(stream, column, reason).inc(count)

    def clocks(self, said: Iterable[tuple[str, int, int]]) -> list[tuple[str, float]]:
        """Record the times that gateways reported. Return the median lateness in seconds of each
        gateway that reported a time.
        """
        spoke = set()
        for gateway, at_ns, arrival_ns in said:
            kept = self._clocks.get(gateway)
            if kept is None:
                if len(self._clocks) >= _GATEWAYS:
                    continue
                kept = self._clocks[gateway] = deque(maxlen=_CLOCKS_KEPT)
            kept.append(arrival_ns - at_ns)
            spoke.add(gateway)
        found = [(gateway, median(self._clocks[gateway]) / _NS) for gateway in sorted(spoke)]
        for gateway, lateness_s in found:
            self._lateness.labels(gateway).set(lateness_s)
        return found

    def serve(self, address: str) -> Callable[[], None]:
        """Serve the page. Call the result to stop it.

        Raises:
            OSError: the address is in use.
        """
        host, _, port = address.rpartition(":")
        server: Any
        thread: Thread
        server, thread = start_http_server(int(port), host.strip("[]"), self.registry)

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return stop
