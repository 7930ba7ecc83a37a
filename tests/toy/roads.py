"""Each road that a sketch can take, for the toy family; run by ``test_toy_family.py``, in a process
that has it registered. Nothing here is imported by other tests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError
from toy_family import COUNTS, TOY, ToyParams, ToyRecipe, ToySketch
from typer.testing import CliRunner

import decaysketch as ds
from api.app import create_app
from api.schemas import StreamCreation
from api.settings import Settings
from decaysketch.cli import app as program
from decaysketch.client import Sensor
from decaysketch.errors import ParameterError
from decaysketch.families import FAMILIES
from decaysketch.tables import ColumnMapping, merge_blobs, sketches_by_key
from tests.page.conftest import browser, serving, sync_api  # noqa: F401

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARAMS = ToyParams(max_weight=9, id_bits=48, capacity=40, seed=3, time_unit="s")
RECIPE = ToyRecipe(PARAMS)
CREATED = {"family": "toy", "params": {"max_weight": 9, "id_bits": 48, "capacity": 40, "seed": 3}}
OCTETS = {"content-type": "application/octet-stream"}
LOCAL = "http://localhost"  # the only name that a server which asks for no key answers to
NOW = 1_750_000_000
MAPPING = ColumnMapping(time="time", ids=("source", "number"), value="value", weight="weight")
COUNTED = {**CREATED, "family": "counts"}
COPIES = 2


def log(rows: int = 60) -> pa.Table:
    """A log with every row twice, of more observations than the sketch keeps."""
    number = np.tile(np.arange(rows), COPIES)
    return pa.table(
        {
            "source": [f"s{each % 3}" for each in number],
            "number": number,
            "time": NOW - 10 * rows + 10 * number,
            "value": number / 2,
            "weight": 1 + number % 9,
        }
    )


def build(*tables: pa.Table) -> ToySketch:
    """What all ends must hold: the sketch of logs, built row by row."""
    sketch = ToySketch(PARAMS)
    for row in (row for table in tables for row in table.to_pylist()):
        ids = ds.observation_ids(row["source"], row["number"], params=PARAMS)
        sketch.update(row["value"], row["weight"], row["time"], int(ids[0]))
    return sketch


LOG = log()
EXPECTED = build(LOG)
NEWEST = range(20, 60)  # the numbers of what is held
SUM = sum(1 + number % 9 for number in NEWEST)
ASKED = {"decay": {"kind": "window", "width": 400}, "now": NOW}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    settings = Settings(data=str(tmp_path / "data.sqlite3"))
    with TestClient(create_app(settings), base_url=LOCAL) as client:
        yield client


@pytest.fixture
def stream(client: TestClient) -> TestClient:
    assert client.put("/v1/streams/s", json=CREATED).status_code == 201
    return client


def held(client: Any) -> bytes:
    content: bytes = client.get("/v1/streams/s/sketch").content
    return content


def post(client: Any, sketch: ToySketch, source: str = "a") -> Any:
    return client.post(
        "/v1/streams/s/sketches",
        params={"source": source}, content=sketch.to_bytes(), headers=OCTETS,
    )  # fmt: skip


class TestService:
    def test_creates_a_stream_of_it(self, client: TestClient) -> None:
        assert client.put("/v1/streams/s", json=CREATED).status_code == 201
        assert client.put("/v1/streams/s", json=CREATED).status_code == 200
        state = client.get("/v1/streams/s").json()
        assert (state["family"], state["params"]) == ("toy", PARAMS.to_dict())
        (listed,) = client.get("/v1/streams").json()["streams"]
        assert (listed["name"], listed["family"]) == ("s", "toy")
        other = {**CREATED, "params": {**CREATED["params"], "capacity": 41}}  # type: ignore[dict-item]
        assert client.put("/v1/streams/s", json=other).status_code == 409

    def test_refuses_parameters_that_it_does_not_have(self, client: TestClient) -> None:
        for fault in ({"copies": 2}, {"max_weight": 0}, {"id_mix": "other"}, {"unknown": 1}):
            params = {"max_weight": 9, **fault}
            answer = client.put("/v1/streams/s", json={"family": "toy", "params": params})
            assert answer.status_code == 422, fault
        with pytest.raises(ValidationError, match="max_weight"):
            StreamCreation.model_validate({"family": "toy", "params": {"max_weight": None}})

    def test_describes_it_and_the_format(self, client: TestClient) -> None:
        api = client.get("/openapi.json").json()
        schemas = api["components"]["schemas"]
        assert schemas["ToyStream"]["properties"]["params"]["$ref"].endswith("/ToyStreamParams")
        told = client.get("/v1/families").json()["families"]["toy"]
        assert set(told["questions"]) == set(TOY.questions)
        assert told["input"]["weight_bound"] == "max_weight"
        assert schemas["SenmlMap"]["properties"]["format"]["const"] == "senml"
        webhook = api["paths"]["/v1/streams/{name}/lorawan"]["post"]["parameters"]
        (format,) = (each for each in webhook if each["name"] == "format")
        assert format["schema"]["enum"] == ["chirpstack", "tts", "senml"]
        assert format["description"].endswith(", or SenML.")

    def test_takes_sketches_in_any_order_and_twice(self, stream: TestClient) -> None:
        for source, part in (("b", LOG[30:]), ("a", LOG[:30]), ("b", LOG[30:])):
            answer = post(stream, build(part), source)
            assert answer.status_code == 200, answer.text
        assert held(stream) == EXPECTED.to_bytes()

    def test_takes_observations(self, stream: TestClient) -> None:
        rows = [
            {"id": [row["source"], row["number"]]}
            | {name: row[name] for name in ("time", "value", "weight")}
            for row in LOG.to_pylist()
        ]
        answer = stream.post(
            "/v1/streams/s/observations", params={"source": "a"}, json={"observations": rows}
        )
        assert answer.status_code == 200, answer.text
        assert answer.json()["retained"] == len(NEWEST)
        assert held(stream) == EXPECTED.to_bytes()
        again = stream.post(
            "/v1/streams/s/observations", params={"source": "a"}, json={"observations": rows}
        )
        assert again.json()["retained"] == 0

    def test_answers_every_question(self, stream: TestClient) -> None:
        post(stream, EXPECTED)
        questions = stream.get("/v1/families").json()["families"]["toy"]["questions"]
        queries = [
            {"aggregate": name, **ASKED}
            | {
                key: each["example"]
                for key, each in question["arguments"].items()
                if each["example"] is not None
            }
            for name, question in questions.items()
        ]
        answer = stream.post("/v1/streams/s/query", json={"queries": queries})
        assert answer.status_code == 200, answer.text
        found = {each["aggregate"]: each for each in answer.json()["answers"]}
        assert (found["sum"]["estimate"]["value"], found["sum"]["estimate"]["exact"]) == (SUM, True)
        assert found["count"]["estimate"]["value"] == len(NEWEST)

    def test_starts_again_where_it_was(self, tmp_path: Path) -> None:
        place = {"data": str(tmp_path / "data.sqlite3")}
        for turn in range(2):
            with TestClient(create_app(Settings(**place)), base_url=LOCAL) as client:
                if not turn:
                    client.put("/v1/streams/s", json=CREATED)
                    post(client, EXPECTED)
                assert held(client) == EXPECTED.to_bytes()

    def test_keeps_a_secret_of_its_ids(self, client: TestClient) -> None:
        created = client.put("/v1/streams/s", json={**CREATED, "secret_ids": True})
        assert created.json()["secret_ids"] is True
        rows = [{"id": "key", "time": NOW, "value": 1.0}]
        posted = client.post(
            "/v1/streams/s/observations", params={"source": "a"}, json={"observations": rows}
        )
        assert posted.json()["retained"] == 1
        assert post(client, EXPECTED).status_code == 403  # raw observations only


class TestPrograms:
    def test_build_merge_query_and_inspect(self, tmp_path: Path) -> None:
        parts = []
        for number, part in enumerate((LOG[:70], LOG[50:])):
            pq.write_table(part, tmp_path / f"{number}.parquet")
            parts.append(str(tmp_path / f"{number}.sketch"))
            run(
                "build", str(tmp_path / f"{number}.parquet"), "--out", parts[-1],
                "--family", "toy", "--max-weight", "9", "--id-bits", "48", "--capacity", "40",
                "--seed", "3", "--id-columns", "source,number", "--weight-column", "weight",
            )  # fmt: skip
        whole = tmp_path / "whole.sketch"
        run("merge", *parts, "--out", str(whole))
        assert whole.read_bytes() == EXPECTED.to_bytes()
        (facts,) = run("inspect", str(whole))
        assert (facts["family"], facts["rows"]) == ("toy", len(NEWEST))
        told = json.dumps(
            run("query", str(whole), "sum", "--decay", "window(400)", "--now", str(NOW))
        )
        assert f'"value": {float(SUM)}' in told or f'"value": {SUM}' in told

    def test_say_which_options_it_has(self, tmp_path: Path) -> None:
        done = CliRunner().invoke(
            program, ["build", "x.csv", "--out", "y", "--family", "toy", "--copies", "2"]
        )
        assert done.exit_code != 0
        assert "--copies does not apply to the family toy" in " ".join(done.output.split())

    def test_batches_of_many_keys(self) -> None:
        found = sketches_by_key(LOG, RECIPE, MAPPING, ["source"])
        assert len(found) == 3
        blobs = [sketch.to_bytes() for sketch in found.values()]
        assert merge_blobs(blobs) == EXPECTED.to_bytes()


def run(*arguments: str) -> Any:
    done = CliRunner().invoke(program, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_sensor_sends_it(tmp_path: Path) -> None:
    with serving(tmp_path / "data.sqlite3") as (url, http):
        http.put("/v1/streams/s", json=CREATED).raise_for_status()
        with Sensor(url, "s", "a", spool=tmp_path / "spool", flush_rows=25) as sensor:
            assert sensor.recipe == RECIPE
            for row in LOG.to_pylist():
                ids = ds.observation_ids(row["source"], row["number"], params=PARAMS)
                sensor.update([row["value"]], [row["weight"]], [row["time"]], ids)
            sensor.flush()
        assert held(http) == EXPECTED.to_bytes()


def test_the_page_shows_it(tmp_path: Path, browser: Any) -> None:  # noqa: F811
    with serving(tmp_path / "data.sqlite3") as (url, http):
        http.put("/v1/streams/s", json=CREATED).raise_for_status()
        post(http, build(LOG[30:60])).raise_for_status()  # of which it discards nothing
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(f"{url}/#stream=s")
        expect = sync_api.expect
        expect(page.locator("#stream-facts")).to_contain_text("family toy")
        expect(page.locator('tr[data-stream="s"]')).to_contain_text("toy")
        expect(page.locator("#decay-control")).to_be_visible()
        expect(page.locator("#quantile-panel")).to_be_visible()
        expect(page.locator("#figures")).to_contain_text("Decayed count")
        assert not faults
        context.close()


# -------------------------------------------------------------------------------------------- spark


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    from spark_jobs.java import JavaNotFoundError
    from spark_jobs.session import spark_session

    try:
        with spark_session("a toy family") as session:
            yield session
    except JavaNotFoundError as fault:
        pytest.skip(str(fault))


@pytest.mark.spark
class TestSpark:
    def test_builds_a_table_of_it(self, session: SparkSession, tmp_path: Path) -> None:
        from decaysketch.spark.build import sketch_table

        pq.write_table(LOG, tmp_path / "log.parquet")
        frame = session.read.parquet(str(tmp_path / "log.parquet"))
        table = sketch_table(session, frame, RECIPE, MAPPING, ["source"])
        blobs = [bytes(row["sketch"]) for row in table.collect()]
        assert len(blobs) == 3
        assert merge_blobs(blobs) == EXPECTED.to_bytes()

    def test_builds_merges_and_asks_in_sql(self, session: SparkSession, tmp_path: Path) -> None:
        from decaysketch.spark import register

        register(session, streams={"toys": RECIPE})
        pq.write_table(LOG, tmp_path / "log.parquet")
        session.read.parquet(str(tmp_path / "log.parquet")).createOrReplaceTempView("log")
        (row,) = session.sql(
            f"""
            WITH built AS (
                SELECT source, sketch_build('toys', value, weight, time, source, number) AS sketch
                FROM log GROUP BY source
            ), merged AS (SELECT sketch_merge(sketch) AS sketch FROM built)
            SELECT sketch, decayed_sum(sketch, 'window(400)', {NOW}) AS asked,
                   sketch_info(sketch) AS info, sketch_union(sketch, sketch) AS twice
            FROM merged
            """
        ).collect()
        assert bytes(row["sketch"]) == bytes(row["twice"]) == EXPECTED.to_bytes()
        assert (row["asked"]["value"], row["asked"]["exact"]) == (SUM, True)
        assert row["info"]["family"] == "toy"


# -------------------------------------------------------------- a family that does not promise it


@pytest.mark.skipif("TOY_COUNTS" not in os.environ, reason="it is not registered here")
class TestWithoutThePromise:
    WHY = "has no idempotent merge"

    def test_a_stream_of_it_is_refused(self, client: TestClient) -> None:
        answer = client.put("/v1/streams/s", json=COUNTED)
        assert answer.status_code == 422
        assert self.WHY in answer.json()["detail"]
        assert client.get("/v1/streams").json()["streams"] == []
        told = client.get("/v1/families").json()["families"]["counts"]
        assert told["promises"]["idempotent"] is False

    def test_so_is_a_batch_that_merges(self) -> None:
        blob = COUNTS.example.empty().to_bytes()
        with pytest.raises(ParameterError, match=self.WHY):
            merge_blobs([blob, blob])

    def test_so_is_sql(self) -> None:
        from decaysketch.tables.sql import aggregates
        from decaysketch.tables.sql import queries as questions

        blob = COUNTS.example.empty().to_bytes()
        blobs = pa.array([blob], pa.binary())
        with pytest.raises(questions.FunctionError, match=self.WHY):
            aggregates.merge("sketch_merge", (), iter([blobs, blobs]))
        with pytest.raises(questions.FunctionError, match=self.WHY):
            questions.unite("sketch_union", (), [blobs, blobs])

    def test_so_is_a_sensor(self, tmp_path: Path) -> None:
        with pytest.raises(ParameterError, match=self.WHY):
            Sensor("http://127.0.0.1:9", "s", "a", spool=tmp_path, recipe=COUNTS.example)


def test_no_other_family_is_registered() -> None:
    """Which would say nothing of a family that is new."""
    assert set(FAMILIES) <= {
        "decay",
        "integral",
        "sum",
        "median",
        "ecm",
        "extremes",
        "series",
        "toy",
        "counts",
    }
