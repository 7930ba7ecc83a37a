/* Calls of the ECM-sketch's cells. */
#include "ecm/cells.h"

#include <string.h>

#include "driver.h"

static const ds_ecm_column_kernels *of_columns = &TABLE(ds_ecm_columns, DS_LEVEL);
static const ds_ecm_update_kernels *of_updates = &TABLE(ds_ecm_updates, DS_LEVEL);
static const ds_ecm_window_kernels *of_windows = &TABLE(ds_ecm_windows, DS_LEVEL);
static const ds_ecm_merge_kernels *of_merges = &TABLE(ds_ecm_merges, DS_LEVEL);

/* A layer: (width, shift, hashed), a and b of its rows. */
static ds_ecm_layer layer_of(const column *from) {
    return (ds_ecm_layer){
        .a = (uint64_t *)from[1].numbers,
        .b = (uint64_t *)from[2].numbers,
        .depth = from[1].count,
        .width = from[0].numbers[0],
        .shift = from[0].numbers[1],
        .hashed = from[0].numbers[2],
    };
}

/* Cells of nothing: (levels, slots, base, wide, histogram). */
static ds_ecm_cells cells_of(const column *from, int64_t cells) {
    const int64_t *of = from->numbers;
    return (ds_ecm_cells){
        .n = room(cells, 8),
        .times = room(of[0] * cells * of[1], of[3] ? 8 : 4),
        .cells = cells,
        .levels = of[0],
        .slots = of[1],
        .base = of[2],
        .wide = of[3],
        .histogram = of[4],
    };
}

static ds_ecm_lists lists_of(const ds_ecm_cells *c) {
    int64_t *offsets = room(c->cells + 1, 8), count = 0;
    of_windows->kept(c->n, c->cells, c->slots, c->histogram, offsets);
    for (int64_t cell = 0; cell < c->cells; cell++) count += offsets[cell];
    const ds_ecm_lists lists = {room(count, 8), room(count, 8), offsets};
    of_windows->write(c, &lists);
    return lists;
}

static ds_ecm_lists give_cells(call *c, const ds_ecm_cells *cells) {
    const ds_ecm_lists lists = lists_of(cells);
    give(c, cells->n, cells->cells);
    give(c, lists.offsets, cells->cells + 1);
    give(c, lists.ranks, lists.offsets[cells->cells]);
    give(c, lists.times, lists.offsets[cells->cells]);
    return lists;
}

/* float64 as its bits. */
static void give_floats(call *c, const double *numbers, int64_t count) {
    int64_t *bits = room(count, sizeof *bits);
    memcpy(bits, numbers, (size_t)count * sizeof *bits);
    give(c, bits, count);
}

/* Inputs: layer (3), words, a grid. */
static void columns(call *c) {
    const ds_ecm_layer layer = layer_of(c->in);
    const int64_t n = c->in[3].count, size = layer.depth * layer.width;
    const uint64_t *words = (uint64_t *)c->in[3].numbers;
    uint32_t *narrow = room(layer.depth * n, sizeof *narrow);
    int64_t *wide = room(layer.depth * n, sizeof *wide), *counts = room(n, sizeof *counts);
    double *grid = room(size, sizeof *grid), *least = room(n, sizeof *least);
    const int64_t highest = (int64_t)of_columns->highest(words, n, layer.shift);
    give(c, &highest, 1);
    of_columns->columns(&layer, words, n, narrow);
    for (int64_t k = 0; k < layer.depth * n; k++) wide[k] = narrow[k];
    give(c, wide, layer.depth * n);
    of_columns->minimum_of_counts(&layer, c->in[4].numbers, words, n, counts);
    give(c, counts, n);
    for (int64_t k = 0; k < size; k++) grid[k] = (double)c->in[4].numbers[k];
    of_columns->minimum(&layer, grid, words, n, least);
    give_floats(c, least, n);
}

