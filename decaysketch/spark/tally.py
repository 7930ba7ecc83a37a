"""How many observations are in a sketch, and so how many deliveries were copies of others.

A build reads ``rows`` deliveries of a key; its sketch knows how many *distinct* observations they
are of. The rest are copies that came again, by whichever path. What is known of it:

=====================  =============================  ==========================================
family                 nothing was discarded          otherwise
=====================  =============================  ==========================================
decay                  exact: all that is held        estimated, by a count without decay
sum, median            exact                          estimated, where any window may be asked
integral               exact                          not known: what has expired leaves no trace
=====================  =============================  ==========================================

A sketch that was told the time has forgotten what expired, and says nothing here. An observation is
an (id, weight): rows of weight 0 are none, and to a sampler neither are rows without a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from decaysketch.families import Recipe, Sketch

__all__ = ["TALLY_FIELDS", "Tally", "tally_of", "tallying"]

#: What :func:`tallying` adds to rows of sketches; no key column is called so.
TALLY_FIELDS: Final = (
    pa.field("__held", pa.int64()),
    pa.field("__observations", pa.float64()),
    pa.field("__exact", pa.bool_()),
    pa.field("__oldest", pa.int64()),
    pa.field("__newest", pa.int64()),
)


class Tally(NamedTuple):
    """What is known of one sketch.

    Attributes:
        held: observations that it holds.
        observations: distinct ones that it was fed; None where nobody can tell.
        exact: whether that is a count, not an estimate.
        oldest, newest: the earliest and the latest time that it holds; None: it holds nothing.
    """

    held: int
    observations: float | None
    exact: bool
    oldest: int | None = None
    newest: int | None = None


def tally_of(sketch: Sketch) -> Tally:
    """How many observations a sketch holds and was fed. O(1) where nothing was discarded."""
    held = sketch.snapshot()
    return Tally(len(held), *held.fed, held.oldest, held.newest)


def tallying(
    recipe: Recipe,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function from batches of rows of sketches to the same with :data:`TALLY_FIELDS`."""

    def add_tallies(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            blobs = batch.column("sketch").to_pylist()
            tallies = [tally_of(recipe.decode(blob)) for blob in blobs]
            columns = [
                pa.array([tally[place] for tally in tallies], field.type)
                for place, field in enumerate(TALLY_FIELDS)
            ]
            schema = pa.schema([*batch.schema, *TALLY_FIELDS])
            yield pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=schema)

    return add_tallies
