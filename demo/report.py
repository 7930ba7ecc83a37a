"""Output of the demonstration: progress lines, then tables."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from demo.clocks import Clock
from demo.questions import duration_text
from demo.reading import Reason
from demo.scores import LOOSE, Answer, Reading, Score

__all__ = [
    "Advance",
    "HeavyHitter",
    "PathBytes",
    "Report",
    "late_text",
    "number",
    "percent",
    "size",
]

WIDTH: Final = 128

Advance = Callable[[float], None]
"""Call with the share of the step that is done, 0 to 1."""


def number(value: float) -> str:
    """Four significant digits, thousands separated."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def percent(share: float, digits: int = 2, *, sign: bool = True) -> str:
    """``0.0123`` -> ``+1.23 %``; nan is a dash."""
    if math.isnan(share):
        return "-"
    return f"{100 * share:{'+' if sign else ''},.{digits}f} %"


def size(count: float, digits: int = 4) -> str:
    """Bytes in decimal units."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.{digits}g} {unit}"
        count /= 1000
    return f"{count:.{digits}g} GB"


def late_text(lateness_us: float | None) -> str:
    """``-90_000_000`` -> ``"-1.5 min"``; None is a dash."""
    if lateness_us is None:
        return "-"
    if abs(lateness_us) < 500:
        return "0 ms"
    return ("-" if lateness_us < 0 else "") + duration_text(abs(lateness_us))


def _when(now_us: int) -> str:
    return f"{datetime.fromtimestamp(now_us / 1e6, tz=UTC):%Y-%m-%d %H:%M:%S}"


@dataclass(frozen=True)
class PathBytes:
    """Bytes that one path delivered, and bytes posted for it."""

    path: str
    deliveries: int
    log_bytes: float
    posted_bytes: int


@dataclass(frozen=True)
class HeavyHitter:
    """A value whose decayed share exceeds the threshold, as estimated or in truth."""

    value: float
    reported: bool
    share: Reading
    exact: float
    naive: float


class Report:
    """Prints to one console, at a width at which the tables do not wrap."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        # A table that a narrow terminal breaks is still all there; one cut to fit is not.
        self.console.width = max(self.console.width, WIDTH)
        self._written = Console(file=io.StringIO(), width=WIDTH, highlight=False)

    def _print(self, shown: str | Table) -> None:
        self.console.print(shown)
        self._written.print(shown)

    def write(self, path: Path) -> None:
        """Leave everything that was printed as text."""
        assert isinstance(self._written.file, io.StringIO)
        path.write_text(self._written.file.getvalue(), encoding="utf-8")

    @contextmanager
    def step(self, title: str, *, bar: bool = True) -> Iterator[Advance]:
        """A step of the work: a bar on a terminal (moving where the share done is known), one
        finished line anywhere else. ``bar=False`` where another program shows one."""
        started = time.perf_counter()
        if bar and self.console.is_terminal:
            columns = (
                SpinnerColumn(finished_text="[green]✓[/]"),
                TextColumn("{task.description}"),
                BarColumn(bar_width=28),
                TaskProgressColumn(),
                TimeElapsedColumn(),
            )
            with Progress(*columns, console=self.console, transient=True) as progress:
                task = progress.add_task(title, total=None)
                yield lambda share: progress.update(task, total=1.0, completed=share)
        else:
            yield lambda share: None
        elapsed_s = time.perf_counter() - started
        self._print(f"[green]✓[/] {title} [dim]{elapsed_s:.1f} s[/]")

    def heading(self, text: str) -> None:
        self._print(f"\n[bold]{text}[/]")

    def say(self, text: str) -> None:
        self._print(text)

    def fail(self, reason: str) -> None:
        """Why it ends, unbroken: a terminal breaks it where it likes, a program finds one line."""
        self.console.print(Text.assemble(("error: ", "bold red"), reason), soft_wrap=True)

    def facts(self, rows: Iterable[tuple[str, str]]) -> None:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(style="dim")
        table.add_column(overflow="fold")
        for name, value in rows:
            table.add_row(name, value)
        self._print(table)

    def bytes_by_path(self, rows: Sequence[PathBytes], limit: int = 14) -> None:
        """The largest paths one by one, then the rest, then all."""
        ordered = sorted(rows, key=lambda row: -row.deliveries)
        table = _table("gateway", "deliveries", "its part of the log", "posted", "share")
        for row in ordered[:limit]:
            table.add_row(*_bytes_cells(row))
        rest = ordered[limit:]
        if rest:
            table.add_row(*_bytes_cells(_together(f"{len(rest)} more", rest)))
        table.add_section()
        table.add_row(*_bytes_cells(_together("all", ordered)), style="bold")
        self._print(table)

    def answers(self, answers: Sequence[Answer]) -> None:
        """Estimate, interval, truth and naive answer, grouped by decay and time."""
        table = _table(
            "decay", "at (UTC)", "aggregate", "estimate", "95 % interval", "exact", "error",
            "naive", "naive error",
        )  # fmt: skip
        for name in ("decay", "at (UTC)", "aggregate"):
            next(c for c in table.columns if c.header == name).justify = "left"
        last = None
        for answer in answers:
            cell = answer.cell
            if last is not None and cell.decay != last.decay:
                table.add_section()
            table.add_row(
                cell.decay.label if last is None or cell.decay != last.decay else "",
                _when(cell.now_us) if cell != last else "",
                answer.aggregate,
                number(answer.reading.value) + ("*" if answer.reading.exact else ""),
                f"{number(answer.reading.lower)} .. {number(answer.reading.upper)}"
                + ("" if answer.holds else " [red]![/]"),
                number(answer.truth.value),
                percent(answer.error) if answer.relative else _plus(answer.difference),
                number(answer.naive),
                percent(answer.naive_error, 1)
                if answer.relative
                else _plus(answer.naive_difference),
            )
            last = cell
        self._print(table)
        self._print(
            "[dim]* read from observations that are all there: exact.  "
            "! the interval does not hold the exact answer.[/]"
        )
        if not all(answer.relative for answer in answers):
            self._print("[dim]errors without % are differences: there is nothing to divide by[/]")

    def refusals(self, reasons: Sequence[Reason], kept: str) -> None:
        """Why rows are not counted, how many they are, and where all of them are kept."""
        table = _table("column", "refused", "first at row", "where it holds", "because")
        for name in ("where it holds", "because"):
            next(c for c in table.columns if c.header == name).justify = "left"
        for each in reasons:
            table.add_row(
                escape(each.column), f"{each.rows:,}", f"{each.first:,}", escape(each.found),
                escape(each.reason),
            )  # fmt: skip
        self._print(table)
        self._print(f"[dim]all of them, with their records: {escape(kept)}[/]")

    def clocks(self, clocks: Sequence[Clock], limit: int = 14) -> None:
        """Lateness by path, the worst first, then how many more there are."""
        table = _table("path", "rows", "median lateness", "worst", "against copies", "no stamp", "")
        table.columns[-1].justify = "left"
        for clock in clocks[:limit]:
            table.add_row(
                escape(clock.path), f"{clock.rows:,}", late_text(clock.median),
                late_text(clock.worst), late_text(clock.against),
                f"{clock.unstamped:,}" if clock.unstamped else "",
                "[bold red]look at this one[/]" if clock.suspect else "",
            )  # fmt: skip
        self._print(table)
        if len(clocks) > limit:
            self._print(f"[dim]and {len(clocks) - limit} more, none of them worse[/]")
        self._print(
            "[dim]lateness: arrival minus event; against copies: the path's stamp minus what other "
            "paths say of the same messages[/]"
        )

    def scores(self, scores: Sequence[Score]) -> None:
        """Coverage, widths and errors by aggregate; ratios are to 2 x 1.96 x RMSE."""
        many = any(not math.isnan(score.by_question) for score in scores)
        table = _table(
            "aggregate", "answers", "exact", "hold", "mean\nwidth", "rms\nwidth", "2x1.96x\nRMSE",
            "mean\nratio", "rms\nratio", *(["ratio by\nquestion"] if many else []),
            "worst\nerror", "its\ninterval", "naive\nerror",
        )  # fmt: skip
        for score in scores:
            if score.name == "all":
                table.add_section()
            ratios = [score.mean_ratio, score.rms_ratio, *([score.by_question] if many else [])]
            table.add_row(
                score.name,
                f"{score.answers:,}",
                f"{score.exact:,}",
                percent(score.share, 1, sign=False),
                percent(score.mean_width, sign=False),
                percent(score.rms_width, sign=False),
                percent(score.expected_width, sign=False),
                *("-" if math.isnan(ratio) else f"{ratio:.2f}" for ratio in ratios),
                percent(score.worst, 1),
                "loose"
                if score.worst_half_width > LOOSE
                else f"±{percent(score.worst_half_width, 1, sign=False)}",
                percent(score.naive_error, 1) if score.name != "all" else "",
                style="bold" if score.name == "all" else "",
            )
        self._print(table)
        if indivisible := scores[-1].indivisible:
            self._print(
                f"[dim]{indivisible:,} answers have nothing to divide an error by (less than one "
                "message, a mean of almost 0); they are in the share that holds alone[/]"
            )
        if loose := scores[-1].loose:
            self._print(
                f"[dim]{loose:,} intervals are endless or wider than ten times the answer, too few "
                "rows were seen; they are left out of widths and RMSE, not of the share that "
                "holds[/]"
            )

    def heavy_hitters(self, rows: Sequence[HeavyHitter], limit: int = 12) -> None:
        table = _table("value", "reported", "share", "95 % interval", "exact", "naive")
        for row in rows[:limit]:
            table.add_row(
                f"{row.value:g}",
                "yes" if row.reported else "no",
                percent(row.share.value, sign=False),
                f"{percent(row.share.lower, sign=False)} .. {percent(row.share.upper, sign=False)}",
                percent(row.exact, sign=False),
                percent(row.naive, sign=False),
            )
        self._print(table)
        if len(rows) > limit:
            self._print(f"[dim]and {len(rows) - limit} more[/]")


def _plus(difference: float) -> str:
    return ("+" if difference > 0 else "") + number(difference)


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _bytes_cells(row: PathBytes) -> tuple[str, ...]:
    return (
        escape(row.path),
        f"{row.deliveries:,}",
        size(row.log_bytes),
        size(row.posted_bytes),
        percent(row.posted_bytes / row.log_bytes, 1, sign=False),
    )


def _together(name: str, rows: Sequence[PathBytes]) -> PathBytes:
    return PathBytes(
        name,
        sum(row.deliveries for row in rows),
        sum(row.log_bytes for row in rows),
        sum(row.posted_bytes for row in rows),
    )
