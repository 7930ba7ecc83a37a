/* Calls of the range hash. The first input is the hash function, as vectors.py writes it. */
#include "minhit/minhit.h"

#include "driver.h"

static const ds_minhit_kernels *kernels = &TABLE(ds_minhit, DS_LEVEL);

static ds_hash hash_of(const column *from) {
    const int64_t *at = from->numbers;
    ds_hash h = {.id_bits = *at++};
    h.mix_words = *at++;
    for (int64_t k = 0; k < h.mix_words; k++) h.mix[k] = *at++;
    h.a = *at++, h.a1 = *at++, h.a2 = *at++, h.b = *at++, h.p = *at++, h.top = *at++;
    h.p_exponent = *at++;
    h.a1_over_p = (double)h.a1 / (double)h.p;
    h.a2_over_p = (double)h.a2 / (double)h.p;
    h.step_count = *at++;
    h.steps = (const int64_t(*)[DS_STEP_FIELDS])at;
    at += h.step_count * DS_STEP_FIELDS;
    h.chain_count = *at++;
    ds_chain *chain = room(h.chain_count, sizeof *chain);
    for (int64_t k = 0; k < h.chain_count; k++, at += 3)
        chain[k] = (ds_chain){
            .modulus = at[0],
            .a = at[1],
            .ratio = at[2],
            .a_over_modulus = (double)at[1] / (double)at[0],
            .one_over_modulus = 1.0 / (double)at[0],
            .one_over_a = at[1] ? 1.0 / (double)at[1] : 0.0,
        };
    h.chain = chain;
    return h;
}

static void top_levels(call *c) {
    const ds_hash h = hash_of(&c->in[0]);
    const int64_t n = c->in[1].count;
    int8_t *levels = room(n, 1);
    kernels->top_levels(&h, c->in[1].numbers, c->in[2].numbers, n, levels);
    give_bytes(c, levels, n);
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
        &h, c->in[1].numbers, c->in[2].numbers, bytes_of(&c->in[3]), n, hits
    );
    give(c, hits, n);
}

static void min_hits(call *c) {
    const ds_hash h = hash_of(&c->in[0]);
    const int64_t n = c->in[1].count;
    int64_t *positions = room(n, sizeof *positions);
    kernels->min_hits(
        &h, c->in[1].numbers, c->in[2].numbers, bytes_of(&c->in[3]), n, positions
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
