#include "integral/strata.h"

static int64_t stratum(
    const ds_decay *d, const int64_t *weights, const int64_t *times, int64_t n, int64_t until,
    int64_t *seen, int64_t *rows, int64_t *lows, int64_t *highs
) {
    const uint64_t gone = (uint64_t)d->ages[d->steps - 1];
    int64_t found = 0, step = 0;
    uint64_t of = 0; /* the age of that step: equal times are neighbours */
    for (int64_t k = 0; k < n; k++) {
        const uint64_t age = (uint64_t)until - (uint64_t)times[k];
        if (age >= gone) continue;
        if (age != of) {
            step = ds_step_at(d, age);
            of = age;
        }
        const int64_t left = ds_left(d, weights[k], step);
        rows[found] = k;
        lows[found] = seen[k];
        highs[found] = left;
        found += left > seen[k];
        seen[k] = left > seen[k] ? left : seen[k];
    }
    return found;
}

DS_TABLE(ds_strata_kernels, ds_strata) = {.stratum = stratum};
