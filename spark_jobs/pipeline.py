"""Common parts for build and rebuild: from log parts to table rows, with counts.

A part's rows are lazy. The table runs them when it writes, and their counts are known afterwards.
The row of each sketch contains the number of distinct observations in its input
(:class:`decaysketch.contract.snapshot.Tally`). All other deliveries were duplicates, by any path.
The engine adds the numbers up.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decaysketch.cli.output import CommandError
from decaysketch.cli.recipes import told
from decaysketch.core.plausible_times import doubt
from decaysketch.families import Recipe
from decaysketch.spark.build import (
    detect_format,
    read_log,
    refusal_table,
    sketch_table,
)
from decaysketch.spark.splits import parquet_tasks
from decaysketch.spark.tables import SketchTable
from decaysketch.tables.keyed import advice_on, warnings_of
from spark_jobs.inputs import Input, changes, inputs
from spark_jobs.quarantine import replace_quarantine
from spark_jobs.session import with_progress
from spark_jobs.spec import BuildSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

__all__ = ["Rebuilt", "build", "each_row_counts", "rebuild", "with_fallback"]

_MORE_COUNTS = ("missing_values", "replaced", "undated", "zoneless")


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A rebuild's result.

    Attributes:
        table: the version that it made, or the existing one.
        done: by label its change ("added", "changed", "removed" or "asked for"), and the reason.
        kept: number of unchanged parts.
        seconds: duration.
    """

    table: SketchTable
    done: dict[str, tuple[str, str]]
    kept: int
    seconds: float


def build(
    session: SparkSession,
    spec: BuildSpec,
    out: Path,
    recipe: Recipe,
    *,
    overwrite: bool = False,
    count_copies: bool = True,
) -> SketchTable:
    """Build a log's sketches and write them to a table, with counts.

    Args:
        session: the Spark session.
        spec: the build specification.
        out: the table's folder.
        recipe: the sketch configuration.
        overwrite: replace an existing table and quarantine.
        count_copies: count the duplicates among the deliveries.

    Raises:
        TableError: existing data that must not be overwritten.
        DecaySketchError, OSError: the log, its columns or a row are rejected. Nothing is changed.
    """
    started = time.monotonic()
    spec = _with_settled_schema(session, spec)
    found = inputs(spec.log, apart=spec.apart, by=spec.fingerprint)
    parts = {
        label: _Part(session, spec, recipe, part, count_copies) for label, part in found.items()
    }

    def notes() -> dict[str, Any]:
        if spec.quarantine is not None:
            replace_quarantine(Path(spec.quarantine), "", None)
        counted = {label: part.finish() for label, part in parts.items()}
        return _notes(spec, recipe, counted, started)

    rows = {label: (part.rows, part.input.fingerprint) for label, part in parts.items()}
    return with_progress(
        session,
        "building sketches",
        lambda: SketchTable.write(out, rows, recipe, spec.by, overwrite=overwrite, notes=notes),
    )


def rebuild(session: SparkSession, table: SketchTable, *, everything: bool = False) -> Rebuilt:
    """Replace the sketches for log parts that have changed since they were built.

    A part is built again and *replaces* its old version. Data that vanished from its input also
    vanish from the table, which no merge could do.

    Args:
        session: the Spark session.
        table: a table that :func:`build` wrote.
        everything: also parts that have not changed.

    Raises:
        CommandError: the table does not contain its build specification.
        TableBusyError: another program changed it meanwhile.
    """
    started = time.monotonic()
    said = table.summary
    if "build" not in said:
        raise CommandError(f"{table.path} does not name its log; build it again")
    spec = BuildSpec.from_dict(said["build"])
    found = inputs(spec.log, apart=spec.apart, by=spec.fingerprint)
    done = changes(table.fingerprints, found)
    if everything:
        done = dict.fromkeys(found, ("asked for", "as all are")) | done
    kept = len(found.keys() - done.keys())
    if not done:
        return Rebuilt(table, {}, kept, time.monotonic() - started)
    recipe = table.recipe
    count_copies = said["held"] is not None
    parts = {
        label: _Part(session, spec, recipe, found[label], count_copies)
        for label in sorted(done)
        if label in found
    }
    removed = [label for label in done if label not in found]

    def notes() -> dict[str, Any]:
        if spec.quarantine is not None:
            for label in removed:
                replace_quarantine(Path(spec.quarantine), label, None)
        counted = {label: part for label, part in said["parts"].items() if label in found}
        counted |= {label: part.finish() for label, part in parts.items()}
        return _notes(spec, recipe, counted, started) | {"rebuilt": done}

    rows = {label: (part.rows, part.input.fingerprint) for label, part in parts.items()}
    after = with_progress(
        session,
        "rebuilding sketches",
        lambda: table.replace_partitions(rows, remove=removed, notes=notes),
    )
    return Rebuilt(after, dict(sorted(done.items())), kept, time.monotonic() - started)


