/* Rows of several sources matched by observation, and overlaps of pairs; matching.c says how. */
#ifndef DS_SOURCES_MATCHING_H
#define DS_SOURCES_MATCHING_H

#include <stdint.h>

#include "core/levels.h"
#include "core/sort.h"

/* The rows of one source, latest first. */
typedef struct {
    const int64_t *ids, *weights, *times, *value_keys;
    const int8_t *levels;
    int64_t rows;
} ds_heard;

/* Distinct observations, by number. Each column has capacity for every row of every
   source. */
typedef struct {
    int64_t *ids;
    int64_t *weights; /* unused where max_weight is 1 */
    int64_t *latest;  /* the latest time of its duplicates */
    int8_t *levels;   /* top level */
    int32_t *degrees; /* sources that store it */
    uint64_t *histories; /* these sources as bits; NULL for more than 64 sources */
} ds_matched;

/* Rows of all sources between two times; each column has capacity for the longest such block. */
typedef struct {
    ds_sorting sorting;
    int64_t *ids, *weights;
    int32_t *groups;
} ds_block;

/* An observation whose hash another one may have, and the first of its id and weight. */
typedef struct {
    int32_t number, first;
} ds_suspect;

/* How duplicates at different times are found. */
typedef struct {
    uint64_t salt; /* odd */
    int64_t max_weight;
    uint64_t *slots; /* 32 bits each, a power of 2 of them, more than twice the rows; the sieve first */
    ds_suspect *suspects; /* one a row, and one more */
    int32_t *renumbered;  /* one a row */
} ds_lookup;

/* Sources by observation: those of number j are sources[start[j]] to sources[start[j + 1]]. */
typedef struct {
    const int64_t *start;
    const int32_t *sources;
    const int64_t *times; /* of each duplicate */
    const int8_t *bands;  /* level from which its source is complete at that time */
    int64_t observations;
} ds_incidences;

/* Of each source, among rows in order of time: how many it heard and another source as well, how many
   it heard alone, and the longest run that others heard and it did not, without one that it heard
   alone in between. */
typedef struct {
    int64_t *shared, *alone, *longest;
} ds_misses;

/* Amounts of a pair of sources, as an interval needs them; one cache line. */
enum {
    DS_EXACT,    /* mass of the rows that are known */
    DS_SAMPLED,  /* mass of the others */
    DS_VARIANCE, /* of that */
    DS_SKEW,     /* its third moment */
    DS_CERTAIN,  /* decayed weight of the sampled rows themselves */
    DS_ROWS,
    DS_LARGEST, /* variance of a single row */
    DS_HIT,     /* the largest mass of a row that is not known */
    DS_AMOUNTS,
};

/* Where pairs are summed: a square of sources, or an open-addressed table of 2^bits slots. */
typedef double (*ds_cells)[DS_AMOUNTS];

typedef struct {
    ds_cells cells;
    uint64_t *keys; /* of a table: 1 + the pair; 0: free */
    int bits;       /* 0: the square */
    int64_t sources;
    uint64_t salt; /* odd */
} ds_pairs;

typedef struct {
    /* Rows in the longest block; a block ends with the last row that is not earlier than its cut.
       Cuts fall, and the last one lets every row through. `next` has capacity for a number a source. */
    int64_t (*longest_block)(
        const ds_heard *sources, int64_t count, const int64_t *cuts, int64_t blocks, int64_t *next
    );
    /* groups[x] = the number of the observation of row x, counted over all sources; returns how many
       observations there are, and whether duplicates differ in time. `next` has capacity for two
       numbers a source. */
    int64_t (*match)(
        const ds_heard *sources, int64_t count, const int64_t *cuts, int64_t blocks,
        const ds_lookup *, const ds_matched *, const ds_block *, int64_t *next,
        int32_t *groups, int *scattered
    );
    /* The same of many sources; numbers are in order of time by blocks alone. */
    int64_t (*match_many)(
        const ds_heard *sources, int64_t count, const int64_t *cuts, int64_t blocks,
        const ds_lookup *, const ds_matched *, int64_t *next, int32_t *groups, int *scattered
    );
    /* lags[s] = the longest time by which a row of source s lies before the latest duplicate;
       `earliest` becomes the earliest time of each observation, from its latest one. */
    void (*lags)(
        const ds_heard *sources, int64_t count, const int64_t *latest, const int32_t *groups,
        int64_t *lags, int64_t *earliest
    );
    /* value_keys[number] becomes the largest among the latest duplicates, if larger than before */
    void (*values)(
        const ds_heard *sources, int64_t count, const int64_t *latest, const int32_t *groups,
        int64_t *value_keys
    );
    /* order = the observations later than the watermark of their level, latest first and equal times
       in order of number; returns how many there are */
    int64_t (*latest_first)(
        const int64_t *times, const int8_t *levels, int64_t n, const int64_t *marks,
        const ds_sorting *, int64_t *order
    );
    /* Incidences of the sources; `marks` has one row of `levels` watermarks a source. */
    void (*gather)(
        const ds_heard *sources, int64_t count, const int64_t *marks, int64_t levels,
        const int32_t *groups, int32_t *next, int32_t *by, int64_t *times, int8_t *bands
    );
    /* `rows` are some observations in order of time, and so are the rows of each source in `groups`,
       from offsets[s] on. `places` has capacity for a number an observation. */
    void (*misses)(
        const int32_t *groups, const int64_t *offsets, int64_t sources, const int32_t *degrees,
        int64_t observations, const int64_t *rows, int64_t n, int32_t *places, const ds_misses *
    );
    /* Add observations of 64 sources at most, n of them and latest first, with decayed weight above 0,
       to a square of cells: all duplicates of one have its latest time. `marks` as in `gather`. */
    void (*square)(
        const ds_matched *, int64_t n, const double *decayed, const double *units,
        const int64_t *marks, int64_t mark_levels, int64_t sources, ds_cells
    );
    /* The same of any number of sources, by incidences; false: the sparse table is full. */
    int (*overlaps)(
        const ds_incidences *, const double *decayed, const int8_t *levels, const double *units,
        const ds_pairs *
    );
    /* The same where duplicates have different times: `decayed` is that of each duplicate. */
    int (*scattered_overlaps)(
        const ds_incidences *, const double *decayed, const int8_t *levels, const double *units,
        const int64_t *marks, int64_t mark_levels, const ds_pairs *
    );
} ds_matching_kernels;

DS_TABLES(ds_matching_kernels, ds_matching)

#endif
