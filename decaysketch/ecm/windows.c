/* Answers of cells, and their kept ranks as lists.

   Let `older` be the newest kept rank before the start of a window (0: none is) and `newer` the oldest
   kept one in it (n + 1: none is). Ranks rise with times, so that at least n - newer + 1 and at most
   n - older ones are in the window: no more can be known from what is kept. Regions are looked at
   from the newest on, until the oldest rank of one is before the start; the rest is a binary search
   in that region. Its error (hi - lo) / (hi + lo) is less than 1 / (2 q) for a wave, and than
   1 / (2 B - 1) for a histogram, as n - newest(l) is at least so many times 2^l. */
#include "ecm/cells.h"

static inline int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }

typedef struct {
    int64_t older, newer;           /* ranks */
    int64_t older_time, newer_time; /* as stored, where there is such a rank */
} gap;

DS_ECM_INLINE gap gap_of(
    const ds_ecm_cells *c, bool wide, bool histogram, uint64_t reciprocal, int64_t cell,
    int64_t start
) {
    const int64_t n = c->n[cell];
    gap g = {0, n + 1, 0, 0};
    if (n == 0) return g;
    int64_t newest = n;
    for (int region = 0;; region++) {
        const int64_t oldest = ds_ecm_oldest(n, c->slots, histogram, region), step = 1LL << region;
        const int64_t stored =
            ds_ecm_load(c, wide, ds_ecm_place(c, histogram, reciprocal, cell, region, oldest));
        if (stored >= start) {
            g.newer = oldest;
            g.newer_time = stored;
            if (oldest == step) return g;
            newest = oldest - step;
            continue;
        }
        g.older_time = stored;
        int64_t before = 0, after = ((newest - oldest) >> region) + 1;
        while (after - before > 1) {
            const int64_t middle = (before + after) >> 1, rank = oldest + (middle << region);
            const int64_t time =
                ds_ecm_load(c, wide, ds_ecm_place(c, histogram, reciprocal, cell, region, rank));
            if (time < start) {
                before = middle;
                g.older_time = time;
            } else {
                after = middle;
                g.newer = rank;
                g.newer_time = time;
            }
        }
        g.older = oldest + (before << region);
        return g;
    }
}

DS_ECM_INLINE void grid_of(
    const ds_ecm_cells *c, bool wide, bool histogram, int64_t start, int64_t *lo, int64_t *hi
) {
    const uint64_t reciprocal = ds_ecm_reciprocal(c->slots);
    for (int64_t cell = 0; cell < c->cells; cell++) {
        const gap g = gap_of(c, wide, histogram, reciprocal, cell, start - c->base);
        lo[cell] = c->n[cell] + 1 - g.newer;
        hi[cell] = c->n[cell] - g.older;
    }
}

static void grid(const ds_ecm_cells *c, int64_t start, int64_t *lo, int64_t *hi) {
    DS_ECM_EACH_KIND(grid_of, c, start, lo, hi);
}

/* The ones of a gap are spread evenly over its time; what that says is then cut to where it is off by
   `error` at the most, whatever the truth in [lo, hi]. */
DS_ECM_INLINE void values_of(
    const ds_ecm_cells *c, bool wide, bool histogram, int64_t start, int64_t first, double error,
    double *values
) {
    const uint64_t reciprocal = ds_ecm_reciprocal(c->slots);
    for (int64_t cell = 0; cell < c->cells; cell++) {
        const gap g = gap_of(c, wide, histogram, reciprocal, cell, start - c->base);
        const int64_t n = c->n[cell];
        const double lo = (double)(n + 1 - g.newer), hi = (double)(n - g.older);
        double value = lo;
        if (g.newer - g.older > 1) {
            const int64_t older = g.older ? g.older_time : first - c->base;
            const uint64_t inside = (uint64_t)g.newer_time - (uint64_t)(start - c->base);
            const uint64_t whole = (uint64_t)g.newer_time - (uint64_t)older;
            value += (hi - lo) * ((double)inside / (double)(whole ? whole : 1));
            const double highest = (1 + error) * lo, lowest = (1 - error) * hi;
            value = value < lowest ? lowest : value;
            value = value > highest ? highest : value;
        }
        values[cell] = value;
    }
}

static void values(
    const ds_ecm_cells *c, int64_t start, int64_t first, double error, double *values
) {
    DS_ECM_EACH_KIND(values_of, c, start, first, error, values);
}

/* ----------------------------------------------------------------------------------------- lists */

static void kept(
    const int64_t *n, int64_t cells, int64_t slots, bool histogram, int64_t *counts
) {
    for (int64_t cell = 0; cell < cells; cell++) {
        int64_t count = 0, newest = n[cell];
        for (int region = 0; newest > 0; region++) {
            const int64_t oldest = ds_ecm_oldest(n[cell], slots, histogram, region);
            count += ((newest - oldest) >> region) + 1;
            newest = oldest - (1LL << region);
        }
        counts[cell] = count;
    }
}

