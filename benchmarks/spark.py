"""``python -m benchmarks.spark``: what a build in Spark costs, beside what it costs at least.

Three contenders, each in a session of its own on this machine, take turns over one Parquet log
(five columns: time, source, number, text key, value; one row in twenty is a copy):

floor   the route of a build with nothing to do at its end: the same tasks read the same columns of
        the same files with pyarrow, NumPy counts the rows of every key and adds up every column,
        and the sums are brought together by key and added. No row is left out.
build   one sketch for each key, merged: ``decaysketch.spark.build.sketch_table``.
exact   Spark itself: ``dropDuplicates`` of the copies, then ``groupBy`` and a decayed sum.

*Cold* is the first run of a session (Python workers start, compiled kernels are loaded from disk),
*warm* the best of those after it. Memory is resident memory, sampled while a contender runs: its
JVM, and its Python workers together (pages that they share are counted for each).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.machine import describe
from decaysketch import SketchParams
from decaysketch.spark.build import OfSplits, sketch_table
from decaysketch.spark.settings import session_settings
from decaysketch.spark.splits import TaskSplits, find_files, parquet_tasks
from decaysketch.tables import ColumnMapping, FileSplit
from spark_jobs.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONTENDERS = ("floor", "build", "exact")
MAPPING = ColumnMapping(time="event_us", ids=("source", "msg"), value="value", time_unit="us")
ROWS_PER_FILE = 2_500_000
START_US = 1_700_000_000_000_000

_SUMS = ("rows", "event_us", "source", "msg", "value")
_COLUMNS = ("event_us", "source", "msg", "site", "value")
_EVERY_SECONDS = 0.05
_MEGABYTE = 1 << 20


def write_log(folder: Path, rows: int, keys: int, console: Console) -> None:
    """A log of sensors that deliver one row in twenty again, a little out of order."""
    folder.mkdir(parents=True)
    names = pa.array([f"site-{key:06d}" for key in range(keys)])
    starts = range(0, rows, ROWS_PER_FILE)
    for start in track(starts, "writing the log", console=console, transient=True):
        size = min(ROWS_PER_FILE, rows - start)
        rng = np.random.default_rng(start)
        fresh = size - size // 20
        number = start + np.concatenate([np.arange(fresh), rng.integers(0, fresh, size - fresh)])
        number = number[np.argsort(number + rng.integers(0, 5_000, size), kind="stable")]
        source = number % (sources := 10 * keys)
        site = pa.array((source % keys).astype(np.int32))
        columns = {
            "event_us": START_US + number * 1_000 + number * 40_503 % 977,
            "source": source.astype(np.int32),
            "msg": number // sources,
            "site": pa.DictionaryArray.from_arrays(site, names).cast(pa.string()),
            "value": np.round(20 + 5 * np.sin(number * 0.7) + number % 13 * 0.1, 2),
        }
        pq.write_table(pa.table(columns), folder / f"part-{start // ROWS_PER_FILE:05d}.parquet")


# ------------------------------------------------------------------------------------------ floor


@dataclass(frozen=True)
class FloorSums:
    """Counts and sums of every key in some splits."""

    splits: tuple[FileSplit, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts: list[pa.RecordBatch] = []
        for numbers in batches:
            for number in numbers.column("id").to_pylist():
                split = self.splits[number]
                with pq.ParquetFile(split.path, read_dictionary=["site"]) as file:
                    groups = list(split.row_groups)
                    read = file.iter_batches(1 << 18, row_groups=groups, columns=_COLUMNS)
                    parts.extend(map(_sums, read))
        yield from add_up(iter(parts))


def _sums(batch: pa.RecordBatch) -> pa.RecordBatch:
    site = batch.column("site")
    codes, keys = site.indices.to_numpy(), site.dictionary.cast(pa.string())
    sums = [
        np.bincount(codes, None if name == "rows" else batch.column(name).to_numpy(), len(keys))
        for name in _SUMS
    ]
    return pa.record_batch(
        [keys, *(pa.array(sum, pa.float64()) for sum in sums)], names=["site", *_SUMS]
    )


def add_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The sums of every key in some batches of sums."""
    if found := list(batches):
        sums = pa.Table.from_batches(found).group_by("site").aggregate([(n, "sum") for n in _SUMS])
        yield from (
            sums.select(["site", *(f"{n}_sum" for n in _SUMS)])
            .rename_columns(["site", *_SUMS])
            .to_batches()
        )


