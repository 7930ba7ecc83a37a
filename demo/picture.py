"""One figure: the sketch's results, the exact results, and results with duplicates counted.

Four panels over the same time axis: the decayed count in a window and under a half-life, the
deciles and the median under that half-life, and the relative error of the two counts with their
bands, which the first panels are too coarse to show. Below them the clocks of the paths.

The figure stays readable for any log: axes end before a few extreme points, errors are relative
only where a message counts, and each panel names the points that it skips.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib import dates as mdates
from matplotlib import ticker
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from PIL import Image

from demo.clocks import Clock
from demo.report import late_text
from demo.scores import ONE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend_handler import HandlerBase

__all__ = ["Track", "draw", "shrink"]

Days: TypeAlias = npt.NDArray[np.float64]  # since 1970, as matplotlib counts
DAY_US: Final = 86_400_000_000

FOOTNOTE: Final = (
    "One sketch, asked after everything had arrived; times and decays were chosen only then. "
    "The further back, the fewer observations it still holds, and the wider the interval."
)

INK: Final = "#1b1f24"
MUTED: Final = "#5c6670"
GRID: Final = "#e3e7eb"
SKETCH: Final = "#0b6fb8"
SECOND: Final = "#0d8a6a"
NAIVE: Final = "#d4622a"
WRONG: Final = "#b3261e"

CLOCKS: Final = 12  # paths in the figure, the worst first
CLOCK_ROWS: Final = 3
SMALL_WIDTH: Final = 1280  # pixels
SHOWN: Final = 0.97  # of the points at least; an axis ends there if some lie far beyond

STYLE: Final[dict[Any, Any]] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": "#b6bec6",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
}


@dataclass(frozen=True)
class Track:
    """One aggregate over time; nan where it is not defined (no value in the window)."""

    label: str
    estimate: Sequence[float]
    lower: Sequence[float]
    upper: Sequence[float]
    exact: Sequence[float]
    naive: Sequence[float]

    def errors(self, *, relative: bool = True) -> Track:
        """The same less the exact answer: in per cent of it, nan where less than one message
        counts; or as a difference."""
        exact = np.asarray(self.exact, dtype=float)
        scale = np.where(exact >= ONE, exact, np.nan) / 100 if relative else np.ones_like(exact)

        def off(values: Sequence[float]) -> list[float]:
            return list((np.asarray(values, dtype=float) - exact) / scale)

        return Track(
            self.label,
            off(self.estimate),
            off(self.lower),
            off(self.upper),
            off(self.exact),
            off(self.naive),
        )

    @property
    def empty(self) -> int:
        """At how many times less than one message counts."""
        return int((np.asarray(self.exact, dtype=float) < ONE).sum())


def draw(
    path: Path,
    *,
    title: str,
    subtitle: str,
    value_label: str,
    times_us: Sequence[int],
    window: Track,
    faded: Track,
    quantiles: Sequence[Track],
    clocks: Sequence[Clock] = (),
    cut: str = "",
) -> None:
    """Write the figure as PNG.

    Args:
        path: where to.
        title, subtitle: content of the figure, and the log.
        value_label: name and unit of the values.
        times_us: query times, microseconds since 1970, ascending.
        window, faded: decayed counts under a window and under another decay.
        quantiles: tracks in ascending order, labelled with their share.
        clocks: of the paths, the worst first.
        cut: the part of the log outside the times.
    """
    when = np.asarray(times_us) / DAY_US
    with mpl.rc_context(STYLE):
        strip = 1.25 if clocks else 0.0  # inches, below the other panels
        height = 9.2 + strip
        figure = Figure(figsize=(14.5, height), dpi=150, facecolor="white")

        def up(share: float) -> float:
            return (share * 9.2 + strip) / height

        FigureCanvasAgg(figure)
        grid = figure.subplots(
            2, 2, sharex=True, gridspec_kw={"hspace": 0.24, "wspace": 0.15,
            "left": 0.07, "right": 0.955, "top": up(0.815), "bottom": up(0.085)},
        )  # fmt: skip
        _count_panel(grid[0, 0], when, window)
        _count_panel(grid[1, 0], when, faded)
        _quantile_panel(grid[0, 1], when, quantiles, faded.label, value_label)
        _error_panel(grid[1, 1], when, window, faded)
        for axes in grid.flat:
            _time_axis(axes, when)
        figure.text(0.07, up(0.955), title, fontsize=17, fontweight="bold", va="center")
        figure.text(0.07, up(0.918), subtitle, fontsize=10.5, color=MUTED, va="center")
        if cut:
            figure.text(0.955, up(0.955), cut, fontsize=10.5, color=WRONG, va="center", ha="right")
        figure.text(0.07, up(0.02), FOOTNOTE, fontsize=9.5, color=MUTED, va="center")
        _legend(figure, up(0.876))
        if clocks:
            _clock_strip(figure, clocks, strip / height)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def shrink(path: Path, small: Path) -> None:
    """Write a figure once more, as wide as a page and with few colours: a sixth of the bytes."""
    with Image.open(path) as image:
        height = round(image.height * SMALL_WIDTH / image.width)
        resized = image.convert("RGB").resize((SMALL_WIDTH, height), Image.Resampling.LANCZOS)
    # An octree keeps the few pixels of a rare colour, which other ways merge with its neighbours.
    few = resized.quantize(128, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.save(small, optimize=True)


def _count_panel(axes: Axes, when: Days, track: Track) -> None:
    _band(axes, when, track, SKETCH)
    axes.plot(when, track.naive, color=NAIVE, linewidth=1.4, linestyle=(0, (4, 2)))
    _lines(axes, when, track, SKETCH)
    top, beyond = _reach([*track.estimate, *track.upper, *track.exact, *track.naive])
    axes.set_ylim(0, top)
    _say_cut(axes, beyond)
    axes.yaxis.set_major_formatter(
        ticker.FuncFormatter(lambda y, _: f"{y:,.0f}" if top >= 8 else f"{y:.2g}")
    )
    axes.set_ylabel("decayed count of messages")
    _heading(axes, f"Count, {track.label}")


def _reach(points: Sequence[float]) -> tuple[float, int]:
    """Where an axis from 0 ends, and how many finite points lie beyond it."""
    magnitudes = np.abs(np.asarray(points, dtype=float))
    magnitudes = magnitudes[np.isfinite(magnitudes)]
    if not magnitudes.size:
        return 1.0, 0
    most = float(magnitudes.max())
    usual = float(np.quantile(magnitudes, SHOWN))
    end = most if most <= 3 * usual else usual
    return 1.05 * end if end > 0 else 1.0, int((magnitudes > 1.05 * end).sum())


def _say_cut(axes: Axes, beyond: int, what: str = "points") -> None:
    if beyond:
        axes.annotate(
            f"{beyond} {what} lie beyond the axis", (0.99, 0.02), xycoords="axes fraction",
            ha="right", va="bottom", color=MUTED, fontsize=9,
        )  # fmt: skip


def _quantile_panel(
    axes: Axes, when: Days, tracks: Sequence[Track], decay: str, value_label: str
) -> None:
    for track in tracks:
        _band(axes, when, track, SKETCH)
        axes.plot(when, track.naive, color=NAIVE, linewidth=1.1, linestyle=(0, (4, 2)))
        _lines(axes, when, track, SKETCH)
    # A band of a moment with hardly a row must not flatten everything else.
    lines = np.concatenate([np.asarray([*t.estimate, *t.exact, *t.naive]) for t in tracks])
    lines = lines[np.isfinite(lines)]
    if lines.size:
        low, high = np.quantile(lines, [0.01, 0.99])
        margin = max(0.12 * (high - low), 1e-9 * abs(high), 1e-9)
        axes.set_ylim(low - margin, high + margin)
    _label_ends(axes, when, tracks)
    axes.set_ylabel(value_label)
    _heading(axes, f"Quantiles, {decay}")


def _label_ends(axes: Axes, when: Days, tracks: Sequence[Track]) -> None:
    """Labels right of the lines' last points, at least a line of text apart."""
    low, high = axes.get_ylim()
    below = -np.inf
    for track in tracks:
        finite = [y for y in track.exact if np.isfinite(y)]
        if not finite:
            continue
        height = max((finite[-1] - low) / (high - low), below + 0.045)
        below = height
        axes.annotate(
            track.label,
            (float(when[-1]), height),
            xycoords=("data", "axes fraction"),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            color=MUTED,
            fontsize=9.5,
            annotation_clip=False,
        )


