/* The cells of one layer of an ECM-sketch: for each the number n of ones that it has counted, and the
   times of some of them. Which ones is a function of n alone, so that no bucket has a size, a count
   or a pointer, and the state of a cell is one of the times that were counted, in any batches.

   Ones are numbered by rank, 1 .. n, in the order of their times. Of either kind of cell, the kept
   ranks lie in regions l = 0, 1, ..., from the newest on: region l has all multiples of 2^l from
   oldest(l) to newest(l), where newest(0) = n and newest(l) = oldest(l - 1) - 2^(l - 1); the last
   region is the one with oldest(l) = 2^l.

     wave       level l keeps the last q odd multiples of 2^l; oldest(l) is the first of them.
                The rank (2 j + 1) 2^l has slot j mod q of level l.
     histogram  bucket j of size 2^l ends at rank j 2^l. There are n_l of them, of which the first
                2 n_(l+1) are merged: n_l = ((n + B - 1) >> l) - (B - 1), or 0 if that is less, and
                oldest(l) = (2 n_(l+1) + 1) 2^l. The rank j 2^l has slot j mod B of level l.

   Papapetrou, Garofalakis and Deligiannakis, "Sketching distributed sliding-window data streams",
   VLDB Journal 24 (2015), section 4, whose cells these are; that ranks are implied is ours. */
#ifndef DS_ECM_CELLS_H
#define DS_ECM_CELLS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/levels.h"
#include "core/mix.h"

enum {
    DS_ECM_MOST_ROWS = 16,  /* depth of a layer */
    DS_ECM_CHUNK = 1 << 14, /* events that are taken in at a time, at the most */
    DS_ECM_BLOCK = 512,     /* words that are hashed at a time */
};

#define DS_ECM_LIMIT (1LL << 62) /* of the number of ones */

/* A layer: what column of each row a word has. */
typedef struct {
    const uint64_t *a, *b; /* of each row */
    int64_t depth, width;
    int64_t shift; /* of a word; 64 leaves 0 of it */
    bool hashed;   /* or the column is what the shift leaves */
} ds_ecm_layer;

typedef struct {
    int64_t *n;     /* [cells] */
    void *times;    /* [levels][cells][slots]: uint32, or int64 where wide */
    int64_t cells, levels, slots;
    int64_t base;   /* what is stored is time - base; 0 where wide */
    bool wide, histogram;
} ds_ecm_cells;

/* Kept ranks and their times, newest first in each cell: those of cell c are offsets[c] ..
   offsets[c + 1] - 1. */
typedef struct {
    int64_t *ranks, *times, *offsets;
} ds_ecm_lists;

/* Memory that a chunk of events is grouped in. */
typedef struct {
    uint32_t *cells;  /* [depth][events] */
    uint16_t *events; /* the same, by cell */
    int64_t *sums;    /* the same: weights of the cell's events up to this one; null: all are 1 */
    int64_t *starts;  /* [cells + 1] */
} ds_ecm_groups;

typedef struct {
    /* columns[r n + k] = column of words[k] in row r */
    void (*columns)(const ds_ecm_layer *, const uint64_t *words, int64_t n, uint32_t *columns);
    /* The largest of words >> shift. */
    uint64_t (*highest)(const uint64_t *words, int64_t n, int64_t shift);
    /* out[k] = the least value of a grid [depth][width] in the cells of words[k] */
    void (*minimum)(
        const ds_ecm_layer *, const double *grid, const uint64_t *words, int64_t n, double *out
    );
    void (*minimum_of_counts)(
        const ds_ecm_layer *, const int64_t *grid, const uint64_t *words, int64_t n, int64_t *out
    );
} ds_ecm_column_kernels;

