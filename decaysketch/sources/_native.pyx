"""The kernels of several sources, `matching.c`, over NumPy columns."""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int8_t, int32_t, int64_t, uint32_t, uint64_t

import numpy as np

cdef extern from "sources/matching.h" nogil:
    ctypedef struct ds_heard:
        const int64_t *ids
        const int64_t *weights
        const int64_t *times
        const int64_t *value_keys
        const int8_t *levels
        int64_t rows

    ctypedef struct ds_matched:
        int64_t *ids
        int64_t *weights
        int64_t *latest
        int8_t *levels
        int32_t *degrees
        uint64_t *histories

    ctypedef struct ds_suspect:
        pass

    ctypedef struct ds_lookup:
        uint64_t salt
        int64_t max_weight
        uint64_t *slots
        ds_suspect *suspects
        int32_t *renumbered

    ctypedef struct ds_incidences:
        const int64_t *start
        const int32_t *sources
        const int64_t *times
        const int8_t *bands
        int64_t observations

    ctypedef struct ds_sorting:
        uint64_t *keys[2]
        uint32_t *words[2]

    ctypedef struct ds_block:
        ds_sorting sorting
        int64_t *ids
        int64_t *weights
        int32_t *groups

    ctypedef struct ds_misses:
        int64_t *shared
        int64_t *alone
        int64_t *longest

    enum:
        DS_AMOUNTS

    ctypedef double (*ds_cells)[8]

    ctypedef struct ds_pairs:
        ds_cells cells
        uint64_t *keys
        int bits
        int64_t sources
        uint64_t salt

    ctypedef struct ds_matching_kernels:
        int64_t (*longest_block)(
            const ds_heard *, int64_t, const int64_t *, int64_t, int64_t *
        ) noexcept nogil
        int64_t (*match)(
            const ds_heard *, int64_t, const int64_t *, int64_t, const ds_lookup *,
            const ds_matched *, const ds_block *, int64_t *, int32_t *, int *
        ) noexcept nogil
        void (*lags)(
            const ds_heard *, int64_t, const int64_t *, const int32_t *, int64_t *, int64_t *
        ) noexcept nogil
        void (*values)(
            const ds_heard *, int64_t, const int64_t *, const int32_t *, int64_t *
        ) noexcept nogil
        int64_t (*match_many)(
            const ds_heard *, int64_t, const int64_t *, int64_t, const ds_lookup *,
            const ds_matched *, int64_t *, int32_t *, int *
        ) noexcept nogil
        int64_t (*latest_first)(
            const int64_t *, const int8_t *, int64_t, const int64_t *, const ds_sorting *, int64_t *
        ) noexcept nogil
        void (*gather)(
            const ds_heard *, int64_t, const int64_t *, int64_t, const int32_t *, int32_t *,
            int32_t *, int64_t *, int8_t *
        ) noexcept nogil
        void (*misses)(
            const int32_t *, const int64_t *, int64_t, const int32_t *, int64_t, const int64_t *,
            int64_t, int32_t *, const ds_misses *
        ) noexcept nogil
        void (*square)(
            const ds_matched *, int64_t, const double *, const double *, const int64_t *,
            int64_t, int64_t, ds_cells
        ) noexcept nogil
        int (*overlaps)(
            const ds_incidences *, const double *, const int8_t *, const double *, const ds_pairs *
        ) noexcept nogil
        int (*scattered_overlaps)(
            const ds_incidences *, const double *, const int8_t *, const double *,
            const int64_t *, int64_t, const ds_pairs *
        ) noexcept nogil

    const ds_matching_kernels *ds_matching_at(int level)
    int ds_level()

cdef const ds_matching_kernels *kernels = ds_matching_at(ds_level())

AMOUNTS = DS_AMOUNTS  # columns of the cell of a pair

# Rows of a block of time, and the rows of a source between two of which its time is a sample.
cdef int64_t BLOCK_ROWS = 4096, LEAST_STEP = 32, MOST_STEP = 512


