"""One question at many times, at a time of the past, and at the time of the server's clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from service import NOW, OCTETS, PARAMS, build, problem

from api.queries import QueryRequest, answering
from api.queries.answering import Evaluation
from api.queries.answers import AnswerCache
from api.queries.requests import Query
from decaysketch import DecaySketch, IntegralDecaySketch, SketchParams, decay
from decaysketch.asyncwindow import SumParams, SumSampler
from decaysketch.core.time_units import NANOSECONDS, now_in

QUERY = "/v1/streams/s/query"
WINDOW: dict[str, Any] = {"kind": "window", "width": 600}
HALVING: dict[str, Any] = {"kind": "exponential", "half_life": 300}
SUM: dict[str, Any] = {"aggregate": "sum", "decay": WINDOW}


@pytest.fixture
def sketch(stream: TestClient) -> DecaySketch:
    """What was posted to the stream ``s``: sampled, so that answers have intervals."""
    built = build(1, 2_000)
    posted(stream, built)
    return built


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set the server's clock, in nanoseconds."""
    return lambda ns: monkeypatch.setattr(answering, "now_ns", lambda: ns)


def posted(client: TestClient, sketch: Any) -> None:
    response = client.post(
        "/v1/streams/s/sketches",
        params={"source": "a"},
        content=sketch.to_bytes(),
        headers=OCTETS,
    )
    assert response.status_code == 200, response.text


def ask(client: TestClient, *queries: dict[str, Any]) -> Response:
    return client.post(QUERY, json={"queries": queries})


def answers(client: TestClient, *queries: dict[str, Any]) -> list[dict[str, Any]]:
    response = ask(client, *queries)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["answers"]
    return found


# ------------------------------------------------------------------------------------------ series

AGGREGATES: list[dict[str, Any]] = [
    *({"aggregate": name} for name in ("sum", "count", "total", "mean", "variance", "median")),
    {"aggregate": "quantile", "q": [0.1, 0.5, 0.99]},
    {"aggregate": "rank", "v": 20},
    {"aggregate": "selectivity", "at_least": 21},
    {"aggregate": "selectivity", "predicate": "v > 20 and w < 50"},
    {"aggregate": "heavy_hitters", "phi": 0.05},
    {"aggregate": "group_by", "limit": 3},
]


@pytest.mark.parametrize("asked", AGGREGATES, ids=lambda asked: asked["aggregate"])
@pytest.mark.parametrize("chosen", [WINDOW, HALVING], ids=lambda chosen: chosen["kind"])
def test_a_point_is_what_that_time_alone_gives(
    stream: TestClient, sketch: DecaySketch, asked: dict[str, Any], chosen: dict[str, Any]
) -> None:
    common = asked | {"decay": chosen, "confidence": 0.8}
    times = [NOW, NOW - 1_000, NOW - 4_999, NOW - 10_000, NOW + 100]
    (series,) = answers(stream, common | {"times": times})
    assert series["aggregate"] == asked["aggregate"]
    assert series.keys() == {"aggregate", "points"}
    assert series["points"] == answers(stream, *(common | {"now": time} for time in times))
    assert [point["now"] for point in series["points"]] == times


def test_a_point_is_the_library_s_answer(stream: TestClient, sketch: DecaySketch) -> None:
    times = range(NOW - 4_000, NOW + 1, 500)
    fields = {"start": NOW - 4_000, "stop": NOW, "step": 500}
    (series,) = answers(stream, {"aggregate": "mean", "decay": HALVING, "times": fields})
    expected = [sketch.mean(decay.exponential(half_life=300), now=time) for time in times]
    assert [point["estimate"] for point in series["points"]] == [e.to_dict() for e in expected]
    assert not all(estimate.exact for estimate in expected)


@pytest.mark.parametrize(
    ("fields", "times"),
    [
        ({"start": 10, "stop": 20, "step": 5}, [10, 15, 20]),
        ({"start": 10, "stop": 19, "step": 5}, [10, 15]),
        ({"start": 10, "stop": 10, "step": 5}, [10]),
        ({"start": -3, "stop": 3, "step": 3}, [-3, 0, 3]),
        ({"start": -(2**62), "stop": 2**62, "step": 2**62}, [-(2**62), 0, 2**62]),
        ([7], [7]),
        ([9, 7, 9, 8], [9, 7, 9, 8]),
    ],
)
def test_times_are_those_that_were_asked(stream: TestClient, fields: Any, times: list[int]) -> None:
    (series,) = answers(stream, SUM | {"times": fields})
    assert [point["now"] for point in series["points"]] == times


