"""Build one sketch for each key of a delivery log.

    python -m spark_jobs.build LOG --out DIR --by path

A Parquet log takes the short way: Spark sends out which row groups to read, and the workers read
them straight into sketches. Any other log is read by Spark and handed to the workers as Arrow
batches. Either way a worker returns one small partial sketch for each key it met, and partial
sketches of one key are merged. The result does not depend on how the log was cut.

``--family`` says which kind of sketch (see :mod:`decaysketch.families`):

    --family decay                                           any decay, chosen at query time
    --family integral --decay '{"kind": "halving", ...}'     one decay, any integral one
    --family sum --max-sum N [--max-window W]                sums over any recent window
    --family median --max-count N [--max-window W]           quantiles over any recent window

The last two name a row by ``--source-column`` and ``--sequence-column``. All but the first may be
told the time, ``--now``; it is never taken from the log. Sketches that were told none keep all that
their capacity allows, and may be told one later.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from decaysketch.batch import (
    RESULT_FIELDS,
    BuiltWith,
    ColumnMapping,
    KeyedBuilder,
    file_builder,
    group_merger,
    key_fields,
    partial_builder,
)
from decaysketch.families import recipe_of
from spark_jobs import logs
from spark_jobs.console import JobError, console, human_bytes, reporting_errors
from spark_jobs.options import IdKeyFile, Master, Overwrite, read_id_key, run
from spark_jobs.recipes import mapping_from_options, names, recipe_from_options
from spark_jobs.session import DEFAULT_MASTER, path_to_write, spark_session, with_progress
from spark_jobs.tables import SketchFolder, check_free

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["build", "sketch_table"]

_TASKS_PER_CORE = 3  # so that the cores end at about the same time


def sketch_table(
    session: SparkSession,
    log: Path,
    params: BuiltWith,
    mapping: ColumnMapping,
    by: Sequence[str] = (),
    *,
    now: int | None = None,
    format: str | None = None,
    schema: str | None = None,
    read_in_workers: bool = True,
) -> DataFrame:
    """One sketch for each key of a log, as a (lazy) DataFrame: key columns, counts, sketch, digest.

    Args:
        session: where to run.
        log: a file, or a folder of files of one format.
        params, mapping, by, now: see :class:`decaysketch.batch.KeyedBuilder`.
        format: "parquet", "csv" or "json"; None: by suffix.
        schema: types of a CSV or JSON log's columns (Spark DDL); None: inferred.
        read_in_workers: let workers read Parquet themselves, where the log allows it.
    """
    logs.check_there(log)
    recipe = recipe_of(params)
    format = format or logs.detect_format(log)
    splits = None
    if format == "parquet" and read_in_workers:
        splits = logs.parquet_splits(log, _TASKS_PER_CORE * session.sparkContext.defaultParallelism)
    if splits:
        keys = key_fields(pq.read_schema(splits[0].path), by)
        numbers = session.range(0, len(splits), 1, len(splits))
        function = file_builder(splits, recipe, mapping, by, now=now)
        partials = numbers.mapInArrow(function, _spark_schema(session, keys))
    else:
        rows = logs.read_log(session, log, format, schema)
        empty = rows.limit(0).toArrow()
        keys = key_fields(empty.schema, by)
        wanted = list(dict.fromkeys((*mapping.columns, *by)))
        for name in wanted:
            if name not in rows.columns:
                raise JobError(f"{log} has no column {name!r}; it has {', '.join(rows.columns)}")
        selected = rows.select(*(f"`{name}`" for name in wanted))
        function = partial_builder(recipe, mapping, by, now=now)
        partials = selected.mapInArrow(function, _spark_schema(session, keys))
    groups = partials.groupBy(*(f"`{name}`" for name in by))
    return groups.applyInArrow(group_merger(by, recipe), partials.schema)


def _spark_schema(session: SparkSession, keys: Sequence[pa.Field]) -> StructType:
    return session.createDataFrame(pa.schema([*keys, *RESULT_FIELDS]).empty_table()).schema


def build(
    session: SparkSession,
    log: Path,
    out: Path,
    params: BuiltWith,
    mapping: ColumnMapping,
    by: Sequence[str] = (),
    *,
    now: int | None = None,
    overwrite: bool = False,
    format: str | None = None,
    schema: str | None = None,
    read_in_workers: bool = True,
) -> SketchFolder:
    """Build the sketches of a log and write them to a folder; see :func:`sketch_table`."""
    started = time.monotonic()
    table = sketch_table(
        session, log, params, mapping, by, now=now,
        format=format, schema=schema, read_in_workers=read_in_workers,
    )  # fmt: skip

    def write(path: Path) -> None:
        with_progress(
            session, "building sketches", lambda: table.write.parquet(path_to_write(path))
        )

    return SketchFolder.write(
        out.resolve(), write, recipe=recipe_of(params), by=by, overwrite=overwrite,
        notes=lambda: {
            "log": str(log),
            "log_bytes": logs.log_bytes(log),
            "columns": asdict(mapping),
            "now": now,
            "seconds": round(time.monotonic() - started, 3),
        },
    )  # fmt: skip


def main(
    log: Annotated[Path, typer.Argument(help="The delivery log: a file, or a folder of files.")],
    out: Annotated[Path, typer.Option(help="Folder to write the sketches to.")],
    by: Annotated[
        str, typer.Option(help="Columns to group by, with commas; '' for one sketch of everything.")
    ] = "path",
    format: Annotated[
        str | None,
        typer.Option(help="parquet, csv or json (one object a line); by suffix if not given."),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(help="Types of a CSV or JSON log, such as 'source STRING, msg BIGINT, ...'."),
    ] = None,
    time_column: Annotated[str, typer.Option(help="When the thing happened.")] = "event_us",
    fallback_time_column: Annotated[
        str, typer.Option(help="Taken where that is null; '' for none.")
    ] = "arrival_us",
    column_unit: Annotated[
        str, typer.Option(help="Unit of times that are plain numbers: ns, us, ms, s, min, h or d.")
    ] = "us",
    id_columns: Annotated[
        str, typer.Option(help="Columns that together identify a message, with commas.")
    ] = "source,msg",
    source_column: Annotated[
        str, typer.Option(help="Who sent the message; for the families sum and median.")
    ] = "source",
    sequence_column: Annotated[
        str, typer.Option(help="Integers by which a source numbers its messages; likewise.")
    ] = "msg",
    value_column: Annotated[str, typer.Option(help="The measured number; '' for none.")] = "value",
    weight_column: Annotated[
        str, typer.Option(help="Integer weights; '': every weight is 1.")
    ] = "",
    family: Annotated[
        str, typer.Option(help="Kind of sketch: decay, integral, sum or median.")
    ] = "decay",
    decay: Annotated[
        str | None,
        typer.Option(
            help="For the family integral: the decay as JSON, such as "
            '\'{"kind": "exponential", "half_life": 3600}\', or a file that holds it.'
        ),
    ] = None,
    now: Annotated[
        int | None,
        typer.Option(
            help="A time to tell the sketches, in --time-unit, for all families but decay: what no "
            "query from then on can see is forgotten. Not told if not given."
        ),
    ] = None,
    params_file: Annotated[
        Path | None,
        typer.Option(
            "--params", help="Parameters as a JSON file, instead of the options that follow."
        ),
    ] = None,
    max_weight: Annotated[int, typer.Option(help="Largest weight.")] = 1,
    id_bits: Annotated[int, typer.Option(help="Ids are hashed to this many bits.")] = 48,
    capacity: Annotated[int, typer.Option(help="Observations kept for each level.")] = 24_000,
    seed: Annotated[int, typer.Option(help="Fixes the hash function.")] = 0,
    time_unit: Annotated[str, typer.Option(help="Unit of time in the sketch.")] = "us",
    value_type: Annotated[str, typer.Option(help="float64 or int64.")] = "float64",
    max_sum: Annotated[
        int | None, typer.Option(help="For sum: bound on the sum of a window.")
    ] = None,
    max_count: Annotated[
        int | None, typer.Option(help="For median: bound on the messages of a window.")
    ] = None,
    max_window: Annotated[
        int | None, typer.Option(help="For sum and median: widest window; any if not given.")
    ] = None,
    id_key_file: IdKeyFile = None,
    read_in_workers: Annotated[
        bool, typer.Option(help="Let workers read a Parquet log themselves.")
    ] = True,
    overwrite: Overwrite = False,
    master: Master = DEFAULT_MASTER,
) -> None:
    """Build one sketch for each key of a delivery log."""
    with reporting_errors():
        id_key = read_id_key(id_key_file)
        recipe = recipe_from_options(
            family, params_file, decay, id_key, max_weight=max_weight, id_bits=id_bits,
            capacity=capacity, seed=seed, time_unit=time_unit, value_type=value_type,
            max_sum=max_sum, max_count=max_count, max_window=max_window,
        )  # fmt: skip
        mapping = mapping_from_options(
            family, ids=names(id_columns), source=source_column or None,
            sequence=sequence_column or None, time=time_column, value=value_column or None,
            weight=weight_column or None, fallback_time=fallback_time_column or None,
            time_unit=column_unit,
        )  # fmt: skip
        KeyedBuilder(recipe, mapping, names(by), now=now)
        logs.check_there(log)  # what can be wrong is found before a session starts
        check_free(out, overwrite)
        with spark_session("decaysketch build", master, recipe) as session:
            folder = build(
                session, log, out, recipe, mapping, names(by), now=now, overwrite=overwrite,
                format=format, schema=schema, read_in_workers=read_in_workers,
            )  # fmt: skip
        counts = folder.summary
        console.print(
            f"{counts['rows']:,} deliveries ({human_bytes(counts['log_bytes'])}) -> "
            f"{counts['sketches']:,} sketches ({human_bytes(counts['sketch_bytes'])}) in {out}, "
            f"{counts['seconds']:.1f} s"
        )
        if counts["missing_values"] or counts["fallback_times"]:
            console.print(
                f"{counts['missing_values']:,} without a value, "
                f"{counts['fallback_times']:,} timed by {fallback_time_column}"
            )


if __name__ == "__main__":
    run(main)
