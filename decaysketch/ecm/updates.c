/* Counting of events.

   (1) One by one. A wave gains a rank n, whose place follows from n: one store. A histogram merges:
       its new bucket may be the second of a pair beyond the last B - 1, whose end is then that of
       the merged one, a size up, and so on. Cheap for few events.
   (2) In groups. Events are ordered by cell (a counting sort), and of the run of a cell only the
       ranks that the cell will keep are written. No merge is ever walked, and a weight costs no more
       than a one: the times of ranks are found by one sweep over the sums of weights, newest first.
       A histogram moves ranks that it keeps from before a run to the size that they have now, the
       largest sizes first, so that smaller ones are still as they were. */
#include "ecm/cells.h"

static inline int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }
static inline int64_t most(int64_t x, int64_t y) { return x > y ? x : y; }

static int64_t total(const int64_t *weights, int64_t n) {
    int64_t sum = 0;
    for (int64_t k = 0; k < n; k++) {
        if (weights[k] >= DS_ECM_LIMIT - sum) return DS_ECM_LIMIT;
        sum += weights[k];
    }
    return sum;
}

static int64_t heaviest(
    const ds_ecm_layer *layer, const ds_ecm_cells *c, const uint64_t *words,
    const int64_t *weights, int64_t n, int64_t *added
) {
    uint32_t cells[DS_ECM_MOST_ROWS * DS_ECM_BLOCK];
    memcpy(added, c->n, (size_t)c->cells * sizeof *added);
    for (int64_t start = 0; start < n; start += DS_ECM_BLOCK) {
        const int64_t rows = least(DS_ECM_BLOCK, n - start);
        ds_ecm_columns_of(layer, words + start, rows, layer->width, cells, DS_ECM_BLOCK);
        for (int64_t r = 0; r < layer->depth; r++)
            for (int64_t k = 0; k < rows; k++)
                added[cells[r * DS_ECM_BLOCK + k]] += weights ? weights[start + k] : 1;
    }
    int64_t highest = 0;
    for (int64_t cell = 0; cell < c->cells; cell++) highest = most(highest, added[cell]);
    return highest;
}

/* ------------------------------------------------------------------------------- (1) one by one */

DS_ECM_INLINE void wave_one(
    const ds_ecm_cells *c, bool wide, uint64_t reciprocal, int64_t cell, int64_t stored
) {
    const int64_t n = ++c->n[cell];
    ds_ecm_store(c, wide, ds_ecm_place(c, false, reciprocal, cell, 0, n), stored);
}

DS_ECM_INLINE void histogram_one(
    const ds_ecm_cells *c, bool wide, uint64_t reciprocal, int64_t cell, int64_t stored
) {
    const int64_t slots = c->slots, size = c->cells * slots;
    int64_t bucket = ++c->n[cell], at = cell * slots;
    for (;;) {
        ds_ecm_store(c, wide, at + ds_ecm_modulo(bucket, slots, reciprocal), stored);
        const int64_t older = bucket - slots;
        if (older <= 0 || !(older & 1)) return;
        bucket = (older + 1) >> 1;
        stored = ds_ecm_load(c, wide, at + ds_ecm_modulo(2 * bucket, slots, reciprocal));
        at += size;
    }
}

/* A block of them, whose cells are known; the depth may be a constant. */
DS_ECM_INLINE void count_block(
    const ds_ecm_cells *c, bool wide, bool histogram, int64_t depth, const uint32_t *cells,
    const int64_t *times, int64_t n
) {
    const ds_ecm_cells own = *c; /* no store can change it */
    const uint64_t reciprocal = ds_ecm_reciprocal(own.slots);
    for (int64_t k = 0; k < n; k++) {
        const int64_t stored = times[k] - own.base;
        for (int64_t r = 0; r < depth; r++) {
            const int64_t cell = cells[r * DS_ECM_BLOCK + k];
            if (histogram)
                histogram_one(&own, wide, reciprocal, cell, stored);
            else
                wave_one(&own, wide, reciprocal, cell, stored);
        }
    }
}

