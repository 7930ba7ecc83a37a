"""Files of observations merged into sketches, with progress. Rejected rows are stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from decaysketch.cli.dialect import TextOptions
from decaysketch.cli.output import CommandError, report, warn, writing_whole
from decaysketch.cli.recipes import told
from decaysketch.cli.tables import (
    FORMATS,
    Faults,
    Reading,
    batches,
    format_of,
    otherwise_written,
)
from decaysketch.errors import (
    DisagreeingCopiesWarning,
    FewSeriesWarning,
    ObservationError,
    OtherTypeError,
    OtherUnitError,
    ParameterError,
)
from decaysketch.tables import KeyedBuilder, refusal_finder
from decaysketch.tables.workers import records_of

__all__ = ["fold"]

_LABELS = "--value-type label keeps texts as they are"
_WAY_OUT = "--quarantine FILE skips such rows, counts them and writes them to that file"


def fold(
    builder: KeyedBuilder,
    logs: Sequence[Path],
    format: str | None,
    *,
    options: TextOptions = TextOptions(),  # noqa: B008 - immutable
    quarantine: Path | None = None,
) -> int:
    """Merge files.

    Args:
        builder: receives the rows; it counts rejected rows if there is a quarantine.
        logs: files.
        format: of all of them; None: from the suffix of each.
        options: the options for text files.
        quarantine: file for rejected rows, an object of JSON a line.

    Returns:
        The number of rejected rows.

    Raises:
        CommandError: an unreadable file, or a row that cannot be accepted if there is no
            quarantine.
    """
    mapping = builder.mapping
    named = {*mapping.naming, *builder.keys, *(column for _, column in mapping.columns)}
    texts = [name for name, _ in mapping.casts]
    for name in texts:
        if name not in named:
            raise CommandError(
                f"--text-columns has {name!r}; expected columns of ids or keys: "
                f"{', '.join(sorted(named))}"
            )
    sizes = [max(path.stat().st_size, 1) for path in logs]
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rows]:,} rows"),
        TimeElapsedColumn(), console=report, transient=True,
        disable=not report.is_terminal,
    )  # fmt: skip
    with ExitStack() as open_things:
        open_things.enter_context(bar)
        kept = None
        if quarantine is not None:
            kept = open_things.enter_context(writing_whole(quarantine))
        task = bar.add_task("reading", total=sum(sizes), rows=0)
        files = _Files(builder, format, [*texts, *builder.text_columns], options, kept)
        for position, path in enumerate(logs):
            before, size = sum(sizes[:position]), sizes[position]

            def progress(share: float, before: int = before, size: int = size) -> None:
                bar.update(task, completed=before + share * size, rows=files.rows)

            files.add(path, progress)
        found = builder.warnings()
        if files.joined:  # reported for one of the files
            found.pop(DisagreeingCopiesWarning, None)
        if not builder.keys:  # shown with the sketch
            found.pop(FewSeriesWarning, None)
        for line in told(found):
            warn(line)
        return files.refused


class _Files:
    """Facts about the files that were read so far."""

    def __init__(
        self,
        builder: KeyedBuilder,
        format: str | None,
        texts: Sequence[str],
        options: TextOptions,
        kept: TextIO | None,
    ) -> None:
        self.builder, self.format, self.texts, self.kept = builder, format, texts, kept
        self.options = options
        self.rows = self.refused = 0
        self.doubted = self.lost = self.joined = False

    def add(self, path: Path, progress: Callable[[float], None]) -> None:
        builder = self.builder
        format = self.format or format_of(path)
        if format not in FORMATS:
            raise CommandError(f"--format is {format!r}; expected one of {', '.join(FORMATS)}")
        if format == "csv":
            self._warn_of_numbers(path)
        reason = "does not have the fields of the heading"
        if format == "ndjson":
            reason = "is not a JSON object"
        reading = Reading(
            builder.columns, (*builder.mapping.naming, *builder.keys), self.texts, self.options,
            None if self.kept is None else partial(self._keep, path, None, None, reason), progress,
            repeated=builder.text_columns,
        )  # fmt: skip
        first_row, before = 0, (self.rows, self.refused)
        for batch, typed, faults in batches(path, format, reading):
            self._take(path, batch, typed, faults, first_row)
            first_row += batch.num_rows
            if builder.doubt is not None and not self.doubted:
                warn(f"{path}: {builder.doubt}; give the unit with --column-unit")
                self.doubted = True
            if builder.doubt_of_ids is not None and not self.joined:
                warn(f"{path}: {builder.doubt_of_ids}; --id-columns takes several, with commas")
                self.joined = True
        if self.refused > before[1] and self.rows == before[0]:
            warn(f"{path}: all of its rows were rejected, {self.refused - before[1]:,}")

    def _take(
        self,
        path: Path,
        batch: pa.RecordBatch,
        typed: pa.RecordBatch,
        faults: Faults,
        first_row: int,
    ) -> None:
        """Merge a batch, without the rows that cannot be accepted."""
        for row, (name, reason) in sorted(faults.items()):
            if self.kept is None:
                raise CommandError(f"{path}: {name}[{first_row + row}] {reason}; {_WAY_OUT}")
            self._keep(path, first_row + row, name, reason, _row(batch, row))
        places = np.setdiff1d(np.arange(typed.num_rows), list(faults))
        whole = typed.take(pa.array(places)) if faults else typed
        before = self.builder.totals
        self._fold(path, whole, first_row + places)
        after = self.builder.totals
        self.rows += after["rows"] - before["rows"]
        if after["refused"] == before["refused"]:
            return
        find = refusal_finder(self.builder.recipe, self.builder.mapping)
        for found in find(iter([whole])):
            for each in found.to_pylist():
                row = int(places[each["row"]])
                self._keep(path, first_row + row, each["column"], each["reason"], _row(batch, row))

    def _fold(self, path: Path, batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> None:
        try:
            self.builder.add(batch)
        except ObservationError as fault:
            said = str(fault)
            if fault.row is not None:  # of the batch
                here, row = f"{fault.column}[{fault.row}]", rows[fault.row]
                said = said.replace(here, f"{fault.column}[{row}]", 1)
            labels = f"; {_LABELS}" if fault.column == self.builder.mapping.value else ""
            raise CommandError(f"{path}: {said}; {_WAY_OUT}{labels}") from None
        except OtherUnitError as fault:
            raise CommandError(
                f"{path}: {fault}; give the unit with --column-unit, or accept them with --any-time"
            ) from None
        except OtherTypeError as fault:
            raise CommandError(
                f"{path}: {fault}; --text-columns {fault.column} takes it as text in every file"
            ) from None
        except ParameterError as fault:
            raise CommandError(f"{path}: {fault}") from None

    def _keep(
        self, path: Path, row: int | None, column: str | None, reason: str, record: Any
    ) -> None:
        """Write a rejected row to the quarantine, as it was read."""
        assert self.kept is not None
        self.refused += 1
        line = {"place": str(path), "row": row, "column": column, "reason": reason}
        self.kept.write(json.dumps(line | {"record": record}, default=str) + "\n")

    def _warn_of_numbers(self, path: Path) -> None:
        if self.lost or not path.is_file():
            return  # reported before, or a pipe that can be read once
        named = {*self.builder.mapping.naming, *self.builder.keys} - set(self.texts)
        if (found := otherwise_written(path, sorted(named), self.options)) is not None:
            name, text = found
            warn(
                f"{path}: column {name!r} is read as integers, and {text!r} as {int(text)}; "
                f"--text-columns {name} keeps it as written"
            )
            self.lost = True


def _row(batch: pa.RecordBatch, row: int) -> Any:
    (record,) = records_of(pa.Table.from_batches([batch.slice(row, 1)]))
    return record
