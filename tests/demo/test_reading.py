"""A log is looked at first: it works, or it is one clear line."""

from __future__ import annotations

import gzip
import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import polars as pl
import pytest
from delivery_logs import delivery_log, real_log

from decaysketch.cli.tables import FORMATS
from demo import __main__ as program
from demo.reading import COLUMNS, Columns, read_log, reasons

START = datetime(2024, 1, 31, 6, 0, tzinfo=UTC)
START_US = int(START.timestamp()) * 10**6
ROWS = 12
DEVICES = Columns(
    time="ts", fallback_time="came", ids=("device", "seq"), path="gateway", value="temp"
)


def usual(rows: int = ROWS, **changed: Any) -> pl.DataFrame:
    """A log with the usual columns; a column that is None is left out."""
    row = np.arange(rows)
    columns = {
        "arrival_us": START_US + row * 10**6 + 250_000,
        "event_us": START_US + row * 10**6,
        "source": row % 3,
        "msg": row // 3,
        "path": row % 2,
        "value": row / 4,
        **changed,
    }
    return pl.DataFrame({name: each for name, each in columns.items() if each is not None})


def written(folder: Path, log: pl.DataFrame, name: str = "log.parquet") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    log.write_csv(path) if name.endswith(".csv") else log.write_parquet(path)
    return path


def stamps(form: str) -> list[str]:
    return [(START + timedelta(seconds=k)).strftime(form) for k in range(ROWS)]


class TestTimes:
    @pytest.mark.parametrize(
        "given",
        [
            pl.Series([START + timedelta(seconds=k) for k in range(ROWS)]),
            pl.Series([START + timedelta(seconds=k) for k in range(ROWS)]).dt.cast_time_unit("ms"),
            pl.Series([START + timedelta(seconds=k) for k in range(ROWS)]).dt.cast_time_unit("ns"),
            pl.Series([START + timedelta(seconds=k) for k in range(ROWS)]).dt.replace_time_zone(
                None
            ),
            pl.Series([float(START_US + k * 10**6) for k in range(ROWS)]),
            pl.Series([str(START_US + k * 10**6) for k in range(ROWS)]),
            pl.Series(stamps("%Y-%m-%dT%H:%M:%SZ")),
            pl.Series(stamps("%Y-%m-%d %H:%M:%S")),
            pl.Series(stamps("%Y-%m-%dT%H:%M:%S.000000+00:00")),
            pl.Series([s.replace("T06", "T08") + "+0200" for s in stamps("%Y-%m-%dT%H:%M:%S")]),
            pl.Series([s.replace(" 06", " 00") + ",0-06" for s in stamps("%Y-%m-%d %H:%M:%S")]),
        ],
        ids=str,
    )
    def test_may_be_timestamps_floats_and_iso_texts_with_zones(
        self, given: pl.Series, tmp_path: Path
    ) -> None:
        log = read_log(written(tmp_path, usual(event_us=given)))
        assert log.rows["time"].to_list() == usual()["event_us"].to_list()
        assert not log.refused.height

    def test_may_be_dates(self, tmp_path: Path) -> None:
        log = read_log(written(tmp_path, usual(event_us=[START.date()] * ROWS)))
        assert log.rows["time"].unique().to_list() == [START_US - 6 * 3600 * 10**6]

    @pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 10**3), ("ns", 10**9)])
    def test_of_another_unit_are_refused_with_its_name_unless_it_is_said(
        self, unit: str, per_second: int, tmp_path: Path
    ) -> None:
        seconds = START_US // 10**6 + np.arange(ROWS)
        path = written(
            tmp_path, usual(event_us=seconds * per_second, arrival_us=(seconds + 1) * per_second)
        )
        with pytest.raises(ValueError, match=f"2024-01-31 06:00 in '{unit}'.*--column-unit {unit}"):
            read_log(path)
        assert read_log(path, Columns(unit=unit)).rows["time"].to_list() == list(seconds * 10**6)
        if unit != "ns":  # which as microseconds has no calendar
            times = read_log(path, Columns(unit="us")).rows["time"]
            assert times.min() == START_US // 10**6 * per_second

    def test_a_few_that_are_none_are_refused_and_the_others_counted(self, tmp_path: Path) -> None:
        texts = stamps("%Y-%m-%dT%H:%M:%SZ")
        texts[4], texts[7], texts[9] = "yesterday", "2024-13-01", "2024-01-31T06:00:09+99"
        log = read_log(written(tmp_path, usual(event_us=texts)), out=tmp_path / "out")
        assert log.refused["found"].to_list()[:2] == ["yesterday", "2024-13-01"]
        assert log.rows.height == ROWS - log.refused.height

    def test_that_are_none_at_all_are_one_line(self, tmp_path: Path) -> None:
        path = written(tmp_path, usual(event_us=["soon"] * ROWS))
        with pytest.raises(ValueError, match="'event_us' holds no times, such as 'soon'; expected"):
            read_log(path)
        path = written(tmp_path, usual(event_us=[[1]] * ROWS))
        with pytest.raises(
            ValueError, match=r"'event_us' is of type List\(Int64\); expected times"
        ):
            read_log(path)

    def test_that_no_calendar_has_are_refused(self, tmp_path: Path) -> None:
        times = usual()["event_us"].to_list()
        times[3], times[5] = 2**62, -(2**62)
        log = read_log(written(tmp_path, usual(event_us=times)))
        assert log.refused["row"].to_list() == [3, 5]


