"""A few kilobytes do not fill the memory: rows are counted from the header of a sketch on."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import time
import weakref
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from fastapi.testclient import TestClient
from service import NOW, OCTETS, PARAMS, posted, problem

from api.access.keys import Role, mint
from api.errors import RowsAskedError
from api.journal.log import Post
from api.resources import bound_bytes, memory_table, parts
from api.service import follower
from api.service.aggregator import Aggregator
from api.service.budget import PART_ROWS, Memory, charging
from api.service.merging import MergeBuffer
from api.service.streams import Stream
from api.settings import Settings
from decaysketch import DecaySketch, SketchParams
from decaysketch.core.codec import writing

Start = Callable[..., TestClient]
Server = Callable[..., AbstractContextManager[tuple[Any, httpx2.Client]]]

# Rows that take two bits each on the wire.
DENSE = SketchParams(max_weight=1, id_bits=40, id_mix="none", capacity=1 << 20, time_unit="s")
SKETCHES = {"content-type": "application/vnd.decaysketch.sketches"}
MIB = 1 << 20


def dense(rows: int, first_id: int = 0) -> bytes:
    sketch = DecaySketch(DENSE)
    ids = np.arange(first_id, first_id + rows)
    sketch.update(None, np.ones(rows, np.int64), np.full(rows, 1000), ids)
    return sketch.to_bytes()


def create(client: Any, params: SketchParams = DENSE, name: str = "s") -> None:
    made = client.put(f"/v1/streams/{name}", json={"params": params.to_dict()})
    assert made.status_code == 201, made.text


def post(
    client: Any, body: bytes, source: str = "a", name: str = "s", headers: Any = OCTETS
) -> Any:
    return client.post(
        f"/v1/streams/{name}/sketches", params={"source": source}, content=body, headers=headers
    )


def several(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "little") + body for body in bodies)


def aggregator_of(client: TestClient) -> Aggregator:
    aggregator: Aggregator = client.app.state.aggregator  # type: ignore[attr-defined]
    return aggregator


def settle(client: TestClient) -> None:
    for stream in aggregator_of(client).streams():
        stream.settle()


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of the bodies that were decoded."""
    lengths: list[int] = []
    decode = Stream.decode

    def counted(self: Stream, body: bytes) -> Any:
        lengths.append(len(body))
        return decode(self, body)

    monkeypatch.setattr(Stream, "decode", counted)
    return lengths


# ----------------------------------------------------------------------------------- in one post


def test_too_many_rows_of_one_sketch_are_refused_before_one_is_decoded(
    start: Start, decoded: list[int]
) -> None:
    client = start(max_post_rows=5_000)
    create(client)
    content = problem(post(client, dense(5_001)), 413, "too-many-rows")
    assert "5001 rows" in content["detail"]
    assert content["errors"] == [
        {"field": "rows", "reason": "too many", "value": 5001, "expected": 5000}
    ]
    assert decoded == []
    assert posted(post(client, dense(5_000)))["rows"] == 5000


def test_the_rows_of_all_sketches_of_a_body_count_together(
    start: Start, decoded: list[int]
) -> None:
    client = start(max_post_rows=5_000)
    create(client)
    body = several(*(dense(100, first_id=100 * n) for n in range(51)))
    content = problem(post(client, body, headers=SKETCHES), 413, "too-many-rows")
    assert content["errors"][0]["value"] == 5100
    assert decoded == []


def test_a_body_of_many_rows_that_cannot_be_is_refused_before_it_is_decoded(
    start: Start, decoded: list[int]
) -> None:
    """Capacity times levels would allow them; without a watermark no level holds more than the
    capacity."""
    client = start()
    create(client, replace(DENSE, capacity=100))
    problem(post(client, _with_capacity(dense(60_000), 100)), 422, "corrupt-sketch")
    assert decoded == []


def _with_capacity(body: bytes, capacity: int) -> bytes:
    """The same sketch, said to be of a smaller capacity; checksum put right."""

    def head(params: SketchParams) -> bytes:
        return bytes(writing.begin(1, params, embed_params=True))

    old, new = head(DENSE), head(replace(DENSE, capacity=capacity))
    assert body.startswith(old)
    changed = new + body[len(old) : -4]
    return changed + zlib.crc32(changed).to_bytes(4, "little")


