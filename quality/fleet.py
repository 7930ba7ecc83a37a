"""An operator's hour with the requests on ``docs/fleet.md``, compared with exact values.

    python -m quality.fleet [--scrapes 5] [--interval 15]

Two Prometheus servers scrape 50 hosts with 200 metrics every 15 s, in an HA pair. Each has the
page's ``remote_write`` block. Then the study sends the page's queries, alert and configured query.
A third server scrapes the results and evaluates the panel's expression. Line protocol as Telegraf
writes it follows, from 5,000 hosts in gzip batches.

Before the servers start, the study sends the hour before for one metric, so that a sample
decides. The exact values come from these, from the raw samples in both Prometheus databases, one
per series and scrape interval, and from the written lines. The table shows how many intervals
contain them. A result and its exact value are of one moment: the study names it in its queries, and
reads it from the alert and from the panel's scrape. The program ``prometheus`` must be in PATH
(Debian's package with that name).
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import re
import shutil
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import cramjam
import httpx2
import numpy as np

from benchmarks.write_requests import field, sample
from quality.exporters import Exporter, exporting, prometheus
from quality.serving import Server

__all__ = ["main"]

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "fleet.md"
HOSTS, METRICS, FLEET, TURNS, BATCH = 50, 200, 5_000, 6, 1_000
REGIONS, ENVS = ("eu", "us", "ap"), ("prod", "test")
_SOON_S: Final = 600
_WINDOW_MS: Final = 3_600_000  # of the decay on the page
_FLUSHED_S: Final = 8  # Prometheus sends a batch after 5 s at the latest
_LOAD: Final = {"__name__": "node_load1"}
_PANEL: Final = re.compile(r"use the query `([^`]+)` and the legend `{{(\w+)}}`")

Samples = dict[str, list[float]]


# ---------------------------------------------------------------------------------------- the page


def requests(interval: int = 15) -> dict[tuple[str, str], Any]:
    """Return the bodies of the page's requests, by method and path."""
    page = PAGE.read_text().replace('"dedup": "15s"', f'"dedup": "{interval}s"')
    found = re.findall(r"```json\n(PUT|POST) (\S+)\n(.*?)```", page, re.DOTALL)
    return {(method, path): json.loads(body) for method, path, body in found}


def configurations(interval: int) -> list[str]:
    """Return the page's parts of a Prometheus configuration, without authorization."""
    page = PAGE.read_text().replace("scrape_interval: 15s", f"scrape_interval: {interval}s")
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    return [re.sub(r"  authorization:.*\n", "", block) for block in blocks]


def tags(host: int) -> dict[str, str]:
    """Return the labels of a host."""
    return {"host": f"h{host:04}", "region": REGIONS[host % 3], "env": ENVS[host % 5 == 0]}


# -------------------------------------------------------------------------------------- the servers


class _Exporter(Exporter):
    """The metrics of every host. Each scrape reads new values."""

    draw = np.random.default_rng(0)
    lock = threading.Lock()

    def exposition(self) -> str:
        host = int(self.path.lstrip("/"))
        with self.lock:
            values = self.draw.gamma(2.0, 1.0 + host / 10, METRICS).round(3).tolist()
        names = ["node_load1", *(f"m{metric}" for metric in range(1, METRICS))]
        return "".join(f"{name} {value}\n" for name, value in zip(names, values, strict=True))


def _targets(port: int) -> str:
    found = ["scrape_configs:", "- job_name: node", "  static_configs:"]
    for host in range(HOSTS):
        labels = json.dumps({**tags(host), "__metrics_path__": f"/{host}"})
        found.append(f"  - {{targets: ['127.0.0.1:{port}'], labels: {labels}}}")
    return "\n".join(found) + "\n"


def _until(found: Callable[[], Any]) -> Any:
    stop = time.monotonic() + _SOON_S
    while time.monotonic() < stop:
        with suppress(httpx2.TransportError, ValueError):  # it does not listen, or is not ready
            if value := found():
                return value
        time.sleep(0.5)
    return found()


# ----------------------------------------------------------------------------------- exact values


