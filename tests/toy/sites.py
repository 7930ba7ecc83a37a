"""An aggregator of sketches that may contradict each other; run by ``test_toy_family.py``.

What it acknowledges it holds: so nothing is journaled that cannot be joined with what is there. And
if a journal has such a thing all the same, the rest of it is served.
"""

from __future__ import annotations

import asyncio
import json
import logging
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from service import LOCAL, OCTETS, PARAMS, build, posted, problem
from sites_family import SitesParams, SitesRecipe, SitesSketch
from transactions import writing

from api.app import create_app
from api.journal import log
from api.journal.log import Post, StorageError
from api.journal.sql import SqlStorage
from api.settings import Settings

NOW = 1_750_000_000
SITES = SitesParams(max_weight=9, id_bits=16, capacity=4)
JSON = {"content-type": "application/json"}
SKETCHES = {"content-type": "application/vnd.decaysketch.sketches"}
Start = Callable[..., TestClient]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data.sqlite3"


@pytest.fixture
def start(data: Path) -> Iterator[Start]:
    """Start one more aggregator over the data file, with a stream of sites."""
    with ExitStack() as running:

        def start(**settings: Any) -> TestClient:
            app = create_app(Settings(data=str(data), **settings))
            client = running.enter_context(TestClient(app, base_url=LOCAL))
            created = {"family": "sites", "params": SITES.to_dict()}
            assert client.put("/v1/streams/s", json=created).status_code in (200, 201)
            return client

        yield start


@pytest.fixture
def client(start: Start) -> TestClient:
    return start()


def sites(**logs: str) -> SitesSketch:
    """``north="abc"``: of that site the events of three keys, one after the other, of epoch 1."""
    sketch = SitesSketch(SITES)
    for site, keys in logs.items():
        times = range(NOW, NOW + len(keys))
        sketch.update(list(keys), list(times), source=site, epoch=1)
    return sketch


def post(client: TestClient, sketch: SitesSketch, source: str = "a") -> Any:
    return client.post(
        "/v1/streams/s/sketches",
        params={"source": source}, content=sketch.to_bytes(), headers=OCTETS,
    )  # fmt: skip


def held(client: TestClient, **options: Any) -> SitesSketch:
    body = client.get("/v1/streams/s/sketch", params=options).content
    sketch: SitesSketch = SitesRecipe(SITES).decode(body)
    return sketch


def posts(client: TestClient) -> int:
    count: int = client.get("/v1/streams/s").json()["posts"]
    return count


def left_out(client: TestClient) -> float:
    registry = client.app.state.metrics.registry  # type: ignore[attr-defined]
    return registry.get_sample_value("decaysketch_left_out_total", {"stream": "s"}) or 0.0


def test_a_fork_is_refused_by_name_and_nothing_of_it_is_there(client: TestClient) -> None:
    posted(post(client, sites(north="abc", south="d")))
    refused = problem(post(client, sites(north="abx", west="y")), 409, "conflicting-sketch")
    assert "('north', 1)" in refused["detail"]
    assert "neither goes on from the other" in refused["detail"]
    assert held(client) == sites(north="abc", south="d")
    assert posts(client) == 1
    counted = {"stream": "s", "reason": "conflicting-sketch"}
    registry = client.app.state.metrics.registry  # type: ignore[attr-defined]
    assert registry.get_sample_value("decaysketch_refused_total", counted) == 1
    assert left_out(client) == 0


def test_so_is_one_that_another_source_sends(client: TestClient) -> None:
    posted(post(client, sites(north="abc"), "a"))
    posted(post(client, sites(north="ab"), "b"))  # an earlier one, on which the first goes on
    problem(post(client, sites(north="abx"), "b"), 409, "conflicting-sketch")
    posted(post(client, sites(north="abcd"), "b"))
    assert held(client) == held(client, source="b") == sites(north="abcd")
    assert held(client, source="a") == sites(north="abc")


def test_what_a_source_itself_contradicts_is_refused_though_the_stream_has_it(
    client: TestClient,
) -> None:
    posted(post(client, sites(north="abc"), "a"))
    posted(post(client, sites(north="abcde"), "b"))
    assert posted(post(client, sites(north="abc"), "a"))["duplicate"]
    posted(post(client, sites(north="abcd"), "a"))
    assert held(client, source="a") == sites(north="abcd")


def test_of_several_in_one_body_all_or_none_are_taken(client: TestClient) -> None:
    bodies = [sites(north="a").to_bytes(), sites(north="b").to_bytes()]
    content = b"".join(struct.pack("<I", len(each)) + each for each in bodies)
    answer = client.post(
        "/v1/streams/s/sketches", params={"source": "a"}, content=content, headers=SKETCHES
    )
    problem(answer, 409, "conflicting-sketch")
    assert (posts(client), len(held(client))) == (0, 0)


