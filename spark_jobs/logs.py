"""Delivery logs as Spark and pyarrow read them: which format, which columns, which splits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from decaysketch.batch import FileSplit
from spark_jobs.console import JobError
from spark_jobs.session import path_to_read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FORMATS", "check_there", "detect_format", "log_bytes", "parquet_splits", "read_log"]

FORMATS = ("parquet", "csv", "json")

_FORMAT_OF_SUFFIX = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_COMPRESSED = re.compile(r"\.(gz|bz2|zst)$")


def check_there(log: Path) -> None:
    """Refuse a path that leads nowhere."""
    if not log.exists():
        raise JobError(f"{log} does not exist")


def _data_files(log: Path) -> Iterator[Path]:
    """The files of a log: itself, or what is in the folder apart from notes and hidden files."""
    if log.is_file():
        yield log
    else:
        parts = (path for path in sorted(log.rglob("*")) if path.is_file())
        yield from (path for path in parts if not path.name.startswith(("_", ".")))


def detect_format(log: Path) -> str:
    """ "parquet", "csv" or "json" (one object a line), from the suffix of the log's files."""
    found = set()
    for path in _data_files(log):
        suffix = Path(_COMPRESSED.sub("", path.name)).suffix.lower()
        found.add(_FORMAT_OF_SUFFIX.get(suffix, suffix or path.name))
    if len(found) == 1 and (only := found.pop()) in FORMATS:
        return only
    raise JobError(
        f"cannot tell the format of {log} by its suffix ({', '.join(sorted(found)) or 'no files'});"
        f" say which with --format: {', '.join(FORMATS)}"
    )


def log_bytes(log: Path) -> int:
    """Size of the log on disk."""
    return sum(path.stat().st_size for path in _data_files(log))


def read_log(session: SparkSession, log: Path, format: str, schema: str | None) -> DataFrame:
    """The log as a DataFrame. Types of text formats are inferred unless ``schema`` (DDL) is given.

    Inference reads "0012" as the number 12: ids that are text need a schema.
    """
    reader = session.read
    if schema is not None:
        reader = reader.schema(schema)
    if format == "csv":
        return reader.csv(
            path_to_read(log), header=True, inferSchema=schema is None, mode="FAILFAST"
        )
    if format == "json":
        return reader.json(path_to_read(log), mode="FAILFAST")
    return reader.parquet(path_to_read(log))


def _row_groups(path: Path) -> Iterator[tuple[str, int, int, int]]:
    """``(path, number, first row, rows)`` of each row group of a file."""
    try:
        metadata = pq.read_metadata(path)
    except pa.ArrowException as fault:
        raise JobError(f"{path} cannot be read as Parquet: {fault}") from None
    first_row = 0
    for number in range(metadata.num_row_groups):
        rows = metadata.row_group(number).num_rows
        yield str(path.resolve()), number, first_row, rows
        first_row += rows


def parquet_splits(log: Path, tasks: int) -> list[FileSplit] | None:
    """Parts of a Parquet log that workers can read by themselves, about ``tasks`` of them.

    None where the folder's names carry columns (``day=3/...``), which only the engine puts back.
    """
    files = list(_data_files(log))
    if any("=" in part for path in files for part in path.relative_to(log).parts[:-1]):
        return None
    groups = [group for path in files for group in _row_groups(path)]
    share = max(1, -(-sum(rows for *_, rows in groups) // tasks))
    splits: list[FileSplit] = []
    room = 0
    for path_text, number, first_row, rows in groups:
        if room > 0 and splits[-1].path == path_text:
            last = splits[-1]
            splits[-1] = FileSplit(path_text, (*last.row_groups, number), last.first_row)
            room -= rows
        else:
            splits.append(FileSplit(path_text, (number,), first_row))
            room = share - rows
    return splits