cdef class Heard:
    """Rows of several sources, each latest first. Immutable; columns are kept alive.

    Args:
        columns: of each source: ids, weights, times, value keys (int64) and levels (int8).
    """

    cdef ds_heard *c
    cdef readonly int64_t count, rows
    cdef object columns

    def __cinit__(self, columns):
        self.columns = list(columns)
        self.count = len(self.columns)
        self.c = <ds_heard *> PyMem_Calloc(max(self.count, 1), sizeof(ds_heard))
        if self.c == NULL:
            raise MemoryError
        for number, (ids, weights, times, value_keys, levels) in enumerate(self.columns):
            self._add(number, ids, weights, times, value_keys, levels)

    cdef int _add(
        self, int64_t number, const int64_t[::1] ids, const int64_t[::1] weights,
        const int64_t[::1] times, const int64_t[::1] value_keys, const int8_t[::1] levels,
    ) except -1:
        cdef int64_t n = ids.shape[0]
        if not n == weights.shape[0] == times.shape[0] == value_keys.shape[0] == levels.shape[0]:
            raise ValueError(f"columns of other lengths than {n}")
        if n:
            self.c[number] = ds_heard(
                &ids[0], &weights[0], &times[0], &value_keys[0], &levels[0], n
            )
        self.rows += n
        return 0

    def __dealloc__(self):
        PyMem_Free(self.c)


