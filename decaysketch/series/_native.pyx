"""The kernels of the sample of series over NumPy columns: lengths are checked, values are not."""

from libc.stdint cimport int8_t, int64_t, uint8_t, uint32_t, uint64_t

import numpy as np

cdef extern from "series/series.h" nogil:
    ctypedef struct ds_table:
        int64_t most

    ctypedef struct ds_catalog:
        int64_t *entities
        int64_t *series
        int8_t *shifts
        int8_t *levels
        int64_t count, room
        ds_table index
        uint64_t words[2]
        uint64_t salt

    ctypedef struct ds_samples:
        int64_t *times
        int64_t *starts
        int64_t *keys
        uint32_t *codes
        int8_t *levels

    ctypedef struct ds_series_batch:
        const int64_t *values
        const int64_t *weights
        const int64_t *times
        const int64_t *series
        const int64_t *entities
        const int64_t *starts
        int64_t rows
        int float_bits

    ctypedef struct ds_series_bounds:
        int64_t max_weight, id_limit, time_limit

    ctypedef struct ds_sorting:
        uint64_t *keys[2]
        uint32_t *words[2]

    ctypedef struct ds_series_admission_kernels:
        int (*check)(const ds_series_batch *, const ds_series_bounds *) noexcept nogil
        int64_t (*admit)(
            ds_catalog *, const ds_series_batch *, int64_t, int64_t, const int64_t *,
            const ds_samples *, int64_t
        ) noexcept nogil
        void (*enter)(
            ds_catalog *, const int64_t *, const int8_t *, const int64_t *, int64_t, uint32_t *
        ) noexcept nogil
        int64_t (*append)(
            const ds_samples *, int64_t, const uint32_t *, const int64_t *, const ds_samples *,
            int64_t
        ) noexcept nogil

    ctypedef struct ds_series_compaction_kernels:
        int64_t (*compact)(
            const ds_samples *, int64_t, int64_t, int64_t, int64_t *, int64_t, const ds_sorting *,
            int64_t *, const ds_samples *
        ) noexcept nogil
        void (*arrange)(
            const uint32_t *, int64_t, const int64_t *, int64_t, int64_t *, int64_t *
        ) noexcept nogil

    ctypedef struct ds_series_guard_kernels:
        void (*settle)(
            const int64_t *, const int64_t *, const uint8_t *, int64_t, int64_t, int64_t *,
            int64_t *, int64_t *
        ) noexcept nogil

    const ds_series_admission_kernels *ds_series_admission_at(int level)
    const ds_series_compaction_kernels *ds_series_compaction_at(int level)
    const ds_series_guard_kernels *ds_series_guard_at(int level)
    int ds_level()
    ds_table ds_open_table(uint32_t *slots, int bits, int64_t numbers)
    int ds_table_bits(int64_t slots)
    int DS_SERIES_TOP

cdef const ds_series_admission_kernels *admission = ds_series_admission_at(ds_level())
cdef const ds_series_compaction_kernels *compaction = ds_series_compaction_at(ds_level())
cdef const ds_series_guard_kernels *guards = ds_series_guard_at(ds_level())

TOP = DS_SERIES_TOP
NO_START = -(1 << 63)


