/* Rows that are read from bytes and found flawless; rows.c says how. */
#ifndef DS_CODEC_ROWS_H
#define DS_CODEC_ROWS_H

#include "core/codec/bitpack.h"

#define DS_TIME_LIMIT (1LL << 62)

/* What rows may be. */
typedef struct {
    int64_t ids, max_weight; /* 0 <= id < ids, 1 <= weight <= max_weight; ids max_weight < 2^62 */
    int floats;              /* whether value keys are those of float64 */
    uint64_t salt;           /* odd, and unknown to whoever writes the bytes */
} ds_limits;

typedef struct {
    /* Reads n rows from the front of so many bytes: bit-packed as ds_bitpack does it, in strict
       canonical order, within the limits, no (id, weight) twice. Returns the bytes that they take, or
       -1 where that is not beyond doubt. `scratch` has ds_reading_words(n). */
    int64_t (*read)(
        const ds_limits *limits, const uint8_t *data, int64_t size, int64_t n, int64_t first_time,
        const ds_rows *rows, uint32_t *scratch
    );
    /* First row not strictly after its predecessor in (time, id, weight) descending; or -1. */
    int64_t (*first_out_of_order)(const ds_rows *rows, int64_t n);
} ds_row_kernels;

DS_TABLES(ds_row_kernels, ds_row)

/* Slots of a table of n identities, between two and four for each, as a power of two. */
static inline int ds_identity_bits(int64_t n) {
    int bits = 4;
    while ((1LL << bits) < 2 * n) bits++;
    return bits;
}

static inline int64_t ds_reading_words(int64_t n) { return (1LL << ds_identity_bits(n)) + n; }

#endif
