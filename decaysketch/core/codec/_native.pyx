"""Rows as bit-packed columns, and back, and texts: `bitpack.c`, `rows.c` and `texts.c`."""

import secrets

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

cdef extern from "core/codec/bitpack.h" nogil:
    ctypedef struct ds_outcome:
        int64_t code, start, column, found, limit, bits

    ctypedef struct ds_unpacker:
        pass

    ctypedef struct ds_bitpack_kernels:
        int64_t (*pack)(const ds_rows *, int64_t, int, int, uint8_t *) noexcept nogil
        ds_outcome (*scan)(const uint8_t *, int64_t, int64_t, int) noexcept nogil
        void (*open)(ds_unpacker *, const uint8_t *, int64_t, int64_t, int) noexcept nogil
        int (*next)(ds_unpacker *, int64_t, const ds_rows *, int64_t) noexcept nogil
        int64_t (*pack_values)(const int64_t *, int64_t, int, uint8_t *) noexcept nogil
        int64_t (*read_values)(
            const uint8_t *, int64_t, int64_t, int, int64_t *
        ) noexcept nogil

    const ds_bitpack_kernels *ds_bitpack_at(int level)
    int64_t ds_packed_room(int64_t n)
    int DS_ROW_BLOCK, DS_OK, DS_PAST_END, DS_WIDTH_TOO_LARGE, DS_TOO_FEW_BITS

cdef extern from "core/codec/rows.h" nogil:
    ctypedef struct ds_row_kernels:
        int64_t (*read)(
            const ds_limits *, const uint8_t *, int64_t, int64_t, int64_t, const ds_rows *,
            uint32_t *
        ) noexcept nogil
        int64_t (*first_out_of_order)(const ds_rows *, int64_t) noexcept nogil

    const ds_row_kernels *ds_row_at(int level)
    int ds_level()

cdef extern from "core/codec/texts.h" nogil:
    ctypedef struct ds_text_kernels:
        int64_t (*front_code)(
            const uint8_t *, const int64_t *, const int64_t *, int64_t, uint8_t *
        ) noexcept nogil

    const ds_text_kernels *ds_text_at(int level)
    int64_t ds_varint_bytes(uint64_t number)

cdef const ds_text_kernels *of_texts = ds_text_at(ds_level())
cdef const ds_bitpack_kernels *bitpack = ds_bitpack_at(ds_level())
cdef const ds_row_kernels *kernels = ds_row_at(ds_level())
cdef uint64_t salt = secrets.randbits(64) | 1  # of tables that are fed from the network

OK = DS_OK
PAST_END = DS_PAST_END
WIDTH_TOO_LARGE = DS_WIDTH_TOO_LARGE
TOO_FEW_BITS = DS_TOO_FEW_BITS


cdef ds_rows columns_of(
    const int64_t[::1] times, const int64_t[::1] ids, const int64_t[::1] weights,
    const int64_t[::1] values,
) except *:
    cdef ds_rows rows
    cdef int64_t n = times.shape[0]
    if not (n == ids.shape[0] == weights.shape[0] == values.shape[0]):
        raise ValueError(
            f"columns of {n}, {ids.shape[0]}, {weights.shape[0]} and {values.shape[0]} rows"
        )
    rows.times = rows.ids = rows.weights = rows.values = NULL
    if n:
        rows.times, rows.ids = <int64_t *> &times[0], <int64_t *> &ids[0]
        rows.weights, rows.values = <int64_t *> &weights[0], <int64_t *> &values[0]
    return rows


cdef ds_limits limits_of(int id_bits, int64_t max_weight, bint floats) except *:
    cdef ds_limits limits
    if not (0 <= id_bits <= 56 and 1 <= max_weight <= (1LL << 61) >> id_bits):
        raise ValueError(f"id_bits {id_bits} or max_weight {max_weight} is out of range")
    limits.ids, limits.max_weight = 1LL << id_bits, max_weight
    limits.floats, limits.salt = floats, salt
    return limits


cdef int64_t _part(const uint8_t[::1] data, int64_t start, int64_t stop) except -1:
    if not 0 <= start <= stop <= data.shape[0]:
        raise ValueError(f"bytes {start} to {stop} of {data.shape[0]}")
    return stop - start


def pack_rows(
    const int64_t[::1] times, const int64_t[::1] ids, const int64_t[::1] weights,
    const int64_t[::1] values, bint floats, bint divides,
):
    """The packed columns of rows in canonical order, padded to a whole byte.

    Without ``divides`` as releases wrote them that did not divide times.
    """
    cdef ds_rows rows = columns_of(times, ids, weights, values)
    cdef int64_t n = times.shape[0], size
    cdef uint8_t *packed = <uint8_t *> malloc(ds_packed_room(n))
    if packed == NULL:
        raise MemoryError
    try:
        with nogil:
            size = bitpack.pack(&rows, n, floats, divides, packed)
        return PyBytes_FromStringAndSize(<const char *> packed, size)
    finally:
        free(packed)


