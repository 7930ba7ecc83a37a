"""Merge sketch tables: into one sketch, or key by key into another table.

    python -m spark_jobs.merge TABLE... --out ALL.sketch
    python -m spark_jobs.merge TABLE... --out TABLE --per-key

The tables contain sketches in one family. They may overlap in any way (the same log built twice, a
backfill that repeats earlier rows). Rows in several sketches count once. The merged sketch has its
inputs' latest clock.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from decaysketch import IncompatibleSketchError
from decaysketch.cli.output import (
    AsJson,
    CommandError,
    human_bytes,
    refuse_uri,
    report,
    show,
    warn,
    write_whole,
)
from decaysketch.cli.recipes import IdKeyFile, read_id_key
from decaysketch.families import Recipe
from decaysketch.spark.build import merge_table
from decaysketch.spark.tables import SketchTable
from spark_jobs.failures import reporting_errors
from spark_jobs.options import Master, Overwrite, check_free, open_table, replaced_since, run
from spark_jobs.session import DEFAULT_MASTER, spark_session, with_progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["common_recipe", "merge_all", "merge_per_key"]

_MERGED_APART = 64  # more sketches than these are merged in parts, and then the parts
_PARTS = 16


def common_recipe(tables: Sequence[SketchTable]) -> Recipe:
    """Return the common sketch configuration of all tables, with their smallest capacity.

    Raises:
        IncompatibleSketchError: naming every parameter that differs, or the families.
    """
    given = [table.recipe for table in tables]
    for other in given[1:]:
        if differences := given[0].differences(other):
            raise IncompatibleSketchError(differences)
    return min(given, key=lambda recipe: int(recipe.params.capacity))


def _filled(tables: Sequence[SketchTable]) -> list[SketchTable]:
    if filled := [table for table in tables if table.counts["sketches"]]:
        return filled
    raise CommandError("the tables hold no sketches")


def merge_all(session: SparkSession, tables: Sequence[SketchTable]) -> bytes:
    """Return one sketch over everything in the tables, as bytes.

    Raises:
        CommandError, IncompatibleSketchError: see :func:`merged_row`.
    """
    return bytes(merged_row(session, tables)["sketch"])


def merged_row(session: SparkSession, tables: Sequence[SketchTable]) -> dict[str, Any]:
    """Return one sketch for all tables, and its counts. See ``RESULT_FIELDS``.

    Raises:
        CommandError: there are no sketches.
        IncompatibleSketchError: see :func:`common_recipe`.
    """
    filled, recipe = _filled(tables), common_recipe(tables)
    rows: list[DataFrame] = [table.stored(session).drop(*table.by) for table in filled]
    many = sum(table.counts["sketches"] for table in filled) > _MERGED_APART
    union = reduce(lambda some, more: some.unionByName(more), rows)
    whole = merge_table(union, (), recipe, salts=_PARTS if many else 1)
    [row] = with_progress(session, "merging", whole.collect)
    return row.asDict()


def merge_per_key(
    session: SparkSession,
    tables: Sequence[SketchTable],
    out: Path,
    *,
    overwrite: bool = False,
) -> SketchTable:
    """Write one sketch for each key in any table to another table.

    Raises:
        CommandError: there are no sketches, or the tables have other keys.
        IncompatibleSketchError: see :func:`common_recipe`.
        TableError: existing data must not be overwritten.
    """
    started = time.monotonic()
    filled, recipe, by = _filled(tables), common_recipe(tables), tables[0].by
    for table in tables[1:]:
        if table.by != by:
            raise CommandError(
                f"{tables[0].path} has a sketch for each {_listed(by)} and {table.path} for each "
                f"{_listed(table.by)}; omit --per-key to merge them into one"
            )
    rows: list[DataFrame] = [table.stored(session) for table in filled]
    kinds = [[each.schema[name].dataType.simpleString() for name in by] for each in rows]
    for table, found in zip(filled, kinds, strict=True):
        if found != kinds[0]:
            raise CommandError(
                f"the keys of {filled[0].path} are of types {_listed(kinds[0])}, and those of "
                f"{table.path} of {_listed(found)}"
            )
    union = reduce(lambda some, more: some.unionByName(more), rows)
    merged = merge_table(union, by, recipe)

    def notes() -> dict[str, Any]:
        return {
            "merged_from": [table.path for table in tables],
            "seconds": round(time.monotonic() - started, 3),
        }

    return with_progress(
        session,
        "merging",
        lambda: SketchTable.write(out, merged, recipe, by, overwrite=overwrite, notes=notes),
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "log"


def main(
    tables: Annotated[list[Path], typer.Argument(help="Tables that build or merge wrote.")],
    out: Annotated[
        Path, typer.Option(help="File for the sketch, or with --per-key a folder for a table.")
    ],
    per_key: Annotated[
        bool, typer.Option("--per-key", help="Keep one sketch for each key.")
    ] = False,
    id_key_file: IdKeyFile = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    master: Master = DEFAULT_MASTER,
) -> None:
    """Merge sketch tables into one sketch, or key by key into another table."""
    with reporting_errors():
        refuse_uri(out)
        id_key = read_id_key(id_key_file)
        opened = [open_table(table, id_key) for table in tables]
        recipe = common_recipe(opened)  # reject a mistake before a session starts
        if per_key:
            check_free(out, overwrite)
        elif out.exists() and not overwrite:
            raise CommandError(f"{out} exists; --overwrite replaces it")
        count = sum(table.counts["sketches"] for table in opened)
        with spark_session("decaysketch merge", master) as session:
            if per_key:
                said = merge_per_key(session, opened, out, overwrite=overwrite).summary
                counts = said
                size, sketches = said["sketch_bytes"], said["sketches"]
            else:
                counts = merged_row(session, opened)
                blob = bytes(counts["sketch"])
                write_whole(out, blob)
                said = {**recipe.to_dict(), "sketches": 1, "sketch_bytes": len(blob)}
                size, sketches = len(blob), 1
        if as_json:
            show(True, said)
        else:
            report.print(
                f"{count:,} sketches -> {sketches:,} ({human_bytes(size)}) in {out}", soft_wrap=True
            )
        for line in replaced_since([each.counts for each in opened], counts):
            warn(line)


if __name__ == "__main__":
    run(main)
