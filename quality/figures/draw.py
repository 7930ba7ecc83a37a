"""How the pictures look: one frame, one style, colours that the colour-blind can tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLOURS", "INK", "MARKERS", "MUTED", "Page", "legend", "line", "series_colour"]

INK: Final = "#1b1f24"
MUTED: Final = "#5c6670"
# Of Okabe and Ito's palette, in the order of use.
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#1b1f24")
MARKERS: Final = ("o", "s", "^", "D", "v")

_SERIES_COLOURS: Final = {
    "paper": COLOURS[0],
    "integral": COLOURS[2],
    "query-time": COLOURS[1],
}

_STYLE: Final[dict[Any, Any]] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#b6bec6",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "grid.color": "#e3e7eb",
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
}


def series_colour(series: str) -> str:
    """Colour of a series of estimates, the same in all pictures."""
    return _SERIES_COLOURS[series]


class Page:
    """A row of panels under a title, written as PNG on leaving the block without an error.

    Args:
        path: of the file.
        title, subtitle: one line each.
        panels: how many.
        share_y: one y axis for all of them.
        height: of the page, inches; it is 12 wide.
        left: margin, a share of the width.
        bottom: margin, inches.
        gap: between panels with y axes of their own, a share of their width.
    """

    def __init__(
        self,
        path: Path,
        title: str,
        subtitle: str,
        panels: int,
        *,
        share_y: bool = False,
        height: float = 5.4,
        left: float = 0.075,
        bottom: float = 0.75,
        gap: float = 0.24,
    ) -> None:
        self._path, self._title, self._subtitle = path, title, subtitle
        self._panels, self._share_y, self._height = panels, share_y, height
        self._left, self._bottom, self._gap = left, bottom, gap

    def __enter__(self) -> tuple[Figure, Sequence[Axes]]:
        self._style = mpl.rc_context(_STYLE)
        self._style.__enter__()
        self._figure = Figure(figsize=(12, self._height), dpi=130, facecolor="white")
        FigureCanvasAgg(self._figure)
        top = 1 - 1.25 / self._height
        axes = self._figure.subplots(
            1,
            self._panels,
            squeeze=False,
            sharey=self._share_y,
            gridspec_kw={
                "left": self._left,
                "right": 0.985,
                "bottom": self._bottom / self._height,
                "top": top,
                "wspace": 0.08 if self._share_y else self._gap,
            },
        )
        return self._figure, list(axes[0])

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if error is None:
                line = 1 / self._height
                self._figure.text(
                    0.012, 1 - 0.25 * line, self._title, fontsize=14, fontweight="bold", va="center"
                )
                self._figure.text(
                    0.012, 1 - 0.54 * line, self._subtitle, fontsize=9.5, color=MUTED, va="center"
                )
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._figure.savefig(self._path)
        finally:
            self._style.__exit__(None, None, None)


def line(
    axes: Axes, x: Sequence[float], y: Sequence[float], colour: str, marker: str, label: str,
    *, hollow: bool = False,
) -> None:  # fmt: skip
    """One method's points, joined."""
    axes.plot(
        x, y, color=colour, marker=marker, markersize=4.5, linewidth=1.5, label=label,
        markerfacecolor="none" if hollow else colour,
    )  # fmt: skip


def legend(figure: Figure, axes: Axes, columns: int) -> None:
    """What the lines of one panel are, below the page's heading."""
    figure.legend(
        *axes.get_legend_handles_labels(), loc="upper left", bbox_to_anchor=(0.006, 0.885),
        ncols=columns, fontsize=9, columnspacing=1.2,
    )  # fmt: skip
