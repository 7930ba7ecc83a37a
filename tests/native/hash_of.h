/* A recorded hash function, as `recording.hash_of` writes it. */
#ifndef HASH_OF_H
#define HASH_OF_H

#include "driver.h"
#include "minhit/hash.h"

static inline ds_hash hash_of(const column *from) {
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

#endif