def _error_panel(axes: Axes, when: Days, window: Track, faded: Track) -> None:
    """In per cent, unless at most times there is nothing to divide by."""
    empty, times = max(window.empty, faded.empty), len(when)
    relative = 2 * empty <= times
    errors = [track.errors(relative=relative) for track in (window, faded)]
    axes.axhline(0, color=INK, linewidth=1.1)
    for track, colour in zip(errors, (SKETCH, SECOND), strict=True):
        _band(axes, when, track, colour)
        axes.plot(when, track.estimate, color=colour, linewidth=1.6, label=track.label)
    bounds = np.concatenate([np.abs([*track.lower, *track.upper]) for track in errors])
    bounds = bounds[np.isfinite(bounds)]
    reach = float(np.quantile(bounds, 0.9)) * 1.3 if bounds.size else 1.0
    axes.set_ylim(-max(reach, 0.1), max(reach, 0.1))
    _say_cut(axes, int((bounds > max(reach, 0.1)).sum()), "ends of intervals")
    unit = " %" if relative else ""
    axes.yaxis.set_major_formatter(
        ticker.FuncFormatter(lambda y, _: f"{y:+g}{unit}" if y else f"0{unit}")
    )
    axes.legend(loc="upper right", ncols=2, edgecolor="none", framealpha=0.75, fontsize=9.5)
    axes.set_ylabel("sketch against exact" if relative else "sketch less exact, messages")
    naive = np.asarray(errors[1].naive, dtype=float)
    naive = naive[np.isfinite(naive)]
    off = f"counting every copy: {np.median(naive):+,.0f}{unit}" if naive.size else ""
    if relative and empty:
        off += f"{'; ' if off else ''}at {empty} of {times} times less than one message counts"
    name = "Relative error of both counts" if relative else "Error of both counts"
    _heading(axes, f"{name}  ({off})" if off else name)


