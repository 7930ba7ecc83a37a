"""Entity tags of answers, answers that are kept, and the same questions by GET."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from service import NOW, OCTETS, PARAMS, build, problem

from api.queries import answering
from api.queries.answering import Evaluation
from api.queries.answers import AnswerCache, etag, is_known
from api.queries.planning import Plan

QUERY = "/v1/streams/s/query"
SUM: dict[str, Any] = {"aggregate": "sum", "decay": {"kind": "window", "width": 600}, "now": NOW}


def posted(client: TestClient, seed: int, source: str = "a") -> str:
    response = client.post(
        "/v1/streams/s/sketches",
        params={"source": source},
        content=build(seed, first_id=1_000 * seed).to_bytes(),
        headers=OCTETS,
    )
    assert response.status_code == 200, response.text
    token: str = response.json()["token"]
    return token


def ask(client: TestClient, *queries: Any, headers: Any = None, **fields: Any) -> Response:
    body = {"queries": list(queries)} | fields
    return client.post(QUERY, json=body, headers=headers)


def get(client: TestClient, *queries: Any, headers: Any = None, **fields: Any) -> Response:
    text = json.dumps({"queries": list(queries)} | fields)
    return client.get(QUERY, params={"request": text}, headers=headers)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tags of what was computed, in order."""
    tags: list[str] = []

    def evaluation(plan: Plan) -> Evaluation:
        tags.append(plan.tag)
        return Evaluation(plan)

    monkeypatch.setattr(answering, "Evaluation", evaluation)
    return tags


# ------------------------------------------------------------------------------------- entity tags


@pytest.mark.parametrize("way", [ask, get])
def test_equal_questions_have_equal_tags(stream: TestClient, way: Callable[..., Response]) -> None:
    posted(stream, 1)
    first, again = way(stream, SUM), way(stream, SUM | {"confidence": 0.95})
    assert first.headers["etag"] == again.headers["etag"]
    assert first.headers["cache-control"] == "no-cache"
    assert first.headers["content-type"] == "application/json"
    assert first.content == again.content
    tag = first.headers["etag"]
    assert tag[0] == tag[-1] == '"'
    assert not tag.startswith("W/")


def test_other_questions_have_other_tags(stream: TestClient) -> None:
    posted(stream, 1)
    posted(stream, 2, "b")
    different = [
        ([SUM], {}),
        ([SUM | {"now": NOW + 1}], {}),
        ([SUM | {"confidence": 0.9}], {}),
        ([SUM | {"aggregate": "count"}], {}),
        ([SUM | {"decay": {"kind": "window", "width": 601}}], {}),
        ([SUM | {"now": None, "times": [NOW]}], {}),
        ([SUM, SUM], {}),
        ([SUM], {"sources": ["a"]}),
        ([SUM], {"sources": ["b"]}),
    ]
    tags = [ask(stream, *queries, **fields).headers["etag"] for queries, fields in different]
    assert len(set(tags)) == len(different)
    everything = ask(stream, SUM, sources=["a", "b"]).headers["etag"]
    assert everything == tags[0]


def test_a_post_that_changes_the_stream_changes_the_tag(stream: TestClient) -> None:
    posted(stream, 1)
    first = ask(stream, SUM)
    posted(stream, 1)
    assert ask(stream, SUM).headers["etag"] == first.headers["etag"]
    token = posted(stream, 2)
    later = ask(stream, SUM, after=token)
    assert later.headers["etag"] != first.headers["etag"]
    assert later.json()["digest"] != first.json()["digest"]
    # Waiting for a post is no part of the question.
    assert later.headers["etag"] == ask(stream, SUM).headers["etag"]


