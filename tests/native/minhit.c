/* Calls of the range hash. The first inputs are the hash function, ids, weights, and levels if any. */
#include "minhit/minhit.h"

#include "hash_of.h"

static const ds_minhit_kernels *kernels = &TABLE(ds_minhit, DS_LEVEL);

static void top_levels(call *c) {
    const ds_hash h = hash_of(&c->in[0]);
    const int64_t n = c->in[1].count;
    int8_t *levels = room(n, 1);
    kernels->top_levels(&h, c->in[1].numbers, c->in[2].numbers, n, levels);
    give_narrow(c, levels, n, 1);
}

static void minimum_hashes(call *c) {
    const ds_hash h = hash_of(&c->in[0]);
    const int64_t n = c->in[1].count;
    int64_t *minima = room(n, sizeof *minima);
    kernels->minimum_hashes(&h, c->in[1].numbers, c->in[2].numbers, n, minima);
    give(c, minima, n);
}

static void range_samples(call *c) {
    const ds_hash h = hash_of(&c->in[0]);
    const int64_t n = c->in[1].count;
    int64_t *hits = room(n, sizeof *hits);
    kernels->range_samples(
        &h, c->in[1].numbers, c->in[2].numbers, narrow(&c->in[3], 1), n, hits
    );
    give(c, hits, n);
}

static void min_hits(call *c) {
    const ds_hash h = hash_of(&c->in[0]);
    const int64_t n = c->in[1].count;
    int64_t *positions = room(n, sizeof *positions);
    kernels->min_hits(
        &h, c->in[1].numbers, c->in[2].numbers, narrow(&c->in[3], 1), n, positions
    );
    give(c, positions, n);
}

static void min_hits_all_levels(call *c) {
    const ds_hash h = hash_of(&c->in[0]);
    const int64_t n = c->in[1].count, all = n * (h.top + 1);
    int64_t *positions = room(all, sizeof *positions);
    kernels->min_hits_all_levels(&h, c->in[1].numbers, c->in[2].numbers, n, positions);
    give(c, positions, all);
}

const adapter minhit_adapters[] = {
    {"minhit.top_levels", top_levels},
    {"minhit.minimum_hashes", minimum_hashes},
    {"minhit.range_samples", range_samples},
    {"minhit.min_hits", min_hits},
    {"minhit.min_hits_all_levels", min_hits_all_levels},
    {0},
};
