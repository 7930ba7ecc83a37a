"""The size that an ECM-sketch needs for a given accuracy.

*Requirement*: with probability ``1 - delta`` over the choice of the hash functions, the paper's
estimate (the minimum over rows) for a count is off by at most ``epsilon ||a||`` ("point"), or for
an inner product or self-join by at most ``epsilon ||a|| ||b||`` ("inner"). Here ``||a||`` is the
total in the window, or its decayed sum. This refers to one result. Among many, some collide with a
heavy key in every row: for ``keys`` results at once, each may fail with ``delta / keys``.

*A row* with w cells is off by more than ``epsilon_cm`` of the others with probability below
``1 / (w epsilon_cm)`` (Markov), and the minimum over d rows only if all are. *A cell* is
within ``epsilon_sw``: ``1 / (2 q)`` for a wave, ``1 / (2 B - 1)`` for an exponential histogram, and
after h levels of compaction ``(1 + merge_error)^h (1 + cell_error) - 1``, because a level's error
is relative to a count that is already wrong. Together (lemmas 3 and 4 of Papapetrou, Garofalakis
and Deligiannakis, VLDB Journal 24, 2015):

    point: max(epsilon_sw, (1 + epsilon_sw) epsilon_cm)                            <= epsilon
    inner: max((1 + epsilon_sw)^2 - 1, (1 + epsilon_sw)^2 epsilon_cm)              <= epsilon

Theorems 1 and 2 split epsilon at ``epsilon_cm = epsilon / (1 + epsilon)`` and ``epsilon_sw`` as
large as possible, with ``d = ceil(ln(1 / delta))`` rows and ``ceil(e / epsilon_cm)`` cells each.
That is optimal for real numbers. For integers :func:`size_for` tries all possible sizes, and needs
a tenth less on average, 28 % at most. In particular rows need not fail as rarely as 1 / e. With d
rows, ``delta^(1/d)`` is enough, which is more if ``ln(1 / delta)`` was rounded up.

Prefer width to depth: intervals from the spread of a row have a lower upper bound only with
``2 d / (1 - confidence)`` cells or more in it (40 for two rows and 90 %). This module knows no
parameters. ``ECMParams.for_accuracy`` is its public interface.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, get_args

from decaysketch.errors import ParameterError

__all__ = [
    "MAX_CELLS",
    "MAX_DEPTH",
    "MAX_HEIGHT",
    "MAX_SLOTS",
    "MAX_WIDTH",
    "MIN_SLOTS",
    "Kind",
    "Query",
    "Size",
    "cell_error",
    "merge_error",
    "size_for",
    "slack",
    "slots_for",
    "theorem_size",
]

Kind = Literal["wave", "eh"]
Query = Literal["point", "inner"]

MAX_WIDTH = (1 << 16) - 1
MAX_DEPTH = 16
MIN_SLOTS = 2  # with one, a wave's error would not be bounded
MAX_SLOTS = 1 << 14
MAX_CELLS = 1 << 22  # width * depth * slots: a sketch takes at most some hundred megabytes
MAX_HEIGHT = 64

_ROUNDING = 1.0 - 1e-9  # 1 / (2 * 0.05) is 10 slots, not 11


class Size(NamedTuple):
    """The size for a given accuracy."""

    width: int  # w
    depth: int  # d
    slots: int  # q of a wave, B of an exponential histogram


def cell_error(kind: Kind, slots: int) -> float:
    """Return the maximum relative error of one cell's count: ``1 / (2 q)``, ``1 / (2 B - 1)``.

    Raises:
        ParameterError: another kind, or slots that are not an integer from 2 to 16,384.
    """
    _check_cell(kind, slots)
    return 1.0 / (2 * slots if kind == "wave" else 2 * slots - 1)


def merge_error(kind: Kind, slots: int) -> float:
    """Return the maximum relative error of the stream, in integers, that compaction builds from one
    cell.

    ``1 / (2 q)``, or ``1 / (B + 1)``, as the two ones in a bucket behind B - 1 others cannot be
    halved. Raises as :func:`cell_error`.
    """
    _check_cell(kind, slots)
    return 1.0 / (2 * slots if kind == "wave" else slots + 1)


def slack(errors: Iterable[float]) -> float:
    """Return the maximum relative error that levels of compaction have added to a cell.

    Args:
        errors: the :func:`merge_error` of each level; 0 or more.

    Returns: ``prod(1 + error) - 1``: each level's error is relative to a count that is already
        wrong. The paper adds the errors, which is too little.
    """
    return math.prod(1.0 + error for error in errors) - 1.0


def slots_for(kind: Kind, epsilon: float) -> int:
    """Return the fewest slots with a :func:`cell_error` of at most ``epsilon``.

    Raises:
        ParameterError: another kind, an epsilon not between 0 and 1, or one that needs more than
            16,384 slots.
    """
    _check_kind(kind)
    epsilon = _share("epsilon", epsilon)
    inverse = _ROUNDING / epsilon
    wanted = inverse / 2.0 if kind == "wave" else (inverse + 1.0) / 2.0
    if wanted > MAX_SLOTS:
        raise ParameterError(
            f"epsilon is {epsilon!r}, which takes {wanted:.6g} slots; expected at most "
            f"{MAX_SLOTS}, that is an epsilon of {cell_error(kind, MAX_SLOTS):.2g} or more"
        )
    return max(MIN_SLOTS, math.ceil(wanted))


def size_for(
    epsilon: float,
    delta: float,
    *,
    kind: Kind = "wave",
    query: Query = "point",
    height: int = 0,
    keys: int = 1,
) -> Size:
    """Return the smallest sketch, ``width * depth * slots``, that meets the module's requirement.

    Args:
        epsilon: error, relative to the total; between 0 and 1.
        delta: probability of a larger error; between 0 and 1.
        kind: of cells.
        query: counts, or inner products and self-joins.
        height: levels of compaction that cells go through before queries, 0 to 64. Sketches
            from many sources whose cells are added are not compacted.
        keys: this number of results are all within epsilon with probability ``1 - delta``.

    Returns:
        Among equal products the one with fewer rows.

    Raises:
        ParameterError: an argument outside its domain, or a sketch with more than 65,535 cells a
            row, 16 rows, 16,384 slots or 2^22 as their product. The message names a request that
            fits.

    Complexity: a few thousand candidates at most, for any arguments.
    """
    _check_kind(kind)
    epsilon, delta = _share("epsilon", epsilon), _share("delta", delta)
    if query not in get_args(Query):
        raise ParameterError(f"query is {query!r}; expected one of {', '.join(get_args(Query))}")
    height = _integer("height", height, 0, MAX_HEIGHT)
    keys = _integer("keys", keys, 1, None)
    rarity = math.log(keys) - math.log(delta)  # ln(keys / delta)
    size = _search(kind, query, height, epsilon, rarity)
    if size is None:
        raise _too_small(epsilon, delta, kind, query, height, keys, rarity)
    return size


def theorem_size(
    epsilon: float, delta: float, *, kind: Kind = "wave", query: Query = "point"
) -> Size:
    """Return theorems 1 and 2 as printed, each number rounded up, for comparison.

    Raises:
        ParameterError: an argument outside its domain, or an epsilon that needs too many slots.
    """
    epsilon, delta = _share("epsilon", epsilon), _share("delta", delta)
    cell = epsilon if query == "point" else math.expm1(0.5 * math.log1p(epsilon))
    slots = slots_for(kind, cell)  # rejects numbers that are too small to divide by
    width = math.ceil(_ROUNDING * math.e * (1.0 + epsilon) / epsilon)
    return Size(width, math.ceil(_ROUNDING * -math.log(delta)), slots)


def _search(kind: Kind, query: Query, height: int, epsilon: float, rarity: float) -> Size | None:
    """Return the smallest size, or None if there is none within the limits.

    Cells with more slots err less, which permits less width. But width times slots rises with them,
    except for rounding of the width. So the search ends when ``slots`` times the
    width for perfect cells is more than the best.
    """
    best: tuple[int, Size] | None = None
    for depth in range(1, MAX_DEPTH + 1):
        if rarity / depth > 24.0:  # e^24 cells a row are too many for any epsilon
            continue
        perfect = _ROUNDING * math.exp(rarity / depth) / epsilon
        allowed = min(1.0 + epsilon / _ROUNDING, MAX_WIDTH / perfect)
        slots = _fewest_slots(kind, query, height, allowed)
        while slots <= MAX_SLOTS and (best is None or depth * perfect * slots < best[0]):
            width = math.ceil(perfect * _growth(kind, query, height, slots))
            if best is None or depth * width * slots < best[0]:
                best = depth * width * slots, Size(width, depth, slots)
            slots += 1
    return None if best is None or best[0] > MAX_CELLS else best[1]


def _growth(kind: Kind, query: Query, height: int, slots: int) -> float:
    """``1 + epsilon_sw`` for cells after this number of compactions. For products, its square."""
    counted = (1.0 + merge_error(kind, slots)) ** height * (1.0 + cell_error(kind, slots))
    return counted if query == "point" else counted * counted


def _fewest_slots(kind: Kind, query: Query, height: int, allowed: float) -> int:
    """The fewest slots within the permitted growth, by bisection. Too many if there are none."""
    low, high = MIN_SLOTS, MAX_SLOTS + 1
    while low < high:
        middle = (low + high) // 2
        if _growth(kind, query, height, middle) <= allowed:
            high = middle
        else:
            low = middle + 1
    return low


def _too_small(
    epsilon: float, delta: float, kind: Kind, query: Query, height: int, keys: int, rarity: float
) -> ParameterError:
    """The error with the request, and a request that fits."""
    asked = f"epsilon is {epsilon!r} with delta {delta!r}, keys {_shown(keys)}, height {height}"
    limits = (
        f"at most {MAX_WIDTH} cells a row, {MAX_DEPTH} rows, {MAX_SLOTS} slots and {MAX_CELLS} of "
        "their product"
    )
    low, high = math.log(epsilon), math.log1p(-1e-9)
    if _search(kind, query, height, math.exp(high), rarity) is None:
        return ParameterError(
            f"{asked}, which takes a row to fail with probability "
            f"{math.exp(-rarity / MAX_DEPTH):.2g}; expected a delta / keys that {limits} allow"
        )
    for _ in range(40):
        middle = (low + high) / 2.0
        if _search(kind, query, height, math.exp(middle), rarity) is None:
            low = middle
        else:
            high = middle
    return ParameterError(
        f"{asked}, which takes more than the largest sketch; expected {limits}, that is an epsilon "
        f"of {math.exp(high):.2g} or more"
    )


def _check_kind(kind: Any) -> None:
    if kind not in get_args(Kind):
        raise ParameterError(f"kind is {kind!r}; expected one of {', '.join(get_args(Kind))}")


def _check_cell(kind: Any, slots: Any) -> None:
    _check_kind(kind)
    _integer("slots", slots, MIN_SLOTS, MAX_SLOTS)


def _integer(name: str, value: Any, least: int, most: int | None) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        wanted = f"of {least} or more" if most is None else f"from {least} to {most}"
        raise ParameterError(f"{name} is {_shown(value)}; expected an integer {wanted}")
    return int(value)


def _share(name: str, value: Any) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0.0 < value < 1.0:
        raise ParameterError(f"{name} is {_shown(value)}; expected a number between 0 and 1")
    return float(value)


def _shown(value: Any) -> str:
    """A value in a sentence. Python refuses to write integers with more than 4,300 digits."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)
