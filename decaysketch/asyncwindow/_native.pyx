"""The kernels of the samplers, `admission.c` and `compaction.c`, over NumPy columns."""

from libc.stdint cimport int8_t, int64_t, uint16_t, uint32_t, uint64_t

cdef extern from "<stdbool.h>" nogil:
    ctypedef bint bool

cdef extern from "asyncwindow/asyncwindow.h" nogil:
    enum:
        DS_LEVEL_ROOM
        DS_BUCKET_BITS
        DS_MAX_ROWS

    ctypedef struct ds_elements:
        int64_t *values
        int64_t *times
        uint64_t *keys
        int8_t *levels

    ctypedef struct ds_stream:
        int64_t lowest, highest, time_limit, levels, first_nested
        bool weighted

    ctypedef struct ds_batch:
        const int64_t *values
        const int64_t *times
        const uint64_t *words
        const uint64_t *sequence
        uint64_t first_number
        int64_t rows
        bool one_word, float_values

    ctypedef struct ds_admitted:
        bool refused
        int64_t next, rows, zeros, late

    ctypedef struct ds_sorting:
        uint64_t *keys[2]
        uint32_t *words[2]

    ctypedef struct ds_workspace:
        ds_sorting sorting
        uint32_t *rows
        uint16_t *buckets
        uint32_t *slots
        uint32_t *counts

    ctypedef struct ds_compacted:
        int64_t rows
        bool many_copies

    ctypedef struct ds_window_admission_kernels:
        void (*keys)(
            const uint64_t *, bool, const uint64_t *, int64_t, uint64_t *
        ) noexcept nogil
        void (*top_levels)(
            const int64_t *, const uint64_t *, bool, int64_t, int64_t, int8_t *
        ) noexcept nogil
        bool (*in_bounds)(const ds_stream *, const ds_batch *) noexcept nogil
        ds_admitted (*admit)(
            const ds_stream *, const ds_batch *, int64_t, const int64_t *, int64_t,
            const ds_elements *, int64_t, int64_t
        ) noexcept nogil
        int64_t (*append)(
            const ds_elements *, int64_t, const int64_t *, const ds_elements *, int64_t
        ) noexcept nogil

    ctypedef struct ds_window_compaction_kernels:
        ds_compacted (*compact)(
            const ds_stream *, const ds_elements *, int64_t, int64_t, int64_t, int64_t *,
            const uint64_t *, const ds_workspace *
        ) noexcept nogil
        void (*arrange)(
            const ds_elements *, int64_t, bool, bool, const ds_sorting *, const ds_elements *
        ) noexcept nogil

    const ds_window_admission_kernels *ds_window_admission_at(int level)
    const ds_window_compaction_kernels *ds_window_compaction_at(int level)
    int ds_level()

cdef const ds_window_admission_kernels *admission = ds_window_admission_at(ds_level())
cdef const ds_window_compaction_kernels *compaction = ds_window_compaction_at(ds_level())

MAX_ROWS = DS_MAX_ROWS
BUCKETS = 1 << DS_BUCKET_BITS


cdef class Stream:
    """What all samplers of a stream share. Immutable."""

    cdef ds_stream c

    def __cinit__(
        self, *, bint weighted, int64_t lowest, int64_t highest, int64_t time_limit, int64_t levels,
        int64_t first_nested,
    ):
        if not 0 <= first_nested <= levels < DS_LEVEL_ROOM - 1:
            raise ValueError(f"levels 0..{levels}, nested from {first_nested} on")
        self.c = ds_stream(lowest, highest, time_limit, levels, first_nested, weighted)


cdef int64_t _rows(int64_t first, int64_t second) except -1:
    if first != second:
        raise ValueError(f"columns of {first} and {second} rows")
    return first


cdef ds_elements _elements(
    const int64_t[::1] values, const int64_t[::1] times, const uint64_t[::1] keys,
    const int8_t[::1] levels, int64_t rows,
) except *:
    cdef int64_t room = _rows(values.shape[0], _rows(times.shape[0], keys.shape[0]))
    cdef ds_elements c = ds_elements(NULL, NULL, NULL, NULL)
    if not 0 <= rows <= _rows(room, levels.shape[0]):
        raise ValueError(f"{rows} rows in columns of {room}")
    if room:
        c.values, c.times = <int64_t *> &values[0], <int64_t *> &times[0]
        c.keys, c.levels = <uint64_t *> &keys[0], <int8_t *> &levels[0]
    return c


