"""Files in the dialects that loggers, spreadsheets and people write: each gives its right count and
total, or one line that says what is wrong and what to do."""

from __future__ import annotations

import bz2
import datetime
import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import decaysketch as ds
from decaysketch.cli import app
from decaysketch.families import decode

AT = 1_780_000_000
HEADING = "dev,seq,ts,v"
COLUMNS = ("--time-column", "ts", "--id-columns", "dev,seq", "--value-column", "v", "--time-unit")
ROWS = 2, 42.0  # of the two rows below


def csv(rows: str = f"a,1,{AT},20.5\na,2,{AT + 60},21.5\n", heading: str = HEADING) -> str:
    return f"{heading}\n{rows}"


def stamped(first: str, second: str, separator: str = ",") -> str:
    cells = [["dev", "seq", "ts", "v"], ["a", "1", first, "20.5"], ["a", "2", second, "21.5"]]
    return "".join(separator.join(row) + "\n" for row in cells)


def valued(first: str, second: str, separator: str = ",") -> str:
    cells = [
        ["dev", "seq", "ts", "v"],
        ["a", "1", f"{AT}", first],
        ["a", "2", f"{AT + 60}", second],
    ]
    return "".join(separator.join(row) + "\n" for row in cells)


def long_csv(odd: str, *, note: bool = False) -> str:
    """Three megabytes of sound rows, and one row that is not like them."""
    pad = "x" * 60
    rows = [f"d{n % 7},{n},{AT + n},{n % 5}" + f",{pad}" for n in range(40_000)]
    return f"{HEADING},note\n" + "\n".join(rows) + f"\n{odd}\n"


LONG = 40_000, 80_000.0


