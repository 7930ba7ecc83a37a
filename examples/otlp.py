"""``python -m examples.otlp``: how long requests took, by an exporter of OpenTelemetry.

The exporter posts a histogram of delta temporality every now and then. The answer to one of its
posts gets lost, so that it posts again; every request counts once all the same.
"""

from __future__ import annotations

import numpy as np
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    MetricExportResult,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View

from examples.serving import answer, serving

__all__ = ["main"]

_STREAM = "latency"
_FORM = {
    "params": {"max_weight": 1000, "time_unit": "ms"},
    "ingest": {"map": [{"format": "otlp", "metric": "request.duration"}]},
}


class _Doubting(OTLPMetricExporter):
    """Does not believe its first answer."""

    def export(self, *given: object, **named: object) -> MetricExportResult:
        """Post, and post again."""
        super().export(*given, **named)  # type: ignore[arg-type]
        return super().export(*given, **named)  # type: ignore[arg-type]


def main() -> None:
    """Print what was measured."""
    with serving(_STREAM, _FORM) as (client, _):
        exporter = _Doubting(
            f"{str(client.base_url).rstrip('/')}/v1/streams/{_STREAM}/otlp/v1/metrics",
            preferred_temporality={Histogram: AggregationTemporality.DELTA},
        )
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=10**8)
        bounds = [round(1.15**step, 3) for step in range(60)]  # 15 % apart, 1 ms to 4 s
        view = View(
            instrument_name="request.duration",
            aggregation=ExplicitBucketHistogramAggregation(bounds),
        )
        provider = MeterProvider([reader], views=[view])
        duration = provider.get_meter("shop").create_histogram("request.duration", unit="ms")
        draw = np.random.default_rng(1)
        took = draw.lognormal(4, 0.7, 3000)
        for number, each in enumerate(took):
            duration.record(each, {"route": f"/{number % 3}"})
            if number % 1000 == 999:
                reader.force_flush()
        provider.shutdown()
        window = "window(10min)"
        requests = answer(client, _STREAM, aggregate="sum", decay=window)["estimate"]["value"]
        print(f"{requests:.0f} requests, each posted twice")
        for q in (0.5, 0.95, 0.99):
            found = answer(client, _STREAM, aggregate="quantile", q=[q], decay=window)
            estimate = found["quantiles"][0]["estimate"]
            truth = np.quantile(took, q)
            print(
                f"{q:.0%} of them within {estimate['value']:.0f} ms (counted exactly: {truth:.0f})"
            )


if __name__ == "__main__":
    main()
