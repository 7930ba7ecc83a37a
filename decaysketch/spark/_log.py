"""Read and commit versions of a sketch table in its Delta log. See ``tables.py``.

Delta stores the key columns, the files, and each writer's last piece of work. This module adds

- to the field ``sketch`` in the table's schema: the sketch configuration, the key columns' names,
  and ``keep``;
- to each commit's information: the partitions with their runs and fingerprints, and the notes.

A commit is made on exactly one version (``max_commit_retries=0``): of two writers, one fails. The
log's files must be the runs' files, so a reader notices if another program changed the table.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeAlias

import deltalake
import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import (
    AddAction,
    CommitProperties,
    RemoveAction,
    Transaction,
    create_table_with_add_actions,
)

from decaysketch.errors import DecaySketchError
from decaysketch.spark._storage import Storage
from decaysketch.tables import RESULT_FIELDS

__all__ = [
    "COLUMNS",
    "COUNTS",
    "LOG",
    "Content",
    "File",
    "Partition",
    "Run",
    "TableBusyError",
    "TableError",
    "applied",
    "change",
    "create",
    "key_types",
    "latest",
    "read",
    "remove_cut_off",
]

#: Names of :data:`decaysketch.tables.RESULT_FIELDS`, and the names of summed counts.
COLUMNS: Final = tuple(f.name for f in RESULT_FIELDS)
COUNTS: Final = tuple(f.name for f in RESULT_FIELDS if pa.types.is_int64(f.type))
LOG: Final = "_delta_log"

_KEY = "decaysketch"  # in a field's metadata and in a commit's information
_COMMIT = re.compile(r"(\d{20})\.json")
_FOLDER = re.compile(r"data/\d{10}-[0-9a-f]{8}")
_LOGGED = {"delta.logRetentionDuration": "interval 1 days"}  # each commit names all partitions
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)

#: A writer's name, and the number of its piece of work.
Work: TypeAlias = tuple[str, int]


class TableError(DecaySketchError):
    """A place is no sketch table, or cannot become one, or rows do not belong in it."""


class TableBusyError(TableError):
    """Another writer was first. Nothing was changed. Open the table again, and try again."""


class File(NamedTuple):
    """A Parquet file below the table's folder."""

    path: str
    size: int  # bytes
    rows: int


class Run(NamedTuple):
    """Files that were written together, with one row for each key."""

    files: tuple[File, ...]
    counts: dict[str, int]  # sketches, sketch_bytes, and the sums of the columns of counts

    @property
    def folder(self) -> str:
        """The folder of the files."""
        return self.files[0].path.rpartition("/")[0]

    @property
    def size(self) -> int:
        """The sketches' bytes."""
        return self.counts["sketch_bytes"]


@dataclass(frozen=True, slots=True)
class Partition:
    """Runs with one label, and their input's fingerprint."""

    runs: tuple[Run, ...] = ()
    fingerprint: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A version's sketch configuration, key columns, files and counts.

    Attributes:
        recipe, by, keep: from the schema.
        types: Arrow types of the key columns, by name. None until there are rows.
        partitions: by label.
        retired: folders that no partition names any more, and the version that removed them.
        notes: notes about the version.
    """

    recipe: dict[str, Any]
    by: tuple[str, ...]
    types: dict[str, pa.DataType] | None = None
    keep: int = 1
    partitions: dict[str, Partition] = field(default_factory=dict)
    retired: dict[str, int] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def runs(self) -> list[Run]:
        """The runs in all partitions."""
        return [run for partition in self.partitions.values() for run in partition.runs]

    @property
    def schema(self) -> pa.Schema | None:
        """The row schema. None until there are rows."""
        if self.types is None:
            return None
        return pa.schema([*self.types.items(), *RESULT_FIELDS])

    def after(self, before: Content, version: int) -> Content:
        """Return the same as the version that follows ``before``.

        A folder that this version removes stays until ``keep`` versions do without it.
        """
        gone = {run.folder for run in before.runs} - {run.folder for run in self.runs}
        retired = before.retired | dict.fromkeys(gone, version)
        readable = {name: at for name, at in retired.items() if at > version + 1 - self.keep}
        return replace(self, retired=readable)


def key_types(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Return the key columns in a table with this schema, by name, and their types."""
    return {field.name: field.type for field in schema if field.name not in COLUMNS}