def test_more_sites_than_the_capacity_are_refused(client: TestClient) -> None:
    posted(post(client, sites(a="x", b="x", c="x")))
    refused = problem(post(client, sites(d="x", e="x")), 507, "no-capacity")
    assert "5 entries; the capacity is 4" in refused["detail"]
    posted(post(client, sites(d="x")))
    assert posts(client) == 2


def test_of_forks_that_come_together_one_is_taken(client: TestClient) -> None:
    forks = [sites(north=f"a{last}") for last in "bcdefghij"]
    with ThreadPoolExecutor(len(forks)) as pool:
        told = list(pool.map(lambda each: post(client, each).status_code, forks))
    assert sorted(told) == [200] + [409] * (len(forks) - 1)
    assert held(client) == forks[told.index(200)]


def test_of_two_replicas_the_later_one_refuses(start: Start) -> None:
    """It has not read what the other one wrote, and does before it writes."""
    here, there = start(poll_ms=60_000), start(poll_ms=60_000)
    created = {"params": PARAMS.to_dict()}
    assert here.put("/v1/streams/other", json=created).status_code == 201
    posted(post(here, sites(north="abc")))
    problem(post(there, sites(north="abx"), "b"), 409, "conflicting-sketch")
    posted(post(there, sites(north="abcd", south="e"), "b"))
    posted(
        there.post(
            "/v1/streams/other/sketches",
            params={"source": "a"}, content=build(1).to_bytes(), headers=OCTETS,
        )
    )  # fmt: skip
    problem(post(here, sites(south="f")), 409, "conflicting-sketch")
    problem(post(here, sites(x="1", y="1", z="1")), 507, "no-capacity")
    posted(post(here, sites(south="ef")))
    assert held(here) == sites(north="abcd", south="ef")


def test_replicas_that_write_at_the_same_time_promise_what_they_keep(start: Start) -> None:
    replicas = [start(poll_ms=20) for _ in range(3)]
    logs = [sites(north=f"{k // 3}" * n) for k in range(6) for n in (3, 1, 2)]

    def send(number: int) -> tuple[int, SitesSketch]:
        while (answer := post(replicas[number % 3], logs[number])).status_code == 429:
            pass
        return answer.status_code, logs[number]

    with ThreadPoolExecutor(6) as pool:
        told = list(pool.map(send, range(len(logs))))
    taken = [sketch for status, sketch in told if status == 200]
    assert {status for status, _ in told} == {200, 409}
    together = SitesSketch(SITES)
    together.merge(*taken)  # they can be joined
    for replica in replicas:
        replica.portal.call(replica.app.state.aggregator._follower.catch_up)  # type: ignore
        assert held(replica) == together
        assert left_out(replica) == 0


# ------------------------------------------------------- what a journal should not have, and may


async def _journal(data: Path, *bodies: tuple[str, bytes]) -> None:
    """Written by somebody who does not try."""
    storage = await SqlStorage.open(f"sqlite:///{data}")
    async with writing(storage) as tx:
        (stream,) = [each for each in await tx.streams() if each.name == "s"]
        head = await tx.head()
        new = [Post(stream.id, source, body, 1) for source, body in bodies]
        await tx.do(log.append, new, head.catalog, 0)
    await storage.close()