cdef int _check_marks(Stream stream, const int64_t[::1] marks) except -1:
    _rows(stream.c.levels + 1, marks.shape[0])


cdef ds_sorting _sorting(uint64_t[:, ::1] keys, uint32_t[:, ::1] words, int64_t rows) except *:
    cdef ds_sorting c
    if keys.shape[0] != 2 or words.shape[0] != 2:
        raise ValueError(f"{keys.shape[0]} and {words.shape[0]} columns to sort in")
    if _rows(keys.shape[1], words.shape[1]) < rows or rows > DS_MAX_ROWS:
        raise ValueError(f"room for {keys.shape[1]} of {rows} rows")
    if rows:
        c.keys[0], c.keys[1] = &keys[0, 0], &keys[1, 0]
        c.words[0], c.words[1] = &words[0, 0], &words[1, 0]
    return c


def element_keys(
    const uint64_t[::1] words, const uint64_t[::1] sequence, uint64_t[::1] keys
):
    """keys[k] = key of (the source of words[k], sequence[k]); one word serves all rows."""
    cdef int64_t n = _rows(sequence.shape[0], keys.shape[0])
    cdef bint one_word = words.shape[0] == 1
    if n:
        _rows(1 if one_word else n, words.shape[0])
        with nogil:
            admission.keys(&words[0], one_word, &sequence[0], n, &keys[0])


def top_levels(
    const int64_t[::1] values, const uint64_t[::1] keys, bint weighted, int64_t levels,
    int8_t[::1] out,
):
    """out[k] = top level; values are at least 1 where they are weights."""
    cdef int64_t n = _rows(_rows(values.shape[0], keys.shape[0]), out.shape[0])
    if n:
        with nogil:
            admission.top_levels(&values[0], &keys[0], weighted, levels, n, &out[0])


cdef ds_batch _batch(
    const int64_t[::1] values, bint float_values, const int64_t[::1] times,
    const uint64_t[::1] words, const uint64_t[::1] sequence, uint64_t first_number,
) except *:
    cdef ds_batch c
    c.rows = _rows(values.shape[0], times.shape[0])
    c.one_word, c.float_values = words.shape[0] == 1, float_values
    if c.rows == 0:
        raise ValueError("a batch of no rows")
    _rows(1 if c.one_word else c.rows, words.shape[0])
    c.values, c.times, c.words = &values[0], &times[0], &words[0]
    c.sequence, c.first_number = NULL, first_number
    if sequence is not None:
        _rows(c.rows, sequence.shape[0])
        c.sequence = &sequence[0]
    return c


def in_bounds(
    Stream stream not None, const int64_t[::1] values, bint float_values,
    const int64_t[::1] times, const uint64_t[::1] words, const uint64_t[::1] sequence,
    uint64_t first_number,
):
    """Whether all values and times of a batch are; arguments as of `admit`."""
    cdef ds_batch batch = _batch(values, float_values, times, words, sequence, first_number)
    cdef bint good
    with nogil:
        good = admission.in_bounds(&stream.c, &batch)
    return good


def admit(
    Stream stream not None, const int64_t[::1] values, bint float_values,
    const int64_t[::1] times, const uint64_t[::1] words, const uint64_t[::1] sequence,
    uint64_t first_number, int64_t start, const int64_t[::1] marks, int64_t floor,
    int64_t[::1] to_values, int64_t[::1] to_times, uint64_t[::1] to_keys, int8_t[::1] to_levels,
    int64_t rows,
):
    """Append what a bag takes of a batch from row `start` on, while there is room.

    Values are value keys, or the bits of float64. One word serves all rows; None as sequence
    numbers them from first_number on. Returns (row to go on from, rows of the bag, rows of value 0,
    rows not later than the floor), or None where a row is out of bounds.
    """
    cdef ds_elements bag = _elements(to_values, to_times, to_keys, to_levels, rows)
    cdef ds_batch batch = _batch(values, float_values, times, words, sequence, first_number)
    cdef int64_t room = to_times.shape[0]
    cdef ds_admitted done
    _check_marks(stream, marks)
    if not 0 <= start < batch.rows:
        raise ValueError(f"row {start} of {batch.rows}")
    with nogil:
        done = admission.admit(&stream.c, &batch, start, &marks[0], floor, &bag, rows, room)
    return None if done.refused else (done.next, done.rows, done.zeros, done.late)


