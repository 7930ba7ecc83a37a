"""Every question of the table, of every family that answers it, in every way of asking."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from families import CASES, MEDIAN, SUM, WINDOW, asked, has_examples
from fastapi.testclient import TestClient
from service import LOCAL, NOW, OCTETS
from support.rows import for_each
from typer.testing import CliRunner

import decaysketch as ds
from api.app import create_app
from api.settings import Settings
from decaysketch.asyncwindow import MedianSampler, SumSampler
from decaysketch.cli import app
from decaysketch.decay.area import area
from decaysketch.errors import ParameterError, UnanswerableQueryError
from decaysketch.query import aggregates as query
from decaysketch.query.catalog import QUESTIONS, questions_of
from decaysketch.query.estimate import Estimate
from decaysketch.query.sample import Sample
from decaysketch.query.shapes import Question
from quality.series import JOINS

BOTH = [(case, name) for case in CASES for name in sorted(QUESTIONS)]
RELATIONS = {"ratio", "covariance", "correlation", "regression"}
#: What is asked with nothing but what any stream can be asked with.
FROM_OUTSIDE = [(case, name) for case, name in BOTH if has_examples(QUESTIONS[name])]


@pytest.fixture(scope="module")
def sketches() -> dict[str, Any]:
    return {name: case.build(3, 0) for name, case in CASES.items()}


# ------------------------------------------------------------------------------------- the table


@for_each("name", QUESTIONS)
def test_an_entry_is_complete(name: str) -> None:
    question = QUESTIONS[name]
    assert question.name == name
    assert question.doc.endswith(".")
    assert question.needs <= {
        "values",
        "numbers",
        "weights",
        "chosen decay",
        "keys",
        "extremes",
        "series",
        "sources",
    }
    assert sum(each.leading for each in question.arguments) <= 1
    for each in question.arguments:
        assert each.doc.endswith(".")
        assert each.travels or not each.required
        assert each.example is not None or not each.required or each.kind == "sketch"
    assert set(asked(question)) <= {each.name for each in question.travelling}


def test_families_answer_what_they_provide_for() -> None:
    everything = set(QUESTIONS)
    keyed, extremes, series, sources = (
        {name for name, each in QUESTIONS.items() if each.asked_of == held}
        for held in ("keys", "extremes", "series", "sources")
    )
    others = keyed | extremes | series | sources
    assert {
        name: everything - type(case.build(0, 0)).questions for name, case in CASES.items()
    } == {
        "decay": others,
        "integral": {"rate"} | others,
        "median": {"sum"} | others,
        "sum": everything - {"sum", "count", "rate", "selectivity", "last"} - RELATIONS,
        "ecm": everything - keyed,
        "extremes": everything - extremes,
        "series": everything - series,
    }
    assert questions_of() == {"count", "selectivity", "last"} | RELATIONS


@for_each("family, name", BOTH)
def test_a_sketch_has_a_method_for_each_question_and_no_other(
    sketches: dict[str, Any], family: str, name: str
) -> None:
    case, sketch, question = CASES[family], sketches[family], QUESTIONS[name]
    assert hasattr(sketch, name) == (name in sketch.questions)
    if name not in sketch.questions:
        return
    method = getattr(sketch, name)
    assert inspect.getdoc(method)
    parameters = inspect.signature(method).parameters
    assert {"now", "confidence", "combine", "estimator"} <= set(parameters)
    given = asked(question)
    if not has_examples(question):
        given = {"other": sketch}
    leading = [
        given[each.name] for each in question.arguments if each.leading and each.name in given
    ]
    if question.leading is not None and question.leading.fewest == question.leading.longest == 2:
        (leading,) = leading  # two bounds are two arguments
    options = {"now": NOW, "confidence": 0.9, "combine": "median"}
    found = method(*leading, *([WINDOW] if case.chooses else []), **options)
    expected = case.view(sketch).ask(question, confidence=0.9, combine="median", **given)
    if name in ("key_count", "heavy_keys"):  # columns
        assert len(list(found)) == len(expected) > 0
        found, expected = list(found), list(expected)
    assert found == (expected.groups if name == "group_by" else expected)


# ----------------------------------------------------------------------------- ways of asking


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, sketches: dict[str, Any]) -> Any:
    data = tmp_path_factory.mktemp("questions") / "aggregator.sqlite3"
    with TestClient(create_app(Settings(data=str(data))), base_url=LOCAL) as client:
        for name, case in CASES.items():
            assert client.put(f"/v1/streams/{name}", json=case.creation).status_code == 201
            taken = client.post(
                f"/v1/streams/{name}/sketches", params={"source": "a"},
                content=sketches[name].to_bytes(), headers=OCTETS,
            )  # fmt: skip
            assert taken.status_code == 200
        yield client


@for_each("family, name", FROM_OUTSIDE)
def test_http_answers_as_the_library_does(
    client: TestClient, sketches: dict[str, Any], family: str, name: str
) -> None:
    case = CASES[family]
    query = case.asks(name, confidence=0.9)
    response = client.post(f"/v1/streams/{family}/query", json={"queries": [query]})
    if name not in sketches[family].questions:
        assert response.json()["type"].endswith("unsupported-aggregate")
        return
    assert response.json()["answers"] == [case.answer(sketches[family], name, confidence=0.9)]


@for_each("family, name", FROM_OUTSIDE)
def test_sql_answers_as_the_library_does(sketches: dict[str, Any], family: str, name: str) -> None:
    pa = pytest.importorskip("pyarrow")
    from decaysketch.tables.sql import queries

    case, question, sketch = CASES[family], QUESTIONS[name], sketches[family]
    for function, form in queries.FUNCTIONS.items():
        if form.question is not question or form.labels:
            continue
        arguments = asked(question) if form.argument is not None else {}
        if form.one:
            arguments = {key: each[0] for key, each in arguments.items()}
        columns = [
            pa.array([sketch.to_bytes()]),
            *(pa.array([each]) for each in arguments.values()),
        ]
        columns += [
            pa.array([repr(WINDOW) if case.chooses else None], pa.string()),
            pa.array([NOW]),
        ]
        if name not in sketch.questions:
            with pytest.raises(queries.FunctionError, match=f"{family!r} has no {name}"):
                queries.answer(function, (), columns, {})
            continue
        found = case.view(sketch).ask(question, **arguments)
        parts = question.parts(
            found, {key: [each] for key, each in arguments.items()} if form.one else arguments
        )
        for called in (function, f"{function}_value"):
            (answer,) = queries.answer(called, (), columns, {}).to_pylist()
            assert numbers(answer) == expected_numbers(parts, called != function, question)


@pytest.mark.parametrize(
    ("family", "function"),
    [("ecm", "inner_product"), *(("series", f"decayed_{name}") for name in JOINS)],
)
def test_sql_and_the_command_join_with_the_bytes_of_another(
    sketches: dict[str, Any], tmp_path: Path, family: str, function: str
) -> None:
    pa = pytest.importorskip("pyarrow")
    from decaysketch.tables.sql import queries

    case, name = CASES[family], function.removeprefix("decayed_")
    ours, theirs = sketches[family], case.build(3, 1)
    found = getattr(ours, name)(theirs, WINDOW, now=NOW)
    blobs = [pa.array([sketch.to_bytes()]) for sketch in (ours, theirs)]
    rest = [pa.array([repr(WINDOW)]), pa.array([NOW])]
    (answer,) = queries.answer(function, (), [*blobs, *rest], {}).to_pylist()
    sure = ("sure_upper",) if family == "ecm" else ()
    names = ("value", "lower", "upper", "exact", "rows", *sure)
    expected = {each: getattr(found, each) for each in names}
    assert answer == expected | {"caveats": list(found.caveats)}
    for given, message in (
        (pa.array(["text"]), "other is 'text'; expected the bytes of a sketch"),
        (pa.array([b"damaged"]), "CorruptSketchError"),
    ):
        with pytest.raises(queries.FunctionError, match=message):
            queries.answer(function, (), [blobs[0], given, *rest], {})
    for file, sketch in (("a", ours), ("b", theirs)):
        (tmp_path / file).write_bytes(sketch.to_bytes())
    asked_for = ["query", str(tmp_path / "a"), f"{name}:{tmp_path / 'b'}"]
    options = ["--decay", f"window:width={WINDOW.width}", "--now", str(NOW), "--json"]
    result = CliRunner().invoke(app, [*asked_for, *options])
    (said,) = json.loads(result.stdout)["answers"]
    assert {each: said.get(each) for each in names} == {
        each: getattr(found, each) for each in names
    }


def numbers(answer: Any) -> list[Any]:
    """Every number of an answer, in order."""
    if isinstance(answer, dict):
        return [each for part in answer.values() for each in numbers(part)]
    if isinstance(answer, list):
        return [each for part in answer for each in numbers(part)]
    return [answer]


def expected_numbers(parts: dict[str, Any], alone: bool, question: Question[Any]) -> list[Any]:
    shape = question.shape
    found: list[Any] = []

    def add(estimate: Estimate) -> None:
        ends = [estimate.value, estimate.lower, estimate.upper, estimate.exact, estimate.rows]
        ends.extend(estimate.caveats)
        if question.of_keys:
            ends.append(estimate.sure_upper)
        found.extend(ends[:1] if alone else ends)

    if shape.rows is not None:
        for row in parts[shape.rows.name]:
            keys = [] if shape.rows.each else [row[each.name] for each in shape.rows.keys]
            found.extend(keys[:1] if shape.rows.single and alone else keys)
            for each in shape.rows.estimates:
                add(row[each.name])
    for each in shape.beside:
        if each.kind == "estimate":
            add(parts[each.name])
        else:
            found.append(parts[each.name])
    return found


@for_each("family, name", FROM_OUTSIDE)
def test_the_command_answers_as_the_library_does(
    sketches: dict[str, Any], tmp_path: Path, family: str, name: str
) -> None:
    case, question, sketch = CASES[family], QUESTIONS[name], sketches[family]
    path = tmp_path / "one.sketch"
    path.write_bytes(sketch.to_bytes())
    (given,) = asked(question).values() or [None]
    text = ",".join(map(str, given)) if isinstance(given, list) else str(given)
    aggregate = name if given is None else f"{name}:{text}"
    decay = ["--decay", f"window:width={WINDOW.width}"] if case.chooses else []
    result = CliRunner().invoke(
        app, ["query", str(path), aggregate, *decay, "--now", str(NOW), "--json"]
    )
    if name not in sketch.questions:
        assert result.exit_code
        assert f"aggregate is {name!r}; expected one of" in result.output
        return
    answers = json.loads(result.stdout)["answers"]
    parts = question.parts(case.view(sketch).ask(question, **asked(question)), asked(question))
    rows = question.shape.rows
    expected = [
        row[each.name].to_dict()
        for row in ([] if rows is None else parts[rows.name])
        for each in (() if rows is None else rows.estimates)
    ]
    expected += [
        parts[each.name].to_dict() for each in question.shape.beside if each.kind == "estimate"
    ]
    if rows is not None and rows.single:
        expected = parts[rows.name]
    assert [
        {key: each[key] for key in given} for each, given in zip(answers, expected, strict=True)
    ] == expected


@for_each("family, name", FROM_OUTSIDE)
def test_a_question_costs_something_and_bounds_its_answer(
    sketches: dict[str, Any], family: str, name: str
) -> None:
    case, question, sketch = CASES[family], QUESTIONS[name], sketches[family]
    if name not in sketch.questions:
        return
    view = case.view(sketch)
    served = {each.name: each.served for each in question.travelling if not each.required}
    arguments = served | asked(question)
    assert 1e-4 < view.cost_s(question, **arguments) < 0.2
    parts = question.parts(view.ask(question, **arguments), arguments)
    rows = [] if question.shape.rows is None else parts[question.shape.rows.name]
    held = [part for row in [parts, *rows] for part in row.values() if isinstance(part, Estimate)]
    assert len(held) <= question.most(arguments)


def test_what_cannot_be_asked_is_refused_by_name(sketches: dict[str, Any]) -> None:
    view = CASES["decay"].view(sketches["decay"])
    for message, arguments in (
        ("aggregate is 'mode'; expected one of sum, count", ("mode", {})),
        ("rank needs value", ("rank", {})),
        ("mean has no argument 'q'", ("mean", {"q": 1})),
        ("give at_least, at_most or both, or a predicate", ("selectivity", {})),
        ("predicate is 3; expected a text", ("selectivity", {"predicate": 3})),
        (r"edges are \[1, 1\]; expected two or more", ("histogram", {"edges": [1, 1]})),
        (r"edges are \[1\]; expected two", ("histogram", {"edges": 1})),
        ("points is 'a'; expected a number", ("cdf", {"points": ["a"]})),
    ):  # fmt: skip
        with pytest.raises(ParameterError, match=message):
            view.ask(arguments[0], **arguments[1])
    keyed = CASES["ecm"].view(sketches["ecm"])
    for asked_of, message, name in (
        (
            view,
            "key_total needs key counters, as a sketch of the family 'ecm' has",
            "key_total",
        ),
        (keyed, "mean needs a sample of rows; this sketch has key counters", "mean"),
        (view, "max needs extremes of windows, as a sketch of the family 'extremes' has", "max"),
    ):
        with pytest.raises(ParameterError, match=message):
            asked_of.ask(name)
        with pytest.raises(ParameterError, match=message):
            asked_of.cost_s(name)
    for fault, given in (
        ("give either phi or threshold", {}),
        ("give either phi or threshold", {"phi": 0.1, "threshold": 3}),
    ):
        with pytest.raises(ParameterError, match=fault):
            keyed.ask("heavy_keys", **given)
    with pytest.raises(ParameterError, match="bounds are two integers"):
        keyed.ask("key_range", bounds=[1])
    with pytest.raises(ParameterError, match="other is 7; expected a sketch"):
        keyed.ask("inner_product", other=7)
    with pytest.raises(ParameterError, match="decay is None"):
        sketches["ecm"].at(None, NOW)
    with pytest.raises(ParameterError, match="combine is 'best'"):
        view.ask("mean", combine="best")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"aggregate": "histogram", "edges": [2, 1]}, "queries[0]", "rising"),
        ({"aggregate": "histogram", "edges": [2]}, "queries[0].edges", "at least 2"),
        ({"aggregate": "cdf"}, "queries[0].v", "missing"),
        ({"aggregate": "rate", "decay": {"kind": "none"}}, "queries[0]", "is inf; a rate needs"),
        ({"aggregate": "rate", "decay": {"kind": "window", "width": 0}}, "queries[0]", "is 0; a"),
    ],
)
def test_http_names_what_is_at_fault(
    client: TestClient, fields: dict[str, Any], field: str, reason: str
) -> None:
    asked_ = {"decay": WINDOW.to_dict(), "now": NOW} | fields
    response = client.post("/v1/streams/decay/query", json={"queries": [asked_]})
    assert response.status_code == 422
    (fault,) = response.json()["errors"]
    assert fault["field"] == field
    assert reason in fault["reason"]


def test_what_is_not_held_is_unanswerable_at_its_place(client: TestClient) -> None:
    response = client.post(
        "/v1/streams/median/query",
        json={"queries": [
            {"aggregate": "count", "decay": WINDOW.to_dict(), "now": NOW},
            {"aggregate": "last", "decay": WINDOW.to_dict(), "times": [NOW - 1_900, NOW]},
        ]},
    )  # fmt: skip
    assert response.status_code == 422
    (fault,) = response.json()["errors"]
    assert fault["field"] == "queries[1].times[0]"


# --------------------------------------------------------------------- the questions themselves


PARAMS = ds.SketchParams(max_weight=3, id_bits=40, capacity=64)


def held(count: int = 50) -> tuple[ds.DecaySketch, Any]:
    """A sketch that holds everything, and what it holds: rows of value, weight and time."""
    rng = np.random.default_rng(5)
    rows = np.stack(
        [rng.integers(-3, 9, count), rng.integers(1, 4, count), rng.integers(900, 1_001, count)]
    )
    sketch = ds.DecaySketch(PARAMS)
    sketch.update(rows[0].astype(float), rows[1], rows[2], np.arange(count))
    return sketch, rows


@pytest.mark.parametrize(
    "decay",
    [ds.decay.window(40), ds.decay.exponential(half_life=20), ds.decay.polynomial(2, 10)],
    ids=repr,
)
def test_a_sketch_that_holds_everything_is_exact(decay: ds.Decay) -> None:
    sketch, (values, weights, times) = held()
    now = 1_000
    fading = decay(now - times)
    mass = weights * fading
    mean = np.sum(values * mass) / np.sum(mass)
    variance = np.sum((values - mean) ** 2 * mass) / np.sum(mass)
    stddev = sketch.stddev(decay, now=now)
    assert stddev.exact
    assert stddev.value == pytest.approx(math.sqrt(variance), rel=1e-12)
    points = [-4, -3, 0, 2.5, 8, 9]
    ranks = sketch.cdf(points, decay, now=now)
    assert all(each.exact for each in ranks)
    assert [each.value for each in ranks] == pytest.approx(
        [np.sum(mass[values <= point]) / np.sum(mass) for point in points], abs=1e-12
    )
    edges = [-2, 0, 0.5, 3, 8]
    histogram = sketch.histogram(edges, decay, now=now)
    inside = [(values >= low) & (values < high) for low, high in pairwise(edges)]
    inside[-1] |= values == edges[-1]
    shares = [histogram.below, *(each.share for each in histogram.bins), histogram.above]
    expected = [values < edges[0], *inside, values > edges[-1]]
    assert [each.value for each in shares] == pytest.approx(
        [np.sum(mass[each]) / np.sum(mass) for each in expected], abs=1e-12
    )
    assert sum(each.value for each in shares) == pytest.approx(1.0)
    assert [(each.low, each.high) for each in histogram.bins] == list(pairwise(edges))
    rate = sketch.rate(decay, now=now)
    span = {"window": 40, "exponential": 20 / math.log(2), "polynomial": 10}[
        decay.to_dict()["kind"]
    ]
    assert rate.exact
    assert rate.value == pytest.approx(np.sum(fading) / span, rel=1e-12)
    newest = max((time, value) for value, _, time in zip(values, weights, times, strict=True))
    assert sketch.last(decay, now=now) == (newest[1], newest[0])


def test_the_last_at_every_time_is_that_of_a_log() -> None:
    sketch, (values, _, times) = held()
    for now in range(895, 1_003):
        before = [(t, v) for t, v in zip(times, values, strict=True) if now - 5 <= t <= now]
        found = sketch.last(ds.decay.window(5), now=now)
        assert found == ((max(before)[1], max(before)[0]) if before else None)


def test_the_last_may_have_no_value_and_keeps_integers() -> None:
    sketch = ds.DecaySketch(PARAMS)
    sketch.update([1.0, None], 1, [5, 6], [1, 2])
    assert sketch.last(ds.decay.none(), now=9) == (None, 6)
    whole = ds.DecaySketch(dataclasses.replace(PARAMS, value_type="int64"))
    whole.update([2**62 + 1, 2**62], 1, [5, 5], [1, 2])
    assert whole.last(ds.decay.none(), now=9) == (2**62 + 1, 5)


def test_the_last_is_refused_where_it_may_have_been_discarded() -> None:
    sketch = ds.DecaySketch(dataclasses.replace(PARAMS, capacity=10))
    sketch.update(np.arange(500.0), 1, np.arange(500), np.arange(500))
    whole = sketch.stats().complete_since[0]
    assert whole is not None
    for now in (whole + 1, 499, 600):
        time = min(now, 499)
        assert sketch.last(ds.decay.window(150), now=now) == (time, time)
    for now in (whole, whole - 20):
        with pytest.raises(UnanswerableQueryError, match="may be discarded"):
            sketch.last(ds.decay.window(3), now=now)
    at_once = ds.DecaySketch(dataclasses.replace(PARAMS, capacity=10))
    # More observations of one time than it has room for.
    at_once.update(np.arange(40.0), 1, np.full(40, 7), np.arange(40))
    with pytest.raises(UnanswerableQueryError, match="may be discarded"):
        at_once.last(ds.decay.window(3), now=8)


@pytest.mark.parametrize(
    "family", [each for each in CASES if "last" in CASES[each].family.questions]
)
def test_the_last_of_what_discards_is_true_or_refused(family: str) -> None:
    """Of each family, in any order of arrival, at every time around what is held in full."""
    draw = np.random.default_rng(17)
    values, times = draw.integers(1, 40, 3_000), draw.integers(1_000, 4_000, 3_000)
    numbers, width = np.arange(3_000), 100
    sketch: Any
    if family in ("sum", "median"):
        sketch = SumSampler(SUM) if family == "sum" else MedianSampler(MEDIAN)
        sketch.update(values.astype(np.int64 if family == "sum" else float), times, numbers,
                      source="a")  # fmt: skip
    else:
        params = ds.SketchParams(max_weight=3, id_bits=40, capacity=60)
        fixed = ds.decay.integral.window(width)
        sketch = (
            ds.DecaySketch(params) if family == "decay" else ds.IntegralDecaySketch(params, fixed)
        )
        sketch.update(values.astype(float), 1 + numbers % 3, times, numbers)
    decay = None if family == "integral" else ds.decay.window(width)
    answered = refused = 0
    for now in range(3_700, 4_120):
        counted = (times <= now) & (times >= now - width)
        truth = max(zip(times[counted], values[counted], strict=True), default=None)
        try:
            found = sketch.at(decay, now).ask("last")
        except UnanswerableQueryError:
            refused += 1
            continue
        answered += 1
        assert found == (None if truth is None else (truth[1], truth[0])), now
    assert answered > 15
    assert refused > 15


def test_the_last_of_nothing_is_none() -> None:
    assert ds.DecaySketch(PARAMS).last(ds.decay.none(), now=5) is None


def test_a_standard_deviation_has_the_roots_of_the_variances_interval() -> None:
    sketch = sampled(0)
    decay = ds.decay.exponential(half_life=500)
    variance = sketch.variance(decay, now=NOW_SAMPLED)
    stddev = sketch.stddev(decay, now=NOW_SAMPLED)
    assert not stddev.exact
    for name in ("value", "lower", "upper"):
        assert getattr(stddev, name) ** 2 == pytest.approx(getattr(variance, name))
    assert stddev.stderr == pytest.approx(variance.stderr / (2 * stddev.value))
    empty = ds.DecaySketch(PARAMS).stddev(decay, now=5)
    assert math.isnan(empty.value)


def test_shares_of_a_histogram_are_selectivities_and_a_cdf_is_ranks() -> None:
    """In a sampled sketch too; their intervals are those at the confidence of one of so many."""
    (sample,) = sampled(1).at(ds.decay.exponential(half_life=500), NOW_SAMPLED).samples
    assert not sample.exact
    edges = [0.3, 0.7, 1.5]

    def same(found: Estimate, expected: Estimate) -> None:
        for name in ("value", "lower", "upper", "stderr"):
            assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9)

    histogram, of_four = query.histogram(sample, edges), 1.0 - 0.05 / 4
    for each in histogram.bins[:-1]:
        inside = query.selectivity(
            sample, lambda v, w, b=each: (v >= b.low) & (v < b.high), confidence=of_four
        )
        same(each.share, inside)
    same(histogram.below, query.selectivity(sample, lambda v, w: v < 0.3, confidence=of_four))
    same(histogram.above, query.selectivity(sample, lambda v, w: v > 1.5, confidence=of_four))
    assert histogram.above.confidence == 0.95
    for point, found in zip(edges, query.cdf(sample, edges), strict=True):
        same(found, query.rank(sample, point, confidence=1.0 - 0.05 / 3))


def test_many_points_of_a_distribution_have_one_band() -> None:
    (sample,) = sampled(1).at(ds.decay.exponential(half_life=500), NOW_SAMPLED).samples
    points = np.linspace(0.1, 6.0, 21).tolist()
    values, columns = sample.valued
    hit = 0.5 * sample.thinning * sample.step**2
    whole = float(columns.masses.sum())
    spreads = []  # four times the variance of the weight up to each row, less its share of all
    for value in values:
        below = values <= value
        share = float(columns.masses[below].sum()) / whole
        spreads.append(4.0 * float((columns.variances * (below - share) ** 2).sum()) + hit)
    far = math.sqrt(0.5 * math.log(40.0) * max(spreads)) / whole
    for point, found in zip(points, query.cdf(sample, points), strict=True):
        assert found.value == pytest.approx(query.rank(sample, point).value)
        assert found.lower == pytest.approx(max(0.0, found.value - far))
        assert found.upper == pytest.approx(min(1.0, found.value + far))


@pytest.mark.parametrize("combine", ["average", "median"])
def test_copies_make_one_answer(combine: Any) -> None:
    params = ds.SketchParams(max_weight=1, id_bits=40, capacity=150, copies=3, seed=2)
    sketch = ds.DecaySketch(params)
    sketch.update(LOG_VALUES, 1, LOG_TIMES, np.arange(4_000))
    decay = ds.decay.window(3_000)
    options: dict[str, Any] = {"now": NOW_SAMPLED, "combine": combine}
    histogram = sketch.histogram([0.2, 1.0, 3.0], decay, **options)
    (low, high) = sketch.cdf([1.0, 3.0], decay, **options)
    assert high.value > low.value
    assert histogram.above.value == pytest.approx(1.0 - high.value)
    alone = sketch.rank(3.0, decay, confidence=0.975, **options)
    assert alone.upper == pytest.approx(high.upper)
    variance, stddev = (ask(decay, **options) for ask in (sketch.variance, sketch.stddev))
    assert stddev.value == pytest.approx(math.sqrt(variance.value))
    count, rate = (ask(decay, **options) for ask in (sketch.count, sketch.rate))
    assert rate.upper == pytest.approx(count.upper / 3_000)
    assert sketch.last(decay, **options) == sampled(0).last(decay, now=NOW_SAMPLED)


def test_edges_and_points_beyond_all_integers_are_taken() -> None:
    sketch = ds.DecaySketch(dataclasses.replace(PARAMS, value_type="int64"))
    sketch.update([2**62, -5], 1, [1, 2], [1, 2])
    decay = ds.decay.none()
    ranks = sketch.cdf([-(2**70), 2**62 - 1, 2**62, 2**70], decay, now=5)
    assert [each.value for each in ranks] == [0.0, 0.5, 1.0, 1.0]


def test_a_histogram_of_nothing_bounds_nothing() -> None:
    found = ds.DecaySketch(PARAMS).histogram([0, 1], ds.decay.none(), now=5)
    assert math.isnan(found.bins[0].share.value)
    assert (found.below.lower, found.below.upper) == (0.0, 1.0)


# -------------------------------------------------------------------------------- their intervals

NOW_SAMPLED = 4_000
LOG = np.random.default_rng(11)
LOG_VALUES = LOG.exponential(size=4_000)
LOG_TIMES = np.sort(LOG.integers(0, NOW_SAMPLED + 1, 4_000))


def sampled(seed: int) -> ds.DecaySketch:
    """A sketch, under a hash of its own, that holds a part of a log."""
    sketch = ds.DecaySketch(ds.SketchParams(max_weight=1, id_bits=40, capacity=150, seed=seed))
    sketch.update(LOG_VALUES, 1, LOG_TIMES, np.arange(4_000))
    return sketch


def test_intervals_of_the_new_questions_hold_the_truth_as_often_as_they_say() -> None:
    """Of 200 hashes; 95 % less three and a half standard deviations is 0.896."""
    decay = ds.decay.window(3_000)
    inside = LOG_VALUES[LOG_TIMES >= NOW_SAMPLED - 3_000]
    edges = [0.2, 1.0, 3.0]
    truths = {
        "rate": len(inside) / 3_000,
        "stddev": float(np.std(inside)),
        "cdf": float(np.mean(inside <= 1.0)),
        "bin": float(np.mean((inside >= 0.2) & (inside < 1.0))),
        "above": float(np.mean(inside > 3.0)),
    }
    holding = dict.fromkeys(truths, 0)
    hashes = 200
    for seed in range(hashes):
        view = sampled(seed).at(decay, NOW_SAMPLED)
        histogram = view.ask("histogram", edges=edges)
        answers = {
            "rate": view.ask("rate"),
            "stddev": view.ask("stddev"),
            "cdf": view.ask("cdf", points=[1.0])[0],
            "bin": histogram.bins[0].share,
            "above": histogram.above,
        }
        for name, answer in answers.items():
            assert not answer.exact
            holding[name] += answer.lower <= truths[name] <= answer.upper
    coverage = {name: count / hashes for name, count in holding.items()}
    assert min(coverage.values()) >= 0.896, coverage


# -------------------------------------------------------------------------- the integral of a decay


@pytest.mark.parametrize(
    ("decay", "expected"),
    [
        (ds.decay.window(40.5), 40.5),
        (ds.decay.window(0), 0.0),
        (ds.decay.none(), math.inf),
        (ds.decay.exponential(rate=0.25), 4.0),
        (ds.decay.exponential(half_life=30), 30 / math.log(2)),
        (ds.decay.polynomial(1), math.inf),
        (ds.decay.polynomial(0.5, 10), math.inf),
        (ds.decay.polynomial(3, 10), 5.0),
        (ds.decay.piecewise([(10, 2.0), (30, 0.5)]), 30.0),
        (ds.decay.piecewise([(10, 2.0)], beyond=0.1), math.inf),
        (ds.decay.expression("exp(-x/60)"), 60.0),
        (ds.decay.expression("exp(-1000*x)"), 0.001),
        (ds.decay.expression("where(x <= 600, 1 - x/1200, 0)"), 450.0),
        (ds.decay.expression("where(x <= 12345, 1, 0)"), 12345.0),
        (ds.decay.expression("where(x <= 1023, 1, 0.5/(1 + x/10)**3)"), 1023 + 2.5 / 103.3**2),
        (ds.decay.expression("1/(1 + x/3600)**1.5"), 7200.0),
        (ds.decay.expression("1/(1 + x/60)"), math.inf),
        (ds.decay.expression("1/(1 + log(1 + x/60))"), math.inf),
        (ds.decay.expression("floor(max(10 - x/100, 0))"), 4500.0),
        (ds.decay.expression("0*x"), 0.0),
    ],
    ids=repr,
)
def test_the_integral_of_a_decay(decay: ds.Decay, expected: float) -> None:
    assert area(decay) == pytest.approx(expected, rel=1e-7)


def test_samples_say_since_when_they_are_complete() -> None:
    """Everything later than that is among the exact entries; with no promise, nothing is."""
    assert {each.name: each.default for each in dataclasses.fields(Sample)}[
        "complete_after"
    ] > 2**61
    sketch = sampled(3)
    (sample,) = sketch.at(ds.decay.window(3_000), NOW_SAMPLED).samples
    since = sample.complete_after
    assert since == sketch.stats().complete_since[0]
    exact = sample.times[: sample.exact_rows]
    assert sorted(exact[exact > since]) == sorted(LOG_TIMES[since < LOG_TIMES])
