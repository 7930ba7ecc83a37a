"""What a relay passes on: everything, once what it was is known; never what changes nothing."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self

import httpx2
import numpy as np
import pytest
from families import CASES
from fastapi.testclient import TestClient
from service import LOCAL, OCTETS, PARAMS, build

import api.relay
import decaysketch
from api.app import create_app
from api.relay.upstream import Upstream
from api.settings import Settings

SOURCE = "site-1"
NOW = 100_000


class Way:
    """The way to a hub, which may be cut; what went over it is kept."""

    def __init__(self, hub: TestClient) -> None:
        self.hub = hub
        self.cut = False
        self.deaf = False  # what is sent arrives, and the answer does not
        self.keys: set[str | None] = set()
        self.instead: tuple[int, dict[str, str], dict[str, Any]] | None = None  # to posts
        self.said: list[tuple[str, str, int]] = []  # method, path, bytes

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        return await asyncio.to_thread(self._answer, request)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        if self.cut:
            raise httpx2.ConnectError("cut")
        self.said.append((request.method, request.url.path, len(request.content)))
        self.keys.add(request.headers.get("authorization"))
        if self.instead is not None and request.method == "POST":
            status, headers, fields = self.instead
            body = httpx2.ByteStream(json.dumps(fields).encode())
            return httpx2.Response(status, headers=headers, stream=body)
        answer = self.hub.request(
            request.method,
            str(request.url.copy_with(scheme="http", host="localhost", port=None)),
            content=request.content,
            headers=dict(request.headers) | {"host": "localhost"},
        )
        if self.deaf and request.method == "POST":
            raise httpx2.ReadTimeout("no answer")
        return httpx2.Response(
            answer.status_code, headers=answer.headers, stream=httpx2.ByteStream(answer.content)
        )

    @property
    def posts(self) -> list[int]:
        return [size for method, _, size in self.said if method == "POST"]


class Tree:
    """A relay, and its upstream; both in this process."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stack: ExitStack) -> None:
        self._path, self._stack = tmp_path, stack
        self.hub = self._serve("hub")
        self.way = Way(self.hub)
        transport = httpx2.MockTransport(self.way)
        monkeypatch.setattr(api.relay, "Upstream", partial(Upstream, transport=transport))
        monkeypatch.setattr("api.relay.relay._FIRST_BACKOFF_S", 0.0)
        monkeypatch.setattr("api.relay.relay._PAUSE_S", 0.05)
        self._running = ExitStack()
        stack.callback(self._running.close)
        self.restart()

    def _serve(self, name: str, **settings: Any) -> TestClient:
        app = create_app(Settings(data=str(self._path / f"{name}.sqlite3"), **settings))
        return self._stack.enter_context(TestClient(app, base_url=LOCAL))

    def restart(self, **settings: Any) -> Self:
        """End the relay, and begin it again over the same file."""
        self._running.close()
        chosen = {"upstream": "http://hub", "upstream_source": SOURCE, "upstream_flush_s": 0}
        app = create_app(Settings(data=str(self._path / "relay.sqlite3"), **(chosen | settings)))
        self.relay = self._running.enter_context(TestClient(app, base_url=LOCAL))
        return self

    def create(self, creation: dict[str, Any], name: str = "s") -> None:
        for client in (self.hub, self.relay):
            assert client.put(f"/v1/streams/{name}", json=creation).status_code == 201

    def held(self, name: str = "s") -> bytes | None:
        found = self.hub.get(f"/v1/streams/{name}/sketch", params={"source": SOURCE})
        return found.content if found.status_code == 200 else None

    def here(self, name: str = "s") -> bytes:
        content: bytes = self.relay.get(f"/v1/streams/{name}/sketch").content
        return content

    def arrived(self) -> bool:
        return self.held() == self.here()

    def answered(self) -> bool:
        """It has arrived, and the relay knows."""
        return self.arrived() and knows(self.relay)

    def stands(self, **states: int) -> bool:
        return all(
            self.metric(f'relay_streams{{state="{state}"}}') == count
            for state, count in states.items()
        )

    def metric(self, series: str) -> float:
        return metric(self.relay, series)


def knows(relay: TestClient) -> bool:
    """Return whether a relay has the response for all that it holds. Its gauges follow later."""
    lines = list(relay.app.state.relay._lines.values())  # type: ignore[attr-defined]
    return bool(lines) and all(
        each.state == "passed_on" and each.generation == each.stream.generation for each in lines
    )


def metric(relay: TestClient, series: str) -> float:
    lines = relay.get("/metrics").text.splitlines()
    return sum(
        float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"decaysketch_{series}")
    )


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    with ExitStack() as stack:
        yield Tree(tmp_path, monkeypatch, stack)