def test_raw_observations_count_as_the_rows_that_they_become(start: Start) -> None:
    """With several copies each is as many rows."""
    client = start(max_post_rows=300)
    create(client, replace(PARAMS, copies=3))
    rows = [{"time": NOW, "id": n, "weight": 1, "value": 1.0} for n in range(101)]

    def post_rows(count: int) -> Any:
        body = json.dumps({"observations": rows[:count]}).encode()
        return client.post(
            "/v1/streams/s/observations",
            params={"source": "a"},
            content=body,
            headers={"content-type": "application/json"},
        )

    problem(post_rows(101), 413, "too-many-rows")
    assert post_rows(3).status_code == 200


def test_the_views_that_observations_feed_take_as_much_room(start: Start) -> None:
    client = start(max_inflight_rows=1_000)
    recipe = {"params": replace(PARAMS, id_mix="keyed").to_dict()}
    assert client.put("/v1/streams/plain", json=recipe).status_code == 201
    views = {"views": {"devices": {"id": 0}}}
    assert client.put("/v1/streams/viewed", json=recipe | views).status_code == 201
    rows = [{"time": NOW, "id": [n, 1], "weight": 1, "value": 1.0} for n in range(4)]

    def post_rows(name: str) -> Any:
        return client.post(
            f"/v1/streams/{name}/observations", params={"source": "a"}, json={"observations": rows}
        )

    with aggregator_of(client).hold(970):
        assert post_rows("plain").status_code == 200
        problem(post_rows("viewed"), 429, "rows-in-flight")
    assert post_rows("viewed").status_code == 200
    assert aggregator_of(client).memory.flight.rows == 0


# ------------------------------------------------------------------------------------- in flight


def test_rows_in_flight_are_bounded(start: Start, decoded: list[int]) -> None:
    client = start(max_inflight_rows=1000 + PART_ROWS)
    create(client)
    with aggregator_of(client).hold(600):
        refused = post(client, dense(401))
        content = problem(refused, 429, "rows-in-flight")
        assert refused.headers["retry-after"]
        assert "600 rows" in content["detail"]
        assert f"{401 + PART_ROWS}" in content["detail"]
        assert f"{1000 + PART_ROWS}" in content["detail"]
        assert decoded == []
        posted(post(client, dense(400)))
    posted(post(client, dense(401)))
    assert aggregator_of(client).memory.flight.rows == 0


def test_a_post_that_is_larger_than_that_is_taken_alone(start: Start) -> None:
    client = start(max_inflight_rows=10)
    create(client)
    posted(post(client, dense(1000)))


def test_what_is_refused_holds_nothing(start: Start) -> None:
    client = start(max_sketch_rows=2_000)
    create(client)
    for body in (dense(500)[:-9], b"nothing", dense(4_000)):
        assert post(client, body).status_code in (422, 507)
    memory = aggregator_of(client).memory
    assert memory.flight.rows == 0
    assert memory.resident.rows < 1_000


# -------------------------------------------------------------------------------------- resident


def test_a_sketch_does_not_outgrow_its_limit(start: Start) -> None:
    client = start(max_sketch_rows=10_000)
    create(client)
    posted(post(client, dense(6_000)))
    content = problem(post(client, dense(6_000, first_id=6_000)), 507, "no-room")
    (fault,) = content["errors"]
    assert (fault["field"], fault["expected"]) == ("max_sketch_rows", 10_000)
    assert fault["value"] > 10_000
    assert "source 'a' of stream 's'" in content["detail"]
    merged = client.get("/v1/streams/s").json()
    assert merged["rows"] == 6_000


def test_the_join_does_not_outgrow_its_limit(start: Start) -> None:
    client = start(max_sketch_rows=10_000)
    create(client)
    posted(post(client, dense(6_000), "a"))
    content = problem(post(client, dense(6_000, first_id=6_000), "b"), 507, "no-room")
    assert "the merged sketch of stream 's'" in content["detail"]
    posted(post(client, dense(6_000), "c"))  # the same rows, again: the join does not grow


def test_a_stream_does_not_outgrow_its_limit(start: Start) -> None:
    client = start(max_stream_rows=30_000)
    create(client)
    for n in range(20):
        if post(client, dense(4_000), f"source-{n}").status_code != 200:
            break
    content = problem(post(client, dense(4_000), "another"), 507, "no-room")
    assert content["errors"][0]["field"] == "max_stream_rows"
    settle(client)
    assert aggregator_of(client).stream("s").rows <= 30_000
    assert n >= 4  # the limit is not reached by counting twice


