"""Merge folders of sketches: into one sketch, or key by key into another folder.

    python -m spark_jobs.merge DIR... --out ALL.sketch
    python -m spark_jobs.merge DIR... --out DIR --per-key

The folders hold sketches of one family, whichever. They may overlap in any way (the same log built
twice, a backfill that repeats what was there): what several sketches saw counts once. Of sketches
that were told the time, the merged one has the latest clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from decaysketch import IncompatibleSketchError
from decaysketch.batch import RESULT_FIELDS, group_merger
from decaysketch.families import Recipe
from spark_jobs.console import JobError, console, human_bytes, reporting_errors
from spark_jobs.options import IdKeyFile, Master, Overwrite, read_id_key, run
from spark_jobs.session import (
    DEFAULT_MASTER,
    path_to_read,
    path_to_write,
    spark_session,
    with_progress,
)
from spark_jobs.tables import SketchFolder, check_free

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["common_recipe", "merge_all", "merge_per_key"]

_RESULT_COLUMNS = [field.name for field in RESULT_FIELDS]


def common_recipe(folders: Sequence[SketchFolder], id_key: bytes | None = None) -> Recipe[Any]:
    """What all folders were built by; with the smallest of their capacities.

    Raises:
        IncompatibleSketchError: naming every parameter that differs, or the families.
    """
    given = [folder.recipe(id_key) for folder in folders]
    for other in given[1:]:
        if differences := given[0].differences(other):
            raise IncompatibleSketchError(differences)
    return min(given, key=lambda recipe: int(recipe.params.capacity))


def _table(
    session: SparkSession, folders: Sequence[SketchFolder], columns: Sequence[str]
) -> DataFrame:
    tables = [
        session.read.parquet(path_to_read(folder.table_path)).select(*columns) for folder in folders
    ]
    return reduce(lambda some, more: some.union(more), tables)


def merge_all(
    session: SparkSession, folders: Sequence[SketchFolder], id_key: bytes | None = None
) -> bytes:
    """One sketch of everything in the folders, as bytes: first of each part, then of the parts."""
    table = _table(session, folders, _RESULT_COLUMNS)
    merger = group_merger(recipe=common_recipe(folders, id_key))
    parts = table.mapInArrow(merger, table.schema)
    whole = parts.groupBy().applyInArrow(merger, table.schema).select("sketch")
    rows = with_progress(session, "merging", whole.collect)
    if not rows:
        raise JobError("the folders hold no sketches")
    return bytes(rows[0]["sketch"])


def merge_per_key(
    session: SparkSession,
    folders: Sequence[SketchFolder],
    out: Path,
    *,
    overwrite: bool = False,
    id_key: bytes | None = None,
) -> SketchFolder:
    """One sketch for each key that any of the folders has, written to another folder."""
    recipe = common_recipe(folders, id_key)
    by = folders[0].by
    for folder in folders[1:]:
        if folder.by != by:
            raise JobError(
                f"{folders[0].path} has a sketch for each {by or 'log'} and {folder.path} for each "
                f"{folder.by or 'log'}; leave out --per-key to merge them into one"
            )
    started = time.monotonic()
    keys = [f"`{name}`" for name in by]
    table = _table(session, folders, [*keys, *_RESULT_COLUMNS])
    groups = table.groupBy(*keys)
    merged = groups.applyInArrow(group_merger(by, recipe), table.schema)

    def write(path: Path) -> None:
        with_progress(session, "merging", lambda: merged.write.parquet(path_to_write(path)))

    return SketchFolder.write(
        out.resolve(), write, recipe=recipe, by=by, overwrite=overwrite,
        notes=lambda: {
            "merged_from": [str(folder.path) for folder in folders],
            "seconds": round(time.monotonic() - started, 3),
        },
    )  # fmt: skip


def main(
    folders: Annotated[list[Path], typer.Argument(help="Folders that build or merge wrote.")],
    out: Annotated[Path, typer.Option(help="File for the sketch; with --per-key a folder.")],
    per_key: Annotated[
        bool, typer.Option("--per-key", help="Keep one sketch for each key.")
    ] = False,
    id_key_file: IdKeyFile = None,
    overwrite: Overwrite = False,
    master: Master = DEFAULT_MASTER,
) -> None:
    """Merge folders of sketches into one sketch, or key by key into another folder."""
    with reporting_errors():
        id_key = read_id_key(id_key_file)
        opened = [SketchFolder.open(folder) for folder in folders]
        recipe = common_recipe(opened, id_key)  # what can be wrong is found before a session starts
        if per_key:
            check_free(out, overwrite)
        elif out.exists() and not overwrite:
            raise JobError(f"{out} is there already; --overwrite replaces it")
        with spark_session("decaysketch merge", master, recipe) as session:
            if per_key:
                merged = merge_per_key(session, opened, out, overwrite=overwrite, id_key=id_key)
                counts = merged.summary
                size = human_bytes(counts["sketch_bytes"])
                console.print(f"{counts['sketches']:,} sketches ({size}) in {out}")
            else:
                blob = merge_all(session, opened, id_key)
                draft = out.with_name(f"{out.name}.{os.getpid()}.part")
                draft.write_bytes(blob)
                draft.replace(out)  # never half a file
                count = sum(folder.summary["sketches"] for folder in opened)
                console.print(f"{count:,} sketches -> one of {human_bytes(len(blob))}: {out}")


if __name__ == "__main__":
    run(main)
