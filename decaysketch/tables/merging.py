"""Merge serialised sketches: a few in any family, or a complete table key by key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from decaysketch import families
from decaysketch.contract.many import ManyKeys
from decaysketch.contract.snapshot import Tally
from decaysketch.errors import ParameterError
from decaysketch.families import FAMILIES, Family, Recipe, Sketch
from decaysketch.tables.keyed import COUNTS, RESULT_FIELDS, blobs_of

__all__ = ["TALLY_FIELDS", "merge_blobs", "partition_merger"]

BatchFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Decode = Callable[[bytes], Sketch]
Int64Array = npt.NDArray[np.int64]

#: Columns that a merge can add to each row, see :class:`decaysketch.contract.snapshot.Tally`. No
#: key column may have these names.
TALLY_FIELDS = (
    pa.field("__held", pa.int64()),
    pa.field("__observations", pa.float64()),
    pa.field("__exact", pa.bool_()),
    pa.field("__oldest", pa.int64()),
    pa.field("__newest", pa.int64()),
    pa.field("__advice", pa.string()),
)

_SKETCHES_AT_A_TIME = 64  # sketches decoded singly at a time
_BYTES_AT_A_TIME = 1 << 24  # bytes of sketches decoded jointly at a time


def merge_blobs(
    blobs: Iterable[bytes], *, recipe: Recipe | None = None, id_key: bytes | None = None
) -> bytes:
    """Merge serialised sketches in one family. At most 64 are decoded at a time.

    Args:
        blobs: at least one, all with their parameters in them.
        recipe: their sketch configuration, if it is known. Required if their decay is a table.
        id_key: the stream's secret, if it has one and there is no ``recipe``, which contains it.

    Raises:
        CorruptSketchError: a sketch is damaged.
        IncompatibleSketchError: two sketches do not belong together.
        ParameterError: there are none, or ``recipe`` and ``id_key`` are both given, or the family
            guarantees no idempotent merge.
    """
    if recipe is not None and id_key is not None:
        raise ParameterError("give recipe or id_key, not both, because a recipe contains its key")
    decode = partial(families.decode, id_key=id_key) if recipe is None else recipe.decode
    merged, _ = _merged(blobs, decode)
    if merged is None:
        raise ParameterError("expected at least one sketch to merge")
    return merged.to_bytes()


def _merged(blobs: Iterable[bytes], decode: Decode) -> tuple[Sketch | None, int]:
    """Return the merge, and how many readings in it a later one with their id replaced."""
    remaining, replaced = iter(blobs), 0
    merged: Sketch | None = None
    while some := list(islice(remaining, _SKETCHES_AT_A_TIME)):
        _family_to_merge(some[0])
        sketches = list(map(decode, some))
        merged = families.merge(sketches if merged is None else [merged, *sketches])
        replaced += merged.replaced
    return merged, replaced


def _family_to_merge(blob: bytes) -> Family:
    family = FAMILIES[families.family_of(blob)]
    family.check_deliverable("a batch job")
    return family


def _decode_by(recipe: Recipe | None) -> Decode:
    return families.decode if recipe is None else recipe.decode


def _result_schema(schema: pa.Schema, keys: Sequence[str]) -> pa.Schema:
    return pa.schema([*(schema.field(name) for name in keys), *RESULT_FIELDS])


def _counts_of(batch: pa.RecordBatch | pa.Table, name: str) -> Int64Array:
    """Return a column of counts. Tables from releases that did not count it have no such column."""
    if name not in batch.schema.names:
        return np.zeros(batch.num_rows, dtype=np.int64)
    column: Int64Array = batch.column(name).to_numpy()
    return column


# ------------------------------------------------------------------------------------- many keys


def partition_merger(
    keys: Sequence[str] = (), recipe: Recipe | None = None, *, tally: bool = False
) -> BatchFunction:
    """Return a function from partial sketches in key order to one sketch for each key.

    It streams. Memory contains one batch, and for a key with very many partial sketches some
    dozens. Equal keys must follow one another, in any key order. A key may span batches. Simple
    sketches (one stream, one repetition, a few megabytes at most) are merged together, at some
    microseconds each.

    Args:
        keys: the key columns.
        recipe: see :func:`merge_blobs`.
        tally: add :data:`TALLY_FIELDS`. The merge already knows most fields.
    """
    names = list(keys)

    def merge_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        merger = _RunMerger(recipe)
        open_key: pa.Table | None = None  # rows of the key that may go on in the next batch
        for batch in batches:
            if not batch.num_rows:
                continue
            table = pa.Table.from_batches([_needed(batch, names)])
            if open_key is not None:
                table = pa.concat_tables([open_key, table])
            starts = _run_starts(table, names)
            yield from merger.merge(table.slice(0, starts[-1]), starts, names, tally)
            open_key = table.slice(starts[-1])
            if open_key.num_rows > _SKETCHES_AT_A_TIME:
                whole = np.array([0, open_key.num_rows])
                open_key = pa.Table.from_batches(list(merger.merge(open_key, whole, names)))
        if open_key is not None:
            whole = np.array([0, open_key.num_rows])
            yield from merger.merge(open_key, whole, names, tally)

    return merge_partition


def _needed(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    counts = [pa.array(_counts_of(batch, name)) for name in COUNTS]
    sketch = batch.column("sketch").cast(pa.binary())
    digest = pa.nulls(batch.num_rows, pa.string())
    columns = [*(batch.column(name) for name in names), *counts, sketch, digest]
    return pa.RecordBatch.from_arrays(columns, schema=_result_schema(batch.schema, names))


def _run_starts(table: pa.Table, names: Sequence[str]) -> Int64Array:
    """Return the first row in each run with equal keys."""
    changes = np.zeros(table.num_rows, dtype=bool)
    changes[0] = True
    for name in names:
        column = table.column(name).combine_chunks()
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode(null_encoding="encode")
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        indices = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        changes[1:] |= indices[1:] != indices[:-1]
    return np.flatnonzero(changes)


class _RunMerger:
    """Merges row runs with one key each."""

    def __init__(self, recipe: Recipe | None) -> None:
        self._decode = _decode_by(recipe)
        self._many: ManyKeys | None = None  # of sketches that can be merged together
        self._looked = False

    def merge(
        self, table: pa.Table, starts: Int64Array, names: Sequence[str], tally: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Return one row for each run. ``starts`` has the last run's end behind the starts."""
        if not table.num_rows:
            return
        table = table.combine_chunks()
        column = table.column("sketch").combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks)
        offsets, data = _buffers_of(column)
        if not self._looked:
            self._many = self._handled_together(column[0].as_py())
            self._looked = True
        first = 0
        while first < len(starts) - 1:
            most = offsets[starts[first]] + _BYTES_AT_A_TIME
            last = int(np.searchsorted(offsets[starts], most, side="right")) - 1
            last = min(max(last, first + 1), len(starts) - 1)
            some = starts[first : last + 1]
            merged, tallies = self._merge_some(table, column, offsets, data, some, names, tally)
            yield _with_tallies(merged, tallies) if tally else merged
            first = last

    def _handled_together(self, blob: bytes) -> ManyKeys | None:
        """Return the way to merge a sketch together with others with its kind and capacity."""
        many = _family_to_merge(blob).many
        return None if many is None else many(self._decode(blob).params)

    def _merge_some(
        self, table: pa.Table, column: pa.Array, offsets: Int64Array,
        data: npt.NDArray[np.uint8], starts: Int64Array, names: Sequence[str], tally: bool,
    ) -> tuple[pa.RecordBatch, list[Tally | None]]:  # fmt: skip
        begin, end, runs = int(starts[0]), int(starts[-1]), len(starts) - 1
        run_of_row = np.repeat(np.arange(runs, dtype=np.int32), np.diff(starts))
        simple = np.zeros(runs, dtype=bool)
        sketches = pa.nulls(runs, pa.binary())
        digests = [""] * runs
        tallies: list[Tally | None] = [None] * runs
        replaced = np.zeros(runs, np.int64)
        small = offsets[end] - offsets[begin] <= 2 * _BYTES_AT_A_TIME
        if self._many is not None and small:
            part = offsets[begin : end + 1]
            merged, simple, replaced = self._many.merge(
                data[part[0] : part[-1]], part - part[0], run_of_row, runs
            )
            if simple.any():
                sketches, digests = blobs_of(merged), merged.digests()
                if tally:
                    tallies[:] = merged.tallies()
        if not simple.all():
            blobs = sketches.to_pylist()
            for run in np.flatnonzero(~simple).tolist():
                rows = column.slice(int(starts[run]), int(starts[run + 1] - starts[run]))
                sketch, replaced[run] = _merged((blob.as_py() for blob in rows), self._decode)
                assert sketch is not None
                blobs[run], digests[run] = sketch.to_bytes(), sketch.digest()
                if tally:
                    tallies[run] = sketch.snapshot().tally()
            sketches = pa.array(blobs, pa.binary())
        firsts = pa.array(starts[:-1])
        counts = {
            name: np.add.reduceat(_counts_of(table, name)[begin:end], starts[:-1] - begin)
            for name in COUNTS
        }
        counts["replaced"] += replaced  # those between the sketches that were merged
        keys = [_one_chunk(table.column(name).take(firsts)) for name in names]
        rows = pa.RecordBatch.from_arrays(
            [*keys, *map(pa.array, counts.values()), sketches, pa.array(digests, pa.string())],
            schema=_result_schema(table.schema, names),
        )
        return rows, tallies


def _with_tallies(rows: pa.RecordBatch, tallies: Sequence[Tally | None]) -> pa.RecordBatch:
    columns = [
        pa.array([None if tally is None else tally[place] for tally in tallies], field.type)
        for place, field in enumerate(TALLY_FIELDS)
    ]
    schema = pa.schema([*rows.schema, *TALLY_FIELDS])
    return pa.RecordBatch.from_arrays([*rows.columns, *columns], schema=schema)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def _buffers_of(column: pa.Array) -> tuple[Int64Array, npt.NDArray[np.uint8]]:
    """Return a bytes column's offsets, int64[n + 1], and bytes.

    Raises:
        ParameterError: an entry is null.
    """
    if column.null_count:
        row = int(column.is_null().to_numpy(zero_copy_only=False).argmax())
        raise ParameterError(f"sketch[{row}] is missing; expected the bytes of a sketch")
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    content = content.view()
    content.setflags(write=False)  # every array is read-only for the kernels
    return ends.astype(np.int64), content
