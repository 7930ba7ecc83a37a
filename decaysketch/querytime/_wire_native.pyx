"""Family 1, many sketches written into one buffer and read from one: `wire.c` over NumPy columns."""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc

from decaysketch.core.codec._native cimport (
    columns_of, ds_limits, ds_reading_words, ds_rows, limits_of,
)
from decaysketch.minhit._native cimport Hash, ds_hash

cdef extern from "querytime/wire.h" nogil:
    ctypedef struct ds_stream:
        ds_limits limits
        int64_t capacity
        int plausible

    ctypedef struct ds_sketches:
        int64_t count
        const int64_t *offsets
        ds_rows rows
        const int64_t *mark_offsets
        const int64_t *marks

    ctypedef struct ds_heads:
        int64_t *rows
        int64_t *first_time
        int64_t *columns_at
        int64_t *mark_offsets
        int64_t *marks

    ctypedef struct ds_wire_kernels:
        void (*encode)(
            const ds_sketches *, int, const uint8_t *, int64_t, uint8_t *, int64_t *
        ) noexcept nogil
        void (*read_heads)(
            const uint8_t *, const int64_t *, int64_t, const uint8_t *, int64_t, int,
            const ds_heads *
        ) noexcept nogil
        int64_t (*read)(
            const ds_stream *, const ds_hash *, const uint8_t *, int64_t, int64_t, int64_t,
            const int64_t *, int64_t, const ds_rows *, int8_t *, uint32_t *
        ) noexcept nogil
        void (*read_many)(
            const ds_stream *, const ds_hash *, const uint8_t *, const int64_t *, int64_t,
            const ds_heads *, const ds_rows *, int8_t *, uint32_t *, int64_t *
        ) noexcept nogil
        void (*digest_inputs)(const ds_sketches *, int64_t, int64_t *) noexcept nogil
        void (*join_marks)(
            const int32_t *, int64_t, const int64_t *, const int64_t *, int64_t, int64_t *
        ) noexcept nogil

    const ds_wire_kernels *ds_wire_at(int level)
    int64_t ds_room(const ds_sketches *, int64_t)
    int ds_level()

cdef const ds_wire_kernels *kernels = ds_wire_at(ds_level())


cdef class Stream:
    """What sketches of a stream may hold, and the hash function of one copy. Immutable."""

    cdef ds_stream c
    cdef Hash hash

    def __cinit__(
        self, Hash hash not None, *, int64_t max_weight, int64_t capacity, bint floats,
        bint plausible,
    ):
        self.c.limits = limits_of(hash.c.id_bits, max_weight, floats)
        self.c.capacity, self.c.plausible = capacity, plausible
        self.hash = hash


cdef const int64_t *_first(const int64_t[::1] numbers) noexcept nogil:
    return &numbers[0] if numbers.shape[0] else NULL


cdef int _check(bint good, str what) except -1:
    if not good:
        raise ValueError(what)
    return 0


cdef ds_sketches _sketches(
    const int64_t[::1] offsets, const int64_t[::1] times, const int64_t[::1] ids,
    const int64_t[::1] weights, const int64_t[::1] values, const int64_t[::1] mark_offsets,
    const int64_t[::1] marks,
) except *:
    cdef ds_sketches found
    found.rows = columns_of(times, ids, weights, values)
    found.count = offsets.shape[0] - 1
    _check(found.count >= 0 and mark_offsets.shape[0] == offsets.shape[0], "offsets")
    _check(offsets[found.count] <= times.shape[0], "rows")
    _check(mark_offsets[found.count] <= marks.shape[0], "watermarks")
    found.offsets, found.mark_offsets = _first(offsets), _first(mark_offsets)
    found.marks = _first(marks)
    return found


def room(
    const int64_t[::1] offsets, const int64_t[::1] times, const int64_t[::1] ids,
    const int64_t[::1] weights, const int64_t[::1] values, const int64_t[::1] mark_offsets,
    const int64_t[::1] marks, *, int64_t prefix_bytes,
):
    """Bytes that no encoding of these sketches exceeds."""
    cdef ds_sketches sketches = _sketches(
        offsets, times, ids, weights, values, mark_offsets, marks
    )
    return ds_room(&sketches, prefix_bytes)


def encode(
    const int64_t[::1] offsets, const int64_t[::1] times, const int64_t[::1] ids,
    const int64_t[::1] weights, const int64_t[::1] values, const int64_t[::1] mark_offsets,
    const int64_t[::1] marks, *, const uint8_t[::1] prefix not None, bint floats,
    uint8_t[::1] out not None, int64_t[::1] out_offsets not None,
):
    """Bodies of all sketches, each with room for its checksum behind it."""
    cdef ds_sketches sketches = _sketches(
        offsets, times, ids, weights, values, mark_offsets, marks
    )
    cdef int64_t prefix_bytes = prefix.shape[0]
    _check(out.shape[0] >= ds_room(&sketches, prefix_bytes), "room")
    _check(out_offsets.shape[0] == sketches.count + 1 and prefix_bytes > 0, "offsets")
    with nogil:
        kernels.encode(&sketches, floats, &prefix[0], prefix_bytes, &out[0], &out_offsets[0])


def digest_inputs(
    const int64_t[::1] offsets, const int64_t[::1] times, const int64_t[::1] ids,
    const int64_t[::1] weights, const int64_t[::1] values, const int64_t[::1] mark_offsets,
    const int64_t[::1] marks, *, int64_t levels, int64_t[::1] out not None,
):
    """What `state.digest_of` hashes behind the parameters, of all sketches, end to end."""
    cdef ds_sketches sketches = _sketches(
        offsets, times, ids, weights, values, mark_offsets, marks
    )
    cdef int64_t needed = sketches.count * (1 + levels)
    needed += 4 * (offsets[sketches.count] - offsets[0])
    _check(out.shape[0] == needed, "room")
    if needed:
        with nogil:
            kernels.digest_inputs(&sketches, levels, &out[0])


