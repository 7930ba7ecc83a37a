"""Sketches that a process has decoded, kept while they are likely to be asked again.

Every function of a SELECT is called with the same column of bytes, one after the other; decoding is
what that would cost each time. So a decoded sketch is kept by the digest of its bytes, together
with the samples that were drawn from it last: equal questions in one SELECT, and different ones
under one decay, read one sample.

DuckDB and polars call from several threads. What is kept is found under a lock, and a sketch that
was opened is read only, under a lock of its own where reading it fills a cache.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from threading import Lock

from decaysketch import families
from decaysketch.answers.questions import View
from decaysketch.contract.snapshot import Snapshot
from decaysketch.decay import Decay
from decaysketch.errors import IncompatibleSketchError, ParameterError
from decaysketch.families import Recipe, Sketch, recipe_of

__all__ = ["ROWS_KEPT", "OpenedSketch", "Shelf", "decoded", "opened"]

ROWS_KEPT = 1 << 20
"""Rows of all sketches that are kept, together: some 200 MB with a sample of each."""

_SKETCH_AS_ROWS = 64  # what a sketch takes besides its rows, in rows
_VIEWS_KEPT = 4  # of one sketch: so many decays and times may take turns in one SELECT


class OpenedSketch:
    """A sketch that nobody changes any more, to be asked."""

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch
        self.rows = len(sketch)
        self.cost = self.rows + _SKETCH_AS_ROWS
        self.lock = Lock()  # to be held while the sketch is read; views of it need none
        self._views: OrderedDict[tuple[Decay | None, int], View] = OrderedDict()

    @property
    def time_unit(self) -> str:
        """Unit of its times."""
        unit: str = self.sketch.params.time_unit
        return unit

    @property
    def has_fixed_decay(self) -> bool:
        """The decay was chosen when it was built."""
        return recipe_of(self.sketch).decay is not None

    def snapshot(self) -> Snapshot:
        """What it holds, to be read from any thread."""
        with self.lock:
            return self.sketch.snapshot()

    def at(self, decay: Decay | None, now: int) -> View:
        """What can be asked under a decay, at a time; the last ones are kept.

        Args:
            decay: chosen by the query; None where that of the sketch is fixed.
            now: in :attr:`time_unit`.

        Raises:
            ParameterError: a decay that the sketch does not take, or no time.
            UnanswerableQueryError: the sketch has discarded what is asked about.
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
    """Read a sketch; nothing in the bytes is trusted.

    Args:
        blob: what ``to_bytes`` of a sketch of any family wrote.
        recipes: of streams whose bytes cannot be read alone: those with a secret id key, with a
            table as their decay, or with a fingerprint for their parameters.

    Raises:
        CorruptSketchError: bytes that no honest builder could have written.
        IncompatibleSketchError: something is needed to read them that no recipe has.
    """
    return _decoded(blob, recipes)[0]


def _decoded(blob: bytes, recipes: Iterable[Recipe]) -> tuple[Sketch, Recipe | None]:
    """A sketch, and the recipe that it could not be read without."""
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
    """Sketches that were opened, until they are the ones that were not asked for longest.

    One that was read by a recipe, with a secret key perhaps, is found by who has that recipe.

    Args:
        rows_kept: of all of them together, of which each sketch takes some itself; the last one is
            kept however large it is.
    """

    def __init__(self, rows_kept: int = ROWS_KEPT) -> None:
        self._rows_kept = rows_kept
        self._opened: OrderedDict[tuple[bytes, Recipe | None], OpenedSketch] = OrderedDict()
        self._cost = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._opened)

    def open(self, blob: bytes, recipes: Sequence[Recipe]) -> OpenedSketch:
        """A sketch that is kept, or is read now; see :func:`decoded`."""
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
    """A sketch of this process's shelf."""
    return _shelf.open(blob, recipes)