class TestForms:
    @pytest.mark.parametrize("name", ["log.csv", "log.csv.gz", "log.ndjson", "log.arrow", "log"])
    def test_of_every_kind_are_the_same_log(self, name: str, tmp_path: Path) -> None:
        path, frame = tmp_path / name, usual()
        if name == "log.csv.gz":
            path.write_bytes(gzip.compress(frame.write_csv().encode()))
        elif name == "log.arrow":
            frame.write_ipc(path)
        elif name == "log":  # known by its first bytes
            frame.write_parquet(path)
        elif name == "log.csv":
            frame.write_csv(path)
        else:
            frame.write_ndjson(path)
        log = read_log(path, out=tmp_path / "out")
        expected = read_log(written(tmp_path, frame, "usual.parquet"))
        assert log.rows.equals(expected.rows)
        assert expected.path == tmp_path / "usual.parquet"
        copy = read_log(log.path)
        assert copy.path == log.path
        assert copy.rows.equals(expected.rows)

    def test_with_semicolons_and_text_keys(self, tmp_path: Path) -> None:
        path = tmp_path / "log.csv"
        lines = [f"2024-01-31 06:00:{k:02d};00{k};é;{k}.5" for k in range(ROWS)]
        path.write_text("ts;seq;device;temp\n" + "\n".join(lines) + "\n", encoding="utf-8-sig")
        log = read_log(path, Columns(time="ts", ids=("device", "seq"), value="temp"))
        assert log.rows["msg"].to_list()[:2] == ["000", "001"]  # 001 is another name than 1
        assert log.rows["source"].to_list()[0] == "é"
        assert log.rows["value"].sum() == sum(range(ROWS)) + ROWS / 2
        assert log.rows["path"].n_unique() == 1
        assert any("no column of paths" in remark for remark in log.remarks)

    def test_lines_that_are_no_rows_are_refused(self, tmp_path: Path) -> None:
        path = written(tmp_path, usual(msg=[0, None, *range(2, ROWS)]), "log.csv")
        lines = path.read_text().splitlines()
        lines.insert(1, "1,2")
        lines.append("3")
        path.write_text("\n".join(lines))
        log = read_log(path, out=tmp_path / "out")
        assert log.refused["row"].to_list() == [0, 2, ROWS + 1]
        assert log.refused["record"].to_list()[::2] == ["1,2", "3"]
        assert log.rows.height == ROWS - 1

    def test_ids_may_be_one_column_or_three(self, tmp_path: Path) -> None:
        names = [f"m-{k // 2}" for k in range(ROWS)]
        path = written(tmp_path, usual(uuid=names))
        one = read_log(path, Columns(ids=("uuid",))).rows
        assert one.select(pl.struct("source", "msg").n_unique()).item() == ROWS // 2
        three = read_log(path, Columns(ids=("source", "msg", "uuid"))).rows
        assert three.select(pl.struct("source", "msg").n_unique()).item() == ROWS

    def test_paths_without_a_name_have_one(self, tmp_path: Path) -> None:
        log = read_log(written(tmp_path, usual(path=[None, *[1] * (ROWS - 1)])))
        assert log.rows["path"].to_list()[:2] == ["(no path)", "1"]
        assert any("1 rows without a path" in remark for remark in log.remarks)


