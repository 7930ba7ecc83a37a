"""Merge a table's sketches into fewer: hours into days, days into months, or without some keys.

    python -m spark_jobs.compact HOURLY --out DAILY --truncate hour:day
    python -m spark_jobs.compact HOURLY --out SITES --drop hour
    python -m spark_jobs.compact TABLE

``--truncate COLUMN:TO[:NAME]`` truncates a key column and may rename it. For a timestamp, TO is
``minute``, ``hour``, ``day``, ``week``, ``month``, ``quarter`` or ``year`` (UTC). For a date, it is
such a unit. For integers, it is a number N, and they are rounded down to a multiple of N. For text,
it is a character count. Rows with the same keys are then merged: a day's sketch is byte for byte
the sketch that a build by day gives.

Without ``--out``, the runs that incremental builds, rebuilds and streams left in a table are merged
into one. Its sketches stay the same.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from decaysketch.cli.options import names
from decaysketch.cli.output import AsJson, CommandError, human_bytes, report, show, warn
from decaysketch.cli.recipes import IdKeyFile, read_id_key
from decaysketch.spark._names import quoted
from decaysketch.spark.build import merge_table
from decaysketch.spark.tables import SketchTable
from spark_jobs.failures import reporting_errors
from spark_jobs.options import Master, Overwrite, check_free, open_table, replaced_since, run
from spark_jobs.session import DEFAULT_MASTER, spark_session, with_progress

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["Truncation", "compact"]

_UNITS = ("minute", "hour", "day", "week", "month", "quarter", "year")
_DAY = 86_400_000_000  # microseconds
_MICROS = {"minute": 60_000_000, "hour": 3_600_000_000, "day": _DAY}
_OF_A_DATE = ("week", "month", "quarter", "year")


@dataclass(frozen=True, slots=True)
class Truncation:
    """The truncation of a key column.

    Attributes:
        column: its name.
        to: a calendar unit, or a number.
        name: its new name.
    """

    column: str
    to: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``COLUMN:TO[:NAME]``.

        Raises:
            CommandError: it has another form.
        """
        parts = [part.strip() for part in text.split(":")]
        if len(parts) not in (2, 3) or not all(parts):
            raise CommandError(f"--truncate is {text!r}; expected COLUMN:TO or COLUMN:TO:NAME")
        column, to, name = [*parts, parts[0]][:3]
        if to not in _UNITS and not re.fullmatch(r"[1-9]\d{0,17}", to):
            raise CommandError(
                f"--truncate {text}: expected a number, or one of {', '.join(_UNITS)}"
            )
        return cls(column, to, name)

    def of(self, rows: DataFrame) -> Column:
        """Return the truncated column.

        Raises:
            CommandError: its type cannot be truncated this way.
        """
        from pyspark.sql import functions as F  # noqa: N812

        kind = rows.schema[self.column].dataType.simpleString()
        column = F.col(quoted(self.column))
        if kind == "timestamp" and self.to in _UNITS:
            return _cut_instant(column, self.to)
        if kind == "timestamp_ntz" and self.to in _UNITS:
            return _cut_wall_time(column, self.to)
        if kind == "date" and self.to in _OF_A_DATE:
            return F.trunc(column, self.to)
        if kind == "bigint" and self.to not in _UNITS:
            return column - F.pmod(column, F.lit(int(self.to)))
        if kind == "string" and self.to not in _UNITS:
            return F.substring(column, 1, int(self.to))
        raise CommandError(f"{self.column} is of type {kind}, which cannot be cut to {self.to}")


def _cut_instant(column: Column, to: str) -> Column:
    """Truncate as ``date_trunc`` does, but in UTC. Days in ``date_trunc`` follow the session's
    time zone.
    """
    from pyspark.sql import functions as F  # noqa: N812

    micros = F.unix_micros(column)
    whole = micros - F.pmod(micros, F.lit(_MICROS.get(to, _DAY)))
    if to not in _MICROS:
        day = F.date_from_unix_date(F.round(whole / F.lit(_DAY)).cast("int"))
        whole = F.unix_date(F.trunc(day, to)).cast("bigint") * F.lit(_DAY)
    return F.timestamp_micros(whole)


