"""``format("decaysketch")`` against an aggregator that really runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from client.faults import Aggregator, aggregator
from delivery_logs import delivery_log

import decaysketch as ds
from decaysketch.ecm import ECMParams
from decaysketch.errors import ParameterError
from decaysketch.families import recipe_of
from decaysketch.spark._aggregator import Address
from decaysketch.spark.build import sketch_table
from decaysketch.spark.source import Posted, SketchDataSource, _Plan, post_rows
from decaysketch.spark.streaming import merge_into
from decaysketch.spark.tables import SketchTable
from decaysketch.tables import ColumnMapping, KeyedBuilder, merge_blobs, sketches_by_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARAMS = ds.SketchParams(max_weight=9, id_bits=40, capacity=100, seed=5, time_unit="us")
RECIPE = recipe_of(PARAMS)
MAPPING = ColumnMapping(
    time="event_us", fallback_time="arrival_us", ids=("source", "msg"), value="value",
    weight="weight",
)  # fmt: skip
LOG = delivery_log(900)


def built(by: tuple[str, ...] = ("path",), log: pa.Table = LOG) -> pa.Table:
    builder = KeyedBuilder(RECIPE, MAPPING, by)
    builder.add(log)
    return pa.Table.from_batches(builder.batches())


WHOLE = sketches_by_key(LOG, PARAMS, MAPPING)[()].to_bytes()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aggregator]:
    with aggregator(tmp_path_factory.mktemp("aggregator")) as one:
        yield one


@pytest.fixture(scope="module")
def spark(session: SparkSession) -> SparkSession:
    session.dataSource.register(SketchDataSource)
    return session


def written(rows: DataFrame, served: Aggregator, stream: str, **options: str) -> None:
    where = {"url": served.url, "stream": stream}
    rows.write.format("decaysketch").options(**where, **options).mode("append").save()


def read(spark: SparkSession, served: Aggregator, stream: str, **options: str) -> dict[Any, Any]:
    where = {"url": served.url, "stream": stream}
    rows = spark.read.format("decaysketch").options(**where, **options).load().collect()
    assert all(row.stream == stream for row in rows)
    assert len({row.source for row in rows}) == len(rows)
    for row in rows:
        assert RECIPE.decode(bytes(row.sketch)).digest() == row.digest
    return {row.source: bytes(row.sketch) for row in rows}


class TestWithSpark:
    def test_sketches_go_there_and_back(self, spark: SparkSession, served: Aggregator) -> None:
        served.create("sketches", **RECIPE.to_dict())
        rows = spark.createDataFrame(built()).repartition(3)
        expected = {str(r["path"]): r["sketch"] for r in built().to_pylist()}
        for _ in range(2):  # a job that is run again changes nothing
            written(rows, served, "sketches")
            assert read(spark, served, "sketches") == expected
        assert read(spark, served, "sketches", merged="true") == {None: WHOLE}
        some = read(spark, served, "sketches", sources='["3", "nobody"]')
        assert some == {"3": expected["3"]}

    def test_rows_of_a_log(self, spark: SparkSession, served: Aggregator) -> None:
        served.create("log", **RECIPE.to_dict())
        mapping = json.dumps(asdict(MAPPING))
        rows = spark.createDataFrame(LOG).repartition(3)
        written(rows, served, "log", mapping=mapping, sourceBy="path")
        expected = {str(r["path"]): r["sketch"] for r in built().to_pylist()}
        assert read(spark, served, "log") == expected
        written(rows, served, "log", mapping=mapping, source="all of it")
        assert read(spark, served, "log") == {**expected, "all of it": WHOLE}

    def test_raw_observations(self, spark: SparkSession, served: Aggregator) -> None:
        served.create("raw", **RECIPE.to_dict())
        log = pa.table(
            {
                "gateway": ["a", "b"] * 300, "value": [1.5, None, 2.5] * 200,
                "weight": [1, 2, 3] * 200, "time": list(range(600)), "id": list(range(600)),
            }
        )  # fmt: skip
        rows = spark.createDataFrame(log).repartition(2)
        written(rows, served, "raw", raw="true", sourceBy="gateway")
        sketch = ds.DecaySketch(PARAMS)
        values = log.column("value").to_numpy(zero_copy_only=False)
        sketch.update(
            np.ma.masked_invalid(values), log.column("weight").to_numpy(),
            log.column("time").to_numpy(), log.column("id").to_numpy(),
        )  # fmt: skip
        assert served.sketch("raw") == sketch.to_bytes()
        bad = log.set_column(2, "weight", pa.array([1] * 599 + [10]))
        with pytest.raises(Exception, match=r"1 of \d+ observations were refused.*weight"):
            written(spark.createDataFrame(bad), served, "raw", raw="true", source="c")

    def test_a_stream_of_batches(
        self, spark: SparkSession, served: Aggregator, tmp_path: Path
    ) -> None:
        served.create("batches", **RECIPE.to_dict())
        (tmp_path / "log").mkdir()
        for number in range(3):
            part = LOG.slice(number * 300, 300)
            pq.write_table(part, tmp_path / "log" / f"{number}.parquet")
        log = spark.readStream.schema(spark.createDataFrame(LOG.slice(0, 0)).schema)
        query = (
            log.option("maxFilesPerTrigger", 2)
            .parquet(f"file://{tmp_path / 'log'}")
            .writeStream.format("decaysketch")
            .options(url=served.url, stream="batches", source="s")
            .option("mapping", json.dumps(asdict(MAPPING)))
            .option("checkpointLocation", f"file://{tmp_path / 'checkpoint'}")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert served.sketch("batches") == WHOLE

    def test_batches_go_into_a_table_and_there(
        self, spark: SparkSession, served: Aggregator, tmp_path: Path
    ) -> None:
        served.create("both", **RECIPE.to_dict())
        post = post_rows(url=served.url, stream="both")
        merge = merge_into(tmp_path / "t", PARAMS, MAPPING, ["path"], query="q", also=[post])
        for number in range(2):
            merge(spark.createDataFrame(LOG.slice(number * 450, 450)), number)
        held = {
            sketch.key[0]: sketch.blob for sketch in SketchTable.open(tmp_path / "t").sketches()
        }
        assert held == {row["path"]: row["sketch"] for row in built().to_pylist()}
        state = served.client.get("/v1/streams/both").json()
        digests = {each["source"]: each["digest"] for each in state["sources"]}
        assert digests == {str(row["path"]): row["digest"] for row in built().to_pylist()}

    def test_a_key_is_found_by_the_tasks_and_shown_nowhere(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        (tmp_path / "key").write_text("ds_0_1\n")
        where = {"url": "http://127.0.0.1:9", "stream": "s", "keyFile": str(tmp_path / "key")}
        writer = spark.createDataFrame(built()).write.format("decaysketch").mode("append")
        with pytest.raises(Exception, match="failed 1 times: ConnectError"):
            writer.options(**where, attempts="1").save()
        with pytest.raises(Exception, match=r"(?i)the option apiKey would be in plans"):
            writer.options(**where, apiKey="x").save()


class TestOptions:
    def source(self, **options: str) -> SketchDataSource:
        from pyspark.sql.datasource import CaseInsensitiveDict

        return SketchDataSource(CaseInsensitiveDict(options))  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"stream": "s"}, "the option url is missing"),
            ({"url": "http://h"}, "the option stream is missing"),
            ({"url": "http://me:pw@h", "stream": "s"}, "has a user name or password"),
            ({"url": "h:8000", "stream": "s"}, "the option url is not an address"),
            ({"url": "http://h", "stream": "s", "id_key": "x"}, "would be in plans"),
            ({"url": "http://h", "stream": "s", "bearer": "x"}, "would be in plans"),
            ({"url": "http://h", "stream": "s", "attempts": "0"}, "attempts is 0"),
            ({"url": "http://h", "stream": "s", "timeoutS": "0"}, "timeoutS is 0"),
            ({"url": "http://h", "stream": "s", "timeoutS": "nan"}, "timeoutS is nan"),
            ({"url": "http://h", "stream": "s", "timeoutS": "inf"}, "timeoutS is inf"),
            ({"url": "http://h", "stream": "s", "TOKEN": "x"}, "would be in plans"),
            ({"url": "http://h", "stream": "s", "attempts": "many"}, "attempts or timeoutS"),
            ({"url": "http://h", "stream": "s", "merged": "yes"}, "expected true or false"),
            ({"url": "http://h", "stream": "s", "merged": "true", "sources": "a"}, "both given"),
            ({"url": "http://h", "stream": "s", "sources": "[1]"}, "a list of names"),
            ({"url": "http://h", "stream": "s", "sources": "[1"}, "is not JSON"),
        ],
    )
    def test_of_reading(self, options: dict[str, str], message: str) -> None:
        with pytest.raises(ParameterError, match=message):
            self.source(**options).reader(None)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("columns", "options", "message"),
        [
            (["a"], {}, "expected a column sketch, an option mapping, or raw=true"),
            (["sketch"], {"raw": "true"}, "one of them only"),
            (["sketch"], {"source": "a", "sourceBy": "b"}, "both given"),
            (["sketch"], {"sourceBy": "b"}, "no column 'b'; there are sketch"),
            (["id", "time", "value"], {"raw": "true", "source": "a"}, "no column 'weight'"),
            (["t"], {"mapping": '{"time": "t", "ids": ["m"]}', "source": "a"}, "no column 'm'"),
            (["t"], {"mapping": '{"time": "t"}'}, "expected an option source or sourceBy"),
            (["t"], {"mapping": "time"}, "expected the fields of a ColumnMapping"),
            (["t"], {"mapping": '{"tmie": "t"}'}, "expected the fields of a ColumnMapping"),
        ],
    )
    def test_of_writing(self, columns: list[str], options: dict[str, str], message: str) -> None:
        from pyspark.sql.types import StringType, StructField, StructType

        schema = StructType([StructField(name, StringType()) for name in columns])
        source = self.source(url="http://h", stream="s", **options)
        with pytest.raises(ParameterError, match=message):
            source.writer(schema, False)
        with pytest.raises(ParameterError, match='expected "append"'):
            source.writer(schema, True)

    def test_a_key_in_a_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        address = Address("http://h", "s", key_variable="DS_KEY")
        with (
            pytest.raises(ParameterError, match="no variable DS_KEY"),
            address.connected(),
        ):
            pass
        monkeypatch.setenv("DS_KEY", "ds_1_2\n")
        with address.connected() as connection:
            assert connection._client.headers["authorization"] == "Bearer ds_1_2"
        assert "ds_1_2" not in repr(address)

    def test_a_file_that_holds_no_key(self, tmp_path: Path) -> None:
        (tmp_path / "key").write_bytes("ds-1\nds-\xe9".encode())
        address = Address("http://h", "s", key_file=str(tmp_path / "key"))
        with (
            pytest.raises(ParameterError, match="key contains no API key") as caught,
            address.connected(),
        ):
            pass
        assert "ds-" not in str(caught.value)


class TestSites:
    """Families that count by site: states are delivered, not rows."""

    PARAMS = ECMParams(width=40, depth=3, slots=5, time_unit="us")
    VISITS = ColumnMapping(time="arrival_us", key=("msg",), source="source")

    def test_rows_of_which_a_task_may_have_a_part_are_refused(self) -> None:
        class Known:
            def recipe(self) -> Any:
                return recipe_of(TestSites.PARAMS)

        plan = _Plan(Address("http://localhost", "s"), "all of it", (), self.VISITS, raw=False)
        rows: Any = iter(LOG.to_batches())
        with pytest.raises(ParameterError, match=r"'ecm' counts by site.* sketch_table"):
            plan._post_log(Known(), rows, self.VISITS, Posted())  # type: ignore[arg-type]

    def test_sketches_of_whole_sites_are_delivered_once(
        self, spark: SparkSession, served: Aggregator
    ) -> None:
        served.create("visits", **recipe_of(self.PARAMS).to_dict())
        table = sketch_table(
            spark, spark.createDataFrame(LOG), self.PARAMS, self.VISITS, ["source"]
        ).cache()
        for _ in range(2):  # a job that is run again
            written(table, served, "visits", sourceBy="source")
        by_source = sketches_by_key(LOG, self.PARAMS, self.VISITS, ["source"])
        assert served.sketch("visits") == merge_blobs(
            sketch.to_bytes() for sketch in by_source.values()
        )
