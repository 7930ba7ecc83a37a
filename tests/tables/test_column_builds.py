"""Streams with columns: every build interface gives the same sketch, and rejects the same rows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import pytest
from support.rows import for_each
from typer.testing import CliRunner

import decaysketch as ds
import decaysketch.duckdb
import decaysketch.polars
from decaysketch.cli import app
from decaysketch.core.log_columns import FIELDS, LogColumnArguments
from decaysketch.families import decode
from decaysketch.series import SeriesParams, SeriesSketch
from decaysketch.tables import ColumnMapping, KeyedBuilder, partition_merger, sketches_by_key
from decaysketch.tables.merging import TALLY_FIELDS
from decaysketch.tables.records import read_columns

AT = 1_790_000_000
ROWS = 300
DECLARED = "temp float64, site text, fw text, ok bool"
PARAMS = ds.SketchParams(accuracy="2%", time_unit="s", columns=DECLARED)
MAPPING = ColumnMapping(
    time="at", ids=("dev", "n"), columns={"temp": "t_degc", "site": "site", "fw": "fw", "ok": "ok"}
)
LOG = pa.table(
    {
        "at": [AT + 60 * (k // 2) for k in range(ROWS)],
        "dev": [f"d{k % 7}" for k in range(ROWS)],
        "n": list(range(ROWS)),
        "t_degc": [None if k % 11 == 0 else 20.0 + k % 5 / 4 for k in range(ROWS)],
        "site": [None if k % 13 == 0 else f"site-{k % 3}" for k in range(ROWS)],
        "fw": ["2.1" if k % 2 else "2.0" for k in range(ROWS)],
        "ok": [k % 10 > 0 for k in range(ROWS)],
    }
)
QUERY = "mean(temp) by site where fw == '2.1' and ok"


def expected() -> ds.DecaySketch:
    sketch = ds.DecaySketch(PARAMS)
    ids = ds.observation_ids(LOG["dev"].to_pylist(), LOG["n"].to_numpy(), params=PARAMS)
    columns = {name: LOG[column].to_pylist() for name, column in MAPPING.columns}
    sketch.update(columns, 1, LOG["at"].to_numpy(), ids)
    return sketch


def written(folder: Path, format: str, table: pa.Table = LOG) -> Path:
    path = folder / f"log.{format}"
    if format == "parquet":
        pa.parquet.write_table(table, path)
    elif format == "csv":
        pa.csv.write_csv(table, path)
    elif format == "arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    else:
        lines = ({k: v for k, v in row.items() if v is not None} for row in table.to_pylist())
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def command(*arguments: Any, status: int = 0) -> Any:
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert done.exit_code == status, done.output
    return done


def by_command(format: str, columns: str) -> Callable[[Path], bytes]:
    def build(folder: Path) -> bytes:
        log, out = written(folder, format), folder / "out.sketch"
        options = ("--time-column", "at", "--id-columns", "dev,n", "--columns", columns)
        command("build", log, "--out", out, *options, "--overwrite")
        return out.read_bytes()

    return build


def first(table: pa.Table | pl.DataFrame) -> bytes:
    blob = (table if isinstance(table, pa.Table) else table.to_arrow())["sketch"][0].as_py()
    assert isinstance(blob, bytes)
    return blob


def as_texts(table: pa.Table) -> pa.Table:
    """Every cell a text, as in a data frame from a CSV file. Names of rows stay numbers."""
    return pa.table({name: table[name] if name in ("dev", "n") else
                     table[name].cast(pa.string()) for name in table.column_names})  # fmt: skip


def in_duckdb(relation: str) -> Any:
    with duckdb.connect() as connection:
        connection.register("log", LOG)
        return decaysketch.duckdb.build(connection.sql(relation), PARAMS, MAPPING)


RENAMED, INFERRED = (
    "temp=t_degc float64, site text, fw text, ok bool",
    "temp=t_degc,site,fw text,ok",
)
FRAME: dict[str, Any] = {"time": "at", "id": ("dev", "n"), "columns": dict(MAPPING.columns)}
NAMED = LOG.rename_columns(["at", "dev", "n", "temp", "site", "fw", "ok"])

BUILDS: dict[str, Callable[[Path], bytes]] = {
    **{
        f"command, {format}, {kind}": by_command(format, columns)
        for format in ("csv", "ndjson", "parquet", "arrow")
        for kind, columns in (("declared", RENAMED), ("inferred", INFERRED))
    },
    "from_frame of Arrow": lambda _: ds.DecaySketch.from_frame(
        LOG, MAPPING, params=PARAMS).to_bytes(),
    "from_frame by keywords": lambda _: ds.DecaySketch.from_frame(
        LOG, params=PARAMS, **FRAME).to_bytes(),
    "from_frame of columns by their names": lambda _: ds.DecaySketch.from_frame(
        NAMED, params=PARAMS, time="at", id=("dev", "n")).to_bytes(),
    "from_frame of polars": lambda _: ds.DecaySketch.from_frame(
        pl.DataFrame(LOG), MAPPING, params=PARAMS).to_bytes(),
    "from_frame of pandas": lambda _: ds.DecaySketch.from_frame(
        LOG.to_pandas(), MAPPING, params=PARAMS).to_bytes(),
    "from_frame of dictionaries": lambda _: ds.DecaySketch.from_frame(
        LOG.set_column(4, "site", LOG["site"].dictionary_encode()), MAPPING, params=PARAMS
    ).to_bytes(),
    "from_frame of texts": lambda _: ds.DecaySketch.from_frame(
        as_texts(LOG), MAPPING, params=PARAMS).to_bytes(),
    "from_frame without params": lambda _: ds.DecaySketch.from_frame(
        LOG, MAPPING, accuracy="2%", time_unit="s").to_bytes(),
    "duckdb.build": lambda _: first(in_duckdb("FROM log")),
    "polars.build": lambda _: first(decaysketch.polars.build(pl.DataFrame(LOG), PARAMS, MAPPING)),
    "polars.build, lazy, by keywords": lambda _: first(
        decaysketch.polars.build(pl.LazyFrame(LOG), PARAMS, **FRAME)),
    "sketches_by_key": lambda _: sketches_by_key(LOG, PARAMS, MAPPING)[()].to_bytes(),
    "sketches_by_key, merged": lambda _: ds.merge(
        list(sketches_by_key(LOG, PARAMS, MAPPING, ["fw"]).values())).to_bytes(),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::decaysketch.DisagreeingCopiesWarning")
def hourly_means() -> dict[tuple[str | None, str], float]:
    """The exact mean by site and hour of rows that are ok."""
    found: dict[tuple[str | None, str], list[float]] = {}
    for row in LOG.to_pylist():
        if row["ok"] and row["t_degc"] is not None:
            key = row["site"], str(row["at"] // 3_600 * 3_600)
            found.setdefault(key, []).append(row["t_degc"])
    return {key: sum(values) / len(values) for key, values in found.items()}


def test_a_table_for_each_site_and_hour_in_duckdb() -> None:
    """From one table with a sketch for each firmware, as the documentation shows it."""
    with duckdb.connect() as connection:
        decaysketch.duckdb.register(connection)
        connection.register("log", LOG)
        sketches = decaysketch.duckdb.build(connection.sql("FROM log"), PARAMS, MAPPING, by="fw")
        assert len(sketches) == 2
        query = """
            SELECT r.by[1].value AS site, r.by[2].value AS hour, r.value
            FROM (SELECT unnest(decayed_query(sketch_merge(list(sketch)), 'none', $now,
                      'mean(temp) by site, bucket(time, ''1h'') where ok')) AS r FROM sketches)
        """
        rows = connection.execute(query, {"now": LOG["at"][-1].as_py()}).fetchall()
    assert hourly_means() == pytest.approx({(site, hour): value for site, hour, value in rows})


@for_each("name", BUILDS)
def test_every_build_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    assert BUILDS[name](tmp_path) == expected().to_bytes()


def test_a_query_groups_by_a_column(tmp_path: Path) -> None:
    blob = expected().to_bytes()
    (tmp_path / "expected.sketch").write_bytes(blob)
    done = command("query", tmp_path / "expected.sketch", QUERY, "--json")
    found = {each["by"]["site"]: each["value"] for each in json.loads(done.stdout)["answers"]}
    rows = LOG.filter(pa.compute.field("fw") == "2.1").filter(pa.compute.field("ok"))
    means = rows.group_by("site").aggregate([("t_degc", "mean")]).to_pylist()
    assert found == pytest.approx({each["site"]: each["t_degc_mean"] for each in means})
    [facts] = json.loads(command("inspect", tmp_path / "expected.sketch", "--json").stdout)
    assert facts["columns"]["site"] == {"type": "text", "rows": 276, "texts": 3, "text_bytes": 18}


BAD = {
    "temp": ("oops", "t_degc[1] is 'oops'; expected a number"),
    "site": ("x" * 1_100, "site[1] has 1100 bytes"),
    "ok": ("perhaps", "ok[1] is 'perhaps'; expected true or false"),
}


@for_each("name", BAD)
def test_a_bad_cell_rejects_only_its_row(name: str, tmp_path: Path) -> None:
    column, (cell, reason) = dict(MAPPING.columns)[name], BAD[name]
    texts = as_texts(LOG.slice(0, 3))
    place = texts.column_names.index(column)
    cells = [texts[column][0].as_py(), cell, texts[column][2].as_py()]
    texts = texts.set_column(place, column, pa.array(cells))
    with pytest.raises(ds.ObservationError) as fault:
        ds.DecaySketch.from_frame(texts, MAPPING, params=PARAMS)
    assert str(fault.value).startswith(reason)
    counted = KeyedBuilder(PARAMS, MAPPING, refused="count")
    counted.add(texts)
    assert (counted.totals["rows"], counted.totals["refused"]) == (2, 1)
    log, kept = written(tmp_path, "csv", texts), tmp_path / f"{name}.ndjson"
    given = ("--time-column", "at", "--id-columns", "dev,n", "--columns", RENAMED)
    options = (*given, "--out", tmp_path / f"{name}.sketch", "--quarantine", kept)
    command("build", log, *options)
    [line] = map(json.loads, kept.read_text().splitlines())
    assert (line["row"], line["column"]) == (1, column)
    sketch: Any = decode((tmp_path / f"{name}.sketch").read_bytes())
    assert sketch.count("none").value == 2


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a value beside columns": ({"value": "t_degc"}, "value is 't_degc'; expected None"),
    "an unknown name": ({"columns": {"tmp": "t_degc"}}, "columns has 'tmp'; the stream has the"),
    "a column that is not there": ({"columns": {"temp": "t"}}, "no column 't'; there are"),
    "a type that no cast has": ({"casts": {"n": "float64"}}, "casts has 'float64' for 'n'"),
    "a name twice": ({"columns": ("temp", "temp")}, "expected each name once"),
    "a misspelled argument": ({"time_zon": "UTC"}, "did you mean 'time_zone'"),
    "none of the declared columns": ({"columns": ()}, "no declared column is in the log"),
    "times": ({"columns": {"temp": "when"}}, "is of type timestamp"),
}


@for_each("name", REFUSED)
def test_what_does_not_fit_is_one_error_on_every_interface(name: str) -> None:
    other = LOG.rename_columns(["at", "dev", "n", "t_degc", "a", "b", "c"])
    other = other.append_column("when", LOG["at"].cast(pa.timestamp("s")))
    changed, reason = REFUSED[name]
    given: Any = FRAME | {"columns": {"temp": "t_degc"}} | changed
    builds: list[Callable[[], Any]] = [
        lambda: ds.DecaySketch.from_frame(other, params=PARAMS, **given),
        lambda: decaysketch.duckdb.build(other, PARAMS, **given),
        lambda: decaysketch.polars.build(pl.DataFrame(other), PARAMS, **given),
    ]
    for build in builds:
        with pytest.raises((ds.ParameterError, ds.ObservationError)) as fault:
            build()
        assert reason in str(fault.value)


def test_arguments_are_the_fields_of_a_mapping() -> None:
    fields = set(ColumnMapping.__dataclass_fields__)
    assert {FIELDS.get(name, name) for name in LogColumnArguments.__annotations__} == fields
    options = [each.metadata.get("option") for each in dataclasses.fields(ColumnMapping)]
    assert len(set(options)) == len(fields)
    assert ColumnMapping.from_dict(json.loads(json.dumps(_form(MAPPING)))) == MAPPING
    with pytest.raises(ds.ParameterError, match="mapping is given, and so is time"):
        ds.DecaySketch.from_frame(LOG, MAPPING, params=PARAMS, time="at")


def _form(mapping: ColumnMapping) -> dict[str, Any]:
    return {name: getattr(mapping, name) for name in ColumnMapping.__dataclass_fields__}


def test_columns_as_programs_read_them() -> None:
    read = {
        "temp, site": ({"temp": "temp", "site": "site"}, {}),
        "t float64,a b=c d text": ({"t": "t", "a b": "c d"}, {"t": "float64", "a b": "text"}),
        "text": ({"text": "text"}, {}),
    }  # fmt: skip
    for given, expected_parts in read.items():
        assert read_columns(given) == expected_parts
    for given in ("a,,b", "a=", "a,a"):
        with pytest.raises(ds.ParameterError):
            read_columns(given)


def test_a_number_in_a_text_of_ndjson_does_not_depend_on_its_neighbours(tmp_path: Path) -> None:
    blobs = set()
    for fill in ([1, 2, 3.5, True], ["1", "2", "3.5", "true"], [1, "2", 3.5, True]):
        log, out = tmp_path / "log.ndjson", tmp_path / "out.sketch"
        lines = [{"time": AT + k, "id": k, "site": site} for k, site in enumerate(fill)]
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
        command("build", log, "--out", out, "--columns", "site text", "--overwrite")
        blobs.add(out.read_bytes())
    log.write_text("".join(json.dumps(line) + "\n" for line in reversed(lines)))
    command("build", log, "--out", out, "--columns", "site text", "--overwrite")
    assert blobs == {out.read_bytes()}


def test_a_declared_text_stays_one_whatever_it_looks_like(tmp_path: Path) -> None:
    log, out = tmp_path / "log.csv", tmp_path / "by"
    log.write_text(f'time,id,zone,temp,fee\n{AT},1,01,20.5,"1,5"\n{AT},2,02,21.5,"2,5"\n')
    columns = ("--columns", "temp, zone text, fee text")
    done = command("build", log, "--out", out, *columns, "--by", "zone")
    assert "warning" not in done.stderr
    assert sorted(each.name for each in out.glob("*.sketch")) == ["01.sketch", "02.sketch"]
    sketch: Any = decode((out / "01.sketch").read_bytes())
    assert sketch.total("none", of="temp", where="zone == '01' and fee == '1,5'").value == 20.5


def test_attributes_of_series_are_filled_as_columns_are(tmp_path: Path) -> None:
    params = SeriesParams(attributes="site, fw")
    given: dict[str, Any] = {"time": "at", "id": "dev", "value": "t_degc"}
    rows = LOG.filter(pa.compute.is_valid(LOG["t_degc"]))
    sketch = SeriesSketch(params)
    ids = ds.observation_ids(rows["dev"].to_pylist(), params=params)
    texts = {name: rows[name].to_pylist() for name in ("site", "fw")}
    sketch.update(rows["t_degc"].to_numpy(), 1, rows["at"].to_numpy(), ids, attributes=texts)
    blob = sketch.to_bytes()
    assert SeriesSketch.from_frame(rows, params=params, **given).to_bytes() == blob
    renamed = rows.rename_columns(["at", "dev", "n", "t_degc", "place", "fw", "ok"])
    mapping = ColumnMapping(
        time="at", ids=("dev",), value="t_degc", columns={"site": "place", "fw": "fw"}
    )
    assert SeriesSketch.from_frame(renamed, mapping, params=params).to_bytes() == blob
    options = ("--time-column", "at", "--id-columns", "dev", "--value-column", "t_degc")
    options += ("--family", "series", "--attributes", "site, fw", "--text-columns", "fw")
    for columns in ((), ("--columns", "site=place, fw")):
        table, out = renamed if columns else rows, tmp_path / "series.sketch"
        log = written(tmp_path, "csv", table)
        command("build", log, "--out", out, *options, *columns, "--overwrite")
        assert out.read_bytes() == blob
    with pytest.raises(ds.ParameterError, match="columns has 'place'; the stream has the columns"):
        SeriesSketch.from_frame(renamed, params=params, **given, columns=["place"])


def uneven_log(seed: int, rows: int = 900) -> pa.Table:
    """Rows of keys with one row to some hundred, with duplicates that disagree, nulls, texts of one
    beginning and beyond ASCII, and numbers of 32 bits.
    """
    draw = np.random.default_rng(seed)
    texts = np.array(["", "a", "ab", "ab" + 40 * "x", "\u00e9", "\u5f20\U0001f600", None], object)
    key = np.minimum(draw.geometric(0.02, rows), 60)
    ids = draw.integers(0, 600, rows)
    return pa.table(
        {
            "key": [f"k{each}" for each in key],
            "at": AT + ids // 3,
            "n": ids,
            "x": np.where(draw.random(rows) < 0.1, np.nan, draw.normal(20, 9, rows).round(2)),
            "y": draw.normal(20, 9, rows).round(1).astype(np.float32).astype(np.float64),
            "ok": [None if each < 0.2 else bool(each < 0.6) for each in draw.random(rows)],
            "a": draw.choice(texts, rows),
            "b": np.where(key < 3, "one", draw.choice(texts, rows)),
            "w": draw.integers(0, 3, rows),
            "rev": [None if each < 0.5 else int(each * 9) for each in draw.random(rows)],
        }
    )


@pytest.mark.parametrize("capacity", [4, 500])
def test_many_keys_with_columns_equal_a_sketch_for_each(capacity: int) -> None:
    """Built together, and merged together. Sketches that are not simple are merged one by one."""
    columns = "x float64, y float64, ok bool, a text, b text, rev int64"
    params = ds.SketchParams(
        max_weight=2, id_bits=40, capacity=capacity, time_unit="s", columns=columns, revision="rev"
    )
    names = {name: name for name, _ in params.columns}
    mapping = ColumnMapping(time="at", ids=("n",), weight="w", columns=names)
    logs, expected, batches = [uneven_log(seed) for seed in (1, 2)], {}, []
    for log in logs:
        builder = KeyedBuilder(params, mapping, ["key"])
        for batch in log.to_batches(max_chunksize=250):
            builder.add(batch)
        own = {}
        for key in set(log["key"].to_pylist()):
            rows = log.filter(pc.equal(log["key"], key))
            own[key] = ds.DecaySketch(params)
            ids = ds.observation_ids(rows["n"].to_numpy(), params=params)
            values = {name: rows[name].to_pylist() for name in names}
            own[key].update(values, rows["w"].to_numpy(), rows["at"].to_numpy(), ids)
        written = pa.Table.from_batches(builder.batches())
        assert bytes_by_key(written) == {key: (s.to_bytes(), s.digest()) for key, s in own.items()}
        assert {key: sketch for (key,), sketch in builder.sketches.items()} == own
        if log is logs[0]:
            own["k1"].withdraw(where="ok")  # stored elsewhere, and without its parameters
            place = written["key"].to_pylist().index("k1")
            blobs = written["sketch"].to_pylist()
            blobs[place] = own["k1"].to_bytes()
            written = written.set_column(
                written.schema.get_field_index("sketch"), "sketch", pa.array(blobs, pa.binary())
            )
        batches += written.to_batches(max_chunksize=7)
        for key, sketch in own.items():
            expected[key] = expected[key] | sketch if key in expected else sketch
    partials = pa.Table.from_batches(batches).sort_by("key")
    merged = pa.Table.from_batches(
        partition_merger(["key"], tally=True)(iter(partials.to_batches(max_chunksize=11)))
    )
    assert bytes_by_key(merged) == {key: (s.to_bytes(), s.digest()) for key, s in expected.items()}
    tallies = zip(*(merged[field.name].to_pylist() for field in TALLY_FIELDS), strict=True)
    for key, tally in zip(merged["key"].to_pylist(), tallies, strict=True):
        assert tally == tuple(expected[key].snapshot().tally())
    blob = bytearray(partials["sketch"][3].as_py())
    blob[-9] ^= 1
    bad = partials.slice(3, 1).set_column(
        partials.schema.get_field_index("sketch"), "sketch", pa.array([bytes(blob)], pa.binary())
    )
    with pytest.raises(ds.CorruptSketchError):
        list(partition_merger(["key"])(iter(bad.to_batches())))


def bytes_by_key(table: pa.Table) -> dict[str, tuple[bytes, str]]:
    columns = (table[name].to_pylist() for name in ("key", "sketch", "digest"))
    return {key: (blob, digest) for key, blob, digest in zip(*columns, strict=True)}
