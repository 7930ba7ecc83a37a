/* First hits of all levels, of some vectors of observations at a time.

   The first hits of an observation are record minima of the progression of its hash values, which the
   walk of hash.h passes one after another. A record (value x, position j) is the first hit of the
   levels from the one above the top level of the record before it up to its own top level, if there
   is any. So a lane needs to remember the top level so far alone, and records below the next level's
   limit are taken out as the walk meets them.

   Rows of the table of steps with one base step are a *run*: so many equal steps, each of which makes
   a record. Only the last one is found by the walk. Where it lies below the limit of a lane, the first
   one that does follows by division, then the next one below the limit after that: a hit each, however
   long the run is. Before a hit is found by division x - limit < d 2^31, so that the float64 quotient,
   rounded to the nearest integer, is the floor or one more. */
#ifndef DS_FIRST_HITS_H
#define DS_FIRST_HITS_H

#include "minhit/hash.h"

enum {
    DS_MOST_HITS = 62, /* of an observation: one for each level */
    DS_HIT_ROW_BITS = 6,
    DS_HIT_LEVEL_BITS = 6,
    DS_HIT_LOW = DS_HIT_ROW_BITS,
    DS_HIT_HIGH = DS_HIT_LOW + DS_HIT_LEVEL_BITS,
    DS_HIT_WEIGHT = DS_HIT_HIGH + DS_HIT_LEVEL_BITS,
};

/* Hits of at most DS_STRIDE observations: those of each in order of their positions, but those of
   several observations mixed. A word is weight << 18 | highest level << 12 | lowest << 6 | row. */
typedef struct {
    int64_t count;
    int64_t words[DS_STRIDE * DS_MOST_HITS + DS_LANES];
    int64_t positions[DS_STRIDE * DS_MOST_HITS + DS_LANES];
} ds_first_hits;

static inline int64_t ds_hit_row(int64_t word) { return word & ((1 << DS_HIT_ROW_BITS) - 1); }

static inline int64_t ds_hit_low(int64_t word) {
    return word >> DS_HIT_LOW & ((1 << DS_HIT_LEVEL_BITS) - 1);
}

static inline int64_t ds_hit_high(int64_t word) {
    return word >> DS_HIT_HIGH & ((1 << DS_HIT_LEVEL_BITS) - 1);
}

/* A vector of observations on their walk. */
typedef struct {
    ds_vec x, rest; /* as ds_walk has them */
    ds_vec longest; /* last position */
    ds_vec level;   /* top level so far, -1 before the first record */
    ds_vec limit;   /* of the level above: records below it are hits */
    ds_vec word;    /* weight and row */
} ds_walker;

/* Take out the records (x, longest - rest) where the mask is set. */
static inline void ds_take_out(
    const ds_hash *h, ds_walker *w, ds_vec hit, ds_vec x, ds_vec rest, ds_first_hits *hits
) {
    ds_vec level = ds_level_of(h, x);
    ds_vec word = w->word | level << DS_HIT_HIGH | (w->level + 1) << DS_HIT_LOW;
    ds_compress(hits->words + hits->count, hit, word);
    hits->count += ds_compress(hits->positions + hits->count, hit, w->longest - rest);
    ds_vec limit = (ds_vec)((ds_uvec)ds_all(h->p) >> (ds_uvec)(level + 1)) & (level < h->top);
    w->level = ds_pick(hit, level, w->level);
    w->limit = ds_pick(hit, limit, w->limit);
}

/* Take out the hits among the records of a run of steps (q, d), which began at (x, rest). */
static inline void ds_take_out_of_run(
    const ds_hash *h, ds_walker *w, int64_t q, int64_t d, ds_vec x, ds_vec rest,
    ds_first_hits *hits
) {
    const double one_over_d = 1.0 / (double)d;
    for (;;) {
        ds_vec hit = w->x < w->limit;
        if (!ds_any(hit)) return;
        ds_vec gap = ds_pick(hit, x - w->limit, ds_all(0));
        ds_vec n = ds_to_int(ds_wide_to_float(gap) * one_over_d);
        n += 1 + (n * d > gap);
        ds_take_out(h, w, hit, x - n * d, rest - n * q, hits);
    }
}

/* Walk observations, of which lengths say how many integers they have (0: none), and take out all
   first hits. */
static inline void ds_walk_to_hits(
    const ds_hash *h, const int64_t ids[DS_STRIDE], const int64_t weights[DS_STRIDE],
    const int64_t lengths[DS_STRIDE], ds_first_hits *hits
) {
    ds_walker w[DS_UNROLL];
    ds_vec x[DS_UNROLL], rest[DS_UNROLL], most = ds_all(0);
    hits->count = 0;
    for (int v = 0; v < DS_UNROLL; v++) {
        ds_vec row;
        for (int lane = 0; lane < DS_LANES; lane++) row[lane] = v * DS_LANES + lane;
        w[v].word = ds_load(weights + v * DS_LANES) << DS_HIT_WEIGHT | row;
        w[v].longest = w[v].rest = ds_load(lengths + v * DS_LANES) - 1;
        w[v].x = ds_first_value(h, ds_load(ids + v * DS_LANES));
        w[v].level = ds_all(-1);
        w[v].limit = ds_all(0);
        most = ds_pick(w[v].rest > most, w[v].rest, most);
        ds_take_out(h, &w[v], w[v].rest >= 0, w[v].x, w[v].rest, hits);
    }
    const int64_t longest = ds_largest(most);
    int64_t base = 0; /* of the run */
    for (int64_t s = 0; s < h->step_count; s++) {
        const int64_t *step = h->steps[s];
        if (step[0] == DS_GROUP) {
            if (step[1] + step[4] > longest) break;
            for (int v = 0; v < DS_UNROLL; v++) {
                ds_take_of_group(step, &w[v].x, &w[v].rest);
                ds_vec hit = w[v].x < w[v].limit;
                if (ds_any(hit)) ds_take_out(h, &w[v], hit, w[v].x, w[v].rest, hits);
            }
            continue;
        }
        const int64_t q = step[1], d = step[2];
        if (step[3] > longest) break;
        if (q > longest) continue;
        if (step[3] == q && base != q) { /* a single step */
            for (int v = 0; v < DS_UNROLL; v++) {
                ds_take(&w[v].x, &w[v].rest, d, q);
                ds_vec hit = w[v].x < w[v].limit;
                if (ds_any(hit)) ds_take_out(h, &w[v], hit, w[v].x, w[v].rest, hits);
            }
            continue;
        }
        for (int v = 0; v < DS_UNROLL; v++) {
            if (base != step[3]) x[v] = w[v].x, rest[v] = w[v].rest;
            ds_take(&w[v].x, &w[v].rest, d, q);
            if (step[3] == q) ds_take_out_of_run(h, &w[v], q, d, x[v], rest[v], hits);
        }
        base = step[3];
    }
}

#endif
