"""What a section of the benchmarks hands back, and how it is shown: on a terminal, or as Markdown.

A section is data: tables of text, notes, and *comparisons*, single figures that stand for a task
beside the same figure of a rival. The document opens with the comparisons that went against us, so
what we lose at is decided by the run and not by whoever writes the prose. Prose in the sections
holds no measured numbers.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rich.console import Console
from rich.table import Table as RichTable

__all__ = ["Comparison", "Section", "Table", "document", "show"]


@dataclass(frozen=True)
class Table:
    """A table of text. Columns before ``labels`` are names, the others figures."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int = 1
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Comparison:
    """One task, our figure and a rival's.

    Attributes:
        task: what was to be done.
        rival: with what else it was done.
        unit: of both figures.
        ours, theirs: the figures; ours is positive, theirs may be 0 where less is better.
        better: whether less or more of the unit is better.
    """

    task: str
    rival: str
    unit: str
    ours: float
    theirs: float
    better: Literal["less", "more"]

    @property
    def advantage(self) -> float:
        """How many times better ours is; below 1 we lose."""
        ratio = self.theirs / self.ours
        return ratio if self.better == "less" else 1 / ratio


@dataclass
class Section:
    """One part of the benchmarks: what it measured, and how."""

    title: str
    about: str
    tables: list[Table] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # what could not be run here, and why
    picture: tuple[str, str] | None = None  # file beside the document, and what it shows


def show(section: Section, console: Console) -> None:
    """Print a section on a terminal."""
    console.print(f"[bold]{section.title}[/bold]\n{section.about}\n", highlight=False)
    for table in section.tables:
        shown = RichTable(title=table.title)
        for index, name in enumerate(table.columns):
            shown.add_column(
                name, justify="left" if index < table.labels else "right", overflow="fold"
            )
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)
        for note in table.notes:
            console.print(note, highlight=False)
        console.print()
    for line in section.skipped:
        console.print(f"skipped: {line}\n", highlight=False)


def _figure(number: float) -> str:
    return f"{number:,.0f}" if number >= 1_000 else f"{number:.3g}"


def _factor(advantage: float) -> str:
    return f"{max(advantage, 1 / advantage):.3g}" if advantage else "∞"


def _markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]], labels: int) -> str:
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (columns, *rows)]
    rule = ["---" if index < labels else "---:" for index in range(len(columns))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (cells[0], rule, *cells[1:]))


def _comparison_table(comparisons: Sequence[Comparison], factor: str) -> str:
    rows = [
        (c.task, c.rival, c.unit, _figure(c.ours), _figure(c.theirs), _factor(c.advantage))
        for c in comparisons
    ]
    return _markdown_table(("task", "rival", "unit", "ours", "theirs", factor), rows, labels=3)


def document(sections: Sequence[Section], machine: Sequence[str], command: str) -> str:
    """``docs/performance.md``: what we lose at, then what we win, then every section."""
    comparisons = sorted((c for s in sections for c in s.comparisons), key=lambda c: c.advantage)
    lost = [c for c in comparisons if c.advantage < 1]
    won = [c for c in comparisons if c.advantage >= 1]
    parts = [
        "# Performance",
        "The benchmarks wrote this page, and every figure comes from one run. Do not edit it. You "
        "can run them on your machine:",
        "```\n" + command + "\n```",
        "\n".join(f"- {line}" for line in (*machine, f"{datetime.date.today():%d %B %Y}")),
        "## What we lose at",
        "The comparisons of this run in which the rival was better, worst first. A sketch pays for "
        "any decay at query time, for duplicates, and for late data. If you need none of these, "
        'something simpler is better. "Times worse" is the ratio between the two figures.',
        _comparison_table(lost, "times worse") if lost else "None in the sections that were run.",
        "## What we win",
        _comparison_table(won, "times better") if won else "None in the sections that were run.",
    ]
    for section in sections:
        parts += [f"## {section.title}", section.about]
        if section.picture is not None:
            file, shows = section.picture
            parts.append(f"![{shows}]({file})")
        for table in section.tables:
            parts += [
                f"### {table.title}",
                _markdown_table(table.columns, table.rows, table.labels),
            ]
            parts += list(table.notes)
        parts += [f"Skipped: {line}" for line in section.skipped]
    return "\n\n".join(parts) + "\n"
