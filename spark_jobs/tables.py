"""The folder that holds one sketch for each key: what `build` writes and the others read.

DIR/sketches/*.parquet    the key columns, rows, missing_values, fallback_times, sketch, digest
DIR/summary.json          family, parameters and decay, the key columns' names, and counts
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from decaysketch.batch import RESULT_FIELDS
from decaysketch.decay.integral import IntegralDecay
from decaysketch.families import Recipe, recipe_from_dict
from spark_jobs.console import JobError

__all__ = ["SketchFolder", "StoredSketch", "check_free"]

_OURS = {"sketches", "summary.json"}
_RECIPE = ("family", "params", "decay")  # folders of release 0.1.0 name no family


def check_free(path: Path, overwrite: bool) -> None:
    """Refuse to write where something is that must not be lost.

    Raises:
        JobError: a file, a folder with anything in it that is not ours, or, unless ``overwrite``,
            a folder of sketches.
    """
    if not path.exists():
        return
    found = {entry.name for entry in path.iterdir()} if path.is_dir() else {path.name}
    if found and found != _OURS:
        raise JobError(f"{path} is there already and not empty")
    if found and not overwrite:
        raise JobError(f"{path} holds sketches already; --overwrite replaces them")


@dataclass(frozen=True, slots=True)
class StoredSketch:
    """One row of the table."""

    key: tuple[Any, ...]
    rows: int
    blob: bytes
    digest: str


@dataclass(frozen=True, slots=True)
class SketchFolder:
    """A folder of sketches, all built by one recipe."""

    path: Path
    summary: dict[str, Any]

    @classmethod
    def open(cls, path: Path) -> SketchFolder:
        """Read the summary of a folder that `build` or `merge` wrote."""
        try:
            summary = json.loads((path / "summary.json").read_text(encoding="utf-8"))
            _ = summary["params"], summary["by"]
        except (OSError, ValueError, KeyError) as fault:
            raise JobError(f"{path} is not a folder of sketches: {fault}") from None
        return cls(path, summary)

    @classmethod
    def write(
        cls,
        path: Path,
        write_table: Callable[[Path], None],
        *,
        recipe: Recipe[Any],
        by: Sequence[str],
        overwrite: bool,
        notes: Callable[[], dict[str, Any]],
    ) -> SketchFolder:
        """Let ``write_table`` write the table, and add the summary.

        Both are written beside ``path`` and take its place when they are complete: what is at
        ``path`` is never half a result.
        """
        check_free(path, overwrite)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as scratch:
            draft = cls(Path(scratch) / "new", {**recipe.to_dict(), "by": list(by)})
            write_table(draft.table_path)
            draft.summary.update(draft._counts() | notes())
            text = json.dumps(draft.summary, indent=2) + "\n"
            (draft.path / "summary.json").write_text(text, encoding="utf-8")
            if path.exists():
                path.rename(Path(scratch) / "old")
            draft.path.rename(path)
        return cls(path, draft.summary)

    def recipe(
        self, id_key: bytes | None = None, *, table: IntegralDecay | None = None
    ) -> Recipe[Any]:
        """What the sketches were built by.

        Args:
            id_key: the stream's secret, where it has one.
            table: their decay, where that is a table.
        """
        form = {name: self.summary[name] for name in _RECIPE if name in self.summary}
        return recipe_from_dict(form, id_key=id_key, table=table)

    @property
    def by(self) -> list[str]:
        """Names of the key columns; none where there is one sketch of everything."""
        return list(self.summary["by"])

    @property
    def table_path(self) -> Path:
        """The folder of Parquet files."""
        return self.path / "sketches"

    def _table(self, columns: Sequence[str] | None = None) -> pa.Table:
        return pq.read_table(self.table_path, columns=columns and list(columns), partitioning=None)

    def _counts(self) -> dict[str, Any]:
        names = [field.name for field in RESULT_FIELDS[:3]]
        table = self._table([*names, "sketch"])
        sizes = pc.binary_length(table.column("sketch"))
        sums = {name: pc.sum(table.column(name)).as_py() or 0 for name in names}
        return {"sketches": len(table), **sums, "sketch_bytes": pc.sum(sizes).as_py() or 0}

    def read(self) -> list[StoredSketch]:
        """All sketches, in the order of their keys."""
        table = self._table()
        columns = [table.column(name).to_pylist() for name in self.by]
        keys = list(zip(*columns, strict=True)) if columns else [()] * len(table)
        rows, blobs, digests = (
            table.column(name).to_pylist() for name in ("rows", "sketch", "digest")
        )
        stored = map(StoredSketch, keys, rows, blobs, digests)
        return sorted(stored, key=lambda s: [(part is not None, part) for part in s.key])
