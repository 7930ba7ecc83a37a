"""Who computes where: readers not among the posts, decays of new streams apart from both."""

from __future__ import annotations

import importlib
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from service import OCTETS, PARAMS, build, problem

from api.ingest import building
from api.routes import decays, streams
from api.service import catalog as core
from api.service.budget import LARGE_ROWS
from api.service.merging import MergeBuffer
from api.service.streams import Stream
from api.service.threads import LeftError
from decaysketch import DecaySketch, SketchParams, Snapshot
from decaysketch.decay.integral import _exact
from decaysketch.decay.integral._listed import Table

texts: Any = importlib.import_module("decaysketch.decay.integral._expression")

P = {"max_weight": 99, "id_bits": 20, "capacity": 50}
TABLED = {"kind": "expression", "text": "max(w - 2*x, 0)", "max_weight": 99}


@pytest.fixture
def threads_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], list[str]]:
    """``threads_of(object, name)``: the names of the threads that call it from now on."""

    def watch(owner: Any, name: str) -> list[str]:
        called: list[str] = []
        original = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            called.append(threading.current_thread().name)
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, watched)
        return called

    return watch


def put(client: TestClient, name: str, decay: dict[str, Any]) -> Any:
    return client.put(
        f"/v1/streams/{name}", json={"family": "integral", "params": P, "decay": decay}
    )


def post(client: TestClient, source: str = "a", seed: int = 1) -> None:
    posted = client.post(
        "/v1/streams/s/sketches",
        params={"source": source},
        content=build(seed).to_bytes(),
        headers=OCTETS,
    )
    assert posted.status_code == 200


