/* An open-addressed table of numbers by a 64-bit hash, most of whose misses read no row.

   An entry is a number + 1 in as many low bits as the numbers need, and in the bits above them a tag
   of the hash; 0 is a free slot. The slot is taken from the highest bits of the hash, the tag from
   its lower half. What the numbers stand for, and when it is the same, is known to the caller:

       ds_probe at = ds_first_probe(&table, hash);
       int64_t number;
       while ((number = ds_next(&table, &at)) >= 0)
           if (...number is what is looked for...) break;
       if (number < 0) ds_put(&table, &at, ...a new number...);

   Tables are fed from the network: hashes are multiplied by random odd numbers of the process. The
   caller keeps a quarter of the slots free. */
#ifndef DS_CORE_TABLE_H
#define DS_CORE_TABLE_H

#include <stdint.h>
#include <string.h>

#include "core/bits.h"

typedef struct {
    uint32_t *slots;
    int shift;
    uint32_t number_mask, tag_mask;
    int64_t mask;
    int64_t most; /* entries that leave a quarter of the slots free */
} ds_table;

typedef struct {
    int64_t slot; /* where the entry is that was found, or the free slot where it belongs */
    uint32_t tag;
} ds_probe;

/* An empty table of 2^bits slots for numbers 0..numbers - 1. */
static inline ds_table ds_open_table(uint32_t *slots, int bits, int64_t numbers) {
    memset(slots, 0, sizeof *slots << bits);
    const uint32_t number_mask = (uint32_t)((1ULL << ds_bit_length((uint64_t)numbers + 1)) - 1);
    return (ds_table){
        .slots = slots,
        .shift = 64 - bits,
        .number_mask = number_mask,
        .tag_mask = ~number_mask,
        .mask = (1LL << bits) - 1,
        .most = (1LL << bits) - (1LL << bits >> 2),
    };
}

/* Bits of a table that has at least so many slots. */
static inline int ds_table_bits(int64_t slots) { return ds_bit_length((uint64_t)(slots - 1)); }

/* The hash of an observation, of a weight from 1 to max_weight, under an odd salt. */
static inline uint64_t ds_identity_hash(
    int64_t id, int64_t weight, int64_t max_weight, uint64_t salt
) {
    return (uint64_t)(id * max_weight + weight - 1) * salt;
}

static inline void ds_prefetch(const ds_table *t, uint64_t hash) {
    __builtin_prefetch(&t->slots[hash >> t->shift], 1);
}

static inline ds_probe ds_first_probe(const ds_table *t, uint64_t hash) {
    return (ds_probe){(int64_t)(hash >> t->shift) - 1, (uint32_t)hash & t->tag_mask};
}

/* The next number whose tag is that of the hash, or -1: it is not there. */
static inline int64_t ds_next(const ds_table *t, ds_probe *at) {
    for (;;) {
        at->slot = (at->slot + 1) & t->mask;
        const uint32_t entry = t->slots[at->slot];
        if (entry == 0) return -1;
        if ((entry & t->tag_mask) == at->tag) return (int64_t)(entry & t->number_mask) - 1;
    }
}

/* Put a number where the last probe ended: over the one that was found, or into the free slot. */
static inline void ds_put(ds_table *t, const ds_probe *at, int64_t number) {
    t->slots[at->slot] = at->tag | (uint32_t)(number + 1);
}

#endif