def _columns(*shapes):
    """Columns, of (length, type), in one allocation: the ends of each take small pages, whose faults
    cost as much as a kernel."""
    sizes = [-(-length * np.dtype(kind).itemsize // 64) * 64 for length, kind in shapes]
    memory, ends = np.empty(sum(sizes), np.uint8), np.cumsum(sizes)
    return [
        memory[end - size : end][: length * np.dtype(kind).itemsize].view(kind)
        for (length, kind), size, end in zip(shapes, sizes, ends, strict=True)
    ]


cdef int64_t[::1] _cuts(Heard heard, int64_t block):
    """Times, falling, that cut the rows of all sources into blocks of about so many rows."""
    cdef int64_t step = min(max(block // max(heard.count, 1), LEAST_STEP), MOST_STEP)
    cdef int64_t s, row, found = 0
    samples = np.empty(heard.rows // step + 1, np.int64)
    cdef int64_t[::1] times = samples
    for s in range(heard.count):
        for row in range(step - 1, heard.c[s].rows, step):
            times[found] = heard.c[s].times[row]
            found += 1
    each = max(block // step, 1)
    return np.append(np.sort(samples[:found])[::-1][each - 1 :: each], np.iinfo(np.int64).min)


cdef object _open_block(Heard heard, const int64_t[::1] cuts, int64_t[::1] next_row, ds_block *to):
    """Memory for the longest block."""
    cdef int64_t rows = kernels.longest_block(
        heard.c, heard.count, &cuts[0], cuts.shape[0], &next_row[0]
    )
    cdef uint64_t[::1] words = np.empty(6 * rows, np.uint64)
    cdef uint64_t *first = &words[0]
    to.sorting.keys[0], to.sorting.keys[1] = first, first + rows
    to.sorting.words[0] = <uint32_t *> (first + 2 * rows)
    to.sorting.words[1] = to.sorting.words[0] + rows
    to.ids, to.weights = <int64_t *> (first + 3 * rows), <int64_t *> (first + 4 * rows)
    to.groups = <int32_t *> (first + 5 * rows)
    return words


cdef object _open_lookup(int64_t n, ds_lookup *to):
    """Memory to find duplicates at different times. Pages that are not needed are not touched."""
    made = _columns(
        (1 << (2 * n + 1).bit_length() - 1, np.uint64), (n + 1, np.int64), (n + 1, np.int32)
    )
    cdef uint64_t[::1] slots = made[0]
    cdef int64_t[::1] suspects = made[1]
    cdef int32_t[::1] renumbered = made[2]
    to.slots, to.suspects = &slots[0], <ds_suspect *> &suspects[0]
    to.renumbered = &renumbered[0]
    return made


def match(Heard heard, uint64_t salt, int64_t max_weight, bint in_order):
    """Columns of the distinct observations: ids, weights (None if all are 1), latest times, levels,
    degrees and the sources as bits (None unless ``in_order``). Of each row, over all sources, the
    number of its observation. Whether duplicates differ in time. ``in_order``: latest first, for 64
    sources at most, and faster for few."""
    cdef int64_t n = heard.rows
    cdef int64_t found = 0
    cdef int scattered = 0
    cdef ds_block block
    cdef ds_lookup by
    cdef ds_matched o
    if not n < 1 << 30:
        raise ValueError(f"{n} rows; expected fewer than {1 << 30}")
    if in_order and heard.count > 64:
        raise ValueError(f"{heard.count} sources in order; expected at most 64")
    heavy, few = n if max_weight > 1 else 0, n if in_order else 0
    *made, groups = _columns(
        (n, np.int64), (heavy, np.int64), (n, np.int64), (n, np.int8), (n, np.int32),
        (few, np.uint64), (n, np.int32),
    )
    cdef int64_t[::1] ids = made[0], weights = made[1 if heavy else 0], latest = made[2]
    cdef int8_t[::1] levels = made[3]
    cdef int32_t[::1] degrees = made[4], numbers = groups
    cdef uint64_t[::1] histories = made[5]
    cdef int64_t[::1] cuts, next_row
    if n:
        cuts = _cuts(heard, BLOCK_ROWS if in_order else MOST_STEP * heard.count)
        next_row, kept = np.empty(2 * heard.count, np.int64), [_open_lookup(n, &by)]
        by.salt, by.max_weight = salt, max_weight
        o = ds_matched(&ids[0], &weights[0], &latest[0], &levels[0], &degrees[0], NULL)
        if in_order:
            kept.append(_open_block(heard, cuts, next_row, &block))
            o.histories = &histories[0]
        with nogil:
            if in_order:
                found = kernels.match(
                    heard.c, heard.count, &cuts[0], cuts.shape[0], &by, &o, &block, &next_row[0],
                    &numbers[0], &scattered,
                )
            else:
                found = kernels.match_many(
                    heard.c, heard.count, &cuts[0], cuts.shape[0], &by, &o, &next_row[0],
                    &numbers[0], &scattered,
                )
    if not heavy:
        made[1] = None
    if not in_order:
        made[5] = None
    columns = tuple(column if column is None else column[:found] for column in made)
    return columns, groups, bool(scattered)


def lags(Heard heard, const int64_t[::1] latest, const int32_t[::1] groups):
    """Of each source, the longest time by which a row lies before the latest of its duplicates, and
    of each observation the earliest time."""
    _check_groups(heard, groups)
    made, early = np.zeros(heard.count, np.int64), np.array(latest, np.int64)
    cdef int64_t[::1] found = made, earliest = early
    if heard.rows:
        with nogil:
            kernels.lags(heard.c, heard.count, &latest[0], &groups[0], &found[0], &earliest[0])
    return made, early


cdef int _check_groups(Heard heard, const int32_t[::1] groups) except -1:
    if groups.shape[0] != heard.rows:
        raise ValueError(f"{groups.shape[0]} numbers of {heard.rows} rows")
    return 0


def values(Heard heard, const int64_t[::1] latest, const int32_t[::1] groups):
    """Of each observation, the value key of its latest duplicate; the largest of equally late ones."""
    _check_groups(heard, groups)
    made = np.full(latest.shape[0], np.iinfo(np.int64).min, np.int64)
    cdef int64_t[::1] found = made
    if heard.rows:
        with nogil:
            kernels.values(heard.c, heard.count, &latest[0], &groups[0], &found[0])
    return made


def latest_first(
    const int64_t[::1] times, const int8_t[::1] levels, const int64_t[::1] marks,
):
    """Numbers of the observations later than the watermark of their level, latest first and equal
    times in order of number."""
    cdef int64_t n = times.shape[0]
    cdef int64_t found = 0
    cdef ds_sorting sorting
    if not n == levels.shape[0] < 1 << 30:
        raise ValueError(f"{n} times and {levels.shape[0]} levels; expected equally many, few")
    if n and not 0 <= np.min(levels) <= np.max(levels) < marks.shape[0]:
        raise ValueError(f"levels that are not of {marks.shape[0]} watermarks")
    made = np.empty(n, np.int64)
    cdef int64_t[::1] order = made
    cdef uint64_t[:, ::1] keys = np.empty((2, n), np.uint64)
    cdef uint32_t[:, ::1] words = np.empty((2, n), np.uint32)
    if n:
        for side in range(2):
            sorting.keys[side], sorting.words[side] = &keys[side, 0], &words[side, 0]
        with nogil:
            found = kernels.latest_first(
                &times[0], &levels[0], n, &marks[0], &sorting, &order[0]
            )
    return made[:found]


def misses(
    const int32_t[::1] groups, const int64_t[::1] offsets, const int32_t[::1] degrees,
    const int64_t[::1] rows,
):
    """int64[3, sources]: see `ds_misses`. ``rows`` are some observations, and the rows of a source
    in ``groups`` are in the same order."""
    cdef int64_t n = degrees.shape[0], count = offsets.shape[0] - 1
    cdef ds_misses found
    if count < 0 or offsets[count] != groups.shape[0]:
        raise ValueError(f"{groups.shape[0]} numbers that are not of {count} sources")
    if rows.shape[0] and not 0 <= np.min(rows) <= np.max(rows) < n:
        raise ValueError(f"rows that are not of {n} observations")
    made = np.zeros((3, count), np.int64)
    cdef int64_t[:, ::1] columns = made
    cdef int32_t[::1] places = np.empty(n, np.int32)
    if count and rows.shape[0]:
        found = ds_misses(&columns[0, 0], &columns[1, 0], &columns[2, 0])
        with nogil:
            kernels.misses(
                &groups[0], &offsets[0], count, &degrees[0], n, &rows[0], rows.shape[0],
                &places[0], &found,
            )
    return made


def gather(
    Heard heard, const int64_t[:, ::1] marks, const int32_t[::1] groups, const int64_t[::1] start,
    bint timed,
):
    """Sources by observation, their times (of length 0 unless ``timed``), and the level from which
    each source is complete at its time."""
    cdef int64_t n = heard.rows
    cdef int64_t observations = start.shape[0] - 1
    if groups.shape[0] != n or marks.shape[0] != heard.count or start[observations] != n:
        raise ValueError(f"numbers, watermarks or places that are not of {n} rows")
    by, times, bands, places = _columns(
        (n, np.int32), (n if timed else 0, np.int64), (n, np.int8), (observations, np.int32)
    )
    places[:] = start[:observations]
    cdef int32_t[::1] next_place = places
    cdef int32_t[::1] to = by
    cdef int8_t[::1] at = bands
    cdef int64_t[::1] stamps = times
    if n:
        with nogil:
            kernels.gather(
                heard.c, heard.count, &marks[0, 0], marks.shape[1], &groups[0], &next_place[0],
                &to[0], &stamps[0] if timed else NULL, &at[0],
            )
    return by, times, bands


def square(
    const int64_t[::1] latest, const int8_t[::1] levels, const uint64_t[::1] histories,
    const double[::1] decayed, const double[::1] units, const int64_t[:, ::1] marks,
    double[:, ::1] cells,
):
    """Add observations, latest first, to the cells of all pairs of sources."""
    cdef int64_t n = latest.shape[0], count = marks.shape[0]
    cdef ds_matched o
    if not n == levels.shape[0] == histories.shape[0] == decayed.shape[0]:
        raise ValueError(f"columns that are not of {n} observations")
    if count > 64 or cells.shape[0] != count * count or cells.shape[1] != DS_AMOUNTS:
        raise ValueError(f"{cells.shape[0]} cells for the pairs of {count} sources")
    if not units.shape[0] == marks.shape[1] <= 64:
        raise ValueError(f"{units.shape[0]} levels of {marks.shape[1]} watermarks")
    if n and np.bitwise_or.reduce(histories) >> count:
        raise ValueError(f"histories that are not of {count} sources")
    if n:
        # The kernel reads these columns only.
        o = ds_matched(
            NULL, NULL, <int64_t *> &latest[0], <int8_t *> &levels[0], NULL,
            <uint64_t *> &histories[0],
        )
        with nogil:
            kernels.square(
                &o, n, &decayed[0], &units[0], &marks[0, 0], marks.shape[1], count,
                <ds_cells> &cells[0, 0],
            )


cdef int64_t _check(
    const int64_t[::1] start, const int32_t[::1] sources, const int8_t[::1] bands,
    const int8_t[::1] levels, const double[::1] units, const double[:, ::1] cells,
    const uint64_t[::1] keys, int bits, int64_t count,
) except -1:
    cdef int64_t n = start.shape[0] - 1
    if n < 0 or levels.shape[0] != n or sources.shape[0] != bands.shape[0]:
        raise ValueError(f"columns that are not of {n} observations")
    if n and start[n] > sources.shape[0]:
        raise ValueError(f"{start[n]} incidences in columns of {sources.shape[0]}")
    cdef int64_t slots = 1 << bits if bits else count * count
    if cells.shape[1] != DS_AMOUNTS or cells.shape[0] != slots or keys.shape[0] != slots:
        raise ValueError(f"{cells.shape[0]} cells for the pairs of {count} sources")
    return n


def overlaps(
    const int64_t[::1] start, const int32_t[::1] sources, const int8_t[::1] bands,
    const double[::1] decayed, const int8_t[::1] levels, const double[::1] units,
    double[:, ::1] cells, uint64_t[::1] keys, int bits, int64_t count, uint64_t salt,
):
    """The same of any number of sources, by incidences; whether there was capacity for every pair."""
    cdef int64_t n = _check(start, sources, bands, levels, units, cells, keys, bits, count)
    cdef ds_incidences by
    cdef ds_pairs pairs
    cdef int done = 1
    if n and sources.shape[0]:
        by = ds_incidences(&start[0], &sources[0], NULL, &bands[0], n)
        pairs = ds_pairs(<ds_cells> &cells[0, 0], &keys[0], bits, count, salt)
        with nogil:
            done = kernels.overlaps(&by, &decayed[0], &levels[0], &units[0], &pairs)
    return bool(done)


def scattered_overlaps(
    const int64_t[::1] start, const int32_t[::1] sources, const int64_t[::1] times,
    const int8_t[::1] bands, const double[::1] decayed, const int8_t[::1] levels,
    const double[::1] units, const int64_t[:, ::1] marks, double[:, ::1] cells,
    uint64_t[::1] keys, int bits, int64_t count, uint64_t salt,
):
    """The same of observations whose duplicates differ in time."""
    cdef int64_t n = _check(start, sources, bands, levels, units, cells, keys, bits, count)
    cdef ds_incidences by
    cdef ds_pairs pairs
    cdef int done = 1
    if times.shape[0] != sources.shape[0] or decayed.shape[0] != sources.shape[0]:
        raise ValueError(f"times or weights that are not of {sources.shape[0]} incidences")
    if n and sources.shape[0]:
        by = ds_incidences(&start[0], &sources[0], &times[0], &bands[0], n)
        pairs = ds_pairs(<ds_cells> &cells[0, 0], &keys[0], bits, count, salt)
        with nogil:
            done = kernels.scattered_overlaps(
                &by, &decayed[0], &levels[0], &units[0], &marks[0, 0], marks.shape[1], &pairs
            )
    return bool(done)