def until(what: Callable[[], object], within_s: float = 300.0) -> None:
    give_up = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < give_up, "it never came to be"
        time.sleep(0.02)


def post(client: TestClient, sketch: Any, source: str = "a", name: str = "s") -> None:
    body = sketch if isinstance(sketch, bytes) else sketch.to_bytes()
    answer = client.post(
        f"/v1/streams/{name}/sketches", params={"source": source}, content=body, headers=OCTETS
    )
    assert answer.status_code == 200, answer.text


CREATION = {"params": PARAMS.to_dict()}


@pytest.mark.parametrize("name", CASES)
def test_every_family_is_passed_on_as_the_join_of_its_sources(name: str, tree: Tree) -> None:
    case = CASES[name]
    tree.create(case.creation)
    sketches = [case.build(seed, 400 * seed) for seed in range(3)]
    for sketch, source in zip(sketches, "aba", strict=True):
        post(tree.relay, sketch, source)
    until(tree.answered)
    assert tree.held() == decaysketch.merge(sketches).to_bytes()
    sent = len(tree.way.posts)
    post(tree.relay, sketches[0], "another way")
    until(tree.answered)
    assert len(tree.way.posts) == sent  # a copy changes nothing, and does not cross


def test_what_is_new_is_sent_and_not_the_whole(tree: Tree) -> None:
    tree.create(CREATION)
    post(tree.relay, build(0, 2000))
    until(tree.answered)
    post(tree.relay, build(1, 5, first_id=9000))
    until(tree.answered)
    whole, *_, delta = tree.way.posts
    assert delta < whole / 5
    assert tree.metric('relay_posts_total{stream="s",whole="no"}') >= 1
    assert tree.metric("relay_posted_bytes_total") == sum(tree.way.posts)


def test_an_upstream_that_is_away_is_waited_for_and_nothing_is_lost(tree: Tree) -> None:
    tree.create(CREATION)
    post(tree.relay, build(0))
    until(tree.answered)
    tree.way.cut = True
    for seed in range(1, 6):
        post(tree.relay, build(seed, first_id=400 * seed), "ab"[seed % 2])
    until(lambda: tree.metric("relay_failures_total") > 2)
    assert tree.relay.get("/readyz").status_code == 200  # posts are taken as ever
    assert tree.stands(waiting=1)
    tree.restart()
    assert not tree.arrived()
    tree.way.cut = False
    until(tree.arrived)


def test_a_post_whose_answer_is_lost_is_not_sent_as_a_whole(tree: Tree) -> None:
    tree.create(CREATION)
    post(tree.relay, build(0, 2000))
    until(tree.answered)
    wholes = tree.metric('relay_posts_total{stream="s",whole="yes"}')
    tree.way.deaf = True
    post(tree.relay, build(1, 5, first_id=9000))
    until(tree.arrived)
    tree.way.deaf = False
    until(lambda: tree.stands(passed_on=1))
    assert tree.metric('relay_posts_total{stream="s",whole="yes"}') == wholes