def _raw(http: httpx2.Client, url: str, seconds: int) -> Iterator[tuple[str, str, int, float]]:
    """Yield the samples that a server stored: its series, host, time and value."""
    query = f"node_load1[{seconds}s]"
    answer = http.get(f"{url}/api/v1/query", params={"query": query}).json()
    for series in answer["data"]["result"]:
        labels = {name: text for name, text in series["metric"].items() if name != "replica"}
        name = json.dumps(labels, sort_keys=True)
        for at, value in series["values"]:
            yield name, labels["host"], round(at * 1_000), float(value)


def hour_before(http: httpx2.Client, interval: int) -> Iterator[tuple[str, str, int, float]]:
    """Send one metric for the hour before, from both servers. Yield its samples as `_raw` does."""
    draw, end = np.random.default_rng(2), int(time.time()) // interval * interval
    fixed = {"__name__": "node_load1", "instance": "127.0.0.1:1", "job": "node"}
    for replica, late in (("a", 1_000), ("b", 3_000)):
        series = []
        for host in range(HOSTS):
            labels = fixed | tags(host)
            name = json.dumps(labels, sort_keys=True)
            sent = b"".join(
                field(1, field(1, key.encode()) + field(2, text.encode()))
                for key, text in sorted((labels | {"replica": replica}).items())
            )
            for at in range(end - 3_600, end, interval):
                value = round(float(draw.gamma(2.0, 1.0 + host / 10)), 3)
                series.append(field(1, sent + field(2, sample(value, at * 1_000 + late))))
                yield name, labels["host"], at * 1_000 + late, value
        http.post(
            "/v1/streams/servers/prometheus/write",
            content=bytes(cramjam.snappy.compress_raw(b"".join(series))),
            headers={"content-type": "application/x-protobuf", "content-encoding": "snappy"},
        ).raise_for_status()


def _once(
    samples: Iterator[tuple[str, str, int, float]], interval: int
) -> dict[tuple[str, int], tuple[int, float]]:
    """Return one sample for each series and scrape interval, the latest."""
    latest: dict[tuple[str, int], tuple[int, float]] = {}
    for name, _, at, value in samples:
        place = name, at // (1_000 * interval)
        latest[place] = max(latest.get(place, (0, 0.0)), (at, value))
    return latest


def _by(
    samples: Mapping[tuple[str, int], tuple[int, float]], now: int, label: str, **only: str
) -> Samples:
    """Return the values in the window before a moment, in ms, by a label."""
    found = defaultdict(list)
    for (name, _), (at, value) in samples.items():
        labels = json.loads(name)
        wanted = all(labels.get(key) == text for key, text in only.items())
        if wanted and 0 <= now - at <= _WINDOW_MS:
            found[labels[label]].append(value)
    return found


def _p95(values: list[float]) -> float:
    return float(np.quantile(values, 0.95, method="inverted_cdf"))


# ------------------------------------------------------------------------------------- the report


class Report:
    """Lines of the table, and the time that each step took."""

    def __init__(self) -> None:
        self.began = time.monotonic()

    def step(self, name: str) -> None:
        """Print when a step ended."""
        print(f"{time.monotonic() - self.began:6.1f} s  {name}", flush=True)

    def table(self, name: str, groups: list[Any], key: str, exact: Mapping[str, float]) -> None:
        """Print how many intervals contain the exact value, and how far the estimates are."""
        inside, unbounded, errors = 0, 0, []
        for group in groups:
            each = group["quantiles"][0]["estimate"] if "quantiles" in group else group["estimate"]
            true = exact[group["by"][key]]
            lower = -np.inf if each["lower"] is None else each["lower"]  # null: unbounded
            upper = np.inf if each["upper"] is None else each["upper"]
            inside += lower - 1e-9 <= true <= upper + 1e-9
            unbounded += bool(np.isinf(upper - lower))
            errors.append(abs(each["value"] / true - 1))
        self._line(
            f"{name}: {inside} of {len(groups)} intervals contain the exact value, {unbounded} are "
            f"unbounded, median error {100 * np.median(errors):.2f} %"
        )

    def alert(self, monitor: Any, exact: Mapping[str, float]) -> None:
        """Print how many hosts the alert judges as their exact values do."""
        limit = monitor["threshold"]
        tally: dict[tuple[str, str], int] = defaultdict(int)
        for group in monitor["groups"]:
            above = exact[group["by"]["host"]] >= limit
            tally[group["state"], "above" if above else "below"] += 1
        self._line("alert, state and exact value: " + ", ".join(
            f"{state} {side} {count}" for (state, side), count in sorted(tally.items())
        ))  # fmt: skip

    def panel(self, lines: Mapping[str, float], *groups: list[Any]) -> None:
        """Print how many lines of the panel equal the query, at either end of the scrape."""
        found: dict[str, set[float]] = defaultdict(set)
        for each in (each for some in groups for each in some):
            found[each["by"]["host"]].add(each["quantiles"][0]["estimate"]["value"])
        equal = sum(lines.get(host) in values for host, values in found.items())
        self.step(
            f"panel: {len(lines)} lines, {equal} of {len(found)} equal the query at the time of "
            "the scrape"
        )

    def _line(self, text: str) -> None:
        print(f"          {text}", flush=True)


