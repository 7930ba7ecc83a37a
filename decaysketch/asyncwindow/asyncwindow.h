/* Kernels of the asynchronous samplers: admission.c and compaction.c say how they work. */
#ifndef DS_ASYNCWINDOW_H
#define DS_ASYNCWINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "core/levels.h"
#include "core/sort.h"

enum {
    DS_LEVEL_ROOM = 64,     /* more than there are levels */
    DS_BUCKET_BITS = 10, /* of buckets of ages, see (1) of compaction.c */
};

/* The columns of elements: value keys, times, keys and top levels. */
typedef struct {
    int64_t *values, *times;
    uint64_t *keys;
    int8_t *levels;
} ds_elements;

/* What all samplers of a stream share. */
typedef struct {
    int64_t lowest, highest; /* of a value key */
    int64_t time_limit;      /* times are from -time_limit to it */
    int64_t levels;          /* M: levels are 0..M, M + 1 < DS_LEVEL_ROOM */
    int64_t first_nested;    /* L */
    bool weighted;           /* values are weights and part of the identity: a sum */
} ds_stream;

/* Rows that nobody looked at yet. */
typedef struct {
    const int64_t *values;    /* value keys, or the bits of float64 */
    const int64_t *times;
    const uint64_t *words;    /* of the source of each row, or one for all */
    const uint64_t *sequence; /* numbers of the rows; null: from first_number on */
    uint64_t first_number;
    int64_t rows;
    bool one_word, float_values;
} ds_batch;

/* What was found in a batch, and taken of it. */
typedef struct {
    bool refused;  /* a row is out of bounds */
    int64_t next;  /* row to go on from */
    int64_t rows;  /* of the bag now */
    int64_t zeros; /* rows of value 0 */
    int64_t late;  /* rows not later than the floor */
} ds_admitted;

typedef struct {
    /* keys[k] = key of the element (its source's word, sequence[k]) */
    void (*keys)(
        const uint64_t *words, bool one_word, const uint64_t *sequence, int64_t n, uint64_t *keys
    );
    /* out[k] = top level; values are at least 1 where they are weights */
    void (*top_levels)(
        const int64_t *values, const uint64_t *keys, bool weighted, int64_t levels, int64_t n,
        int8_t *out
    );
    /* Whether all rows are in bounds. */
    bool (*in_bounds)(const ds_stream *, const ds_batch *);
    /* Append the rows of a batch, from `next` on and while there is room, that are later than the
       watermark of their level and have a level. */
    ds_admitted (*admit)(
        const ds_stream *, const ds_batch *, int64_t next, const int64_t *marks, int64_t floor,
        const ds_elements *bag, int64_t rows, int64_t room
    );
    /* Append elements that are later than the watermark of their level; returns the new number of
       rows. There is room for all of them and one more. */
    int64_t (*append)(
        const ds_elements *from, int64_t n, const int64_t *marks, const ds_elements *bag,
        int64_t rows
    );
} ds_window_admission_kernels;

/* Memory that compaction works in, for as many rows as the bag has. */
typedef struct {
    ds_sorting sorting;
    uint32_t *rows;
    uint16_t *buckets;
    uint32_t *slots;  /* of bitmap and table: the next power of two above twice the rows and one */
    uint32_t *counts; /* 2^DS_BUCKET_BITS for each level */
} ds_workspace;

typedef struct {
    int64_t rows;     /* that were kept */
    bool many_copies; /* more than `spare` has room for */
} ds_compacted;

typedef struct {
    /* Keep of n rows those that the state has, in place and in the order that they are in.
       `marks` are the watermarks 0..M, raised in place; `spare` >= capacity is how many elements of
       a level are looked at, if it has so many. */
    ds_compacted (*compact)(
        const ds_stream *, const ds_elements *bag, int64_t n, int64_t capacity, int64_t spare,
        int64_t *marks, const uint64_t salts[2], const ds_workspace *
    );
    /* Copy n > 0 rows by time, latest first: ties in the order that they are in, or (canonical) by
       key, then value, descending too. */
    void (*arrange)(
        const ds_elements *bag, int64_t n, bool canonical, bool weighted, const ds_sorting *,
        const ds_elements *out
    );
} ds_window_compaction_kernels;

DS_TABLES(ds_window_admission_kernels, ds_window_admission)
DS_TABLES(ds_window_compaction_kernels, ds_window_compaction)

#endif
