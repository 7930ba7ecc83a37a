/* Counts of deliveries by key: the four of a key are added at once, without a branch. */
#include "tables/counts.h"

enum { AHEAD = 16 }; /* rows between the one whose counts are asked for and the one that is counted */

static void count_by_key(
    const int32_t *codes, const uint8_t *missing, const uint8_t *fallback, const uint8_t *refused,
    int64_t n, int64_t (*counts)[DS_COUNTS]
) {
    for (int64_t k = 0; k < n; k++) {
        if (k + AHEAD < n) __builtin_prefetch(counts[codes[k + AHEAD]], 1);
        int64_t *count = counts[codes[k]];
        const int64_t out = refused[k], taken = 1 - out;
        count[0] += taken;
        count[1] += taken & missing[k];
        count[2] += taken & fallback[k];
        count[3] += out;
    }
}

DS_TABLE(ds_counts_kernels, ds_counts) = {.count_by_key = count_by_key};
