"""``python -m quality.scale``: what an operation costs among many streams, and many sources.

An aggregator is filled up to each of some sizes, with streams and then with the sources of one
stream. At each size every operation is repeated and the median is printed, in seconds and in
seconds of the server's processor: creating a stream, posting to one, a page of the list, the state
of one and of the service, a query, a page of sources, and for each stream a scrape and a restart.
Then each cost at the largest size is
printed as a multiple of that at the smallest. The status is 1 if a multiple of processor time is
above ``--flat``.

Wall time includes whatever else runs on the machine; processor time is the server's alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import httpx2
from rich.console import Console
from rich.table import Table

from quality.serving import Server

__all__ = ["Cost", "Scale", "main", "multiples"]

FORM = {"params": {"max_weight": 1, "id_bits": 40, "capacity": 100, "time_unit": "s"}}
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Cost:
    """Of one operation, the median of its repetitions, in seconds."""

    wall_s: float
    processor_s: float


@dataclass
class Scale:
    """Costs by size and operation.

    Args:
        server: that runs.
        http: a client of it.
        repetitions: of each operation at each size.
    """

    server: Server
    http: httpx2.Client
    repetitions: int
    costs: dict[int, dict[str, Cost]] = field(default_factory=dict)
    made: int = 0

    def measure(self, size: int, name: str, act: Callable[[int], object], each: int = 1) -> None:
        """Repeat an operation; ``each``: so many parts does its cost have."""
        walls, began_s = [], self.server.processor_s()
        for number in range(self.repetitions):
            began = time.monotonic()
            act(number)
            walls.append((time.monotonic() - began) / each)
        used_s = (self.server.processor_s() - began_s) / self.repetitions / each
        self.costs.setdefault(size, {})[name] = Cost(median(walls), used_s)

    def create(self, name: str) -> None:
        self.http.put(f"/v1/streams/{name}", json=FORM).raise_for_status()
        self.made += 1

    def post(self, stream: str, source: str, number: int) -> None:
        row = {"value": 1, "time": int(time.time()), "id": number}
        path = f"/v1/streams/{stream}/observations?source={source}&verdicts=counts"
        self.http.post(path, json={"observations": [row]}).raise_for_status()

    def streams(self, size: int) -> None:
        """Have so many streams, one row in each, and measure."""
        while self.made < size:
            self.create(f"s{self.made:06}")
            self.post(f"s{self.made - 1:06}", "a", 1)
        ask = json.dumps({"queries": [{"aggregate": "count", "decay": "none"}]})
        get, last = self.http.get, f"s{size // 2:06}"
        self.measure(size, "create", lambda _: self.create(f"s{self.made:06}"))
        self.measure(size, "post", lambda n: self.post(last, "a", n))
        self.measure(
            size,
            "list a page",
            lambda _: get(f"/v1/streams?after={last}&limit=25").raise_for_status(),
        )
        self.measure(size, "state", lambda n: get(f"/v1/streams/s{n:06}").raise_for_status())
        self.measure(
            size, "query", lambda _: self.http.post(
                f"/v1/streams/{last}/query", content=ask, headers=_JSON).raise_for_status(),
        )  # fmt: skip
        self.measure(size, "state of the service", lambda _: get("/v1/service").raise_for_status())
        self.measure(size, "scrape, a stream", lambda _: get("/metrics").raise_for_status(), size)

    def sources(self, size: int) -> None:
        """Have so many sources of one stream, and measure."""
        held = self.http.get("/v1/streams/sources").json()["source_count"]
        for number in range(held, size):
            self.post("sources", f"source-{number:06}", number)
        middle, get = f"source-{size // 2:06}", self.http.get
        self.measure(size, "post, known source", lambda n: self.post("sources", middle, n))
        self.measure(
            size, "post, new source",
            lambda n: self.post("sources", f"new-{size}-{n}", (1 << 30) + size * 100 + n),
        )  # fmt: skip
        page = f"/v1/streams/sources/sources?after={middle}&limit=25"
        self.measure(size, "a page of sources", lambda _: get(page).raise_for_status())
        self.measure(
            size,
            "state, no sources",
            lambda _: get("/v1/streams/sources?sources=0").raise_for_status(),
        )

    def restart(self, size: int) -> None:
        """Kill and start over what there is."""
        self.server.kill()
        wall_s = self.server.start(again=True)
        cost = Cost(wall_s / size, self.server.processor_s() / size)
        self.costs.setdefault(size, {})["restart, a stream"] = cost


def multiples(costs: dict[int, dict[str, Cost]]) -> dict[str, tuple[float, float]]:
    """Cost of each operation at the largest size as a multiple of that at the smallest: by wall
    time and by processor time."""
    first, last = costs[min(costs)], costs[max(costs)]
    return {
        name: (
            last[name].wall_s / max(first[name].wall_s, 1e-9),
            last[name].processor_s / max(first[name].processor_s, 1e-9),
        )
        for name in first.keys() & last.keys()
    }


def _table(costs: dict[int, dict[str, Cost]], title: str) -> Table:
    table = Table(title=f"{title}: ms, and ms of the server's processor")
    table.add_column("operation")
    for size in costs:
        table.add_column(str(size), justify="right")
    table.add_column("multiple", justify="right")
    found = multiples(costs)
    for name in next(iter(costs.values())):
        cells = [
            f"{1e3 * costs[size][name].wall_s:.2f} {1e3 * costs[size][name].processor_s:.2f}"
            for size in costs
        ]
        table.add_row(name, *cells, "{:.2f} {:.2f}".format(*found[name]))
    return table


def main(arguments: list[str] | None = None) -> int:
    """Run the study; the status."""
    parser = argparse.ArgumentParser(prog="python -m quality.scale", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--repetitions", type=int, default=50)
    parser.add_argument("--flat", type=float, default=1.5, help="largest multiple")
    options = parser.parse_args(arguments)
    console, faults = Console(width=140), []
    with tempfile.TemporaryDirectory(prefix="decaysketch-scale-") as folder:
        most = 2 * max(options.sizes)
        environment = {
            "DECAYSKETCH_DATA": str(Path(folder) / "a.sqlite3"),
            "DECAYSKETCH_MAX_STREAMS": str(most), "DECAYSKETCH_MAX_SOURCES": str(most),
            "DECAYSKETCH_LOG_LEVEL": "warning",
        }  # fmt: skip
        server = Server(Path(folder), environment)
        server.start()
        try:
            with httpx2.Client(base_url=server.url, trust_env=False, timeout=300) as http:
                streams = Scale(server, http, options.repetitions)
                for size in options.sizes:
                    streams.streams(size)
                    streams.restart(size)
                console.print(_table(streams.costs, "streams"))
                http.put("/v1/streams/sources", json=FORM).raise_for_status()
                sources = Scale(server, http, options.repetitions)
                for size in options.sizes:
                    sources.sources(size)
                console.print(_table(sources.costs, "sources of a stream"))
        finally:
            server.kill()
    for each in (streams, sources):
        for name, (_, times) in multiples(each.costs).items():
            if times > options.flat:
                faults.append(f"{name}: {times:.2f} times the processor time")
    for fault in faults:
        console.print(f"FAULT {fault}", markup=False)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