def _asked(http: httpx2.Client, stream: str, now: int, **more: Any) -> list[Any]:
    body = requests()["POST", f"/v1/streams/{stream}/query"]
    queries = [
        query | {"now": now} | (more if "groups" in query else {}) for query in body["queries"]
    ]
    found = http.post(f"/v1/streams/{stream}/query", json={"queries": queries})
    found.raise_for_status()
    answers: list[Any] = found.json()["answers"]
    return answers


def _put(http: httpx2.Client, path: str, interval: int = 15) -> None:
    http.put(path, json=requests(interval)["PUT", path]).raise_for_status()


# --------------------------------------------------------------------------------------- the hour


def pair_of_servers(
    http: httpx2.Client, folder: Path, scrapes: int, interval: int, report: Report
) -> None:
    """One block for all metrics of a pair, an alert for each host, and a panel by host."""
    writing, _, scraping = (
        block.replace("http://aggregator:8000", str(http.base_url).rstrip("/"))
        for block in configurations(interval)
    )
    _put(http, "/v1/streams/servers", interval)
    _put(http, "/v1/streams/servers/monitors/load")
    written = list(hour_before(http, interval))
    report.step(f"an hour of one metric: {len(written)} samples from two servers")
    with ExitStack() as stack:
        with exporting(_Exporter) as port:
            servers = []
            for replica in "ab":
                text = writing.replace("replica: a", f"replica: {replica}") + _targets(port)
                servers.append(
                    stack.enter_context(prometheus("prometheus", folder / replica, text))
                )
                report.step(f"server {replica} writes")
            time.sleep(scrapes * interval)
        time.sleep(_FLUSHED_S)
        seconds = round(time.monotonic() - report.began) + 60
        for each in servers:
            written += _raw(http, each, seconds)
    samples = _once(iter(written), interval)
    state = http.get("/v1/streams/servers").json()
    report.step(
        f"{scrapes} scrapes of {METRICS} metrics: {state['rows']} stored rows, and {len(samples)} "
        "samples of the queried metric, each once"
    )
    now = _now()
    p95, mean = _asked(http, "servers", now)
    report.table("p95 by host", p95["groups"], "host", _loads(samples, now))
    regions = _means(_by(samples, now, "region", env="prod", **_LOAD))
    report.table("mean by region, production", mean["groups"], "region", regions)
    alert = http.get("/v1/streams/servers/monitors/load").json()
    report.alert(alert, _loads(samples, round(alert["evaluated"] * 1_000)))
    _put(http, "/v1/streams/servers/questions/p95_by_host")
    target = http.base_url.netloc.decode()
    job = "global: {scrape_interval: 1s}\nscrape_configs:\n" + scraping
    with prometheus("prometheus", folder / "panel", job.replace("aggregator:8000", target)) as url:
        panel = _until(lambda: _panel(http, url))
    report.panel(
        panel.lines,
        *(_asked(http, "servers", at)[0]["groups"] for at in (panel.began, panel.ended)),
    )


def _now() -> int:
    return time.time_ns() // 10**6


def _loads(samples: Mapping[tuple[str, int], tuple[int, float]], now: int) -> dict[str, float]:
    """Return the exact quantiles by host."""
    return {host: _p95(each) for host, each in _by(samples, now, "host", **_LOAD).items()}