def floor(session: SparkSession, log: Path) -> DataFrame:
    """Sums by key, by the route of a build."""
    cores = session.sparkContext.defaultParallelism
    parts = parquet_tasks(find_files(log) or [], _params(4), MAPPING, cores=cores)
    assert parts is not None
    function = OfSplits(FloorSums(parts.splits), TaskSplits(parts.starts))
    schema = "site string, " + ", ".join(f"{name} double" for name in _SUMS)
    partials = session.range(0, len(parts), 1, len(parts)).mapInArrow(function, schema)
    return partials.repartition("site").sortWithinPartitions("site").mapInArrow(add_up, schema)


# ------------------------------------------------------------------------------------- contenders


def build(session: SparkSession, log: Path, capacity: int) -> DataFrame:
    """A sketch for each key."""
    return sketch_table(session, log, _params(capacity), MAPPING, ["site"])


def _params(capacity: int) -> SketchParams:
    return SketchParams(max_weight=1, id_bits=48, capacity=capacity, seed=7, time_unit="us")


def exact(session: SparkSession, log: Path) -> DataFrame:
    """A decayed sum for each key, by Spark's own operators."""
    from pyspark.sql import functions as F  # noqa: N812

    weight = F.exp((F.col("event_us") - START_US) * 1e-10)
    distinct = session.read.parquet(str(log)).dropDuplicates(["source", "msg"])
    return distinct.groupBy("site").agg(F.sum(F.col("value") * weight).alias("decayed_sum"))


def contend(name: str, log: Path, capacity: int, driver_memory: str) -> None:
    """Run a contender once for every line of input, and answer with its seconds."""
    from pyspark.sql import SparkSession

    settings = session_settings() | {
        "spark.driver.memory": driver_memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName(name)
    session = builder.config(map={**settings}).getOrCreate()
    session.range(1).collect()
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        if name == "floor":
            table = floor(session, log)
        elif name == "build":
            table = build(session, log, capacity)
        else:
            table = exact(session, log)
        table.write.format("noop").mode("overwrite").save()
        print(json.dumps(time.perf_counter() - start), flush=True)
    session.stop()


@dataclass
class Contender:
    """A process that runs one of them when it is told to, and what that took."""

    name: str
    process: subprocess.Popen[str]
    seconds: list[float] = field(default_factory=list)
    jvm_bytes: int = 0
    workers_bytes: int = 0

    @classmethod
    def start(cls, name: str, log: Path, options: argparse.Namespace) -> Contender:
        command = [sys.executable, "-m", "benchmarks.spark", "--contender", name]
        command += ["--log", str(log), "--capacity", str(options.capacity)]
        command += ["--driver-memory", options.driver_memory]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True,
        )  # fmt: skip
        contender = cls(name, process)
        contender._answer()
        return contender

    def run(self) -> None:
        """Once more; its time and memory are kept."""
        assert self.process.stdin is not None
        finished = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(finished,), daemon=True)
        watcher.start()
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = self._answer()
        finished.set()
        watcher.join()
        self.seconds.append(float(answer))

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} failed; run it alone with --contender {self.name}")
        return line

    def _watch(self, finished: threading.Event) -> None:
        while not finished.wait(_EVERY_SECONDS):
            jvm, workers = _resident_below(self.process.pid)
            self.jvm_bytes = max(self.jvm_bytes, jvm)
            self.workers_bytes = max(self.workers_bytes, workers)

    @property
    def warm(self) -> float:
        return min(self.seconds[1:], default=self.seconds[0])