def _cut_wall_time(column: Column, to: str) -> Column:
    """Truncate as ``date_trunc`` does, which would skip the hours that the session's time zone
    skips.
    """
    from pyspark.sql import functions as F  # noqa: N812

    day = column.cast("date")
    if to in _OF_A_DATE:
        return F.trunc(day, to).cast("timestamp_ntz")
    hour = F.lit(0) if to == "day" else F.hour(column)
    minute = F.minute(column) if to == "minute" else F.lit(0)
    return day.cast("timestamp_ntz") + F.make_dt_interval(F.lit(0), hour, minute)


def compact(
    session: SparkSession,
    table: SketchTable,
    out: Path,
    truncations: Sequence[Truncation] = (),
    drop: Sequence[str] = (),
    *,
    overwrite: bool = False,
) -> SketchTable:
    """Merge the rows in a table that get the same keys, and write them to another one.

    Args:
        session: where to run.
        table: the table.
        out: the other table's folder.
        truncations: key column truncations.
        drop: key columns to drop.
        overwrite: replace an existing table.

    Raises:
        CommandError: a column is no key or cannot be truncated this way, or two have the same name.
        TableError: existing data must not be overwritten, or the table has no rows yet.
    """
    started = time.monotonic()
    by = renamed(table, truncations, drop)
    cut = {each.column: each for each in truncations}
    rows = table.stored(session)
    keys = [
        (cut[name].of(rows).alias(cut[name].name) if name in cut else rows[quoted(name)])
        for name in table.by
        if name not in drop
    ]
    rest = [rows[quoted(name)] for name in rows.columns if name not in table.by]
    recipe = table.recipe
    merged = merge_table(rows.select(*keys, *rest), by, recipe)

    def notes() -> dict[str, Any]:
        return {
            "compacted_from": table.path,
            "version": table.version,
            "seconds": round(time.monotonic() - started, 3),
        }

    return with_progress(
        session,
        "compacting",
        lambda: SketchTable.write(out, merged, recipe, by, overwrite=overwrite, notes=notes),
    )


def renamed(
    table: SketchTable, truncations: Sequence[Truncation], drop: Sequence[str]
) -> tuple[str, ...]:
    """Return the new key columns.

    Raises:
        CommandError: a column is no key, is named twice, or would be.
    """
    named = [each.column for each in truncations] + list(drop)
    for name in named:
        if name not in table.by:
            listed = ", ".join(table.by) or "none"
            raise CommandError(f"{table.path} has no key {name!r}; it has {listed}")
        if named.count(name) > 1:
            raise CommandError(f"the key {name!r} is named more than once")
    cut = {each.column: each.name for each in truncations}
    by = tuple(cut.get(name, name) for name in table.by if name not in drop)
    if len(set(by)) < len(by):
        raise CommandError(f"keys would be called {', '.join(by)}; expected different names")
    return by


def main(
    table: Annotated[Path, typer.Argument(help="A table that build, merge or a stream wrote.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of another table; the same one by default.")
    ] = None,
    truncate: Annotated[
        list[str] | None, typer.Option(help="COLUMN:TO[:NAME], such as hour:day; repeatable.")
    ] = None,
    drop: Annotated[str, typer.Option(help="Key columns to merge away, with commas.")] = "",
    id_key_file: IdKeyFile = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    master: Master = DEFAULT_MASTER,
) -> None:
    """Merge a table's sketches into fewer."""
    with reporting_errors():
        opened = open_table(table, read_id_key(id_key_file))
        truncations, dropped = [Truncation.parse(text) for text in truncate or ()], names(drop)
        renamed(opened, truncations, dropped)
        if out is not None:
            check_free(out, overwrite)
        elif truncations or dropped:
            raise CommandError(
                "--truncate and --drop make another table; give its folder with --out"
            )
        before = opened.counts["sketches"]
        with spark_session("decaysketch compact", master) as session:
            if out is not None:
                after = compact(session, opened, out, truncations, dropped, overwrite=overwrite)
            else:
                after = with_progress(session, "compacting", lambda: opened.compact(session))
        if as_json:
            show(True, after.summary)
        else:
            size = human_bytes(after.counts["sketch_bytes"])
            report.print(
                f"{before:,} sketches -> {after.counts['sketches']:,} ({size}) in {after.path}",
                soft_wrap=True,
            )
        for line in replaced_since([opened.counts], after.counts):
            warn(line)


if __name__ == "__main__":
    run(main)
