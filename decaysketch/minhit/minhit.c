/* Top levels, range samples and first hits of observations, over columns of them.

   Derivations (1) and (2) stand in hash.h.

   (3) Number of hits of a level. With n terms and threshold L = floor(p / 2^i),
       #{j : (u + j a) mod p < L} = n + F(u) - F(u + p - L), F(v) = sum_j floor((v + j a) / p), and F
       is the Euclidean floor sum. Its moduli are the same for all observations: a fixed chain.
       Intermediate sums may wrap around; the difference is exact modulo 2^64.
   (4) First hit of a level: the walk of (2), one Euclidean step at a time, so that no table is needed;
       for all levels at once, along the record minima as reference.record_runs follows them. */
#include "minhit/minhit.h"

static void top_levels(
    const ds_hash *h, const int64_t *ids, const int64_t *weights, int64_t n, int8_t *levels
) {
    ds_levels(h, ids, weights, n, levels);
}

/* Write the first of so many numbers, all of them but at the end of a column. */
static inline void store_some(int64_t *to, const ds_vec x[DS_UNROLL], int64_t rows) {
    int64_t all[DS_STRIDE];
    for (int v = 0; v < DS_UNROLL; v++) ds_store(all + v * DS_LANES, x[v]);
    memcpy(to, all, (size_t)(rows < DS_STRIDE ? rows : DS_STRIDE) * sizeof *all);
}

static void minimum_hashes(
    const ds_hash *h, const int64_t *ids, const int64_t *weights, int64_t n, int64_t *minima
) {
    for (int64_t k = 0; k < n; k += DS_STRIDE) {
        ds_vec x[DS_UNROLL];
        ds_minima(h, ids + k, weights + k, n - k, x);
        store_some(minima + k, x, n - k);
    }
}

/* -------------------------------------------------------------------------------- range samples */

/* Above this quotient r / a the float64 estimate in the floor sum may be off by more than one. */
#define EXACT_DIVISION (1LL << 49)

/* (a n + v) divided by the modulus: quotient and remainder, for a, v < modulus, n < 2^32. */
static inline ds_vec floor_divide(const ds_chain *c, ds_vec n, ds_vec v, ds_vec *remainder) {
    n &= DS_LOW_32;
    ds_vec y = ds_to_int(
        ds_to_float(n) * c->a_over_modulus + ds_wide_to_float(v) * c->one_over_modulus
    );
    ds_vec r = c->a * n + v - y * c->modulus;
    ds_vec below = r < 0; /* -1 where the quotient was one too high */
    *remainder = r + (below & c->modulus);
    return y + below;
}

/* total += sum_{j < n} floor((a j + v) / p) of each lane, 0 <= v < 2p; destroys v. See (3). Several
   vectors go through each step side by side: a step is a chain of products. */
static inline void floor_sums(
    const ds_hash *h, const ds_vec weight[DS_UNROLL], ds_vec v[DS_UNROLL], ds_vec total[DS_UNROLL]
) {
    ds_vec n[DS_UNROLL];
    for (int k = 0; k < DS_UNROLL; k++) {
        n[k] = weight[k];
        ds_vec wrap = v[k] >= h->p;
        total[k] += n[k] & wrap;
        v[k] -= wrap & h->p;
    }
    for (int64_t step = 0; step < h->chain_count; step++) {
        const ds_chain *c = &h->chain[step];
        if (c->a == 0) break;
        const int is_exact = c->ratio < EXACT_DIVISION;
        ds_vec left = {0};
        for (int k = 0; k < DS_UNROLL; k++) {
            ds_vec r, z, y = floor_divide(c, n[k], v[k], &r);
            ds_vec low = y & DS_LOW_32;
            if (is_exact) {
                z = ds_to_int(ds_wide_to_float(r) * c->one_over_a);
                v[k] = r - z * c->a;
                ds_vec below = v[k] < 0;
                z += below;
                v[k] += below & c->a;
            } else { /* the quotient of r and a is too wide for a float64 estimate */
                for (int lane = 0; lane < DS_LANES; lane++) z[lane] = r[lane] / c->a;
                v[k] = r - z * c->a;
            }
            ds_vec pairs = (ds_vec)((ds_uvec)(low * ((y - 1) & DS_LOW_32)) >> 1);
            total[k] += pairs * c->ratio + low * z;
            n[k] = y;
            left |= y;
        }
        if (ds_largest(left) == 0) break;
    }
}

static void range_samples(
    const ds_hash *h, const int64_t *ids, const int64_t *weights, const int8_t *levels, int64_t n,
    int64_t *hits
) {
    for (int64_t start = 0; start < n; start += DS_STRIDE) {
        const int64_t rows = n - start < DS_STRIDE ? n - start : DS_STRIDE;
        int64_t shifted[DS_STRIDE] = {0}, top = 0;
        for (int64_t k = 0; k < rows; k++) {
            const int level = levels[start + k];
            shifted[k] = h->p - (h->p >> level);
            top = level > top ? level : top;
        }
        if (top == 0) { /* every integer is selected at level 0 */
            memcpy(hits + start, weights + start, (size_t)rows * sizeof *hits);
            continue;
        }
        ds_vec u[DS_UNROLL], weight[DS_UNROLL];
        ds_load_rows(ids + start, weights + start, rows, u, weight);
        ds_vec beyond[DS_UNROLL], sums[DS_UNROLL], beyond_sums[DS_UNROLL] = {0};
        for (int v = 0; v < DS_UNROLL; v++) {
            u[v] = ds_first_value(h, u[v]);
            beyond[v] = u[v] + ds_load(shifted + v * DS_LANES);
            sums[v] = weight[v];
        }
        floor_sums(h, weight, u, sums);
        floor_sums(h, weight, beyond, beyond_sums);
        for (int v = 0; v < DS_UNROLL; v++) sums[v] -= beyond_sums[v];
        store_some(hits + start, sums, rows);
    }
}

