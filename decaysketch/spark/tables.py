"""The stored sketch table: a Delta table that builds write and other programs read.

    DIR/_delta_log/                 the Delta log: one version after another
    DIR/data/0000000007-5f3a9c01/   the Parquet files that version 7 added: the key columns and
                                    :data:`decaysketch.tables.RESULT_FIELDS`
    DIR/.lock                       held by a writer, on a local file system

A writer first writes files that no version names, with Spark's executors or with Arrow. Then it
commits them (:mod:`decaysketch.spark._log`). So a reader sees a complete change or no change, and a
writer that is killed at any moment leaves the previous version. The next writer removes the
unfinished files. The files of the last ``keep`` versions stay, so a reader has the time for that
many changes to finish. Any engine that reads Delta tables reads the rows as they are stored: a key
has one row in each run.

*Runs.* Sketches merge, so a table need not be rewritten to contain more: :meth:`SketchTable.append`
adds a run of files, and a reader of one sketch per key merges the runs. :meth:`SketchTable.compact`
merges them into one.

*Partitions.* A table may be divided by any label, such as the log rows' day or file. A corrected
log may have lost rows, and no merge removes them. Its partitions are then *replaced*
(:meth:`SketchTable.replace_partitions`). Each stores its input's ``fingerprint``, so that unchanged
ones stay as they are. The table is the merge of all partitions.

*Counts* count the deliveries that were read, including duplicates. A merge adds them up. A build
that is merged twice counts twice there, and never in a sketch. Delta's application transactions
store each writer's last piece of work, so that :mod:`decaysketch.spark.streaming` counts a batch
once.

A table that was written before tables had a Delta log (``versions/``) is not read. Build it again
with ``overwrite``.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyarrow import fs

from decaysketch.decay.integral import IntegralDecay
from decaysketch.errors import ParameterError
from decaysketch.families import DEFAULT, Recipe, recipe_from_dict
from decaysketch.spark import _log, _rows
from decaysketch.spark._log import COUNTS, LOG, Content, Partition, Run, TableBusyError, TableError
from decaysketch.spark._rows import Expected, Rows
from decaysketch.spark._storage import LOCK, Storage
from decaysketch.tables import RESULT_FIELDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "Partition",
    "Run",
    "SketchTable",
    "StoredSketch",
    "TableBusyError",
    "TableError",
]

#: Notes that a version stores. A function is called when the files are written.
Notes: TypeAlias = Mapping[str, Any] | Callable[[], Mapping[str, Any]]
#: A partition's rows, and its input's fingerprint.
Part: TypeAlias = tuple[Rows, Mapping[str, Any] | None]

_FOLDER = re.compile(r"\d{10}-[0-9a-f]{8}")  # below data: the files that a version added
_LOGGED = re.compile(
    r"\d{20}\.(json|checkpoint.*)(#\d+)?|_last_checkpoint(#\d+)?|.*\.crc|_sidecars"
)
_UNLINKED = re.compile(r".*#\d+")  # below _delta_log: one that did not appear
_OLD = "versions"  # of a table without a Delta log
_OLD_VERSION = re.compile(r"\d{10}\.json|\.[0-9a-f]{16}\.part")
_OURS = {LOG: _LOGGED, "data": _FOLDER, _OLD: _OLD_VERSION}
_BY_DIGEST = ("fractions", "table")  # decays that a recipe's JSON names only


@dataclass(frozen=True, slots=True)
class StoredSketch:
    """One row in a table."""

    key: tuple[Any, ...]
    rows: int
    blob: bytes
    digest: str


@dataclass(frozen=True, slots=True)
class SketchTable:
    """One version of a table. Writing methods return the next one, and leave this one unchanged.

    Attributes:
        storage: its folder.
        version: its number in the Delta log.
        content: its partitions and notes.
    """

    storage: Storage
    version: int
    content: Content
    _id_key: bytes | None = field(default=None, repr=False)
    _decay: IntegralDecay | None = field(default=None, repr=False)

    # -------------------------------------------------------------------------- open and create

    @classmethod
    def exists(
        cls, path: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None
    ) -> bool:
        """Return whether there is a table, with a Delta log or without.

        Raises:
            TableError: there is a file, or a folder with foreign content.
        """
        return _has_table(Storage(path, storage_options))

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        id_key: bytes | None = None,
        decay: IntegralDecay | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> SketchTable:
        """Return the latest version.

        Args:
            path: a folder, local or by a URI that both deltalake and Spark know.
            id_key: the stream's secret, if it has one and sketches will be merged.
            decay: the decay, if it is a table and sketches will be merged.
            storage_options: deltalake's options for the file system of a URI.

        Raises:
            TableError: there is none.
        """
        storage = Storage(path, storage_options)
        version = _log.latest(storage)
        if version is None:
            raise _no_table(storage)
        return cls(storage, version, _log.read(storage, version), id_key, decay)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        recipe: Recipe,
        by: Sequence[str] = (),
        *,
        keep: int = 2,
        notes: Notes | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> SketchTable:
        """Create a table without rows.

        Args:
            path, storage_options: see :meth:`open`.
            recipe: the sketch configuration. Its secret is not stored.
            by: the key columns.
            keep: number of versions that stay readable, at least 1.
            notes: notes about it.

        Raises:
            TableError: the place is not empty.
        """
        return cls.write(
            path, {}, recipe, by, keep=keep, notes=notes, storage_options=storage_options
        )

    @classmethod
    def write(
        cls,
        path: str | os.PathLike[str],
        rows: Rows | Mapping[str, Part],
        recipe: Recipe,
        by: Sequence[str] = (),
        *,
        overwrite: bool = False,
        keep: int = 2,
        notes: Notes | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> SketchTable:
        """Create a table with these rows. With ``overwrite`` it replaces an existing one.

        Args:
            path, recipe, by, keep, storage_options: see :meth:`create`.
            rows: see :meth:`replace`. Or by label, see :meth:`replace_partitions`.
            notes: see :meth:`replace`.
            overwrite: replace any existing table, at once.

        Raises:
            TableError: existing data must not be overwritten, or are no table. Or the rows do not
                belong in such a table, or two columns have one name but for case.
            TableBusyError: another writer is active there.
        """
        if keep < 1:
            raise TableError(f"keep is {keep}; expected at least 1")
        _check_names(by)
        storage = Storage(path, storage_options)
        _has_table(storage)
        storage.make()
        empty = Content(recipe=recipe.to_dict(), by=tuple(by), keep=keep)
        table = cls(storage, -1, empty, recipe.params.id_key, recipe.decay)
        parts = rows if isinstance(rows, Mapping) else {"": (rows, None)}
        with table._writing(0.0):
            if _has_table(storage) and not overwrite:
                raise TableError(f"{storage.name} already contains a table of sketches")
            return table._first(parts, notes)

    # --------------------------------------------------------------------------------- describe

    @property
    def path(self) -> str:
        """The place, as it was given."""
        return self.storage.name

    @property
    def by(self) -> tuple[str, ...]:
        """Key column names. Empty if there is one sketch over everything."""
        return self.content.by

    @property
    def recipe(self) -> Recipe:
        """The sketch configuration.

        Raises:
            ParameterError: the stream has a secret, or a decay that is a table, and :meth:`open`
                did not receive it.
        """
        form = self.content.recipe
        needed = form.get("decay", {}).get("kind") in _BY_DIGEST
        return recipe_from_dict(form, id_key=self._id_key, table=self._decay if needed else None)

    @property
    def partitions(self) -> dict[str, Partition]:
        """The partitions by label. The label is "" if rows are not divided."""
        return self.content.partitions

    @property
    def fingerprints(self) -> dict[str, dict[str, Any]]:
        """Each partition's input fingerprint, if it has one."""
        return {
            label: partition.fingerprint
            for label, partition in self.partitions.items()
            if partition.fingerprint is not None
        }

    def applied(self, writer: str) -> int | None:
        """Return the number of a writer's last piece of work. See :meth:`append`."""
        return _log.applied(self.storage, self.version, writer)

    @property
    def added(self) -> list[Run]:
        """The runs that this version added."""
        own = f"data/{self.version:010d}-"
        return [run for run in self.content.runs if run.folder.startswith(own)]

    @property
    def counts(self) -> dict[str, int]:
        """``sketches`` and ``sketch_bytes`` as stored, and the count columns' sums."""
        names = ("sketches", *COUNTS, "sketch_bytes")
        return {name: sum(run.counts.get(name, 0) for run in self.content.runs) for name in names}

    @property
    def summary(self) -> dict[str, Any]:
        """Return the sketch configuration, key columns, counts and notes, JSON-ready."""
        own = self.content
        return {**own.recipe, "by": list(own.by), **self.counts, **own.notes}

    # ------------------------------------------------------------------------------------- read

    def dataframe(
        self, session: SparkSession, partitions: Sequence[str] | None = None
    ) -> DataFrame:
        """Return one row per key (lazily): the key columns, then
        :data:`decaysketch.tables.RESULT_FIELDS`.

        Args:
            session: reads, and merges if there are several runs.
            partitions: labels to read. None: all.

        Raises:
            TableError: there were no rows yet, or no such partition.
            ParameterError: see :attr:`recipe`.
        """
        runs = self._runs_of(partitions)
        rows = self.stored(session, runs)
        return self._merged(rows) if len(runs) > 1 else rows

    def stored(self, session: SparkSession, runs: Sequence[Run] | None = None) -> DataFrame:
        """Return rows as they are stored (lazily). A key has one row in each run that contains it.

        Args:
            session: reads.
            runs: the runs to read. None: all.

        Raises:
            TableError: there were no rows yet.
        """
        if self.content.schema is None:
            raise TableError(f"{self.path} has no rows yet")
        chosen = self.content.runs if runs is None else runs
        files = [self.storage.pattern(file.path) for run in chosen for file in run.files]
        if not files:
            return session.createDataFrame(self.content.schema.empty_table())
        return _rows.selected(session.read.parquet(*files), self.by)

    def _expected(self) -> Expected:
        try:
            fingerprint: bytes | None = self.recipe.params.fingerprint
        except ParameterError:
            fingerprint = None
        return Expected(self.content.recipe.get("family", DEFAULT), fingerprint)

    def _merged(self, rows: DataFrame) -> DataFrame:
        from decaysketch.spark.build import merge_table

        return merge_table(rows, self.by, self.recipe)

    def _runs_of(self, partitions: Sequence[str] | None) -> list[Run]:
        labels = list(self.partitions) if partitions is None else partitions
        for label in labels:
            if label not in self.partitions:
                raise TableError(f"{self.path} has no partition {label!r}")
        return [run for label in labels for run in self.partitions[label].runs]

    def read(self, partitions: Sequence[str] | None = None) -> pa.Table:
        """Read as :meth:`dataframe`, without Spark: in this process's memory, in key order.

        Before the table receives its first row, the result has no key columns, because their types
        are not known.
        """
        table = self._read(partitions)
        if not table.num_rows:
            return table
        return table.take(_rows.order_of(table, self.by))

    def _read(self, partitions: Sequence[str] | None = None) -> pa.Table:
        """Read in no order."""
        schema = self.content.schema
        runs = self._runs_of(partitions)
        if schema is None or not runs:
            return (schema or pa.schema(RESULT_FIELDS)).empty_table()
        table = pa.concat_tables([_rows.read_run(self.storage, run, schema) for run in runs])
        return _rows.merged(table, self.by, self.recipe) if len(runs) > 1 else table

    def sketches(self) -> Iterator[StoredSketch]:
        """Yield the sketches in key order. See :meth:`read`."""
        table = self._read()
        if not table.num_rows:
            return
        columns = [table.column(name) for name in ("rows", "sketch", "digest")]
        order = _rows.order_of(table, self.by)
        ordered = table.select(list(self.by)).take(order) if self.by else table
        keys = _rows.keys_of(ordered, self.by)
        # One row at a time, because take returns at most 2 GB of bytes.
        for key, number in zip(keys, order.to_pylist(), strict=True):
            rows, blob, digest = (column[number].as_py() for column in columns)
            yield StoredSketch(key, rows, blob, digest)

    # ------------------------------------------------------------------------------------ write

    def replace(
        self, rows: Rows, notes: Notes | None = None, *, wait_s: float = 0.0
    ) -> SketchTable:
        """Make a version that contains these rows and nothing else.

        Args:
            rows: one row per key: the key columns and :data:`decaysketch.tables.RESULT_FIELDS`, in
                any order. ``refused`` may be omitted.
            notes: notes about this version. A function is called when the rows are written.
            wait_s: time limit for another writer, in seconds.

        Raises:
            TableBusyError: another writer is active, or made a version after this one.
            TableError: the rows do not belong in this table. Nothing is changed.
        """
        with self._writing(wait_s):
            self._check_latest()
            rest = replace(self.content, partitions={}, notes={})
            return self._next(rest, {"": (rows, None)}, notes)

    def replace_partitions(
        self,
        parts: Mapping[str, Part],
        *,
        remove: Sequence[str] = (),
        notes: Notes | None = None,
        wait_s: float = 0.0,
    ) -> SketchTable:
        """Make a version with some partitions replaced and the rest unchanged.

        Args:
            parts: by label: the rows, one per key, and their input's fingerprint (JSON-ready). A
                new label is added.
            remove: labels without an existing input.
            notes, wait_s: see :meth:`replace`.

        Raises:
            TableBusyError, TableError: see :meth:`replace`. Also, no such label to remove.
        """
        with self._writing(wait_s):
            self._check_latest()
            self._runs_of(remove)
            gone = {*remove, *parts}
            rest = {label: p for label, p in self.partitions.items() if label not in gone}
            return self._next(replace(self.content, partitions=rest, notes={}), parts, notes)

    def append(
        self,
        rows: Rows,
        notes: Notes | None = None,
        *,
        partition: str = "",
        applied: tuple[str, int] | None = None,
        wait_s: float = 0.0,
    ) -> SketchTable:
        """Add these rows as one more run to the latest version, which need not be this one.

        Args:
            rows, wait_s: see :meth:`replace`.
            notes: notes in addition to the previous version's notes.
            partition: the label to add to.
            applied: a writer's name and the number of this piece of work. If it is there already,
                it is added again with counts of 0, which changes no sketch.

        Raises:
            TableBusyError: another writer is active.
            TableError: see :meth:`replace`.
        """
        with self._writing(wait_s):
            latest, work = self._latest(), applied
            if applied is not None:
                done = latest.applied(applied[0])
                if done is not None and applied[1] <= done:
                    rows, work = _rows.without_counts(rows), None
            return latest._next(latest.content, {partition: (rows, None)}, notes, work=work)

    def compact(
        self,
        session: SparkSession,
        *,
        partitions: Sequence[str] | None = None,
        last: int | None = None,
        notes: Notes | None = None,
        wait_s: float = 0.0,
    ) -> SketchTable:
        """Merge several runs in the latest version into one, partition by partition.

        The merged sketches are the same bytes. If there is nothing to merge, it makes no version.

        Args:
            session: merges.
            partitions: labels. None: all.
            last: only this many last runs. None: all.
            notes, wait_s: see :meth:`append`.

        Raises:
            TableBusyError, TableError: see :meth:`append`.
            ParameterError: see :attr:`recipe`.
        """
        with self._writing(wait_s):
            latest = self._latest()
            latest._runs_of(partitions)
            rest, rows = dict(latest.partitions), dict[str, Part]()
            for label in latest.partitions if partitions is None else partitions:
                runs = latest.partitions[label].runs
                first = 0 if last is None else max(0, len(runs) - last)
                if len(runs) - first > 1:
                    rest[label] = replace(rest[label], runs=runs[:first])
                    rows[label] = (latest._merged(latest.stored(session, runs[first:])), None)
            if not rows:
                return latest
            return latest._next(
                replace(latest.content, partitions=rest), rows, notes, same_rows=True
            )

    @contextmanager
    def _writing(self, wait_s: float) -> Iterator[None]:
        try:
            with self.storage.lock(wait_s):
                _log.remove_cut_off(self.storage)
                yield
        except BlockingIOError:
            raise TableBusyError(f"another program is writing to {self.path}") from None

    def _latest(self) -> SketchTable:
        """Return the version to continue from. The lock is held."""
        version = _log.latest(self.storage)
        if version is None:
            raise _no_table(self.storage)
        content, own = _log.read(self.storage, version), self.content
        if (content.recipe, content.by) != (own.recipe, own.by):
            raise TableError(f"{self.path} was replaced by a table of other sketches")
        return replace(self, version=version, content=content)

    def _check_latest(self) -> None:
        if (version := _log.latest(self.storage)) != self.version:
            raise TableBusyError(
                f"{self.path} is at version {version}; this is version {self.version}"
            )

    def _first(self, parts: Mapping[str, Part], notes: Notes | None) -> SketchTable:
        """Write rows, and commit the version that begins the table. The lock is held.

        It replaces a table that exists. If that one cannot be read, its log is removed first.
        """
        storage, version = self.storage, _log.latest(self.storage)
        before = None if version is None else _read_or_none(storage, version)
        number = 0 if before is None or version is None else version + 1
        content = self._stored(number, self.content, parts, notes)
        if before is not None:
            content = content.after(before, number)
        elif version is not None:
            storage.remove(LOG)
        made = _log.create(storage, content, overwrite=before is not None)
        table = replace(self, version=made, content=content)
        table._sweep()
        return table

    def _next(
        self,
        rest: Content,
        parts: Mapping[str, Part],
        notes: Notes | None,
        *,
        work: tuple[str, int] | None = None,
        same_rows: bool = False,
    ) -> SketchTable:
        """Write rows, add them to the rest of this version, and commit it. The lock is held."""
        self._sweep()
        number = self.version + (2 if parts and rest.types is None else 1)
        content = self._stored(number, rest, parts, notes).after(self.content, number)
        made = _log.change(
            self.storage, self.version, self.content, content, work=work, same_rows=same_rows
        )
        table = replace(self, version=made, content=content)
        table._sweep()
        return table

    def _stored(
        self, number: int, rest: Content, parts: Mapping[str, Part], notes: Notes | None
    ) -> Content:
        """Write runs that version ``number`` will add to the rest. Return its content."""
        self.storage.make("data")
        partitions, types, expected = dict(rest.partitions), rest.types, self._expected()
        for label, (rows, fingerprint) in parts.items():
            folder = f"data/{number:010d}-{secrets.token_hex(4)}"
            run, schema = _rows.written_run(self.storage, folder, rows, rest.by, expected)
            found = _log.key_types(schema)
            if types is not None and found != types:
                raise TableError(
                    f"{self.path} has keys {_named(types)}; rows to be stored have {_named(found)}"
                )
            types = found
            held = partitions.get(label, Partition())
            runs = (*held.runs, run) if run.counts["sketches"] else held.runs
            own = held.fingerprint if fingerprint is None else dict(fingerprint)
            partitions[label] = Partition(runs, own)
        said = {**rest.notes, **(notes() if callable(notes) else notes or {})}
        return replace(rest, partitions=partitions, types=types, notes=said)

    def _sweep(self) -> None:
        """Remove files that no readable version names. The lock is held."""
        storage = self.storage
        needed = {run.folder for run in self.content.runs} | self.content.retired.keys()
        newest = f"{self.version:010d}"
        for name, info in storage.entries("data").items():
            # A folder of a later version is that of a writer that was killed, or is at work.
            if not _FOLDER.fullmatch(name) or f"data/{name}" in needed:
                continue
            if name[:10] <= newest or storage.is_leftover(info):
                storage.remove(f"data/{name}")
        for folder, pattern in ((LOG, _UNLINKED), (_OLD, _OLD_VERSION)):
            for name, info in storage.entries(folder).items():
                if pattern.fullmatch(name) and storage.is_leftover(info):
                    storage.remove(f"{folder}/{name}")
        if _OLD in storage.entries() and not storage.entries(_OLD):
            storage.remove(_OLD)