def join_marks(
    const int32_t[::1] keys not None, const int64_t[::1] mark_offsets not None,
    const int64_t[::1] marks not None, int64_t[:, ::1] joined not None,
):
    """joined[k, i] = the latest watermark of level i of the sketches of key k."""
    cdef int64_t count = keys.shape[0]
    _check(mark_offsets.shape[0] == count + 1, "offsets")
    if count and marks.shape[0] and joined.shape[0]:
        with nogil:
            kernels.join_marks(
                &keys[0], count, &mark_offsets[0], &marks[0], joined.shape[1], &joined[0, 0]
            )


cdef int64_t _blobs(const uint8_t[::1] data, const int64_t[::1] offsets) except -1:
    cdef int64_t count = offsets.shape[0] - 1
    _check(count >= 0 and 0 <= offsets[0] and offsets[count] <= data.shape[0], "offsets")
    return count


def read_heads(
    const uint8_t[::1] data not None, const int64_t[::1] offsets not None, *,
    const uint8_t[::1] prefix not None, int top, int64_t[::1] rows not None,
    int64_t[::1] first_times not None, int64_t[::1] columns_at not None,
    int64_t[::1] mark_offsets not None, int64_t[::1] marks not None,
):
    """What stands in front of the columns of each sketch; -1 rows where it is not simple.

    `marks` has room for one of each byte of `data`.
    """
    cdef int64_t count = _blobs(data, offsets), prefix_bytes = prefix.shape[0]
    _check(count == rows.shape[0] == first_times.shape[0] == columns_at.shape[0], "heads")
    _check(mark_offsets.shape[0] == count + 1 and marks.shape[0] >= data.shape[0], "watermarks")
    mark_offsets[0] = 0
    if not (count and data.shape[0] and prefix_bytes):
        return
    cdef ds_heads heads = ds_heads(
        &rows[0], &first_times[0], &columns_at[0], &mark_offsets[0], &marks[0]
    )
    with nogil:
        kernels.read_heads(
            &data[0], &offsets[0], count, &prefix[0], prefix_bytes, top, &heads
        )


def read_many(
    Stream stream not None, const uint8_t[::1] data not None, const int64_t[::1] offsets not None,
    *, int64_t[::1] rows not None, int64_t[::1] first_times not None,
    int64_t[::1] columns_at not None, int64_t[::1] mark_offsets not None,
    int64_t[::1] marks not None, int64_t[::1] times not None, int64_t[::1] ids not None,
    int64_t[::1] weights not None, int64_t[::1] values not None,
    int64_t[::1] out_offsets not None,
):
    """Rows of the sketches with `rows >= 0`, end to end; -1 rows where one is not flawless."""
    cdef int64_t count = _blobs(data, offsets), longest = 0, total = 0, k
    cdef ds_rows columns = columns_of(times, ids, weights, values)
    _check(count == rows.shape[0] == first_times.shape[0] == columns_at.shape[0], "heads")
    _check(mark_offsets.shape[0] == out_offsets.shape[0] == count + 1, "offsets")
    for k in range(count):
        total += max(rows[k], 0)
        longest = max(longest, rows[k])
    _check(total <= times.shape[0] and mark_offsets[count] <= marks.shape[0], "room")
    out_offsets[0] = 0
    if not (count and data.shape[0]):
        return
    cdef ds_heads heads = ds_heads(
        &rows[0], &first_times[0], &columns_at[0], &mark_offsets[0], <int64_t *> _first(marks)
    )
    cdef int8_t *levels = <int8_t *> malloc(longest + 1)
    cdef uint32_t *scratch = <uint32_t *> malloc(ds_reading_words(longest) * sizeof(uint32_t))
    try:
        if levels == NULL or scratch == NULL:
            raise MemoryError
        with nogil:
            kernels.read_many(
                &stream.c, &stream.hash.c, &data[0], &offsets[0], count, &heads, &columns,
                levels, scratch, &out_offsets[0],
            )
    finally:
        free(levels)
        free(scratch)


def read(
    Stream stream not None, const uint8_t[::1] data not None, int64_t start, int64_t stop, *,
    int64_t first_time, const int64_t[::1] marks not None, int64_t[::1] times not None,
    int64_t[::1] ids not None, int64_t[::1] weights not None, int64_t[::1] values not None,
    int8_t[::1] levels not None,
):
    """Rows of one sketch, and their levels, with all that is checked of a state.

    Returns the end of their bytes, or -1 where one of them is not flawless beyond doubt.
    """
    cdef int64_t n = times.shape[0], taken
    cdef ds_rows columns = columns_of(times, ids, weights, values)
    _check(0 <= start <= stop <= data.shape[0] > 0, "bytes")
    _check(n > 0 and n == levels.shape[0], "rows")
    cdef uint32_t *scratch = <uint32_t *> malloc(ds_reading_words(n) * sizeof(uint32_t))
    if scratch == NULL:
        raise MemoryError
    with nogil:
        taken = kernels.read(
            &stream.c, &stream.hash.c, &data[0] + start, stop - start, n, first_time,
            _first(marks), marks.shape[0], &columns, &levels[0], scratch,
        )
        free(scratch)
    return start + taken if taken >= 0 else -1
