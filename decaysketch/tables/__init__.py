"""Arrow tables in, one sketch for each key out: the core of all batch engines, without an engine.

A delivery log has for each row the event time, its identity, its weight and value, and the path by
which this duplicate arrived. :class:`ColumnMapping` names those columns. :class:`KeyedBuilder`
merges tables into one sketch per key (per path, per source, ...), and :func:`merge_blobs` merges
serialised sketches. A sketch does not depend on order, partition or duplication, so you may cut and
build the parts anywhere, except for key counts, see below.

The parameters select the sketch (:mod:`decaysketch.families`). ``SketchParams`` give a
:class:`~decaysketch.DecaySketch`, ``SumParams`` and ``MedianParams`` the samplers in
:mod:`decaysketch.asyncwindow`, ``recipe_of(SketchParams(...), decay)`` a sketch with one integral
decay, and ``ECMParams`` collections from :mod:`decaysketch.ecm`.

Key events have no ids. They count as often as they are in the log, for the *site* of their origin.
A site's state replaces an older one. So such a log must be cut between complete sites, or each part
must be counted under its own epoch (:mod:`decaysketch.tables.row_sources`).

:func:`partial_builder` and :func:`file_builder` make the functions that Spark runs in its executors
to build, :func:`partition_merger` the function that merges rows in key order, and
:func:`refusal_finder` and :func:`file_refusal_finder` the functions that list rejected rows. They
are made here and not in the driver's program, because an executor has this library and may not have
the program.

Handling of a row
    A null value is a missing value: counted, and absent from value aggregates. A sampler, which has
    no others, does not count such a row as an element. The fallback time replaces a null time. Any
    other null, and any number out of range, raises :class:`~decaysketch.errors.ObservationError`
    with the column and row, and the complete table is rejected. If rejections are counted, only the
    row is dropped. A row that a :class:`RowFilter` excludes is not checked.
Clock
    The clock belongs to a sketch's state, if the sketch has one, and it never goes back. So the
    builder does not guess it from the rows: one time that runs ahead would make the sketch forget
    everything, and keys would differ in it. Every sketch gets the caller's ``now``, or none.

Needs pyarrow.
"""

from decaysketch.families import BuiltWith
from decaysketch.tables.filters import ColumnStatistics, Comparison, RowFilter, parse_where
from decaysketch.tables.keyed import (
    RESULT_FIELDS,
    KeyedBuilder,
    key_fields,
    sketches_by_key,
)
from decaysketch.tables.mapping import ColumnMapping
from decaysketch.tables.merging import TALLY_FIELDS, merge_blobs, partition_merger
from decaysketch.tables.row_sources import epoch_of
from decaysketch.tables.workers import (
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
