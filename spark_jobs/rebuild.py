"""Build again the parts that have changed since a table was built: backfills and corrections.

    python -m spark_jobs.build LOG --out TABLE --apart
    python -m spark_jobs.rebuild TABLE

For a table that was built with ``--apart``, this replaces the sketches of added, removed or changed
entries of LOG, and leaves the others alone. Any other table is built again completely
if anything has changed. The table contains its build specification. Sketches are replaced and not
merged: rows that were removed from an entry vanish from the table as well. ``--all`` builds
everything again in any case. The result is the same bytes as after a first build.

Each run makes the next version of the table, or none if nothing has changed. Readers see the
version before until it is complete.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from decaysketch.cli.output import AsJson, human_bytes, report, show, warn
from decaysketch.cli.recipes import IdKeyFile, read_id_key
from spark_jobs.failures import reporting_errors
from spark_jobs.options import Master, open_table, run
from spark_jobs.pipeline import Rebuilt, rebuild
from spark_jobs.session import DEFAULT_MASTER, spark_session

__all__ = ["main"]

_SHOWN = 20  # inputs in the report


def main(
    table: Annotated[Path, typer.Argument(help="A table that build wrote.")],
    everything: Annotated[
        bool, typer.Option("--all", help="Build unchanged inputs, too, as a correction.")
    ] = False,
    id_key_file: IdKeyFile = None,
    as_json: AsJson = False,
    master: Master = DEFAULT_MASTER,
) -> None:
    """Build the changed parts of a table again."""
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
                "warnings": said.get("warnings", []) if rebuilt.done else [],
                "seconds": round(rebuilt.seconds, 3),
            },
        )
        return
    for line in said.get("warnings", ()) if rebuilt.done else ():
        warn(line)
    if rebuilt.done:
        rows = Table("input", "", "why")
        for label, (what, why) in list(rebuilt.done.items())[:_SHOWN]:
            rows.add_row(label or "all", what, why)
        if len(rebuilt.done) > _SHOWN:
            rows.add_row(f"and {len(rebuilt.done) - _SHOWN:,} more", "", "")
        report.print(rows)
    report.print(
        f"{len(rebuilt.done):,} inputs done, {rebuilt.kept:,} unchanged; {said['sketches']:,} "
        f"sketches ({human_bytes(said['sketch_bytes'])}) in {rebuilt.table.path}, version "
        f"{rebuilt.table.version}, {rebuilt.seconds:.1f} s",
        soft_wrap=True,
    )


if __name__ == "__main__":
    run(main)