DS_ECM_INLINE void count_ones(
    const ds_ecm_cells *c, bool wide, bool histogram, const ds_ecm_layer *layer,
    const uint64_t *words, const int64_t *times, int64_t n
) {
    uint32_t cells[DS_ECM_MOST_ROWS * DS_ECM_BLOCK];
    for (int64_t start = 0; start < n; start += DS_ECM_BLOCK) {
        const int64_t rows = least(DS_ECM_BLOCK, n - start);
        ds_ecm_columns_of(layer, words + start, rows, layer->width, cells, DS_ECM_BLOCK);
        switch (layer->depth) {
        case 2: count_block(c, wide, histogram, 2, cells, times + start, rows); break;
        case 3: count_block(c, wide, histogram, 3, cells, times + start, rows); break;
        case 4: count_block(c, wide, histogram, 4, cells, times + start, rows); break;
        default: count_block(c, wide, histogram, layer->depth, cells, times + start, rows);
        }
    }
}

/* -------------------------------------------------------------------------------- (2) in groups */

/* The events of one cell: times[events[k]], or times[k] where events are null. */
typedef struct {
    const int64_t *times;
    const uint16_t *events;
    const int64_t *sums; /* of the weights up to each event; null: all are 1 */
    int64_t count;
} run;

DS_ECM_INLINE int64_t time_of(const run *of, int64_t k) {
    return of->times[of->events ? of->events[k] : k];
}

/* Ranks that a histogram of `before` ones keeps when it has `after`, moved to the size that they have
   then. */
DS_ECM_INLINE void move_up(
    const ds_ecm_cells *c, bool wide, uint64_t reciprocal, int64_t cell, int64_t before,
    int64_t after
) {
    const int64_t slots = c->slots;
    int64_t old[64], new[64];
    int levels = 0;
    for (; (new[levels] = ds_ecm_buckets(after, slots, levels)) > 0; levels++)
        old[levels] = ds_ecm_buckets(before, slots, levels);
    for (int level = levels - 1; level > 0; level--) {
        int64_t bucket = most(old[level], 2 * new[level + 1]) + 1;
        const int64_t last = least(new[level], before >> level);
        if (bucket > last) continue;
        const int64_t to = (level * c->cells + cell) * slots;
        for (; bucket <= last; bucket++) {
            const int64_t rank = bucket << level;
            int from = level - 1;
            while (rank >> from > old[from]) from--;
            const int64_t stored =
                ds_ecm_load(c, wide, ds_ecm_place(c, true, reciprocal, cell, from, rank));
            ds_ecm_store(c, wide, to + ds_ecm_modulo(bucket, slots, reciprocal), stored);
        }
    }
}

/* Count a run of so many ones. */
DS_ECM_INLINE void count_run(
    const ds_ecm_cells *c, bool wide, bool histogram, uint64_t reciprocal, int64_t cell,
    const run *of, int64_t ones
) {
    const int64_t before = c->n[cell], after = before + ones, slots = c->slots;
    if (histogram) move_up(c, wide, reciprocal, cell, before, after);
    int64_t newest = after, event = of->count - 1;
    for (int region = 0; newest > before; region++) {
        const int64_t step = 1LL << region;
        const int64_t oldest = ds_ecm_oldest(after, slots, histogram, region);
        for (int64_t rank = newest; rank >= oldest && rank > before; rank -= step) {
            if (of->sums)
                while (event > 0 && of->sums[event - 1] >= rank - before) event--;
            else
                event = rank - before - 1;
            ds_ecm_store(
                c, wide, ds_ecm_place(c, histogram, reciprocal, cell, region, rank),
                time_of(of, event) - c->base
            );
        }
        newest = oldest - step;
    }
    c->n[cell] = after;
}

/* Order the events of a chunk by cell; the depth may be a constant. */
DS_ECM_INLINE void group_rows(
    const ds_ecm_layer *layer, int64_t depth, const uint64_t *words, const int64_t *weights,
    int64_t n, int64_t cells, const ds_ecm_groups *g
) {
    const ds_ecm_groups own = *g; /* no store can change it */
    memset(own.starts, 0, (size_t)(cells + 1) * sizeof *own.starts);
    for (int64_t start = 0; start < n; start += DS_ECM_BLOCK) {
        const int64_t stop = least(n, start + DS_ECM_BLOCK);
        ds_ecm_columns_of(layer, words + start, stop - start, layer->width, own.cells + start, n);
        for (int64_t k = start; k < stop; k++)
            for (int64_t r = 0; r < depth; r++) own.starts[own.cells[r * n + k]]++;
    }
    int64_t end = 0;
    for (int64_t cell = 0; cell <= cells; cell++) {
        const int64_t count = own.starts[cell];
        own.starts[cell] = end;
        end += count;
    }
    for (int64_t k = 0; k < n; k++)
        for (int64_t r = 0; r < depth; r++) {
            const int64_t at = own.starts[own.cells[r * n + k]]++;
            own.events[at] = (uint16_t)k;
            if (weights) own.sums[at] = weights[k];
        }
}