cdef class Catalog:
    """The series of a bag, by code; see ``series.h``.

    Args:
        words: two key words of the stream.
        salt: odd, of the process.
    """

    cdef ds_catalog c
    cdef readonly object entities, series, shifts, levels
    cdef object slots

    def __init__(self, uint64_t first, uint64_t second, uint64_t salt):
        self.c.words[0], self.c.words[1], self.c.salt = first, second, salt | 1
        self._move(0, 64)

    def __len__(self):
        return self.c.count

    @property
    def nbytes(self):
        return sum(each.nbytes for each in (
            self.entities, self.series, self.shifts, self.levels, self.slots
        ))

    def reserve(self, int64_t more):
        """Room for so many series more. Amortised O(1) for each of them."""
        if self.c.count + more > self.c.room:
            self._move(self.c.count, max(self.c.count + more, 2 * self.c.room))

    def _move(self, int64_t count, int64_t room):
        """Have the first so many series in other columns."""
        columns = [
            np.empty(room, kind) for kind in (np.int64, np.int64, np.int8, np.int8)
        ]
        if count:
            for to, column in zip(
                columns, (self.entities, self.series, self.shifts, self.levels)
            ):
                to[:count] = column[:count]
        self._have(columns, count)

    def keep(self, chosen):
        """Forget all series but those of a mask, bool[len]; they keep their order. O(series)."""
        old = (self.entities, self.series, self.shifts, self.levels)
        columns = [column[: self.c.count][chosen] for column in old]
        cdef int64_t count = len(columns[0])
        self._have([np.resize(each, max(64, count)) for each in columns], count)

    cdef _have(self, columns, int64_t count):
        cdef int64_t room = len(columns[0])
        cdef int bits = ds_table_bits(2 * room)
        slots = np.empty(1 << bits, np.uint32)
        entities, series, shifts, levels = columns
        cdef int64_t[::1] e = entities
        cdef int64_t[::1] s = series
        cdef int8_t[::1] w = shifts
        cdef int8_t[::1] l = levels
        cdef uint32_t[::1] at = slots
        codes = np.empty(max(count, 1), np.uint32)
        cdef uint32_t[::1] to = codes
        self.c.entities, self.c.series, self.c.shifts, self.c.levels = &e[0], &s[0], &w[0], &l[0]
        self.c.index = ds_open_table(&at[0], bits, room)
        self.c.room, self.c.count = room, 0
        # Entered again, in order: each writes what it reads.
        with nogil:
            admission.enter(&self.c, &e[0], &w[0], &s[0], count, &to[0])
        self.entities, self.series, self.shifts, self.levels = entities, series, shifts, levels
        self.slots = slots

    def enter(
        self, const int64_t[::1] entities, const int8_t[::1] shifts, const int64_t[::1] series
    ):
        """uint32[n]: codes of series, which are entered where they are new."""
        cdef int64_t n = series.shape[0]
        if entities.shape[0] != n or shifts.shape[0] != n:
            raise ValueError("columns of unequal lengths")
        self.reserve(n)
        codes = np.empty(n, np.uint32)
        cdef uint32_t[::1] to = codes
        if n:
            with nogil:
                admission.enter(&self.c, &entities[0], &shifts[0], &series[0], n, &to[0])
        return codes


cdef const int64_t *_column(const int64_t[::1] column, int64_t rows) except? NULL:
    if column is None:
        return NULL
    if column.shape[0] != rows:
        raise ValueError(f"columns of {column.shape[0]} and {rows} rows")
    return &column[0] if rows else NULL


cdef class Batch:
    """Columns of a batch. Weights, entities and starts may be None; see ``series.h``."""

    cdef ds_series_batch c
    cdef object held

    def __init__(
        self, const int64_t[::1] values, bint float_bits, const int64_t[::1] weights,
        const int64_t[::1] times, const int64_t[::1] series, const int64_t[::1] entities=None,
        const int64_t[::1] starts=None,
    ):
        cdef int64_t n = times.shape[0]
        self.c.rows, self.c.float_bits = n, float_bits
        self.c.values, self.c.weights = _column(values, n), _column(weights, n)
        self.c.times, self.c.series = _column(times, n), _column(series, n)
        self.c.entities, self.c.starts = _column(entities, n), _column(starts, n)
        self.held = values, weights, times, series, entities, starts

    def __len__(self):
        return self.c.rows

    def check(self, int64_t max_weight, int64_t id_limit, int64_t time_limit):
        """Whether every row is within its bounds."""
        cdef ds_series_bounds of = ds_series_bounds(max_weight, id_limit, time_limit)
        cdef int sound
        with nogil:
            sound = admission.check(&self.c, &of)
        return bool(sound)


cdef ds_samples _source(bag, int64_t rows) except *:
    """Columns to be read, which may be read-only; whoever calls holds the bag."""
    cdef const int64_t[::1] times, starts, keys
    cdef const uint32_t[::1] codes
    cdef const int8_t[::1] levels
    cdef ds_samples c = ds_samples(NULL, NULL, NULL, NULL, NULL)
    times, starts, keys, codes, levels = bag
    cdef int64_t room = min(
        times.shape[0], starts.shape[0], keys.shape[0], codes.shape[0], levels.shape[0]
    )
    if not 0 <= rows <= room:
        raise ValueError(f"{rows} rows in columns of {room}")
    if room:
        c.times, c.starts, c.keys = <int64_t *> &times[0], <int64_t *> &starts[0], <int64_t *> &keys[0]
        c.codes, c.levels = <uint32_t *> &codes[0], <int8_t *> &levels[0]
    return c