@pytest.mark.parametrize(
    ("status", "kind", "counted"),
    [
        (503, "journal-unavailable", "unanswered"),
        (429, "clock-ahead", "held"),
        (413, "too-long", "held"),
        (507, "no-capacity", "held"),
        (422, "corrupt-sketch", "refused"),
        (403, "revoked-source", "paused"),
    ],
)
def test_what_is_refused_is_kept_counted_and_sent_when_it_may_be(
    status: int, kind: str, counted: str, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.relay.relay.HELD_S", 0.05)
    tree.create(CREATION)
    until(lambda: tree.stands(passed_on=1))
    problem = {"type": f"urn:decaysketch:problem:{kind}", "detail": "forged\nline " + 9000 * "x"}
    tree.way.instead = status, {"retry-after": "0.05"}, problem
    post(tree.relay, build(0))
    until(lambda: tree.metric(f'relay_failures_total{{reason="{counted}"}}') > 1)
    assert not tree.stands(passed_on=1)
    (line,) = tree.relay.app.state.relay._lines.values()
    assert line.problem is None or (len(line.problem) <= 1000 and "\n" not in line.problem)
    tree.way.instead = None
    until(tree.arrived)
    until(lambda: tree.stands(passed_on=1, paused=0, waiting=0))


def test_the_key_goes_with_every_request_and_into_no_log(
    tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    tree.restart(upstream_key="ds_abcdefgh_secret")
    tree.way.keys.clear()
    tree.create(CREATION)
    post(tree.relay, build(0))
    until(tree.answered)
    assert tree.way.keys == {"Bearer ds_abcdefgh_secret"}
    tree.way.cut = True
    post(tree.relay, build(1, first_id=400))
    until(lambda: tree.metric("relay_failures_total") > 1)
    assert "abcdefgh" not in caplog.text


def test_a_restart_sends_nothing_that_the_upstream_has(tree: Tree) -> None:
    tree.create(CREATION)
    post(tree.relay, build(0))
    until(tree.answered)
    sent = len(tree.way.posts)
    tree.restart()
    until(lambda: tree.stands(passed_on=1))
    assert len(tree.way.posts) == sent


def test_what_is_too_much_to_wait_is_sent_as_a_whole(tree: Tree) -> None:
    tree.restart(upstream_queue_rows=300)
    tree.create(CREATION)
    post(tree.relay, build(0))
    until(tree.answered)
    tree.way.cut = True
    for seed in (1, 2):
        post(tree.relay, build(seed, first_id=400 * seed))
    until(lambda: tree.metric("relay_let_go_total") >= 1)  # once, or for each post by itself
    until(lambda: tree.metric("relay_waiting_rows") == 0)
    tree.way.cut = False
    until(tree.arrived)


def test_a_hub_that_lost_it_has_it_again(tree: Tree) -> None:
    tree.restart(upstream_check_s=1)
    tree.create(CREATION)
    post(tree.relay, build(0))
    until(tree.answered)
    sent = len(tree.way.posts)
    tree.hub.delete("/v1/streams/s")
    tree.hub.put("/v1/streams/s", json=CREATION)
    until(tree.arrived)
    assert len(tree.way.posts) > sent


def test_a_delta_to_a_stream_made_anew_is_followed_by_all(tree: Tree) -> None:
    tree.create(CREATION)  # the next check is an hour away
    post(tree.relay, build(0))
    until(tree.arrived)
    tree.hub.delete("/v1/streams/s")
    tree.hub.put("/v1/streams/s", json=CREATION)
    post(tree.relay, build(1, 5, first_id=9000))
    until(tree.arrived)


@pytest.mark.parametrize("at", ["hub", "relay"])
def test_a_standing_withdrawal_applies_to_a_relay(at: str, tree: Tree) -> None:
    params = decaysketch.SketchParams(
        id_bits=40, seed=5, columns="rev int64, device text", revision="rev"
    )
    tree.create({"params": params.to_dict()})
    where = "device == 'a'"
    asked = {"where": where, "for": "30d"}
    client = tree.hub if at == "hub" else tree.relay
    assert client.post("/v1/streams/s/withdrawals", json=asked).status_code == 200
    expected = decaysketch.DecaySketch(params)
    for first in (0, 4):  # the second one crosses as a delta
        made = decaysketch.DecaySketch(params)
        ids = np.arange(first, first + 4)
        made.update({"device": ["a", "b", "a", None]}, 1, NOW + ids, ids)
        expected.merge(made)
        post(tree.relay, made)
        expected.withdraw(where=where)
        until(lambda: tree.held() == expected.to_bytes())
    if at == "relay":
        assert tree.here() == expected.to_bytes()
        assert expected.stats().withdrawn == 4


def test_a_revoked_source_stays_upstream_until_people_decide(
    tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    tree.create(CREATION)
    post(tree.relay, build(0), "good")
    post(tree.relay, build(1, first_id=400), "bad")
    until(tree.arrived)
    both = tree.held()
    typed = {"content-type": "application/json"}
    tree.relay.post("/v1/streams/s/sources/bad/revoke", headers=typed)
    until(lambda: tree.stands(more=1))
    assert tree.held() == both
    assert f"the upstream has rows under {SOURCE!r} that are not here" in caplog.text
    post(tree.relay, build(2, first_id=800), "good")  # it goes on all the same
    for verb in ("revoke", "reinstate"):
        answer = tree.hub.post(f"/v1/streams/s/sources/{SOURCE}/{verb}", headers=typed)
        assert answer.status_code == 204
    until(tree.arrived)
    until(lambda: tree.stands(passed_on=1))
    assert tree.held() == decaysketch.merge([build(0), build(2, first_id=800)]).to_bytes()


def test_what_was_missing_here_and_is_there_again_is_no_more_told_of(tree: Tree) -> None:
    tree.create(CREATION)
    post(tree.relay, build(0), "good")
    post(tree.relay, build(1, first_id=400), "bad")
    until(tree.arrived)
    for verb in ("revoke", "reinstate"):
        typed = {"content-type": "application/json"}
        tree.relay.post(f"/v1/streams/s/sources/bad/{verb}", headers=typed)
    until(lambda: tree.stands(more=1))
    post(tree.relay, build(1, first_id=400), "bad")
    until(tree.arrived)
    until(lambda: tree.stands(more=0, passed_on=1))


@pytest.mark.parametrize(
    ("here", "there", "said"),
    [
        (
            {"params": PARAMS.to_dict()},
            {"params": PARAMS.to_dict() | {"capacity": 100, "seed": 1}},
            "params.capacity is 200 here, 100 there; params.seed is",
        ),
        (CREATION | {"max_clock_skew_s": None}, CREATION, "max_clock_skew_s is None here, 300.0"),
        (CREATION | {"secret_ids": True}, CREATION, "hashed with this server's secret"),
        (
            CREATION,
            CREATION | {"secret_ids": True},
            "params.keyed_by is 'seed' here, 'secret' there",
        ),
        (CREATION, None, "create it there: PUT /v1/streams/s "),
    ],
)
def test_another_stream_upstream_is_refused_by_name_of_what_differs(
    here: dict[str, Any],
    there: dict[str, Any] | None,
    said: str,
    tree: Tree,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if there is not None:
        assert tree.hub.put("/v1/streams/s", json=there).status_code == 201
    assert tree.relay.put("/v1/streams/s", json=here).status_code == 201
    until(lambda: tree.stands(paused=1))
    (line,) = {each.getMessage() for each in caplog.records if "not forwarded" in each.getMessage()}
    assert said in line
    assert tree.way.posts == []
    if there is None:  # what it says is what makes it go
        form = line.partition("PUT /v1/streams/s ")[2]
        created = tree.hub.put(
            "/v1/streams/s", content=form, headers={"content-type": "application/json"}
        )
        assert created.status_code == 201, created.text
        post(tree.relay, build(0))
        until(tree.arrived)


def test_only_streams_that_are_named_are_passed_on(tree: Tree) -> None:
    tree.restart(upstream_streams="s other-*")
    for name in ("s", "t", "other-1"):
        tree.create(CREATION, name)
        post(tree.relay, build(0), name=name)
    until(lambda: tree.held("s") is not None and tree.held("other-1") is not None)
    until(lambda: tree.stands(passed_on=2))
    assert tree.held("t") is None


def test_a_graceful_end_passes_on_what_was_taken_last(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.relay.relay._LAST_S", 300.0)  # however slow the machine is
    tree.restart(upstream_flush_s=3600)
    tree.create(CREATION)
    until(lambda: tree.stands(passed_on=1))
    post(tree.relay, build(0))
    expected = tree.here()
    assert tree.held() is None
    tree.restart(upstream_streams="none")
    assert tree.held() == expected


def test_two_that_are_each_other_s_upstream_come_to_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        ways: list[Way] = []
        monkeypatch.setattr("api.relay.relay._PAUSE_S", 0.05)

        class ByAddress(Upstream):
            def __init__(self, settings: Settings) -> None:
                number = int(settings.upstream[-1])
                super().__init__(
                    settings, httpx2.MockTransport(lambda request: ways[number](request))
                )

        monkeypatch.setattr(api.relay, "Upstream", ByAddress)
        clients = []
        for number in (0, 1):
            settings = Settings(
                data=str(tmp_path / f"{number}.sqlite3"),
                upstream=f"http://{1 - number}",
                upstream_source=f"relay-{number}",
                upstream_flush_s=0,
            )
            client = TestClient(create_app(settings), base_url=LOCAL)
            ways.append(Way(client))
            ways[-1].cut = True  # until both serve
            clients.append(stack.enter_context(client))
        for way in ways:
            way.cut = False
        for client in clients:
            client.put("/v1/streams/s", json=CREATION)
        post(clients[0], build(0))
        post(clients[1], build(1, first_id=400))
        whole = decaysketch.merge([build(0), build(1, first_id=400)]).to_bytes()
        until(lambda: all(each.get("/v1/streams/s/sketch").content == whole for each in clients))
        until(lambda: all(map(knows, clients)))
        posts = [len(way.posts) for way in ways]
        time.sleep(0.5)
        assert [len(way.posts) for way in ways] == posts
        assert sum(posts) <= 6


def test_of_several_processes_one_passes_on(tree: Tree, tmp_path: Path) -> None:
    tree.create(CREATION)
    until(lambda: tree.stands(passed_on=1))
    other = create_app(
        Settings(
            data=str(tmp_path / "relay.sqlite3"),
            upstream="http://hub",
            upstream_source=SOURCE,
            upstream_flush_s=0,
        )
    )
    with TestClient(other, base_url=LOCAL) as client:
        post(client, build(0))
        until(tree.arrived)
        assert 'relay_posts_total{stream="s"' not in client.get("/metrics").text


WATCHED = CREATION | {"views": {"devices": {"id": 0, "capacity": 50}}}
VIEWS = ("s.devices", "s.devices.names")


def test_views_are_passed_on_as_the_streams_that_they_are(tree: Tree) -> None:
    tree.create(WATCHED)
    rows = [{"id": [f"t-{n % 3}", n], "time": n, "value": float(n)} for n in range(9)]
    for source, some in (("a", rows[:6]), ("b", rows[3:])):
        url = f"/v1/streams/s/observations?source={source}"
        assert tree.relay.post(url, json={"observations": some}).status_code == 200
    until(lambda: all(tree.held(each) == tree.here(each) for each in ("s", *VIEWS)))
    found = tree.hub.get("/v1/streams/s/devices?listed=latest").json()["devices"]
    assert [(each["device"], each["value"]) for each in found] == [
        ("t-2", 8.0), ("t-1", 7.0), ("t-0", 6.0),
    ]  # fmt: skip


def test_views_that_the_upstream_lacks_are_made_with_their_stream(
    tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    tree.hub.put("/v1/streams/s", json=CREATION)
    tree.relay.put("/v1/streams/s", json=WATCHED)
    until(lambda: tree.stands(passed_on=1, paused=2))
    for view in VIEWS:
        (said,) = {each for each in caplog.messages if f"has no stream {view!r}" in each}
        assert "PUT /v1/streams/s there" in said
        assert '"views": {"devices": {"id": [0], "capacity": 50}}' in said
    assert tree.hub.put("/v1/streams/s", json=WATCHED).status_code == 200
    until(lambda: tree.stands(passed_on=3))


@pytest.mark.parametrize("level", [0, 2])
def test_sources_are_passed_on_one_by_one_as_if_they_had_posted_there(
    tree: Tree, level: int
) -> None:
    """Coverage upstream, of what the relay forwards, equals that of direct posts, from the same
    level on.
    """
    tree.restart(upstream_paths="s")
    tree.create(CREATION)
    for name in ("s.paths", "direct"):
        created = tree.hub.put(f"/v1/streams/{name}", json=CREATION | {"from_level": level})
        assert created.json().get("from_level", 0) == level
    for seed, source in enumerate(("gw-1", "gw-2", "gw-1", "roof")):
        sketch = build(seed, 400, first_id=200 * seed)
        post(tree.relay, sketch, source)
        post(tree.hub, sketch, f"{SOURCE}/{source}", "direct")

    def coverage(name: str) -> Any:
        found = tree.hub.get(f"/v1/streams/{name}/coverage", params={"settle": 0, "now": NOW})
        return found.json() if found.status_code == 200 else found.text

    expected = coverage("direct") | {"stream": "s.paths"}
    until(lambda: coverage("s.paths") == expected)
    assert [each["source"] for each in expected["sources"]] == [
        f"{SOURCE}/{name}" for name in ("gw-1", "gw-2", "roof")
    ]
    until(tree.arrived)  # and the join as ever
    until(lambda: tree.stands(passed_on=4))
    before = len(tree.way.posts)
    more = build(9, 5, first_id=9000)
    post(tree.relay, more, "roof")
    post(tree.hub, more, f"{SOURCE}/roof", "direct")
    until(lambda: coverage("s.paths") == coverage("direct") | {"stream": "s.paths"})
    until(lambda: tree.stands(passed_on=4))
    assert len(tree.way.posts) == before + 2  # a delta of one source, and one of the join
    assert max(tree.way.posts[before:]) < min(tree.way.posts[:before]) / (2 if level else 5)
    held = tree.hub.get("/v1/streams/s.paths/sketch", params={"source": f"{SOURCE}/roof"})
    whole = tree.relay.get("/v1/streams/s/sketch", params={"source": "roof"}).content
    params = {"decay": "none", "now": NOW}
    asked = {"queries": [params | {"aggregate": "count"}, params | {"ask": "count set any"}]}
    counted = tree.hub.post("/v1/streams/s.paths/query", json=asked)
    if level == 0:
        assert held.content == whole
        assert counted.status_code == 200
    else:
        part = decaysketch.DecaySketch.from_bytes(whole).snapshot().part(level)
        assert held.content == part.to_bytes()
        assert held.headers["decaysketch-from-level"] == str(level)
        (fault,) = counted.json()["errors"]
        assert fault["field"] == "queries[0].set"
        assert "query a set, such as `any`" in fault["reason"]
