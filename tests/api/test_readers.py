"""Other people's programs read answers from a server, as they come: nothing here is ours but it.

Each is skipped, with the reason, where it is not installed.
"""

from __future__ import annotations

import io
import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from service import NOW, OCTETS, PARAMS, build

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