cdef ds_samples _room(bag, int64_t rows) except *:
    """Columns to be written, with room for so many rows."""
    for column in bag:
        if not column.flags.writeable:
            raise ValueError("a column is read-only")
    return _source(bag, rows)


cdef _check_marks(const int64_t[::1] marks):
    if marks.shape[0] != DS_SERIES_TOP + 1:
        raise ValueError(f"{marks.shape[0]} watermarks; expected {DS_SERIES_TOP + 1}")


def admit(
    Catalog catalog, Batch batch, int64_t first, int64_t last, const int64_t[::1] marks, bag,
    int64_t held,
):
    """Append rows of a batch that is checked; how many rows the bag has then.

    The bag has room for all of them and one to spare.
    """
    if not 0 <= first <= last <= batch.c.rows:
        raise ValueError(f"rows {first} to {last} of {batch.c.rows}")
    _check_marks(marks)
    cdef ds_samples out = _room(bag, held + last - first + 1)
    catalog.reserve(last - first)
    with nogil:
        held = admission.admit(&catalog.c, &batch.c, first, last, &marks[0], &out, held)
    return held


def append(
    other, int64_t rows, const uint32_t[::1] codes, const int64_t[::1] marks, bag, int64_t held
):
    """Append rows of another bag, whose codes map to those of this one; how many it has then."""
    _check_marks(marks)
    cdef ds_samples source = _source(other, rows)
    cdef ds_samples out = _room(bag, held + rows + 1)
    if rows:
        with nogil:
            held = admission.append(&source, rows, &codes[0], &marks[0], &out, held)
    return held


def compact(
    bag, int64_t rows, int64_t series, int64_t resolution, int64_t[::1] marks, int64_t capacity,
    uint64_t[:, ::1] keys, uint32_t[:, ::1] words, out,
):
    """Write the rows that stay into other columns, latest first; how many they are.

    Args:
        bag, rows: columns, and how many rows they have.
        series: how many codes there are.
        resolution, marks, capacity: see ``compaction.c``; the marks are raised.
        keys, words: room for as many rows, twice.
        out: columns for as many rows.
    """
    cdef ds_samples source = _source(bag, rows)
    cdef ds_samples to = _room(out, rows)
    cdef ds_sorting sorting
    _check_marks(marks)
    if keys.shape[0] != 2 or words.shape[0] != 2 or min(keys.shape[1], words.shape[1]) < rows:
        raise ValueError(f"room to sort {keys.shape[1]} rows; expected {rows}")
    if not rows:
        return 0
    sorting.keys[0], sorting.keys[1] = &keys[0, 0], &keys[1, 0]
    sorting.words[0], sorting.words[1] = &words[0, 0], &words[1, 0]
    latest = np.empty(max(series, 1), np.int64)
    cdef int64_t[::1] of = latest
    cdef int64_t kept
    with nogil:
        kept = compaction.compact(
            &source, rows, series, resolution, &marks[0], capacity, &sorting, &of[0], &to
        )
    return kept


def arrange(const uint32_t[::1] codes, const int64_t[::1] ranks):
    """int64[n]: the order of rows, which stand latest first, by rank of their series, then time."""
    cdef int64_t n = codes.shape[0], series = ranks.shape[0]
    order, places = np.empty(n, np.int64), np.empty(max(series, 1), np.int64)
    cdef int64_t[::1] to = order
    cdef int64_t[::1] at = places
    if n:
        with nogil:
            compaction.arrange(&codes[0], n, &ranks[0], series, &at[0], &to[0])
    return order


def settle(
    const int64_t[::1] keys, const int64_t[::1] times, const uint8_t[::1] begins, int64_t guard
):
    """int64[n]: value keys of counters without the falls that clocks make; see ``guard.c``."""
    cdef int64_t n = keys.shape[0]
    if times.shape[0] != n or begins.shape[0] != n:
        raise ValueError("columns of unequal lengths")
    settled, room = np.empty(n, np.int64), np.empty((2, max(n, 1)), np.int64)
    cdef int64_t[::1] to = settled
    cdef int64_t[:, ::1] scratch = room
    if n:
        with nogil:
            guards.settle(
                &keys[0], &times[0], &begins[0], n, guard, &scratch[0, 0], &scratch[1, 0], &to[0]
            )
    return settled
