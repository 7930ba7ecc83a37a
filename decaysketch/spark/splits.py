"""A log's files, and a Parquet log cut into tasks by row groups.

If workers read files themselves, the engine does not have to read rows only to forward them. A task
is a run of row groups, and all tasks have about equally many rows. Row groups are skipped if their
statistics exclude every wanted row. Only listings and footers are read here.

A log is a file or a folder, or several. A plain path is local. A URI may name any file system that
pyarrow knows (``s3://``, ``gs://``, ``abfss://``, ``hdfs://``, ``file://``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.fs as pa_fs

from decaysketch.core.params import check_integer
from decaysketch.errors import ParameterError
from decaysketch.families import Params
from decaysketch.tables import ColumnMapping, FileSplit, RowFilter
from decaysketch.tables.workers import matching_row_groups, open_parquet

__all__ = [
    "Log",
    "LogFile",
    "ParquetTasks",
    "TaskSplits",
    "find_files",
    "is_uri",
    "parquet_tasks",
]

Log = str | Path | Sequence[str | Path]

_ROWS_WORTH_A_TASK = 1 << 23  # less costs more to merge than an even load on the cores gains
_TASKS_PER_CORE = 3
_ROWS_PER_TASK = 1 << 25  # at most, because a failed task reads its rows again
_FOOTERS_AT_A_TIME = 16  # so that a distant file system does not keep the driver waiting
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")  # of two letters: one is a Windows drive


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log file: an absolute path or a URI, and its path below the log."""

    path: str
    parts: tuple[str, ...]
    size_bytes: int
    modified_ns: int | None = None  # where the file system tells

    @property
    def in_partition_folder(self) -> bool:
        """Whether a folder in its path has a column in its name (``day=3``)."""
        return any("=" in part for part in self.parts[:-1])


@dataclass(frozen=True, slots=True)
class ParquetTasks:
    """A Parquet log's parts, for :func:`decaysketch.tables.file_builder`.

    Attributes:
        schema: the columns in its first file.
        splits: runs of row groups, in file order.
        starts: each task's first split, and at the end the number of splits.
        rows: rows in the splits.
        pruned_rows: rows in the skipped row groups.
    """

    schema: pa.Schema
    splits: tuple[FileSplit, ...]
    starts: tuple[int, ...]
    rows: int
    pruned_rows: int

    def __len__(self) -> int:
        return len(self.starts) - 1


@dataclass(frozen=True, slots=True)
class TaskSplits:
    """Converts task numbers (column ``id``) into the numbers of their splits."""

    starts: tuple[int, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column("id").to_pylist():
                numbers = range(self.starts[task], self.starts[task + 1])
                yield pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], ["id"])


def is_uri(path: str | Path) -> bool:
    """Return whether a path names its file system."""
    return isinstance(path, str) and _SCHEME.match(path) is not None


def find_files(log: Log) -> list[LogFile] | None:
    """Return a log's files, by name, without notes and hidden ones (``_SUCCESS``, ``.crc``).

    None if only Spark knows the file system.

    Raises:
        FileNotFoundError: there is no such file or folder.
        ParameterError: a folder with a format that a listing does not completely describe.
    """
    if not isinstance(log, str | Path):
        found = [find_files(each) for each in log]
        return None if None in found else [file for files in found for file in files or ()]
    try:
        system, path = (
            pa_fs.FileSystem.from_uri(log)
            if isinstance(log, str) and is_uri(log)
            else (pa_fs.LocalFileSystem(), str(Path(log).absolute()))
        )
    except pa.ArrowInvalid:
        return None
    info = system.get_file_info(path)
    if info.type == pa_fs.FileType.NotFound:
        raise FileNotFoundError(f"{log} does not exist")
    if info.is_file:
        return [LogFile(_name(log, path, path), (info.base_name,), info.size, info.mtime_ns)]
    files = []
    for each in system.get_file_info(pa_fs.FileSelector(path, recursive=True)):
        parts = PurePosixPath(each.path).relative_to(path).parts
        if parts[0] == "_delta_log":
            raise ParameterError(
                f"{log} is a Delta table, whose folder also holds files that are no longer part of "
                "it; read it by its format, delta"
            )
        if each.is_file and not any(map(_is_hidden, parts)):
            files.append(LogFile(_name(log, path, each.path), parts, each.size, each.mtime_ns))
    return sorted(files, key=lambda file: file.parts)


