"""The output of the programs, and their failures: one line with the fault, and status 1.

Reports and progress go to stderr, results to stdout: tables for people, or JSON with ``--json``.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from decaysketch.errors import DecaySketchError

__all__ = [
    "AsJson",
    "CommandError",
    "human_bytes",
    "number",
    "refuse_uri",
    "report",
    "reporting_errors",
    "show",
    "warn",
    "write_whole",
    "writing_whole",
]

#: stderr; stdout is for results that another program may read.
report = Console(stderr=True, highlight=False)

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # of two letters: one is a Windows drive

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON to stdout, for programs.")]


class CommandError(Exception):
    """A program cannot do its task. The message is for the user."""


@contextmanager
def reporting_errors() -> Iterator[None]:
    """End the program with one line if the fault is in its input, not in the program."""
    try:
        yield
    except (CommandError, DecaySketchError, OSError) as fault:
        report.print(Text.assemble(("error: ", "bold red"), _said(fault)), soft_wrap=True)
        raise typer.Exit(1) from None


def _said(fault: Exception) -> str:
    if isinstance(fault, OSError) and fault.filename is not None and fault.strerror:
        return f"{fault.filename}: {fault.strerror}"
    return str(fault)


def warn(text: str) -> None:
    """Warn about suspicious input, and continue."""
    report.print(Text.assemble(("warning: ", "bold yellow"), text), soft_wrap=True)


def refuse_uri(path: Path) -> None:
    """Reject a URI. As a path, it would be a folder here with the name of its scheme.

    Raises:
        CommandError: it is one.
    """
    if _URI.match(str(path)):
        raise CommandError(f"{path} is a URI; expected a path on this machine")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file completely or leave it unchanged. A device or pipe is written into."""
    with _in_place_of(path) as place:
        place.write_bytes(content)


@contextmanager
def writing_whole(path: Path) -> Iterator[TextIO]:
    """Write text lines to a file that is complete after all lines, or unchanged."""
    with _in_place_of(path) as place, place.open("w", encoding="utf-8") as lines:
        yield lines


@contextmanager
def _in_place_of(path: Path) -> Iterator[Path]:
    """Return the path to write to, which replaces the file once it is complete. A device or pipe is
    written into.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        yield target
        return
    temporary = target.with_name(f".{os.getpid()}.tmp")  # short: the name may be as long as allowed
    try:
        yield temporary
        temporary.replace(target)
    except OSError as fault:
        if fault.filename in (temporary, str(temporary)):
            fault.filename = str(path)  # the path that the user gave
        raise
    finally:
        temporary.unlink(missing_ok=True)


def show(as_json: bool, content: Any, *tables: Table) -> None:
    """Print a result: ``content`` as JSON, or else the tables."""
    if as_json:
        typer.echo(json.dumps(_finite(content), indent=1))
        return
    console = Console(highlight=False)
    for table in tables:
        console.print(table)


def _finite(content: Any) -> Any:
    """Replace every non-finite number with null, because JSON has no infinity."""
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def number(value: float | str) -> str:
    """Return a number as readable text, and a label as it is."""
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def human_bytes(size: int) -> str:
    """Return a byte count as readable text."""
    return f"{size / 1e6:,.2f} MB" if size >= 100_000 else f"{size:,} B"
