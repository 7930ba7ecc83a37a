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

    ctypedef struct ds_observations:
        int64_t *ids
        int64_t *weights
        int64_t *latest
        int64_t *earliest
        int64_t *value_keys
        int8_t *levels
        int32_t *degrees

    ctypedef struct ds_lookup:
        uint32_t *slots
        int most_bits
        uint64_t salt
        int64_t max_weight

    ctypedef struct ds_incidences:
        const int64_t *start
        const int32_t *sources
        const int64_t *times
        const int8_t *bands
        int64_t observations

    ctypedef struct ds_sorting:
        uint64_t *keys[2]
        uint32_t *words[2]

    ctypedef struct ds_misses:
        int64_t *shared
        int64_t *alone
        int64_t *longest
        int64_t *next

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
        int64_t (*match)(
            const ds_heard *, int64_t, const ds_lookup *, const ds_observations *, int64_t *,
            int32_t *
        ) noexcept nogil
        void (*lags)(
            const ds_heard *, int64_t, const int64_t *, const int32_t *, int64_t *
        ) noexcept nogil
        void (*gather)(
            const ds_heard *, int64_t, const int64_t *, int64_t, const int32_t *, int64_t *,
            int32_t *, int64_t *, int8_t *
        ) noexcept nogil
        int64_t (*latest_first)(
            const int64_t *, const int8_t *, int64_t, const int64_t *, const ds_sorting *, int64_t *
        ) noexcept nogil
        void (*misses)(
            const ds_incidences *, const int64_t *, int64_t, int64_t, const ds_misses *
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


def match(Heard heard, uint64_t salt, int64_t max_weight):
    """Columns of the distinct observations by number, as `ds_observations` has them, and of each
    row, over all sources, the number of its observation."""
    cdef int64_t n = heard.rows
    cdef int bits = max((<object> (2 * n)).bit_length(), 4)
    cdef int64_t found = 0
    cdef ds_observations o
    if not n < 1 << 30:
        raise ValueError(f"{n} rows; expected fewer than {1 << 30}")
    # One allocation: the ends of each take small pages, whose faults cost as much as the matching.
    memory = np.empty(49 * n, np.uint8)
    made = [memory[8 * n * k : 8 * n * (k + 1)].view(np.int64) for k in range(5)]
    made += [memory[48 * n :].view(np.int8), memory[40 * n : 44 * n].view(np.int32)]
    groups = memory[44 * n : 48 * n].view(np.int32)
    cdef uint32_t[::1] slots = np.empty(1 << bits, np.uint32)
    cdef ds_lookup by = ds_lookup(&slots[0], bits, salt, max_weight)
    cdef int64_t[::1] ids = made[0], weights = made[1], latest = made[2], earliest = made[3]
    cdef int64_t[::1] value_keys = made[4]
    cdef int8_t[::1] levels = made[5]
    cdef int32_t[::1] degrees = made[6], numbers = groups
    cdef int64_t[::1] next_row = np.empty(max(heard.count, 1), np.int64)
    if n:
        o = ds_observations(
            &ids[0], &weights[0], &latest[0], &earliest[0], &value_keys[0], &levels[0], &degrees[0]
        )
        with nogil:
            found = kernels.match(
                heard.c, heard.count, &by, &o, &next_row[0], &numbers[0]
            )
    return tuple(column[:found] for column in made), groups


def lags(Heard heard, const int64_t[::1] latest, const int32_t[::1] groups):
    """Of each source, the longest time by which a row lies before the latest of its duplicates."""
    if groups.shape[0] != heard.rows:
        raise ValueError(f"{groups.shape[0]} numbers of {heard.rows} rows")
    made = np.zeros(heard.count, np.int64)
    cdef int64_t[::1] found = made
    if heard.rows:
        with nogil:
            kernels.lags(heard.c, heard.count, &latest[0], &groups[0], &found[0])
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
    const int64_t[::1] start, const int32_t[::1] sources, const int64_t[::1] rows, int64_t count,
):
    """int64[3, count]: see `ds_misses`. ``rows`` are observations in order of time."""
    cdef int64_t n = start.shape[0] - 1
    cdef ds_incidences by
    cdef ds_misses found
    if n < 0 or start[n] != sources.shape[0]:
        raise ValueError(f"{sources.shape[0]} incidences that are not of {n} observations")
    if rows.shape[0] and not 0 <= np.min(rows) <= np.max(rows) < n:
        raise ValueError(f"rows that are not of {n} observations")
    made = np.zeros((4, count), np.int64)
    cdef int64_t[:, ::1] columns = made
    if count and rows.shape[0]:
        by = ds_incidences(&start[0], &sources[0], NULL, NULL, n)
        found = ds_misses(&columns[0, 0], &columns[1, 0], &columns[2, 0], &columns[3, 0])
        with nogil:
            kernels.misses(&by, &rows[0], rows.shape[0], count, &found)
    return made[:3]


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
    by, bands = np.empty(n, np.int32), np.empty(n, np.int8)
    times = np.empty(n if timed else 0, np.int64)
    cdef int64_t[::1] next_place = np.array(start[:observations], np.int64)
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
    """Add observations to the cells of their pairs; whether there was capacity for every pair."""
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