def test_what_the_journal_contradicts_itself_in_is_left_out_and_nothing_else(
    start: Start, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = start(poll_ms=60_000)
    posted(post(client, sites(north="abc")))
    fork = sites(north="abx", south="d")
    later = sites(west="e")
    asyncio.run(_journal(data, ("b", fork.to_bytes()), ("c", later.to_bytes())))
    with caplog.at_level(logging.ERROR, logger="api.service.follower"):
        posted(post(client, sites(east="f")))
    expected = sites(north="abc", south="d", west="e", east="f")
    assert held(client) == expected
    assert held(client, source="b") == sites(south="d")
    assert left_out(client) == 1
    (said,) = [each.getMessage() for each in caplog.records if "is skipped" in each.getMessage()]
    assert "source 'b' of stream 's'" in said
    assert "('north', 1)" in said
    assert client.get("/readyz").json()["ready"] is True
    # Every process comes to the same, and compaction keeps it.
    assert held(start()) == expected
    for _ in range(2):
        client.portal.call(client.app.state.aggregator.compact)  # type: ignore[attr-defined]
        again = start()
        assert held(again) == expected
        assert held(again, source="b") == sites(south="d")


def test_more_than_the_capacity_in_a_journal_is_left_out(start: Start, data: Path) -> None:
    client = start()
    many = sites(**{f"n{k}": "x" for k in range(4)})
    asyncio.run(_journal(data, ("a", many.to_bytes()), ("b", sites(o="y", n0="xz").to_bytes())))
    again = start()
    assert held(again) == sites(n0="xz", n1="x", n2="x", n3="x")
    assert left_out(again) == 1
    assert client is not again


def test_a_source_that_is_revoked_contradicts_nobody(client: TestClient) -> None:
    posted(post(client, sites(north="abx", south="d"), "bad"))
    problem(post(client, sites(north="abc"), "good"), 409, "conflicting-sketch")
    assert client.post("/v1/streams/s/sources/bad/revoke", headers=JSON).status_code == 204
    posted(post(client, sites(north="abc"), "good"))
    assert held(client) == sites(north="abc")
    problem(post(client, sites(north="abx"), "other"), 409, "conflicting-sketch")


# ---------------------------------------------------------------------------------------- raw rows


def rows(*keys: Any, at: int = NOW) -> list[dict[str, Any]]:
    return [{"key": key, "time": at + k} for k, key in enumerate(keys)]


def count(
    client: TestClient, given: list[dict[str, Any]], first: int, source: str = "a", **options: Any
) -> Any:
    """Post rows of a source, which are numbered from ``first`` on."""
    params = {"source": source, "first": first, "next": first + len(given)}
    body = {"observations": given}
    return client.post("/v1/streams/s/observations", params=params, json=body, **options)


def logs(sketch: SitesSketch) -> dict[str, list[int]]:
    """Of each source how many events every one of its epochs counted."""
    found: dict[str, list[int]] = {}
    for (site, _), events in sketch.state().logs.items():
        found.setdefault(site, []).append(len(events))
    return found


def test_rows_are_counted_at_the_site_of_their_source(client: TestClient) -> None:
    told = count(client, rows("x", 7, ["u", 8], "x"), 0).json()
    assert (told["rows"], told["retained"], told["duplicate"]) == (4, 4, False)
    assert told["verdicts"] == ["retained"] * 4
    weighty = [{"key": "y", "time": NOW + 9, "weight": 5}]
    assert count(client, weighty, 4).status_code == 200
    assert count(client, rows("z"), 0, "b").status_code == 200
    sketch = held(client)
    assert logs(sketch) == {"a": [5], "b": [1]}
    (log,) = [log for (site, _), log in sketch.state().logs.items() if site == "a"]
    words = [SITES.words_of(column)[0].item() for column in (["x"], [7], (["u"], [8]), ["x"])]
    expected = [(NOW + k, word, 1) for k, word in enumerate(words)]
    assert list(log) == [*expected, (NOW + 9, SITES.words_of(["y"])[0].item(), 5)]
    asked = {"aggregate": "count", "decay": {"kind": "window", "width": 60}, "now": NOW + 20}
    (answer,) = client.post("/v1/streams/s/query", json={"queries": [asked]}).json()["answers"]
    assert answer["estimate"]["value"] == 6


def test_a_post_that_comes_again_counts_nothing(client: TestClient) -> None:
    token = count(client, rows("x", "y"), 0).json()["token"]
    again = count(client, rows("x", "y"), 0).json()
    assert (again["duplicate"], again["already_retained"], again["retained"]) == (True, 2, 0)
    assert again["token"].rpartition(":")[0] == token.rpartition(":")[0]
    assert count(client, rows("x", "y"), 2).json()["duplicate"] is False  # the same, once more
    problem(count(client, rows("x", "z"), 0), 409, "interval-conflict")
    problem(count(client, rows("x"), 1), 409, "interval-conflict")
    assert logs(held(client)) == {"a": [4]}
    client.portal.call(client.app.state.aggregator.compact)  # type: ignore
    client.portal.call(client.app.state.aggregator.compact)  # type: ignore
    assert count(client, rows("x", "y"), 2).json()["duplicate"] is True
    assert logs(held(client)) == {"a": [4]}


def test_the_rows_have_numbers_or_are_refused(client: TestClient) -> None:
    def refused(**params: Any) -> str:
        answer = client.post(
            "/v1/streams/s/observations",
            params={"source": "a", **params}, json={"observations": rows("x", "y")},
        )  # fmt: skip
        detail: str = problem(answer, 422, "invalid-request")["detail"]
        return detail

    assert "rows of the family 'sites' have no ids" in refused()
    assert "first is given and next is not" in refused(first=0)
    assert "2 rows, and the interval [0, 1) 1 numbers" in refused(first=0, next=1)
    assert "expected at most 4294967296" in refused(first=0, next=1 << 40)
    assert posts(client) == 0
    created = {"params": PARAMS.to_dict()}
    client.put("/v1/streams/other", json=created)
    answer = client.post(
        "/v1/streams/other/observations",
        params={"source": "a", "first": 0, "next": 9}, json={"observations": []},
    )  # fmt: skip
    assert "identified by their ids" in problem(answer, 422, "invalid-request")["detail"]


def test_rows_at_fault_are_refused_and_the_others_are_counted(client: TestClient) -> None:
    faults = [
        {"key": "x", "time": NOW, "value": 3},
        {"id": "x", "time": NOW},
        {"key": "", "time": NOW},
        {"key": 1.5, "time": NOW},
        {"key": "x", "time": NOW, "weight": 0},
        {"key": ["a"] * 5, "time": NOW},
        {"time": NOW},
    ]
    told = count(client, [*rows("x"), *faults], 0).json()
    assert (told["retained"], told["refused"]) == (1, len(faults))
    fields = [each["field"] for each in told["refusals"]]
    assert fields == ["observation", "observation", "key", "key", "weight", "key", "key"]
    problem(count(client, faults, 50), 422, "nothing-taken")
    assert logs(held(client)) == {"a": [1]}


def test_lines_and_columns_are_read_as_documents_are(client: TestClient) -> None:
    keys = ["x", "y", "x"]
    lines = "\n".join(json.dumps(row) for row in rows(*keys)).encode()
    sink = pa.BufferOutputStream()
    table = pa.table({"key": keys, "time": [NOW, NOW + 1, NOW + 2]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    bodies = {
        "application/x-ndjson": lines,
        "application/vnd.apache.arrow.stream": sink.getvalue().to_pybytes(),
    }
    count(client, rows(*keys), 0, "json")
    for source, (media, body) in zip(("lines", "arrow"), bodies.items(), strict=True):
        answer = client.post(
            "/v1/streams/s/observations",
            params={"source": source, "first": 0, "next": 3},
            content=body, headers={"content-type": media},
        )  # fmt: skip
        assert answer.json()["retained"] == 3, answer.text
    state = held(client).state().logs
    assert len(state) == 3
    assert len(set(state.values())) == 1


def test_posts_of_one_source_at_the_same_time_are_all_counted(client: TestClient) -> None:
    def send(number: int) -> int:
        return count(client, rows(f"k{number}", at=NOW + number), number).status_code

    with ThreadPoolExecutor(12) as pool:
        assert set(pool.map(send, [*range(40), *range(40)])) == {200}
    assert logs(held(client)) == {"a": [40]}


def test_after_a_restart_it_counts_on_under_another_epoch(start: Start) -> None:
    assert count(start(), rows("x", "y"), 0).status_code == 200
    again = start()
    assert count(again, rows("z"), 2).status_code == 200
    assert count(again, rows("x", "y"), 0).json()["duplicate"] is True
    assert sorted(logs(held(again))["a"]) == [1, 2]


@pytest.mark.parametrize("written", [True, False])
def test_where_the_outcome_is_unknown_nothing_counts_twice(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    assert count(client, rows("x"), 0).status_code == 200
    storage = client.app.state.aggregator._storage  # type: ignore[attr-defined]
    write = type(storage).write

    async def lose(self: Any, statements: Any, before: Any = None) -> Any:
        if written:
            await write(self, statements, before)
        elif before is not None:
            before()
        raise StorageError("the connection is gone")

    with monkeypatch.context() as patched:
        patched.setattr(type(storage), "write", lose)
        assert count(client, rows("y", "z"), 1).status_code == 503
    assert count(client, rows("y", "z"), 1).json()["duplicate"] is written
    assert count(client, rows("w"), 3).status_code == 200
    client.portal.call(client.app.state.aggregator._follower.catch_up)  # type: ignore
    # Of the epoch that was given up, one row or all three; the others under the next one.
    assert sorted(logs(held(client))["a"]) == [1, 3]
    assert left_out(client) == 0


def test_what_a_revoked_source_had_counted_does_not_come_back(client: TestClient) -> None:
    assert count(client, rows("x", "y"), 0).status_code == 200
    for change in ("revoke", "reinstate"):
        path = f"/v1/streams/s/sources/a/{change}"
        assert client.post(path, headers=JSON).status_code == 204
    assert count(client, rows("z"), 0).status_code == 200
    assert logs(held(client)) == {"a": [1]}


def test_where_there_is_no_room_for_another_entry_rows_are_refused(client: TestClient) -> None:
    for number in range(4):
        assert count(client, rows("x"), 0, f"s{number}").status_code == 200
    problem(count(client, rows("x"), 0, "more"), 507, "no-capacity")
    assert count(client, rows("y"), 1, "s0").status_code == 200
    assert sum(map(sum, logs(held(client)).values())) == 5


def test_sites_that_are_idle_are_given_up(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.service.local_sources.MOST_SITES", 1)
    for number, source in enumerate(("a", "b", "a")):
        assert count(client, rows("x"), number, source).status_code == 200
    assert logs(held(client)) == {"a": [1, 1], "b": [1]}
    assert len(client.app.state.aggregator.sites._sites) == 1  # type: ignore[attr-defined]