def _is_hidden(part: str) -> bool:
    """Return whether Spark treats it as hidden. ``_day=3`` has a column and is not hidden."""
    return part.startswith(".") or (part.startswith("_") and "=" not in part)


def _name(log: str | Path, root: str, path: str) -> str:
    """Return a log file's name that is valid on every machine with a task."""
    if not isinstance(log, str) or not is_uri(log) or log.startswith("file:"):
        return path
    address, mark, query = log.partition("?")
    below = PurePosixPath(path).relative_to(root).as_posix()
    name = address if below == "." else f"{address.rstrip('/')}/{quote(below)}"
    return name + mark + query


def parquet_tasks(
    files: Sequence[LogFile],
    params: Params,
    mapping: ColumnMapping,
    only: RowFilter | None = None,
    *,
    cores: int,
    tasks: int | None = None,
) -> ParquetTasks | None:
    """Cut a log into tasks. There are fewer than wanted if it has fewer row groups.

    Args:
        files: the log's files.
        params, mapping, only: define the row groups with wanted rows.
        cores: number of tasks that run at the same time.
        tasks: wanted number. None: one for each core, up to three for a longer log, more only for
            more than 33 million rows each. A task gives a partial sketch for each key, so fewer
            tasks leave less to merge.

    Returns:
        The parts. None if folder names have columns (``day=3/...``), because only Spark restores
        them, or if there are no files.

    Raises:
        ParameterError: a file is not Parquet.
    """
    if not files or any(file.in_partition_folder for file in files):
        return None
    footer = partial(_footer, params=params, mapping=mapping, only=only)
    with ThreadPoolExecutor(_FOOTERS_AT_A_TIME) as pool:
        footers = list(pool.map(footer, [file.path for file in files]))
    groups = [group for found in footers for group in found.groups]
    rows = sum(group.rows for group in groups)
    if tasks is None:
        tasks = _task_count(rows, cores)
    check_integer("tasks", tasks, 1, 1 << 31)
    splits: list[FileSplit] = []
    starts: list[int] = []
    taken, before = 0, -1
    for group in groups:
        # The task that the middle of this row group belongs to.
        task = (2 * taken + group.rows) * tasks // (2 * rows) if rows else 0
        taken += group.rows
        if task == before and group.follows(splits[-1]):
            numbers = (*splits[-1].row_groups, group.number)
            splits[-1] = FileSplit(group.path, numbers, splits[-1].first_row)
            continue
        if task != before:
            starts.append(len(splits))
            before = task
        splits.append(FileSplit(group.path, (group.number,), group.first_row))
    pruned_rows = sum(found.rows for found in footers) - rows
    return ParquetTasks(footers[0].schema, tuple(splits), (*starts, len(splits)), rows, pruned_rows)


def _task_count(rows: int, cores: int) -> int:
    per_core = min(max(1, round(rows / (cores * _ROWS_WORTH_A_TASK))), _TASKS_PER_CORE)
    return max(1, cores * per_core, -(-rows // _ROWS_PER_TASK))


class _RowGroup(NamedTuple):
    path: str
    number: int
    first_row: int
    rows: int

    def follows(self, split: FileSplit) -> bool:
        return split.path == self.path and split.row_groups[-1] + 1 == self.number


class _Footer(NamedTuple):
    schema: pa.Schema
    rows: int
    groups: list[_RowGroup]  # that may hold rows that are wanted


def _footer(path: str, params: Params, mapping: ColumnMapping, only: RowFilter | None) -> _Footer:
    try:
        with open_parquet(path) as file:
            metadata = file.metadata
            counts = [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)]
            firsts = [0, *accumulate(counts)]
            groups = [
                _RowGroup(path, number, firsts[number], counts[number])
                for number in matching_row_groups(file, params, mapping, only)
            ]
            return _Footer(file.schema_arrow, metadata.num_rows, groups)
    except pa.ArrowException as fault:
        raise ParameterError(f"{path} cannot be read as Parquet: {fault}") from None
