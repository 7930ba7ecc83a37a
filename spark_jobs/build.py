"""Build a sketch table from a delivery log: one sketch for each key.

    python -m spark_jobs.build LOG --out TABLE --by path

For a Parquet log, Spark sends row group numbers to the workers, and the workers read these directly
into sketches. Spark reads any other log and sends it to the workers as Arrow batches. The result
does not depend on the cuts in the log, the order of its parts, or repeated reading. A killed job
leaves the existing data, and if you run it again, it writes the same bytes. Tables for overlapping
time ranges merge (``spark_jobs.merge``) into the table for all of them.

``--family`` selects the sketch kind (see :mod:`decaysketch.families`):

    --family decay                                           any decay, chosen at query time
    --family integral --decay 'halving(10min)'               one decay, any integral one
    --family sum --max-sum N [--max-window W]                sums over any recent window
    --family median --max-count N [--max-window W]           quantiles over any recent window
    --family ecm --width W --depth D --slots S               counts of keys, without ids

``sum`` and ``median`` name a row by ``--source-column`` and ``--sequence-column``. ``ecm`` counts
the keys in ``--key-columns``, each row as often as it is there, for the site in ``--site-column``.
All but the first accept the time, ``--now``. It is never read from the log. Sketches without a time
keep all rows that their capacity allows, and accept a time later.

``--apart`` keeps the sketches for each file or folder in the log separate, so that
``spark_jobs.rebuild`` replaces the sketches with changed input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from decaysketch.cli.dialect import Encoding, Separator, TextOptions
from decaysketch.cli.first_rows import First, numerals_from, recipe_from_rows
from decaysketch.cli.options import (
    Columns,
    Parameters,
    generated,
    group,
    mapping_from_options,
    names,
)
from decaysketch.cli.output import AsJson, CommandError, human_bytes, refuse_uri, report, show
from decaysketch.cli.recipes import Configuration
from decaysketch.client.access import has_secret
from decaysketch.core.plausible_times import span
from decaysketch.core.sizing import DEFAULT_CAPACITY
from decaysketch.errors import ParameterError
from decaysketch.spark.build import detect_format
from decaysketch.spark.tables import SketchTable
from decaysketch.tables import KeyedBuilder
from decaysketch.tables.records import ALL
from spark_jobs.failures import reporting_errors
from spark_jobs.inputs import FINGERPRINTS, inputs
from spark_jobs.options import Master, Overwrite, check_free, run
from spark_jobs.pipeline import build, with_fallback
from spark_jobs.quarantine import check_quarantine
from spark_jobs.session import DEFAULT_MASTER, spark_session
from spark_jobs.spec import BuildSpec, time_in_units
from spark_jobs.text_logs import settled

__all__ = ["main", "tell"]

_DEFAULTS = {"capacity": DEFAULT_CAPACITY, "time_unit": "us"}  # of a sampler as well, and of sites
_COLUMNS = {
    "time": "event_us", "time_unit": "us", "ids": "source,msg", "key": "key", "source": "source",
    "sequence": "msg", "value": "value",
}  # fmt: skip


@group
class Filter(NamedTuple):
    """Options for the rows that are read."""

    since: Annotated[
        str | None,
        typer.Option(help="Use rows from this time: a date, or an integer in --time-unit."),
    ] = None
    until: Annotated[str | None, typer.Option(help="Use rows before this time.")] = None
    where: Annotated[
        str | None, typer.Option(help="Take rows like \"valid = true and site != 'x'\".")
    ] = None


@group
class Source(NamedTuple):
    """Options for the way to read the log."""

    format: Annotated[
        str | None,
        typer.Option(help="parquet, csv or json (one object a line). Default: by suffix."),
    ] = None
    schema: Annotated[
        str | None,
        typer.Option(help="Types of a CSV or JSON log, such as 'source STRING, msg BIGINT, ...'."),
    ] = None
    separator: Separator = None
    encoding: Encoding = None
    read_in_workers: Annotated[
        bool, typer.Option(help="Let workers read a Parquet log themselves.")
    ] = True

    def text_options(self) -> TextOptions:
        """Return the options for text files.

        Raises:
            CommandError: an invalid one.
        """
        return TextOptions(self.separator, self.encoding).checked()


@group
class Output(NamedTuple):
    """Options for the table."""

    out: Annotated[Path, typer.Option(help="Folder to write the table of sketches to.")]
    quarantine: Annotated[
        Path | None,
        typer.Option(
            help="Folder for rejected rows, with the reason. Without it, a rejected row ends the "
            "job."
        ),
    ] = None
    apart: Annotated[
        bool, typer.Option("--apart", help="Store the parts of LOG separately, for rebuild.")
    ] = False
    fingerprint: Annotated[
        str,
        typer.Option(help="How rebuild detects a change: stat (size and time), or content."),
    ] = FINGERPRINTS[0]
    count_copies: Annotated[bool, typer.Option(help="Report the number of duplicates.")] = True
    overwrite: Overwrite = False
    as_json: AsJson = False

    def check_free(self) -> None:
        """Reject existing output."""
        check_free(self.out, self.overwrite)
        if self.quarantine is not None:
            refuse_uri(self.quarantine)
            check_quarantine(self.quarantine, self.overwrite)


@group
class Clock(NamedTuple):
    """Options for the sketches' clock and the sites' epoch."""

    now: Annotated[
        int | None,
        typer.Option(
            help="Time for sketches with a clock, in --time-unit: rows that no later query can "
            "see are dropped. Default: none."
        ),
    ] = None
    epoch: Annotated[
        int,
        typer.Option(
            help="If keys are counted by source: another number for each log whose sketches you "
            "merge with others. Each part that is stored --apart has its own."
        ),
    ] = 0


@generated(_DEFAULTS, _COLUMNS)
def main(
    log: Annotated[str, typer.Argument(help="The delivery log: a file or folder, or its URI.")],
    output: Output,
    by: Annotated[
        str, typer.Option(help="Columns to group by, with commas; '' for one sketch of everything.")
    ] = "path",
    *,
    filter: Filter,
    source: Source,
    columns: Columns,
    configuration: Configuration,
    parameters: Parameters,
    clock: Clock,
    master: Master = DEFAULT_MASTER,
) -> None:
    """Build one sketch for each key in a delivery log."""
    with reporting_errors():
        options = source.text_options()
        if has_secret(log):
            raise CommandError("LOG contains a secret, and the table would store and show it")
        first = _first(log, source, columns, names(by))
        numerals = numerals_from(columns, first)
        recipe = recipe_from_rows(
            configuration, parameters, columns, first, _DEFAULTS, numerals=numerals,
            by_key=bool(names(by)),
        )  # fmt: skip
        mapping = mapping_from_options(recipe, columns)
        mapping = replace(mapping, decimal=numerals.decimal, thousands=numerals.thousands)
        if columns.text("columns") == ALL:
            mapping = mapping.complete(recipe, first.names)
        if output.fingerprint not in FINGERPRINTS:
            raise CommandError(
                f"--fingerprint is {output.fingerprint!r}; expected one of "
                f"{', '.join(FINGERPRINTS)}"
            )
        unit = recipe.params.time_unit
        spec = BuildSpec(
            log=log if "://" in log else str(Path(log).absolute()),
            mapping=mapping, by=names(by), now=clock.now,
            since=time_in_units("--since", filter.since, unit),
            until=time_in_units("--until", filter.until, unit), where=filter.where,
            format=source.format, schema=source.schema, read_in_workers=source.read_in_workers,
            quarantine=None if output.quarantine is None else str(output.quarantine.absolute()),
            apart=output.apart, fingerprint=output.fingerprint, epoch=clock.epoch,
        )  # fmt: skip
        # Check all arguments before a session starts.
        checked = KeyedBuilder(
            recipe, mapping, spec.by, now=spec.now, only=spec.only, epoch=spec.epoch
        )
        inputs(spec.log)
        if spec.schema is None and (spec.format or detect_format(spec.log)) == "csv":
            spec = settled(spec, options, checked.text_columns)
        output.check_free()
        with spark_session("decaysketch build", master) as session:
            if "fallback_time" not in columns.given:
                spec = with_fallback(session, spec, "arrival_us")
            table = build(
                session, spec, output.out, recipe, overwrite=output.overwrite,
                count_copies=output.count_copies,
            )  # fmt: skip
        tell(table, output.as_json)


def _first(log: str, source: Source, columns: Columns, keys: Sequence[str]) -> First:
    """Return the first rows of a local log. Those of a URI are not read here."""
    if "://" in log or not Path(log).exists():
        return First(Path(log))
    files = [
        file.path for part in inputs(str(Path(log).absolute())).values() for file in part.files
    ]
    if not files:
        return First(Path(log))
    try:
        format = source.format or detect_format(files)
    except ParameterError:  # reported when it is read
        return First(Path(log))
    format = "ndjson" if format == "json" else format
    return First.of(Path(files[0]), format, columns, keys, source.text_options())


def tell(table: SketchTable, as_json: bool) -> None:
    """Print a summary of a build, from the table's notes."""
    said = table.summary
    if as_json:
        show(True, said)
        return
    report.print(
        f"{said['rows']:,} deliveries ({human_bytes(said['log_bytes'])}) -> "
        f"{said['sketches']:,} sketches ({human_bytes(said['sketch_bytes'])}) in {table.path}, "
        f"{said['seconds']:.1f} s",
        soft_wrap=True,
    )
    for line in _details(said):
        report.print(line, soft_wrap=True)


