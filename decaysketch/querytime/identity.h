/* One number for the id and the weight of an observation: id * max_weight + weight - 1. */
#ifndef DS_IDENTITY_H
#define DS_IDENTITY_H

#include <stdint.h>

#include "core/bits.h"

enum { DS_IDENTITY_BITS = 58 };

/* How identities are taken apart. */
typedef struct {
    uint64_t inverse;
    int64_t max_weight;
    int shift;
} ds_parting;

/* Identities are below 2^58 and max_weight is at most 2^bits: with inverse = floor(2^(58 + bits) /
   max_weight) + 1 the quotient is exact, since inverse exceeds 2^(58 + bits) / max_weight by no more
   than the part 2^-58 of it. */
static inline ds_parting ds_parting_of(int64_t max_weight) {
    const int shift = DS_IDENTITY_BITS + ds_bit_length((uint64_t)max_weight - 1);
    const unsigned __int128 one = (unsigned __int128)1 << shift;
    return (ds_parting){(uint64_t)(one / (uint64_t)max_weight) + 1, max_weight, shift};
}

static inline uint64_t ds_identity(int64_t id, int64_t weight, int64_t max_weight) {
    return (uint64_t)(id * max_weight + weight - 1);
}

static inline void ds_part(const ds_parting *p, uint64_t identity, int64_t *id, int64_t *weight) {
    *id = (int64_t)((unsigned __int128)identity * p->inverse >> p->shift);
    *weight = (int64_t)identity - *id * p->max_weight + 1;
}

#endif
