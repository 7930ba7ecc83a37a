"""Command-line options that several programs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from spark_jobs.console import JobError

__all__ = ["IdKeyFile", "Master", "Overwrite", "read_id_key", "run"]

Master = Annotated[str, typer.Option(help="Where Spark runs: local[N], or a cluster's address.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier run wrote.")]
IdKeyFile = Annotated[
    Path | None,
    typer.Option(help="File that holds the stream's secret id key, 16 to 64 bytes in hex."),
]


def run(program: Callable[..., None]) -> None:
    """Run a program with the arguments of the command line."""
    # Local variables stay out of tracebacks: one of them may be a secret.
    app = typer.Typer(add_completion=False, pretty_exceptions_show_locals=False)
    app.command()(program)
    app()


def read_id_key(path: Path | None) -> bytes | None:
    """The secret in a file; the key itself is never an argument, which other users could see."""
    if path is None:
        return None
    try:
        return bytes.fromhex(path.read_text(encoding="ascii"))
    except ValueError:
        raise JobError(f"{path} does not hold a key in hexadecimal digits") from None
