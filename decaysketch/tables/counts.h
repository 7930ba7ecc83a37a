/* Counts of deliveries by key. */
#ifndef DS_COUNTS_H
#define DS_COUNTS_H

#include <stdint.h>

#include "core/levels.h"

enum { DS_COUNTS = 4 };

typedef struct {
    /* Add to counts[codes[k]] the rows taken, those among them without value, without time, and those
       refused. Masks are 0 or 1. */
    void (*count_by_key)(
        const int32_t *codes, const uint8_t *missing, const uint8_t *fallback,
        const uint8_t *refused, int64_t n, int64_t (*counts)[DS_COUNTS]
    );
} ds_counts_kernels;

DS_TABLES(ds_counts_kernels, ds_counts)

#endif
