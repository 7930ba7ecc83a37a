/* Rows as bit-packed columns, and back; bitpack.c says how they are packed. */
#ifndef DS_BITPACK_H
#define DS_BITPACK_H

#include "core/levels.h"
#include <stdint.h>

enum {
    DS_ROW_BLOCK = 256, /* rows; positions of exceptions then fit 8 bits */
    /* Bytes that no block exceeds: four columns of at most 256 residuals of 64 bits, each behind
       less than 7 words and 256 bits that say where its exceptions are. */
    DS_LARGEST_BLOCK = 4 * (8 * DS_ROW_BLOCK + 8 * 7 + DS_ROW_BLOCK / 8),
    DS_SPARE_BYTES = 128, /* behind what is unpacked; read, and of no effect */
};

#define DS_MISSING INT64_MIN /* the key of a value that is missing */

/* Columns of as many rows as the function says. */
typedef struct {
    int64_t *times, *ids, *weights, *values;
} ds_rows;

/* What a walk through the headers found. */
typedef struct {
    int64_t code;  /* one of those below */
    int64_t start; /* row at which the block starts */
    int64_t column, found, limit;
    int64_t bits; /* that the rows take */
} ds_outcome;

enum { DS_OK, DS_PAST_END, DS_WIDTH_TOO_LARGE, DS_TOO_FEW_BITS };

/* Where unpacking stands. */
typedef struct {
    const uint8_t *data;
    int64_t size, position; /* bytes; bits */
    int64_t last_time, last_id;
    int floats, first, forms; /* forms: 1 and 2, blocks with a divisor and without the one they have */
    uint8_t tail[DS_LARGEST_BLOCK + 2 * DS_SPARE_BYTES];
} ds_unpacker;

typedef struct {
    /* Packs n rows in canonical order; returns the bytes written. `to` has room for
       ds_packed_room(n). `divides`: whether times are divided, as in all but older bytes. */
    int64_t (*pack)(const ds_rows *rows, int64_t n, int floats, int divides, uint8_t *to);
    /* Walks the headers of n packed rows in so many bytes. */
    ds_outcome (*scan)(const uint8_t *data, int64_t size, int64_t n, int floats);
    /* Begins to unpack what was scanned. */
    void (*open)(ds_unpacker *in, const uint8_t *data, int64_t size, int64_t first_time, int floats);
    /* Unpacks the next m rows, a whole block or the last one, into rows at..at + m - 1. Returns
       whether packing them would give the same bits. */
    int (*next)(ds_unpacker *in, int64_t m, const ds_rows *rows, int64_t at);
    /* Packs a column of n value keys by itself; returns the bytes written. */
    int64_t (*pack_values)(const int64_t *keys, int64_t n, int floats, uint8_t *to);
    /* Unpacks n value keys; returns the bytes read, or -1 where packing would not give them. */
    int64_t (*read_values)(
        const uint8_t *data, int64_t size, int64_t n, int floats, int64_t *keys
    );
} ds_bitpack_kernels;

DS_TABLES(ds_bitpack_kernels, ds_bitpack)

/* Bytes that no packing of n rows exceeds, those that are written and do not count included: a
   planned column takes at most 64 bits a row; headers, bases, modes and the bitmap of present values
   take less than 9 words a block. */
static inline int64_t ds_packed_room(int64_t n) {
    return 32 * n + 72 * ((n + DS_ROW_BLOCK - 1) / DS_ROW_BLOCK) + 64;
}

#endif
