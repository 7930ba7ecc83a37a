"""A pair of real Prometheus servers beside PromQL: increase of counters that are known exactly.

    python -m quality.prometheus [SECONDS]

Two servers scrape one process every second. The process shows 40 counters with known rates, of
which 10 restart during the run. For the second server it stamps its samples 2 s ahead, as a clock
that is 2 s fast would. Each server has two remote_write blocks, so it posts everything twice. The
second server is stopped halfway and started again with an empty disk. The program ``prometheus``
has to be in PATH (Debian's package of that name).

Beside them, processes with the OpenTelemetry SDK post a counter by OTLP to another stream
(:mod:`quality.telemetry`), and the first server scrapes the same values.

The table compares the increase in a window of half of the run, 5 s before the end, with that of the
counters themselves: by the streams, by a stream with every fall a reset, by the samples that the
first server stores (interpolated at the bounds of the window), and by PromQL's ``increase`` and
``rate`` on each server. The last line compares the rows of the first server in the stream with
those in its own store: their results have to agree to rounding.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import numpy as np
import numpy.typing as npt

from quality.exporters import Exporter, exporting, prometheus
from quality.serving import Server
from quality.telemetry import STREAM as OTLP_STREAM
from quality.telemetry import Processes, running

__all__ = ["main"]

Float64Array = npt.NDArray[np.float64]

COUNTERS: Final = 40
RESTARTED: Final = 10
AHEAD_MS: Final = 2_000
AFTER_S: Final = 5
_CONFIGURATION: Final = """
global: {{scrape_interval: 1s, external_labels: {{prometheus_replica: {name}}}}}
scrape_configs:
- job_name: jobs
  metrics_path: /{name}
  static_configs: [{{targets: ['127.0.0.1:{target}']}}]
remote_write:
{blocks}
"""
_BLOCK: Final = """
- url: {url}/v1/streams/jobs/prometheus/write?source={name}
  name: {name}-{number}
  write_relabel_configs: [{{source_labels: [__name__], regex: jobs, action: keep}}]
  queue_config: {{batch_send_deadline: 500ms, min_backoff: 100ms, max_backoff: 1s}}
"""
_STREAM: Final = {
    "family": "series",
    "params": {"time_unit": "ms", "capacity": 100_000, "attributes": "worker"},
    "ingest": {"map": [{"format": "prometheus", "metric": "jobs", "kind": "counter"}]},
}


class Counters:
    """Counters that rise evenly from a time on, and begin again at another.

    Args:
        seconds: length of the run, from which the restarts are drawn.
    """

    def __init__(self, seconds: float) -> None:
        draw = np.random.default_rng(0)
        self.rates = draw.lognormal(3.0, 1.0, COUNTERS)
        self.began = time.time() - draw.uniform(100, 1_000, COUNTERS)
        self.restarts = np.full(COUNTERS, np.inf)
        self.restarts[:RESTARTED] = time.time() + draw.uniform(0.3, 0.8, RESTARTED) * seconds

    def shown(self, at: float) -> Float64Array:
        """What the counters show."""
        since = np.where(at >= self.restarts, self.restarts, self.began)
        return np.floor(self.rates * (at - since))

    def increase(self, width_s: float) -> float:
        """Increase in any window."""
        return float(self.rates.sum() * width_s)


@contextmanager
def _shown(counters: Counters, processes: Processes) -> Iterator[int]:
    class Handler(Exporter):
        def exposition(self) -> str:
            now = time.time()
            stamp = f" {round(now * 1_000) + AHEAD_MS}" if self.path == "/b" else ""
            values = counters.shown(now).tolist()
            lines = [f'jobs{{worker="{k}"}} {value:.0f}{stamp}' for k, value in enumerate(values)]
            calls = [
                f'calls{{process="{name}", route="{route}"}} {value}'
                for (name, route), value in processes.shown().items()
            ]
            types = ["# TYPE jobs counter", *lines, "# TYPE calls counter", *calls]
            return "\n".join([*types, ""])

    with exporting(Handler) as port:
        yield port


def _configuration(name: str, url: str, target: int) -> str:
    blocks = "".join(_BLOCK.format(url=url, name=name, number=number) for number in range(2))
    return _CONFIGURATION.format(name=name, target=target, blocks=blocks)


def _promql(http: httpx2.Client, url: str, query: str, at: float) -> float:
    answer = http.get(f"{url}/api/v1/query", params={"query": query, "time": f"{at:.3f}"})
    found = answer.json()["data"]["result"]
    return float(found[0]["value"][1]) if found else float("nan")


def _sent(http: httpx2.Client, url: str, at: float) -> None:
    """Wait until a server has sent all its samples up to a time."""
    name = "prometheus_remote_storage_queue_highest_sent_timestamp_seconds{"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        lines = http.get(f"{url}/metrics").text.splitlines()
        found = [float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)]
        if len(found) == 2 and min(found) > at + 1:
            return
        time.sleep(0.5)
    raise TimeoutError(f"{url} has not sent its samples up to {at}")


def _of_store(http: httpx2.Client, url: str, at: float, width: int) -> float:
    """Return the increase by the samples in a server's store, spread evenly between two samples."""
    query = {"query": f"jobs[{2 * width}s]", "time": f"{at + AFTER_S:.3f}"}
    answer = http.get(f"{url}/api/v1/query", params=query)
    total = 0.0
    for series in answer.json()["data"]["result"]:
        times, values = np.array(series["values"], dtype=np.float64).T
        rises = np.where(np.diff(values) < 0, values[1:], np.diff(values))
        inside = np.minimum(times[1:], at) - np.maximum(times[:-1], at - width)
        total += float((rises * np.maximum(inside, 0) / np.diff(times)).sum())
    return total


