"""Files of observations folded into sketches, with progress; rows that are refused are kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from decaysketch.batch import KeyedBuilder, refusal_finder
from decaysketch.cli.output import CommandError, report, warn, writing_whole
from decaysketch.cli.tables import FORMATS, batches, format_of, otherwise_written, with_gaps
from decaysketch.errors import ObservationError, OtherTypeError, OtherUnitError, ParameterError

__all__ = ["fold"]


def fold(
    builder: KeyedBuilder,
    logs: Sequence[Path],
    format: str | None,
    *,
    texts: Sequence[str] = (),
    quarantine: Path | None = None,
) -> None:
    """Fold files in.

    Args:
        builder: what rows are folded into; it counts what it refuses where there is a quarantine.
        logs: files.
        format: of all of them; None: what the suffix of each says.
        texts: columns that are taken as text.
        quarantine: file for the rows that are refused, an object of JSON a line.

    Raises:
        CommandError: a file that cannot be read, or a row that cannot be taken where there is no
            quarantine.
    """
    named = {*builder.mapping.naming, *builder.keys}
    for name in texts:
        if name not in named:
            raise CommandError(
                f"--text-columns has {name!r}; expected columns that name rows or sketches: "
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
        files = _Files(builder, format, texts, kept)
        for position, path in enumerate(logs):
            before, size = sum(sizes[:position]), sizes[position]

            def progress(share: float, before: int = before, size: int = size) -> None:
                bar.update(task, completed=before + share * size, rows=files.rows)

            files.add(path, progress)


class _Files:
    """What is known of the files that were read so far."""

    def __init__(
        self, builder: KeyedBuilder, format: str | None, texts: Sequence[str], kept: TextIO | None
    ) -> None:
        self.builder, self.format, self.texts, self.kept = builder, format, texts, kept
        self.rows = self.refused = 0
        self.doubted = self.lost = self.joined = False
        mapping = builder.mapping
        labelled = builder.recipe.params.value_type == "label" and mapping.value is not None
        self._with_gaps = [*mapping.naming, *([mapping.value] if labelled else ())]

    def add(self, path: Path, progress: Callable[[float], None]) -> None:
        builder = self.builder
        format = self.format or format_of(path)
        if format not in FORMATS:
            raise CommandError(f"--format is {format!r}; expected one of {', '.join(FORMATS)}")
        if format == "csv":
            self._warn_of_numbers(path)
        first_row = 0
        for batch in batches(path, format, builder.columns, progress, self.texts):
            if format == "csv":
                batch = with_gaps(batch, self._with_gaps)
            self._fold(path, batch, first_row)
            if self.kept is not None:
                self._keep(path, batch, first_row, self.kept)
            first_row += batch.num_rows
            self.rows += batch.num_rows
            if builder.doubt is not None and not self.doubted:
                warn(f"{path}: {builder.doubt}; --column-unit says which it is")
                self.doubted = True
            if builder.doubt_of_ids is not None and not self.joined:
                warn(f"{path}: {builder.doubt_of_ids}; --id-columns takes several, with commas")
                self.joined = True

    def _fold(self, path: Path, batch: pa.RecordBatch, first_row: int) -> None:
        try:
            self.builder.add(batch)
        except ObservationError as fault:
            said = str(fault)
            if fault.row is not None:  # of the batch
                here, row = f"{fault.column}[{fault.row}]", first_row + fault.row
                said = said.replace(here, f"{fault.column}[{row}]", 1)
            raise CommandError(
                f"{path}: {said}; --quarantine FILE leaves such rows out, counts them and keeps "
                "them in that file"
            ) from None
        except OtherUnitError as fault:
            raise CommandError(
                f"{path}: {fault}; --column-unit says which it is, --any-time takes them as they "
                "are"
            ) from None
        except OtherTypeError as fault:
            raise CommandError(
                f"{path}: {fault}; --text-columns {fault.column} takes it as text in every file"
            ) from None
        except ParameterError as fault:
            raise CommandError(f"{path}: {fault}") from None

    def _keep(self, path: Path, batch: pa.RecordBatch, first_row: int, kept: TextIO) -> None:
        """Write down the rows of a batch that were refused, where there are some."""
        if self.builder.totals["refused"] == self.refused:
            return
        self.refused = self.builder.totals["refused"]
        find = refusal_finder(self.builder.recipe, self.builder.mapping)
        for found in find(iter([batch])):
            for row in found.to_pylist():
                line: dict[str, Any] = row | {
                    "place": str(path),
                    "row": first_row + row["row"],
                    "record": json.loads(row["record"]),
                }
                kept.write(json.dumps(line) + "\n")

    def _warn_of_numbers(self, path: Path) -> None:
        if self.lost or not path.is_file():
            return  # said before; or a pipe, which is read once
        named = {*self.builder.mapping.naming, *self.builder.keys} - set(self.texts)
        if (found := otherwise_written(path, sorted(named))) is not None:
            name, text = found
            warn(
                f"{path}: column {name!r} is read as integers, and {text!r} as {int(text)}; "
                f"--text-columns {name} takes it as it is written"
            )
            self.lost = True