static void group(
    const ds_ecm_layer *layer, const uint64_t *words, const int64_t *weights, int64_t n,
    int64_t cells, const ds_ecm_groups *g
) {
    switch (layer->depth) {
    case 2: group_rows(layer, 2, words, weights, n, cells, g); break;
    case 3: group_rows(layer, 3, words, weights, n, cells, g); break;
    case 4: group_rows(layer, 4, words, weights, n, cells, g); break;
    default: group_rows(layer, layer->depth, words, weights, n, cells, g);
    }
}

DS_ECM_INLINE void count_runs(
    const ds_ecm_cells *c, bool wide, bool histogram, const int64_t *times, bool weighted,
    const ds_ecm_groups *g
) {
    const ds_ecm_cells own = *c;
    const uint64_t reciprocal = ds_ecm_reciprocal(own.slots);
    int64_t start = 0;
    for (int64_t cell = 0; cell < own.cells; cell++) {
        const int64_t stop = g->starts[cell], count = stop - start; /* they are ends by now */
        if (count) {
            int64_t *sums = weighted ? g->sums + start : NULL, ones = count;
            if (sums) {
                for (int64_t k = 1; k < count; k++) sums[k] += sums[k - 1];
                ones = sums[count - 1];
            }
            const run of = {times, g->events + start, sums, count};
            count_run(&own, wide, histogram, reciprocal, cell, &of, ones);
        }
        start = stop;
    }
}

/* All events are of one cell. */
DS_ECM_INLINE void count_together(
    const ds_ecm_cells *c, bool wide, bool histogram, const int64_t *times,
    const int64_t *weights, int64_t n, int64_t *sums
) {
    int64_t ones = weights ? 0 : n;
    if (weights)
        for (int64_t k = 0; k < n; k++) sums[k] = ones += weights[k];
    const run of = {times, NULL, weights ? sums : NULL, n};
    count_run(c, wide, histogram, ds_ecm_reciprocal(c->slots), 0, &of, ones);
}

/* Runs of one event each. */
DS_ECM_INLINE void count_singly(
    const ds_ecm_cells *c, bool wide, bool histogram, const ds_ecm_layer *layer,
    const uint64_t *words, const int64_t *times, const int64_t *weights, int64_t n
) {
    uint32_t cells[DS_ECM_MOST_ROWS * DS_ECM_BLOCK];
    const uint64_t reciprocal = ds_ecm_reciprocal(c->slots);
    for (int64_t start = 0; start < n; start += DS_ECM_BLOCK) {
        const int64_t rows = least(DS_ECM_BLOCK, n - start);
        ds_ecm_columns_of(layer, words + start, rows, layer->width, cells, DS_ECM_BLOCK);
        for (int64_t k = 0; k < rows; k++) {
            const int64_t ones = weights[start + k];
            const run of = {times + start + k, NULL, weights + start + k, 1};
            for (int64_t r = 0; r < layer->depth; r++)
                count_run(
                    c, wide, histogram, reciprocal, cells[r * DS_ECM_BLOCK + k], &of, ones
                );
        }
    }
}

static void update(
    const ds_ecm_layer *layer, const ds_ecm_cells *c, const uint64_t *words, const int64_t *times,
    const int64_t *weights, int64_t n, const ds_ecm_groups *g
) {
    if (g && c->cells == 1) {
        DS_ECM_EACH_KIND(count_together, c, times, weights, n, g->sums);
    } else if (g) {
        group(layer, words, weights, n, c->cells, g);
        DS_ECM_EACH_KIND(count_runs, c, times, weights != NULL, g);
    } else if (weights) {
        DS_ECM_EACH_KIND(count_singly, c, layer, words, times, weights, n);
    } else {
        DS_ECM_EACH_KIND(count_ones, c, layer, words, times, n);
    }
}

DS_TABLE(ds_ecm_update_kernels, ds_ecm_updates) = {
    .total = total,
    .heaviest = heaviest,
    .update = update,
};
