from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "core/codec/bitpack.h" nogil:
    ctypedef struct ds_rows:
        int64_t *times
        int64_t *ids
        int64_t *weights
        int64_t *values

cdef extern from "core/codec/rows.h" nogil:
    ctypedef struct ds_limits:
        int64_t ids, max_weight
        int floats
        uint64_t salt

    int64_t ds_reading_words(int64_t n)


cdef ds_rows columns_of(
    const int64_t[::1] times, const int64_t[::1] ids, const int64_t[::1] weights,
    const int64_t[::1] values,
) except *

cdef ds_limits limits_of(int id_bits, int64_t max_weight, bint floats) except *