/* ------------------------------------------------------------------------------------ first hits */

static inline int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }

/* First j <= n with (u + j a) mod p < threshold, else -1; see (4). */
static int64_t first_hit(int64_t p, int64_t a, int64_t u, int64_t n, int64_t threshold) {
    if (u < threshold) return 0;
    if (a == 0 || threshold <= 0) return -1;
    int64_t x = u, rest = n;
    int64_t d = p, qd = 0, e = a, qe = 1; /* smallest down step so far, smallest up step */
    while (qd + qe <= rest) {
        const int64_t length = (d - 1) / e;
        if (x < d) {
            const int64_t k = (d - x + e - 1) / e;
            if (k <= length) {
                const int64_t q = qd + k * qe;
                if (q > rest) return -1;
                x -= d - k * e;
                rest -= q;
                if (x < threshold) return n - rest;
            }
        }
        d -= length * e;
        qd += length * qe;
        if (d <= x) {
            const int64_t wanted = (x - threshold) / d + 1;
            const int64_t repeats = least(least(wanted, x / d), rest / qd);
            x -= repeats * d;
            rest -= repeats * qd;
            if (x < threshold) return n - rest;
        }
        if (d <= 1) break;
        if (e > d) {
            const int64_t m = (e - 1) / d;
            e -= m * d;
            qe += m * qd;
        }
    }
    return -1;
}

static void min_hits(
    const ds_hash *h, const int64_t *ids, const int64_t *weights, const int8_t *levels, int64_t n,
    int64_t *positions
) {
    for (int64_t start = 0; start < n; start += DS_STRIDE) {
        const int64_t rows = n - start < DS_STRIDE ? n - start : DS_STRIDE;
        ds_vec u[DS_UNROLL], weight[DS_UNROLL];
        ds_load_rows(ids + start, weights + start, rows, u, weight);
        for (int v = 0; v < DS_UNROLL; v++) u[v] = ds_first_value(h, u[v]);
        store_some(positions + start, u, rows);
        for (int64_t k = start; k < start + rows; k++)
            positions[k] = first_hit(h->p, h->a, positions[k], weights[k] - 1, h->p >> levels[k]);
    }
}

/* out[i] = first j <= n with (u + j a) mod p < floor(p / 2^i), for the levels 0..top, else -1.

   A level falls to the record that first passes its limit, and limits fall as the level rises. */
static void all_first_hits(const ds_hash *h, int64_t u, int64_t n, int64_t *out) {
    const int64_t p = h->p, a = h->a;
    int64_t level = 0;
    for (int64_t i = 0; i <= h->top; i++) out[i] = -1;
    while (level <= h->top && u < (p >> level)) out[level++] = 0;
    if (a == 0) return;
    int64_t value = u, start = 0;
    int64_t down = p, down_step = 0; /* smallest down step so far, and its length */
    int64_t up = a, up_step = 1;     /* smallest up step so far */
    while (level <= h->top && down != up && down_step + up_step <= n - start) {
        const int64_t last = (down - 1) / up;
        int64_t k = (down - value + up - 1) / up; /* the first step down - k up under the value */
        while (k <= last) {
            if (k > (n - start - down_step) / up_step) return; /* it is longer than 0..n */
            const int64_t step = down_step + k * up_step, drop = down - k * up;
            const int64_t repeats = least(value / drop, (n - start) / step);
            for (; level <= h->top; level++) {
                const int64_t needed = (value - (p >> level) + drop) / drop;
                if (needed > repeats) break;
                out[level] = start + needed * step;
            }
            value -= repeats * drop;
            start += repeats * step;
            k = (down - value + up - 1) / up;
        }
        /* Products are formed only where they stay within 0..n: they could pass 2^63. */
        if (last > (n - start - down_step) / up_step) return;
        down -= last * up;
        down_step += last * up_step;
        const int64_t turns = (up - 1) / down;
        if (turns > (n - start - up_step) / down_step) return;
        up -= turns * down;
        up_step += turns * down_step;
    }
}

static void min_hits_all_levels(
    const ds_hash *h, const int64_t *ids, const int64_t *weights, int64_t n, int64_t *positions
) {
    for (int64_t start = 0; start < n; start += DS_STRIDE) {
        const int64_t rows = n - start < DS_STRIDE ? n - start : DS_STRIDE;
        ds_vec x[DS_UNROLL], weight[DS_UNROLL];
        int64_t u[DS_STRIDE];
        ds_load_rows(ids + start, weights + start, rows, x, weight);
        for (int v = 0; v < DS_UNROLL; v++) ds_store(u + v * DS_LANES, ds_first_value(h, x[v]));
        for (int64_t k = 0; k < rows; k++)
            all_first_hits(
                h, u[k], weights[start + k] - 1, positions + (start + k) * (h->top + 1)
            );
    }
}

DS_TABLE(ds_minhit_kernels, ds_minhit) = {
    .top_levels = top_levels,
    .minimum_hashes = minimum_hashes,
    .range_samples = range_samples,
    .min_hits = min_hits,
    .min_hits_all_levels = min_hits_all_levels,
};