class _Panel(NamedTuple):
    """The lines of the panel, by the label in its legend, and the ends of their scrape in ms. The
    server evaluates the query between them.
    """

    lines: dict[str, float]
    began: int
    ended: int


def _panel(http: httpx2.Client, url: str) -> _Panel | None:
    expression, legend = _PANEL.findall(PAGE.read_text())[0]
    at = time.time()  # of all three, so that they are of one scrape

    def found(query: str) -> list[Any]:
        given = http.get(f"{url}/api/v1/query", params={"query": query, "time": f"{at:.3f}"})
        result: list[Any] = given.json()["data"]["result"]
        return result

    lines = {each["metric"].get(legend, ""): float(each["value"][1]) for each in found(expression)}
    times = {float(each["value"][1]) for each in found(f"timestamp({expression})")}
    lengths = [float(each["value"][1]) for each in found("scrape_duration_seconds")]
    if len(times) != 1 or len(lengths) != 1:
        return None
    began = round(times.pop() * 1_000)
    return _Panel(lines, began, began + math.ceil(lengths[0] * 1_000))


def telegraf(http: httpx2.Client, report: Report) -> None:
    """Lines of 5,000 hosts, each batch twice, and queries by host and region."""
    _put(http, "/v1/streams/hosts")
    draw, end = np.random.default_rng(1), int(time.time()) // 10 * 10
    hosts, regions, sums = defaultdict(list), defaultdict(list), defaultdict(list)
    for turn in range(TURNS):
        at = (end - 10 * (TURNS - turn)) * 10**9
        user, system = draw.gamma(4.0, 8.0, (2, FLEET)).round(2).tolist()
        lines = []
        for k in range(FLEET):
            named = ",".join(f"{name}={text}" for name, text in sorted(tags(k).items()))
            fields = f"usage_user={user[k]},usage_system={system[k]}"
            lines.append(f"cpu,cpu=cpu-total,{named} {fields} {at}")
            lines.append(f"cpu,cpu=cpu0,{named} usage_user=99,usage_system=0 {at}")
            lines.append(f"mem,{named} used_percent={user[k]} {at}")
            hosts[tags(k)["host"]].append(user[k])
            if tags(k)["env"] == "prod":
                regions[tags(k)["region"]].append(user[k])
                sums[tags(k)["host"]].append(user[k] + system[k])
        for first in range(0, len(lines), BATCH):
            body = gzip.compress("\n".join(lines[first : first + BATCH]).encode())
            for _ in range(2):
                http.post(
                    "/api/v2/write?org=any&bucket=hosts", content=body,
                    headers={"content-encoding": "gzip"},
                ).raise_for_status()  # fmt: skip
    report.step(f"{TURNS * FLEET * 3} lines of {FLEET} hosts, each twice")
    mean, of_both, p95 = _asked(http, "hosts", _now(), groups=FLEET)
    report.table("mean by region, production", mean["groups"], "region", _means(regions))
    report.table("mean by host, production", of_both["groups"], "host", _means(sums))
    exact = {host: _p95(each) for host, each in hosts.items()}
    report.table("p95 by host", p95["groups"], "host", exact)


def _means(groups: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: float(np.mean(each)) for name, each in groups.items()}


def main(arguments: list[str] | None = None) -> int:
    """Run the study; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scrapes", type=int, default=5)
    parser.add_argument("--interval", type=int, default=15, help="of scrapes, in seconds")
    given = parser.parse_args(arguments)
    if shutil.which("prometheus") is None:
        print("no program prometheus in PATH; install Debian's package with that name")
        return 2
    report = Report()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = Server(folder, {"DECAYSKETCH_DATA": str(folder / "aggregator.sqlite3")})
        server.start()
        stack.callback(server.kill)
        http = stack.enter_context(
            httpx2.Client(base_url=server.url, trust_env=False, timeout=_SOON_S)
        )
        report.step("the server is ready")
        pair_of_servers(http, folder, given.scrapes, given.interval, report)
        telegraf(http, report)
        report.step(f"end; the server used {server.processor_s():.1f} s of processor time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
