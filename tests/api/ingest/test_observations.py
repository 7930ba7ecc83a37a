"""Raw observations: what they become, row by row, however they are written."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from families import CASES, FIXED, MEDIAN, SUM
from fastapi.testclient import TestClient
from httpx2 import Response
from service import NOW, PARAMS, build, problem

import decaysketch as ds
from api.ingest.json_rows import read_json
from decaysketch.asyncwindow import MedianSampler, SumSampler
from decaysketch.client.posting import Poster
from decaysketch.families import recipe_of
from decaysketch.ingest.columns import Form, check

NDJSON, ARROW = "application/x-ndjson", "application/vnd.apache.arrow.stream"
Row = dict[str, Any]

ROWS: list[Row] = [
    {"value": 20.5, "weight": 3, "time": NOW - 60, "id": 7},
    {"value": None, "weight": 99, "time": NOW, "id": 0},
    {"value": 21, "time": NOW - 5, "id": (1 << 40) - 1},
    {"time": -NOW, "id": "t-7/4711"},
]


def arrow(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as out:
        out.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def as_json(rows: Sequence[Any]) -> tuple[str, bytes]:
    return "application/json", json.dumps({"observations": rows}).encode()


def as_lines(rows: Sequence[Any]) -> tuple[str, bytes]:
    return NDJSON, "\n".join(map(json.dumps, rows)).encode()


def as_arrow(rows: Sequence[Row]) -> tuple[str, bytes]:
    columns = {
        "value": [row.get("value") for row in rows],
        "weight": [row.get("weight", 1) for row in rows],
        "time": [row["time"] for row in rows],
        "id": [row["id"] for row in rows],
    }
    return ARROW, arrow(pa.table(columns))


def post(
    client: TestClient,
    rows: Sequence[Any],
    *,
    write: Callable[[Sequence[Any]], tuple[str, bytes]] = as_json,
    source: str = "gateway-3",
    name: str = "s",
    **query: str,
) -> Response:
    media_type, body = write(rows)
    return client.post(
        f"/v1/streams/{name}/observations",
        params={"source": source, **query},
        content=body,
        headers={"content-type": media_type},
    )


def digest(client: TestClient, answer: Response, name: str = "s") -> str:
    """Of the merged sketch, once it has what was posted."""
    headers = {"decaysketch-after": answer.json()["token"]}
    sketch = client.get(f"/v1/streams/{name}/sketch", headers=headers)
    assert sketch.status_code == 200, sketch.text
    return str(sketch.headers["etag"].strip('"'))


def counts(answer: Response, status: int = 200) -> dict[str, int]:
    assert answer.status_code == status, answer.text
    names = ("retained", "already_retained", "below_watermark", "refused")
    return {name: answer.json()[name] for name in names if answer.json()[name]}


class TestEveryForm:
    @pytest.mark.parametrize("write", [as_json, as_lines])
    def test_gives_the_sketch_that_a_sensor_would_have_built(
        self, stream: TestClient, write: Any
    ) -> None:
        answer = post(stream, ROWS, write=write)
        assert counts(answer) == {"retained": 4}
        assert answer.json()["verdicts"] == ["retained"] * 4
        assert answer.json()["refusals"] == []
        assert (answer.json()["rows"], answer.json()["duplicate"]) == (4, False)
        key = int(ds.observation_ids(["t-7/4711"], params=PARAMS)[0])
        sketch = ds.DecaySketch(PARAMS)
        sketch.update(
            [20.5, None, 21, None], [3, 99, 1, 1], [NOW - 60, NOW, NOW - 5, -NOW],
            [7, 0, (1 << 40) - 1, key],
        )  # fmt: skip
        assert digest(stream, answer) == sketch.digest()

    def test_is_the_same_in_columns(self, stream: TestClient) -> None:
        expected = digest(stream, post(stream, ROWS[:3]))
        stream.put("/v1/streams/other", json={"params": PARAMS.to_dict()})
        answer = post(stream, ROWS[:3], write=as_arrow, name="other")
        assert counts(answer) == {"retained": 3}
        assert digest(stream, answer, "other") == expected

    @pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
    def test_takes_keys_in_columns(self, stream: TestClient, kind: pa.DataType) -> None:
        keys = ["a", None, "b", "a", "x" * 1025, ""]
        table = pa.table(
            {"time": pa.array([1] * 6, pa.int32()), "id": pa.array(keys, pa.string()).cast(kind)}
        )
        answer = post(stream, [], write=lambda _: (ARROW, arrow(table)))
        assert answer.json()["verdicts"] == [
            "retained", "refused", "retained", "already_retained", "refused", "refused"
        ]  # fmt: skip
        assert [(each["row"], each["reason"]) for each in answer.json()["refusals"]] == [
            (1, "missing"),
            (4, "1025 bytes long, at most 1024 are allowed"),
            (5, "empty"),
        ]
        sketch, plain = ds.DecaySketch(PARAMS), ["a", "b"]
        given: Any = [key.encode() for key in plain] if kind == pa.binary() else plain
        sketch.update(None, 1, [1, 1], ds.observation_ids(given, params=PARAMS))
        assert digest(stream, answer) == sketch.digest()

    def test_names_a_message_by_several_parts(self, stream: TestClient) -> None:
        rows = [{"time": 5, "id": ["t-1", number]} for number in range(3)]
        answer = post(stream, [*rows, {"time": 6, "id": [9, "x", -1, "ü"]}])
        sketch = ds.DecaySketch(PARAMS)
        ids = ds.observation_ids(["t-1"] * 3, [0, 1, 2], params=PARAMS)
        sketch.update(None, 1, [5, 5, 5], ids)
        sketch.update(None, 1, 6, int(ds.observation_ids(9, "x", -1, "ü", params=PARAMS)[0]))
        assert digest(stream, answer) == sketch.digest()

    def test_finds_copies_that_came_as_a_sketch(self, stream: TestClient) -> None:
        sketch = ds.DecaySketch(PARAMS)
        sketch.update([1.0, 2.0], 1, [10, 20], [1, 2])
        taken = stream.post(
            "/v1/streams/s/sketches?source=gateway-3",
            content=sketch.to_bytes(),
            headers={"content-type": "application/octet-stream"},
        )
        assert taken.status_code == 200
        rows = [
            {"value": 1.0, "time": 10, "id": 1},
            {"value": 2.0, "time": 21, "id": 2},
            {"value": 2.0, "time": 19, "id": 2},
        ]
        answer = post(stream, rows)
        assert answer.json()["verdicts"] == ["already_retained", "retained", "already_retained"]
        assert counts(post(stream, rows[:1], source="gateway-4")) == {"retained": 1}, "a new source"


class TestVerdicts:
    def test_of_a_body_sent_again_are_all_already_retained(self, stream: TestClient) -> None:
        first = post(stream, ROWS)
        again = post(stream, ROWS[::-1], write=as_lines, verdicts="counts")
        assert counts(again) == {"already_retained": 4}
        assert again.json()["verdicts"] is None
        assert again.json()["duplicate"]
        assert digest(stream, again) == digest(stream, first)

    def test_are_those_of_the_library(self, stream: TestClient) -> None:
        draw = np.random.default_rng(1)
        sketch = ds.DecaySketch(PARAMS)
        for _ in range(4):
            columns = [
                draw.normal(20, 5, 500).round(),
                draw.integers(1, 3, 500),
                draw.integers(NOW - 3_000, NOW, 500),
                draw.integers(0, 3_000, 500),
            ]
            names = ("value", "weight", "time", "id")
            rows = [
                dict(zip(names, row, strict=True))
                for row in zip(*(column.tolist() for column in columns), strict=True)
            ]
            expected = sketch.verdicts(*columns)
            sketch.update(*columns)
            answer = post(stream, rows, write=as_arrow)
            found = ["retained", "already_retained", "below_watermark"]
            assert answer.json()["verdicts"] == [found[code] for code in expected.tolist()]
            assert digest(stream, answer) == sketch.digest()
        assert set(expected.tolist()) == {0, 1, 2}

    @pytest.mark.usefixtures("data")  # a new aggregator, which counts from 0
    def test_are_counted(self, stream: TestClient) -> None:
        post(stream, [*ROWS, ROWS[0], {"time": 1}, {"time": "1", "id": 1}])
        metrics = stream.get("/metrics").text
        for verdict, rows in (("retained", 4), ("already_retained", 1), ("refused", 2)):
            label = f'decaysketch_observations_total{{stream="s",verdict="{verdict}"}} {rows}.0'
            assert label in metrics
        for field in ("id", "time"):
            reason = f'decaysketch_refused_total{{reason="observation-{field}",stream="s"}} 1.0'
            assert reason in metrics


FAULTS: list[tuple[Any, str, str, Any]] = [
    ([], "observation", "no object", "[]"),
    ("x", "observation", "no object", "x"),
    ({"time": 1, "id": 1, "v": 2}, "observation", "unknown field", "v"),
    ({"id": 1}, "time", "missing", None),
    ({"time": 1}, "id", "missing", None),
    ({"time": None, "id": 1}, "time", "no integer", None),
    ({"time": 1.0, "id": 1}, "time", "no integer", 1.0),
    ({"time": "1", "id": 1}, "time", "no integer", "1"),
    ({"time": True, "id": 1}, "time", "no integer", True),
    ({"time": 2**62 + 1, "id": 1}, "time", "out of bounds", 2**62 + 1),
    ({"time": 2**63, "id": 1}, "time", "beyond 64 bits", 2**63),
    ({"time": -(2**63), "id": 1}, "time", "out of bounds", -(2**63)),
    ({"time": 1, "id": 1 << 40}, "id", "out of bounds", 1 << 40),
    ({"time": 1, "id": -1}, "id", "out of bounds", -1),
    ({"time": 1, "id": 7.0}, "id", "no integer", 7.0),
    ({"time": 1, "id": True}, "id", "no id", True),
    ({"time": 1, "id": None}, "id", "no id", None),
    ({"time": 1, "id": {}}, "id", "no id", "{}"),
    ({"time": 1, "id": []}, "id", "no id", "[]"),
    ({"time": 1, "id": ["a"] * 5}, "id", "no id", "['a', 'a', 'a', 'a', 'a']"),
    ({"time": 1, "id": ["a", 1.5]}, "id", "no id", "['a', 1.5]"),
    ({"time": 1, "id": ["a", ["b"]]}, "id", "no id", "['a', ['b']]"),
    ({"time": 1, "id": ["a", 1 << 63]}, "id", "beyond 64 bits", f"['a', {1 << 63}]"),
    ({"time": 1, "id": ""}, "id", "empty", ""),
    ({"time": 1, "id": "ü" * 513}, "id", "1026 bytes long, at most 1024 are allowed", None),
    ({"time": 1, "id": 1, "weight": 0}, "weight", "out of bounds", 0),
    ({"time": 1, "id": 1, "weight": 100}, "weight", "out of bounds", 100),
    ({"time": 1, "id": 1, "weight": None}, "weight", "no integer", None),
    ({"time": 1, "id": 1, "weight": 1.5}, "weight", "no integer", 1.5),
    ({"time": 1, "id": 1, "value": "20"}, "value", "a number in quotes", "20"),
    ({"time": 1, "id": 1, "value": "ON"}, "value", "no number", "ON"),
    ({"time": 1, "id": 1, "value": False}, "value", "no number", False),
    ({"time": 1, "id": 1, "value": [1]}, "value", "no number", "[1]"),
    ({"time": 1, "id": 1, "value": 2**53 + 1}, "value", "not exact as float64", 2**53 + 1),
    ({"time": 1, "id": 1, "value": float("nan")}, "value", "not finite", "nan"),
    ({"time": 1, "id": 1, "value": float("-inf")}, "value", "not finite", "-inf"),
]


class TestRowsAtFault:
    @pytest.mark.parametrize("write", [as_json, as_lines])
    def test_are_refused_one_by_one(self, stream: TestClient, write: Any) -> None:
        good = {"time": 1, "id": "good"}
        answer = post(stream, [good, *(fault for fault, *_ in FAULTS), good], write=write)
        assert counts(answer) == {"retained": 1, "already_retained": 1, "refused": len(FAULTS)}
        assert answer.json()["verdicts"] == (
            ["retained", *["refused"] * len(FAULTS), "already_retained"]
        )
        found = answer.json()["refusals"]
        assert [each["row"] for each in found] == list(range(1, len(FAULTS) + 1))
        for (given, field, reason, value), each in zip(FAULTS, found, strict=True):
            assert (each["field"], each["reason"]) == (field, reason), given
            assert value is None or each["value"] == value, given

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ('{"time": 1, "id": 1, "id": 2}', "a name is repeated"),
            ('{"time": 1, "id": 1', "not JSON: Expecting ',' delimiter at character 19"),
            ("\udc80", "not JSON: 'utf-8' codec can't decode byte 0x80 in position 0"),
            ("[" * 60_000, "60000 brackets and commas; expected at most 64"),
            (" " * 66_000 + "{}", "a line of 66002 bytes; expected at most 65536"),
        ],
    )
    def test_as_lines_leave_the_others_alone(
        self, stream: TestClient, text: str, reason: str
    ) -> None:
        line = text.encode("utf-8", "surrogateescape")
        body = b'{"time": 1, "id": 1}\r\n\n' + line + b'\n{"time": 2, "id": 2}\n'
        answer = post(stream, [], write=lambda _: (NDJSON, body))
        assert counts(answer) == {"retained": 2, "refused": 1}
        [refusal] = answer.json()["refusals"]
        assert (refusal["row"], refusal["field"]) == (1, "observation")
        assert refusal["reason"].startswith(reason)

    def test_a_name_twice_in_a_document(self, stream: TestClient) -> None:
        body = b'{"observations": [{"time": 1, "time": 2, "id": 1}]}'
        answer = post(stream, [], write=lambda _: ("application/json", body))
        assert answer.json()["refusals"][0]["reason"] == "a name is repeated"

    def test_half_a_surrogate_pair_is_a_key_like_any_other(self, stream: TestClient) -> None:
        body = rb'{"time": 1, "id": "\ud800"}' + b"\n" + rb'{"time": 1, "\udfff": 1}'
        answer = post(stream, [], write=lambda _: (NDJSON, body))
        assert counts(answer) == {"retained": 1, "refused": 1}
        assert answer.json()["refusals"][0]["value"] == "\\udfff"

    def test_in_columns(self, stream: TestClient) -> None:
        table = pa.table(
            {
                "value": pa.array([1.0, float("nan"), None, 1.0, 1.0, 1.0, 1.0]),
                "weight": pa.array([1, 1, None, 100, 1, 1, 1], pa.uint64()),
                "time": pa.array([1, 1, 1, 1, None, 2**63, 1], pa.uint64()),
                "id": pa.array([1, 2, 3, 4, 5, 6, None], pa.int64()),
            }
        )
        answer = post(stream, [], write=lambda _: (ARROW, arrow(table)))
        assert counts(answer) == {"retained": 1, "refused": 6}
        assert [
            (each["row"], each["field"], each["reason"]) for each in answer.json()["refusals"]
        ] == [
            (1, "value", "not finite"),
            (2, "weight", "missing"),
            (3, "weight", "out of bounds"),
            (4, "time", "missing"),
            (5, "time", "beyond 64 bits"),
            (6, "id", "missing"),
        ]

    def test_where_all_are_nothing_is_journaled(self, stream: TestClient) -> None:
        answer = post(stream, [{"time": 1}, {"id": 2}])
        assert counts(answer, 422) == {"refused": 2}
        content = problem(answer, 422, "nothing-taken")
        assert content["detail"] == (
            "none of the 2 observations was accepted; observations[0].id: missing"
        )
        assert [each["field"] for each in content["errors"]] == [
            "observations[0].id", "observations[1].time",
        ]  # fmt: skip
        assert (answer.json()["token"], answer.json()["duplicate"]) == (None, False)
        assert answer.json()["verdicts"] == ["refused", "refused"]
        state = stream.get("/v1/streams/s").json()
        assert (state["rows"], state["posts"], state["sources"]) == (0, 0, [])

    def test_where_all_are_the_poster_is_told_of_each(self, stream: TestClient) -> None:
        table = pa.table({"value": [1.0, 2.0], "weight": [0, 0], "time": [1, 2], "id": [1, 2]})
        fields = Poster(stream, "s").post_observations("a", arrow(table))  # type: ignore[arg-type]
        assert (fields["refused"], fields["token"]) == (2, None)
        assert [each["field"] for each in fields["refusals"]] == ["weight", "weight"]

    def test_are_listed_up_to_a_thousand(self, stream: TestClient) -> None:
        answer = post(stream, [{"id": 1}] * 1500)
        assert counts(answer, 422) == {"refused": 1500}
        assert len(answer.json()["errors"]) == 100
        assert len(answer.json()["refusals"]) == 1000
        assert len(answer.json()["verdicts"]) == 1500

    def test_times_in_the_future(self, stream: TestClient) -> None:
        created = stream.put(
            "/v1/streams/strict", json={"params": PARAMS.to_dict(), "max_clock_skew_s": 60}
        )
        assert created.status_code == 201
        now = int(time.time())
        rows = [{"time": now + ahead, "id": ahead} for ahead in (0, 55, 300)]
        answer = post(stream, rows, name="strict")
        assert answer.json()["verdicts"] == ["retained", "retained", "refused"]
        [refusal] = answer.json()["refusals"]
        assert (refusal["field"], refusal["value"]) == ("time", now + 300)
        assert now + 60 <= refusal["expected"] <= int(time.time()) + 60


class TestABodyAtFault:
    @pytest.mark.parametrize(
        "body", [b"", b"{}", b"[]", b"null", b'{"observations": {}}', b"\xff",
                 b'{"observations": [}', b'{"observations": [], "more": 1}',
                 b'{"observations": [], "observations": []}'],
    )  # fmt: skip
    def test_is_refused_as_a_whole(self, stream: TestClient, body: bytes) -> None:
        answer = post(stream, [], write=lambda _: ("application/json", body))
        problem(answer, 422, "invalid-request")

    def test_of_too_many_observations(self, start: Callable[..., TestClient]) -> None:
        client = start(max_rows=3)
        client.put("/v1/streams/s", json={"params": PARAMS.to_dict()})
        for write in (as_json, as_lines, as_arrow):
            answer = post(client, ROWS[:3] + ROWS[:1], write=write)
            content = problem(answer, 413, "too-many-rows")
            assert content["errors"][0]["expected"] == 3
            assert post(client, ROWS[:3], write=write).status_code == 200

    def test_of_another_media_type(self, stream: TestClient) -> None:
        answer = post(stream, [], write=lambda _: ("text/csv", b"1,2"))
        problem(answer, 415, "unsupported-media-type")

    def test_to_no_stream(self, stream: TestClient) -> None:
        problem(post(stream, ROWS, name="none"), 404, "unknown-stream")

    @pytest.mark.parametrize(
        ("columns", "field"),
        [
            ({"time": [1], "id": [1], "more": [1]}, "more"),
            ({"time": [1.5], "id": [1]}, "time"),
            ({"time": [1], "id": [[1]]}, "id"),
            ({"time": pa.array([1.5]).dictionary_encode(), "id": [1]}, "time"),
            ({"time": [1], "id": pa.array([b"a" * 16], pa.uuid())}, "id"),
            ({"time": [1], "id": [1], "value": pa.nulls(1)}, "value"),
            ({"time": [1], "id": [1], "value": pa.array([1], pa.decimal128(5))}, "value"),
            ({"time": [1], "id": [1], "weight": ["1"]}, "weight"),
            ({"id": [1]}, "time"),
            ({"time": [1]}, "id"),
            ({}, "id"),
        ],
    )
    def test_in_columns_of_other_types(
        self, stream: TestClient, columns: dict[str, Any], field: str
    ) -> None:
        answer = post(stream, [], write=lambda _: (ARROW, arrow(pa.table(columns))))
        content = problem(answer, 422, "invalid-request")
        assert field in [fault["field"] for fault in content["errors"]]

    @pytest.mark.parametrize("codec", ["lz4", "zstd"])
    def test_of_compressed_columns(self, stream: TestClient, codec: str) -> None:
        table = pa.table({"time": [1] * 1000, "id": [1] * 1000})
        answer = post(stream, [], write=lambda _: (ARROW, arrow(table, compression=codec)))
        assert "compress the body" in problem(answer, 422, "invalid-request")["detail"]


class TestEveryFamily:
    @pytest.fixture
    def streams(self, client: TestClient) -> TestClient:
        for case in CASES.values():
            assert client.put(f"/v1/streams/{case.name}", json=case.creation).status_code == 201
        return client

    def test_integral(self, streams: TestClient) -> None:
        rows = [{"value": 1.5, "weight": 9, "time": NOW, "id": number} for number in range(5)]
        answer = post(streams, [*rows, rows[0]], name="integral")
        assert counts(answer) == {"retained": 5, "already_retained": 1}
        sketch = ds.IntegralDecaySketch(PARAMS, FIXED)
        sketch.update([1.5] * 5, [9] * 5, [NOW] * 5, range(5))  # type: ignore[arg-type]
        assert digest(streams, answer, "integral") == sketch.digest()
        assert counts(post(streams, rows, name="integral")) == {"already_retained": 5}

    def test_sum_names_elements_by_source_and_number(self, streams: TestClient) -> None:
        rows = [{"value": number + 1, "time": NOW + number, "id": number} for number in range(4)]
        bad = [
            {"value": 0, "time": NOW, "id": 9},
            {"value": 1.5, "time": NOW, "id": 9},
            {"time": NOW, "id": 9},
            {"value": 1, "time": NOW, "id": "tap-7/9"},
            {"value": 1, "time": NOW, "id": 9, "weight": 2},
        ]
        answer = post(streams, rows + bad, name="sum", source="tap-7")
        assert counts(answer) == {"retained": 4, "refused": 5}
        assert [each["field"] for each in answer.json()["refusals"]] == [
            "value", "value", "value", "id", "weight"
        ]  # fmt: skip
        sampler = SumSampler(SUM)
        sampler.update([1, 2, 3, 4], np.arange(4) + NOW, range(4), source="tap-7")  # type: ignore[arg-type]
        assert digest(streams, answer, "sum") == sampler.digest()
        assert counts(post(streams, rows, name="sum", source="tap-7")) == {"already_retained": 4}
        assert counts(post(streams, rows, name="sum", source="tap-8")) == {"retained": 4}

    def test_median(self, streams: TestClient) -> None:
        rows = [{"value": 1.5, "time": NOW, "id": 0}, {"value": 1.5, "time": NOW, "id": 1}]
        answer = post(streams, [*rows, {"time": NOW, "id": 2}], name="median", source="tap-7")
        assert counts(answer) == {"retained": 2, "refused": 1}
        sampler = MedianSampler(MEDIAN)
        sampler.update([1.5, 1.5], [NOW, NOW], [0, 1], source="tap-7")
        assert digest(streams, answer, "median") == sampler.digest()


class TestASecretStream:
    @pytest.fixture
    def secret(self, client: TestClient) -> TestClient:
        form = {"params": PARAMS.to_dict(), "secret_ids": True}
        assert client.put("/v1/streams/s", json=form).status_code == 201
        return client

    def test_takes_observations(self, secret: TestClient) -> None:
        assert counts(post(secret, ROWS)) == {"retained": 4}
        assert counts(post(secret, ROWS)) == {"already_retained": 4}

    def test_takes_no_sketches(self, secret: TestClient) -> None:
        answer = secret.post(
            "/v1/streams/s/sketches?source=gateway-3",
            content=build(1).to_bytes(),
            headers={"content-type": "application/octet-stream"},
        )
        problem(answer, 403, "observations-only")

    def test_hashes_keys_otherwise_than_any_other(self, secret: TestClient) -> None:
        keys = [{"time": 1, "id": f"key-{number}"} for number in range(50)]
        for name in ("t", "u"):
            form = {"params": PARAMS.to_dict(), "secret_ids": name == "t"}
            assert secret.put(f"/v1/streams/{name}", json=form).status_code == 201
        found = {name: digest(secret, post(secret, keys, name=name), name) for name in "stu"}
        assert len(set(found.values())) == 3
        state = secret.get("/v1/streams/s").json()
        assert state["params"]["keyed_by"] == "secret"
        assert "id_key" not in str(state)


class TestKeysBoundToTheirSource:
    FORM: ClassVar[Row] = {"params": PARAMS.to_dict(), "secret_ids": True, "bind_keys": True}

    @pytest.fixture
    def bound(self, client: TestClient) -> TestClient:
        assert client.put("/v1/streams/s", json=self.FORM).status_code == 201
        return client

    def count(self, client: TestClient, now: int) -> Any:
        query = {"aggregate": "count", "decay": {"kind": "window", "width": 60}, "now": now}
        (given,) = client.post("/v1/streams/s/query", json={"queries": [query]}).json()["answers"]
        return given["estimate"]["value"]

    @pytest.mark.parametrize("key", [4711, [12], "t-7/12", ["t-7", 12]])
    def test_nobody_replaces_what_another_source_has_posted(
        self, bound: TestClient, key: Any
    ) -> None:
        """The same key and weight with a later time: the latest copy stands for an observation."""
        honest = {"value": 20, "weight": 3, "time": NOW - 30, "id": key}
        for form, left in (({}, 1), ({"secret_ids": True, "bind_keys": False}, 0)):
            bound.delete("/v1/streams/s")
            assert bound.put("/v1/streams/s", json=self.FORM | form).status_code == 201
            assert counts(post(bound, [honest], source="t-7")) == {"retained": 1}
            assert self.count(bound, NOW - 10) == 1
            forged = post(bound, [honest | {"time": NOW, "value": 99}], source="mallory")
            assert forged.status_code == 200
            assert self.count(bound, NOW - 10) == left, form

    @pytest.mark.parametrize("write", [as_json, as_lines, as_arrow])
    def test_copies_of_one_source_are_copies(
        self, bound: TestClient, write: Callable[[Sequence[Row]], tuple[str, bytes]]
    ) -> None:
        rows = ROWS[:3]  # an Arrow column of ids has one type
        assert counts(post(bound, rows, write=write)) == {"retained": 3}
        assert counts(post(bound, rows, write=write)) == {"already_retained": 3}
        assert counts(post(bound, rows, write=write, source="gateway-4")) == {"retained": 3}
        assert bound.get("/v1/streams/s").json()["rows"] == 6

    def test_the_source_is_a_part_of_the_key_and_runs_into_no_other(self) -> None:
        posted = {
            ("a", "bc"), ("a", ("b", "c")), ("ab", "c"), ("a", ("b", 1)), ("a", 1), ("b", 1),
            ("1", 1), ("1", "1"), ("a", "1"), ("a", "b"), ("b", "a"),
        }  # fmt: skip
        ids = {
            (source, key): self.ids(source, [key if isinstance(key, int | str) else list(key)])[0]
            for source, key in posted
        }
        assert len(set(ids.values())) == len(posted)
        for (source, key), found in ids.items():
            parts = key if isinstance(key, tuple) else (key,)
            assert found == ds.observation_ids(source, *parts, params=PARAMS)[0]

    def ids(self, source: str, keys: list[Any]) -> list[int]:
        form = Form(recipe_of(PARAMS), source, None, 100, bind_keys=True)
        rows = [{"time": NOW, "id": key} for key in keys]
        found: list[int] = check(read_json(as_json(rows)[1], form), form).columns.ids.tolist()
        return found

    def test_is_a_property_of_the_stream(self, start: Callable[..., TestClient]) -> None:
        client = start()
        assert client.put("/v1/streams/s", json=self.FORM).status_code == 201
        before = digest(client, post(client, ROWS))
        client = start()
        assert client.get("/v1/streams/s").json()["bind_keys"] is True
        assert counts(again := post(client, ROWS)) == {"already_retained": 4}
        assert digest(client, again) == before
        assert client.put("/v1/streams/s", json=self.FORM).status_code == 200
        other = client.put("/v1/streams/s", json=self.FORM | {"bind_keys": False})
        (fault,) = problem(other, 409, "stream-exists")["errors"]
        assert (fault["field"], fault["value"], fault["expected"]) == ("bind_keys", False, True)

    def test_takes_a_secret(self, client: TestClient) -> None:
        """Ids that anybody can compute are bound to nobody: a sketch may have any."""
        form = self.FORM | {"secret_ids": False}
        content = problem(client.put("/v1/streams/s", json=form), 422, "invalid-request")
        assert "bind_keys is true and secret_ids is not" in content["detail"]
        sampler = CASES["sum"].creation | {"bind_keys": True}
        problem(client.put("/v1/streams/s", json=sampler), 422, "invalid-request")


def test_what_was_taken_is_there_after_a_restart(start: Callable[..., TestClient]) -> None:
    client = start()
    for secret in (False, True):
        form = {"params": PARAMS.to_dict(), "secret_ids": secret}
        assert client.put(f"/v1/streams/s{secret:d}", json=form).status_code == 201
    before = {name: digest(client, post(client, ROWS, name=name), name) for name in ("s0", "s1")}
    client = start()
    for name, known in before.items():
        again = post(client, ROWS, name=name)
        assert counts(again) == {"already_retained": 4}
        assert digest(client, again, name) == known