class TestRefusals:
    def test_nulls_in_msg_are_left_out_counted_and_kept(self, tmp_path: Path) -> None:
        numbers = [None if k % 5 == 2 else k for k in range(ROWS)]
        out = tmp_path / "out"
        log = read_log(written(tmp_path, usual(msg=numbers)), out=out)
        [reason] = reasons(log.refused)
        assert (reason.column, reason.reason, reason.rows, reason.first) == (
            "msg",
            "is null",
            3 - 1,
            2,
        )
        kept = pl.read_parquet(out / "quarantine" / "refused.parquet")
        assert kept.equals(log.refused)
        assert json.loads(kept["record"][0])["arrival_us"] == START_US + 2_250_000
        assert pl.read_parquet(log.path)["msg"].null_count() == 0
        read_log(written(tmp_path, usual()), out=out)
        assert not (out / "quarantine" / "refused.parquet").exists()

    def test_are_left_out_of_a_copy_never_of_the_log_itself(self, tmp_path: Path) -> None:
        given = written(tmp_path, usual(msg=[None, *range(1, ROWS)]))
        before = given.read_bytes()
        log = read_log(given, out=tmp_path)
        assert log.path != given
        assert given.read_bytes() == before
        assert pl.read_parquet(log.path).height == ROWS - 1

    @pytest.mark.parametrize(
        ("changed", "column", "reason"),
        [
            ({"value": [float("nan")] + [1.0] * (ROWS - 1)}, "value", "finite"),
            ({"value": [2**60] + [1] * (ROWS - 1)}, "value", "exact as float64"),
            ({"value": ["n/a"] + ["1.5"] * (ROWS - 1)}, "value", "a number"),
            ({"msg": [0.5] + [1.0] * (ROWS - 1)}, "msg", "an integer"),
            ({"source": ["x" * 1025] + ["y"] * (ROWS - 1)}, "source", "at most 1024 bytes"),
            ({"weight": [-1] + [1] * (ROWS - 1)}, "weight", "from 0 to 2\\^31"),
            ({"weight": [None] + [1] * (ROWS - 1)}, "weight", "is null"),
            ({"event_us": [None] * ROWS, "arrival_us": [None] + [START_US] * (ROWS - 1)},
             "event_us", "is null, and so is arrival_us"),
        ],
    )  # fmt: skip
    def test_are_those_of_a_build_with_a_quarantine(
        self, changed: dict[str, Any], column: str, reason: str, tmp_path: Path
    ) -> None:
        log = read_log(written(tmp_path, usual(**changed)))
        assert log.refused["row"].to_list() == [0]
        assert log.refused["column"].to_list() == [column]
        assert log.refused["reason"].str.contains(reason).all()
        assert log.rows.height == ROWS - 1

    def test_of_all_rows_are_one_line(self, tmp_path: Path) -> None:
        path = written(tmp_path, usual(msg=[None] * ROWS))
        with pytest.raises(
            ValueError, match="no row that can be counted: 12 rows with msg is null"
        ):
            read_log(path)
        path = written(tmp_path, usual(weight=[0] * ROWS))
        with pytest.raises(ValueError, match="every weight is 0"):
            read_log(path)


