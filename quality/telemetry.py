"""Processes with the OpenTelemetry SDK, whose counters are known exactly.

Each process has a counter with two routes and exports it every second, with cumulative temporality
(the default of the SDK). It sends every export twice, as after a lost response. Half of the
processes restart every few seconds under the same name, so that a process begins again at 0, and
often passes its previous value before the next export.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final

import numpy as np
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

__all__ = ["STREAM", "Processes", "running"]

PROCESSES: Final = 6
ROUTES: Final = ("/a", "/b")
LIFE_S: Final = 5.0  # the mean life of a process that restarts
STEP_S: Final = 0.1
STREAM: Final = {
    "family": "series",
    "params": {"time_unit": "ms", "attributes": "route,service.instance.id"},
    "ingest": {"map": [{"format": "otlp", "metric": "calls", "kind": "counter"}]},
}


#: Process and route, the times of the start and of the export, and the value.
_Export = tuple[tuple[str, str], float, float, float]


class _Twice(OTLPMetricExporter):
    """Sends each export twice, and retains its values."""

    def __init__(self, endpoint: str, name: str, exported: list[_Export]) -> None:
        super().__init__(endpoint=endpoint)
        self._name, self._exported = name, exported

    def export(self, metrics_data: Any, *given: Any, **more: Any) -> Any:
        for resource in metrics_data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        key = self._name, point.attributes["route"]
                        span = point.start_time_unix_nano / 1e9, point.time_unix_nano / 1e9
                        self._exported.append((key, *span, point.value))
        super().export(metrics_data, *given, **more)
        return super().export(metrics_data, *given, **more)


class Processes:
    """Processes that count calls until they are stopped.

    Args:
        endpoint: the address for OTLP metrics.
    """

    def __init__(self, endpoint: str) -> None:
        self._exported: list[_Export] = []
        self._endpoint = endpoint
        self._draw = np.random.default_rng(1)
        self._counted: list[tuple[float, int]] = []
        self._lives: list[Any] = [self._life(number) for number in range(PROCESSES)]
        self.restarts = 0

    def _life(self, number: int) -> tuple[MeterProvider, Any]:
        name = f"p{number}"
        reader = PeriodicExportingMetricReader(
            _Twice(self._endpoint, name, self._exported), export_interval_millis=1_000
        )
        resource = Resource({"service.name": "shop", "service.instance.id": name})
        provider = MeterProvider([reader], resource, shutdown_on_exit=False)
        return provider, provider.get_meter("study").create_counter("calls")

    def run(self, stopped: threading.Event) -> None:
        """Count until stopped."""
        while not stopped.wait(STEP_S):
            for number, (provider, counter) in enumerate(self._lives):
                if number % 2 and self._draw.random() < STEP_S / LIFE_S:
                    provider.shutdown()  # exports once more
                    self._lives[number] = self._life(number)
                    self.restarts += 1
                    continue
                calls = int(self._draw.poisson(20 * (1 + number)))
                counter.add(calls, {"route": ROUTES[int(self._draw.integers(2))]})
                self._counted.append((time.time(), calls))

    def stop(self) -> None:
        """End all processes. Each exports once more."""
        for provider, _ in self._lives:
            provider.shutdown()

    def shown(self) -> dict[tuple[str, str], float]:
        """Return the latest exported values by process and route, for a scrape."""
        return {key: value for key, _, _, value in self._exported.copy()}

    def increase(self, since: float, until: float) -> int:
        """Return the calls in a window, exactly."""
        return sum(calls for at, calls in self._counted if since < at <= until)

    def exported(self, since: float, until: float) -> float:
        """Return the calls in a window by all exports, spread evenly between two of them."""
        lives: dict[tuple[tuple[str, str], float], list[tuple[float, float]]] = {}
        for key, start, at, value in self._exported.copy():
            lives.setdefault((key, start), [(start, 0.0)]).append((at, value))
        total = 0.0
        for rows in lives.values():
            for (t0, v0), (t1, v1) in pairwise(sorted(rows)):
                inside = min(t1, until) - max(t0, since)
                total += (v1 - v0) * max(inside, 0.0) / (t1 - t0) if t1 > t0 else 0.0
        return total


@contextmanager
def running(endpoint: str) -> Iterator[Processes]:
    """Processes that count while the block runs."""
    processes, stopped = Processes(endpoint), threading.Event()
    thread = threading.Thread(target=processes.run, args=(stopped,))
    thread.start()
    try:
        yield processes
    finally:
        stopped.set()
        thread.join()
        processes.stop()
