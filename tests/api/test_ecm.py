"""Streams of ECM-sketches over HTTP: posts of sites, rows of keys, and questions about keys."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from service import NOW, OCTETS, PARAMS, posted, problem

from api.service.merging import MergeBuffer
from decaysketch import decay
from decaysketch.ecm import ECMCollection, ECMParams, ECMSketch
from decaysketch.families import recipe_of

TEXTS = ECMParams(width=80, depth=3, slots=6, horizon=10_000, capacity=8, seed=4)
NUMBERS = replace(TEXTS, key_bits=20, fanout_bits=4)
WINDOW = decay.window(2_000)
ASKED = {"decay": WINDOW.to_dict(), "now": NOW}
MIXED = ["ada", 7, ("ada", 7), "bob", ("ada", "bob"), -5]


def create(client: TestClient, params: ECMParams = TEXTS, name: str = "s") -> None:
    created = {"family": "ecm", "params": params.to_dict()}
    assert client.put(f"/v1/streams/{name}", json=created).status_code == 201


def site(
    source: str = "north", *, epoch: int = 1, params: ECMParams = TEXTS, keys: Any = None
) -> ECMSketch:
    """A site that has counted keys, one for each of the last time units."""
    sketch = ECMSketch(params, source=source, epoch=epoch)
    keys = ["ada", "bob", "ada", "eve"] * 20 if keys is None else keys
    sketch.update(keys, range(NOW - len(keys), NOW))
    return sketch


def collected(*sketches: ECMSketch, params: ECMParams = TEXTS) -> ECMCollection:
    return ECMCollection(params, sketches)


def post(client: TestClient, sketch: Any, source: str = "a", name: str = "s") -> Any:
    return client.post(
        f"/v1/streams/{name}/sketches",
        params={"source": source}, content=sketch.to_bytes(), headers=OCTETS,
    )  # fmt: skip


def held(client: TestClient, **params: Any) -> ECMCollection:
    body = client.get("/v1/streams/s/sketch", params=params).content
    return ECMCollection.from_bytes(body, params=None)


def ask(client: TestClient, name: str = "s", **query: Any) -> Any:
    return client.post(f"/v1/streams/{name}/query", json={"queries": [{**ASKED, **query}]})


def answer(client: TestClient, **query: Any) -> dict[str, Any]:
    response = ask(client, **query)
    assert response.status_code == 200, response.text
    (found,) = response.json()["answers"]
    told: dict[str, Any] = found
    return told


def rows(keys: list[Any], first: int = 0) -> list[dict[str, Any]]:
    return [{"key": key, "time": NOW - 100 + first + k} for k, key in enumerate(keys)]


def count(client: TestClient, given: list[dict[str, Any]], first: int, source: str = "a") -> Any:
    return client.post(
        "/v1/streams/s/observations",
        params={"source": source, "first": first, "next": first + len(given)},
        json={"observations": given},
    )


# ------------------------------------------------------------------------------------------ posts


def test_the_newest_state_of_every_site_is_held_whoever_sends_it(client: TestClient) -> None:
    create(client)
    north, south = site("north"), site("south")
    early = north.copy()
    north.update("ada", NOW)
    for sketch, source in ((north, "a"), (collected(south, early), "b"), (south, "a")):
        posted(post(client, sketch, source))
    assert posted(post(client, north))["duplicate"] is True
    assert held(client) == collected(north, south)
    assert held(client, source="b") == collected(south, early)
    state = client.get("/v1/streams/s").json()
    assert (state["family"], state["clock"]) == ("ecm", NOW)


def test_a_fork_is_refused_by_name(client: TestClient) -> None:
    create(client)
    posted(post(client, site()))
    fork = site(keys=["eve"] * 80)
    detail = problem(post(client, fork, "b"), 409, "conflicting-sketch")["detail"]
    assert "('north', 1)" in detail
    posted(post(client, site(epoch=2, keys=["eve"] * 80), "b"))
    assert len(held(client).entries) == 2


@pytest.mark.parametrize("apart", [*itertools.product((False, True), repeat=3)])
def test_a_fork_that_its_site_has_passed_changes_no_answer(apart: tuple[bool, ...]) -> None:
    """What waits is merged in an order of its own: of sources apart, and of late posts."""
    passed, fork = site(), site(keys=["eve"] * 80)
    newest = passed.copy()
    newest.update("ada", NOW)
    for order in itertools.permutations((passed, fork, newest)):
        whole = MergeBuffer(recipe_of(TEXTS))
        for sketch, of_a_source in zip(order, apart, strict=True):
            part = collected(sketch).snapshot()
            if of_a_source:
                buffer = MergeBuffer(recipe_of(TEXTS))
                buffer.add(part)
            whole.add(buffer if of_a_source else part)
        assert whole.to_bytes() == collected(newest).to_bytes()


def test_more_entries_than_the_capacity_are_refused(client: TestClient) -> None:
    create(client)
    posted(post(client, collected(*(site("north", epoch=k) for k in range(8)))))
    problem(post(client, site("south"), "b"), 507, "no-capacity")
    posted(post(client, site("north", epoch=3), "b"))


def test_many_small_entries_are_refused_before_they_are_decoded(
    start: Callable[..., TestClient],
) -> None:
    client = start(max_post_rows=1_000)
    params = replace(TEXTS, capacity=1_000)
    create(client, params)
    few, many = (
        collected(*(ECMSketch(params, source=f"s{k}", epoch=1) for k in range(n)), params=params)
        for n in (20, 200)
    )
    posted(post(client, few))
    problem(post(client, many), 413, "too-many-rows")


def test_compaction_keeps_the_newest_of_each_entry(start: Callable[..., TestClient]) -> None:
    client = start()
    create(client)
    north, south = site("north"), site("south")
    for number in range(12):
        north.update("bob", NOW + number)
        posted(post(client, north))
        if number % 3 == 0:
            south.update("eve", NOW + number)
            posted(post(client, south, "b"))
    expected = collected(north, south)
    for _ in range(2):
        client.portal.call(client.app.state.aggregator.compact)  # type: ignore
    client = start()
    assert held(client) == expected
    assert held(client, source="a") == collected(north)
    assert post(client, site("north")).status_code == 200  # an old one changes nothing
    assert held(client) == expected


# --------------------------------------------------------------------------------------- raw rows


def test_rows_come_to_what_a_site_of_the_library_counts(client: TestClient) -> None:
    create(client)
    for first, keys in ((0, MIXED), (len(MIXED), MIXED[::-1])):
        given = rows([list(key) if isinstance(key, tuple) else key for key in keys], first)
        told = count(client, given, first)
        assert told.json()["retained"] == len(MIXED), told.text
        assert count(client, given, first).json()["duplicate"] is True
    ((name, epoch),) = held(client).entries
    assert name == "a"
    sketch = ECMSketch(TEXTS, source=name, epoch=epoch)
    for time, key in enumerate([*MIXED, *MIXED[::-1]], NOW - 100):
        sketch.update(key, time)
    assert held(client) == collected(sketch)


def test_rows_of_integer_keys(client: TestClient) -> None:
    create(client, NUMBERS)
    told = count(client, rows([5, 1 << 20, -1, "5", [5], 5]), 0).json()
    assert (told["retained"], told["refused"]) == (2, 4)
    assert [each["field"] for each in told["refusals"]] == ["key"] * 4
    heavy = answer(client, aggregate="heavy_keys", phi=0.5)["heavy_keys"]
    assert [(each["key"], each["count"]["value"], each["certain"]) for each in heavy] == [
        (5, 2.0, True)
    ]


# -------------------------------------------------------------------------------------- questions


def test_keys_are_integers_texts_and_lists_of_them(client: TestClient) -> None:
    create(client)
    sketch = ECMSketch(TEXTS, source="x", epoch=1)
    for number, key in enumerate(MIXED):
        sketch.update([key] * (number + 1), [NOW - number] * (number + 1))
    posted(post(client, sketch))
    found = answer(client, aggregate="key_count", keys=MIXED)["counts"]
    assert [each["key"] for each in found] == json.loads(json.dumps(MIXED))
    for each, key in zip(found, MIXED, strict=True):
        assert each["estimate"] == sketch.key_count(key, WINDOW, now=NOW).to_dict()
        assert each["estimate"]["sure_upper"] >= MIXED.index(key) + 1
    one = answer(client, aggregate="key_count", keys="ada")["counts"]
    assert one == found[:1]
    joined = answer(client, aggregate="self_join")["estimate"]
    assert joined == sketch.self_join(WINDOW, now=NOW).to_dict()
    shares = answer(client, aggregate="key_share", keys=["ada"])["shares"]
    assert shares[0]["estimate"] == sketch.key_share("ada", WINDOW, now=NOW).to_dict()


@pytest.mark.parametrize(
    "keys",
    [[], [1.5], [True], [None], [[]], [["a"] * 5], [[["a"]]], [""], ["a" * 2000], [1 << 64],
     [{"key": "a"}], list(range(1001))],
)  # fmt: skip
def test_what_is_no_key_is_refused(client: TestClient, keys: list[Any]) -> None:
    create(client)
    found = problem(ask(client, aggregate="key_count", keys=keys), 422, "invalid-request")
    assert found["errors"][0]["field"].startswith("queries[0]")


def test_what_a_stream_cannot_be_asked_says_why(client: TestClient) -> None:
    create(client)
    posted(post(client, site()))
    create(client, NUMBERS, "numbers")
    for name, query, why in (
        ("s", {"aggregate": "heavy_keys", "phi": 0.1}, "key_bits"),
        ("s", {"aggregate": "key_rank", "key": 3}, "key_bits"),
        ("s", {"aggregate": "heavy_keys"}, "give either phi or threshold"),
        ("numbers", {"aggregate": "key_count", "keys": [1 << 20]}, "1048576"),
        ("numbers", {"aggregate": "key_count", "keys": ["a"]}, "integers"),
        ("numbers", {"aggregate": "key_range", "bounds": [9, 3]}, "9"),
    ):
        content = problem(ask(client, name, **query), 422, "invalid-request")
        assert why in content["detail"], content
    content = problem(ask(client, aggregate="sum"), 422, "unsupported-aggregate")
    assert "key_count" in content["detail"]
    rising = {"kind": "window", "width": 20_000}  # further back than the horizon
    problem(ask(client, aggregate="key_total", decay=rising), 422, "invalid-request")


def test_what_costs_too_much_is_refused_before_it_is_spent(client: TestClient) -> None:
    create(client)
    many = list(range(1_000))
    times = {"start": NOW - 50, "stop": NOW, "step": 1}
    query = {"aggregate": "key_count", "keys": many, "times": times}
    content = problem(
        client.post(
            "/v1/streams/s/query",
            json={"queries": [{"decay": ASKED["decay"], **query}]},
        ),
        422, "invalid-request",
    )  # fmt: skip
    assert "51000 estimates to give" in content["detail"]


def test_the_inner_product_with_another_stream(client: TestClient) -> None:
    create(client)
    create(client, name="other")
    ours, theirs = site(), site("west", keys=["ada", "eve", "eve", "zoe"] * 10)
    posted(post(client, ours))
    posted(post(client, theirs, name="other"))
    told = answer(client, aggregate="inner_product", other="other")["estimate"]
    assert told == ours.inner_product(theirs, WINDOW, now=NOW).to_dict()
    assert told["value"] == pytest.approx(40 * 10 + 20 * 20, rel=0.2)
    first = ask(client, aggregate="inner_product", other="other").headers["ETag"]
    theirs.update("ada", NOW)
    posted(post(client, theirs, name="other"))
    assert ask(client, aggregate="inner_product", other="other").headers["ETag"] != first
    again = answer(client, aggregate="inner_product", other="other")["estimate"]
    assert again == ours.inner_product(theirs, WINDOW, now=NOW).to_dict()
    itself = answer(client, aggregate="inner_product", other="s")["estimate"]
    assert itself["sure_upper"] >= 40 * 40 + 2 * 20 * 20


def test_streams_that_cannot_be_compared_are_refused(client: TestClient) -> None:
    create(client)
    create(client, replace(TEXTS, seed=5), "seeded")
    client.put("/v1/streams/rows", json={"params": PARAMS.to_dict()})
    problem(ask(client, aggregate="inner_product", other="none"), 404, "unknown-stream")
    problem(ask(client, aggregate="inner_product", other="../s"), 422, "invalid-request")
    content = problem(ask(client, aggregate="inner_product", other="rows"), 422, "invalid-request")
    assert "stream 'rows' is of another family" in content["detail"]
    content = problem(
        ask(client, aggregate="inner_product", other="seeded"), 409, "incompatible-sketch"
    )
    assert "seed" in content["detail"]
