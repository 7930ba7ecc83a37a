"""Answers as CSV and Arrow: rows, texts, negotiation, parts."""

from __future__ import annotations

import csv
import io
import json
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from service import NOW, OCTETS, build, posted, problem
from support.rows import for_each

from api.queries.answers import Form, preferred
from api.queries.tables import COLUMNS, write
from api.queries.tables import rows_of as table_rows_of

NONE = {"kind": "none"}
QUERIES: list[dict[str, Any]] = [
    {"aggregate": "count", "decay": NONE, "now": NOW, "name": "all of them"},
    {"aggregate": "quantile", "q": [0.5, 0.9], "decay": NONE, "now": NOW},
    {"aggregate": "histogram", "edges": [0, 20, 40], "decay": NONE, "now": NOW},
    {"aggregate": "group_by", "limit": 2, "decay": NONE, "now": NOW},
    {"aggregate": "mean", "decay": {"kind": "window", "width": 60}, "times": [NOW - 60, NOW]},
    {"aggregate": "mean", "decay": {"kind": "window", "width": 1}, "now": 5},
    {"aggregate": "last", "decay": NONE, "now": NOW},
]
CSV = {"Accept": "text/csv"}


@pytest.fixture
def holding(stream: TestClient) -> TestClient:
    body = build(1).to_bytes()
    posted(stream.post("/v1/streams/s/sketches?source=a", content=body, headers=OCTETS))
    return stream


def url(queries: list[dict[str, Any]], more: str = "") -> str:
    return f"/v1/streams/s/query?request={quote(json.dumps({'queries': queries}))}{more}"


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_a_row_for_each_estimate_says_what_json_says(holding: TestClient) -> None:
    asked = {"queries": QUERIES}
    in_json = holding.post("/v1/streams/s/query", json=asked).json()["answers"]
    answer = holding.post("/v1/streams/s/query", json=asked, headers=CSV)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    head, *lines = answer.text.split("\r\n")
    assert head == ",".join(COLUMNS)
    assert lines.pop() == ""
    assert all("\n" not in line for line in lines)
    rows = rows_of(answer.text)
    keys = [(row["query"], row["aggregate"], row["key"], row["of"]) for row in rows]
    heaviest, next_one = (str(group["value"]) for group in in_json[3]["groups"])
    assert keys == [
        ("all of them", "count", "", ""),
        ("quantile", "quantile", "0.5", ""),
        ("quantile", "quantile", "0.9", ""),
        ("histogram", "histogram", "0..20", ""),
        ("histogram", "histogram", "20..40", ""),
        ("histogram", "histogram", "below", ""),
        ("histogram", "histogram", "above", ""),
        ("group_by", "group_by", heaviest, "sum"),
        ("group_by", "group_by", heaviest, "count"),
        ("group_by", "group_by", next_one, "sum"),
        ("group_by", "group_by", next_one, "count"),
        ("mean", "mean", "", ""),
        ("mean", "mean", "", ""),
        ("mean", "mean", "", ""),
        ("last", "last", str(in_json[6]["last"]["time"]), ""),
    ]
    count = in_json[0]["estimate"]
    for name in ("value", "lower", "upper", "stderr", "confidence"):
        assert float(rows[0][name]) == count[name]
    assert (rows[0]["exact"], int(rows[0]["rows"])) == ("false", count["rows"])
    assert (rows[0]["now"], rows[0]["time"]) == (str(NOW), "1970-01-02T03:46:40Z")
    assert [int(row["now"]) for row in rows[11:13]] == [NOW - 60, NOW]
    assert [rows[13][name] for name in ("value", "lower", "upper", "exact")] == [
        "",
        "",
        "",
        "false",
    ]
    assert float(rows[14]["value"]) == in_json[6]["last"]["value"]
    arrow = holding.get(url(QUERIES, "&format=arrow"))
    assert arrow.headers["content-type"] == "application/vnd.apache.arrow.stream"
    table = pa.ipc.open_stream(arrow.content).read_all()
    assert table.column_names == list(COLUMNS)
    assert table.schema.field("time").type == pa.timestamp("s", "UTC")
    for name in ("query", "key", "of", "caveats"):
        assert [each or "" for each in table[name].to_pylist()] == [row[name] for row in rows]
    for name in ("value", "lower", "upper", "stderr", "confidence"):
        given = [None if row[name] == "" else float(row[name]) for row in rows]
        assert table[name].to_pylist() == given
    assert table["time"][0].as_py().isoformat() == "1970-01-02T03:46:40+00:00"