class _Part:
    """A part of a log on its way into a table.

    Attributes:
        input: the part.
        rows: its rows of sketches, lazy.
    """

    def __init__(
        self,
        session: SparkSession,
        spec: BuildSpec,
        recipe: Recipe,
        part: Input,
        count_copies: bool,
    ) -> None:
        self.input = part
        self._session, self._spec, self._recipe = session, spec, recipe
        self._count_copies = count_copies
        self._format = spec.format or detect_format([file.path for file in part.files])
        source = self._source()
        self._read: Observation | None = None
        if spec.only is not None and not isinstance(source, list):
            source, self._read = _observed(source, "count(*) AS rows")
        rows = sketch_table(
            session, source, recipe, spec.mapping, spec.by, now=spec.now, only=spec.only,
            refused="raise" if spec.quarantine is None else "count", format=self._format,
            tally=count_copies or recipe.kind.input.series,
            epoch=spec.epoch_of(part.label) if recipe.kind.input.sited else 0,
        )  # fmt: skip
        sums = ["coalesce(sum(rows), 0) AS rows", "coalesce(sum(refused), 0) AS refused"]
        sums += [f"coalesce(sum({name}), 0) AS {name}" for name in _MORE_COUNTS]
        sums += ["count(*) AS sketches"]
        if count_copies:
            sums += ["coalesce(sum(__held), 0) AS held", "sum(__observations) AS observations"]
            sums += ["count(__observations) AS known", "coalesce(every(__exact), true) AS exact"]
            sums += ["min(__oldest) AS oldest", "max(__newest) AS newest"]
        if recipe.kind.input.series:
            sums += ["min(__advice) AS advice"]
        self.rows, self._written = _observed(rows, *sums)

    def finish(self) -> dict[str, Any]:
        """Return the counts, once the rows are written, and this part's quarantine."""
        spec, counted = self._spec, self._written.get
        if spec.quarantine is not None:
            refusals = None
            if counted["refused"]:
                refusals = refusal_table(
                    self._session, self._source(), self._recipe, spec.mapping, only=spec.only,
                    format=self._format,
                )  # fmt: skip
            replace_quarantine(Path(spec.quarantine), self.input.label, refusals)
        known = self._count_copies and counted["known"] == counted["sketches"]
        known = known and self._recipe.kind.input.named_by != "key"  # events have no duplicates
        return {
            "log_bytes": self.input.size,
            "filtered": self._rows_read() - counted["rows"] - counted["refused"],
            "rows": counted["rows"],
            "refused": counted["refused"],
            **{name: counted[name] for name in _MORE_COUNTS},
            "held": counted["held"] if self._count_copies else None,
            "observations": (counted["observations"] or 0.0) if known else None,
            "exact": bool(known and counted["exact"] and each_row_counts(spec, self._recipe)),
            "oldest": counted["oldest"] if self._count_copies else None,
            "newest": counted["newest"] if self._count_copies else None,
            **({"advice": counted["advice"]} if self._recipe.kind.input.series else {}),
        }

    def _rows_read(self) -> int:
        """Return the log rows, accepted or not."""
        if self._spec.only is None:
            counted = self._written.get
            return int(counted["rows"] + counted["refused"])
        if self._read is not None:
            return int(self._read.get["rows"])
        spec = self._spec
        tasks = parquet_tasks(self.input.files, self._recipe.params, spec.mapping, cores=1)
        return 0 if tasks is None else tasks.rows

    def _source(self) -> list[str] | DataFrame:
        """Return files that workers read themselves, or rows that Spark reads."""
        spec, files = self._spec, self.input.files
        in_folders = any(file.in_partition_folder for file in files)
        if self._format == "parquet" and spec.read_in_workers and not in_folders:
            return [file.path for file in files]
        if not spec.apart:
            return read_log(self._session, spec.log, self._format, spec.schema, options=spec.reader)
        paths = [file.path for file in files]
        base = spec.log if in_folders else None
        return read_log(
            self._session, paths, self._format, spec.schema, base=base, options=spec.reader
        )


