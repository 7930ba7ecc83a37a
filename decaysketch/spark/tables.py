"""The stored sketch table: builds write it and other programs read it, one version after another.

    DIR/versions/0000000007.json    version 7: configuration, key columns, files, counts, notes
    DIR/data/0000000007-5f3a/       the Parquet files that version 7 added: the key columns and
                                    :data:`decaysketch.tables.RESULT_FIELDS`
    DIR/.lock                       held by a writer, on a local file system

A version is a file list and never changes. A writer first writes files that no version names, then
lets the next version appear (``Storage.publish``). So a reader sees a complete change or no change,
and a writer that is killed at any moment leaves the previous version. The next writer removes the
unfinished files. The last ``keep`` versions stay readable, so a reader has the time for that many
changes to finish.

*Runs.* Sketches merge, so a table need not be rewritten to contain more: :meth:`SketchTable.append`
adds a run of files, and a reader of one sketch per key merges the runs. :meth:`SketchTable.compact`
merges them into one.

*Partitions.* A table may be divided by any label, such as the log rows' day or file. A corrected
log may have lost rows, and no merge removes them. Its partitions are then *replaced*
(:meth:`SketchTable.replace_partitions`). Each stores its input's ``fingerprint``, so that unchanged
ones stay as they are. The table is the merge of all partitions.

*Counts* count the deliveries that were read, including duplicates. A merge adds them up. A build
that is merged twice counts twice there, and never in a sketch. ``applied`` stores each writer's
last piece of work, so that :mod:`decaysketch.spark.streaming` counts a batch once.

A folder from release 0.1.0 (``sketches/`` and ``summary.json``) is version 0 of a table.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from decaysketch.decay.integral import IntegralDecay
from decaysketch.errors import ParameterError
from decaysketch.families import DEFAULT, Recipe, recipe_from_dict
from decaysketch.spark import _rows
from decaysketch.spark._manifest import COUNTS, Manifest, Partition, Run, TableError, key_types
from decaysketch.spark._rows import Expected, Rows
from decaysketch.spark._storage import Storage
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

#: What a version says about itself; a function is called when its files are written.
Notes: TypeAlias = Mapping[str, Any] | Callable[[], Mapping[str, Any]]

_VERSION = re.compile(r"(\d{10})\.json")
_FOLDER = re.compile(r"\d{10}-[0-9a-f]{8}")  # below data: what a version added
_DRAFT = re.compile(r"\.[0-9a-f]{16}\.part")  # below versions: one that did not appear
_PART = re.compile(r"part-.*|_SUCCESS|\..*\.crc")  # below sketches, in a folder of release 0.1.0
_OURS = {"versions": (_VERSION, _DRAFT), "data": (_FOLDER,), "sketches": (_PART,)}
_OUR_FILES = {".lock", "summary.json"}
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)  # as JSON
_BY_DIGEST = ("fractions", "table")  # decays that a recipe's JSON names only


class TableBusyError(TableError):
    """Another writer was first. Nothing was changed. Open the table again, and try again."""


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
        version: its number. 0 is a folder from release 0.1.0.
        manifest: the version's manifest.
    """

    storage: Storage
    version: int
    manifest: Manifest
    _id_key: bytes | None = field(default=None, repr=False)
    _decay: IntegralDecay | None = field(default=None, repr=False)

    # -------------------------------------------------------------------------- open and create

    @classmethod
    def exists(
        cls, path: str | os.PathLike[str], *, filesystem: fs.FileSystem | None = None
    ) -> bool:
        """Return whether there is a table, from this release or from 0.1.0.

        Raises:
            TableError: there is a file, or a folder with foreign content.
        """
        storage = Storage(path, filesystem)
        found = {} if storage.is_file() else storage.entries()
        if storage.is_file() or not all(_is_ours(storage, info) for info in found.values()):
            raise TableError(f"{storage.name} is there already and not a table of sketches")
        return "summary.json" in found or bool(_versions(storage))

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        id_key: bytes | None = None,
        decay: IntegralDecay | None = None,
        filesystem: fs.FileSystem | None = None,
    ) -> SketchTable:
        """Return the latest version.

        Args:
            path: a folder, local or by a URI that both pyarrow and Spark know.
            id_key: the stream's secret, if it has one and sketches will be merged.
            decay: the decay, if it is a table and sketches will be merged.
            filesystem: given if ``path`` is a path in it (then Arrow reads and writes it, and Spark
                does not).

        Raises:
            TableError: there is none.
        """
        storage = Storage(path, filesystem)
        while versions := _versions(storage):
            try:
                text = storage.read(_version_name(versions[-1]))
            except FileNotFoundError:  # removed meanwhile: there are later ones
                continue
            return cls(storage, versions[-1], _parsed(storage, text), id_key, decay)
        return cls(storage, 0, _of_0_1(storage), id_key, decay)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        recipe: Recipe,
        by: Sequence[str] = (),
        *,
        keep: int = 2,
        notes: Notes | None = None,
        filesystem: fs.FileSystem | None = None,
    ) -> SketchTable:
        """Create a table without rows.

        Args:
            path, filesystem: see :meth:`open`.
            recipe: the sketch configuration. Its secret is not stored.
            by: the key columns.
            keep: number of versions that stay readable, at least 1.
            notes: notes about it.

        Raises:
            TableError: the place is not empty.
        """
        manifest = Manifest(recipe=recipe.to_dict(), by=tuple(by), keep=keep)
        return cls._begin(path, {}, manifest, recipe, notes, False, filesystem)

    @classmethod
    def write(
        cls,
        path: str | os.PathLike[str],
        rows: Rows | Mapping[str, tuple[Rows, Mapping[str, Any] | None]],
        recipe: Recipe,
        by: Sequence[str] = (),
        *,
        overwrite: bool = False,
        keep: int = 2,
        notes: Notes | None = None,
        filesystem: fs.FileSystem | None = None,
    ) -> SketchTable:
        """Create a table with these rows. With ``overwrite`` it replaces an existing one.

        Args:
            path, recipe, by, keep, filesystem: see :meth:`create`.
            rows: see :meth:`replace`. Or by label, see :meth:`replace_partitions`.
            notes: see :meth:`replace`.
            overwrite: replace any existing table, at once.

        Raises:
            TableError: existing data must not be overwritten, or are no table. Or the rows do not
                belong in such a table.
            TableBusyError: another writer is active there.
        """
        manifest = Manifest(recipe=recipe.to_dict(), by=tuple(by), keep=keep)
        parts = rows if isinstance(rows, Mapping) else {"": (rows, None)}
        return cls._begin(path, parts, manifest, recipe, notes, overwrite, filesystem)

    @classmethod
    def _begin(
        cls,
        path: str | os.PathLike[str],
        parts: Mapping[str, tuple[Rows, Mapping[str, Any] | None]],
        manifest: Manifest,
        recipe: Recipe,
        notes: Notes | None,
        overwrite: bool,
        filesystem: fs.FileSystem | None,
    ) -> SketchTable:
        if manifest.keep < 1:
            raise TableError(f"keep is {manifest.keep}; expected at least 1")
        storage = Storage(path, filesystem)
        cls.exists(path, filesystem=filesystem)
        storage.make()
        table = cls(storage, 0, manifest, recipe.params.id_key, recipe.decay)
        with table._writing(0.0):
            if cls.exists(path, filesystem=filesystem) and not overwrite:
                raise TableError(f"{storage.name} holds a table of sketches already")
            return table._next(*_split(parts), notes, overwriting=True)

    # --------------------------------------------------------------------------------- describe

    @property
    def path(self) -> str:
        """The place, as it was given."""
        return self.storage.name

    @property
    def by(self) -> tuple[str, ...]:
        """Key column names. Empty if there is one sketch over everything."""
        return self.manifest.by

    @property
    def recipe(self) -> Recipe:
        """The sketch configuration.

        Raises:
            ParameterError: the stream has a secret, or a decay that is a table, and :meth:`open`
                did not receive it.
        """
        form = self.manifest.recipe
        needed = form.get("decay", {}).get("kind") in _BY_DIGEST
        return recipe_from_dict(form, id_key=self._id_key, table=self._decay if needed else None)

    @property
    def partitions(self) -> dict[str, Partition]:
        """The partitions by label. The label is "" if rows are not divided."""
        return self.manifest.partitions

    @property
    def fingerprints(self) -> dict[str, dict[str, Any]]:
        """Each partition's input fingerprint, if it has one."""
        return {
            label: partition.fingerprint
            for label, partition in self.partitions.items()
            if partition.fingerprint is not None
        }

    @property
    def applied(self) -> dict[str, int]:
        """The last piece of work from each writer that numbers them. See :meth:`append`."""
        return self.manifest.applied

    @property
    def added(self) -> list[Run]:
        """The runs that this version added."""
        own = f"data/{self.version:010d}-"
        return [run for run in self.manifest.runs if run.files[0].startswith(own)]

    @property
    def counts(self) -> dict[str, int]:
        """``sketches`` and ``sketch_bytes`` as stored, and the count columns' sums."""
        names = ("sketches", *COUNTS, "sketch_bytes")
        return {name: sum(run.counts.get(name, 0) for run in self.manifest.runs) for name in names}

    @property
    def summary(self) -> dict[str, Any]:
        """Return the sketch configuration, key columns, counts and notes, JSON-ready."""
        own = self.manifest
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
        if self.manifest.schema is None:
            raise TableError(f"{self.path} holds no rows yet")
        alike: dict[tuple[str, ...], list[str]] = {}
        for run in self.manifest.runs if runs is None else runs:
            alike.setdefault(run.columns, []).extend(map(self.storage.pattern, run.files))
        parts = [
            _rows.selected(session.read.parquet(*files), self.by, columns)
            for columns, files in alike.items()
        ]
        if not parts:
            return session.createDataFrame(self.manifest.schema.empty_table())
        return reduce(lambda some, more: some.union(more), parts)

    def _expected(self) -> Expected:
        try:
            fingerprint: bytes | None = self.recipe.params.fingerprint
        except ParameterError:
            fingerprint = None
        return Expected(self.manifest.recipe.get("family", DEFAULT), fingerprint)

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

        A table that has had no rows yet has no key columns here: their types are not known.
        """
        table = self._read(partitions)
        if not table.num_rows:
            return table
        return table.take(_rows.order_of(table, self.by))

    def _read(self, partitions: Sequence[str] | None = None) -> pa.Table:
        """Read in no order."""
        schema = self.manifest.schema
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
        # One by one: what take gives of a column of bytes has to be below 2 GB.
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
            empty = self._with(partitions={}, applied={}, types=None, notes={})
            return empty._next({"": rows}, {}, notes)

    def replace_partitions(
        self,
        parts: Mapping[str, tuple[Rows, Mapping[str, Any] | None]],
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
            return self._with(partitions=rest, notes={})._next(*_split(parts), notes)

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
            latest = self._latest()
            if applied is not None:
                writer, number = applied
                if number <= latest.applied.get(writer, -1):
                    rows = _rows.without_counts(rows)
                else:
                    latest = latest._with(applied=latest.applied | {writer: number})
            return latest._next({partition: rows}, {}, notes)

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
            rest, rows = dict(latest.partitions), {}
            for label in latest.partitions if partitions is None else partitions:
                runs = latest.partitions[label].runs
                first = 0 if last is None else max(0, len(runs) - last)
                if len(runs) - first > 1:
                    rest[label] = replace(rest[label], runs=runs[:first])
                    rows[label] = latest._merged(latest.stored(session, runs[first:]))
            if not rows:
                return latest
            return latest._with(partitions=rest)._next(rows, {}, notes)

    def _with(self, **changes: Any) -> SketchTable:
        return replace(self, manifest=replace(self.manifest, **changes))

    @contextmanager
    def _writing(self, wait_s: float) -> Iterator[None]:
        try:
            with self.storage.lock(wait_s):
                yield
        except BlockingIOError:
            raise TableBusyError(f"another program is writing to {self.path}") from None

    def _latest(self) -> SketchTable:
        """Return the version to continue from. The lock is held."""
        versions = _versions(self.storage)
        if not versions or versions[-1] == self.version:
            return self
        manifest = _parsed(self.storage, self.storage.read(_version_name(versions[-1])))
        own = self.manifest
        if (manifest.recipe, manifest.by) != (own.recipe, own.by):
            raise TableError(f"{self.path} was replaced by a table of other sketches")
        return replace(self, version=versions[-1], manifest=manifest)

    def _check_latest(self) -> None:
        versions = _versions(self.storage)
        if versions and versions[-1] != self.version:
            raise TableBusyError(
                f"{self.path} is at version {versions[-1]}; this is version {self.version}"
            )

    def _next(
        self,
        rows: Mapping[str, Rows],
        fingerprints: Mapping[str, dict[str, Any]],
        notes: Notes | None,
        *,
        overwriting: bool = False,
    ) -> SketchTable:
        """Write runs, add them to the runs in ``self``, and publish it. The lock is held.

        With ``overwriting``, versions that cannot be read are removed once this one exists.
        """
        versions = _versions(self.storage)
        number = 1 + max([self.version, *versions])
        self.storage.make("versions")
        self.storage.make("data")
        unreadable = [n for n in versions if not self._is_readable(n)] if overwriting else []
        if not unreadable:
            self._sweep(versions)
        own = self.manifest
        partitions, types = dict(own.partitions), own.types
        expected = self._expected()
        for label, given in rows.items():
            folder = f"data/{number:010d}-{secrets.token_hex(4)}"
            run, schema = _rows.written_run(self.storage, folder, given, own.by, expected)
            found = key_types(schema)
            if types is not None and found != types:
                raise TableError(f"{self.path} has keys {types}; rows to be stored have {found}")
            types = found
            held = partitions.get(label, Partition())
            runs = (*held.runs, run) if run.counts["sketches"] else held.runs
            partitions[label] = Partition(runs, fingerprints.get(label, held.fingerprint))
        said = {**own.notes, **(notes() if callable(notes) else notes or {})}
        manifest = replace(own, partitions=partitions, types=types, notes=said)
        try:
            self.storage.publish(_version_name(number), manifest.dump())
        except FileExistsError:
            raise TableBusyError(f"another program made version {number} of {self.path}") from None
        table = replace(self, version=number, manifest=manifest)
        for each in unreadable:
            self.storage.remove(_version_name(each))
        table._sweep([*(each for each in versions if each not in unreadable), number])
        return table

    def _is_readable(self, version: int) -> bool:
        try:
            _parsed(self.storage, self.storage.read(_version_name(version)))
        except TableError:
            return False
        return True

    def _sweep(self, versions: Sequence[int]) -> None:
        """Remove files that no stored version names. The lock is held."""
        storage, kept = self.storage, versions[-self.manifest.keep :]
        needed = {
            file.rpartition("/")[0]
            for number in kept
            for run in _parsed(storage, storage.read(_version_name(number))).runs
            for file in run.files
        }
        for number in versions[: -self.manifest.keep]:
            storage.remove(_version_name(number))
        for name, info in storage.entries("versions").items():
            if _DRAFT.fullmatch(name) and storage.is_leftover(info):
                storage.remove(f"versions/{name}")
        newest = f"{max(kept, default=0):010d}"
        for name, info in storage.entries("data").items():
            # A folder of a later version is that of a writer that was killed, or is at work.
            if not _FOLDER.fullmatch(name) or f"data/{name}" in needed:
                continue
            if name[:10] <= newest or storage.is_leftover(info):
                storage.remove(f"data/{name}")
        if len(versions) < self.manifest.keep or "sketches" in needed:
            return
        found = storage.entries()  # of release 0.1.0: what makes it a table goes last
        if "summary.json" in found:
            if "sketches" in found and _is_ours(storage, found["sketches"]):
                storage.remove("sketches")
            storage.remove("summary.json")


def _split(
    parts: Mapping[str, tuple[Rows, Mapping[str, Any] | None]],
) -> tuple[dict[str, Rows], dict[str, dict[str, Any]]]:
    """Return rows and fingerprints by label."""
    rows = {label: given for label, (given, _) in parts.items()}
    return rows, {label: dict(given) for label, (_, given) in parts.items() if given is not None}


def _version_name(version: int) -> str:
    return f"versions/{version:010d}.json"


def _versions(storage: Storage) -> list[int]:
    found = (_VERSION.fullmatch(name) for name in storage.entries("versions"))
    return sorted(int(match[1]) for match in found if match)


def _is_ours(storage: Storage, info: fs.FileInfo) -> bool:
    """Return whether an entry in a table's folder may be part of it."""
    name = info.base_name
    if info.type != fs.FileType.Directory:
        return name in _OUR_FILES
    if name not in _OURS or (name == "sketches" and "summary.json" not in storage.entries()):
        return False
    return all(
        any(pattern.fullmatch(inner) for pattern in _OURS[name]) for inner in storage.entries(name)
    )


def _parsed(storage: Storage, text: bytes) -> Manifest:
    try:
        return Manifest.parse(text)
    except _UNREADABLE as fault:
        raise TableError(f"{storage.name} cannot be read: {fault!r}") from None


def _of_0_1(storage: Storage) -> Manifest:
    """Return the version for a folder from release 0.1.0."""
    try:
        files = _rows.parquet_files(storage, "sketches")
        text, columns, schema = storage.read("summary.json"), [], None
        if files:
            with storage.open(files[0]) as source:
                stored = pq.read_schema(source)
            columns = stored.names
            schema = _rows.row_schema(stored, Manifest.parse_summary(text, [], [], None).by)
        return Manifest.parse_summary(text, files, columns, schema)
    except (OSError, *_UNREADABLE) as fault:
        raise TableError(f"{storage.name} is not a table of sketches: {fault!r}") from None