def _resident_below(root: int) -> tuple[int, int]:
    """Resident bytes of the JVM below a process, and of all that are below the JVM."""
    parents: dict[int, tuple[int, str, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text()
            except OSError:  # it has ended
                continue
            name, _, rest = status.partition("(")[2].rpartition(")")
            fields = rest.split()
            resident = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
            parents[int(entry.name)] = (int(fields[1]), name, resident)
    jvm = workers = 0
    for process, (_, name, resident) in parents.items():
        above = process
        names = []
        while above in parents and above != root:
            names.append(parents[above][1])
            above = parents[above][0]
        if above != root or process == root:
            continue
        if name == "java":
            jvm += resident
        elif "java" in names:
            workers += resident
    return jvm, workers


# ----------------------------------------------------------------------------------------- report


def compare(log: Path, options: argparse.Namespace, names: Sequence[str]) -> list[Contender]:
    """Start the contenders and let them take turns."""
    contenders: list[Contender] = []
    try:
        contenders.extend(Contender.start(name, log, options) for name in names)
        for _ in range(options.repetitions + 1):
            for contender in contenders:
                contender.run()
    finally:
        for contender in contenders:
            contender.stop()
    return contenders


def show(title: str, contenders: Sequence[Contender], rows: int, console: Console) -> None:
    """A table of what each took."""
    least = next((c.warm for c in contenders if c.name == "floor"), None)
    table = Table(title=title, title_justify="left")
    for heading in ("", "cold s", "warm s", "M rows/s", "times floor", "JVM MB", "workers MB"):
        table.add_column(heading, justify="right" if heading else "left")
    for contender in contenders:
        table.add_row(
            contender.name,
            f"{contender.seconds[0]:.2f}",
            f"{contender.warm:.2f}",
            f"{rows / contender.warm / 1e6:.2f}",
            "" if least is None else f"{contender.warm / least:.2f}",
            f"{contender.jvm_bytes / _MEGABYTE:,.0f}",
            f"{contender.workers_bytes / _MEGABYTE:,.0f}",
        )
    console.print(table)


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    options.add_argument("--rows", type=_count, default=10_000_000)
    options.add_argument("--keys", type=_count, default=1_000)
    options.add_argument("--capacity", type=_count, default=800, help="kept for each level")
    options.add_argument("--repetitions", type=int, default=3, help="after the cold run")
    options.add_argument("--only", default=",".join(CONTENDERS), help="contenders, by comma")
    options.add_argument("--many-keys", action="store_true", help="100,000 keys of 10 rows")
    options.add_argument("--one-key", action="store_true", help="one key of all the rows")
    options.add_argument("--driver-memory", default="4g", help="of every JVM")
    options.add_argument("--log", type=Path, help="folder for the log, kept; else a temporary one")
    options.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    return options


def _count(text: str) -> int:
    return int(text.replace(",", "").replace("_", ""))


def main(arguments: list[str] | None = None) -> None:
    """Write the log, let the contenders run, and print what they took."""
    options = parser().parse_args(arguments)
    if options.contender:
        contend(options.contender, options.log, options.capacity, options.driver_memory)
        return
    names = options.only.split(",")
    if unknown := sorted(set(names) - set(CONTENDERS)):
        parser().error(f"--only has {unknown[0]!r}; contenders are {', '.join(CONTENDERS)}")
    console = Console(width=None if sys.stdout.isatty() else 120)
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    root = str(Path(__file__).resolve().parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    rows, keys = options.rows, options.keys
    if options.many_keys:
        rows, keys = 1_000_000, 100_000
    elif options.one_key:
        keys = 1
    console.print("\n".join(describe()), highlight=False)
    versions = {name: _version(name) for name in ("pyspark", "pyarrow")}
    console.print(", ".join(f"{k} {v}" for k, v in versions.items()), highlight=False)
    with tempfile.TemporaryDirectory(prefix="decaysketch-bench-") as scratch:
        log = options.log or Path(scratch) / "log"
        if not log.exists():
            write_log(log, rows, keys, console)
        size = sum(path.stat().st_size for path in log.glob("*.parquet"))
        contenders = compare(log, options, names)
    title = (
        f"{rows:,} rows, {keys:,} keys, {size / _MEGABYTE:,.0f} MB of Parquet, local[2], "
        f"capacity {options.capacity:,}"
    )
    show(title, contenders, rows, console)


def _version(package: str) -> Any:
    from importlib.metadata import version

    return version(package)


if __name__ == "__main__":
    main()
