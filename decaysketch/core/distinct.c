/* The hash table that numbers distinct int64 numbers.

   A large table is in no cache: a key costs one miss, since its number stands beside it, and the
   slots of some rows are asked for before the first of them is read. The table is fed from the
   network: keys are multiplied by a random odd number of the process. */
#include "core/distinct.h"

enum { AHEAD = 24 }; /* rows between the one whose slot is asked for and the one that is numbered */

static inline int64_t first_slot(const ds_distinct *d, int64_t key) {
    return (int64_t)((uint64_t)key * d->salt >> (64 - d->bits));
}

static inline void ask_for_slot(const ds_distinct *d, int64_t key) {
    __builtin_prefetch(&d->slots[first_slot(d, key)], 1);
}

/* The slot of a key, or the free one where it belongs. */
static inline ds_slot *slot_of(const ds_distinct *d, int64_t key) {
    const int64_t mask = (1LL << d->bits) - 1;
    int64_t slot = first_slot(d, key);
    while (d->slots[slot].number != 0 && d->slots[slot].key != key) slot = (slot + 1) & mask;
    return &d->slots[slot];
}

static int64_t number_keys(
    ds_distinct *d, const int64_t *keys, int64_t start, int64_t n, int32_t *codes
) {
    for (int64_t k = start; k < n; k++) {
        if (k + AHEAD < n) ask_for_slot(d, keys[k + AHEAD]);
        ds_slot *slot = slot_of(d, keys[k]);
        if (slot->number == 0) {
            if (d->count == d->room) return k;
            d->distinct[d->count++] = keys[k];
            *slot = (ds_slot){keys[k], d->count};
        }
        codes[k] = (int32_t)(slot->number - 1);
    }
    return n;
}

static void fill_table(ds_distinct *d, int64_t left_out) {
    for (int64_t number = 0; number < d->count; number++) {
        if (number + AHEAD < d->count) ask_for_slot(d, d->distinct[number + AHEAD]);
        const int64_t key = d->distinct[number];
        if (number != left_out) *slot_of(d, key) = (ds_slot){key, number + 1};
    }
}

DS_TABLE(ds_distinct_kernels, ds_distinct) = {
    .number_keys = number_keys,
    .fill_table = fill_table,
};
