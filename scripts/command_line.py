"""``python scripts/command_line.py``: the page of the command line, from what its help says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from decaysketch.cli import app

__all__ = ["page"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "cli.md"


def page() -> str:
    """Markdown: every command with its arguments and options."""
    command = typer.main.get_command(app)
    return "# Command line\n\n" + "\n".join(_section("decaysketch", command, 1))


def _section(name: str, command: Any, depth: int) -> Iterator[str]:
    if depth > 1:
        yield f"{'#' * depth} `{name}`\n"
    yield _plain(command.help or "") + "\n"
    commands = getattr(command, "commands", {})
    rows = [row for each in command.params if each.name != "help" for row in _row(each)]
    if rows and not commands:
        yield "| | | default |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    for child, each in commands.items():
        yield from _section(f"{name} {child}", each, depth + 1)


def _row(parameter: Any) -> Iterator[str]:
    if getattr(parameter, "hidden", False):
        return
    shown = ", ".join(f"`{each}`" for each in parameter.opts if each.startswith("-"))
    shown = shown or f"`{parameter.name.upper()}`"
    default = parameter.default
    has_default = default not in (None, (), [], False) and not callable(default)
    yield f"| {shown} | {_plain(parameter.help or '')} | {f'`{default}`' if has_default else ''} |"


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.exit(0)