# --------------------------------------------------------------------------------------------- read


def latest(storage: Storage) -> int | None:
    """Return the latest version. None if there is none.

    A power failure may cut off the last commit's file. That version was never reported as made, and
    the next writer removes it.
    """
    numbers = _versions(storage)
    if numbers and _is_cut_off(storage, numbers[-1]):
        numbers.pop()
    return numbers[-1] if numbers else None


def remove_cut_off(storage: Storage) -> None:
    """Remove a last commit that a power failure cut off. Call it while holding the lock."""
    for number in _versions(storage)[-1:]:
        if _is_cut_off(storage, number):
            storage.remove(_commit_name(number))


def read(storage: Storage, version: int) -> Content:
    """Return a version's content.

    Raises:
        TableError: it is no sketch table, or another program changed it.
    """
    try:
        table = _table(storage, version)
        schema = pa.schema(table.schema().to_arrow())
        given = json.loads((schema.field("sketch").metadata or {})[_KEY.encode()])
        types, by = key_types(schema), tuple(given["by"])
        content = Content(
            recipe=dict(given["recipe"]), by=by, keep=int(given["keep"]),
            types=types if set(types) == set(by) else None,
        )  # fmt: skip
        return _with_state(content, _state(storage, version), _files(table))
    except (OSError, DeltaError, *_UNREADABLE) as fault:
        reason = str(fault).partition("\n")[0]
        raise TableError(
            f"{storage.name} is not a table of sketches, or cannot be read: {reason}"
        ) from None


def applied(storage: Storage, version: int, writer: str) -> int | None:
    """Return the number of a writer's last piece of work in this version."""
    table = _table(storage, version)
    return table.transaction_version(_application(table, writer))


def _table(storage: Storage, version: int) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(storage.delta_uri, version, storage_options=storage.options)


def _application(table: deltalake.DeltaTable, writer: str) -> str:
    """Return the name of a writer to this table. A table that replaces it has another id."""
    return f"{table.metadata().id}/{writer}"


def _versions(storage: Storage) -> list[int]:
    found = (_COMMIT.fullmatch(name) for name in storage.entries(LOG))
    return sorted(int(match[1]) for match in found if match)


def _commit_name(version: int) -> str:
    return f"{LOG}/{version:020d}.json"


def _is_cut_off(storage: Storage, version: int) -> bool:
    if not storage.local:
        return False
    try:
        return not _actions(storage, version)
    except RecursionError:
        return False
    except ValueError:
        return True


def _actions(storage: Storage, version: int) -> list[Any]:
    lines = storage.read(_commit_name(version)).splitlines()
    return [json.loads(line) for line in lines]


def _state(storage: Storage, version: int) -> dict[str, Any]:
    """Return the state in this module's last commit. Other programs may have made later ones."""
    for number in reversed(_versions(storage)):
        if number > version:
            continue
        for action in _actions(storage, number):
            if _KEY in action.get("commitInfo", {}):
                return dict(json.loads(action["commitInfo"][_KEY]))
    raise KeyError("no commit names partitions")


def _files(table: deltalake.DeltaTable) -> dict[str, list[File]]:
    """Return the table's files by folder."""
    added = pa.table(table.get_add_actions()).select(["path", "size_bytes", "num_records"])
    found: dict[str, list[File]] = {}
    for file in sorted(File(*row.values()) for row in added.to_pylist()):
        found.setdefault(file.path.rpartition("/")[0], []).append(file)
    return found


def _with_state(
    content: Content, state: Mapping[str, Any], files: dict[str, list[File]]
) -> Content:
    """Return the content with its partitions, whose files are exactly the log's."""

    def run(given: Mapping[str, Any]) -> Run:
        own = tuple(files.pop(given["folder"], ()))
        if len(own) != given["files"] or not _FOLDER.fullmatch(given["folder"]):
            raise ValueError(f"another program changed the files in {given['folder']!r}")
        return Run(own, dict(given["counts"]))

    partitions = {
        label: Partition(tuple(map(run, each["runs"])), each["fingerprint"])
        for label, each in state["partitions"].items()
    }
    if files:
        raise ValueError(f"another program added the files in {sorted(files)[0]!r}")
    retired = {str(name): int(at) for name, at in state["retired"].items()}
    return replace(content, partitions=partitions, retired=retired, notes=dict(state["notes"]))