def test_what_few_estimates_have_is_told_of_those(holding: TestClient) -> None:
    decay = {"kind": "window", "width": 5000}  # more than may be missing of the time before any row
    count = {"aggregate": "count", "decay": decay, "now": NOW}
    queries = [count | {"versus": {"ago": 0}}, count | {"versus": {"ago": 10**6}}, count]
    asked = {"queries": queries}
    in_json = holding.post("/v1/streams/s/query", json=asked).json()["answers"]
    rows = rows_of(holding.post("/v1/streams/s/query", json=asked, headers=CSV).text)
    assert [each["estimate"].get("changed") for each in in_json] == [False, True, None]
    assert [row["changed"] for row in rows] == ["false", "true", ""]
    estimate = in_json[2]["estimate"] | {"sure_upper": 7.5}
    point = {"aggregate": "key_count", "now": NOW, "counts": [{"key": "k", "estimate": estimate}]}
    assert [row["sure_upper"] for row in table_rows_of("q", point)] == [7.5]


def test_a_text_is_no_formula_and_a_number_stays_one(holding: TestClient) -> None:
    formulas = ["=1+2", "+1", "-1", "@SUM(A1)", "\tx", "\r=x", "\n=x", "\nx", " =x", "\ufeff@x"]
    formulas += ["\uff1d1+2", "\uff0b1", "\uff0d1", "\uff20SUM(A1)", "\u3000\uff1dx", "\ufe66x"]
    names = [*formulas, 'a "b", c', "plain=1", " a"]
    queries = [dict(QUERIES[0], name=name) for name in names]
    rows = rows_of(holding.post("/v1/streams/s/query", json={"queries": queries}, headers=CSV).text)
    written = [f"'{name}" for name in formulas] + names[len(formulas) :]
    assert [row["query"] for row in rows] == written
    hitters = {"heavy_hitters": [{"value": -5, "frequency": estimate()}]}
    point = {"aggregate": "heavy_hitters", "now": 1, "verified": "proof", **hitters}
    written = write(Form.CSV, json.dumps({"answers": [point]}).encode(), [None], "ticks")
    (row,) = rows_of(written.decode())
    assert (row["key"], row["time"]) == ("-5", "")
    point = {"aggregate": "key_count", "now": 1, "counts": [{"key": "=x", "estimate": estimate()}]}
    written = write(Form.CSV, json.dumps({"answers": [point]}).encode(), [None], "ticks")
    assert rows_of(written.decode())[0]["key"] == "'=x"


def estimate() -> dict[str, Any]:
    ends = dict.fromkeys(("value", "lower", "upper", "stderr"), 1.0)
    return ends | {"confidence": 0.95, "exact": False, "rows": 3, "collision_bias": 0.0}


@for_each(
    "accept, form",
    [
        (None, Form.JSON),
        ("*/*", Form.JSON),
        ("text/html,application/xml;q=0.9,*/*;q=0.8", Form.JSON),
        ("text/csv", Form.CSV),
        ("TEXT/CSV; charset=utf-8", Form.CSV),
        ("text/csv;q=0.5, application/vnd.apache.arrow.stream", Form.ARROW),
        ("text/csv;q=0.5, application/json;q=0.4", Form.CSV),
        ("text/csv, application/json", Form.JSON),
        ("text/csv;q=0", Form.JSON),
        ("text/csv;q=many", Form.JSON),
        ("a," * 60 + "text/csv", Form.JSON),
    ],
)
def test_the_form_is_the_one_most_wanted(accept: str | None, form: Form) -> None:
    assert preferred(accept) is form