def _check_names(by: Sequence[str]) -> None:
    """Reject key columns that Delta confuses: it compares names without case."""
    seen: dict[str, str] = {}
    for name in (*by, *_log.COLUMNS):
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise TableError(f"a table cannot have the columns {other!r} and {name!r}; rename one")


def _named(types: Mapping[str, pa.DataType]) -> dict[str, str]:
    return {name: str(kind) for name, kind in types.items()}


def _read_or_none(storage: Storage, version: int) -> Content | None:
    try:
        return _log.read(storage, version)
    except TableError:
        return None


def _no_table(storage: Storage) -> TableError:
    if storage.entries(_OLD):
        return TableError(
            f"{storage.name} was written before tables had a Delta log; build it again with "
            "overwrite (--overwrite)"
        )
    return TableError(f"{storage.name} is not a table of sketches")


def _has_table(storage: Storage) -> bool:
    """Return whether there is a table, readable or not.

    Raises:
        TableError: there is a file, or a folder with foreign content.
    """
    found = {} if storage.is_file() else storage.entries()
    if storage.is_file() or not all(_is_ours(storage, info) for info in found.values()):
        raise TableError(f"{storage.name} exists and is not a table of sketches")
    logged = (name for name in storage.entries(LOG) if not _UNLINKED.fullmatch(name))
    return any(logged) or bool(storage.entries(_OLD))


def _is_ours(storage: Storage, info: fs.FileInfo) -> bool:
    """Return whether an entry in a table's folder may be part of it."""
    name = info.base_name
    if info.type != fs.FileType.Directory:
        return bool(name == LOCK)
    pattern = _OURS.get(name)
    return pattern is not None and all(map(pattern.fullmatch, storage.entries(name)))
