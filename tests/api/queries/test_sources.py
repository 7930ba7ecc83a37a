"""Queries to a set of sources return the same numbers through every interface."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

import decaysketch as ds
from decaysketch.cli import app
from decaysketch.query.frames import rows_of
from decaysketch.query.query_syntax import query_of
from decaysketch.query.tables import GroupTable

URL = "/v1/streams/field"
DECAY, NOW = "exponential(half_life=9000)", 50_000
PARAMS = ds.SketchParams(capacity=100, time_unit="frames", seed=4)

#: Each query, as one text.
QUERIES = (
    'count set "gw-1" - "gw-2"',
    'count set roof | "gw-2" where v > 20',
    'mean(v) set "gw-1" & ~"gw-2"',
    'mean(v * 2) set any by source, bucket(time, 25000) where v > 19 limit 4 order key',
    'quantile(v, 0.5, 0.9) set exactly(1)',
    "count set exactly(1) by source",
    "count by source, other",
    "count by hearers order key",
    "total(v) by source where v > 20 weight exp(-v / 20)",
    'share(roof) set "gw-1" & roof',
    "share by source",
    "share by source, other limit 4",
    'share("gw-1") by hearers',
    'share("gw-1") set roof by bucket(time, 10000) order key',
)  # fmt: skip


def sketches(params: Any = PARAMS, n: int = 3000) -> dict[str, ds.DecaySketch]:
    rng = np.random.default_rng(3)
    heard = rng.random((n, 3)) < (0.8, 0.5, 0.1)
    times, values = np.sort(rng.integers(0, 50_000, n)), rng.normal(20.0, 4.0, n)
    made = {}
    for source, name in enumerate(("gw-1", "gw-2", "roof")):
        rows = np.flatnonzero(heard[:, source])
        made[name] = ds.DecaySketch(params)
        # Sources report their own values of a message.
        made[name].update(values[rows] + len(made), 1, times[rows], rows)
    return made


Row = tuple[tuple[str, ...], float, float, float]


@pytest.fixture(scope="module")
def expected() -> dict[str, list[Row]]:
    """The results in Python: keys as texts, the estimate and its bounds."""
    view = ds.SourceSet(sketches()).at(DECAY, NOW)
    return {text: list(in_python(view, text)) for text in QUERIES}


def in_python(view: Any, text: str) -> Any:
    question, arguments, modifiers = query_of(text)
    found = view.modified(modifiers).ask(question, **arguments)
    groups = [({}, found)]
    if isinstance(found, GroupTable):
        groups = [(row.by, row.answer) for row in found]
    for by, answer in groups:
        for row in rows_of(question, answer, arguments):
            yield _row(by.values(), row)


def _row(keys: Any, row: Any) -> Row:
    return tuple(map(str, keys)), row["value"], row["lower"], row["upper"]


@pytest.fixture
def field(client: TestClient) -> TestClient:
    return create(client, PARAMS, sketches())


def create(
    client: TestClient, params: Any, made: dict[str, ds.DecaySketch], **more: Any
) -> TestClient:
    assert client.put(URL, json={"params": params.to_dict()} | more).status_code == 201
    for name, sketch in made.items():
        post(client, name, sketch)
    return client


def post(client: TestClient, name: str, sketch: Any, url: str = URL) -> None:
    posted = client.post(
        f"{url}/sketches", params={"source": name}, content=sketch.to_bytes(),
        headers={"content-type": "application/octet-stream"},
    )  # fmt: skip
    assert posted.status_code == 200, posted.text


def test_over_http(field: TestClient, expected: dict[str, list[Row]]) -> None:
    under = {"decay": DECAY, "now": NOW, "settle": 0}
    queries = [{"ask": text} | under for text in QUERIES]
    response = field.post(f"{URL}/query", json={"queries": queries})
    assert response.status_code == 200, response.text
    for text, answer in zip(QUERIES, response.json()["answers"], strict=True):
        assert list(over_http(answer)) == expected[text], text


def test_levels_below_that_of_the_stream_are_not_read(client: TestClient) -> None:
    made = sketches()
    create(client, PARAMS, made, from_level=1)
    view = ds.SourceSet(made, from_level=1).at(DECAY, NOW)
    under = {"decay": DECAY, "now": NOW, "settle": 0}
    queries = [{"ask": text} | under for text in QUERIES]
    response = client.post(f"{URL}/query", json={"queries": queries})
    assert response.status_code == 200, response.text
    for text, answer in zip(QUERIES, response.json()["answers"], strict=True):
        assert list(over_http(answer)) == list(in_python(view, text)), text
    query = {"aggregate": "count", "set": "any", "versus": {"now": 30_000}} | under
    without = {"aggregate": "count", "decay": DECAY, "now": NOW}
    refused = client.post(f"{URL}/query", json={"queries": [query, without]})
    assert refused.status_code == 422
    assert [each["field"] for each in refused.json()["errors"]] == ["queries[1].set"]
    found = client.get(f"{URL}/coverage", params=under).json()
    assert found["union"] == view.count("any").to_dict()
    assert client.get(URL).json()["from_level"] == 1
    spec = {"kind": "threshold", "question": "count", "decay": "window(9)", "above": 3.0}
    watched = client.put(f"{URL}/monitors/m", json=spec)
    assert (watched.status_code, "from_level" in watched.text) == (422, True), watched.text
    form = {"params": PARAMS.to_dict()}
    integral = {"family": "integral", "decay": "window(width=9)", **form}
    for name, body, status, words in (
        ("field", form | {"from_level": 2}, 409, "from_level"),
        ("field", form, 409, "from_level"),
        ("field", form | {"from_level": 1}, 200, ""),
        ("more", form | {"from_level": 62}, 422, "from_level is 62; expected 0 to"),
        ("more", integral | {"from_level": 1}, 422, "only sketches of the family 'decay'"),
    ):
        answer = client.put(f"/v1/streams/{name}", json=body)
        assert (answer.status_code, words in answer.text) == (status, True), answer.text


def test_names_of_streams_stand_for_sources(client: TestClient) -> None:
    """``POST /v1/query`` reads the join of each stream that is named."""
    made = sketches()
    for name, sketch in made.items():
        url = f"/v1/streams/{name}"
        assert client.put(url, json={"params": PARAMS.to_dict()}).status_code == 201
        part = ds.DecaySketch(PARAMS)
        part.update(None, 1, [7], [1 << 40])
        for source, posted in (("one", sketch), ("two", part)):
            post(client, source, posted, url)
        made[name] = ds.merge([sketch, part])
    under = {"decay": DECAY, "now": NOW}
    body = {"streams": list(made), "queries": [{"ask": text} | under for text in QUERIES]}
    response = client.post("/v1/query", json=body)
    assert response.status_code == 200, response.text
    view = ds.SourceSet(made).at(DECAY, NOW)
    for text, answer in zip(QUERIES, response.json()["answers"], strict=True):
        assert list(over_http(answer)) == list(in_python(view, text)), text
    unknown = body | {"queries": [{"aggregate": "count", "set": "cellar"} | under]}
    response = client.post("/v1/query", json=unknown)
    assert response.status_code == 422
    assert "there is no source 'cellar'" in response.text


def over_http(answer: dict[str, Any]) -> Any:
    from api.queries.tables import rows_of as table_rows

    for row in table_rows("", answer):
        yield _row(row.get("by", {}).values(), row)


def test_in_prometheus(client: TestClient) -> None:
    """A scrape is of now, so the counts of all times are asked."""
    params = ds.SketchParams(capacity=100, time_unit="s", seed=4)
    made = sketches(params)
    create(client, params, made)
    for name, text in {"alone": QUERIES[5], "pairs": QUERIES[6], "part": QUERIES[9]}.items():
        definition = {"query": {"ask": text, "decay": "none", "settle": 0}}
        response = client.put(f"{URL}/questions/{name}", json=definition)
        assert response.status_code < 300, response.text
    families = text_string_to_metric_families(client.get(f"{URL}/prometheus").text)
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }
    view = ds.SourceSet(made).at("none")
    for name, text in {"alone": QUERIES[5], "pairs": QUERIES[6], "part": QUERIES[9]}.items():
        question, _, modifiers = query_of(text)
        for keys, *ends in in_python(view, text):
            labels = {"aggregate": question.name, "query": name, "stream": "field"}
            labels |= dict(zip(modifiers.by, keys, strict=True))
            for end, value in zip(("", "_lower", "_upper"), ends, strict=True):
                assert samples[f"decaysketch_answer{end}", *sorted(labels.items())] == value


def test_values_of_one_source_over_http_and_on_the_command_line(
    field: TestClient, tmp_path: Path
) -> None:
    view = ds.SourceSet(sketches()).at(DECAY, NOW, values_from="roof")
    text = "mean(v) set any by source"
    query = {"ask": text, "decay": DECAY, "now": NOW, "settle": 0, "values_from": "roof"}
    response = field.post(f"{URL}/query", json={"queries": [query, query | {"values_from": "x"}]})
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "queries[1].values_from"
    both = [query, query | {"values_from": "gw-1"}]
    first, other = field.post(f"{URL}/query", json={"queries": both}).json()["answers"]
    expected = list(in_python(view, text))
    assert list(over_http(first)) == expected != list(over_http(other))
    for name, sketch in sketches().items():
        (tmp_path / f"{name}.sketch").write_bytes(sketch.to_bytes())
    shown = CliRunner().invoke(
        app, ["coverage", str(tmp_path), "--decay", DECAY, "--now", str(NOW), "--json",
              "--values-from", "roof", "--query", text],
    )  # fmt: skip
    assert shown.exit_code == 0, shown.output
    answers = json.loads(shown.stdout)["answers"]
    assert [_row(each["by"].values(), each) for each in answers] == expected


def test_what_cannot_be_asked_of_sources_is_refused(field: TestClient) -> None:
    under = {"decay": DECAY, "now": NOW}
    for query, place, words in (
        ({"aggregate": "count", "set": "roof &"}, "set", "expected a source"),
        ({"aggregate": "count", "set": "roof & cellar"}, "", "there is no source 'cellar'"),
        ({"aggregate": "count", "set": "any", "guard": "soon"}, "guard", "guard is 'soon'"),
        ({"aggregate": "count", "settle": 5}, "", "needs a query with set"),
        ({"aggregate": "share", "where": "v > 3"}, "", "has no where"),
        ({"aggregate": "mean", "by": ["other"]}, "", "source and other"),
        ({"aggregate": "share", "by": ["abs(v)"]}, "", "over time and age"),
        ({"aggregate": "share", "by": ["source", "age"]}, "", "not both"),
    ):
        response = field.post(f"{URL}/query", json={"queries": [query | under]})
        assert response.status_code == 422, (query, response.text)
        assert words in response.text, response.text
        assert place in response.json()["errors"][0]["field"]


def test_rows_are_counted_before_they_are_read(
    field: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.queries.sources.MAX_WORK_S", 1e-9)
    monkeypatch.setattr("api.queries.sources.SourceSet", None)  # nothing is read
    query = {"aggregate": "count", "set": "any", "decay": DECAY, "now": NOW}
    response = field.post(f"{URL}/query", json={"queries": [query]})
    assert response.status_code == 422
    assert "select fewer sources" in response.text


def test_results_follow_the_posts_of_a_source(field: TestClient) -> None:
    query = {"aggregate": "count", "set": "roof", "decay": DECAY, "now": NOW, "settle": 0}
    body = {"queries": [query]}
    first = field.post(f"{URL}/query", json=body)
    more = ds.DecaySketch(PARAMS)
    more.update(None, 1, [NOW - 1], [1 << 40])
    post(field, "roof", more)
    second = field.post(f"{URL}/query", json=body)
    assert first.headers["etag"] != second.headers["etag"]
    old, new = (each.json()["answers"][0]["estimate"]["value"] for each in (first, second))
    assert new != old


def test_a_fixed_decay_is_left_out(client: TestClient) -> None:
    decay = ds.decay.integral.exponential(half_life=9000)
    params = ds.SketchParams(capacity=100, time_unit="frames", seed=4, max_weight=9)
    recipe = {"family": "integral", "params": params.to_dict(), "decay": decay.to_dict()}
    assert client.put(URL, json=recipe).status_code == 201
    made = {}
    for source, name in enumerate(("a", "b")):
        made[name] = ds.IntegralDecaySketch(params, decay)
        ids = np.arange(source * 300, 900 + source)
        made[name].update(None, 9, ids * 50, ids)
        post(client, name, made[name])
    view = ds.SourceSet(made).at(None, NOW)
    under = {"now": NOW, "settle": 0}
    queries = [{"ask": text} | under for text in ("sum set a - b", "share by source")]
    response = client.post(f"{URL}/query", json={"queries": queries})
    assert response.status_code == 200, response.text
    for query, answer in zip(queries, response.json()["answers"], strict=True):
        assert list(over_http(answer)) == list(in_python(view, str(query["ask"])))
    found = client.get(f"{URL}/coverage", params={"now": NOW, "settle": 0})
    assert found.status_code == 200, found.text
    assert found.json()["union"] == view.count("any").to_dict()


def test_two_moments_of_a_set_are_compared(field: TestClient) -> None:
    view = ds.SourceSet(sketches()).at(DECAY, NOW)
    then = {"versus": {"now": 30_000}, "decay": DECAY, "now": NOW, "settle": 0}
    queries = [
        {"aggregate": "mean", "set": "roof", "where": "v > 18"} | then,
        {"aggregate": "share", "set": "roof", "among": '"gw-1"'} | then,
    ]
    response = field.post(f"{URL}/query", json={"queries": queries})
    assert response.status_code == 200, response.text
    mean, share = (each["estimate"] for each in response.json()["answers"])
    moment = (DECAY, 30_000)
    assert mean["value"] == view.against(moment, "roof").ask("mean", where="v > 18").value
    assert share["value"] == view.versus("roof", '"gw-1"', then=moment).value


def test_on_the_command_line(tmp_path: Path, expected: dict[str, list[Row]]) -> None:
    for name, sketch in sketches().items():
        (tmp_path / f"{name}.sketch").write_bytes(sketch.to_bytes())
    asked = [part for text in QUERIES for part in ("--query", text)]
    arguments = ["coverage", str(tmp_path), "--decay", DECAY, "--now", str(NOW), "--json", *asked]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    for text in QUERIES:
        answers = [each for each in json.loads(result.stdout)["answers"] if each["query"] == text]
        found = [_row(each.get("by", {}).values(), each) for each in answers]
        assert found == expected[text], text


def from_sql(found: Any) -> Any:
    """Yield the rows of ``decayed_query``."""
    for row in found:
        keys = [each["value"] for each in row["by"]]
        yield _row(keys, row)


def test_in_duckdb(expected: dict[str, list[Row]]) -> None:
    duckdb = pytest.importorskip("duckdb")
    from decaysketch.duckdb import register

    with duckdb.connect() as db:
        register(db)
        db.execute("CREATE TABLE posts (source VARCHAR, sketch BLOB)")
        rows = [(name, each.to_bytes()) for name, each in sketches().items()]
        db.executemany("INSERT INTO posts VALUES (?, ?)", rows)
        maps = "(SELECT map(list(source), list(sketch)) FROM posts)"
        for text in QUERIES:
            (found,) = db.execute(
                f"SELECT decayed_query({maps}, ?, ?, ?)", [DECAY, NOW, text]
            ).fetchone()  # fmt: skip
            assert list(from_sql(found)) == expected[text], text
        tables = {
            name: db.execute(f"SELECT {name}({maps}, ?, ?)", [DECAY, NOW]).fetchone()[0]
            for name in ("decayed_coverage", "decayed_exclusive", "decayed_overlap")
        }
        (count,) = db.execute(
            f"SELECT decayed_set_count({maps}, 'roof & ~\"gw-1\"', ?, ?)", [DECAY, NOW]
        ).fetchone()  # fmt: skip
    check_tables(tables, count)


def check_tables(tables: dict[str, Any], count: Any) -> None:
    """The functions with a name are those of their queries."""
    view = ds.SourceSet(sketches()).at(DECAY, NOW)
    queries = {
        "decayed_coverage": "share by source order key",
        "decayed_exclusive": "count set exactly(1) by source order key",
        "decayed_overlap": "count by source, other order key",
    }
    for name, found in tables.items():
        keys = [key for key in ("source", "other") if key in found[0]]
        listed = [_row([row[key] for key in keys], row) for row in found]
        assert listed == list(in_python(view, queries[name])), name
    assert count["value"] == view.count('roof & ~"gw-1"').value


def test_in_polars(expected: dict[str, list[Row]]) -> None:
    pl = pytest.importorskip("polars")
    import decaysketch.polars  # noqa: F401

    posts = pl.DataFrame(
        {
            "field": ["north"] * 3,
            "source": list(sketches()),
            "sketch": [each.to_bytes() for each in sketches().values()],
        }
    )
    maps = posts.group_by("field").agg(sketches=pl.struct("source", "sketch"))
    of = pl.col("sketches").sketch
    for text in QUERIES:
        found = maps.select(of.decayed_query(DECAY, NOW, text)).item()
        assert list(from_sql(found)) == expected[text], text
    names = ("decayed_coverage", "decayed_exclusive", "decayed_overlap")
    tables = {name: maps.select(getattr(of, name)(DECAY, NOW)).item().to_list() for name in names}
    count = maps.select(of.decayed_set_count('roof & ~"gw-1"', DECAY, NOW)).item()
    check_tables(tables, count)


def test_with_maps_as_spark_passes_them(expected: dict[str, list[Row]]) -> None:
    pa = pytest.importorskip("pyarrow")
    from decaysketch.tables.sql import query_syntax, sources

    pairs = [(name, each.to_bytes()) for name, each in sketches().items()]
    maps = pa.array([pairs, None], pa.map_(pa.string(), pa.binary()))
    decays, times = pa.array([DECAY, DECAY]), pa.array([NOW, NOW])
    for text in QUERIES:
        found = query_syntax.answer((), (maps, decays, times, pa.array([text, text])), {})
        assert list(from_sql(found[0].as_py())) == expected[text], text
        assert found[1].as_py() is None
    names = ("decayed_coverage", "decayed_exclusive", "decayed_overlap")
    answers = {name: sources.answer(name, (), (maps, decays, times), {}) for name in names}
    sets = pa.array(['roof & ~"gw-1"'] * 2)
    count = sources.answer("decayed_set_count", (), (maps, sets, decays, times), {})
    check_tables({name: each[0].as_py() for name, each in answers.items()}, count[0].as_py())
    assert count[1].as_py() is None


FIXED = ds.decay.integral.exponential(half_life=9000)

#: Queries to sketches with a fixed decay.
OF_WEIGHTS = (
    'sum set "gw-1" - "gw-2"',
    "count by source, other",
    "share by source",
    "mean(v) set any by source where v > 20",
)


def fixed_sketches() -> dict[str, Any]:
    """The same messages with weights, in the family ``integral``."""
    params = ds.SketchParams(capacity=100, time_unit="frames", seed=4, max_weight=9)
    made = {}
    for name, sketch in sketches(params).items():
        state = sketch.snapshot().states[0]
        made[name] = ds.IntegralDecaySketch(params, FIXED)
        weights = 1 + state.ids % 9
        made[name].update(20.0 + state.ids % 5, weights, state.times, state.ids)
    return made


def test_a_fixed_decay_in_sql_and_on_the_command_line(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    pl = pytest.importorskip("polars")
    pa = pytest.importorskip("pyarrow")
    import decaysketch.polars  # noqa: F401
    from decaysketch.duckdb import register
    from decaysketch.tables.sql import query_syntax

    made = {name: each.to_bytes() for name, each in fixed_sketches().items()}
    view = ds.SourceSet(made).at(None, NOW)
    for name, content in made.items():
        (tmp_path / f"{name}.sketch").write_bytes(content)
    posts = pl.DataFrame({"source": list(made), "sketch": list(made.values())})
    maps = posts.select(sketches=pl.struct("source", "sketch").implode())
    spark = pa.array([list(made.items())], pa.map_(pa.string(), pa.binary()))
    nothing = pa.array([None], pa.string())
    asked = [part for text in OF_WEIGHTS for part in ("--query", text)]
    arguments = ["coverage", str(tmp_path), "--now", str(NOW), "--json", *asked]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    answers = json.loads(shown.stdout)["answers"]
    with duckdb.connect() as db:
        register(db)
        db.execute("CREATE TABLE posts AS SELECT * FROM posts")
        for text in OF_WEIGHTS:
            expected = list(in_python(view, text))
            (found,) = db.execute(
                "SELECT decayed_query(map(list(source), list(sketch)), NULL, ?, ?) FROM posts",
                [NOW, text],
            ).fetchone()  # fmt: skip
            assert list(from_sql(found)) == expected, text
            of_polars = maps.select(pl.col("sketches").sketch.decayed_query(None, NOW, text))
            assert list(from_sql(of_polars.item())) == expected, text
            columns = (spark, nothing, pa.array([NOW]), pa.array([text]))
            assert list(from_sql(query_syntax.answer((), columns, {})[0].as_py())) == expected
            told = [each for each in answers if each["query"] == text]
            assert [_row(each.get("by", {}).values(), each) for each in told] == expected