def test_a_server_does_not_outgrow_its_limit_and_deleting_makes_room(start: Start) -> None:
    client = start(max_resident_rows=20_000)
    memory = aggregator_of(client).memory
    empty = memory.resident.rows
    for name in ("s", "t", "u"):
        create(client, name=name)
    taken = [name for name in ("s", "t", "u") if post(client, dense(8_000), name=name).is_success]
    assert taken == ["s", "t"]
    content = problem(post(client, dense(8_000), name="u"), 507, "no-room")
    assert content["errors"][0]["field"] == "max_resident_rows"
    assert memory.resident.rows <= 20_000
    assert client.delete("/v1/streams/s").status_code == 204
    posted(post(client, dense(8_000), name="u"))
    for name in ("t", "u"):
        assert client.delete(f"/v1/streams/{name}").status_code == 204
    assert memory.resident.rows == empty


def test_revoking_makes_room(start: Start) -> None:
    client = start(max_stream_rows=30_000)
    create(client)
    before = aggregator_of(client).memory.resident.rows
    for name in "abc":
        posted(post(client, dense(4_000), name))
    for name in "abc":
        assert client.post(f"/v1/streams/s/sources/{name}/revoke", json={}).is_success
    settle(client)
    assert aggregator_of(client).memory.resident.rows == before
    assert aggregator_of(client).memory.waiting.rows == 0


@pytest.mark.parametrize("compacted", [False, True])
def test_what_is_there_is_a_duplicate_however_full_it_is(start: Start, compacted: bool) -> None:
    """Even where no journal tells so any more."""
    client = start(max_stream_rows=14_000, max_sketch_rows=4_800, max_sources=2)
    create(client)
    for name in "ab":
        posted(post(client, dense(4_000), name))
    problem(post(client, dense(900, first_id=5_000), "a"), 507, "no-room")
    if compacted:
        for _ in range(2):
            client.portal.call(aggregator_of(client).compact)  # type: ignore[union-attr]
    again = posted(post(client, dense(4_000), "a"))
    assert again["duplicate"] is not compacted
    assert posted(post(client, dense(3_000), "b"))["duplicate"] is False  # adds nothing either
    assert client.get("/v1/streams/s").json()["rows"] == 4_000


@pytest.mark.parametrize("is_behind", [False, True])
def test_posts_that_come_at_once_do_not_exceed_the_limit_together(
    start: Start, is_behind: bool
) -> None:
    """Also where the process has not taken its own commits, as while it reads the journal."""
    client = start(max_sketch_rows=10_000)
    create(client)
    aggregator = aggregator_of(client)
    aggregator._follower._reading = is_behind

    async def all_at_once() -> list[Any]:
        stream = aggregator.stream("s")
        bodies = [dense(1_500, first_id=1_500 * n) for n in range(20)]
        return await asyncio.gather(
            *(
                aggregator.post({stream: [Post(stream.id, "a", b, snapshot=stream.decode(b))]})
                for b in bodies
            ),
            return_exceptions=True,
        )

    outcomes = client.portal.call(all_at_once)  # type: ignore[union-attr]
    taken = sum(not isinstance(each, Exception) for each in outcomes)
    assert 1_500 * taken <= 10_000
    assert taken >= 3
    assert {type(each).__name__ for each in outcomes} == {"Receipt", "NoRoomError"}