def _details(said: dict[str, Any]) -> list[str]:
    lines = []
    fallback = said["build"]["mapping"]["fallback_time"]
    odd = [f"{said['missing_values']:,} without a value"] * bool(said["missing_values"])
    odd += [f"{said['fallback_times']:,} timed by {fallback}"] * bool(said["fallback_times"])
    if odd:
        lines.append(", ".join(odd))
    if said["held"] is not None:
        lines.append(f"{said['held']:,} observations stored; {_copies(said)}")
    if said.get("newest") is not None:
        lines.append(f"times {span(said['time_unit'], said['oldest'], said['newest'])}")
    lines += [f"warning: {each}" for each in said.get("warnings", ())]
    if said["filtered"]:
        lines.append(f"{said['filtered']:,} rows filtered out")
    if said["refused"]:
        lines.append(f"{said['refused']:,} rows rejected: {said['build']['quarantine']}")
    return lines


def _copies(said: dict[str, Any]) -> str:
    if not said["copies_exact"]:
        return "the number of duplicates is not known, because observations are estimated"
    if said["copies"] is None:
        return "the number of duplicates is not known"
    part = " in the same part of the log" if said["build"]["apart"] else ""
    return f"{said['copies']:,} deliveries were duplicates of others with the same key{part}"


if __name__ == "__main__":
    run(main)
