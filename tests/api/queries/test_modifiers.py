"""Filters, columns, weights and groups over HTTP: the answers of the library."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from service import NOW, OCTETS, build, posted, problem

from decaysketch.query.catalog import QUESTIONS
from decaysketch.query.query_syntax import query_of
from decaysketch.query.tables import GroupTable

SKETCH = build(1)
DECAY = "exponential(half_life=10min)"
WHERE = "v > 12 and minute(time) % 2 == 0"


@pytest.fixture
def holding(stream: TestClient) -> TestClient:
    body = SKETCH.to_bytes()
    posted(stream.post("/v1/streams/s/sketches?source=a", content=body, headers=OCTETS))
    return stream


def asked(client: TestClient, *queries: dict[str, Any]) -> Any:
    return client.post("/v1/streams/s/query", json={"queries": list(queries)})


def arguments(name: str) -> dict[str, Any]:
    question = QUESTIONS[name]
    return {
        each.name: each.example
        for each in question.travelling
        if each.required or (each.leading and each.example is not None)
    }


ROWS = [name for name, each in QUESTIONS.items() if each.asked_of == "rows"]


@pytest.mark.parametrize("name", ROWS)
def test_every_aggregate_takes_them(holding: TestClient, name: str) -> None:
    question, given = QUESTIONS[name], arguments(name)
    if name == "group_by":
        given["limit"] = 10
    json = {each.json: given[each.name] for each in question.travelling if each.name in given}
    base = {"aggregate": name, "decay": DECAY, "now": NOW, **json}
    modifiers: dict[str, Any] = {"where": WHERE}
    if name not in ("rate", "last"):
        modifiers["weight"] = "1 + w"
    if "values" in question.needs:
        modifiers["of"] = "v // 4"
    more = {} if name == "last" else {"by": ["v > 20", "w"], "order": "key"}
    plain, table = asked(holding, base | modifiers, base | modifiers | more).json()["answers"]
    view = SKETCH.at(DECAY, NOW).given(**modifiers)
    if name == "heavy_hitters":
        given["limit"] = question.arguments[-1].served
    expected = question.parts(view.ask(name, **given), given)
    assert said(plain, question) == numbers(expected)
    if not more:
        return
    found: GroupTable = (
        SKETCH.at(DECAY, NOW).given(**modifiers).by(more["by"], 100, "key").ask(name, **given)
    )
    assert [row["by"] for row in table["groups"]] == [row.by for row in found]
    assert len(table["groups"]) == table["total_groups"] > 1
    for row, part in zip(table["groups"], found.parts(), strict=True):
        assert said(row, question) == numbers(part)
        assert (row["rows"], row["small"]) == (part["rows"], part["small"])
    assert table["unseen_at_most"] == pytest.approx(found.unseen_at_most)


def said(answer: dict[str, Any], question: Any) -> Any:
    shape = question.shape
    names = [each.name for each in shape.beside] + ([] if shape.rows is None else [shape.rows.name])
    return {name: answer[name] for name in names}


def numbers(parts: dict[str, Any]) -> Any:
    def plain(each: Any) -> Any:
        if hasattr(each, "to_dict"):
            return each.to_dict()
        if isinstance(each, dict):
            return {name: plain(value) for name, value in each.items()}
        return [plain(value) for value in each] if isinstance(each, list) else each

    found = {n: plain(v) for n, v in parts.items() if n not in ("by", "rows", "small", "certain")}
    if isinstance(found.get("last"), list):
        found["last"] = next(iter(found["last"]), None)
    return found


TEXT = "quantile(v * 2, 0.5, 0.9) by v > 20 where v > 12 weight 1 + w limit 3"


def test_one_text_is_the_fields(holding: TestClient) -> None:
    fields = {
        "aggregate": "quantile", "q": [0.5, 0.9], "of": "v * 2", "by": ["v > 20"],
        "where": "v > 12", "weight": "1 + w", "groups": 3,
    }  # fmt: skip
    how = {"decay": DECAY, "now": NOW}
    answers = asked(holding, {"ask": TEXT} | how, fields | how).json()["answers"]
    assert answers[0] == answers[1]
    spelled = query_of(TEXT)
    view = SKETCH.at(DECAY, NOW).modified(spelled.modifiers)
    found = view.ask(spelled.question, **spelled.arguments)
    assert [row["rows"] for row in answers[0]["groups"]] == found.rows.tolist()
    one = {"ask": "mean(v) by w", "by": "w", "decay": DECAY}
    refused = problem(asked(holding, one), 422, "invalid-request")
    assert "ask contains by, too" in str(refused)


def test_a_series_has_groups_at_each_time(holding: TestClient) -> None:
    query = {"aggregate": "count", "decay": DECAY, "times": [NOW - 600, NOW], "by": ["w"]}
    (series,) = asked(holding, query).json()["answers"]
    for point, now in zip(series["points"], (NOW - 600, NOW), strict=True):
        table = SKETCH.count(DECAY, now=now, by="w", groups=100)
        assert [row["by"] for row in point["groups"]] == [row.by for row in table]
        assert point["now"] == now


def test_a_range_has_modifiers(holding: TestClient) -> None:
    query = {"aggregate": "rate", "from": NOW - 900, "to": NOW, "where": "v > 12"}
    grouped = query | {"by": ["v > 20"], "order": "key"}
    one, table = asked(holding, query, grouped).json()["answers"]
    between = SKETCH.between(NOW - 900, NOW)
    assert one["estimate"] == between.rate(where="v > 12").to_dict()
    found = between.rate(where="v > 12", by="v > 20", order="key")
    assert [row["estimate"]["value"] for row in table["groups"]] == found.answers.value.tolist()


def test_a_table_has_a_column_for_each_key(holding: TestClient) -> None:
    query = {"aggregate": "mean", "decay": DECAY, "now": NOW, "by": ["w", "v > 20", "time // 600"]}
    plain = {"aggregate": "count", "decay": DECAY, "now": NOW}
    request = {"queries": [query, plain]}
    csv = holding.post("/v1/streams/s/query", json=request, headers={"Accept": "text/csv"}).text
    header, first, *_, last = csv.splitlines()
    assert header.split(",")[-3:] == ["w", "v > 20", "time // 600"]
    assert first.split(",")[-2] in ("true", "false")
    assert last.split(",")[-3:] == ["", "", ""]
    accept = {"Accept": "application/vnd.apache.arrow.stream"}
    body = holding.post("/v1/streams/s/query", json=request, headers=accept).content
    table = pa.ipc.open_stream(io.BytesIO(body)).read_all()
    assert table.schema.field("v > 20").type == pa.bool_()
    assert table.schema.field("w").type == pa.int64()
    assert table.num_rows == len(SKETCH.mean(DECAY, now=NOW, by=query["by"], groups=100)) + 1


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"where": "v >"}, "queries[0].where", "cannot be read"),
        ({"where": "x > 1"}, "queries[0].where", "'x' at character 0"),
        ({"where": "v"}, "queries[0].where", "expected a condition"),
        ({"by": ["hr(time)"]}, "queries[0].by[0]", "did you mean 'hour'"),
        ({"by": ["v", "hour(v)"]}, "queries[0].by[1]", "expected a time"),
        ({"of": "v."}, "queries[0].of", "v."),
        ({"weight": "v > 1"}, "queries[0].weight", "expected a number"),
        ({"weight": "0 - w"}, "queries[0]", "for a row of time"),
        ({"by": ["v", "w", "v", "w", "v"]}, "queries[0].by", "at most 4"),
        ({"groups": 0, "by": ["v"]}, "queries[0].groups", "greater than or equal to 1"),
        ({"where": "v" * 1001}, "queries[0].where", "at most 1000"),
        ({"where": "v > 1 or " * 80 + "w > 1"}, "queries[0].where", "more than 64 operations"),
        ({"by": ["v"], "versus": {"ago": 9}}, "queries[0]", "no by or weight: omit them"),
        ({"aggregate": "rate", "weight": "2"}, "queries[0]", "omit it"),
        ({"aggregate": "count", "of": "v"}, "queries[0]", "has no of"),
        ({"aggregate": "stddev", "by": ["v", "time"], "groups": 101}, "queries[0]", "at most 100"),
    ],
)
def test_what_cannot_be_read_is_one_clear_error(
    holding: TestClient, fields: dict[str, Any], field: str, said: str
) -> None:
    base = {"aggregate": "mean", "decay": "window(1h)", "now": NOW}
    refused = asked(holding, base | fields)
    assert refused.status_code == 422, refused.text
    (fault,) = refused.json()["errors"]
    assert fault["field"].startswith(field), fault
    assert said in fault["reason"], fault


def test_two_filters_are_compared(holding: TestClient) -> None:
    base = {"aggregate": "mean", "decay": DECAY, "now": NOW, "where": "v > 20"}
    queries = [
        base | {"versus": {"where": "v <= 20"}},
        base | {"aggregate": "count", "versus": {"where": "v <= 20"}, "how": "ratio"},
        base | {"versus": {"ago": 600}},
        base | {"times": [NOW - 9, NOW], "versus": {"where": "w > 1", "ago": 600}},
        base | {"of": "v * 2", "by": ["w > 50"], "weight": "2", "versus": {"where": "v <= 20"}},
        {"ask": "mean(v * 2) where v > 20 versus v <= 20 how ratio", "decay": DECAY, "now": NOW},
        base | {"of": "v * 2", "versus": {"ago": 600}},
        {"ask": "rate() where v > 20 versus v <= 20", "from": NOW - 600, "to": NOW},
    ]
    del queries[3]["now"]
    answers = asked(holding, *queries).json()["answers"]
    now = (DECAY, NOW)
    both = SKETCH.compare("mean", now=now, where="v > 20", versus="v <= 20")
    assert answers[0]["estimate"] == both.to_dict()
    ratio = SKETCH.compare("count", now=now, how="ratio", where="v > 20", versus="v <= 20")
    assert answers[1]["estimate"] == ratio.to_dict()
    then = SKETCH.compare("mean", now=now, then=(DECAY, NOW - 600), where="v > 20")
    assert answers[2]["estimate"] == then.to_dict()
    assert answers[0]["estimate"]["changed"] is True
    assert len(answers[3]["points"]) == 2
    parts: dict[str, Any] = {"where": "v > 20", "versus": "v <= 20", "of": "v * 2"}
    table = SKETCH.compare("mean", DECAY, now=NOW, by="w > 50", weight="2", **parts)
    assert [row["estimate"] for row in answers[4]["groups"]] == [r.answer.to_dict() for r in table]
    assert len(table) == 2
    ratio = SKETCH.compare("mean", DECAY, now=NOW, how="ratio", **parts)
    assert answers[5]["estimate"] == ratio.to_dict()
    assert ratio.lower < ratio.value < ratio.upper
    twice = SKETCH.compare("mean", now=now, then=(DECAY, NOW - 600), where="v > 20", of="v * 2")
    assert answers[6]["estimate"] == twice.to_dict()
    assert twice.value == pytest.approx(2 * then.value)
    rate = SKETCH.between(NOW - 600, NOW).rate(where="v > 20", versus="v <= 20")
    assert answers[7]["estimate"] == rate.to_dict()
    refused = asked(holding, base | {"versus": {"where": "x > 1"}})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "queries[0].versus.where"
    assert asked(holding, base | {"versus": {}}).status_code == 422