class TestReaders:
    @pytest.mark.parametrize(
        "path",
        ["/v1/streams", "/v1/streams/s", "/v1/streams/s/sketch", "/v1/streams/s/sketch?source=a"],
    )
    def test_are_not_on_the_threads_of_posts(
        self, stream: TestClient, path: str, threads_of: Callable[[Any, str], list[str]]
    ) -> None:
        post(stream)
        called = threads_of(Stream, "snapshot")
        assert stream.get(path).status_code == 200
        assert called
        assert all(name.startswith("queries") for name in called)

    def test_of_a_curve_neither(
        self, client: TestClient, threads_of: Callable[[Any, str], list[str]]
    ) -> None:
        called = threads_of(decays, "_curve")
        asked = {"decay": {"kind": "expression", "text": "exp(-x)"}, "ages": {"stop": 1}}
        assert client.post("/v1/decays/curve", json=asked).status_code == 200
        (name,) = called
        assert name.startswith("queries")

    def test_do_not_write_a_sketch_to_count_its_bytes(
        self, stream: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        post(stream)
        snapshot = type(stream.app.state.aggregator.stream("s").snapshot())  # type: ignore[attr-defined]
        written = []
        to_bytes = snapshot.to_bytes

        def counted(self: Snapshot, **how: Any) -> bytes:
            written.append(self.digest)
            return to_bytes(self, **how)

        monkeypatch.setattr(snapshot, "to_bytes", counted)
        sizes = {stream.get("/v1/streams/s").json()["bytes"] for _ in range(3)}
        assert len(written) == 1
        post(stream, seed=2)
        written.clear()  # of the sensor's sketch
        sizes |= {stream.get("/v1/streams/s").json()["bytes"] for _ in range(3)}
        assert len(written) == 1
        assert max(sizes) == len(stream.get("/v1/streams/s/sketch").content)

    def test_of_a_list_look_at_no_stream_of_another_page(
        self, client: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(9):
            client.put(f"/v1/streams/s{number}", json={"params": PARAMS.to_dict()})
        looked: list[str] = []
        snapshot = Stream.snapshot

        def counted(self: Stream, *args: Any) -> Snapshot:
            looked.append(self.name)
            return snapshot(self, *args)

        monkeypatch.setattr(Stream, "snapshot", counted)
        tag = client.get("/v1/streams?limit=2&after=s3").headers["etag"]
        assert looked == ["s4", "s5"]
        looked.clear()
        again = client.get("/v1/streams?limit=2&after=s3", headers={"If-None-Match": tag})
        assert again.status_code == 304
        assert looked == []

    @pytest.mark.parametrize("path", ["/v1/streams", "/v1/streams/s", "/v1/streams/s/sketch"])
    def test_are_refused_beyond_what_a_caller_may_have_under_way(
        self, start: Callable[..., TestClient], path: str
    ) -> None:
        client = start(questions_per_caller=1)
        client.put("/v1/streams/s", json={"params": PARAMS.to_dict()})
        asked = {"queries": [{"aggregate": "count", "decay": {"kind": "none"}, "now": 1}]}
        with _under_way(client, "testclient"):
            refused = client.get(path)
            assert "1 requests of this caller" in problem(refused, 429, "too-much-asked")["detail"]
            assert refused.headers["retry-after"] == "1"
            problem(client.post("/v1/streams/s/query", json=asked), 429, "too-much-asked")
        with _under_way(client, "key abcdefgh"):
            assert client.get(path).status_code == 200
        counted = client.get("/metrics").text
        refused_line = 'decaysketch_rejected_total{of="caller",queue="questions"} 2.0'
        assert refused_line in counted
        assert "decaysketch_questions_waiting 0.0" in counted

    def test_of_all_callers_together_likewise(self, start: Callable[..., TestClient]) -> None:
        client = start(questions=1)
        with _under_way(client, "key abcdefgh"):
            refused = client.get("/v1/streams")
            assert "1 requests are" in problem(refused, 429, "too-much-asked")["detail"]

    def test_read_the_texts_of_a_request_a_turn_at_a_time(
        self, stream: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A text holds the interpreter's lock for some hundredths of a second."""
        from api.queries import answering
        from api.queries.planning import Texts

        read_a_turn: list[int] = []
        work = Texts.work

        def counted(self: Texts, turn_s: float) -> bool:
            before = len(self.read)
            done = work(self, 0.0)
            read_a_turn.append(len(self.read) - before)
            return done

        monkeypatch.setattr(Texts, "work", counted)
        asked = [
            {
                "aggregate": "count",
                "now": 1,
                "decay": {"kind": "expression", "text": f"exp(-x/{k + 1234})"},
            }
            for k in range(5)
        ]
        answered = stream.post("/v1/streams/s/query", json={"queries": asked})
        assert answered.status_code == 200
        assert read_a_turn == [1] * 5
        assert answering.TURN_S <= 0.1


def _under_way(client: TestClient, caller: str) -> Any:
    """As long as it lasts, one request of a caller is under way."""
    state: Any = client.app.state  # type: ignore[attr-defined]
    assert client.portal is not None
    return client.portal.wrap_async_context_manager(_Entered(state.questions.asked(caller)))


class _Entered:
    def __init__(self, held: Any) -> None:
        self.held = held

    async def __aenter__(self) -> Any:
        return self.held.__enter__()

    async def __aexit__(self, *raised: Any) -> Any:
        return self.held.__exit__(*raised)


class TestPostsThatTakeLong:
    """What holds a quarter of a million rows and more, for a few bytes maybe, has a thread of its
    own: posts of others need not wait for it."""

    ROWS = LARGE_ROWS + 1

    def test_are_decoded_and_merged_on_a_thread_of_their_own(
        self, client: TestClient, threads_of: Callable[[Any, str], list[str]]
    ) -> None:
        body = self._large(client)
        decoded, folded = threads_of(Stream, "decode_post"), threads_of(MergeBuffer, "fold")
        posted = client.post("/v1/streams/large/sketches?source=a", content=body, headers=OCTETS)
        assert posted.json()["sketches"][0]["rows"] == self.ROWS
        while client.app.state.aggregator.backlog:  # type: ignore[attr-defined]
            time.sleep(0.01)
        assert decoded + folded
        assert all(name.startswith("large") for name in decoded + folded)

    def test_of_raw_observations_neither(
        self, stream: TestClient, threads_of: Callable[[Any, str], list[str]]
    ) -> None:
        called = threads_of(building, "build")  # one of the steps in which a body is taken
        for rows, thread in ((100, "compute"), (20_000, "long")):
            lines = b"\n".join(b'{"value":1,"time":5,"id":%d}' % n for n in range(rows))
            posted = stream.post(
                "/v1/streams/s/observations?source=a",
                content=lines,
                headers={"content-type": "application/x-ndjson"},
            )
            assert posted.json()["rows"] == rows
            assert called.pop().startswith(thread)

    def test_hold_up_no_other_post(
        self, client: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        body = self._large(client)
        assert client.put("/v1/streams/s", json={"params": PARAMS.to_dict()}).status_code == 201
        begun, may_end = threading.Event(), threading.Event()
        decode_post = Stream.decode_post

        def slowly(stream: Stream, body: bytes) -> Snapshot:
            if stream.name == "large":
                begun.set()
                assert may_end.wait(300)
            return decode_post(stream, body)

        monkeypatch.setattr(Stream, "decode_post", slowly)
        with ThreadPoolExecutor(4) as senders:
            large = [
                senders.submit(
                    client.post,
                    f"/v1/streams/large/sketches?source={source}",
                    content=body,
                    headers=OCTETS,
                )
                for source in "abcd"
            ]
            try:
                assert begun.wait(300)
                for seed in range(3):
                    post(client, seed=seed)
            finally:
                may_end.set()
            assert {each.result().status_code for each in large} == {200}

    def _large(self, client: TestClient) -> bytes:
        params = SketchParams(max_weight=1, id_bits=24, id_mix="none", capacity=self.ROWS)
        created = client.put("/v1/streams/large", json={"params": params.to_dict()})
        assert created.status_code == 201
        sketch = DecaySketch(params)
        ids = np.arange(self.ROWS)
        sketch.update(np.ma.masked_array(np.zeros(self.ROWS), mask=True), 1, 0 * ids, ids)
        return sketch.to_bytes()


class TestDecaysOfNewStreams:
    def test_are_computed_on_a_thread_of_their_own_and_once(
        self, client: TestClient, threads_of: Callable[[Any, str], list[str]]
    ) -> None:
        called = threads_of(texts, "_tabled")
        assert put(client, "a", TABLED).status_code == 201
        (name,) = called
        assert name.startswith("decays")

    def test_of_a_stream_that_exists_are_compared_before_anything_is_computed(
        self, client: TestClient, threads_of: Callable[[Any, str], list[str]]
    ) -> None:
        other_words = TABLED | {"text": "max(0, w - x - x)"}
        assert put(client, "a", TABLED).status_code == 201
        called = threads_of(texts, "_tabled")
        tables = threads_of(Table, "_table")
        for same in (TABLED, other_words, client.get("/v1/streams/a").json()["decay"]):
            assert put(client, "a", same).status_code == 200
        another = put(client, "a", TABLED | {"text": "max(w - 3*x, 0)"})
        assert problem(another, 409, "stream-exists")["errors"][0]["field"] == "decay"
        assert called == tables == []

    def test_that_take_too_long_are_refused_after_a_bounded_number_of_operations(
        self, client: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        done = [0]
        exp = _exact.exp_of_negative

        def counted(low: int, high: int, bits: int) -> tuple[int, int]:
            done[0] += 1
            return exp(low, high, bits)

        monkeypatch.setattr(_exact, "exp_of_negative", counted)
        decay = {"kind": "expression", "text": "floor(w*exp(-x/1000003))"}
        creation = {"family": "integral", "params": P | {"max_weight": 999}, "decay": decay}
        refused = client.put("/v1/streams/a", json=creation)
        content = problem(refused, 422, "invalid-parameter")
        assert f"takes more than {core.MOST_OPERATIONS} operations" in content["detail"]
        assert 1000 < done[0] < core.MOST_OPERATIONS

    def test_wait_for_one_another_and_no_more_than_a_few(self, client: TestClient) -> None:
        computing: Any = client.app.state.decays  # type: ignore[attr-defined]
        assert computing._threads.count == 1
        computing._of_caller = 0
        refused = put(client, "a", TABLED)
        problem(refused, 429, "too-much-asked")
        assert refused.headers["retry-after"] == "1"
        window = client.put("/v1/streams/d", json={"params": P})  # nothing to compute
        assert window.status_code == 201

    @pytest.mark.usefixtures("data")  # a new aggregator, which counts from 0
    def test_are_given_up_when_the_client_has_left(
        self, client: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looks, looked = itertools.count(), threading.Event()

        def has_left() -> bool:
            if is_left := next(looks) > 0:  # after its turn has come
                looked.set()
            return is_left

        def paused(pauses: Any) -> None:
            looked.wait(60)
            if pauses.left:
                raise LeftError

        monkeypatch.setitem(client.app_state, "has_left", has_left)
        monkeypatch.setattr(streams.Pauses, "__call__", paused)
        assert put(client, "a", {"kind": "polynomial", "exponent": 1.5}).status_code == 499
        monkeypatch.undo()
        assert client.get("/v1/streams").json() == {"streams": []}

    def test_of_another_process_hold_up_nobody_here(
        self, start: Callable[..., TestClient], threads_of: Callable[[Any, str], list[str]]
    ) -> None:
        assert put(start(), "a", TABLED).status_code == 201
        called = threads_of(texts, "_tabled")
        texts._TABLES.clear()
        client = start()
        assert client.get("/v1/streams/a").json()["decay"]["text"] == "max(-2*x + w, 0)"
        (name,) = called
        assert name.startswith("streams")


@pytest.fixture(autouse=True)
def _no_table_is_kept() -> None:
    texts._TABLES.clear()


BODIES = {
    "/v1/decays/curve": "POST",
    "/v1/streams/s": "PUT",
    "/v1/streams/s/query": "POST",
    "/v1/query": "POST",
    "/v1/keys": "POST",
    "/v1/keys/abcdefgh/rotate": "POST",
}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe\x00",
        '{"decay": "\u4f60"}'.encode("gb18030"),
        b"",
        b"{",
        b"[" * 50_000,
        b"1" * 5000,
        b'"\\ud800"',
    ],
)
def test_a_body_that_is_no_json_is_refused_alike_everywhere(
    stream: TestClient, path: str, body: bytes
) -> None:
    headers = {"content-type": "application/json"}
    refused = stream.request(BODIES[path], path, content=body, headers=headers)
    problem(refused, 422, "invalid-request")
