/* The range hash: hash values, minima and top levels of observations, some vectors at a time.

   An observation of weight w and id stands for the hash values (u + j a) mod p, 0 <= j < w, where
   u = (a1 id + b) mod p and a1 = a max_weight mod p. All needs p < 2^61, ids below 2^id_bits <= 2^56
   and columns that were validated. See reference.py for the same quantities in plain integers.

   Derivations
   -----------
   (1) a x + b mod p without 128-bit products. For x < 2^50 the float64 product x (a / p) is off by at
       most 1/2 from the true quotient; rounded to the nearest integer q, the remainder a x - q p,
       computed modulo 2^64, is within (-p, p) and one conditional addition finishes it. Quotients in
       (2), and in (3) of minhit.c, are found in the same way. Wider ids are hashed in two parts.
   (2) Minimum of the progression. A *down step* (q, d) lowers the value by d = -q a mod p at the cost
       of q positions. The record minima of the progression are reached by the down steps that are
       best approximations from below, tried in order of increasing q: take the step while the value
       is >= d and q positions remain. With p and a fixed the list is fixed (about a dozen steps for
       weights below 1,000), so every observation runs the same branch-free comparisons, with its
       value and positions in registers from the first step to the last. Within one group of the
       Euclidean chain, d falls by a constant e from step to step and only the last step can repeat;
       long groups are one division, repeats are binary multiples. */
#ifndef DS_HASH_H
#define DS_HASH_H

#include "core/vectors.h"

enum {
    DS_BLOCK = 512,          /* rows whose scratch stays in the first-level cache */
    DS_NARROW_ID_BITS = 50,  /* ids below 2^50 are hashed in one multiplication, see (1) */
    DS_NARROW_MIX_BITS = 32, /* ids whose mixing needs the low 32 bits of products alone */
    DS_PART_BITS = 28,       /* of a wider id */
    DS_STEP_FIELDS = 6,
    DS_MIX_WORDS = 6,
};

/* Kinds of row in the table of steps. */
enum {
    DS_REPEATABLE = 0, /* (kind, q, d, base q, 0, 0): take (q, d) if possible */
    DS_GROUP = 1,      /* (kind, q0, d0, e, qe, length): take the first possible (q0 + k qe, d0 - k e) */
};

/* A row of Euclid's algorithm on (p, a), for the floor sum. */
typedef struct {
    int64_t modulus, a, ratio; /* ratio = modulus / a */
    double a_over_modulus, one_over_modulus, one_over_a;
} ds_chain;

/* One hash function. */
typedef struct {
    int64_t id_bits;
    int64_t mix_words; /* DS_MIX_WORDS, or 0 where ids are not mixed */
    int64_t mix[DS_MIX_WORDS];
    int64_t a, a1, b, p, top;
    const int64_t (*steps)[DS_STEP_FIELDS]; /* see (2) */
    int64_t step_count;
    const ds_chain *chain;
    int64_t chain_count;
    int64_t a2; /* a1 2^28 mod p */
    double a1_over_p, a2_over_p;
    int64_t p_exponent; /* biased binary exponent of p */
} ds_hash;

/* a x mod p for 0 <= a < p and 0 <= x < 2^50, see (1). */
static inline ds_vec ds_multiply_mod(int64_t a, double a_over_p, ds_vec x, int64_t p) {
    ds_vec q = ds_to_int(ds_to_float(x) * a_over_p);
    ds_vec r = x * a - q * p;
    return r + ((r < 0) & p);
}

static inline ds_vec ds_add_mod(ds_vec x, ds_vec y, int64_t p) {
    ds_vec r = x + y - p;
    return r + ((r < 0) & p);
}

/* The bijection of hashing.mix_ids. */
static inline ds_vec ds_mix(const ds_hash *h, ds_vec id) {
    ds_uvec x = (ds_uvec)id;
    const uint64_t mask = (1ULL << h->id_bits) - 1;
    const int shift = (int)((h->id_bits + 1) >> 1);
    if (h->id_bits <= DS_NARROW_MIX_BITS) {
        const uint64_t low = 0xFFFFFFFF;
        for (int64_t r = 0; r < h->mix_words; r += 2) {
            x = (((x ^ (uint64_t)h->mix[r]) & low) * ((uint64_t)h->mix[r + 1] & low)) & mask;
            x ^= x >> shift;
        }
    } else {
        for (int64_t r = 0; r < h->mix_words; r += 2) {
            x = ((x ^ (uint64_t)h->mix[r]) * (uint64_t)h->mix[r + 1]) & mask;
            x ^= x >> shift;
        }
    }
    return (ds_vec)x;
}

/* u, the hash value of the first integer of each id. */
static inline ds_vec ds_first_value(const ds_hash *h, ds_vec id) {
    ds_vec x = ds_mix(h, id);
    if (h->id_bits <= DS_NARROW_ID_BITS)
        return ds_add_mod(ds_multiply_mod(h->a1, h->a1_over_p, x, h->p), ds_all(h->b), h->p);
    /* a1 x = (a1 2^28 mod p) (x >> 28) + a1 (x & (2^28 - 1)) */
    ds_vec high = ds_multiply_mod(h->a2, h->a2_over_p, x >> DS_PART_BITS, h->p);
    ds_vec low = ds_multiply_mod(h->a1, h->a1_over_p, x & ((1LL << DS_PART_BITS) - 1), h->p);
    return ds_add_mod(ds_add_mod(high, low, h->p), ds_all(h->b), h->p);
}

