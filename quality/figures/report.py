"""What a study says: tables, claims and the numbers behind them, as text and as CSV."""

from __future__ import annotations

import csv
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from quality.figures.claims import Claim, Figure

__all__ = ["Report", "Table", "percent", "plain"]

_WIDTH: Final = 100


@dataclass(frozen=True)
class Table:
    """Cells under headings; the first column is text, the others are set right."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        lines = [list(self.headings), *(list(row) for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.headings))]
        text = [
            "  ".join(
                cell.rjust(width) if i else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([self.title, text[0], "-" * len(text[0]), *text[1:]])


@dataclass(frozen=True)
class Report:
    """One figure in words.

    Attributes:
        name: of its files.
        title: one line.
        setting: what was measured, on what, how often.
        tables: what the picture shows, in numbers.
        claims: what the paper says of it, or we do, and whether it holds.
        headings: of the raw numbers.
        raw: one row for each trial.
    """

    name: str
    title: str
    setting: str
    tables: Sequence[Table]
    claims: Sequence[Claim]
    headings: Sequence[str]
    raw: Sequence[Sequence[object]] = field(repr=False)

    def __str__(self) -> str:
        parts = [f"{self.title}\n{'=' * len(self.title)}", textwrap.fill(self.setting, _WIDTH)]
        parts += [str(table) for table in self.tables]
        if self.claims:
            parts.append("\n".join(["Claims", *(f"- {claim}" for claim in self.claims)]))
        return "\n\n".join(parts) + "\n"

    def write(self, folder: Path) -> None:
        """``<name>.txt`` and ``<name>.csv``."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.txt").write_text(str(self), encoding="utf-8")
        with (folder / f"{self.name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(self.headings)
            writer.writerows(self.raw)


def percent(figure: Figure, places: int = 2) -> str:
    """``97.50 ± 0.43``, of a share."""
    return f"{100 * figure.value:.{places}f} ± {100 * figure.stderr:.{places}f}"


def plain(figure: Figure, places: int = 2) -> str:
    """``1.04 ± 0.02``."""
    return f"{figure.value:,.{places}f} ± {figure.stderr:,.{places}f}"
