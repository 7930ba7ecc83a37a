"""Command-line options that several programs share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from decaysketch.cli.output import CommandError, refuse_uri
from decaysketch.core.duplicates import replaced_readings
from decaysketch.spark.tables import SketchTable

__all__ = ["Master", "Overwrite", "check_free", "open_table", "replaced_since", "run"]

Master = Annotated[str, typer.Option(help="Spark master: local[N], or a cluster's address.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace the output of an earlier run.")
]


def run(program: Callable[..., None]) -> None:
    """Run a program with the command line's arguments."""
    # Local variables stay out of tracebacks: one of them may be a secret.
    app = typer.Typer(add_completion=False, pretty_exceptions_show_locals=False)
    app.command()(program)
    app()


def check_free(out: Path, overwrite: bool) -> None:
    """Report an error instead of overwriting data.

    Raises:
        CommandError: a URI, or, unless ``overwrite``, a sketch table.
        TableError: a file, or a folder with foreign content.
    """
    refuse_uri(out)
    if SketchTable.exists(out) and not overwrite:
        raise CommandError(f"{out} already contains sketches; --overwrite replaces them")


def replaced_since(before: Sequence[Mapping[str, int]], after: Mapping[str, int]) -> list[str]:
    """Return a warning if a merge met many readings that a later one with their id replaced.

    Args:
        before: counts of the tables that were merged.
        after: counts of the merge.
    """
    replaced = after["replaced"] - sum(counts["replaced"] for counts in before)
    said = replaced_readings(replaced, after["rows"], read=True)
    return [] if said is None else [said]


def open_table(path: Path, id_key: bytes | None = None) -> SketchTable:
    """Return the latest version of a table on this machine.

    Raises:
        CommandError: a URI.
        TableError: there is no table.
    """
    refuse_uri(path)
    return SketchTable.open(path, id_key=id_key)