def append(
    Stream stream not None, const int64_t[::1] values, const int64_t[::1] times,
    const uint64_t[::1] keys, const int8_t[::1] levels, int64_t n, const int64_t[::1] marks,
    int64_t[::1] to_values, int64_t[::1] to_times, uint64_t[::1] to_keys, int8_t[::1] to_levels,
    int64_t rows,
):
    """Append the first n rows of other columns that are later than the watermark of their level, to
    columns with room for one row more; returns the new number of rows."""
    cdef ds_elements source = _elements(values, times, keys, levels, n)
    cdef ds_elements bag = _elements(to_values, to_times, to_keys, to_levels, rows + n + 1)
    _check_marks(stream, marks)
    with nogil:
        rows = admission.append(&source, n, &marks[0], &bag, rows)
    return rows


def slots_for(rows):
    """Slots of the table of so many rows."""
    return 1 << (2 * rows + 2).bit_length()


def compact(
    Stream stream not None, int64_t[::1] values, int64_t[::1] times, uint64_t[::1] keys,
    int8_t[::1] levels, int64_t n, int64_t capacity, int64_t spare, int64_t[::1] marks, salts,
    uint64_t[:, ::1] ages, uint32_t[:, ::1] words, uint32_t[::1] rows, uint16_t[::1] buckets,
    uint32_t[::1] counts, uint32_t[::1] slots,
):
    """Keep of the first n rows those that the state has, in place; raise the watermarks.

    Returns (how many there are, whether there were too many copies for `spare`, which is how many
    rows of a level are looked at).
    """
    cdef ds_elements bag = _elements(values, times, keys, levels, n)
    cdef uint64_t[2] odd = salts
    cdef ds_workspace work
    cdef ds_compacted done
    _check_marks(stream, marks)
    if n == 0:
        return 0, False
    if not 0 < capacity <= spare:
        raise ValueError(f"a capacity of {capacity}, and {spare} with copies")
    if _rows(rows.shape[0], buckets.shape[0]) < n or slots.shape[0] < slots_for(n):
        raise ValueError(f"room for {rows.shape[0]} rows and {slots.shape[0]} slots")
    if counts.shape[0] < marks.shape[0] << DS_BUCKET_BITS:
        raise ValueError(f"{counts.shape[0]} counts for {marks.shape[0]} levels")
    work.sorting = _sorting(ages, words, n)
    work.rows, work.buckets = &rows[0], &buckets[0]
    work.counts, work.slots = &counts[0], &slots[0]
    with nogil:
        done = compaction.compact(
            &stream.c, &bag, n, capacity, spare, &marks[0], odd, &work
        )
    return done.rows, done.many_copies


def arrange(
    const int64_t[::1] values, const int64_t[::1] times, const uint64_t[::1] keys,
    const int8_t[::1] levels, bint canonical, bint weighted, uint64_t[:, ::1] ages,
    uint32_t[:, ::1] words, int64_t[::1] to_values, int64_t[::1] to_times, uint64_t[::1] to_keys,
    int8_t[::1] to_levels,
):
    """Fill columns with the first rows of others by time, latest first: ties in the order that they
    are in, or (canonical) by key, then value, descending too."""
    cdef int64_t n = to_times.shape[0]
    cdef ds_elements bag = _elements(values, times, keys, levels, n)
    cdef ds_elements out = _elements(to_values, to_times, to_keys, to_levels, n)
    cdef ds_sorting sorting = _sorting(ages, words, n)
    if n:
        with nogil:
            compaction.arrange(&bag, n, canonical, weighted, &sorting, &out)
