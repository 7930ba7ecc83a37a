"""Build again what has changed since a table was built: backfills and corrections.

    python -m spark_jobs.build LOG --out TABLE --apart
    python -m spark_jobs.rebuild TABLE

Of a table that was built with ``--apart``, the sketches of those entries of LOG are replaced that
were added, removed or changed, and the others are left alone. Of any other table all is built anew
if anything has changed. How it is built is read from the table. Sketches are replaced and not
merged: what was taken out of an entry is gone from the table as well. ``--all`` builds everything
anew, whatever has changed; the result is the same bytes as those of a first build.

Each run makes the next version of the table, or none where nothing has changed; readers see the
one before until it is complete.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from decaysketch.cli.output import AsJson, human_bytes, report, show
from decaysketch.cli.recipes import IdKeyFile, read_id_key
from spark_jobs.failures import reporting_errors
from spark_jobs.options import Master, open_table, run
from spark_jobs.session import DEFAULT_MASTER, spark_session
from spark_jobs.work import Rebuilt, rebuild

__all__ = ["main"]

_SHOWN = 20  # inputs in the report


def main(
    table: Annotated[Path, typer.Argument(help="A table that build wrote.")],
    everything: Annotated[
        bool, typer.Option("--all", help="Also what has not changed: a correction run.")
    ] = False,
    id_key_file: IdKeyFile = None,
    as_json: AsJson = False,
    master: Master = DEFAULT_MASTER,
) -> None:
    """Build again what has changed since a table was built."""
    with reporting_errors():
        opened = open_table(table, read_id_key(id_key_file))
        with spark_session("decaysketch rebuild", master) as session:
            rebuilt = rebuild(session, opened, everything=everything)
        _tell(rebuilt, as_json)


def _tell(rebuilt: Rebuilt, as_json: bool) -> None:
    said = rebuilt.table.summary
    if as_json:
        show(
            True,
            {
                "table": rebuilt.table.path,
                "version": rebuilt.table.version,
                "done": {
                    label: {"what": what, "why": why} for label, (what, why) in rebuilt.done.items()
                },
                "kept": rebuilt.kept,
                "rows": said["rows"],
                "sketches": said["sketches"],
                "seconds": round(rebuilt.seconds, 3),
            },
        )
        return
    if rebuilt.done:
        rows = Table("input", "", "why")
        for label, (what, why) in list(rebuilt.done.items())[:_SHOWN]:
            rows.add_row(label or "all", what, why)
        if len(rebuilt.done) > _SHOWN:
            rows.add_row(f"and {len(rebuilt.done) - _SHOWN:,} more", "", "")
        report.print(rows)
    report.print(
        f"{len(rebuilt.done):,} inputs done, {rebuilt.kept:,} left as they were; "
        f"{said['sketches']:,} sketches ({human_bytes(said['sketch_bytes'])}) in "
        f"{rebuilt.table.path}, version {rebuilt.table.version}, {rebuilt.seconds:.1f} s",
        soft_wrap=True,
    )


if __name__ == "__main__":
    run(main)
