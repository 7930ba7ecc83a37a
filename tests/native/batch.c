/* Calls of the batch engine. */
#include "tables/counts.h"

#include "driver.h"

/* Inputs: codes, missing, fallback, refused, counts before. */
static void count_by_key(call *c) {
    int64_t *counts = copy_of(&c->in[4]);
    TABLE(ds_counts, DS_LEVEL).count_by_key(
        narrow(&c->in[0], 4), narrow(&c->in[1], 1), narrow(&c->in[2], 1), narrow(&c->in[3], 1),
        c->in[0].count, (int64_t(*)[DS_COUNTS])counts
    );
    give(c, counts, c->in[4].count);
}

const adapter batch_adapters[] = {{"batch.count_by_key", count_by_key}, {0}};
