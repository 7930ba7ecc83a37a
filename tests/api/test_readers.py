"""Other people's programs read answers from a server, as they come: nothing here is ours but it.

Each is skipped, with the reason, where it is not installed.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from service import NOW, OCTETS, PARAMS, build
from support.debian import program

from decaysketch import DecaySketch
from quality.ports import free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
WINDOW = {"kind": "window", "width": 900}
QUERIES: list[dict[str, Any]] = [
    {
        "name": "count",
        "aggregate": "count",
        "decay": WINDOW,
        "times": {"start": NOW - 600, "stop": NOW, "step": 60},
    },
    {"name": "p", "aggregate": "quantile", "q": [0.5, 0.99], "decay": {"kind": "none"}, "now": NOW},
    {"name": "no mean", "aggregate": "mean", "decay": WINDOW, "now": 1000},
]
ROWS = 14


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory,
    one_server: Callable[..., AbstractContextManager[tuple[Any, httpx2.Client]]],
) -> Iterator[httpx2.Client]:
    """A server whose stream ``s`` holds observations."""
    with one_server(tmp_path_factory.mktemp("readers") / "aggregator.sqlite3") as (_, client):
        client.put("/v1/streams/s", json={"params": PARAMS.to_dict()}).raise_for_status()
        body = build(1).to_bytes()
        sent = client.post("/v1/streams/s/sketches?source=a", content=body, headers=OCTETS)
        sent.raise_for_status()
        yield client


@pytest.fixture(scope="module")
def url(served: httpx2.Client) -> str:
    """Of answers; a format may be added."""
    request = quote(json.dumps({"queries": QUERIES}))
    return f"{served.base_url}/v1/streams/s/query?request={request}"


@pytest.fixture(scope="module")
def values(served: httpx2.Client) -> list[float | None]:
    """As JSON says them."""
    answers = served.post("/v1/streams/s/query", json={"queries": QUERIES}).json()["answers"]
    series, quantiles, mean = answers
    found = [point["estimate"]["value"] for point in series["points"]]
    found += [each["estimate"]["value"] for each in quantiles["quantiles"]]
    return [*found, mean["estimate"]["value"]]


def test_pandas_reads_csv(url: str, values: list[float | None]) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    table = pandas.read_csv(url + "&format=csv", parse_dates=["time"])
    assert len(table) == ROWS
    assert str(table["time"].dtype).startswith("datetime64[")
    assert table["exact"].dtype == bool
    assert [None if value != value else value for value in table["value"]] == values


def test_polars_reads_csv_by_head_and_ranges_and_arrow(
    url: str, values: list[float | None]
) -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    table = polars.read_csv(url + "&format=csv", try_parse_dates=True)
    assert table["value"].to_list() == values
    assert isinstance(table.schema["time"], polars.Datetime)
    with urllib.request.urlopen(url + "&format=arrow") as answer:
        arrow = polars.read_ipc_stream(io.BytesIO(answer.read()))
    assert arrow["value"].to_list() == values
    assert arrow["time"].to_list() == table["time"].to_list()


def test_arrow_reads_a_stream_that_the_accept_header_asks_for(
    url: str, values: list[float | None]
) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    accept = {"Accept": "application/vnd.apache.arrow.stream"}
    with urllib.request.urlopen(urllib.request.Request(url, headers=accept)) as answer:
        table = pyarrow.ipc.open_stream(answer).read_all()
    assert table["value"].to_pylist() == values


def test_duckdb_reads_csv_and_arrow(url: str, values: list[float | None], tmp_path: Path) -> None:
    """Of a URL it reads by an extension of its own, which it fetches: so of a file here."""
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    path = tmp_path / "answers.csv"
    urllib.request.urlretrieve(url + "&format=csv", path)
    with duckdb.connect() as database:
        read = database.sql(f"select value, time from '{path}'")
        assert [row[0] for row in read.fetchall()] == values
        assert str(read.types[1]) == "TIMESTAMP WITH TIME ZONE"
        with urllib.request.urlopen(url + "&format=arrow") as answer:
            table = pyarrow.ipc.open_stream(answer).read_all()
        database.register("answers", table)
        counted = database.sql("select query, count(*) from answers group by 1 order by 1")
        assert counted.fetchall() == [("count", 11), ("no mean", 1), ("p", 2)]


# -------------------------------------------------------------------------------------- Prometheus

SOON_S = 600  # for what hangs
QUESTIONS = {
    "count_15m": {"aggregate": "count", "decay": WINDOW},
    "mean_1h": {"aggregate": "mean", "decay": {"kind": "exponential", "half_life": 3600}},
    "value_15m": {"aggregate": "quantile", "q": [0.5, 0.99], "decay": WINDOW},
    "groups": {"aggregate": "group_by", "limit": 3, "decay": WINDOW},
    "nothing": {"aggregate": "mean", "decay": {"kind": "window", "width": 0}},
}


@pytest.fixture(scope="module")
def promtool() -> str:
    return program(["promtool"], ["prometheus"])


@pytest.fixture(scope="module")
def hot(served: httpx2.Client) -> httpx2.Client:
    """Its stream ``hot`` has values of 30, and questions."""
    served.put("/v1/streams/hot", json={"params": PARAMS.to_dict()}).raise_for_status()
    sketch, now = DecaySketch(PARAMS), int(time.time())
    sketch.update([30.0] * 40, 1, [now - i for i in range(40)], list(range(40)))
    body = sketch.to_bytes()
    sent = served.post("/v1/streams/hot/sketches?source=a", content=body, headers=OCTETS)
    sent.raise_for_status()
    for name, query in QUESTIONS.items():
        put = served.put(f"/v1/streams/hot/questions/{name}", json={"query": query})
        put.raise_for_status()
    return served


def run(*command: str, text: str | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=SOON_S)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout + done.stderr


def test_promtool_finds_nothing_to_mend(hot: httpx2.Client, promtool: str) -> None:
    scraped = hot.get("/v1/streams/hot/prometheus").text
    assert run(promtool, "check", "metrics", text=scraped) == ""


def test_the_rules_and_the_dashboard_that_are_shipped_are_sound(
    promtool: str, tmp_path: Path
) -> None:
    run(promtool, "check", "rules", str(DEPLOY / "answers-alerts.yaml"))
    assert "SUCCESS" in run(promtool, "test", "rules", str(DEPLOY / "answers-alerts.test.yaml"))
    board = (DEPLOY / "grafana" / "answers.json").read_text(encoding="utf-8")
    expressions = [json.loads(each) for each in re.findall(r'"expr": (".*?[^\\]")', board)]
    assert len(expressions) == 9
    rules = [
        {"record": f"panel:{i}", "expr": each.replace("$stream", "hot").replace("$query", "q")}
        for i, each in enumerate(expressions)
    ]
    path = tmp_path / "panels.json"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    run(promtool, "check", "rules", str(path))


def test_prometheus_scrapes_answers_and_an_alert_fires(
    hot: httpx2.Client, promtool: str, tmp_path: Path
) -> None:
    server = shutil.which("prometheus")
    if server is None:
        pytest.skip("promtool is here, and prometheus is not")
    rules = (DEPLOY / "answers-alerts.yaml").read_text(encoding="utf-8")
    (tmp_path / "rules.yaml").write_text(rules.replace("for: 1m", "for: 1s"))
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {
                "job_name": "answers",
                "metrics_path": "/v1/streams/hot/prometheus",
                "static_configs": [{"targets": [f"127.0.0.1:{hot.base_url.port}"]}],
            }
        ],
    }
    (tmp_path / "prometheus.yaml").write_text(json.dumps(config))
    port = free_port()
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                server,
                f"--config.file={tmp_path / 'prometheus.yaml'}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            with httpx2.Client(base_url=url, trust_env=False, timeout=60) as client:
                fired = _fired(client, process, tmp_path / "log")
                asked = {"query": 'decaysketch_answer{query="mean_1h"}'}
                (sample,) = client.get("/api/v1/query", params=asked).json()["data"]["result"]
        finally:
            process.terminate()
            process.wait(SOON_S)
    assert fired["labels"]["stream"] == "hot"
    assert float(fired["value"]) > 25
    assert sample["metric"]["stream"] == "hot"
    assert float(sample["value"][1]) == 30.0


def _fired(client: httpx2.Client, process: Any, log: Path) -> dict[str, Any]:
    """The alert that the mean is certainly above its limit."""
    deadline = time.monotonic() + SOON_S
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            alerts = client.get("/api/v1/alerts").json()["data"]["alerts"]
        except (httpx2.TransportError, ValueError):
            alerts = []
        for alert in alerts:
            if alert["labels"]["alertname"] == "AnswerAboveLimit" and alert["state"] == "firing":
                found: dict[str, Any] = alert
                return found
        time.sleep(0.2)
    raise AssertionError(log.read_text())
