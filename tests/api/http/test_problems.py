"""The table from exception to status: every refusal has a row."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import sqlalchemy.exc
from fastapi.testclient import TestClient
from service import PARAMS, problem

from api import errors
from api.http import refusals
from api.http.problems import TABLE, answer_to
from api.journal import log

REFUSALS = {
    each
    for module in (errors, refusals, log)
    for _, each in inspect.getmembers(module, inspect.isclass)
    if issubclass(each, (errors.ServiceError, log.StorageError, log.ReplayError))
    and each is not errors.ServiceError
}


@pytest.mark.parametrize("refusal", sorted(REFUSALS, key=str), ids=lambda each: each.__name__)
def test_every_refusal_has_a_status(refusal: type[Exception]) -> None:
    assert any(cls in TABLE for cls in refusal.__mro__)


@pytest.mark.parametrize(
    "error",
    [
        log.StorageError("SELECT secret"),
        log.ReplayError("/srv/secret"),
        sqlalchemy.exc.OperationalError("SELECT secret", {}, Exception("secret")),
        KeyError("secret"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_text_of_what_lies_below_leaves_the_process(error: Exception) -> None:
    answer = answer_to(error)
    assert answer.status_code == (500 if isinstance(error, KeyError) else 503)
    assert ("retry-after" in answer.headers) == (answer.status_code == 503)
    assert b"secret" not in bytes(answer.body)


def told(client: TestClient, *queries: Any, of: str = "s", **more: Any) -> str:
    body = {"queries": list(queries), **more}
    refused = client.post(f"/v1/streams/{of}/query", json=body)
    return str(problem(refused, 422, "invalid-request")["detail"])


def test_a_word_that_is_none_is_told_the_one_it_is_like(stream: TestClient) -> None:
    said = told(stream, {"aggregate": "quantil", "q": 0.5, "decay": "none"})
    assert said == "queries[0].aggregate: there is no 'quantil'; did you mean 'quantile'?"
    for word, question in (
        ("avg", "'mean'"),
        ("p95", "'quantile' with q 0.95"),
        ("STD", "'stddev'"),
    ):
        said = told(stream, {"aggregate": word, "decay": "none"})
        assert said == f"queries[0].aggregate: there is no '{word}'; did you mean {question}?"
    said = told(stream, {"ask": "quantile(0.95, v)", "decay": "none"})
    assert said.endswith("; did you mean 'quantile(v, 0.95)'?")
    selectivity = {"aggregate": "selectivity", "predicate": "temp > 25", "decay": "none"}
    assert "did you mean" not in told(stream, selectivity)
    params = {"max_weight": 1, "id_bits": 40, "columns": {"temp": "float64"}}
    assert stream.put("/v1/streams/of-columns", json={"params": params}).status_code == 201
    said = told(stream, selectivity, of="of-columns")
    assert said.endswith("; did you mean 'mean(temp > 25)'?")
    for unlike in ("xyz", "quantil" * 20):
        said = told(stream, {"aggregate": unlike, "decay": "none"})
        assert said.startswith("queries[0].aggregate: expected one of 'sum', 'count', 'rate'")
        assert "did you mean" not in said
    said = told(stream, {"aggregate": "mean", "decay": {"kind": "windo", "width": 5}})
    assert "expected one of 'window', 'exponential'" in said
    assert said.endswith("; did you mean 'window'?")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (95, "; did you mean 0.95?"),
        (99.9, "; did you mean 0.999?"),
        (101, " to 1"),
        (1e300, " to 1"),
    ],
)
def test_a_share_that_is_per_cent_is_told(stream: TestClient, given: float, said: str) -> None:
    assert told(stream, {"aggregate": "quantile", "q": given, "decay": "none"}).endswith(said)


def test_a_query_alone_is_told_where_it_belongs(stream: TestClient) -> None:
    query = {"aggregate": "mean", "decay": "window(1h)"}
    for url in ("/v1/streams/s/query", "/v1/query"):
        said = problem(stream.post(url, json=query), 422, "invalid-request")["detail"]
        assert said == 'body: is one query; expected a list of them: {"queries": [{...}]}'
    refused = stream.put("/v1/streams/s/questions/mean_1h", json=query)
    said = problem(refused, 422, "invalid-request")["detail"]
    assert said == 'body: is the query alone; expected it as {"query": {...}}'


def test_a_list_is_not_too_short_besides_what_is_wrong_in_it(stream: TestClient) -> None:
    form = {"params": PARAMS.to_dict()}
    misspelt = {"format": "influx", "measurement": "cpu", "valu": "usage"}
    refused = stream.put("/v1/streams/s", json=form | {"ingest": {"map": [misspelt]}})
    fields = [each["field"] for each in problem(refused, 422, "invalid-request")["errors"]]
    assert fields == ["ingest.map[0].valu"]
    refused = stream.put("/v1/streams/s", json=form | {"ingest": {"map": []}})
    assert "at least 1 item" in problem(refused, 422, "invalid-request")["detail"]