def test_the_clock_is_part_of_the_question(
    stream: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving = SUM | {"now": None}
    tags = []
    for ns in (5 * 10**9, 5 * 10**9 + 1, 6 * 10**9):
        monkeypatch.setattr(answering, "now_ns", lambda ns=ns: ns)
        tags.append((ask(stream, moving).headers["etag"], ask(stream, SUM).headers["etag"]))
    assert tags[0] == tags[1] != tags[2]  # the stream counts in seconds
    assert tags[0][1] == tags[2][1]


def test_streams_of_equal_content_have_their_own(stream: TestClient) -> None:
    stream.put("/v1/streams/t", json={"params": PARAMS.to_dict()})
    body = {"queries": [SUM]}
    responses = [stream.post(f"/v1/streams/{name}/query", json=body) for name in "st"]
    group = stream.post("/v1/query", json=body | {"streams": ["s"]})
    assert len({each.headers["etag"] for each in (*responses, group)}) == 3
    assert [each.json()["stream"] for each in responses] == ["s", "t"]


def test_tags_do_not_run_together() -> None:
    assert etag("ab", "c") != etag("a", "bc") != etag("abc")
    assert etag("\ud800".encode("utf-8", "replace").decode()) == etag("?")


# ------------------------------------------------------------------------------- If-None-Match


@pytest.mark.parametrize("way", [ask, get])
def test_what_the_client_has_is_not_computed(
    stream: TestClient, computed: list[str], way: Callable[..., Response]
) -> None:
    posted(stream, 1)
    tag = way(stream, SUM).headers["etag"]
    computed.clear()
    for known in (tag, f'"x", {tag}', f"W/{tag}", "*"):
        response = way(stream, SUM, headers={"If-None-Match": known})
        assert response.status_code == 304
        assert response.content == b""
        assert response.headers["etag"] == tag
    assert computed == []
    assert way(stream, SUM, headers={"If-None-Match": '"x"'}).status_code == 200
    token = posted(stream, 2)
    changed = way(stream, SUM, headers={"If-None-Match": tag, "Decaysketch-After": token})
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag


def test_a_question_that_is_refused_is_never_known(stream: TestClient) -> None:
    anything = {"If-None-Match": "*"}
    problem(ask(stream, SUM | {"aggregate": "mode"}, headers=anything), 422, "invalid-request")
    refused = stream.post("/v1/streams/nope/query", json={"queries": [SUM]}, headers=anything)
    problem(refused, 404, "unknown-stream")


@pytest.mark.parametrize(
    ("header", "known"),
    [
        (None, False),
        ("", False),
        ('"a"', True),
        ('W/"a"', True),
        (' "b" , "a" ', True),
        ('"ab"', False),
        ("a", False),
        ("*", True),
    ],
)
def test_lists_of_tags(header: str | None, known: bool) -> None:
    assert is_known('"a"', header) is known


# ----------------------------------------------------------------------- answers that are kept


@pytest.mark.usefixtures("data")  # a new aggregator, which counts from 0
def test_an_answer_is_computed_once(stream: TestClient, computed: list[str]) -> None:
    posted(stream, 1)
    bodies = {ask(stream, SUM).content, get(stream, SUM).content, ask(stream, SUM).content}
    assert len(bodies) == 1
    assert len(computed) == 1
    ask(stream, SUM | {"now": NOW + 1})
    assert len(computed) == 2


def test_a_refusal_is_not_kept(stream: TestClient, computed: list[str]) -> None:
    fixed = {"kind": "window", "width": 5}
    created = {"family": "integral", "params": {"max_weight": 9}, "decay": fixed}
    assert stream.put("/v1/streams/i", json=created).status_code == 201
    from decaysketch import IntegralDecaySketch, SketchParams, decay

    sketch = IntegralDecaySketch(SketchParams(max_weight=9), decay.integral.window(5))
    sketch.update([1.0], [1], [100], [1], now=100)
    stream.post(
        "/v1/streams/i/sketches",
        params={"source": "a"},
        content=sketch.to_bytes(),
        headers=OCTETS,
    )
    for _ in range(2):
        query = {"aggregate": "sum", "now": 99}
        refused = stream.post("/v1/streams/i/query", json={"queries": [query]})
        problem(refused, 422, "unanswerable-query")
    assert len(computed) == 2


def test_room_is_bounded_and_the_oldest_use_goes_first() -> None:
    cache = AnswerCache(100)
    for name in "abcdefghij":
        cache.put(name, bytes(10))
    assert (len(cache), cache.held_bytes) == (10, 100)
    assert cache.get("a") == bytes(10)
    cache.put("k", bytes(12))
    assert cache.get("b") is None
    assert cache.get("c") is None
    assert cache.get("a") == bytes(10)
    assert cache.held_bytes == 92


def test_a_very_long_answer_is_not_kept() -> None:
    cache = AnswerCache(100)
    cache.put("a", bytes(12))
    cache.put("b", bytes(13))
    assert cache.get("a") is not None
    assert cache.get("b") is None
    assert cache.held_bytes == 12


def test_the_same_answer_twice_takes_its_room_once() -> None:
    cache = AnswerCache(100)
    for _ in range(50):
        cache.put("a", bytes(12))
    assert (len(cache), cache.held_bytes) == (1, 12)


def test_threads_share_it() -> None:
    cache = AnswerCache(1_000)

    def use(seed: int) -> None:
        for k in range(2_000):
            name = str((seed * k) % 97)
            body = cache.get(name)
            assert body in {None, name.encode() * 10}
            cache.put(name, name.encode() * 10)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in (1, 3, 5, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.held_bytes <= 1_000
    assert cache.held_bytes == sum(len(cache.get(str(k)) or b"") for k in range(97))


# ------------------------------------------------------------------------------------------- by GET


def test_get_answers_as_post_does(stream: TestClient) -> None:
    posted(stream, 1)
    posted(stream, 2, "b")
    quantile = SUM | {"aggregate": "quantile", "q": [0.5], "times": [NOW, NOW - 1], "now": None}
    for fields in ({}, {"sources": ["b"]}):
        by_post = ask(stream, SUM, quantile, **fields)
        by_get = get(stream, SUM, quantile, **fields)
        assert by_post.status_code == by_get.status_code == 200
        assert by_get.content == by_post.content
        assert by_get.headers["etag"] == by_post.headers["etag"]


@pytest.mark.parametrize(
    ("text", "field", "named"),
    [
        ("", "body", "not JSON"),
        ("{", "body", "not JSON"),
        ("null", "body", "dictionary"),
        ("{}", "queries", "missing"),
        ('{"queries": []}', "queries", "at least 1"),
        ('{"queries": [{"aggregate": "mode"}]}', "queries[0].aggregate", "'quantile'"),
        ('{"queries": [{"aggregate": "sum", "now": 1.5}]}', "queries[0].now", "valid integer"),
        ('{"queries": [{"aggregate": "sum", "now": NaN}]}', "queries[0].now", "valid integer"),
        ('{"queries": [{"aggregate": "sum", "now": 1}]}', "queries[0].decay", "missing"),
        ("[" * 15_000, "body", "not JSON"),
        ('{"queries": ' + "9" * 5_000 + "}", "body", "not JSON"),
        (" " * 16_001, "request", "at most 16000"),
    ],
)
def test_malformed_in_a_url(stream: TestClient, text: str, field: str, named: str) -> None:
    refused = stream.get(QUERY, params={"request": text})
    fault = problem(refused, 422, "invalid-request")["errors"][0]
    assert fault["field"] == field
    assert named in fault["reason"]


def test_a_url_without_a_request(stream: TestClient) -> None:
    (fault,) = problem(stream.get(QUERY), 422, "invalid-request")["errors"]
    assert (fault["field"], fault["reason"]) == ("request", "missing")
