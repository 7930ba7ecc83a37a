"""The program ``decaysketch`` on small files: what it prints, what it writes, how it fails."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import typer.main
from typer.testing import CliRunner

import decaysketch as ds
from decaysketch.cli import app
from tests.recorded.entries import Entry, plain
from tests.recorded.material import FIXED, NOW, STREAMS, rows

__all__ = ["record"]

# Tables are drawn to the width of the terminal.
_TERMINAL = {"COLUMNS": "160", "TERM": "dumb", "NO_COLOR": "1"}
_OPTIONS = (
    "--max-weight", "99", "--capacity", "50", "--seed", "5", "--weight-column", "weight",
)  # fmt: skip
_SAMPLER = ("--capacity", "50", "--seed", "5")

_WINDOW = ("--decay", "window:width=2000")
_QUERIES: dict[str, tuple[str, ...]] = {
    "decay": (
        "sum", "count", "total", "mean", "variance", "median", "quantile:0.1,0.5,0.99", "rank:5",
        "heavy_hitters:0.06", "selectivity:v > 3 and w >= 2", "group_by",
    ),
    "sum": ("sum", "count", "selectivity:v > 3"),
    "median": ("count", "mean", "median", "quantile:0.5", "rank:5", "heavy_hitters:0.06"),
}  # fmt: skip


def record() -> list[Entry]:
    """What is said to each command, in an empty folder that all of them share."""
    entries: list[Entry] = [{"case": "command: names and options", "answered": plain(_commands())}]
    with TemporaryDirectory() as folder, chdir(folder), patch.dict(os.environ, _TERMINAL):
        _write_logs()
        said: Counter[str] = Counter()
        for line in _lines():
            said[text := " ".join(line)] += 1
            case = f"command: {text}" + (", again" if said[text] > 1 else "")
            entries.append({"case": case, "answered": plain(_run(line))})
    return entries


def _commands() -> dict[str, Any]:
    """Of every command: its parameters, in order, with what they are if not given."""
    root: Any = typer.main.get_command(app)
    found: dict[str, Any] = {}
    for name, command in root.commands.items():
        children = getattr(command, "commands", {"": command})
        for child, leaf in children.items():
            found[f"{name} {child}".strip()] = [
                [*parameter.opts, str(parameter.default)] for parameter in leaf.params
            ]
    return found


def _write_logs() -> None:
    found = rows(1, count=300)
    table = pa.table(
        {
            "time": found.times,
            "id": [f"m-{k % 250}" for k in found.numbers],
            "value": pa.array(found.values.data, mask=found.values.mask),
            "weight": found.weights,
            "path": [("north", "south", "a/b.c")[k % 3] for k in found.numbers],
            "source": [f"t-{k % 3}" for k in found.numbers],
            "sequence": found.numbers // 3,
        }
    )
    pyarrow.parquet.write_table(table, "log.parquet")
    pyarrow.csv.write_csv(table, "log.csv")
    whole = table.filter(pa.array(~found.values.mask))
    pyarrow.parquet.write_table(whole, "whole.parquet")
    Path("log.ndjson").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    Path("bad.ndjson").write_text('{"time": 1, "id": "a", "value": 1, "weight": 100}\n')
    Path("ms.csv").write_text(f"time,id\n{NOW * 1000},a\n")
    Path("params.json").write_text(json.dumps(STREAMS["decay"].creation["params"]))
    Path("fixed.json").write_text(json.dumps(FIXED.to_dict()))
    for name, stream in STREAMS.items():
        Path(f"{name}-0.sketch").write_bytes(stream.build(0).to_bytes())
        Path(f"{name}-1.sketch").write_bytes(stream.build(1, 150).to_bytes())
    Path("other.sketch").write_bytes(STREAMS["decay"].other(0).to_bytes())
    Path("empty.sketch").write_bytes(
        ds.DecaySketch(ds.SketchParams(max_weight=1, seed=1)).to_bytes()
    )
    Path("corrupt.sketch").write_bytes(b"x" * 50)


def _lines() -> Iterator[list[str]]:
    def build(log: str, out: str, *options: str) -> list[str]:
        return ["build", log, "--out", out, *options]

    for log in ("log.parquet", "log.csv", "log.ndjson"):
        yield build(log, f"of-{log}.sketch", *_OPTIONS, "--json")
    yield build("log.csv", "plain.sketch", *_OPTIONS)
    yield build("log.csv", "by", "--by", "path", *_OPTIONS, "--json")
    yield build("log.csv", "by-two", "--by", "path,source", *_OPTIONS)
    yield build("log.csv", "of-params.sketch", "--params", "params.json", "--json")
    yield build("log.csv", "fixed.sketch", *_OPTIONS, "--family", "integral", "--decay",
                "fixed.json", "--now", str(NOW), "--json")  # fmt: skip
    yield build("log.parquet", "sums.sketch", "--family", "sum", "--value-column", "weight",
                "--max-sum", "1000000", *_SAMPLER, "--json")  # fmt: skip
    yield build("whole.parquet", "medians.sketch", "--family", "median", "--max-count", "10000",
                *_SAMPLER, "--json")  # fmt: skip
    yield build("log.csv", "plain.sketch", *_OPTIONS)
    yield build("log.csv", "plain.sketch", *_OPTIONS, "--overwrite")
    yield build("ms.csv", "ms.sketch", "--value-column", "", "--any-time")
    yield build("bad.ndjson", "none.sketch", *_OPTIONS)
    yield build("log.csv", "none.sketch", "--family", "hll")
    yield build("log.csv", "none.sketch", "--family", "sum")
    yield build("log.csv", "none.sketch", "--id-columns", "nope")
    yield build("log.csv", "none.sketch", "--format", "xml")
    yield build("nope.csv", "none.sketch")
    yield build("log.csv", "s3://bucket/none.sketch")
    for name in STREAMS:
        out = f"{name}.sketch"
        yield ["merge", f"{name}-0.sketch", f"{name}-1.sketch", "--out", out, "--json"]
        yield ["inspect", out]
    yield ["merge", "by", "--out", "all.sketch"]
    yield ["inspect", "all.sketch", "empty.sketch", "--json"]
    yield ["merge", "decay-0.sketch", "other.sketch", "--out", "none.sketch"]
    yield ["merge", "decay-0.sketch", "sum-0.sketch", "--out", "none.sketch"]
    yield ["merge", "decay-0.sketch", "--out", "all.sketch"]
    yield ["inspect", "corrupt.sketch"]
    for name, stream in STREAMS.items():
        asked = _QUERIES["decay" if stream.family == "integral" else stream.family]
        decay = _WINDOW if stream.chooses else ()
        yield ["query", f"{name}.sketch", *asked, *decay, "--json"]
        yield ["query", f"{name}.sketch", *asked[:3], *decay, "--confidence", "0.8"]
    yield ["query", "decay.sketch", "group_by", "heavy_hitters:0.01"]
    for decay_text in (
        "none", "exponential:half_life=300", "polynomial:exponent=1.5,scale=120",
        '{"kind":"piecewise","steps":[[60,1],[600,0.25]]}', "window:width=-1", "gaussian", "window",
    ):  # fmt: skip
        yield ["query", "decay.sketch", "mean", "--decay", decay_text, "--json"]
    yield ["query", "decay.sketch", "sum", "--decay-expression", "1/(1 + x/60)", *_WINDOW, "--json"]
    yield ["query", "decay.sketch", "sum", "--now", str(NOW - 300), "--json"]
    for wrong in ("mode", "sum:3", "quantile:x", "quantile:2", "selectivity:x > 1", "rank"):
        yield ["query", "decay.sketch", wrong]
    yield ["query", "sum.sketch", "mean", *_WINDOW]
    yield ["query", "sum.sketch", "sum"]
    yield ["query", "integral.sketch", "sum", *_WINDOW]
    yield ["query", "decay.sketch", "sum", "--now", "soon"]
    yield ["query", "empty.sketch", "sum"]
    yield ["query", "corrupt.sketch", "sum"]
    yield ["query", "ms.sketch", "count", "--now", str(NOW)]
    yield ["query", "decay.sketch"]
    yield ["nope"]


def _run(line: list[str]) -> dict[str, Any]:
    """What a line gives. How typer words a mistake in its use is typer's own."""
    with _files() as changed:
        result = CliRunner().invoke(app, line)
    if result.exit_code == 2:
        return {"exit": 2}
    out: Any = result.stdout
    if "--json" in line and result.exit_code == 0:
        out = json.loads(out)
    return {"exit": result.exit_code, "out": out, "err": result.stderr, "files": changed}


@contextmanager
def _files() -> Iterator[dict[str, bytes]]:
    """The files that are other ones afterwards."""

    def there() -> dict[str, bytes]:
        found = sorted(path for path in Path().rglob("*") if path.is_file())
        return {path.as_posix(): path.read_bytes() for path in found}

    before = there()
    changed: dict[str, bytes] = {}
    yield changed
    changed |= {name: blob for name, blob in there().items() if before.get(name) != blob}
