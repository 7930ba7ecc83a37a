/* Kernels of the rows that a sketch holds; rows.c says how they work. */
#ifndef DS_QUERYTIME_ROWS_H
#define DS_QUERYTIME_ROWS_H

#include "core/levels.h"
#include "core/marks.h"
#include "core/replaced.h"
#include "core/table.h"
#include "minhit/hash.h"

/* What a look at an observation reads: its value key, and id * max_weight + weight - 1 < 2^58. */
typedef struct {
    int64_t value;
    uint64_t identity;
} ds_fact;

/* Rows in columns, with room for some. Times and levels alone decide on most of the rows. */
typedef struct {
    ds_fact *facts;
    int64_t *times;
    int8_t *levels;
    int64_t room;
} ds_rows;

/* Columns as users have them. */
typedef struct {
    int64_t *values, *weights, *times, *ids;
    int8_t *levels;
} ds_columns;

/* Observations that come in. Values are value keys, or the bits of float64 numbers. */
typedef struct {
    const int64_t *values, *weights, *times, *ids;
    int float_bits;
    int64_t todo;        /* rows before this one are still to be admitted */
    int64_t unchecked;   /* rows before this one are still to be checked */
    int64_t zero_weight; /* of the rows that were checked, those of weight 0 */
} ds_batch;

typedef struct {
    int64_t max_weight, last_id, time_limit;
} ds_bounds;

/* A row to be sorted. */
typedef struct {
    uint64_t key;
    int64_t row;
} ds_entry;

/* The columns of rows, row by row: `count` value keys each. Text keys are numbers of a dictionary in
   which they have an order. */
typedef struct {
    const int64_t *keys;
    int64_t count;
    const int64_t *const *ranks; /* of the texts of a column, or NULL: keys are in order */
} ds_payloads;

/* Working memory for n rows. */
typedef struct {
    ds_rows out;
    uint32_t *words[2]; /* n each */
    uint32_t *slots;    /* 2^ds_slot_bits(n) */
    uint64_t *present;  /* 2^DS_FILTER_BITS bits for each slot */
    ds_entry *entries[2]; /* for as many rows as are sorted */
    ds_replaced replaced;
    const ds_payloads *payloads; /* of rows with columns, whose values are payload numbers */
} ds_scratch;

enum { DS_FILTER_BITS = 3 };

/* Bits of the table that so many rows may need. */
static inline int ds_slot_bits(int64_t n) { return ds_table_bits(2 * (n + DS_BLOCK)); }

typedef struct {
    /* Check the rows that were not; whether all are in bounds. */
    int (*check)(const ds_bounds *, ds_batch *);
    /* Append the rows that are later than the watermark of their top level, from row *at on, while
       there is room for a block. Whether all that were looked at are in bounds. */
    int (*admit)(
        const ds_hash *, const ds_bounds *, ds_batch *, const int64_t *marks, const ds_rows *to,
        int64_t *at
    );
    /* Write the rows to keep of n > 0, in no order, and raise the watermarks; how many they are,
       of which the caller has an idea. */
    int64_t (*compact)(
        const ds_rows *, int64_t n, int64_t capacity, int64_t levels, int64_t *marks, uint64_t salt,
        ds_scratch *, int64_t expected
    );
    /* The same of rows of which the first `kept` are in canonical order, as are the results. */
    int64_t (*merge_newcomers)(
        const ds_rows *, int64_t kept, int64_t n, int64_t capacity, int64_t levels, int64_t *marks,
        uint64_t salt, ds_scratch *
    );
    /* Rows in canonical order: by (time, id, weight), all descending. */
    void (*sort)(const ds_rows *, int64_t n, const ds_scratch *);
    /* Append the rows that are later than the watermark of their level; the new number of rows. */
    int64_t (*append_later)(
        const ds_rows *, int64_t n, const int64_t *marks, const ds_rows *to, int64_t at
    );
    /* The same of columns, latest first; -1 where a level is none. */
    int64_t (*append_columns)(
        const ds_columns *, int64_t n, int64_t max_weight, const int64_t *marks, int64_t levels,
        const ds_rows *to, int64_t at
    );
    void (*columns)(const ds_rows *, int64_t n, int64_t max_weight, const ds_columns *to);
    /* hits[k] of the rows that an older state has at the same level, both in canonical order. How
       many it has not: their numbers are the first of `unknown`. */
    int64_t (*known_hits)(
        const ds_columns *, int64_t n, const ds_columns *old, int64_t old_n,
        const int64_t *old_hits, int64_t *hits, int64_t *unknown
    );
} ds_rows_kernels;

DS_TABLES(ds_rows_kernels, ds_rows)
/* The same for rows with columns (record_rows.c): of equal times the larger payload stays. */
DS_TABLES(ds_rows_kernels, ds_record_rows)

#endif
