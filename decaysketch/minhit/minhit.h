/* Kernels of the range hash; minhit.c says how they work. All columns are of n rows. */
#ifndef DS_MINHIT_H
#define DS_MINHIT_H

#include "core/levels.h"
#include "minhit/hash.h"

typedef struct {
    /* levels[k] = top level of the observation (ids[k], weights[k]) */
    void (*top_levels)(
        const ds_hash *, const int64_t *ids, const int64_t *weights, int64_t n, int8_t *levels
    );
    /* minima[k] = least hash value in the range of the observation */
    void (*minimum_hashes)(
        const ds_hash *, const int64_t *ids, const int64_t *weights, int64_t n, int64_t *minima
    );
    /* hits[k] = number of the observation's hash values below floor(p / 2^levels[k]) */
    void (*range_samples)(
        const ds_hash *, const int64_t *ids, const int64_t *weights, const int8_t *levels, int64_t n,
        int64_t *hits
    );
    /* positions[k] = first j with a hash value below floor(p / 2^levels[k]), else -1 */
    void (*min_hits)(
        const ds_hash *, const int64_t *ids, const int64_t *weights, const int8_t *levels, int64_t n,
        int64_t *positions
    );
    /* positions[k, i] = the same for every level i = 0..top; n rows of top + 1 */
    void (*min_hits_all_levels)(
        const ds_hash *, const int64_t *ids, const int64_t *weights, int64_t n, int64_t *positions
    );
} ds_minhit_kernels;

DS_TABLES(ds_minhit_kernels, ds_minhit)

#endif
