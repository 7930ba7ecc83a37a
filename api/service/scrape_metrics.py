"""Metrics that are made at each scrape, because their labels follow from results."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

__all__ = ["text_of"]


class _Made:
    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Sequence[Metric]:
        return self._metrics


def text_of(metrics: Sequence[Metric]) -> bytes:
    """Return metrics with their samples in the Prometheus text format."""
    registry = CollectorRegistry()
    registry.register(_Made(metrics))
    return generate_latest(registry)
