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

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from decaysketch.cli.dialect import TextOptions
from decaysketch.cli.output import AsJson, CommandError, human_bytes, refuse_uri, report, show
from decaysketch.cli.recipes import (
    Accuracy,
    Decimal,
    Encoding,
    IdKeyFile,
    Parameters,
    Separator,
    TextColumns,
    Thousands,
    TimeFormat,
    TimeZone,
    mapping_from_options,
    names,
    read_id_key,
    recipe_from_options,
    taking_parameters,
)
from decaysketch.client.access import has_secret
from decaysketch.core.plausible_times import span
from decaysketch.core.sizing import DEFAULT_CAPACITY
from decaysketch.families import DEFAULT, FAMILIES
from decaysketch.spark.build import detect_format
from decaysketch.spark.tables import SketchTable
from decaysketch.tables import KeyedBuilder
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


@taking_parameters(_DEFAULTS)
def main(
    log: Annotated[str, typer.Argument(help="The delivery log: a file or folder, or its URI.")],
    out: Annotated[Path, typer.Option(help="Folder to write the table of sketches to.")],
    by: Annotated[
        str, typer.Option(help="Columns to group by, with commas; '' for one sketch of everything.")
    ] = "path",
    since: Annotated[
        str | None,
        typer.Option(help="Take rows from this time on: a date, or an integer in --time-unit."),
    ] = None,
    until: Annotated[str | None, typer.Option(help="Take rows before this time.")] = None,
    where: Annotated[
        str | None, typer.Option(help="Take rows like \"valid = true and site != 'x'\".")
    ] = None,
    quarantine: Annotated[
        Path | None,
        typer.Option(
            help="Folder for rows that are refused, with the reason; else one ends the job."
        ),
    ] = None,
    apart: Annotated[
        bool, typer.Option("--apart", help="Keep the entries of LOG apart, for rebuild.")
    ] = False,
    fingerprint: Annotated[
        str,
        typer.Option(help="How rebuild notices a change: stat (size and time), or content."),
    ] = FINGERPRINTS[0],
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
        str | None,
        typer.Option(
            help="Replaces a null time; '' for none. If not given, arrival_us if the log has it."
        ),
    ] = None,
    column_unit: Annotated[
        str, typer.Option(help="Unit of times that are plain numbers: ns, us, ms, s, min, h or d.")
    ] = "us",
    time_zone: TimeZone = None,
    time_format: TimeFormat = None,
    separator: Separator = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    encoding: Encoding = None,
    text_columns: TextColumns = "",
    id_columns: Annotated[
        str, typer.Option(help="Columns that together identify a message, with commas.")
    ] = "source,msg",
    key_columns: Annotated[
        str, typer.Option(help="Columns that together are the key, where keys are counted.")
    ] = "key",
    site_column: Annotated[
        str | None, typer.Option(help="The site that they are counted for; one site if not given.")
    ] = None,
    source_column: Annotated[
        str, typer.Option(help="Who sent the message, where sources number them.")
    ] = "source",
    sequence_column: Annotated[
        str, typer.Option(help="Integers by which a source numbers its messages; likewise.")
    ] = "msg",
    value_column: Annotated[str, typer.Option(help="The measured number; '' for none.")] = "value",
    weight_column: Annotated[
        str, typer.Option(help="Integer weights; '': every weight is 1.")
    ] = "",
    family: Annotated[
        str | None, typer.Option(help=f"{', '.join(FAMILIES)}; {DEFAULT} if nothing says it.")
    ] = None,
    decay: Annotated[
        str | None,
        typer.Option(
            help="Where the family fixes one: the decay, such as 'exponential(half_life=15min)', "
            "'floor(w / (1 + x/60))' or JSON; or a file that holds it."
        ),
    ] = None,
    now: Annotated[
        int | None,
        typer.Option(
            help="A time to tell sketches that have a clock, in --time-unit: what no "
            "query from then on can see is forgotten. Not told if not given."
        ),
    ] = None,
    epoch: Annotated[
        int,
        typer.Option(
            help="Where keys are counted by site: another one for each log whose sketches will be "
            "merged with those of others. Each part of one that is kept --apart has one of its own."
        ),
    ] = 0,
    params_file: Annotated[
        Path | None,
        typer.Option(
            "--params", help="Parameters as a JSON file, instead of the options that follow."
        ),
    ] = None,
    accuracy: Accuracy = None,
    *,
    parameters: Parameters,
    id_key_file: IdKeyFile = None,
    read_in_workers: Annotated[
        bool, typer.Option(help="Let workers read a Parquet log themselves.")
    ] = True,
    count_copies: Annotated[bool, typer.Option(help="Say how many deliveries were copies.")] = True,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    master: Master = DEFAULT_MASTER,
) -> None:
    """Build one sketch for each key in a delivery log."""
    with reporting_errors():
        recipe = recipe_from_options(
            family, params_file, decay, read_id_key(id_key_file), parameters, _DEFAULTS,
            accuracy=accuracy, by_key=bool(names(by)),
        )  # fmt: skip
        mapping = mapping_from_options(
            recipe, ids=id_columns, key=key_columns, site=site_column, source=source_column,
            sequence=sequence_column,
            time=time_column, value=value_column, weight=weight_column,
            fallback_time=fallback_time_column, time_unit=column_unit,
        )  # fmt: skip
        mapping = replace(
            mapping, time_zone=time_zone, time_format=time_format, decimal=decimal or ".",
            thousands=thousands or "",
        )  # fmt: skip
        options = TextOptions(separator, encoding)
        options.check()
        if has_secret(log):
            raise CommandError("LOG has a secret in it, which the table would keep and show")
        if fingerprint not in FINGERPRINTS:
            raise CommandError(
                f"--fingerprint is {fingerprint!r}; expected one of {', '.join(FINGERPRINTS)}"
            )
        unit = recipe.params.time_unit
        spec = BuildSpec(
            log=log if "://" in log else str(Path(log).absolute()),
            mapping=mapping, by=names(by), now=now,
            since=time_in_units("--since", since, unit),
            until=time_in_units("--until", until, unit), where=where,
            format=format, schema=schema, read_in_workers=read_in_workers,
            quarantine=None if quarantine is None else str(quarantine.absolute()),
            apart=apart, fingerprint=fingerprint, epoch=epoch,
        )  # fmt: skip
        # What can be wrong is found before a session starts.
        KeyedBuilder(recipe, mapping, spec.by, now=now, only=spec.only, epoch=epoch)
        inputs(spec.log)
        if schema is None and (format or detect_format(spec.log)) == "csv":
            spec = settled(spec, options, names(text_columns))
        check_free(out, overwrite)
        if quarantine is not None:
            refuse_uri(quarantine)
            check_quarantine(quarantine, overwrite)
        with spark_session("decaysketch build", master) as session:
            if fallback_time_column is None:
                spec = with_fallback(session, spec, "arrival_us")
            table = build(
                session, spec, out, recipe, overwrite=overwrite, count_copies=count_copies
            )  # fmt: skip
        tell(table, as_json)


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
        lines.append(f"{said['held']:,} observations held; {_copies(said)}")
    if said.get("newest") is not None:
        lines.append(f"times {span(said['time_unit'], said['oldest'], said['newest'])}")
    lines += [f"warning: {each}" for each in said.get("warnings", ())]
    if said["filtered"]:
        lines.append(f"{said['filtered']:,} rows filtered out")
    if said["refused"]:
        lines.append(f"{said['refused']:,} rows refused: {said['build']['quarantine']}")
    return lines


def _copies(said: dict[str, Any]) -> str:
    if not said["copies_exact"]:
        return "the number of duplicates is not known, because observations are estimated"
    if said["copies"] is None:
        return "how many deliveries were duplicates is not known"
    part = " in the same part of the log" if said["build"]["apart"] else ""
    return f"{said['copies']:,} deliveries were duplicates of others with the same key{part}"


if __name__ == "__main__":
    run(main)