def scan_rows(const uint8_t[::1] data not None, int64_t start, int64_t stop, int64_t n, bint floats):
    """Walk the headers of n packed rows: ((code, row, column, found, limit), bits)."""
    cdef int64_t size = _part(data, start, stop)
    cdef ds_outcome found
    cdef const uint8_t *first = &data[0] + start if size else NULL
    with nogil:
        found = bitpack.scan(first, size, n, floats)
    return (found.code, found.start, found.column, found.found, found.limit), found.bits


def unpack_rows(
    const uint8_t[::1] data not None, int64_t start, int64_t stop, int64_t first_time, bint floats,
    int64_t[::1] times, int64_t[::1] ids, int64_t[::1] weights, int64_t[::1] values,
):
    """Unpack rows that were scanned."""
    cdef int64_t size = _part(data, start, stop), n = times.shape[0], at = 0
    cdef ds_rows rows = columns_of(times, ids, weights, values)
    if not n:
        return
    cdef const uint8_t *first = &data[0] + start
    cdef ds_unpacker source
    with nogil:
        if bitpack.scan(first, size, n, floats).code == DS_OK:
            bitpack.open(&source, first, size, first_time, floats)
            while at < n:
                bitpack.next(&source, min(<int64_t> DS_ROW_BLOCK, n - at), &rows, at)
                at += DS_ROW_BLOCK
    if not at:
        raise ValueError(f"bytes {start} to {stop} do not hold {n} rows")


def read_rows(
    const uint8_t[::1] data not None, int64_t start, int64_t stop, int64_t first_time,
    int id_bits, int64_t max_weight, bint floats,
    int64_t[::1] times, int64_t[::1] ids, int64_t[::1] weights, int64_t[::1] values,
):
    """Read rows and check all that can be said of rows alone.

    Returns the end of their bytes, or -1 where one of them is not flawless beyond doubt.
    """
    cdef int64_t size = _part(data, start, stop), n = times.shape[0]
    cdef ds_rows rows = columns_of(times, ids, weights, values)
    cdef ds_limits limits = limits_of(id_bits, max_weight, floats)
    if not n:
        return start
    cdef uint32_t *scratch = <uint32_t *> malloc(ds_reading_words(n) * sizeof(uint32_t))
    if scratch == NULL:
        raise MemoryError
    cdef const uint8_t *first = &data[0] + start if size else NULL
    with nogil:
        size = kernels.read(&limits, first, size, n, first_time, &rows, scratch)
        free(scratch)
    return start + size if size >= 0 else -1


def first_out_of_order(
    const int64_t[::1] times, const int64_t[::1] ids, const int64_t[::1] weights
):
    """First row not strictly after its predecessor in (time, id, weight) descending; or -1."""
    cdef ds_rows rows = columns_of(times, ids, weights, weights)
    cdef int64_t n = times.shape[0], found
    with nogil:
        found = kernels.first_out_of_order(&rows, n)
    return found


def pack_values(const int64_t[::1] keys, bint floats):
    """A packed column of value keys, padded to a whole byte."""
    cdef int64_t n = keys.shape[0], size
    cdef uint8_t *packed = <uint8_t *> malloc(ds_packed_room(n))
    if packed == NULL:
        raise MemoryError
    try:
        with nogil:
            size = bitpack.pack_values(&keys[0] if n else NULL, n, floats, packed)
        return PyBytes_FromStringAndSize(<const char *> packed, size)
    finally:
        free(packed)


def pack_each(
    const int64_t[::1] keys not None, const int64_t[::1] offsets not None, bint floats,
    uint8_t[::1] out not None, int64_t[::1] ends not None,
):
    """Pack a column of value keys for each of many sketches, end to end.

    Args:
        keys: of all sketches.
        offsets: int64[sketches + 1] into the keys.
        out: bytes, with room for each_room(offsets).
        ends: int64[sketches + 1], out: offsets into the bytes.
    """
    cdef int64_t count = offsets.shape[0] - 1, sketch, first, n, at = 0
    if ends.shape[0] != count + 1 or keys.shape[0] != offsets[count] or offsets[0]:
        raise ValueError(f"offsets of {count} sketches, {ends.shape[0]} ends, {keys.shape[0]} keys")
    if out.shape[0] < each_room(offsets):
        raise ValueError(f"room for {out.shape[0]} bytes")
    ends[0] = 0
    with nogil:
        for sketch in range(count):
            first, n = offsets[sketch], offsets[sketch + 1] - offsets[sketch]
            if n > 0:
                at += bitpack.pack_values(&keys[first], n, floats, &out[at])
            ends[sketch + 1] = at


