"""An operator's hour, from the page alone: one stream for all metrics, with exact values beside.

The requests are those of ``docs/fleet.md``.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cramjam
import numpy as np
import pytest
from fastapi.testclient import TestClient
from service import LOCAL

from api.app import create_app
from api.settings import Settings
from benchmarks.write_requests import field, sample

PAGE = (Path(__file__).parents[3] / "docs" / "fleet.md").read_text()
REQUEST = re.compile(r"```json\n(PUT|POST) (\S+)\n(.*?)```", re.S)
REQUESTS = [(verb, path, json.loads(body)) for verb, path, body in REQUEST.findall(PAGE)]
SNAPPY = {"content-type": "application/x-protobuf", "content-encoding": "snappy"}
HOSTS, METRICS, SCRAPES = 50, 200, 2
REGIONS, ENVS = ("eu", "us", "ap"), ("prod", "test")
END = int(time.time()) // 15 * 15


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    data = tmp_path_factory.mktemp("fleet") / "data.sqlite3"
    with TestClient(create_app(Settings(data=str(data))), base_url=LOCAL) as client:
        yield client


def asked(client: TestClient, stream: str) -> list[Any]:
    (body,) = [body for verb, path, body in REQUESTS if path == f"/v1/streams/{stream}/query"]
    found = client.post(f"/v1/streams/{stream}/query", json=body)
    assert found.status_code == 200, found.text
    answers: list[Any] = found.json()["answers"]
    return answers


def created(client: TestClient, stream: str) -> None:
    (body,) = [body for verb, path, body in REQUESTS if path == f"/v1/streams/{stream}"]
    assert client.put(f"/v1/streams/{stream}", json=body).status_code == 201


def tags(host: int) -> dict[str, str]:
    return {"host": f"h{host:04}", "region": REGIONS[host % 3], "env": ENVS[host % 5 == 0]}


def label(name: str, text: str) -> bytes:
    return field(1, field(1, name.encode()) + field(2, text.encode()))


NAMES = [label("__name__", f"m{metric}" if metric else "node_load1") for metric in range(METRICS)]
LABELS = [b"".join(label(*each) for each in sorted(tags(host).items())) for host in range(HOSTS)]


def contains(group: Any, exact: float) -> bool:
    estimate = group["estimate"]
    return bool(estimate["lower"] - 1e-9 <= exact <= estimate["upper"] + 1e-9)


def test_two_servers_of_a_pair_write_all_metrics_with_one_block(client: TestClient) -> None:
    created(client, "servers")
    draw = np.random.default_rng(1)
    of_host, of_region = defaultdict(list), defaultdict(list)
    for scrape in range(SCRAPES):
        at = (END - 15 * (SCRAPES - scrape)) * 1000
        values = draw.gamma(2.0, size=(METRICS, HOSTS)).round(3)
        for host in range(HOSTS):
            of_host[f"h{host:04}"].append(values[0, host])
            if tags(host)["env"] == "prod":
                of_region[tags(host)["region"]].append(values[0, host])
        for late, replica in ((1000, "a"), (6000, "b")):
            body = b"".join(
                field(
                    1, name + host + label("replica", replica) + field(2, sample(value, at + late))
                )
                for name, some in zip(NAMES, values.tolist(), strict=True)
                for host, value in zip(LABELS, some, strict=True)
            )
            packed = bytes(cramjam.snappy.compress_raw(body))
            posted = client.post("/v1/streams/servers/prometheus/write", content=packed,
                                 headers=SNAPPY)  # fmt: skip
            assert posted.status_code == 204, posted.text
    state = client.get("/v1/streams/servers").json()
    assert state["rows"] <= HOSTS * METRICS * SCRAPES  # each sample once
    assert state["warnings"] == []
    p95, mean = asked(client, "servers")
    assert len(p95["groups"]) == HOSTS
    for group in p95["groups"]:
        exact = of_host[group["by"]["host"]]
        (quantile,) = group["quantiles"]
        assert contains(quantile, float(np.quantile(exact, 0.95, method="inverted_cdf")))
    assert {group["by"]["region"] for group in mean["groups"]} == set(REGIONS)
    for group in mean["groups"]:
        assert contains(group, float(np.mean(of_region[group["by"]["region"]])))
    (alert, panel) = [
        (path, body)
        for verb, path, body in REQUESTS
        if verb == "PUT" and path.startswith("/v1/streams/servers/")
    ]
    assert client.put(alert[0], json=alert[1]).status_code == 201
    assert client.put(panel[0], json=panel[1]).status_code == 201
    scraped = client.get("/v1/streams/servers/prometheus").text
    lines = re.findall(r'^decaysketch_answer{.*host="(\w+)".*} (\S+)$', scraped, re.MULTILINE)
    assert {host: float(value) for host, value in lines} == {
        group["by"]["host"]: group["quantiles"][0]["estimate"]["value"] for group in p95["groups"]
    }


def test_telegraf_on_5000_hosts(client: TestClient) -> None:
    created(client, "hosts")
    draw = np.random.default_rng(2)
    of_host, of_region = defaultdict(list), defaultdict(list)
    for turn in range(2):
        at = (END - 10 * (2 - turn)) * 10**9
        user, system = draw.uniform(0, 90, size=(2, 5000)).round(2)
        named = [",".join(f"{name}={text}" for name, text in sorted(tags(k).items()))
                 for k in range(5000)]  # fmt: skip
        lines = [f"cpu,cpu=cpu-total,{named[k]} usage_user={user[k]},usage_system={system[k]} {at}"
                 for k in range(5000)]  # fmt: skip
        lines.append(f"cpu,cpu=cpu0,{named[0]} usage_user=99,usage_system=0 {at}")
        lines.append(f"swap,{named[0]} total=1i {at}")
        for _ in range(2):  # a retry
            body = "\n".join(lines)
            assert client.post("/api/v2/write?bucket=hosts", content=body).status_code == 204
        for k in range(5000):
            of_host[tags(k)["host"]].append(user[k])
            if tags(k)["env"] == "prod":
                of_region[tags(k)["region"]].append(user[k])
    state = client.get("/v1/streams/hosts").json()
    assert state["rows"] <= 10_000
    mean, by_host, p95 = asked(client, "hosts")
    for group in mean["groups"]:
        assert contains(group, float(np.mean(of_region[group["by"]["region"]])))
    assert len(by_host["groups"]) == 20
    assert by_host["total_groups"] == 4000
    for group in p95["groups"]:
        (quantile,) = group["quantiles"]
        exact = of_host[group["by"]["host"]]
        assert contains(quantile, float(np.quantile(exact, 0.95, method="inverted_cdf")))


def test_all_measurements_in_one_stream(client: TestClient) -> None:
    created(client, "telegraf")
    lines, used = [], defaultdict(list)
    for turn in range(3):
        at = (END - 10 * (3 - turn)) * 10**9
        for k in range(4):
            name = f"host=h{k},region=eu"
            lines += [
                f"cpu,cpu=cpu-total,{name} usage_user={k + turn} {at}",
                f"cpu,cpu=cpu0,{name} usage_user=99 {at}",
                f"mem,{name} used_percent={50 + k} {at}",
                f"disk,path=/,{name} used_percent=90 {at}",
                f"swap,{name} total=1i {at}",
            ]
            used[f"h{k}"].append(50.0 + k)
    body = "\n".join(lines)
    assert client.post("/api/v2/write?bucket=telegraf", content=body).status_code == 204
    memory, count, p95 = asked(client, "telegraf")
    found = {group["by"]["host"]: group["estimate"]["value"] for group in memory["groups"]}
    assert found == {host: float(np.mean(values)) for host, values in used.items()}
    counts = {group["by"]["measurement"]: group["estimate"]["value"] for group in count["groups"]}
    assert counts == {"cpu": 24.0, "mem": 12.0, "disk": 12.0}
    assert count["unseen_at_most"] == 0.0
    assert p95["quantiles"][0]["estimate"]["value"] == 5.0