/* For a group of steps: in the lanes that can take one of them, the first that is possible. */
static inline void ds_take_of_group(const int64_t *step, ds_vec *x, ds_vec *rest) {
    const int64_t q0 = step[1], d0 = step[2], e = step[3], qe = step[4], length = step[5];
    ds_vec inside = (*x >= d0 - length * e) & (*x < d0);
    ds_vec gap = ds_pick(inside, d0 - *x, ds_all(e));
    ds_vec n = ds_to_int(ds_wide_to_float(gap) * (1.0 / (double)e)); /* never above the ceiling */
    n -= n * e < gap;
    ds_vec q = q0 + n * qe;
    ds_vec take = inside & (q <= *rest);
    *x -= (d0 - n * e) & take;
    *rest -= q & take;
}

/* Walk each x down to the minimum of its progression of 1 + rest terms, see (2). */
static inline void ds_walk(const ds_hash *h, ds_vec x[DS_UNROLL], ds_vec rest[DS_UNROLL]) {
    ds_vec most = rest[0];
    for (int v = 1; v < DS_UNROLL; v++) most = ds_pick(rest[v] > most, rest[v], most);
    const int64_t longest = ds_largest(most);
    for (int64_t s = 0; s < h->step_count; s++) {
        const int64_t *step = h->steps[s];
        if (step[0] == DS_REPEATABLE) {
            if (step[3] > longest) break;
            if (step[1] > longest) continue;
            for (int v = 0; v < DS_UNROLL; v++) ds_take(&x[v], &rest[v], step[2], step[1]);
        } else {
            if (step[1] + step[4] > longest) break;
            for (int v = 0; v < DS_UNROLL; v++) ds_take_of_group(step, &x[v], &rest[v]);
        }
    }
}

/* Top level of a hash value: max{i <= top : x < floor(p / 2^i)}. */
static inline ds_vec ds_level_of(const ds_hash *h, ds_vec x) {
#if DS_LANES == 8
    /* p >> level has as many bits as x */
    ds_vec level = (ds_vec)_mm512_lzcnt_epi64((__m512i)x) - (63 + 1023 - h->p_exponent);
    level += x >= (ds_vec)((ds_uvec)ds_all(h->p) >> (ds_uvec)level); /* true is -1 */
#else
    ds_vec y = x + 1;
    /* difference of binary exponents: off by at most one, also where float64(y) rounds up */
    ds_vec level = h->p_exponent - (ds_vec)((ds_uvec)ds_wide_to_float(y) >> 52);
    level &= level > 0;
    level += (ds_vec)((ds_uvec)y << (ds_uvec)level) > h->p; /* true is -1 */
    level -= (ds_vec)((ds_uvec)y << (ds_uvec)(level + 1)) <= h->p;
#endif
    return ds_pick(level < h->top, level, ds_all(h->top));
}

/* The next rows of two columns, at most DS_STRIDE; behind the last one, ids 0 of weight 1. */
static inline void ds_load_rows(
    const int64_t *ids, const int64_t *weights, int64_t rows, ds_vec id[DS_UNROLL],
    ds_vec weight[DS_UNROLL]
) {
    int64_t some_ids[DS_STRIDE], some_weights[DS_STRIDE];
    if (rows < DS_STRIDE) {
        for (int64_t k = 0; k < DS_STRIDE; k++) {
            some_ids[k] = k < rows ? ids[k] : 0;
            some_weights[k] = k < rows ? weights[k] : 1;
        }
        ids = some_ids;
        weights = some_weights;
    }
    for (int v = 0; v < DS_UNROLL; v++) {
        id[v] = ds_load(ids + v * DS_LANES);
        weight[v] = ds_load(weights + v * DS_LANES);
    }
}

/* The least hash value in the range of each of the next rows, at most DS_STRIDE. */
static inline void ds_minima(
    const ds_hash *h, const int64_t *ids, const int64_t *weights, int64_t rows, ds_vec x[DS_UNROLL]
) {
    ds_vec rest[DS_UNROLL];
    ds_load_rows(ids, weights, rows, x, rest);
    for (int v = 0; v < DS_UNROLL; v++) {
        x[v] = ds_first_value(h, x[v]);
        rest[v] -= 1;
    }
    ds_walk(h, x, rest);
}

/* levels[k] = top level of the observation (ids[k], weights[k]), for k < n. */
static inline void ds_levels(
    const ds_hash *h, const int64_t *ids, const int64_t *weights, int64_t n, int8_t *levels
) {
    for (int64_t start = 0; start < n; start += DS_STRIDE) {
        const int64_t rows = n - start < DS_STRIDE ? n - start : DS_STRIDE;
        ds_vec x[DS_UNROLL];
        ds_minima(h, ids + start, weights + start, rows, x);
        int64_t wide[DS_STRIDE];
        for (int v = 0; v < DS_UNROLL; v++) ds_store(wide + v * DS_LANES, ds_level_of(h, x[v]));
        if (rows == DS_STRIDE)
            for (int64_t k = 0; k < DS_STRIDE; k++) levels[start + k] = (int8_t)wide[k];
        else
            for (int64_t k = 0; k < rows; k++) levels[start + k] = (int8_t)wide[k];
    }
}

#endif
