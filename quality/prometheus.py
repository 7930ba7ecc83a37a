"""A pair of real Prometheus servers beside PromQL: increase of counters that are known exactly.

    python -m quality.prometheus [SECONDS]

Two servers scrape one process every second. The process shows 40 counters with known rates, of
which 10 restart during the run. For the second server it stamps its samples 2 s ahead, as a clock
that is 2 s fast would. Each server has two remote_write blocks, so it posts everything twice. The
second server is stopped halfway and started again with an empty disk. The program ``prometheus``
has to be in PATH (Debian's package of that name).

The table compares the increase in a window of half of the run, 5 s before the end, with that of the
counters themselves: by the stream, by the stream with every fall a reset, and by PromQL's
``increase`` and ``rate`` on each server.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import httpx2
import numpy as np
import numpy.typing as npt

from quality.ports import free_port
from quality.serving import Server

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
def _shown(counters: Counters) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            now = time.time()
            stamp = f" {round(now * 1_000) + AHEAD_MS}" if self.path == "/b" else ""
            values = counters.shown(now).tolist()
            lines = [f'jobs{{worker="{k}"}} {value:.0f}{stamp}' for k, value in enumerate(values)]
            body = ("# TYPE jobs counter\n" + "\n".join(lines) + "\n").encode()
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def _prometheus(binary: str, folder: Path, name: str, url: str, target: int) -> Iterator[str]:
    """A server, and its address."""
    folder.mkdir()
    blocks = "".join(_BLOCK.format(url=url, name=name, number=number) for number in range(2))
    configuration = folder / "prometheus.yml"
    configuration.write_text(_CONFIGURATION.format(name=name, target=target, blocks=blocks))
    port = free_port()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [binary, f"--config.file={configuration}", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{port}"],
            stdout=log, stderr=log,
        )  # fmt: skip
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def _promql(http: httpx2.Client, url: str, query: str, at: float) -> float:
    answer = http.get(f"{url}/api/v1/query", params={"query": query, "time": f"{at:.3f}"})
    found = answer.json()["data"]["result"]
    return float(found[0]["value"][1]) if found else float("nan")


def _of_stream(http: httpx2.Client, url: str, at: float, width: int, **more: Any) -> dict[str, Any]:
    query = {"aggregate": "increase", "decay": f"window({width}s)", "now": round(at * 1_000)}
    answer = http.post(f"{url}/v1/streams/jobs/query", json={"queries": [query | more]})
    found: dict[str, Any] = json.loads(answer.content)["answers"][0]["estimate"]
    return found


def run(binary: str, seconds: int) -> list[tuple[str, float]]:
    """What each way gives over the truth."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = Server(folder, {"DECAYSKETCH_DATA": str(folder / "aggregator.sqlite3")})
        server.start()
        stack.callback(server.kill)
        http = stack.enter_context(httpx2.Client(trust_env=False, timeout=60))
        assert http.put(f"{server.url}/v1/streams/jobs", json=_STREAM).status_code == 201
        counters = Counters(seconds)
        target = stack.enter_context(_shown(counters))
        first = stack.enter_context(_prometheus(binary, folder / "a", "a", server.url, target))
        with _prometheus(binary, folder / "b", "b", server.url, target):
            time.sleep(seconds / 2)
        second = stack.enter_context(_prometheus(binary, folder / "b2", "b", server.url, target))
        time.sleep(seconds / 2)
        at, width = time.time() - AFTER_S, seconds // 2
        time.sleep(2)  # what the servers still send
        truth = counters.increase(width)
        ours = _of_stream(http, server.url, at, width)
        found = [("the stream, `increase`", ours["value"])]
        for label, more in (
            ("the stream, every fall a reset", {"guard": 0}),
            ("the stream, one worker of 40", {"where": "worker == '20'"}),
        ):
            value = _of_stream(http, server.url, at, width, **more)["value"]
            part = counters.rates[20] / counters.rates.sum() if "where" in more else 1.0
            found.append((label, value / part))
        for name, url in (("a", first), ("b, restarted, 2 s ahead", second)):
            for function, factor in (("increase", 1), ("rate", width)):
                query = f"sum({function}(jobs[{width}s]))"
                value = factor * _promql(http, url, query, at)
                found.append((f"PromQL {function} on {name}", value))
        return [(label, value / truth) for label, value in found]


def main(arguments: list[str] | None = None) -> int:
    """Run the study; returns the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    binary = shutil.which("prometheus")
    if binary is None:
        print("no program prometheus in PATH; install Debian's package of that name")
        return 2
    print("| result of | over the truth |\n|---|---|")
    for label, ratio in run(binary, int(given[0]) if given else 60):
        print(f"| {label} | {ratio:.3f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