def _clock_strip(figure: Figure, clocks: Sequence[Clock], height: float) -> None:
    """Lateness by path, the worst first, in columns."""
    more = len(clocks) - CLOCKS
    rest = f"; {more} more, none of them worse" if more > 0 else ""
    figure.text(
        0.07, 0.86 * height, f"Clocks by path: arrival minus event, median / worst (rows){rest}",
        fontsize=11.5, fontweight="bold", va="center",
    )  # fmt: skip
    columns = CLOCKS // CLOCK_ROWS
    for place, clock in enumerate(clocks[:CLOCKS]):
        column, row = divmod(place, CLOCK_ROWS)
        name = clock.path if len(clock.path) <= 14 else f"{clock.path[:5]}…{clock.path[-8:]}"
        figure.text(
            0.07 + column * 0.885 / columns,
            (0.62 - 0.22 * row) * height,
            f"{name}:  {late_text(clock.median)} / {late_text(clock.worst)}  ({clock.rows:,})",
            fontsize=9.5,
            color=WRONG if clock.suspect else MUTED,
            fontweight="bold" if clock.suspect else "normal",
            va="center",
            parse_math=False,
        )


def _band(axes: Axes, when: Days, track: Track, colour: str) -> None:
    axes.fill_between(when, track.lower, track.upper, color=colour, alpha=0.22, linewidth=0)


def _lines(axes: Axes, when: Days, track: Track, colour: str) -> None:
    axes.plot(when, track.estimate, color=colour, linewidth=2.6, solid_capstyle="round", alpha=0.85)
    axes.plot(when, track.exact, color=INK, linewidth=0.9)


def _heading(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=11.5, fontweight="bold", pad=8)


def _time_axis(axes: Axes, when: Days) -> None:
    locator = mdates.AutoDateLocator(minticks=3, maxticks=8, tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(
        mdates.ConciseDateFormatter(  # type: ignore[no-untyped-call]
            locator,
            tz=UTC,
            formats=["%Y", "%b %Y", "%d %b", "%H:%M", "%H:%M", "%H:%M:%S"],
            zero_formats=["", "%Y", "%b", "%d %b", "%H:%M", "%H:%M"],
            offset_formats=["", "", "%Y", "%d %b %Y", "%d %b %Y", "%d %b %Y"],
        )
    )
    axes.tick_params(axis="x", labelbottom=True)
    axes.xaxis.get_offset_text().set_color(MUTED)
    lone = 0.0 if when[-1] > when[0] else 0.5 / 24  # half an hour on either side of one moment
    axes.set_xlim(float(when[0]) - lone, float(when[-1]) + lone)


def _legend(figure: Figure, height: float) -> None:
    handlers: dict[object, HandlerBase] = {}
    figure.legend(
        handles=[
            Line2D([], [], color=SKETCH, linewidth=2.6, label="sketch"),
            Patch(color=SKETCH, alpha=0.22, linewidth=0, label="its 95 % interval"),
            Line2D([], [], color=INK, linewidth=0.9, label="exact: every message once"),
            Line2D(
                [], [], color=NAIVE, linewidth=1.4, linestyle=(0, (4, 2)),
                label="naive: every copy counted",
            ),
        ],
        handler_map=handlers,
        loc="center left",
        bbox_to_anchor=(0.063, height),
        ncols=4,
        frameon=False,
        fontsize=10.5,
        columnspacing=2.2,
    )  # fmt: skip