# -------------------------------------------------------------------------------------------- write


def create(storage: Storage, content: Content, *, overwrite: bool = False) -> int:
    """Commit a table's first version. With ``overwrite``, the one that replaces a table.

    Raises:
        TableBusyError: another program made a table, or a version, meanwhile.
    """
    spec = {"recipe": content.recipe, "by": content.by, "keep": content.keep}
    schema = content.schema or pa.schema(RESULT_FIELDS)
    place = schema.get_field_index("sketch")
    schema = schema.set(place, schema.field(place).with_metadata({_KEY: json.dumps(spec)}))
    now = time.time_ns() // 1_000_000
    with _conflicts(storage):
        if not overwrite and latest(storage) is not None:
            raise CommitFailedError
        create_table_with_add_actions(
            storage.delta_uri, deltalake.Schema.from_arrow(schema),
            [_added(file, now) for run in content.runs for file in run.files],
            mode="overwrite" if overwrite else "error", configuration=_LOGGED,
            storage_options=storage.options, commit_properties=_said(content),
        )  # fmt: skip
    made = latest(storage)
    assert made is not None
    return _kept(storage, made)


def change(
    storage: Storage, version: int, before: Content, after: Content, *, work: Work | None = None,
    same_rows: bool = False,
) -> int:  # fmt: skip
    """Commit the version after ``version``. The first rows need two: one adds their key columns.

    Args:
        storage: the table's folder.
        version: the version to change.
        before, after: its content, and that of the next version.
        work: recorded in the same commit.
        same_rows: the new files have the rows of the removed ones, so followers skip them.

    Raises:
        TableBusyError: another program made a version meanwhile.
    """
    with _conflicts(storage):
        table = _table(storage, version)
        if before.types is None and after.types is not None:
            keys = deltalake.Schema.from_arrow(pa.schema(list(after.types.items())))
            table.alter.add_columns(list(keys.fields), commit_properties=_said(before))
            version = _kept(storage, version + 1)
            table = _table(storage, version)
        old = {file for run in before.runs for file in run.files}
        new = {file for run in after.runs for file in run.files}
        now = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [
            _added(file, now, not same_rows) for file in sorted(new - old)
        ]
        actions += [
            RemoveAction(file.path, not same_rows, now, file.size, {}) for file in sorted(old - new)
        ]
        done = [] if work is None else [Transaction(_application(table, work[0]), work[1])]
        table.create_write_transaction(
            actions, "append", table.schema(), commit_properties=_said(after, done)
        )
    return _kept(storage, version + 1)


def _added(file: File, now: int, data_change: bool = True) -> AddAction:
    return AddAction(
        file.path, file.size, {}, now, data_change, json.dumps({"numRecords": file.rows})
    )


def _said(content: Content, done: Sequence[Transaction] = ()) -> CommitProperties:
    """Return the information of a commit."""
    state = {
        "partitions": {
            label: {
                "fingerprint": partition.fingerprint,
                "runs": [
                    {"folder": run.folder, "files": len(run.files), "counts": run.counts}
                    for run in partition.runs
                ],
            }
            for label, partition in content.partitions.items()
        },
        "retired": content.retired,
        "notes": content.notes,
    }
    return CommitProperties({_KEY: json.dumps(state)}, 0, list(done))


@contextmanager
def _conflicts(storage: Storage) -> Iterator[None]:
    try:
        yield
    except CommitFailedError:
        raise TableBusyError(f"another program made a version of {storage.name}") from None
    except DeltaError as fault:
        reason = str(fault).partition("\n")[0]
        raise TableError(f"{storage.name} cannot be written: {reason}") from None


def _kept(storage: Storage, version: int) -> int:
    """Sync a commit, and the checkpoint that may come with it, to the disk."""
    mine = (f"{version:020d}.", "_last_checkpoint")
    storage.keep(*(f"{LOG}/{name}" for name in storage.entries(LOG) if name.startswith(mine)))
    return version
