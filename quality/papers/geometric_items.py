"""Frequent items by the geometric method, corrected: the reference of :mod:`.frequent`.

Papapetrou, Garofalakis and Deligiannakis (2015), section 6.3. The vector of an item x is its d
cells, and the answer ``f = n min_j v[j]``, of the average v. Sites know a common reference e of all
cells and their own, and look at ``u = e + v_i - ref_i``:

* x is frequent: while ``min_j u[j] >= threshold (1 - theta) / n``, which is convex (section 6.5);
* x is not: while u is on this side of the plane through ``p = max(e, threshold (1 + theta) / n)``,
  across ``p - e``.

An item that is outside has its d cells collected from all sites, and the reference set to them.

*Corrections*: the factors are the other way round in the print, so that an item in
``[threshold (1 - theta), threshold)`` is a violation with nothing changed (E6); what is called
frequent is a set, since a reference of shared cells moves when others are looked at (G2). An item
never seen has e = 0 or what others left there, and the same plane serves it (G3).

*Promise* (Lemma 1): an item called frequent was counted more than ``(1 - theta) threshold -
epsilon |S|`` times, another one less than ``(1 + theta) threshold + epsilon |S|``, with
probability 1 - delta each. Links are taken to deliver each message once and in order.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.errors import ParameterError
from decaysketch.monitor.frequent import check_threshold
from decaysketch.monitor.safe import check_theta

__all__ = ["GeometricItemsHub", "GeometricItemsSite", "ItemAsk", "ItemCells", "ItemSet", "outside"]

Item = Hashable
Float64Array = npt.NDArray[np.float64]


class ItemCells(NamedTuple):
    """Site to hub: its counters in the cells of an item."""

    site: str
    item: Item
    cells: tuple[int, ...]
    values: tuple[float, ...]


class ItemAsk(NamedTuple):
    """Hub to site: your counters there."""

    item: Item
    cells: tuple[int, ...]


class ItemSet(NamedTuple):
    """Hub to site: the reference there, and whether the item is frequent."""

    item: Item
    cells: tuple[int, ...]
    estimate: tuple[float, ...]
    frequent: bool


def outside(
    u: Sequence[float], e: Sequence[float], low: float, high: float, *, frequent: bool
) -> bool:
    """Whether a site's view of an item is outside of what is safe. O(depth).

    Args:
        u: its cells, as they would be were all sites to have moved as it did.
        e: the reference there.
        low, high: ``threshold (1 - theta) / n`` and ``threshold (1 + theta) / n``.
        frequent: what the item is called.
    """
    if frequent:
        return min(u) < low
    side = 0.0
    for here, known in zip(u, e, strict=True):
        point = max(known, high)
        side += (point - known) * (here - point)
    return side > 0.0 or min(e) >= high


class GeometricItemsSite:
    """One site. Not thread-safe.

    Args:
        name: of the site.
        size: counters, as one flat list.
        threshold, theta, sites: as the hub's.
    """

    def __init__(self, name: str, size: int, threshold: float, theta: float, sites: int) -> None:
        self.name = name
        self.values = [0.0] * size
        self._low = check_threshold(threshold) * (1.0 - check_theta(theta)) / sites
        self._high = threshold * (1.0 + theta) / sites
        self._estimate = [0.0] * size
        self._reference = [0.0] * size
        self._told: dict[Item, tuple[float, ...]] = {}
        self._frequent: dict[Item, tuple[int, ...]] = {}
        self._watchers: dict[int, set[Item]] = {}
        self._look: dict[Item, tuple[int, ...]] = {}

    def put(self, cell: int, value: float) -> None:
        """A counter has this value now. O(frequent items there)."""
        if value < self.values[cell]:
            for item in self._watchers.get(cell, ()):
                self._look[item] = self._frequent[item]
        self.values[cell] = value

    def add(self, cell: int, by: float) -> None:
        """A counter rose or fell."""
        self.put(cell, self.values[cell] + by)

    def arrived(self, item: Item, cells: Sequence[int]) -> None:
        """An item came, and its cells have been counted up. O(1)."""
        if item not in self._frequent:
            self._look[item] = tuple(cells)

    def due(self) -> list[ItemCells]:
        """What to send, after a change. O(depth) for each item that was touched."""
        out = []
        for item, cells in self._look.items():
            e = [self._estimate[cell] for cell in cells]
            u = [
                known + self.values[cell] - self._reference[cell]
                for cell, known in zip(cells, e, strict=True)
            ]
            if item not in self._told and outside(
                u, e, self._low, self._high, frequent=item in self._frequent
            ):
                out.append(self._tell(item, cells))
        self._look.clear()
        return out

    def _tell(self, item: Item, cells: tuple[int, ...]) -> ItemCells:
        self._told[item] = values = tuple(self.values[cell] for cell in cells)
        return ItemCells(self.name, item, cells, values)

    def receive(self, message: ItemAsk | ItemSet) -> ItemCells | None:
        """Take a message of the hub; what to answer."""
        if isinstance(message, ItemAsk):
            return self._tell(message.item, message.cells)
        item, cells = message.item, message.cells
        told = self._told.pop(item)
        for cell, known, value in zip(cells, message.estimate, told, strict=True):
            self._estimate[cell], self._reference[cell] = known, value
        if message.frequent:
            self._frequent[item] = cells
        else:
            self._frequent.pop(item, None)
        for cell in cells:
            watchers = self._watchers.setdefault(cell, set())
            (watchers.add if message.frequent else watchers.discard)(item)
        return None


class GeometricItemsHub:
    """The hub. Not thread-safe.

    Args:
        sites: names of all that take part.
        threshold: a count, of all sites together.
        theta: relative error that is allowed.
    """

    def __init__(self, sites: Iterable[str], threshold: float, theta: float) -> None:
        self._sites = list(sites)
        if not self._sites:
            raise ParameterError("sites are none; expected one or more")
        self.threshold, self.theta = check_threshold(threshold), check_theta(theta)
        self.polls = 0
        self.frequent: set[Item] = set()
        self._collected: dict[Item, dict[str, tuple[float, ...]]] = {}

    def receive(self, message: ItemCells) -> Sequence[tuple[str, ItemAsk | ItemSet]]:
        """Take counters of a site; what to send to whom."""
        item, cells = message.item, message.cells
        found = self._collected.get(item)
        out: list[tuple[str, ItemAsk | ItemSet]] = []
        if found is None:
            found = self._collected[item] = {}
            self.polls += 1
            out = [(site, ItemAsk(item, cells)) for site in self._sites if site != message.site]
        found[message.site] = message.values
        if len(found) < len(self._sites):
            return out
        del self._collected[item]
        sums: list[float] = np.sum(list(found.values()), axis=0).tolist()
        frequent = min(sums) >= self.threshold
        (self.frequent.add if frequent else self.frequent.discard)(item)
        estimate = tuple(each / len(self._sites) for each in sums)
        return [(site, ItemSet(item, cells, estimate, frequent)) for site in self._sites]
