/* Rows of one sketch, unpacked and checked block by block, while they lie in the cache.

   Whatever is not flawless beyond doubt is left to the careful reader, rows.py, which reads it or
   says what is wrong with it.

   No (id, weight) twice. Identities are hashed into chains by multiplication with a salt that whoever
   wrote the bytes does not know: two of them meet in one of 2^b slots with a chance of at most
   2 / 2^b. A row becomes the head of its chain without a look at the others; only where there are
   some, a fifth of the rows, they are compared. Chains that take more steps than that explains are a
   doubt: the careful reader sorts. */
#include "core/codec/rows.h"

#define BITPACK DS_PASTE(ds_bitpack, DS_LEVEL)

enum { STEPS_OF_A_ROW = 4, FEWEST_STEPS = 1000 };

static const int64_t largest_float_key = 0x7FEFFFFFFFFFFFFF, negative_zero_key = -1;

/* Whether row i comes after row i - 1, without a branch. */
static inline int64_t comes_after(const ds_rows *r, int64_t i) {
    const int64_t *t = r->times + i, *d = r->ids + i, *w = r->weights + i;
    int64_t heavier = w[0] < w[-1];
    int64_t same_id = (d[0] == d[-1]) & heavier;
    return (t[0] < t[-1]) | ((t[0] == t[-1]) & ((d[0] < d[-1]) | same_id));
}

static int64_t first_out_of_order(const ds_rows *rows, int64_t n) {
    for (int64_t i = 1; i < n; i++)
        if (!comes_after(rows, i)) return i;
    return -1;
}

/* Whether rows from..to - 1 are in order, behind the one before them, and within the limits. */
static int in_bounds(const ds_limits *limits, const ds_rows *rows, int64_t from, int64_t to) {
    const uint64_t ids = (uint64_t)limits->ids, weights = (uint64_t)limits->max_weight;
    int64_t good = -1;
    for (int64_t i = from > 0 ? from : 1; i < to; i++) good &= -comes_after(rows, i);
    for (int64_t i = from; i < to; i++) {
        good &= -(int64_t)((uint64_t)rows->ids[i] < ids);
        good &= -(int64_t)((uint64_t)rows->weights[i] - 1 < weights);
    }
    if (limits->floats)
        for (int64_t i = from; i < to; i++) {
            const int64_t key = rows->values[i];
            const int64_t number = (key <= largest_float_key) & (key >= ~largest_float_key) &
                                   (key != negative_zero_key);
            good &= -(number | (key == DS_MISSING));
        }
    return good != 0;
}

/* Chains of rows, by number from 1. */
typedef struct {
    uint32_t *heads, *next;
    int bits;
    int64_t steps_left;
} chains;

/* Puts rows from..to - 1 into their chains; whether none of them was there, beyond doubt. */
static int all_new(
    chains *c, const ds_limits *limits, const ds_rows *rows, int64_t from, int64_t to
) {
    uint32_t met[DS_ROW_BLOCK], slots[DS_ROW_BLOCK];
    int others = 0;
    for (int64_t i = from; i < to; i++) {
        const uint64_t identity = (uint64_t)(rows->ids[i] * limits->max_weight + rows->weights[i]);
        slots[i - from] = (uint32_t)(identity * limits->salt >> (64 - c->bits));
    }
    for (int64_t i = 0; i < to - from; i++) __builtin_prefetch(&c->heads[slots[i]], 1);
    for (int64_t i = from; i < to; i++) {
        uint32_t *head = &c->heads[slots[i - from]];
        const uint32_t other = *head;
        c->next[i] = other;
        *head = (uint32_t)i + 1;
        met[others] = (uint32_t)i;
        others += other != 0;
    }
    for (int k = 0; k < others; k++) {
        const uint32_t i = met[k];
        for (uint32_t other = c->next[i]; other; other = c->next[other - 1]) {
            if (--c->steps_left < 0) return 0;
            if (rows->ids[other - 1] == rows->ids[i] &&
                rows->weights[other - 1] == rows->weights[i])
                return 0;
        }
    }
    return 1;
}

static int64_t read_rows(
    const ds_limits *limits, const uint8_t *data, int64_t size, int64_t n, int64_t first_time,
    const ds_rows *rows, uint32_t *scratch
) {
    if (n >= UINT32_MAX || first_time > DS_TIME_LIMIT || first_time < -DS_TIME_LIMIT) return -1;
    const ds_outcome found = BITPACK.scan(data, size, n, limits->floats);
    if (found.code != DS_OK) return -1;
    const int64_t taken = (found.bits + 7) >> 3;
    if (found.bits & 7 && data[taken - 1] >> (found.bits & 7)) return -1;

    chains c = {.heads = scratch, .bits = ds_identity_bits(n)};
    c.next = scratch + (1LL << c.bits);
    c.steps_left = FEWEST_STEPS + STEPS_OF_A_ROW * n;
    memset(c.heads, 0, sizeof *c.heads << c.bits);

    ds_unpacker in;
    BITPACK.open(&in, data, size, first_time, limits->floats);
    for (int64_t from = 0; from < n; from += DS_ROW_BLOCK) {
        const int64_t m = n - from < DS_ROW_BLOCK ? n - from : DS_ROW_BLOCK;
        if (!BITPACK.next(&in, m, rows, from) || !in_bounds(limits, rows, from, from + m) ||
            !all_new(&c, limits, rows, from, from + m))
            return -1;
    }
    if (n > 0 && rows->times[n - 1] < -DS_TIME_LIMIT) return -1;
    return taken;
}

DS_TABLE(ds_row_kernels, ds_row) = {
    .read = read_rows,
    .first_out_of_order = first_out_of_order,
};
