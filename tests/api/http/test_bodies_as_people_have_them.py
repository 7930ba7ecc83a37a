"""Bodies as clients write them: each gives its count and total, or names its fault.

The corpus of files (``tests/client/test_files_as_people_have_them.py``) over HTTP, where a format
has the case: NDJSON and Arrow. CSV is no body of the service.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from service import LOCAL
from support.rows import for_each

from api.app import create_app
from api.settings import Settings

AT = 1_780_000_000
NDJSON, ARROW = "application/x-ndjson", "application/vnd.apache.arrow.stream"
TYPED: dict[str, Any] = {"id": ["a1", "a2"], "time": [AT, AT + 60], "value": [20.5, 21.5]}
ROWS, ONE = (2, 42.0), (1, 21.5)


def row(seq: int = 1, time: Any = AT, value: Any = 20.5) -> dict[str, Any]:
    return {"id": ["a", seq], "time": time, "value": value}


OTHER = row(2, AT + 60, 21.5)


def lines(*rows: Any) -> str:
    return "".join(each + "\n" if isinstance(each, str) else json.dumps(each) + "\n"
                   for each in rows)  # fmt: skip


def arrow(*, stream: bool = True, **changed: Any) -> bytes:
    table, out = pa.table(TYPED | changed), io.BytesIO()
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def of_polars() -> bytes:
    out = io.BytesIO()
    pl.DataFrame(TYPED).write_ipc_stream(out)
    return out.getvalue()


class Case(NamedTuple):
    """A body.

    Attributes:
        body: its bytes or text.
        expected: count and total; or the status of the refusal.
        fault: a field and a part of the reason that a refused row, or the body, has.
        kind: content type.
        encoding: content encoding.
    """

    body: str | bytes
    expected: tuple[int, float] | int
    fault: tuple[str, str] | None = None
    kind: str = NDJSON
    encoding: str = "identity"


CASES: dict[str, Case] = {
    "plain": Case(lines(row(), OTHER), ROWS),
    "a byte order mark": Case("\ufeff" + lines(row(), OTHER), ROWS),
    "line ends of Windows": Case(lines(row(), OTHER).replace("\n", "\r\n"), ROWS),
    "no line end at the end": Case(lines(row(), OTHER).rstrip(), ROWS),
    "empty lines between": Case(lines(row(), "", OTHER), ROWS),
    "gzip": Case(gzip.compress(lines(row(), OTHER).encode()), ROWS, encoding="gzip"),
    "gzip that is cut off": Case(
        gzip.compress(lines(row(), OTHER).encode())[:-12], 422, encoding="gzip"
    ),
    "times of UTC": Case(lines(row(time="2026-05-28T20:26:40Z"), OTHER), ROWS),
    "times without a zone": Case(
        lines(row(time="2026-05-28T20:26:40"), OTHER), ONE, ("time", "time_zone of the request")
    ),
    "day first": Case(
        lines(row(time="28.05.2026 22:26:40"), OTHER), ONE, ("time", "time_zone of the request")
    ),
    "numbers in quotes": Case(
        lines(row(value="20.5"), OTHER), ONE, ("value", "a number in quotes")
    ),
    "decimal commas": Case(lines(row(value="20,5"), OTHER), ONE, ("value", "no number")),
    "a word among numbers": Case(lines(row(), OTHER, row(3, AT, "N0N")), ROWS, ("value", "no num")),
    "missing numbers": Case(lines(row(value=None), row(2, AT, 42)), (2, 42.0)),
    "NaN": Case(lines('{"id": ["a", 1], "time": 1780000000, "value": NaN}', OTHER), ONE,
                ("value", "not finite")),
    "a broken line": Case(lines(row(), OTHER, '{"id": '), ROWS, ("observation", "not JSON")),
    "one array": Case(json.dumps([row()]), 422, ("observation", "no object")),
    "one name twice": Case(
        lines('{"id": ["a", 1], "time": 1780000000, "value": 1, "value": 2}', OTHER), ONE,
        ("observation", "a name is repeated"),
    ),
    "UTF-16": Case(lines(row()).encode("utf-16"), 422, ("observation", "it is UTF-16")),
    "Latin-1 in a name": Case(
        lines(OTHER).encode() + '{"id": "Müller", "time": 1, "value": 1}\n'.encode("latin-1"), ONE,
        ("observation", "utf-8"),
    ),
    "empty": Case("", (0, 0.0)),
    "CSV": Case("id,time,value\na,1,2\n", 415, ("content-type", "not supported"), "text/csv"),
    "Arrow": Case(arrow(), ROWS, kind=ARROW),
    "Arrow of polars": Case(of_polars(), ROWS, kind=ARROW),
    "Arrow with views and dictionaries": Case(
        arrow(id=pa.array(["a1", "a2"], pa.string_view()).dictionary_encode()), ROWS, kind=ARROW
    ),
    "Arrow with naive times": Case(
        arrow(time=pa.array([AT, AT + 60], pa.timestamp("s"))), ROWS, kind=ARROW
    ),
    "Arrow with missing numbers": Case(arrow(value=[None, 42.0]), (2, 42.0), kind=ARROW),
    "Arrow with texts": Case(arrow(value=["20.5", "21.5"]), 422, ("value", "another type"), ARROW),
    "a file of Arrow": Case(arrow(stream=False), 422, ("body", "not an Arrow IPC stream"), ARROW),
    "Arrow that is cut off": Case(arrow()[:-40], 422, ("body", "not an Arrow IPC stream"), ARROW),
    "CSV that is called Arrow": Case("id,time\n1,2\n", 422, ("body", "not an Arrow IPC"), ARROW),
}  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    data = tmp_path_factory.mktemp("bodies") / "aggregator.sqlite3"
    with TestClient(create_app(Settings(data=str(data))), base_url=LOCAL) as client:
        yield client


@for_each("name", CASES)
def test_a_body_gives_its_numbers_or_its_fault(name: str, service: TestClient) -> None:
    case, stream = CASES[name], f"/v1/streams/{list(CASES).index(name)}"
    params = {"time_unit": "s", "capacity": 10}
    assert service.put(stream, json={"params": params}).status_code == 201
    headers = {"content-type": case.kind, "content-encoding": case.encoding}
    body = case.body.encode() if isinstance(case.body, str) else case.body
    posted = service.post(f"{stream}/observations?source=x", content=body, headers=headers)
    refused = isinstance(case.expected, int)
    assert posted.status_code == (case.expected if refused else 200), posted.text
    said = posted.json()
    faults = [*said.get("refusals", ()), *said.get("errors", ())]
    if case.fault is not None:
        field, reason = case.fault
        assert any(each["field"] == field and reason in each["reason"] for each in faults), faults
    elif not refused:
        assert not faults
    queries = [{"aggregate": each, "decay": "none"} for each in ("count", "total")]
    answers = service.post(f"{stream}/query", json={"queries": queries}).json()["answers"]
    found = tuple(each["estimate"]["value"] for each in answers)
    assert found == ((0, 0.0) if refused else case.expected)


def test_a_body_of_another_format_is_named(service: TestClient) -> None:
    params = {"time_unit": "s", "capacity": 10}
    service.put("/v1/streams/other", json={"params": params})
    said = {}
    for name in ("a file of Arrow", "CSV that is called Arrow"):
        body = CASES[name].body
        posted = service.post(
            "/v1/streams/other/observations?source=x",
            content=body if isinstance(body, bytes) else body.encode(),
            headers={"content-type": ARROW},
        )
        said[name] = posted.json()["detail"]
    assert "send the stream format" in said["a file of Arrow"]
    assert "id,time" in said["CSV that is called Arrow"]