typedef struct {
    /* Sum of numbers from 0 on, or DS_ECM_LIMIT if it is not below that. */
    int64_t (*total)(const int64_t *weights, int64_t n);
    /* The largest number of ones of a cell once these events are counted; `added` is room for a
       number of each cell. */
    int64_t (*heaviest)(
        const ds_ecm_layer *, const ds_ecm_cells *, const uint64_t *words, const int64_t *weights,
        int64_t n, int64_t *added
    );
    /* Count events whose times do not fall, of which there is room for the levels. Weights may be
       null: all are 1. Groups may be null: events are counted one by one; else there are
       DS_ECM_CHUNK events at the most. */
    void (*update)(
        const ds_ecm_layer *, const ds_ecm_cells *, const uint64_t *words, const int64_t *times,
        const int64_t *weights, int64_t n, const ds_ecm_groups *
    );
} ds_ecm_update_kernels;

typedef struct {
    /* In each cell surely at least lo and at most hi ones have a time of `start` or later. */
    void (*grid)(const ds_ecm_cells *, int64_t start, int64_t *lo, int64_t *hi);
    /* An estimate between them, interpolated in time and off by `error` at the most. */
    void (*values)(
        const ds_ecm_cells *, int64_t start, int64_t first, double error, double *values
    );
    /* Numbers of ranks that are kept of cells that have counted n ones. */
    void (*kept)(
        const int64_t *n, int64_t cells, int64_t slots, bool histogram, int64_t *counts
    );
    /* Write down what is kept. */
    void (*write)(const ds_ecm_cells *, const ds_ecm_lists *);
    /* The inverse, into cells that have n but no times, for as many times as they keep: whether those
       of each cell are in order, from first to last. */
    bool (*restore)(const ds_ecm_cells *, const int64_t *times, int64_t first, int64_t last);
    /* For each word the least lo and hi of its rows, with a start of its own. */
    void (*each)(
        const ds_ecm_layer *, const int64_t *n, const ds_ecm_lists *, const uint64_t *words,
        const int64_t *starts, int64_t count, int64_t first, int64_t *lo, int64_t *hi
    );
    /* Bounds of the decayed number of ones of each cell. weights[k] is that of times[k] at `now`,
       or at age 0 if it is later; `oldest` that of `first`. */
    void (*decayed)(
        const ds_ecm_lists *, const double *weights, int64_t cells, int64_t now, int64_t first,
        double oldest, double *lo, double *hi
    );
} ds_ecm_window_kernels;

/* Ones that one of the merged layers counted. */
typedef struct {
    const int64_t *n;
    ds_ecm_lists lists;
    int64_t first;
    int64_t inaccuracy; /* 1 / the relative error of what is reconstructed */
} ds_ecm_source;

/* Some ones at one time. */
typedef struct {
    int64_t time, ones;
} ds_ecm_piece;

typedef struct {
    /* Fill cells, which have n but no times, with what the sources' cells have counted together.
       `pieces` is twice as much room as a cell of all sources needs, each (steps + 2) for a kept
       rank; `ends` is room for two numbers more than there are sources. */
    void (*compact)(
        const ds_ecm_cells *, const ds_ecm_source *, int64_t sources, int64_t steps,
        ds_ecm_piece *pieces, int64_t room, int64_t *ends
    );
} ds_ecm_merge_kernels;

DS_TABLES(ds_ecm_column_kernels, ds_ecm_columns)
DS_TABLES(ds_ecm_update_kernels, ds_ecm_updates)
DS_TABLES(ds_ecm_window_kernels, ds_ecm_windows)
DS_TABLES(ds_ecm_merge_kernels, ds_ecm_merges)

/* ----------------------------------------------------------------------------------------- ranks */

#define DS_ECM_INLINE static inline __attribute__((always_inline))

/* Calls f(cells, wide, histogram, ...) with constants, so that it is compiled for each of them. */
#define DS_ECM_EACH_KIND(f, c, ...)                                                                \
    ((c)->wide ? (c)->histogram ? f(c, true, true, __VA_ARGS__) : f(c, true, false, __VA_ARGS__)   \
     : (c)->histogram ? f(c, false, true, __VA_ARGS__)                                             \
                      : f(c, false, false, __VA_ARGS__))