def with_fallback(session: SparkSession, spec: BuildSpec, name: str) -> BuildSpec:
    """Return the same with a column as the fallback time, if the log has it."""
    format = spec.format or detect_format(spec.log)
    if name not in read_log(session, spec.log, format, spec.schema, options=spec.reader).columns:
        return spec
    return replace(spec, mapping=replace(spec.mapping, fallback_time=name))


def _with_settled_schema(session: SparkSession, spec: BuildSpec) -> BuildSpec:
    """If parts are read separately, give their columns the types in the complete log."""
    if not spec.apart or spec.schema is not None:
        return spec
    format = spec.format or detect_format(spec.log)
    files = [file for part in inputs(spec.log).values() for file in part.files]
    if format == "parquet" and not any(file.in_partition_folder for file in files):
        return spec
    return spec.with_schema(read_log(session, spec.log, format).schema.toDDL())


def _observed(rows: DataFrame, *sums: str) -> tuple[DataFrame, Observation]:
    """Return rows that are counted as they pass."""
    from pyspark.sql import Observation
    from pyspark.sql.functions import expr

    observation = Observation()
    return rows.observe(observation, *map(expr, sums)), observation


def each_row_counts(spec: BuildSpec, recipe: Recipe) -> bool:
    """Return whether every accepted row is an observation. Rows with weight 0, or without a value
    to sum, are not.

    Such rows are not counted, and so the number of duplicates is not known either.
    """
    return spec.mapping.weight is None and recipe.kind.input.value_bound is None


def _doubts(unit: str, oldest: int | None, newest: int | None) -> list[str]:
    found = doubt(unit, oldest, newest)
    return [] if found is None else [f"times are probably not in {unit}: {found}"]


def _notes(
    spec: BuildSpec, recipe: Recipe, parts: Mapping[str, Mapping[str, Any]], started: float
) -> dict[str, Any]:
    """Return a table's notes about its build: sums over all parts, and each part."""

    def total(name: str) -> Any:
        each = [part[name] for part in parts.values()]
        return None if None in each else sum(each)

    counts = {
        name: sum(part.get(name, 0) for part in parts.values()) for name in ("rows", *_MORE_COUNTS)
    }
    oldest, newest = (
        choose((part[name] for part in parts.values() if part.get(name) is not None), default=None)
        for name, choose in (("oldest", min), ("newest", max))
    )
    advice = next((part["advice"] for part in parts.values() if part.get("advice")), None)
    observations = total("observations")
    copies, exact = None, all(part["exact"] for part in parts.values())
    # The error of an estimate may exceed the difference, so only exact counts are used.
    if observations is not None and exact:
        elements = total("rows")
        if recipe.kind.input.value == "required":  # rows without one are none
            elements -= total("missing_values")
        copies = max(0, round(elements - observations))
    return {
        "build": spec.to_dict(),
        "log_bytes": total("log_bytes"),
        "filtered": total("filtered"),
        "held": total("held"),
        "copies": copies,
        "copies_exact": exact,
        "time_unit": recipe.params.time_unit,
        "oldest": oldest,
        "newest": newest,
        "warnings": [
            *_doubts(recipe.params.time_unit, oldest, newest),
            *told(warnings_of(counts, total("held"), spec.mapping, recipe.params.time_unit)),
            *([] if advice is None else [advice_on(advice, [*spec.by, *["part"] * spec.apart])]),
        ],
        "seconds": round(time.monotonic() - started, 3),
        "parts": dict(parts),
    }
