/* One layer of cells from several that counted parts of a stream (paper, section 5.1).

   What a cell has counted is reconstructed from its kept ranks: the ones between two of them lie at
   the ends of their gap, shared out so that the worst relative error of any window is least. It is
   1 / (2 q) for a wave; for a histogram of whole ones 1 / (B + 1). With steps, as many as that bound
   leaves free are spread evenly over the gap instead. The pieces of all sources, merged by time, are
   a stream, of which the new cell keeps what it keeps of any. Only the times of pieces and how many
   ones they have matter, so the order of the sources does not. */
#include "ecm/cells.h"

static inline int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }
static inline int64_t most(int64_t x, int64_t y) { return x > y ? x : y; }

typedef unsigned __int128 wide_number;

/* floor(a b / c), which is below 2^64. */
static inline uint64_t scaled(uint64_t a, uint64_t b, uint64_t c) {
    if ((a | b) >> 32 == 0) return a * b / c;
    return (uint64_t)((wide_number)a * b / c);
}

/* lo hi times the worst relative error of an answer to what is from lo to hi. */
static inline wide_number worst(int64_t lo, int64_t hi, int64_t answer) {
    const wide_number above = (wide_number)(hi - answer) * (uint64_t)lo;
    const wide_number below = (wide_number)(answer - lo) * (uint64_t)hi;
    return above > below ? above : below;
}

/* The answer that makes it least: next to 2 lo hi / (lo + hi), and the smaller one of two. */
static inline int64_t middle(int64_t lo, int64_t hi) {
    if (lo == hi) return lo;
    const int64_t answer = (int64_t)scaled(2 * (uint64_t)lo, (uint64_t)hi, (uint64_t)(lo + hi));
    return answer + (worst(lo, hi, answer + 1) < worst(lo, hi, answer));
}

/* Appends what a cell has counted, newest first; where it ends. */
static ds_ecm_piece *take_apart(
    const ds_ecm_source *source, int64_t cell, int64_t steps, ds_ecm_piece *to
) {
    const int64_t n = source->n[cell], stop = source->lists.offsets[cell + 1];
    const int64_t *ranks = source->lists.ranks, *times = source->lists.times;
    for (int64_t k = source->lists.offsets[cell]; k < stop; k++) {
        const bool is_last = k + 1 == stop;
        const int64_t time = times[k], before = is_last ? source->first : times[k + 1];
        const int64_t lo = n - ranks[k] + 1, hi = n - (is_last ? 0 : ranks[k + 1]);
        int64_t fewest = middle(lo, hi), mostly = fewest;
        if (steps && hi > lo) {
            mostly = most(mostly, least(hi, lo + lo / source->inaccuracy));
            fewest = least(fewest, most(lo, hi - hi / source->inaccuracy));
        }
        *to++ = (ds_ecm_piece){time, fewest - lo + 1};
        const int64_t free = mostly - fewest, parts = least(free, steps);
        const uint64_t gap = (uint64_t)time - (uint64_t)before;
        for (int64_t part = parts; part > 0; part--) {
            const uint64_t count = (uint64_t)parts;
            const int64_t put = (int64_t)scaled((uint64_t)part, (uint64_t)free, count);
            const int64_t ones = put - (int64_t)scaled((uint64_t)part - 1, (uint64_t)free, count);
            const uint64_t place = 2 * (uint64_t)(hi - mostly + put) - (uint64_t)ones;
            const uint64_t after = scaled(gap, place, 2 * (uint64_t)(hi - lo + 1));
            *to++ = (ds_ecm_piece){(int64_t)((uint64_t)before + after), ones};
        }
        if (hi > mostly) *to++ = (ds_ecm_piece){before, hi - mostly};
    }
    return to;
}

/* Merge runs of pieces, run k from ends[k] to ends[k + 1], from one half of their room to the other
   and back; where they are then. */
static ds_ecm_piece *merge_runs(
    ds_ecm_piece *from, ds_ecm_piece *to, int64_t *ends, int64_t runs
) {
    while (runs > 1) {
        int64_t merged = 0;
        ds_ecm_piece *at = to;
        for (int64_t k = 0; k < runs; k += 2) {
            const ds_ecm_piece *x = from + ends[k], *x_end = from + ends[k + 1];
            const ds_ecm_piece *y = x_end, *y_end = k + 1 < runs ? from + ends[k + 2] : x_end;
            while (x < x_end && y < y_end) {
                const bool is_first = x->time >= y->time;
                *at++ = *(is_first ? x : y);
                x += is_first;
                y += !is_first;
            }
            while (x < x_end) *at++ = *x++;
            while (y < y_end) *at++ = *y++;
            ends[++merged] = at - to;
        }
        runs = merged;
        ds_ecm_piece *other = from;
        from = to;
        to = other;
    }
    return from;
}

/* Write the times of kept ranks of a cell whose ones are these, newest first. */
DS_ECM_INLINE void fill(
    const ds_ecm_cells *c, bool wide, bool histogram, int64_t cell, const ds_ecm_piece *piece
) {
    const uint64_t reciprocal = ds_ecm_reciprocal(c->slots);
    const int64_t n = c->n[cell];
    int64_t newest = n, before = n; /* ranks of the piece are above `before` */
    if (n > 0) before -= piece->ones;
    for (int region = 0; newest > 0; region++) {
        const int64_t oldest = ds_ecm_oldest(n, c->slots, histogram, region), step = 1LL << region;
        for (int64_t rank = newest; rank >= oldest; rank -= step) {
            while (rank <= before) before -= (++piece)->ones;
            ds_ecm_store(
                c, wide, ds_ecm_place(c, histogram, reciprocal, cell, region, rank),
                piece->time - c->base
            );
        }
        newest = oldest - step;
    }
}

static void compact(
    const ds_ecm_cells *c, const ds_ecm_source *source, int64_t sources, int64_t steps,
    ds_ecm_piece *pieces, int64_t room, int64_t *ends
) {
    for (int64_t cell = 0; cell < c->cells; cell++) {
        ds_ecm_piece *at = pieces;
        int64_t runs = 0;
        ends[0] = 0;
        for (int64_t k = 0; k < sources; k++)
            if (source[k].n[cell]) {
                at = take_apart(&source[k], cell, steps, at);
                ends[++runs] = at - pieces;
            }
        const ds_ecm_piece *merged = merge_runs(pieces, pieces + room, ends, runs);
        DS_ECM_EACH_KIND(fill, c, cell, merged);
    }
}

DS_TABLE(ds_ecm_merge_kernels, ds_ecm_merges) = {
    .compact = compact,
};
