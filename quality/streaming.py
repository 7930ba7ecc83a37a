"""``python -m quality.streaming``: a streaming query is killed, again and again.

A query reads the files of a delivery log as they come and merges them into a table of sketches,
with :func:`decaysketch.spark.streaming.merge_into`. At a random moment its processes are killed
without warning (SIGKILL): all of them, or the driver alone, whose engine may then write on for a
while. It is started again from its checkpoint, over the same table. New files come in every round;
some of their rows are copies of what was read long before, and some are 30 days late.

After the last kill the query reads to the end. Then

- the sketch of every key is, byte for byte, that of one build of all rows in this process;
- the counts of deliveries are those of all rows, each counted once;
- no file is left that the table does not name.

Between two rounds the table is opened too: a killed writer never leaves half a version.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

import decaysketch as ds
from decaysketch.families import recipe_of
from decaysketch.spark.streaming import merge_into
from decaysketch.spark.tables import SketchTable
from decaysketch.tables import ColumnMapping, KeyedBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["MAPPING", "PARAMS", "MismatchError", "Outcome", "Study", "log_file", "main", "start"]

ROOT = Path(__file__).parents[1]
PARAMS = ds.SketchParams(max_weight=9, id_bits=40, capacity=300, seed=17, time_unit="us")
MAPPING = ColumnMapping(time="event_us", ids=("source", "msg"), value="value", weight="weight")
BY = ("path",)
SCHEMA = pa.schema(
    {
        "event_us": pa.int64(), "source": pa.int32(), "msg": pa.int64(), "path": pa.string(),
        "value": pa.float64(), "weight": pa.int64(),
    }
)  # fmt: skip

_PATHS = np.array(["a", "b", "c/d", None], dtype=object)
_ROWS = 2_000  # of a file
_FILES_A_ROUND = 5
_DAY_US = 86_400_000_000
_BEGIN_US = 1_700_000_000_000_000
Moment = Literal["starting", "first batch", "any batch", "writing"]
MOMENTS: tuple[Moment, ...] = get_args(Moment)

_STARTED = "the query has started"
_LONGEST_START_S = 1800.0


class MismatchError(AssertionError):
    """The table is not what one build of all rows gives; the message says where."""


def log_file(number: int) -> pa.Table:
    """File ``number`` of the log: a minute of messages, copies of earlier ones, and late ones."""
    draw = np.random.default_rng(number)
    # Of ten messages seven are of this file, two of any before it, and one is 30 days late.
    kind = draw.choice(3, _ROWS, p=[0.7, 0.2, 0.1])
    own = number * _ROWS + draw.integers(0, _ROWS, _ROWS)
    message = np.where(kind == 1, draw.integers(0, (number + 1) * _ROWS, _ROWS), own)
    late = message % 10 == 7
    event = _BEGIN_US + message * 30_000 - np.where(late, 30 * _DAY_US, 0)
    return pa.table(
        [
            event, message % 23, message // 23, _PATHS[draw.integers(0, len(_PATHS), _ROWS)],
            np.round(draw.normal(20, 5, _ROWS), 2), 1 + message % 9,
        ],
        schema=SCHEMA,
    )  # fmt: skip


def start(session: SparkSession, folder: Path, *, to_the_end: bool = False) -> StreamingQuery:
    """Start the query of a folder, or go on with it: one file a batch."""
    schema = session.createDataFrame(SCHEMA.empty_table()).schema
    log = session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    writer = (
        log.parquet(f"file://{folder / 'log'}")
        .writeStream.foreachBatch(
            merge_into(folder / "table", PARAMS, MAPPING, BY, most_runs=3, keep=3)
        )
        .option("checkpointLocation", f"file://{folder / 'checkpoint'}")
    )
    return (writer.trigger(availableNow=True) if to_the_end else writer).start()


def _drive(folder: Path) -> None:
    """What the process that is killed does."""
    from spark_jobs.session import spark_session

    with spark_session("streaming that is killed") as session:
        query = start(session, folder)
        sys.stdout.write(f"{_STARTED}\n")
        sys.stdout.flush()
        query.awaitTermination()


@dataclass
class Outcome:
    """Of all rounds together."""

    seed: int
    rounds: int = 0
    driver_only: int = 0  # kills that left the engine running
    before_start: int = 0  # kills before there was a query
    unfinished: int = 0  # kills that left files which no version names
    last_batch: int = 0
    versions: int = 0
    rows: int = 0
    seconds: float = 0.0


class Study:
    """A log that grows in a folder, a query over it, and what the table must be."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.outcome = folder, Outcome(seed)
        self._draw = random.Random(seed)
        self._files = 0
        self._batch_s = 1.0
        self._expected = KeyedBuilder(recipe_of(PARAMS), MAPPING, BY)
        (folder / "log").mkdir(parents=True)

    def add_files(self, count: int) -> None:
        """Let files of the log appear, each at once."""
        for number in range(self._files, self._files + count):
            table = log_file(number)
            draft = self.folder / f"{number}.part"
            pq.write_table(table, draft)
            draft.rename(self.folder / "log" / f"{number:05d}.parquet")
            self._expected.add(table)
            self.outcome.rows += table.num_rows
        self._files += count

    def kill_once(self, moment: Moment | None = None) -> None:
        """One round: more files, start, kill at a moment, look at what is there."""
        self.add_files(_FILES_A_ROUND)
        moment = moment or self._draw.choices(MOMENTS, (0.1, 0.15, 0.45, 0.3))[0]
        program = subprocess.Popen(
            [sys.executable, "-m", "quality.streaming", "--drive", str(self.folder)],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            self._await_moment(program, moment)
            if self._draw.random() < 0.3:
                self.outcome.driver_only += 1
                program.kill()
                time.sleep(self._draw.uniform(0.0, 0.5))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
            assert program.stdout is not None
            program.stdout.close()
        self.outcome.rounds += 1
        if SketchTable.exists(self.folder / "table"):
            SketchTable.open(self.folder / "table").read()
            self.outcome.unfinished += bool(self._unnamed())

    def _await_moment(self, program: subprocess.Popen[str], moment: Moment) -> None:
        if moment == "starting":
            self.outcome.before_start += 1
            time.sleep(self._draw.uniform(0.0, 4.0))
            return
        self._await_start(program)
        if moment == "first batch":
            time.sleep(self._draw.uniform(0.0, 6.0))
            return
        for _ in range(2):  # the first one of a process takes longer
            began = time.monotonic()
            self._await(program, partial(self._is_after, self._newest()))
            self._batch_s = time.monotonic() - began
        if moment == "any batch":
            time.sleep(self._draw.uniform(0.0, self._batch_s))
        else:
            self._await(program, self._unnamed)
            time.sleep(self._draw.uniform(0.0, 0.2))

    def _newest(self) -> str:
        """The name of the latest version."""
        folder = self.folder / "table" / "_delta_log"
        return max((path.name for path in folder.glob("*.json")), default="")

    def _is_after(self, version: str) -> bool:
        return self._newest() > version

    def _await(self, program: subprocess.Popen[str], condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + _LONGEST_START_S
        while not condition():
            if program.poll() is not None or time.monotonic() > deadline:
                raise MismatchError(f"the query does not go on; its process: {program.poll()}")
            time.sleep(0.01)

    def _await_start(self, program: subprocess.Popen[str]) -> None:
        assert program.stdout is not None
        patience = threading.Timer(_LONGEST_START_S, program.kill)
        patience.start()
        try:
            for line in program.stdout:
                if line.startswith(_STARTED):
                    return
        finally:
            patience.cancel()
        raise MismatchError(f"the query did not start; the process ended with {program.wait()}")

    def _unnamed(self) -> set[str]:
        """Folders of files that no version names yet."""
        later = f"{int(self._newest().partition('.')[0] or -1) + 1:010d}"
        folder = self.folder / "table" / "data"
        return {path.name for path in folder.glob("*") if path.name >= later}

    def finish(self, session: SparkSession) -> None:
        """Read to the end, and compare.

        Raises:
            MismatchError: it is not what it must be.
        """
        query = start(session, self.folder, to_the_end=True)
        query.awaitTermination()
        table = SketchTable.open(self.folder / "table")
        self.outcome.versions = table.version
        self.outcome.last_batch = table.applied(str(query.id)) or 0
        rows = table.read()
        expected = pa.Table.from_batches(self._expected.batches()).cast(rows.schema)
        expected = _sorted(expected)
        for name in expected.column_names:
            if not rows.column(name).equals(expected.column(name)):
                raise MismatchError(
                    f"column {name}: {rows.column(name)} != {expected.column(name)}"
                )
        if unnamed := self._unnamed():
            raise MismatchError(f"files are left that no version names: {sorted(unnamed)}")


def _sorted(table: pa.Table) -> pa.Table:
    keys = [(key is not None, key) for key in table.column("path").to_pylist()]
    return table.take(pa.array(sorted(range(len(keys)), key=keys.__getitem__)))


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m quality.streaming", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=20, help="kills")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--drive", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.drive is not None:
        _drive(options.drive)
        return 0
    from spark_jobs.session import spark_session

    console = Console()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="decaysketch-streaming-") as folder:
        study = Study(Path(folder), options.seed)
        for _ in range(options.rounds):
            study.kill_once()
            console.print(f"{study.outcome.rounds} kills, {study.outcome.unfinished} of a writer")
        with spark_session("streaming to the end") as session:
            study.finish(session)
    study.outcome.seconds = round(time.monotonic() - began, 1)
    fields: dict[str, Any] = asdict(study.outcome)
    console.print("; ".join(f"{name} {value}" for name, value in fields.items()))
    console.print("Every sketch is that of one build, and every row was counted once.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
