"""Counter layers: the part of a key that each layer counts, and the number of its cells.

A sketch counts its keys, 64-bit words, once in each layer. A layer counts the prefixes
``word >> shift``: either in hashed cells, *depth* rows with *width* columns (the paper's
ECM-sketch, a Count-Min with cells that know time), or directly, in a cell for each of its *width*
prefixes. The root has one cell, the total. The leaf counts complete words. Layers in between serve
ranges, quantiles and heavy hitters (Cormode and Muthukrishnan, "An improved data stream summary:
the count-min sketch and its applications", Journal of Algorithms 55, 2005, section 4).
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ROOT", "ROOT_SLOTS", "Layer"]

ROOT_SLOTS = 64  # of the total: its error is below 1 / 128


class Layer(NamedTuple):
    """Cells that count word prefixes.

    Attributes:
        shift: bits removed from a word, 0..64. 64 leaves 0 for every word.
        width: cells per row, 1..2^28 - 1.
        depth: rows, 1..16. 1 if prefixes are not hashed.
        slots: times that a cell keeps per level, at least 2: q in a wave, B in a histogram.
        hashed: whether prefixes are hashed to columns, or are columns.
    """

    shift: int
    width: int
    depth: int
    slots: int
    hashed: bool

    @property
    def cells(self) -> int:
        """Number of cells."""
        return self.depth * self.width


ROOT = Layer(shift=64, width=1, depth=1, slots=ROOT_SLOTS, hashed=False)
