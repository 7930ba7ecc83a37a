"""Arrow tables in, one sketch for each key out: what a batch engine runs, with no engine in it.

A delivery log says for each row *when* the thing happened, *what* identifies it, *how much* it
weighs and measures, and which way this copy came. :class:`ColumnMapping` names those columns,
:class:`KeyedBuilder` folds tables into one sketch per key (per path, per source, ...), and
:func:`merge_blobs` joins sketches that are bytes already. A sketch does not depend on order,
partition or duplication, so the parts may be cut anywhere and built anywhere; but of keys, below.

What is built follows from what it is built with (:mod:`decaysketch.families`): ``SketchParams``
give a :class:`~decaysketch.DecaySketch`, ``SumParams`` and ``MedianParams`` the samplers of
:mod:`decaysketch.asyncwindow`, and ``recipe_of(SketchParams(...), decay)`` a sketch of one integral
decay, ``ECMParams`` collections of :mod:`decaysketch.ecm`.

Events of keys, which nothing names, are counted as often as they stand in the log, for the *site*
that they came from. The state of a site replaces an older one, so here a log is cut by whole sites,
or each part of it is counted under an epoch of its own (:mod:`decaysketch.batch.sites`).

:func:`partial_builder` and :func:`file_builder` make the functions that Spark runs in its executors
to build, :func:`partition_merger` the one that merges rows in the order of their keys,
:func:`refusal_finder` and :func:`file_refusal_finder` those that list the rows that were refused.
They are made here and not in the driver's program because an executor has
this library and may not have the program.

What becomes of a row
    A null value is a missing value: counted, and absent from value aggregates; to a sampler, which
    has no others, such a row is no element. A null time is replaced by the fallback time. Any other
    null, and any number out of its range, is an :class:`~decaysketch.errors.ObservationError` that
    names the table's column and row, and nothing of that table is taken; or, where refusals are
    counted, the row alone is left out. A row that a :class:`RowFilter` does not take is not looked
    at.
Clock
    It is part of the state of a sketch that has one, and it never goes back. So it is not guessed
    from the rows, where one time that runs ahead would make the sketch forget everything, and where
    keys would differ in it: every sketch is told the ``now`` that the caller gives, or nothing.

Needs pyarrow.
"""

from decaysketch.batch.engine import (
    REFUSAL_FIELDS,
    BatchFunction,
    FileSplit,
    file_builder,
    file_refusal_finder,
    matching_row_groups,
    open_parquet,
    partial_builder,
    refusal_finder,
)
from decaysketch.batch.filters import ColumnStatistics, Comparison, RowFilter, parse_where
from decaysketch.batch.keyed import (
    RESULT_FIELDS,
    KeyedBuilder,
    key_fields,
    sketches_by_key,
)
from decaysketch.batch.mapping import ColumnMapping
from decaysketch.batch.merging import TALLY_FIELDS, merge_blobs, partition_merger
from decaysketch.batch.sites import epoch_of
from decaysketch.families import BuiltWith

__all__ = [
    "REFUSAL_FIELDS",
    "RESULT_FIELDS",
    "TALLY_FIELDS",
    "BatchFunction",
    "BuiltWith",
    "ColumnMapping",
    "ColumnStatistics",
    "Comparison",
    "FileSplit",
    "KeyedBuilder",
    "RowFilter",
    "epoch_of",
    "file_builder",
    "file_refusal_finder",
    "key_fields",
    "matching_row_groups",
    "merge_blobs",
    "open_parquet",
    "parse_where",
    "partial_builder",
    "partition_merger",
    "refusal_finder",
    "sketches_by_key",
]