/* Does something for each kept rank of a cell, newest first, which has a place. */
#define EACH_RANK(c, histogram, reciprocal, cell, ...)                                             \
    for (int64_t region = 0, newest = (c)->n[cell], oldest; newest > 0;                            \
         newest = oldest - (1LL << region), region++) {                                            \
        oldest = ds_ecm_oldest((c)->n[cell], (c)->slots, histogram, (int)region);                  \
        for (int64_t rank = newest; rank >= oldest; rank -= 1LL << region) {                       \
            const int64_t place =                                                                  \
                ds_ecm_place(c, histogram, reciprocal, cell, (int)region, rank);                   \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

DS_ECM_INLINE void write_of(
    const ds_ecm_cells *c, bool wide, bool histogram, const ds_ecm_lists *lists
) {
    const uint64_t reciprocal = ds_ecm_reciprocal(c->slots);
    int64_t count = 0;
    for (int64_t cell = 0; cell < c->cells; cell++) {
        lists->offsets[cell] = count;
        EACH_RANK(c, histogram, reciprocal, cell, {
            lists->ranks[count] = rank;
            lists->times[count++] = ds_ecm_load(c, wide, place) + c->base;
        })
    }
    lists->offsets[c->cells] = count;
}

static void write(const ds_ecm_cells *c, const ds_ecm_lists *lists) {
    DS_ECM_EACH_KIND(write_of, c, lists);
}

DS_ECM_INLINE bool restore_of(
    const ds_ecm_cells *c, bool wide, bool histogram, const int64_t *times, int64_t first,
    int64_t last
) {
    const uint64_t reciprocal = ds_ecm_reciprocal(c->slots);
    for (int64_t cell = 0; cell < c->cells; cell++) {
        int64_t newer = last;
        EACH_RANK(c, histogram, reciprocal, cell, {
            const int64_t time = *times++;
            if (time > newer || time < first) return false;
            ds_ecm_store(c, wide, place, time - c->base);
            newer = time;
        })
    }
    return true;
}

static bool restore(const ds_ecm_cells *c, const int64_t *times, int64_t first, int64_t last) {
    return DS_ECM_EACH_KIND(restore_of, c, times, first, last);
}

/* Every step of the search is the same for all starts, so that none is guessed. */
static void each(
    const ds_ecm_layer *layer, const int64_t *n, const ds_ecm_lists *lists, const uint64_t *words,
    const int64_t *starts, int64_t count, int64_t first, int64_t *lo, int64_t *hi
) {
    uint32_t cells[DS_ECM_MOST_ROWS * DS_ECM_BLOCK];
    const int64_t *times = lists->times, *ranks = lists->ranks, *offsets = lists->offsets;
    for (int64_t begin = 0; begin < count; begin += DS_ECM_BLOCK) {
        const int64_t rows = least(DS_ECM_BLOCK, count - begin);
        ds_ecm_columns_of(layer, words + begin, rows, layer->width, cells, DS_ECM_BLOCK);
        for (int64_t k = 0; k < rows; k++) {
            const int64_t start = starts[begin + k];
            int64_t low = INT64_MAX, high = INT64_MAX;
            for (int64_t r = 0; r < layer->depth; r++) {
                const int64_t cell = cells[r * DS_ECM_BLOCK + k], all = n[cell];
                const int64_t from = offsets[cell], to = offsets[cell + 1];
                int64_t at = from; /* the first one before the start */
                if (to > from) {
                    int64_t length = to - from;
                    while (length > 1) {
                        const int64_t half = length >> 1;
                        at += times[at + half - 1] >= start ? half : 0;
                        length -= half;
                    }
                    at += times[at] >= start;
                }
                const int64_t newer = at > from ? ranks[at - 1] : all + 1;
                const int64_t older = at < to ? ranks[at] : 0;
                low = least(low, start <= first ? all : all + 1 - newer);
                high = least(high, all - older);
            }
            lo[begin + k] = low;
            hi[begin + k] = high;
        }
    }
}

/* The ones of ranks r > r' that are kept lie between their times: r has its own weight, and each of
   the r - r' - 1 between them one from that at the time of r' to that at the time of r; those of
   ones that are not yet there are 0. Before the oldest kept rank, the time of r' is the first one. */
static void decayed(
    const ds_ecm_lists *lists, const double *weights, int64_t cells, int64_t now, int64_t first,
    double oldest, double *lo, double *hi
) {
    for (int64_t cell = 0; cell < cells; cell++) {
        double low = 0, high = 0;
        const int64_t stop = lists->offsets[cell + 1];
        for (int64_t k = lists->offsets[cell]; k < stop; k++) {
            const bool is_last = k + 1 == stop, is_there = lists->times[k] <= now;
            const int64_t before = is_last ? first : lists->times[k + 1];
            const double between =
                (double)(lists->ranks[k] - (is_last ? 0 : lists->ranks[k + 1]) - 1);
            const double own = is_there ? weights[k] : 0;
            const double least_weight = is_last ? oldest : weights[k + 1];
            low += own + (is_there ? between * least_weight : 0);
            high += own + (before <= now ? between * weights[k] : 0);
        }
        lo[cell] = low;
        hi[cell] = high;
    }
}

DS_TABLE(ds_ecm_window_kernels, ds_ecm_windows) = {
    .grid = grid,
    .values = values,
    .kept = kept,
    .write = write,
    .restore = restore,
    .each = each,
    .decayed = decayed,
};