def test_a_rejected_post_settles_only_streams_that_have_grown(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start(max_resident_rows=6_000)
    for name in "abcd":
        create(client, name=name)
        post(client, dense(800), name=name)
    settled: list[MergeBuffer] = []
    settle = MergeBuffer.settle

    def watched(self: MergeBuffer) -> None:
        settled.append(self)
        settle(self)

    monkeypatch.setattr(MergeBuffer, "settle", watched)
    for most in (4, 1, 1):
        settled.clear()
        problem(post(client, dense(6_000), "new", name="a"), 507, "no-room")
        assert len(set(settled)) <= most


def test_a_stream_has_so_many_sources_and_no_more(start: Start) -> None:
    client = start(max_sources=3)
    create(client)
    for name in "abc":
        posted(post(client, dense(10), name))
    content = problem(post(client, dense(10), "d"), 507, "too-many-sources")
    assert content["errors"] == [
        {"field": "max_sources", "reason": "no room", "value": 4, "expected": 3}
    ]
    posted(post(client, dense(11), "c"))
    assert client.get("/v1/streams/s").json()["source_count"] == 3


def test_what_takes_memory_besides_rows_counts_as_rows(start: Start) -> None:
    """Many sources of one row each, and many streams of none."""
    client = start(max_resident_rows=6_000)
    create(client)
    outcomes = [post(client, dense(1), f"source-{n}").status_code for n in range(40)]
    assert 200 in outcomes
    assert outcomes[-1] == 507
    made = [
        client.put(f"/v1/streams/t{n}", json={"params": DENSE.to_dict()}).status_code
        for n in range(40)
    ]
    assert made[-1] == 507


LABELLED = SketchParams(max_weight=1, id_bits=40, capacity=100_000, value_type="label")


def labelled(number: int, rows: int = 400) -> bytes:
    """Rows whose labels take four bytes of memory for a letter."""
    sketch = DecaySketch(LABELLED)
    ids = number * rows + np.arange(rows)
    texts = [f"{identity:08}{'x' * 480}\U0001f600" for identity in ids.tolist()]
    sketch.update(texts, 1, np.full(rows, 1000), ids)
    return sketch.to_bytes()


def test_labels_count_as_their_bytes_and_room_to_grow_does_not(start: Start) -> None:
    limit = 400_000
    client = start(max_sketch_rows=limit)
    create(client, LABELLED)
    (stream,) = aggregator_of(client).streams()
    each_rows = 400 * (2_000 // 25)
    for number in range(1_000):
        answer = post(client, labelled(number))
        if answer.status_code != 200:
            break
    fault = problem(answer, 507, "no-room")["errors"][0]
    settle(client)
    own, _ = stream.held("a")
    assert number * each_rows < own <= limit
    assert own + 1.2 * each_rows > limit  # it is full, and not for what it may grow by
    assert limit < fault["value"] < own + 1.3 * each_rows
    assert posted(post(client, labelled(0)))["duplicate"]


# ---------------------------------------------------------------------------------------- replay


def test_what_was_acknowledged_is_read_under_any_limits(start: Start) -> None:
    client = start()
    create(client)
    for n in range(4):
        posted(post(client, dense(3_000, first_id=3_000 * n), f"source-{n}"))
    before = client.get("/v1/streams/s/sketch").content
    tight = {
        "max_post_rows": 10, "max_inflight_rows": 10, "max_sketch_rows": 10,
        "max_stream_rows": 10, "max_resident_rows": 10, "max_sources": 1,
    }  # fmt: skip
    client = start(**tight)
    assert client.get("/v1/streams/s/sketch").content == before
    client.portal.call(aggregator_of(client).compact)  # type: ignore[union-attr]
    client = start(**tight)
    assert client.get("/v1/streams/s/sketch").content == before


def test_replay_decodes_no_more_rows_at_a_time_than_it_may(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start()
    create(client)
    for n in range(12):
        posted(post(client, dense(1_000, first_id=1_000 * n), f"source-{n}"))
    before = client.get("/v1/streams/s/sketch").content
    held: list[int] = []
    decode = follower._decode_rows

    def counted(rows: Any) -> Any:
        sketches = decode(rows)
        held.append(sum(len(each) for each in sketches if each is not None))
        return sketches

    monkeypatch.setattr(follower, "_decode_rows", counted)
    monkeypatch.setattr(follower, "_CHUNK_ROWS", 2_500)
    client = start()
    assert sum(held) == 12_000
    assert max(held) <= 2_500
    assert client.get("/v1/streams/s/sketch").content == before


def test_replay_merges_what_waits_before_it_reads_more(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start()
    create(client)
    for n in range(12):
        posted(post(client, dense(1_000, first_id=1_000 * n), f"source-{n}"))
    highest = 0
    take = Stream.take

    def watched(self: Stream, row: Any, sketch: Any) -> None:
        nonlocal highest
        take(self, row, sketch)
        highest = max(highest, self._memory.waiting.rows)

    monkeypatch.setattr(Stream, "take", watched)
    monkeypatch.setattr(follower, "_CHUNK_ROWS", 1)
    client = start(max_inflight_rows=2_000)
    assert client.get("/v1/streams/s").json()["rows"] == 12_000
    # Of each sketch that waits there are two, for the source and the join, held twice each.
    assert highest <= 2_000 + 2 * (2 * 1_000 + 200)


def test_a_compaction_leaves_no_second_copy_of_what_it_wrote(start: Start) -> None:
    client = start()
    create(client)
    for n in range(5):
        posted(post(client, dense(1_000, first_id=1_000 * n), f"source-{n}"))
    client.portal.call(aggregator_of(client).compact)  # type: ignore[union-attr]
    assert aggregator_of(client).memory.reading.rows == 0


# --------------------------------------------------------------------------------------- reading


QUERY = {"queries": [{"aggregate": "count", "decay": {"kind": "window", "width": 10}, "now": 1000}]}


def test_snapshots_of_chosen_sources_are_kept_only_as_far_as_there_is_room(start: Start) -> None:
    client = start(max_read_rows=20_000)
    create(client)
    names = [f"source-{n}" for n in range(6)]
    for n, name in enumerate(names):
        posted(post(client, dense(2_000, first_id=2_000 * n), name))
    reading = aggregator_of(client).memory.reading
    for one in names:
        for other in names:
            if one < other:
                asked = QUERY | {"sources": [one, other]}
                answer = client.post("/v1/streams/s/query", json=asked)
                assert answer.json()["answers"][0]["estimate"]["value"] == 4_000
                assert reading.rows <= 20_000
    for name in names:
        answer = client.post("/v1/streams/s/query", json=QUERY | {"sources": [name]})
        assert answer.status_code == 200
        assert reading.rows <= 20_000


def test_questions_that_leave_no_room_are_sent_away(start: Start) -> None:
    client = start(max_read_rows=10_000)
    create(client)
    posted(post(client, dense(3_000)))
    reading = aggregator_of(client).memory.reading

    class Asked:
        pass

    somebody = reading.track(Asked(), 9_000)
    refused = client.post("/v1/streams/s/query", json=QUERY)
    content = problem(refused, 429, "rows-asked")
    assert "9000" in content["detail"]
    assert "max_read_rows" in content["detail"]
    # Posts read as well, and no query keeps them out.
    rows = {"observations": [{"time": 1000, "id": 1}]}
    for path in ("observations?source=a", "observations?source=new"):
        client.post(f"/v1/streams/s/{path}", json=rows).raise_for_status()
    assert refused.headers["retry-after"]
    del somebody
    assert client.post("/v1/streams/s/query", json=QUERY).status_code == 200


def test_queries_of_one_caller_leave_space_to_others() -> None:
    class Asked:
        pass

    def ask(caller: str, rows: int) -> Asked:
        with charging(caller):
            reading.make_room(rows)
            return reading.charge(Asked(), rows)

    reading = Memory(read_rows=16_000).reading
    first = [ask("a", 9_000)]  # one of any size
    with pytest.raises(RowsAskedError, match="this key"):
        ask("a", 1)
    others = [ask("b", 7_000)]
    # All of it is taken. Whoever has nothing under way has a reserve of 4,000.
    with pytest.raises(RowsAskedError, match="other queries read"):
        ask("c", 1_001)
    others += [ask(each, 1_000) for each in "cdef"]
    for caller in "cg":
        with pytest.raises(RowsAskedError):
            ask(caller, 1)
    with pytest.raises(RowsAskedError):  # the server itself
        reading.make_room(1)
    del others
    first.clear()
    several = [ask("a", 2_000) for _ in range(4)]  # half of it, beyond a quarter
    with pytest.raises(RowsAskedError, match="this key"):
        ask("a", 1)
    assert reading.rows == 8_000
    several.clear()
    assert reading.rows == 0


def test_streams_that_are_too_large_together_are_not_joined(start: Start) -> None:
    client = start(max_read_rows=10_000)
    for name in "xy":
        create(client, name=name)
        posted(post(client, dense(6_000), name=name))
    asked = QUERY | {"streams": ["x", "y"]}
    content = problem(client.post("/v1/query", json=asked), 422, "invalid-request")
    assert "10000" in content["detail"]


# ------------------------------------------------------------------------- what is said about it


def test_the_bound_grows_with_every_limit_of_rows() -> None:
    base = bound_bytes(Settings())
    for name in (
        "max_post_rows", "max_inflight_rows", "max_sketch_rows", "max_resident_rows",
        "max_read_rows", "max_inflight_bytes", "queue_bytes", "max_json_bytes", "compute_threads",
    ):  # fmt: skip
        more = Settings(**{name: 10 * getattr(Settings(), name)})
        assert bound_bytes(more) > base, name
    assert sum(part.bytes for part in parts(Settings())) == base
    assert f"{base / MIB:,.0f}" in memory_table(Settings())


def test_rows_and_their_limits_are_metrics(start: Start) -> None:
    client = start(max_resident_rows=123_456)
    create(client)
    posted(post(client, dense(1_000)))
    settle(client)
    lines = dict(
        line.rsplit(" ", 1)
        for line in client.get("/metrics").text.splitlines()
        if line.startswith("decaysketch_") and "{" not in line
    )
    assert 1_000 <= float(lines["decaysketch_resident_rows"]) <= 1_600
    assert float(lines["decaysketch_resident_rows_limit"]) == 123_456
    assert float(lines["decaysketch_inflight_rows"]) == 0
    bound = bound_bytes(Settings(max_resident_rows=123_456))
    assert float(lines["decaysketch_memory_bound_bytes"]) == bound


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_a_served_process_stays_within_its_bound(server: Server, data: Path) -> None:
    """Two bits a row: what would be gigabytes is 36 KB on the way."""
    limits = {
        "max_post_rows": 1 << 20, "max_inflight_rows": 1 << 20, "max_sketch_rows": 1 << 20,
        "max_stream_rows": 5 << 20, "max_resident_rows": 5 << 20, "max_read_rows": 2 << 20,
    }  # fmt: skip
    file = data.with_suffix(".toml")
    file.write_text("".join(f"{name} = {value}\n" for name, value in limits.items()))
    bound = bound_bytes(Settings(**limits))
    body = gzip.compress(dense(1_000_000))
    headers = OCTETS | {"content-encoding": "gzip"}
    with server(data, "--config", str(file), real=True) as (process, client):
        create(client)
        at_first = _resident_bytes(process.pid)
        outcomes = []
        for n in range(40):
            while True:  # until there is an answer that is no "later"
                status = post(client, body, f"source-{n}", headers=headers).status_code
                assert _resident_bytes(process.pid) < bound
                if status != 429:
                    break
                time.sleep(0.05)
            outcomes.append(status)
        assert set(outcomes) == {200, 507}
        taken = outcomes.count(200)
        # Each of them and their join: far below what the rows would be once more for each.
        assert _resident_bytes(process.pid) - at_first < 1024 * MIB
    with server(data, "--config", str(file), real=True) as (process, client):
        assert client.get("/v1/streams/s").json()["source_count"] == taken
        assert _resident_bytes(process.pid) < bound


def test_the_streams_of_a_key_do_not_outgrow_its_limit(start: Start) -> None:
    client = start(auth="keys", max_key_rows=12_000)
    tokens = {scope: _key(client, scope) for scope in ("*", "a-*", "b-*")}
    for name in ("a-1", "a-2", "b-1"):
        create(_as(client, tokens["*"]), name=name)
    posted(post(_as(client, tokens["a-*"]), dense(8_000), name="a-1"))
    content = problem(post(client, dense(8_000), name="a-2"), 507, "no-room")
    assert content["errors"][0]["field"] == "max_key_rows"
    posted(post(_as(client, tokens["b-*"]), dense(8_000), name="b-1"))
    again = posted(post(_as(client, tokens["a-*"]), dense(8_000), name="a-1"))
    assert again["duplicate"]


def _as(client: TestClient, token: str) -> TestClient:
    client.headers["authorization"] = f"Bearer {token}"
    return client


def _key(client: TestClient, scope: str) -> str:
    row, token = mint(role=Role.WRITE, scope=[scope], now_us=0)
    cache = client.app.state.keys  # type: ignore[attr-defined]
    client.portal.call(cache.store.put, row)  # type: ignore[union-attr]
    client.portal.call(cache.reload)  # type: ignore[union-attr]
    return token


def test_nothing_refers_to_a_stream_that_was_deleted(start: Start) -> None:
    client = start()
    create(client)
    for name in "ab":
        posted(post(client, dense(1_000), name))
    assert client.post("/v1/streams/s/query", json=QUERY).status_code == 200
    gone = weakref.ref(aggregator_of(client).stream("s"))
    assert client.delete("/v1/streams/s").status_code == 204
    assert client.get("/v1/streams").json()["streams"] == []
    gc.collect()
    assert gone() is None
