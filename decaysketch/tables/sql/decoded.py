"""Sketches that a process has decoded, stored while further queries are likely.

Every function in a SELECT is called with the same column of bytes, one after the other, and
would decode it each time. So a decoded sketch is stored by the digest of its bytes, together
with the samples that were drawn from it last. Equal queries in one SELECT, and different ones
under one decay, read one sample.

DuckDB and polars call from several threads. A lock protects the store. An opened sketch
is only read, under a lock of its own if a read fills a cache.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from threading import Lock

from decaysketch import families
from decaysketch.contract.snapshot import Snapshot
from decaysketch.decay import Decay
from decaysketch.errors import IncompatibleSketchError, ParameterError
from decaysketch.families import Recipe, Sketch, recipe_of
from decaysketch.query.catalog import View

__all__ = ["ROWS_KEPT", "OpenedSketch", "Shelf", "decoded", "opened"]

ROWS_KEPT = 1 << 20
"""Rows of all sketches that are kept, together: some 200 MB with a sample of each."""

_SKETCH_AS_ROWS = 64  # fixed memory of a sketch, in rows
_VIEWS_KEPT = 4  # of one sketch: a SELECT may alternate between this many decays and times


class OpenedSketch:
    """A sketch that does not change any more, for queries."""

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch
        self.rows = len(sketch)
        self.cost = self.rows + _SKETCH_AS_ROWS
        self.lock = Lock()  # to be held while the sketch is read; views of it need none
        self._views: OrderedDict[tuple[Decay | None, int], View] = OrderedDict()

    @property
    def time_unit(self) -> str:
        """The unit of its times."""
        unit: str = self.sketch.params.time_unit
        return unit

    @property
    def has_fixed_decay(self) -> bool:
        """Whether the decay was chosen when the sketch was built."""
        return recipe_of(self.sketch).decay is not None

    def snapshot(self) -> Snapshot:
        """The content, which any thread may read."""
        with self.lock:
            return self.sketch.snapshot()

    def at(self, decay: Decay | None, now: int) -> View:
        """Return the query interface under a decay, at a time. The last ones are stored.

        Args:
            decay: chosen by the query; None if the sketch has a fixed one.
            now: in :attr:`time_unit`.

        Raises:
            ParameterError: a decay that the sketch does not accept, or no time.
            UnanswerableQueryError: the sketch has discarded the required data.
        """
        asked = (decay, now)
        with self.lock:
            if (view := self._views.get(asked)) is not None:
                self._views.move_to_end(asked)
                return view
            view = self._views[asked] = self.sketch.at(decay, now)
            if len(self._views) > _VIEWS_KEPT:
                self._views.popitem(last=False)
            return view


def decoded(blob: bytes, recipes: Iterable[Recipe]) -> Sketch:
    """Read a sketch. The bytes are untrusted.

    Args:
        blob: bytes from ``to_bytes`` of a sketch of any family.
        recipes: of streams whose bytes cannot be read alone, because of a secret id key, a
            table as their decay, or a fingerprint for their parameters.

    Raises:
        CorruptSketchError: bytes that no honest builder could have written.
        IncompatibleSketchError: no recipe has the data that are required to read them.
    """
    return _decoded(blob, recipes)[0]


def _decoded(blob: bytes, recipes: Iterable[Recipe]) -> tuple[Sketch, Recipe | None]:
    """Return a sketch, and the sketch configuration that it required."""
    try:
        return families.decode(blob), None
    except IncompatibleSketchError:
        family = families.family_of(blob)
        for recipe in recipes:
            if recipe.family == family:
                try:
                    return recipe.decode(blob), recipe
                except (IncompatibleSketchError, ParameterError):
                    continue
        raise


class Shelf:
    """Opened sketches, dropped in least recently used order.

    A sketch that was read with a sketch configuration, perhaps with a secret key, is only found by
    callers that have it.

    Args:
        rows_kept: limit for all of them together; each sketch counts some rows itself; the last one
            is stored at any size.
    """

    def __init__(self, rows_kept: int = ROWS_KEPT) -> None:
        self._rows_kept = rows_kept
        self._opened: OrderedDict[tuple[bytes, Recipe | None], OpenedSketch] = OrderedDict()
        self._cost = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._opened)

    def open(self, blob: bytes, recipes: Sequence[Recipe]) -> OpenedSketch:
        """Return a stored sketch, or read it now; see :func:`decoded`."""
        name = hashlib.blake2b(blob, digest_size=16).digest()
        with self._lock:
            for recipe in (None, *recipes):
                if (found := self._opened.get((name, recipe))) is not None:
                    self._opened.move_to_end((name, recipe))
                    return found
            sketch, recipe = _decoded(blob, recipes)
            found = self._opened[name, recipe] = OpenedSketch(sketch)
            self._cost += found.cost
            while self._cost > self._rows_kept and len(self) > 1:
                self._cost -= self._opened.popitem(last=False)[1].cost
            return found


_shelf = Shelf()


def opened(blob: bytes, recipes: Sequence[Recipe]) -> OpenedSketch:
    """Return a sketch from this process's shelf."""
    return _shelf.open(blob, recipes)