def test_the_url_says_it_before_the_header_and_forms_have_tags_of_their_own(
    holding: TestClient,
) -> None:
    tags = {}
    for form in Form:
        got = holding.get(url(QUERIES[:1], f"&format={form}"), headers=CSV)
        tags[form] = got.headers["etag"]
        assert got.headers["vary"] == "Accept"
        same = holding.get(
            url(QUERIES[:1], f"&format={form}"), headers={"If-None-Match": tags[form]}
        )
        assert (same.status_code, same.content) == (304, b"")
    assert len(set(tags.values())) == 3
    other = holding.get(url(QUERIES[:1]), headers={"If-None-Match": tags[Form.CSV]})
    assert other.status_code == 200
    problem(holding.get(url(QUERIES[:1], "&format=xls")), 422, "invalid-request")
    problem(holding.get(url([{"aggregate": "no"}], "&format=csv")), 422, "invalid-request")


def test_parts_of_a_table(holding: TestClient) -> None:
    where = url(QUERIES, "&format=csv")
    whole = holding.get(where)
    assert whole.headers["accept-ranges"] == "bytes"
    length, tag = len(whole.content), whole.headers["etag"]
    head = holding.head(where, headers={"Range": "bytes=0-3"})
    assert (head.status_code, int(head.headers["content-length"])) == (200, length)
    for asked, part in {
        "bytes=0-3": slice(0, 4),
        "bytes=5-": slice(5, length),
        "bytes=-7": slice(length - 7, length),
        f"bytes=9-{length + 99}": slice(9, length),
        f"bytes=-{length + 5}": slice(0, length),
    }.items():
        got = holding.get(where, headers={"Range": asked})
        assert (got.status_code, got.content) == (206, whole.content[part]), asked
        assert got.headers["content-range"] == f"bytes {part.start}-{part.stop - 1}/{length}"
        assert got.headers["etag"] == tag
    for asked in (f"bytes={length}-", "bytes=-0", f"bytes={length + 3}-{length + 9}"):
        refused = holding.get(where, headers={"Range": asked})
        problem(refused, 416)
        assert refused.headers["content-range"] == f"bytes */{length}"
    for asked in (
        "bytes=4-2",
        "bytes=-",
        "bytes=0-1,3-4",
        "rows=0-1",
        "bytes=x-",
        "bytes=" + "9" * 99,
    ):
        assert holding.get(where, headers={"Range": asked}).content == whole.content, asked
    for named, status in ((tag, 206), ('"other"', 200)):
        conditional = {"Range": "bytes=0-3", "If-Range": named}
        assert holding.get(where, headers=conditional).status_code == status
    posted_to = holding.post(
        "/v1/streams/s/query?format=csv", json={"queries": QUERIES}, headers={"Range": "bytes=0-3"}
    )
    assert (posted_to.status_code, posted_to.content) == (200, whole.content)


def test_of_a_table_that_is_of_now_the_whole_is_given_and_where_parts_are(
    holding: TestClient,
) -> None:
    count = {"aggregate": "count", "decay": NONE}
    got = holding.get(url([count]), headers=CSV | {"Range": "bytes=0-3"})
    assert (got.status_code, got.headers["accept-ranges"]) == (200, "none")
    pinned = got.headers["content-location"]
    again = holding.get(pinned, headers={"Range": "bytes=0-3"})
    assert (again.status_code, again.content) == (206, got.content[:4])
    assert holding.get(pinned).content == got.content
    assert holding.get(url([count], "&format=csv&now=7")).text.split("\r\n")[1].split(",")[2] == "7"