/* Counts events, and asks for windows. Inputs: layer (3), cells, words, times, weights or none,
   (grouped, one batch's events, first, now), starts; two numbers for a decay. */
static void update(call *c) {
    const ds_ecm_layer layer = layer_of(c->in);
    const ds_ecm_cells cells = cells_of(&c->in[3], layer.depth * layer.width);
    const uint64_t *words = (uint64_t *)c->in[4].numbers;
    const int64_t *times = c->in[5].numbers, n = c->in[5].count, *of = c->in[7].numbers;
    const int64_t *weights = c->in[6].count ? c->in[6].numbers : NULL, items = n * layer.depth;
    const ds_ecm_groups groups = {
        .cells = room(items, 4),
        .events = room(items, 2),
        .sums = room(items, 8),
        .starts = room(cells.cells + 1, 8),
    };
    int64_t *added = room(cells.cells, 8);
    const int64_t told[] = {
        weights ? of_updates->total(weights, n) : n,
        of_updates->heaviest(&layer, &cells, words, weights, n, added),
    };
    give(c, told, 2);
    for (int64_t start = 0; start < n; start += of[1])
        of_updates->update(
            &layer, &cells, words + start, times + start, weights ? weights + start : NULL,
            start + of[1] < n ? of[1] : n - start, of[0] ? &groups : NULL
        );
    const ds_ecm_lists lists = give_cells(c, &cells);
    const int64_t first = of[2], kept = lists.offsets[cells.cells], *starts = c->in[8].numbers;
    int64_t *lo = room(cells.cells, 8), *hi = room(cells.cells, 8);
    double *low = room(cells.cells, 8), *high = room(cells.cells, 8), *weigh = room(kept, 8);
    of_windows->grid(&cells, starts[0], lo, hi);
    give(c, lo, cells.cells);
    give(c, hi, cells.cells);
    of_windows->values(&cells, starts[0], first, 0.1, low);
    give_floats(c, low, cells.cells);
    of_windows->oldest_inside(&cells, starts[0], lo);
    give(c, lo, cells.cells);
    const int64_t count = c->in[8].count < n ? c->in[8].count : n;
    int64_t *least = room(count, 8), *most = room(count, 8);
    of_windows->each(&layer, cells.n, &lists, words, starts, count, first, least, most);
    give(c, least, count);
    give(c, most, count);
    for (int64_t k = 0; k < kept; k++) weigh[k] = 1 / (1 + (double)(of[3] - lists.times[k]) / 64);
    of_windows->decayed(&lists, weigh, cells.cells, of[3], first, 0.001, low, high);
    give_floats(c, low, cells.cells);
    give_floats(c, high, cells.cells);
}

/* Restores cells, and compacts them with themselves. Inputs: cells, n, times, (first, last, steps),
   cells of the result. */
static void compact(call *c) {
    const int64_t count = c->in[1].count, *of = c->in[3].numbers;
    const ds_ecm_cells cells = cells_of(&c->in[0], count), whole = cells_of(&c->in[4], count);
    memcpy(cells.n, c->in[1].numbers, (size_t)count * 8);
    const int64_t good = of_windows->restore(&cells, c->in[2].numbers, of[0], of[1]);
    give(c, &good, 1);
    if (!good) return;
    const ds_ecm_lists lists = give_cells(c, &cells);
    const ds_ecm_source source = {cells.n, lists, of[0], cells.slots + 1};
    const ds_ecm_source sources[] = {source, source, source};
    const int64_t pieces = 3 * (of[2] + 2) * lists.offsets[count] + 1;
    for (int64_t cell = 0; cell < count; cell++) whole.n[cell] = 3 * cells.n[cell];
    of_merges->compact(
        &whole, sources, 3, of[2], room(2 * pieces, sizeof(ds_ecm_piece)), pieces, room(5, 8)
    );
    give_cells(c, &whole);
}

const adapter ecm_adapters[] = {
    {"ecm.columns", columns},
    {"ecm.update", update},
    {"ecm.compact", compact},
    {0},
};
