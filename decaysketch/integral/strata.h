/* What of each observation is left at a time; strata.c. */
#ifndef DS_STRATA_H
#define DS_STRATA_H

#include "core/levels.h"
#include "integral/events.h"

typedef struct {
    /* Integers of each of n observations that are left at the time `until`, not before their times,
       and were not seen before: seen[k] were, and is raised. Returns the number of observations that
       have any; `rows` says which, the integers are those from `lows` to before `highs`. */
    int64_t (*stratum)(
        const ds_decay *, const int64_t *weights, const int64_t *times, int64_t n, int64_t until,
        int64_t *seen, int64_t *rows, int64_t *lows, int64_t *highs
    );
} ds_strata_kernels;

DS_TABLES(ds_strata_kernels, ds_strata)

#endif