def each_room(const int64_t[::1] offsets not None):
    """Bytes that no packing of these columns exceeds."""
    cdef int64_t sketch, room = 0
    for sketch in range(offsets.shape[0] - 1):
        room += ds_packed_room(offsets[sketch + 1] - offsets[sketch])
    return room


def front_code(
    bytes texts not None, const int64_t[::1] bounds not None,
    const int64_t[::1] numbers not None, const int64_t[::1] offsets not None,
    int64_t[::1] ends not None,
):
    """The rising texts of each of many sketches: their number, then for each text two varints, the
    bytes that it shares with the text before and the others, then the others.

    Args:
        texts: bytes of all texts, end to end.
        bounds: int64[texts + 1] into them.
        numbers: of the texts of all sketches.
        offsets: int64[sketches + 1] into the numbers.
        ends: int64[sketches + 1], out: offsets into the returned bytes.
    """
    cdef int64_t count = offsets.shape[0] - 1, last = bounds.shape[0] - 1, k, length, longest = 0
    cdef int64_t most = 0, at = 0
    if not ends.shape[0] == count + 1 > 0 or numbers.shape[0] != offsets[count] or offsets[0]:
        raise ValueError(f"offsets of {count} sketches, {ends.shape[0]} ends")
    for k in range(count):
        if offsets[k + 1] < offsets[k]:
            raise ValueError(f"sketch {k} has the texts {offsets[k]} to {offsets[k + 1]}")
    if last < 0 or bounds[0] or bounds[last] != PyBytes_GET_SIZE(texts):
        raise ValueError(f"{last} texts have other bounds than their {len(texts)} bytes")
    for k in range(last):
        if bounds[k + 1] < bounds[k]:
            raise ValueError(f"text {k} has the bytes {bounds[k]} to {bounds[k + 1]}")
    for k in range(numbers.shape[0]):
        if not 0 <= numbers[k] < last:
            raise ValueError(f"text {numbers[k]} of {last}")
        length = bounds[numbers[k] + 1] - bounds[numbers[k]]
        longest, most = max(longest, length), most + length
    most += 2 * ds_varint_bytes(longest) * numbers.shape[0]
    most += ds_varint_bytes(numbers.shape[0]) * count
    cdef const uint8_t *bytes_of_texts = <const uint8_t *> PyBytes_AS_STRING(texts)
    cdef uint8_t *coded = <uint8_t *> malloc(most + 1)
    if coded == NULL:
        raise MemoryError
    ends[0] = 0
    try:
        with nogil:
            for k in range(count):
                length = offsets[k + 1] - offsets[k]
                at += of_texts.front_code(
                    bytes_of_texts, &bounds[0], &numbers[offsets[k]] if length else NULL,
                    length, coded + at,
                )
                ends[k + 1] = at
        return PyBytes_FromStringAndSize(<const char *> coded, at)
    finally:
        free(coded)


def append_each(
    const uint8_t[::1] part not None, const int64_t[::1] starts not None,
    const int64_t[::1] stops not None, uint8_t[::1] out not None, int64_t[::1] at not None,
):
    """Copy a part of each of many sketches behind its bytes so far, and move ``at`` behind it."""
    cdef int64_t sketch, size, count = starts.shape[0]
    if not count == stops.shape[0] == at.shape[0]:
        raise ValueError(f"{count} starts, {stops.shape[0]} stops, {at.shape[0]} places")
    for sketch in range(count):
        size = stops[sketch] - starts[sketch]
        if size <= 0:
            continue
        if starts[sketch] < 0 or stops[sketch] > part.shape[0]:
            raise ValueError(f"bytes {starts[sketch]} to {stops[sketch]} of {part.shape[0]}")
        if at[sketch] < 0 or at[sketch] + size > out.shape[0]:
            raise ValueError(f"{size} bytes at {at[sketch]} of {out.shape[0]}")
        memcpy(&out[at[sketch]], &part[starts[sketch]], size)
        at[sketch] += size


def read_values(
    const uint8_t[::1] data not None, int64_t start, int64_t stop, bint floats,
    int64_t[::1] keys not None,
):
    """Unpack a column of value keys. Returns the end of its bytes, or -1 where they are not those
    that packing gives.
    """
    cdef int64_t size = _part(data, start, stop), n = keys.shape[0]
    if not n:
        return start
    if not size:
        return -1
    with nogil:
        size = bitpack.read_values(&data[0] + start, size, n, floats, &keys[0])
    return start + size if size >= 0 else -1