def _of_stream(
    http: httpx2.Client, url: str, at: float, width: int, name: str = "jobs", **more: Any
) -> float:
    sources = {"sources": more.pop("sources")} if "sources" in more else {}
    query = {"aggregate": "increase", "decay": f"window({width}s)", "now": round(at * 1_000)}
    body = {"queries": [query | more], **sources}
    answer = http.post(f"{url}/v1/streams/{name}/query", json=body)
    return float(json.loads(answer.content)["answers"][0]["estimate"]["value"])


def run(binary: str, seconds: int) -> tuple[list[tuple[str, float]], float]:
    """Return the result of each way over the truth, and how far the first server's rows in the
    stream are from those in its store, relative.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = Server(folder, {"DECAYSKETCH_DATA": str(folder / "aggregator.sqlite3")})
        server.start()
        stack.callback(server.kill)
        http = stack.enter_context(httpx2.Client(trust_env=False, timeout=60))
        for name, form in (("jobs", _STREAM), ("calls", OTLP_STREAM)):
            assert http.put(f"{server.url}/v1/streams/{name}", json=form).status_code == 201
        counters = Counters(seconds)
        endpoint = f"{server.url}/v1/streams/calls/otlp/v1/metrics"
        processes = stack.enter_context(running(endpoint))
        target = stack.enter_context(_shown(counters, processes))
        first = stack.enter_context(
            prometheus(binary, folder / "a", _configuration("a", server.url, target))
        )
        with prometheus(binary, folder / "b", _configuration("b", server.url, target)):
            time.sleep(seconds / 2)
        second = stack.enter_context(
            prometheus(binary, folder / "b2", _configuration("b", server.url, target))
        )
        time.sleep(seconds / 2)
        at, width = round(time.time() - AFTER_S, 3), seconds // 2
        for url in (first, second):
            _sent(http, url, at)
        truth = counters.increase(width)
        calls = processes.increase(at - width, at)
        stored = _of_store(http, first, at, width)
        share = counters.rates[20] / counters.rates.sum()
        found = [
            ("the stream, `increase`", _of_stream(http, server.url, at, width) / truth),
            ("the stream, every fall a reset",
             _of_stream(http, server.url, at, width, guard=0) / truth),
            ("the stream, one worker of 40",
             _of_stream(http, server.url, at, width, where="worker == '20'") / truth / share),
            ("the samples in the store of the first server", stored / truth),
        ]  # fmt: skip
        for name, url in (("the first server", first), ("the second server", second)):
            for function, factor in (("increase", 1), ("rate", width)):
                value = factor * _promql(http, url, f"sum({function}(jobs[{width}s]))", at)
                found.append((f"PromQL `{function}` on {name}", value / truth))
        ours = _of_stream(http, server.url, at, width, "calls")
        promql = _promql(http, first, f"sum(increase(calls[{width}s]))", at)
        found += [
            (f"OpenTelemetry SDK, {processes.restarts} restarts: the stream", ours / calls),
            ("OpenTelemetry SDK: all exports", processes.exported(at - width, at) / calls),
            ("OpenTelemetry SDK: PromQL `increase` on the first server", promql / calls),
        ]
        own = _of_stream(http, server.url, at, width, guard=0, sources=["a"])
        return found, abs(own - stored) / stored


def main(arguments: list[str] | None = None) -> int:
    """Run the study; returns the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    binary = shutil.which("prometheus")
    if binary is None:
        print("no program prometheus in PATH; install Debian's package of that name")
        return 2
    print("| result of | over the truth |\n|---|---|")
    found, apart = run(binary, int(given[0]) if given else 60)
    for label, ratio in found:
        print(f"| {label} | {ratio:.3f} |")
    print(f"rows of the first server, in the stream and in its store: {apart:.1e} apart")
    return 0


if __name__ == "__main__":
    sys.exit(main())