/* n_l of a histogram. */
DS_ECM_INLINE int64_t ds_ecm_buckets(int64_t n, int64_t slots, int level) {
    const int64_t buckets = ((n + slots - 1) >> level) - (slots - 1);
    return buckets > 0 ? buckets : 0;
}

/* The oldest kept rank of region `level`, which is there. */
DS_ECM_INLINE int64_t ds_ecm_oldest(int64_t n, int64_t slots, bool histogram, int level) {
    if (histogram) return (2 * ds_ecm_buckets(n, slots, level + 1) + 1) << level;
    const int64_t first = (((n >> level) - 1) >> 1) - slots + 1;
    return first > 0 ? (2 * first + 1) << level : 1LL << level;
}

/* 2^64 / slots, for ds_ecm_modulo. */
DS_ECM_INLINE uint64_t ds_ecm_reciprocal(int64_t slots) { return UINT64_MAX / (uint64_t)slots; }

/* number mod slots: the quotient by the reciprocal is right, or one too low. */
DS_ECM_INLINE int64_t ds_ecm_modulo(int64_t number, int64_t slots, uint64_t reciprocal) {
    const uint64_t quotient = (uint64_t)(((unsigned __int128)(uint64_t)number * reciprocal) >> 64);
    const int64_t rest = number - (int64_t)(quotient * (uint64_t)slots);
    return rest >= slots ? rest - slots : rest;
}

/* Where the time of a rank is, which is in region `region`. */
DS_ECM_INLINE int64_t ds_ecm_place(
    const ds_ecm_cells *c, bool histogram, uint64_t reciprocal, int64_t cell, int region,
    int64_t rank
) {
    const int level = histogram ? region : __builtin_ctzll((uint64_t)rank);
    const int64_t number = rank >> (histogram ? level : level + 1);
    return (level * c->cells + cell) * c->slots + ds_ecm_modulo(number, c->slots, reciprocal);
}

DS_ECM_INLINE int64_t ds_ecm_load(const ds_ecm_cells *c, bool wide, int64_t place) {
    return wide ? ((const int64_t *)c->times)[place] : ((const uint32_t *)c->times)[place];
}

DS_ECM_INLINE void ds_ecm_store(const ds_ecm_cells *c, bool wide, int64_t place, int64_t stored) {
    if (wide)
        ((int64_t *)c->times)[place] = stored;
    else
        ((uint32_t *)c->times)[place] = (uint32_t)stored;
}

/* --------------------------------------------------------------------------------------- columns */

/* out[r stride + k] = column of words[k] in row r, and `row` more for each row before; for
   DS_ECM_BLOCK words at the most. */
DS_ECM_INLINE void ds_ecm_columns_of(
    const ds_ecm_layer *layer, const uint64_t *words, int64_t n, int64_t row, uint32_t *out,
    int64_t stride
) {
    uint64_t mixed[DS_ECM_BLOCK];
    const int shift = (int)layer->shift;
    if (shift < 64)
        for (int64_t k = 0; k < n; k++) mixed[k] = words[k] >> shift;
    else
        memset(mixed, 0, (size_t)n * sizeof *mixed);
    if (!layer->hashed) {
        for (int64_t k = 0; k < n; k++) out[k] = (uint32_t)mixed[k];
        return;
    }
    for (int64_t k = 0; k < n; k++) mixed[k] = ds_mix64(mixed[k]);
    for (int64_t r = 0; r < layer->depth; r++) {
        const uint64_t a = layer->a[r], b = layer->b[r], width = (uint64_t)layer->width;
        const uint32_t more = (uint32_t)(r * row);
        for (int64_t k = 0; k < n; k++)
            out[r * stride + k] = (uint32_t)((((mixed[k] * a + b) >> 32) * width) >> 32) + more;
    }
}

#endif