def said_of(capsys: pytest.CaptureFixture[str], path: Path, *options: str) -> tuple[int, str]:
    """What the program answers, which must come before it does anything."""
    status = program.main(["--log", str(path), "--out", str(path.parent / "out"), *options])
    return status, capsys.readouterr().out


class TestHostile:
    @pytest.mark.parametrize(
        ("content", "name", "reason"),
        [
            (b"", "log.parquet", "is empty: 0 bytes"),
            (b"", "log.csv", "is empty: 0 bytes"),
            (b"a,b\n", "log.csv", "it has a, b. Say which columns mean what: --time-column"),
            (b"no parquet at all", "log.parquet", "cannot be read as parquet"),
            (b"PAR1 and then nothing", "log.parquet", "cannot be read as parquet"),
            (b"\xff\xfe\x00", "log.csv", "lacks the columns"),
            (b"event_us,source,msg,value\n", "log.csv", "has no rows"),
            (b"event_us,source,msg,value\n\xff\xfe,1,2,3\n", "log.csv", "cannot be read as csv"),
            (b"event_us,source,msg,msg,value\n1,1,1,1,1\n", "log.csv",
             "has 2 columns with the name 'msg'"),
            (b"{broken", "log.ndjson", "cannot be read as ndjson"),
            (b"whatever", "log.xlsx", "has no known suffix"),
            (b"x", "[red].csv", "[red].csv lacks the columns"),
        ],
    )  # fmt: skip
    def test_files_are_one_clear_line_before_any_work(
        self,
        content: bytes,
        name: str,
        reason: str,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        path = tmp_path / name
        path.write_bytes(content)
        status, text = said_of(capsys, path)
        assert status == 1
        [line] = [line for line in text.splitlines() if line.startswith("error:")]
        assert reason in line
        assert not (tmp_path / "out" / "sketches").exists()

    def test_folders_absent_files_and_formats_are_one_clear_line(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = written(tmp_path, usual())
        for given, options, reason in (
            (tmp_path, (), "is a folder; expected one file"),
            (tmp_path / "absent", (), "is not a file"),
            (path, ("--format", "excel"), f"expected one of {', '.join(FORMATS)}"),
            (path, ("--column-unit", "fortnights"), "--column-unit is 'fortnights'"),
            (path, ("--by", "nowhere"), "lacks the column 'nowhere'"),
            (path, ("--id-columns", ""), "--id-columns is ''"),
        ):
            status, text = said_of(capsys, given, *options)
            assert (status, reason in text) == (1, True), text

    def test_columns_by_the_options_of_the_build(self, tmp_path: Path) -> None:
        frame = usual().rename(
            dict(zip(COLUMNS[:6], ("came", "ts", "device", "seq", "gateway", "temp"), strict=True))
        )
        log = read_log(written(tmp_path, frame), DEVICES, out=tmp_path / "out")
        assert log.rows.equals(read_log(written(tmp_path, usual(), "usual.parquet")).rows)
        assert pl.read_parquet(log.path).columns == list(COLUMNS)


@pytest.mark.skipif(which("make") is None, reason="there is no make on this machine")
def test_make_hands_the_log_and_the_options_on() -> None:
    shown = subprocess.run(
        ["make", "--dry-run", "demo", "LOG=my log.csv", "ARGS=--time-column ts --by gateway"],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert '-m demo --log "my log.csv" --time-column ts --by gateway' in shown


def test_the_real_logs_are_read_as_they_are() -> None:
    for name in ("ble_set2", "lorawan_tourperret", "ooo_umts_d1", "wifi_two_receivers"):
        log = read_log(real_log(name))
        assert log.path == log.given
        assert not log.refused.height


def test_a_log_of_the_suite_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    frame = pl.from_arrow(delivery_log())
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(path)
    log = read_log(path)
    assert log.path == path
    assert log.rows.height == frame.height