def zipped(*members: tuple[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members:
            archive.writestr(name, text)
    return out.getvalue()


def parquet(**columns: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def arrow(table: pa.Table, stream: bool = False) -> bytes:
    out = io.BytesIO()
    with (pyarrow.ipc.new_stream if stream else pyarrow.ipc.new_file)(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def twice_named() -> bytes:
    out = io.BytesIO()
    columns = [pa.array([*"ab"]), pa.array([1, 2]), pa.array([AT, AT]), pa.array([1.0, 2.0])]
    pq.write_table(
        pa.Table.from_arrays([*columns, columns[-1]], ["dev", "seq", "ts", "v", "v"]), out
    )
    return out.getvalue()


def ndjson(*rows: Any) -> str:
    return "".join(row + "\n" if isinstance(row, str) else json.dumps(row) + "\n" for row in rows)


def reading(seq: int = 1, ts: Any = AT, v: Any = 20.5, dev: Any = "a") -> dict[str, Any]:
    return {"dev": dev, "seq": seq, "ts": ts, "v": v}


def long_ndjson(*odd: Any) -> str:
    pad = "x" * 100
    sound = [reading(n, AT + n, n % 5) | {"note": pad} for n in range(40_000)]
    return ndjson(*sound, *odd)


TYPED: dict[str, Any] = {"dev": ["a", "a"], "seq": [1, 2], "ts": [AT, AT + 60], "v": [20.5, 21.5]}
TABLE = pa.table(TYPED)


class Case(NamedTuple):
    """A file.

    Attributes:
        content: text, bytes, or what makes them.
        expected: count and total; or a part of the one line that refuses it.
        options: of ``build``, beside the columns.
        quarantined: rows that are kept aside; None: there is no quarantine.
        warned: a part of a warning.
        suffix: of the file.
        oldest: time of the oldest row.
    """

    content: str | bytes | Callable[[], str | bytes]
    expected: tuple[int, float] | str
    options: tuple[str, ...] = ()
    quarantined: int | None = None
    warned: str = ""
    suffix: str = ".csv"
    oldest: int | None = AT


BERLIN = ("--time-zone", "Europe/Berlin")
UTC = ("--time-zone", "UTC")

CASES: dict[str, Case] = {
    # ------------------------------------------------------------------------- dialects of CSV
    "plain": Case(csv(), ROWS),
    "semicolons": Case(csv().replace(",", ";"), ROWS),
    "tabs": Case(csv().replace(",", "\t"), ROWS, suffix=".tsv"),
    "pipes": Case(csv().replace(",", "|"), ROWS),
    "a separator that is said": Case(csv().replace(",", "!"), ROWS, ("--separator", "!")),
    "a separator that is not found": Case(
        csv().replace(",", "!"), "has no column 'ts'; it has dev!seq!ts!v"
    ),
    "no separator": Case(csv(), "expected one character", ("--separator", ";;")),
    "line ends of Windows": Case(csv().replace("\n", "\r\n"), ROWS),
    "no line end at the end": Case(csv().rstrip(), ROWS),
    "empty lines between": Case(csv().replace("\n", "\n\n"), ROWS),
    "quoted cells": Case(csv(f'"a","1","{AT}","20.5"\n"a","2","{AT + 60}","21.5"\n'), ROWS),
    "a separator in quotes": Case(csv(f'"a,b",1,{AT},20.5\n"a,b",2,{AT + 60},21.5\n'), ROWS),
    "a line end in quotes": Case(csv(f'"a\nb",1,{AT},20.5\n"a\nb",2,{AT + 60},21.5\n'), ROWS),
    "spaces in the heading": Case(csv(heading="dev, seq, ts, v"), ROWS),
    "a separator at the end of all lines": Case(csv().replace("\n", ",\n"), ROWS),
    "a separator at the end of rows": Case(
        csv(f"a,1,{AT},20.5,\na,2,{AT + 60},21.5,\n"), ROWS
    ),
    "comments above the heading": Case(f"# a logger\n# firmware 1.2, 2026\n\n{csv()}", ROWS),
    "titles above the heading": Case(f"Station,Berlin\nExported,2026-06-01\n{csv()}", ROWS),
    "columns in another order": Case(
        f"v,note,ts,seq,dev\n20.5,x,{AT},1,a\n21.5,y,{AT + 60},2,a\n", ROWS
    ),
    # -------------------------------------------------------------------------------- numbers
    "decimal commas": Case(valued("20,5", "21,5", ";"), ROWS, warned="--decimal ','"),
    "decimal commas in quotes": Case(valued('"20,5"', '"21,5"'), ROWS, warned="--decimal ','"),
    "decimal commas that are said": Case(
        valued("1,500", "2,5", ";"), (2, 4.0), ("--decimal", ",")
    ),
    "what may be commas of either kind": Case(
        valued("1,500", "2,500", ";"), "looks like a number; give the number format with "
                                       "--decimal and --thousands"
    ),
    "thousands of Germany": Case(valued("1.020,5", "21,5", ";"), (2, 1042.0), warned="thousands"),
    "thousands of Switzerland": Case(
        valued("1'020.5", "21.5"), (2, 1042.0), ("--thousands", "'")
    ),
    "thousands with spaces": Case(
        valued("1 020,5", "21,5", ";"), (2, 1042.0), ("--thousands", " ", "--decimal", ",")
    ),
    "thousands and decimals are one": Case(
        csv(), "thousands and decimal are both ','", ("--decimal", ",", "--thousands", ",")
    ),
    "leading zeros, signs and spaces": Case(valued("020.50", " +21.5 "), ROWS),
    "exponents": Case(valued("2.05e1", "215E-1"), ROWS),
    "missing numbers": Case(
        csv(f"a,1,{AT},NA\na,2,{AT},n/a\na,3,{AT},\na,4,{AT},NULL\na,5,{AT},42\n"), (5, 42.0)
    ),
    "numbers with a unit": Case(valued("20.5 °C", "21.5 °C"), "'20.5 °C', which looks like a num"),
    "labels": Case(valued("on", "off"), (2, 0.0)),
    "numbers as labels, which is said": Case(
        valued("404", "500"), (2, 0.0), ("--value-type", "label")
    ),
    "hexadecimal digits": Case(
        csv(f"a,1,{AT},20.5\na,2,{AT},21.5\na,3,{AT},0x10\n"), ROWS, quarantined=1
    ),
    # ---------------------------------------------------------------------------------- times
    "times of UTC": Case(stamped("2026-05-28T20:26:40Z", "2026-05-28T20:27:40Z"), ROWS),
    "times without a zone": Case(
        stamped("2026-05-28 20:26:40", "2026-05-28 20:27:40"), ROWS, warned="give the zone with "
                                                                            "--time-zone"
    ),
    "times of a place": Case(stamped("2026-05-28 22:26:40", "2026-05-28 22:27:40"), ROWS, BERLIN),
    "times with offsets": Case(
        stamped("2026-05-28T22:26:40+02:00", "2026-05-28T15:27:40-0500"), ROWS
    ),
    "day first": Case(stamped("28.05.2026 22:26:40", "28.5.2026 22:27:40"), ROWS, BERLIN),
    "a format": Case(
        stamped("05/28/2026 08:26 PM", "05/28/2026 08:27 PM"), ROWS,
        ("--time-format", "%m/%d/%Y %I:%M %p", *UTC), oldest=AT - 40,
    ),
    "day or month first": Case(
        stamped("05/06/2026 20:26", "05/06/2026 20:27"), "a time_format such as"
    ),
    "no format": Case(csv(), "time_format is '%H:%M'", ("--time-format", "%H:%M")),
    "no zone": Case(csv(), "time_zone is 'Berlin'", ("--time-zone", "Berlin")),
    "times of several kinds": Case(stamped(f"{AT}", "2026-05-28T20:27:40.000Z"), ROWS),
    "probably a clock was not set": Case(
        csv(f"a,1,{AT},20.5\na,2,0,21.5\n"), ROWS, ("--any-time",), oldest=0,
        warned="1 of 2 times lies outside the years 1990 to 2099",
    ),
    "a clock of the year 1": Case(
        stamped("2026-05-28T20:26:40Z", "0001-01-01T00:00:00Z"), ROWS, ("--any-time",), oldest=None,
        warned="probably a clock was not set",
    ),
    # ----------------------------------------------------------------- encodings, compression
    "a byte order mark": Case("\ufeff" + csv(), ROWS),
    "UTF-16": Case(csv().encode("utf-16"), ROWS),
    "UTF-16 without a mark": Case(csv().encode("utf-16-le"), ROWS),
    "UTF-16 that is said": Case(csv().encode("utf-16-be"), ROWS, ("--encoding", "utf-16-be")),
    "Latin-1 in the heading": Case(
        f"dev,seq,ts,v,Größe\na,1,{AT},20.5,1\na,2,{AT + 60},21.5,2\n".encode("latin-1"), ROWS
    ),
    "Latin-1 in a name": Case(f"{HEADING}\nMüller,1,{AT},42\n".encode("latin-1"), (1, 42.0)),
    "no encoding": Case(csv(), "--encoding is 'klingon'", ("--encoding", "klingon")),
    "gzip": Case(gzip.compress(csv().encode()), ROWS, suffix=".csv.gz"),
    "gzip without the suffix": Case(gzip.compress(csv().encode()), ROWS),
    "bzip2": Case(bz2.compress(csv().encode()), ROWS, suffix=".csv.bz2"),
    "a ZIP file": Case(zipped(("log.csv", csv())), ROWS, suffix=".csv.zip"),
    "a ZIP file of two": Case(
        zipped(("a.csv", csv()), ("b.csv", csv())), "holds 2 files (a.csv, b.csv)",
        suffix=".csv.zip",
    ),
    "NDJSON of UTF-16": Case(
        ndjson(reading(), reading(2, AT + 60, 21.5)).encode("utf-16"), ROWS, suffix=".ndjson"
    ),
    "gzip that is cut off": Case(
        gzip.compress(csv().encode())[:-12], "cannot be decompressed", suffix=".csv.gz"
    ),
    # ------------------------------------------------- odd cells beyond the first megabyte
    "a fraction after a megabyte": Case(lambda: long_csv(f"z,1,{AT},0.5,"), (40_001, 80_000.5)),
    "a word after a megabyte": Case(
        lambda: long_csv(f"z,1,{AT},1554.N0N,"), LONG, quarantined=1
    ),
    "a word after a megabyte ends it": Case(
        lambda: long_csv(f"z,1,{AT},oops,"), "v[40000] is 'oops'; expected a number"
    ),
    "an odd note after a megabyte": Case(
        lambda: long_csv(f"z,1,{AT},0,0x7F \u263a"), (40_001, 80_000.0)
    ),
    "a bad time after a megabyte": Case(lambda: long_csv("z,1,unknown,1,"), LONG, quarantined=1),
    "a date after a megabyte": Case(
        lambda: long_csv("z,1,2026-05-28T20:26:40Z,1,"), (40_001, 80_001.0)
    ),
    "an odd id after a megabyte": Case(lambda: long_csv(f"z,x7,{AT},1,"), LONG, quarantined=1),
    "an odd id ends it with a way out": Case(
        lambda: long_csv(f"z,x7,{AT},1,"), "--text-columns seq reads the column as text"
    ),
    "no id after a megabyte": Case(lambda: long_csv(f"z,,{AT},1,"), LONG, quarantined=1),
    "a torn row after a megabyte": Case(lambda: long_csv(f"z,1,{AT}"), LONG, quarantined=1),
    "a byte that is no UTF-8 after a megabyte": Case(
        lambda: long_csv("z,1,1780000000,1,").encode() + b"caf\xe9,1,1780000000,1,\n",
        (40_002, 80_002.0),
    ),
    # --------------------------------------------------------------------- files that are none
    "empty": Case("", "is empty; expected a heading"),
    "only a heading": Case(f"{HEADING}\n", "no rows in 1 files"),
    "only a comment": Case("# nothing\n", "is empty; expected a heading"),
    "no heading": Case(f"a,1,{AT},20.5\na,2,{AT},21.5\n", "has no column 'ts'; it has a, 1"),
    "a column that is missing": Case(csv(heading="dev,seq,ts,w"), "has no column 'v'; it has dev"),
    "one name twice": Case(csv(f"a,1,{AT},1,2\n", f"{HEADING},v"), "has two columns 'v'"),
    "another name twice": Case(
        csv(f"a,1,{AT},20.5,,\na,2,{AT + 60},21.5,,\n", f"{HEADING},n,n"), ROWS
    ),
    "all rows are bad": Case(
        csv("a,1,soon,1\na,2,late,2\n"), "no row was accepted, and 2 were rejected", quarantined=2
    ),
    "binary": Case(bytes(range(256)) * 50, "is not text: byte 0 is 0"),
    "Parquet that is called CSV": Case(parquet(**TYPED), "--format parquet"),
    "CSV that is called Parquet": Case(csv(), "cannot be read as parquet", suffix=".parquet"),
    "a suffix that says nothing": Case(csv(), "has no known suffix", suffix=".dat"),
    # -------------------------------------------------------------------------------- NDJSON
    "NDJSON": Case(ndjson(reading(), reading(2, AT + 60, 21.5)), ROWS, suffix=".ndjson"),
    "NDJSON with a mark": Case(
        "\ufeff" + ndjson(reading(), reading(2, AT + 60, 21.5)), ROWS, suffix=".ndjson"
    ),
    "NDJSON in a ZIP file": Case(
        zipped(("a.ndjson", ndjson(reading(), reading(2, AT, 21.5)))), ROWS, suffix=".ndjson.zip"
    ),
    "numbers in quotes": Case(
        ndjson(reading(v="20.5"), reading(2, f"{AT + 60}", "21.5")), ROWS, suffix=".ndjson"
    ),
    "numbers and texts": Case(
        ndjson(reading(v=20.5), reading(2, AT, "21.5"), reading(3, AT, "oops")), ROWS,
        suffix=".ndjson", quarantined=1,
    ),
    "a word among numbers of NDJSON": Case(
        lambda: long_ndjson(reading(-1, AT, "oops")), LONG, suffix=".ndjson", quarantined=1
    ),
    "another type that nobody needs": Case(
        lambda: long_ndjson(reading(-1, AT, 0) | {"note": {"x": 1}}), (40_001, 80_000.0),
        suffix=".ndjson",
    ),
    "a broken line after a megabyte": Case(
        lambda: long_ndjson('{"dev": "a", '), LONG, suffix=".ndjson", quarantined=1
    ),
    "a broken line ends it": Case(
        ndjson(reading(), '{"dev": '), "has a line that is not a JSON object", suffix=".ndjson"
    ),
    "one array": Case(json.dumps([reading()]), "is one JSON array", suffix=".json"),
    "a field that comes late": Case(
        ndjson(*({k: v for k, v in reading(n, AT, 0).items() if n or k != "v"} for n in range(3))),
        (3, 0.0), suffix=".ndjson",
    ),
    # --------------------------------------------------------------------- Parquet and Arrow
    "Parquet": Case(parquet(**TYPED), ROWS, suffix=".parquet"),
    "Parquet with texts": Case(
        parquet(**TYPED | {"v": ["20.5", "21.5"], "ts": ["2026-05-28T20:26:40Z", f"{AT + 60}"]}),
        ROWS, suffix=".parquet",
    ),
    "Parquet with naive times": Case(
        parquet(**TYPED | {"ts": pa.array([AT, AT + 60], pa.timestamp("s"))}), ROWS,
        suffix=".parquet", warned="give the zone with --time-zone",
    ),
    "Parquet with a name twice": Case(
        twice_named(), "two columns 'v'", suffix=".parquet"
    ),
    "Parquet that is cut off": Case(
        parquet(**TYPED)[:-20], "cannot be read as parquet", suffix=".parquet"
    ),
    "Arrow with views and dictionaries": Case(
        arrow(TABLE.set_column(0, "dev", TABLE["dev"].cast(pa.string_view())).set_column(
            3, "v", pa.array(["20.5", "21.5"]).dictionary_encode())), ROWS, suffix=".arrow",
    ),
    "Arrow with dictionaries of views": Case(
        arrow(TABLE.set_column(3, "v", pa.array(["20.5", "21.5"], pa.string_view())
                               .dictionary_encode())), ROWS, suffix=".arrow",
    ),
    "a stream of Arrow": Case(arrow(TABLE, stream=True), ROWS, suffix=".arrows"),
    "no Arrow": Case(csv(), "cannot be read as arrow", suffix=".arrow"),
}  # fmt: skip


def written(folder: Path, case: Case) -> Path:
    content = case.content() if callable(case.content) else case.content
    path = folder / f"log{case.suffix}"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def build(path: Path, out: Path, *options: str, unit: str = "s") -> Any:
    arguments = ["build", path, "--out", out, *COLUMNS, unit, "--capacity", "50000", *options]
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.mark.parametrize("name", CASES)
def test_a_file_gives_its_numbers_or_one_line(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    path, out, kept = written(tmp_path, case), tmp_path / "out.sketch", tmp_path / "kept.ndjson"
    more = ("--quarantine", str(kept)) if case.quarantined is not None else ()
    done = build(path, out, *case.options, *more)
    said = [line for line in done.stderr.splitlines() if line.strip()]
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    if isinstance(case.expected, str):
        assert done.exit_code == 1
        assert case.expected in said[-1]
        assert said[-1].startswith("error: ")
        assert "no rows" in case.expected or not out.exists()
        return
    assert done.exit_code == 0, said
    sketch: Any = decode(out.read_bytes())
    count, total = case.expected
    assert sketch.count("none").value == count
    if sketch.params.value_type != "label":
        assert sketch.total("none").value == total
    assert case.oldest is None or sketch.stats().oldest == case.oldest
    assert case.warned in done.stderr
    assert bool(case.warned) == any(line.startswith("warning") for line in said)
    if case.quarantined is not None:
        assert len(kept.read_text().splitlines()) == case.quarantined


def test_there_are_many_files() -> None:
    assert len(CASES) >= 60


def test_a_build_that_accepts_nothing_replaces_nothing(tmp_path: Path) -> None:
    good, bad, none = (tmp_path / f"{name}.csv" for name in ("good", "bad", "none"))
    good.write_text(csv())
    bad.write_text(csv("a,1,soon,1\n"))
    none.write_text(f"{HEADING}\n")
    out, kept = tmp_path / "out.sketch", str(tmp_path / "kept.ndjson")
    assert build(good, out).exit_code == 0
    before = out.read_bytes()
    for path in (bad, none):
        done = build(path, out, "--overwrite", "--quarantine", kept)
        assert done.exit_code == 1
        assert out.read_bytes() == before
        assert f"{out} is unchanged" in done.stderr
    folder = tmp_path / "by"
    done = build(bad, folder, "--by", "dev", "--overwrite", "--quarantine", kept)
    assert done.exit_code == 1
    assert not folder.exists()


# ------------------------------------------------------------------------- the same as data frames


TEXTS = [
    "plain", "missing numbers", "leading zeros, signs and spaces", "exponents", "times of UTC",
    "times of a place", "times with offsets", "day first", "times of several kinds",
]  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_a_frame_of_texts_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    """Every cell a text, as pandas and polars have them where one is odd."""
    case = CASES[name]
    path, out = written(tmp_path, case), tmp_path / "out.sketch"
    assert build(path, out, "--text-columns", "dev,seq", *case.options).exit_code == 0
    found: Any = decode(out.read_bytes())
    frame = pl.read_csv(path, infer_schema=False)
    read: dict[str, Any] = {"time": "ts", "value": "v", "id": ("dev", "seq")}
    zone = case.options[1] if case.options else None
    made = ds.DecaySketch.from_frame(frame, params=found.params, time_zone=zone, **read)
    assert made.to_bytes() == found.to_bytes()


def test_labels_are_said_where_texts_look_like_numbers() -> None:
    at = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
    frame = pl.DataFrame({"t": [at, at], "id": ["a", "b"], "v": ["20,5", "21,5"]})
    read: dict[str, Any] = {"time": "t", "id": "id", "value": "v"}
    with pytest.raises(ds.ParameterError, match="which looks like a number"):
        ds.DecaySketch.from_frame(frame, **read)
    plain = frame.with_columns(v=pl.Series(["20.5", "21.5"]))
    assert ds.DecaySketch.from_frame(plain, **read).total("none").value == 42.0
    labels = ds.SketchParams(value_type="label", time_unit="us")
    assert ds.DecaySketch.from_frame(frame, params=labels, **read).count("none").value == 2


# -------------------------------------------------------- a counter that restarts, over daily files


def _restarting(folder: Path, *, sessions: bool = False) -> Path:
    """30 daily files of 4 devices, a reading a quarter hour; the counter restarts each week."""
    log = folder / "days"
    log.mkdir()
    for day in range(30):
        rows = range(4 * 96)
        columns: dict[str, Any] = {
            "ts": [AT + 86_400 * day + 900 * (n // 4) for n in rows],
            "dev": [f"d{n % 4}" for n in rows],
            "seq": [96 * (day % 7) + n // 4 for n in rows],
            "v": [float((day * 31 + n) % 97) for n in rows],
        }
        if sessions:
            columns["boot"] = [day // 7 for _ in rows]
        pq.write_table(pa.table(columns), log / f"day-{day:02}.parquet")
    return log


def test_a_counter_that_restarts_is_said_and_the_remedy_works(tmp_path: Path) -> None:
    log, out = _restarting(tmp_path, sessions=True), tmp_path / "out.sketch"
    lost, every = 4 * 96 * 7, 4 * 96 * 30
    for options in ((), ("--by", "dev")):
        done = build(log, tmp_path / f"short{len(options)}", *options)
        assert done.exit_code == 0
        assert (
            f"{every - lost:,} readings were replaced by a later one with the same id"
            in done.stderr
        )
    sketch: Any = decode((tmp_path / "short0").read_bytes())
    assert sketch.count("none").value == lost
    for columns in ("dev,seq,boot", "dev,seq,ts"):  # as the warning says
        done = build(log, out, "--id-columns", columns, "--overwrite")
        assert done.stderr == ""
        found: Any = decode(out.read_bytes())
        assert found.count("none").value == every