def test_series_and_single_times_in_one_request(stream: TestClient, sketch: DecaySketch) -> None:
    queries = [
        SUM | {"times": [NOW - 1, NOW]},
        SUM | {"now": NOW - 7},
        {"aggregate": "count", "decay": HALVING, "times": [NOW, NOW - 7]},
        SUM | {"now": NOW},
    ]
    together = answers(stream, *queries)
    assert together == [answers(stream, query)[0] for query in queries]
    assert together[0]["points"][1] == together[3]


def test_several_hash_functions_by_the_median(client: TestClient) -> None:
    params = replace(PARAMS, copies=3, capacity=40)
    client.put("/v1/streams/s", json={"params": params.to_dict()})
    posted(client, build(1, 1_000, params=params))
    for combine in ("median", "average"):
        for asked in (SUM, {"aggregate": "group_by", "decay": WINDOW, "limit": 2}):
            query = asked | {"combine": combine}
            (series,) = answers(client, query | {"times": [NOW, NOW - 300]})
            assert series["points"] == answers(
                client, query | {"now": NOW}, query | {"now": NOW - 300}
            )


def test_a_series_is_computed_in_turns(
    stream: TestClient, sketch: DecaySketch, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = SUM | {"times": {"start": NOW - 9, "stop": NOW, "step": 1}}
    whole = answers(stream, query)
    turns: list[bool] = []

    def work(evaluation: Evaluation, _turn_s: float) -> bytes | None:
        body = original(evaluation, 0)
        turns.append(body is not None)
        return body

    original = Evaluation.work
    monkeypatch.setattr(Evaluation, "work", work)
    monkeypatch.setattr(stream.app.state.answerer, "_answers", AnswerCache(0))  # type: ignore[attr-defined]
    assert answers(stream, query) == whole
    assert turns == [False] * 10 + [True]


def test_a_request_is_read_from_one_sample_of_each_decay_and_time(
    stream: TestClient, sketch: DecaySketch, monkeypatch: pytest.MonkeyPatch
) -> None:
    from decaysketch.querytime import stratified

    drawn: list[tuple[str, int]] = []

    def draw(state: Any, chosen: Any, now: int, **fields: Any) -> Any:
        drawn.append((chosen.to_dict()["kind"], now))
        return original(state, chosen, now, **fields)

    original = stratified.draw
    monkeypatch.setattr(stratified, "draw", draw)
    times = {"start": NOW - 3, "stop": NOW, "step": 1}
    queries = [
        {"aggregate": name, "decay": chosen, "times": times}
        for name in ("sum", "mean")
        for chosen in (WINDOW, HALVING)
    ]
    answers(stream, *queries, SUM | {"now": NOW})
    assert sorted(drawn) == sorted(
        (kind, now) for kind in ("window", "exponential") for now in range(NOW - 3, NOW + 1)
    )


def test_every_point_that_cannot_be_answered_is_named(client: TestClient) -> None:
    params = SketchParams(max_weight=9, id_bits=20)
    created = {
        "family": "integral",
        "params": params.to_dict(),
        "decay": {"kind": "window", "width": 50},
    }
    assert client.put("/v1/streams/s", json=created).status_code == 201
    sketch = IntegralDecaySketch(params, decay.integral.window(50))
    sketch.update([1.0], [2], [100], [1], now=120)
    posted(client, sketch)
    queries = [
        {"aggregate": "sum", "times": [119, 120, 118]},
        {"aggregate": "sum", "now": 121},
        {"aggregate": "count", "now": 7},
    ]
    content = problem(ask(client, *queries), 422, "unanswerable-query")
    assert [fault["field"] for fault in content["errors"]] == [
        "queries[0].times[0]",
        "queries[0].times[2]",
        "queries[2]",
    ]
    assert "3 of 5" in content["detail"]
    (series,) = answers(
        client, {"aggregate": "sum", "times": {"start": 120, "stop": 160, "step": 15}}
    )
    assert [point["estimate"]["value"] for point in series["points"]] == [2, 2, 2]


@pytest.mark.parametrize(
    ("fields", "field", "named"),
    [
        ({"times": []}, "times", "at least 1"),
        ({"times": 7}, "times", "dictionary"),
        ({"times": [1.5]}, "times[0]", "valid integer"),
        ({"times": [1, "2"]}, "times[1]", "valid integer"),
        ({"times": [1, True]}, "times[1]", "valid integer"),
        ({"times": [2**62 + 1]}, "times[0]", str(2**62)),
        ({"times": {}}, "times.start", "missing"),
        ({"times": {"start": 2, "stop": 1, "step": 1}}, "times", "stop is 1, before start, 2"),
        ({"times": {"start": 1, "stop": 2, "step": 0}}, "times.step", "or equal to 1"),
        ({"times": {"start": 1, "stop": 2, "step": 0.5}}, "times.step", "valid integer"),
        ({"times": {"start": 1, "stop": 2**62 + 1, "step": 1}}, "times.stop", str(2**62)),
        ({"times": {"start": 1, "stop": 2, "step": 1, "end": 3}}, "times.end", "not permitted"),
        ({"times": [1], "now": 1}, "", "now or times, not both"),
    ],
)
def test_malformed_times(stream: TestClient, fields: Any, field: str, named: str) -> None:
    content = problem(ask(stream, SUM | {"now": 1}, SUM | fields), 422, "invalid-request")
    faults = content["errors"]
    assert faults[0]["field"] == f"queries[1].{field}".removesuffix(".")
    assert named in faults[0]["reason"]


# ------------------------------------------------------------------------------------------ limits


def test_limits_of_points(start: Callable[..., TestClient]) -> None:
    client = start(max_points=10, max_queries=12)
    client.put("/v1/streams/s", json={"params": PARAMS.to_dict()})
    (series,) = answers(client, SUM | {"times": {"start": 1, "stop": 10, "step": 1}})
    assert len(series["points"]) == 10

    def refused(*queries: dict[str, Any]) -> dict[str, Any]:
        content = problem(ask(client, *queries), 422, "invalid-request")
        (fault,) = content["errors"]
        assert fault["field"] in content["detail"]
        return dict(fault)

    for times in ({"start": 1, "stop": 11, "step": 1}, list(range(11))):
        fault = refused(SUM | {"now": 1}, SUM | {"times": times})
        assert (fault["field"], fault["value"], fault["expected"]) == ("queries[1].times", 11, 10)
    fault = refused(SUM | {"times": {"start": -(2**62), "stop": 2**62, "step": 1}})
    assert fault["value"] == 2**63 + 1
    fault = refused(SUM | {"times": list(range(10))}, *[SUM | {"now": 1}] * 3)
    assert (fault["field"], fault["value"], fault["expected"]) == ("queries", 13, 12)
    assert "of all queries together" in fault["reason"]
    fault = refused(*[SUM | {"now": 1}] * 13)
    assert (fault["field"], fault["value"], fault["expected"]) == ("queries", 13, 12)


def test_limit_of_estimates(stream: TestClient) -> None:
    many = {"aggregate": "group_by", "limit": 10_000, "decay": WINDOW}
    for query, given in (
        (many | {"times": [1, 2]}, 40_000),
        ({"aggregate": "quantile", "q": [0.5] * 1000, "decay": WINDOW, "times": [1] * 21}, 21_000),
        ({"aggregate": "heavy_hitters", "phi": 0, "decay": WINDOW, "times": [1] * 3}, 30_000),
        ({"aggregate": "heavy_hitters", "phi": 0.001, "decay": WINDOW, "times": [1] * 21}, 21_000),
    ):
        (fault,) = problem(ask(stream, query), 422, "invalid-request")["errors"]
        assert (fault["field"], fault["value"], fault["expected"]) == ("queries", given, 20_000)
    assert ask(stream, many | {"times": [1]}).status_code == 200
    small = {"aggregate": "heavy_hitters", "phi": 0, "limit": 10, "decay": WINDOW}
    assert ask(stream, small | {"times": [1] * 100}).status_code == 200


def test_limit_of_work(
    stream: TestClient, sketch: DecaySketch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "MAX_WORK_S", 0.2)
    quantiles = {"aggregate": "quantile", "q": [k / 50 for k in range(50)], "now": NOW}
    query = quantiles | {"decay": HALVING}
    assert ask(stream, query).status_code == 200
    (fault,) = problem(ask(stream, query, query | {"confidence": 0.9}, query | {"now": NOW - 1}),
                       422, "invalid-request")["errors"]  # fmt: skip
    assert (fault["field"], fault["expected"]) == ("queries", 0.2)
    assert "take more than about 0.2 s of processor time" in fault["reason"]
    assert ask(stream, *[query] * 20).status_code == 200  # which are one


def test_a_predicate_counts_by_rows_and_operations(stream: TestClient, sketch: DecaySketch) -> None:
    view = sketch.at(decay.window(600), NOW)
    common = {"aggregate": "selectivity", "decay": WINDOW, "now": NOW}
    short, long = (
        QueryRequest.model_validate({"queries": [common | {"predicate": text}]}).queries[0]
        for text in ("v>1", "+".join(["v"] * 40) + ">1")
    )
    more_s = long.work_s(view, {}) - short.work_s(view, {})
    assert more_s == pytest.approx(61 * view.rows * 4e-9)


def test_a_turn_may_end_after_any_query_and_equal_ones_are_answered_once(
    stream: TestClient, sketch: DecaySketch, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = [SUM | {"now": NOW, "confidence": k / 10} for k in (1, 2, 3, 1, 2, 3)]
    whole = answers(stream, *queries)
    turns: list[bool] = []
    read: list[float] = []

    def work(evaluation: Evaluation, _turn_s: float) -> bytes | None:
        body = original(evaluation, 0)
        turns.append(body is not None)
        return body

    def read_it(query: Any, *given: Any) -> Any:
        read.append(query.confidence)
        return original_read(query, *given)

    original, original_read = Evaluation.work, Query.read
    monkeypatch.setattr(Evaluation, "work", work)
    monkeypatch.setattr(Query, "read", read_it)
    monkeypatch.setattr(stream.app.state.answerer, "_answers", AnswerCache(0))  # type: ignore[attr-defined]
    assert answers(stream, *queries) == whole
    assert turns == [False] * 6 + [True]
    assert read == [0.1, 0.2, 0.3]


@pytest.mark.usefixtures("data")  # a new aggregator, which counts from 0
def test_who_has_left_is_not_computed_for(
    stream: TestClient, sketch: DecaySketch, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[None] = []

    def work(_evaluation: Evaluation, _turn_s: float) -> None:
        turns.append(None)

    monkeypatch.setattr(Evaluation, "work", work)
    monkeypatch.setitem(stream.app_state, "has_left", lambda: len(turns) == 3)
    assert ask(stream, SUM | {"now": NOW}).status_code == 499
    assert len(turns) == 3


@pytest.mark.usefixtures("data")  # a new aggregator, which counts from 0
def test_queries_are_counted(stream: TestClient, sketch: DecaySketch) -> None:
    query = SUM | {"now": NOW}
    tag = ask(stream, query, query | {"aggregate": "mean"}).headers["etag"]
    ask(stream, query, query | {"aggregate": "mean"})
    body = {"queries": [query, query | {"aggregate": "mean"}]}
    known = stream.post(QUERY, json=body, headers={"If-None-Match": tag})
    assert known.status_code == 304
    text = stream.get("/metrics").text
    for name in ("sum", "mean"):
        for cached, count in (("no", 1), ("yes", 2)):
            line = f'decaysketch_queries_total{{aggregate="{name}",cached="{cached}"}} {count}.0'
            assert line in text
        assert f'decaysketch_query_seconds_count{{aggregate="{name}"}} 1.0' in text


def test_a_limit_keeps_the_heaviest_hitters(stream: TestClient, sketch: DecaySketch) -> None:
    query = {"aggregate": "heavy_hitters", "phi": 0.01, "decay": WINDOW, "now": NOW}
    everything, some = answers(stream, query, query | {"limit": 2})
    assert len(everything["heavy_hitters"]) > 2
    assert some["heavy_hitters"] == everything["heavy_hitters"][:2]


# ------------------------------------------------------------------------------------- the clock

T = 1_700_000_000_123_456_789


@pytest.mark.parametrize(
    ("unit", "now"),
    [
        ("ns", T),
        ("us", 1_700_000_000_123_456),
        ("ms", 1_700_000_000_123),
        ("s", 1_700_000_000),
        ("min", 28_333_333),
        ("m", 28_333_333),
        ("h", 472_222),
        ("d", 19_675),
    ],
)
def test_without_now_it_is_the_server_s(
    client: TestClient, at: Callable[[int], None], unit: str, now: int
) -> None:
    params = replace(PARAMS, time_unit=unit)
    client.put("/v1/streams/s", json={"params": params.to_dict()})
    sketch = DecaySketch(params)
    sketch.update([1.0, 2.0, 3.0], [5, 7, 11], [now - 601, now - 600, now], [1, 2, 3])
    posted(client, sketch)
    at(T)
    for query in (SUM, SUM | {"now": None}, SUM | {"times": None}):
        (answer,) = answers(client, query)
        assert answer["now"] == now
        assert answer["estimate"]["value"] == 18
        assert answer == answers(client, SUM | {"now": now})[0]


def test_a_request_reads_the_clock_once(stream: TestClient, monkeypatch: Any) -> None:
    ticks: Iterator[int] = iter(range(T, T + 10**12, 10**9))
    monkeypatch.setattr(answering, "now_ns", lambda: next(ticks))
    first = answers(
        stream, SUM, SUM | {"now": 5}, SUM | {"aggregate": "count"}, SUM | {"times": [9]}
    )
    second = answers(stream, SUM)
    assert [answer["now"] for answer in first[:3]] == [1_700_000_000, 5, 1_700_000_000]
    assert second[0]["now"] == 1_700_000_001


def test_a_unit_without_a_clock_needs_now(client: TestClient) -> None:
    params = replace(PARAMS, time_unit="frames")
    client.put("/v1/streams/s", json={"params": params.to_dict()})
    content = problem(ask(client, SUM | {"now": 1}, SUM, SUM), 422, "invalid-request")
    assert [fault["field"] for fault in content["errors"]] == ["queries[1].now", "queries[2].now"]
    assert "no clock of the stream's time_unit, 'frames'" in content["errors"][0]["reason"]
    assert answers(client, SUM | {"times": [1]})[0]["points"][0]["now"] == 1


def test_a_fixed_decay_is_not_asked_before_its_clock(
    client: TestClient, at: Callable[[int], None]
) -> None:
    params = SketchParams(max_weight=9, id_bits=20)
    fields = {"kind": "window", "width": 50}
    created = {"family": "integral", "params": params.to_dict(), "decay": fields}
    assert client.put("/v1/streams/s", json=created).status_code == 201
    sketch = IntegralDecaySketch(params, decay.integral.window(50))
    sketch.update([1.0], [2], [100], [1], now=120)
    posted(client, sketch)
    at(119 * 10**9)
    assert answers(client, {"aggregate": "sum"})[0]["now"] == 120
    at(125 * 10**9)
    assert answers(client, {"aggregate": "sum"})[0]["now"] == 125


def test_the_sampler_of_sums_too(client: TestClient, at: Callable[[int], None]) -> None:
    params = SumParams(max_sum=1000, capacity=20, max_window=600)
    created = {"family": "sum", "params": {"max_sum": 1000, "capacity": 20, "max_window": 600}}
    assert client.put("/v1/streams/s", json=created).status_code == 201
    sampler = SumSampler(params)
    sampler.update([3, 4], [100, 200])
    posted(client, sampler)
    at(750 * 10**9)
    (now,) = answers(client, SUM)
    assert (now["now"], now["estimate"]["value"]) == (750, 4)
    (series,) = answers(client, SUM | {"times": [150, 250]})
    assert [point["estimate"]["value"] for point in series["points"]] == [3, 7]


@pytest.mark.parametrize("unit", sorted(NANOSECONDS))
def test_units_agree_with_nanoseconds(unit: str) -> None:
    size = NANOSECONDS[unit]
    for ns in (0, 1, size - 1, size, 10 * size + 1, T, -1):
        now = now_in(unit, ns)
        assert now is not None
        assert now * size <= ns < (now + 1) * size
    assert now_in("parsec", T) is None
