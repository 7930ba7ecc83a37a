/* Kernels of the sample of series; admission.c, compaction.c and guard.c say how they work. */
#ifndef DS_SERIES_H
#define DS_SERIES_H

#include <stdint.h>

#include "core/levels.h"
#include "core/sort.h"
#include "core/table.h"

enum { DS_SERIES_TOP = 40 }; /* the coarsest level */

#define DS_NO_START INT64_MIN

/* A series: what is sampled (its entity), the base-2 logarithm of its weight, and its own number. The
   level follows from the first two. Codes are row numbers of these columns. */
typedef struct {
    int64_t *entities, *series;
    int8_t *shifts, *levels;
    int64_t count, room;
    ds_table index;
    uint64_t words[2]; /* that key the sampling */
    uint64_t salt;     /* of the index, odd */
} ds_catalog;

/* Rows as columns. The code says which series a row belongs to, the level repeats that of the series. */
typedef struct {
    int64_t *times, *starts, *keys;
    uint32_t *codes;
    int8_t *levels;
} ds_samples;

/* Columns of a batch that nobody has validated. Weights, entities and starts may be absent: weights are
   1, every series is its own entity, and no row has a start. */
typedef struct {
    const int64_t *values; /* value keys, or the bits of float64 numbers */
    const int64_t *weights, *times, *series, *entities, *starts;
    int64_t rows;
    int float_bits;
} ds_series_batch;

typedef struct {
    int64_t max_weight, id_limit, time_limit;
} ds_series_bounds;

typedef struct {
    /* whether every row is within its bounds */
    int (*check)(const ds_series_batch *, const ds_series_bounds *);
    /* append the rows first..last - 1 that are later than the watermark of their level: how many rows
       there are then. The catalog and the columns have room for all of them */
    int64_t (*admit)(
        ds_catalog *, const ds_series_batch *, int64_t first, int64_t last, const int64_t *marks,
        const ds_samples *out, int64_t held
    );
    /* codes of series, entered where they are new; the catalog has room for all */
    void (*enter)(
        ds_catalog *, const int64_t *entities, const int8_t *shifts, const int64_t *series, int64_t n,
        uint32_t *codes
    );
    /* append the rows of another bag, whose codes map to ours, that are later than the watermarks */
    int64_t (*append)(
        const ds_samples *from, int64_t n, const uint32_t *codes, const int64_t *marks,
        const ds_samples *out, int64_t held
    );
} ds_series_admission_kernels;

typedef struct {
    /* write the rows that stay, latest first, and raise the watermarks: how many stay. latest has an
       entry for each code and is overwritten; sorting has room for n */
    int64_t (*compact)(
        const ds_samples *rows, int64_t n, int64_t codes, int64_t resolution, int64_t *marks,
        int64_t capacity, const ds_sorting *, int64_t *latest, const ds_samples *out
    );
    /* order of rows, which stand latest first, by the rank of their series and then by time; places has
       room for a number for each rank */
    void (*arrange)(
        const uint32_t *codes, int64_t n, const int64_t *ranks, int64_t series, int64_t *places,
        int64_t *order
    );
} ds_series_compaction_kernels;

typedef struct {
    /* value keys of counters without the falls that clocks make. begins is 1 where a row is the first of
       its series, whose times rise; ahead and queue have room for n numbers */
    void (*settle)(
        const int64_t *keys, const int64_t *times, const uint8_t *begins, int64_t n, int64_t guard,
        int64_t *ahead, int64_t *queue, int64_t *settled
    );
} ds_series_guard_kernels;

DS_TABLES(ds_series_admission_kernels, ds_series_admission)
DS_TABLES(ds_series_compaction_kernels, ds_series_compaction)
DS_TABLES(ds_series_guard_kernels, ds_series_guard)

/* Floor of the quotient of a time and a positive resolution. */
static inline int64_t ds_cell(int64_t time, int64_t resolution) {
    const int64_t cell = time / resolution;
    return cell - (time % resolution < 0);
}

#endif
