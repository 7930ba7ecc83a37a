/* Calls of the ECM-sketch's cells. */
#include "ecm/lanes.h"

#include "driver.h"

static const ds_ecm_column_kernels *placing = &TABLE(ds_ecm_columns, DS_LEVEL);
static const ds_ecm_update_kernels *counting = &TABLE(ds_ecm_updates, DS_LEVEL);
static const ds_ecm_window_kernels *asking = &TABLE(ds_ecm_windows, DS_LEVEL);
static const ds_ecm_merge_kernels *merging = &TABLE(ds_ecm_merges, DS_LEVEL);
static const ds_ecm_lane_kernels *reading = &TABLE(ds_ecm_lanes, DS_LEVEL);

enum { LAYER_COLUMNS = 3, LIST_COLUMNS = 3, LEVELS = 63 }; /* for any number of ones */

/* -------------------------------------------------------------------------------------- columns */

/* (width, shift, hashed), a and b of its rows. */
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

/* Inputs: layer, words. Results: the highest prefix, columns. */
static void columns(call *c) {
    const ds_ecm_layer layer = layer_of(c->in);
    const int64_t n = c->in[3].count;
    const uint64_t *words = (uint64_t *)c->in[3].numbers;
    uint32_t *found = room(layer.depth * n, sizeof *found);
    const uint64_t highest = placing->highest(words, n, layer.shift);
    placing->columns(&layer, words, n, found);
    give(c, &highest, 1);
    give_narrow(c, found, layer.depth * n, 4);
}

/* Inputs: layer, words, a grid of counts, one of floats. */
static void minimum(call *c) {
    const ds_ecm_layer layer = layer_of(c->in);
    const int64_t n = c->in[3].count;
    const uint64_t *words = (uint64_t *)c->in[3].numbers;
    int64_t *counts = room(n, sizeof *counts);
    double *values = room(n, sizeof *values);
    placing->minimum_of_counts(&layer, c->in[4].numbers, words, n, counts);
    placing->minimum(&layer, (double *)c->in[5].numbers, words, n, values);
    give(c, counts, n);
    give(c, values, n);
}

/* ---------------------------------------------------------------------------------------- cells */

/* So many cells of no ones: (slots, base, wide, histogram). */
static ds_ecm_cells cells_room(const column *from, int64_t cells) {
    const int64_t *of = from->numbers;
    return (ds_ecm_cells){
        .n = room(cells, 8),
        .times = room(LEVELS * cells * of[0], of[2] ? 8 : 4),
        .cells = cells,
        .levels = LEVELS,
        .slots = of[0],
        .base = of[1],
        .wide = of[2],
        .histogram = of[3],
    };
}

/* Offsets, ranks, times. */
static ds_ecm_lists lists_of(const column *from) {
    return (ds_ecm_lists){from[1].numbers, from[2].numbers, from[0].numbers};
}

static void give_lists(call *c, const ds_ecm_cells *cells) {
    int64_t *counts = room(cells->cells, 8), count = 0;
    asking->kept(cells->n, cells->cells, cells->slots, cells->histogram, counts);
    for (int64_t cell = 0; cell < cells->cells; cell++) count += counts[cell];
    const ds_ecm_lists lists = {room(count, 8), room(count, 8), room(cells->cells + 1, 8)};
    asking->write(cells, &lists);
    give(c, lists.offsets, cells->cells + 1);
    give(c, lists.ranks, count);
    give(c, lists.times, count);
}

/* Inputs: weights. */
static void total(call *c) {
    const int64_t sum = counting->total(c->in[0].numbers, c->in[0].count);
    give(c, &sum, 1);
}

/* Inputs: layer, words, times, weights (or none), cells, whether each batch is grouped. Results:
   ones of the heaviest cell after each batch, and of each cell at the end, lists. */
static void update(call *c) {
    const ds_ecm_layer layer = layer_of(c->in);
    const ds_ecm_cells cells = cells_room(&c->in[6], layer.depth * layer.width);
    const uint64_t *words = (uint64_t *)c->in[3].numbers;
    const int64_t n = c->in[3].count, batches = c->in[7].count, *times = c->in[4].numbers;
    const int64_t *weights = c->in[5].count ? c->in[5].numbers : NULL;
    int64_t *added = room(cells.cells, 8), *heaviest = room(batches, 8);
    const ds_ecm_groups groups = {
        .cells = room(n * layer.depth, 4),
        .events = room(n * layer.depth, 2),
        .sums = room(n * layer.depth, 8),
        .starts = room(cells.cells + 1, 8),
    };
    for (int64_t k = 0; k < batches; k++) {
        const int64_t start = n * k / batches, rows = n * (k + 1) / batches - start;
        const int64_t *each = weights ? weights + start : NULL;
        heaviest[k] = counting->heaviest(&layer, &cells, words + start, each, rows, added);
        counting->update(
            &layer, &cells, words + start, times + start, each, rows,
            c->in[7].numbers[k] ? &groups : NULL
        );
    }
    give(c, heaviest, batches);
    give(c, cells.n, cells.cells);
    give_lists(c, &cells);
}

/* -------------------------------------------------------------------------------------- windows */

/* Inputs: n, (slots, histogram). */
static void kept(call *c) {
    const int64_t cells = c->in[0].count, *of = c->in[1].numbers;
    int64_t *counts = room(cells, 8);
    asking->kept(c->in[0].numbers, cells, of[0], of[1], counts);
    give(c, counts, cells);
}

/* Cells, n, times. */
static ds_ecm_cells restored(const column *from, int64_t first, int64_t last, int64_t *good) {
    ds_ecm_cells cells = cells_room(&from[0], from[1].count);
    memcpy(cells.n, from[1].numbers, (size_t)cells.cells * 8);
    *good = asking->restore(&cells, from[2].numbers, first, last);
    return cells;
}

/* Inputs: cells, n, times, (first, last). */
static void restore(call *c) {
    int64_t good;
    const ds_ecm_cells cells = restored(c->in, c->in[3].numbers[0], c->in[3].numbers[1], &good);
    give(c, &good, 1);
    if (good) give_lists(c, &cells);
}

/* Inputs: cells, n, times, (first, last), starts, (error). Results: bounds and values of the
   cells for each start. */
static void grid(call *c) {
    const int64_t first = c->in[3].numbers[0], last = c->in[3].numbers[1];
    const int64_t starts = c->in[4].count;
    const double error = *(double *)c->in[5].numbers;
    int64_t good;
    const ds_ecm_cells cells = restored(c->in, first, last, &good);
    const int64_t size = starts * cells.cells;
    int64_t *lo = room(size, 8), *hi = room(size, 8);
    double *values = room(size, 8);
    for (int64_t k = 0, at = 0; k < starts; k++, at += cells.cells) {
        const int64_t start = c->in[4].numbers[k];
        asking->grid(&cells, start, lo + at, hi + at);
        asking->values(&cells, start, first, error, values + at);
    }
    give(c, lo, size);
    give(c, hi, size);
    give(c, values, size);
}

/* Inputs: lists, n, layer, words, starts, (first). */
static void each(call *c) {
    enum { LAYER = LIST_COLUMNS + 1, WORDS = LAYER + LAYER_COLUMNS };
    const ds_ecm_lists lists = lists_of(c->in);
    const ds_ecm_layer layer = layer_of(c->in + LAYER);
    const column *words = &c->in[WORDS], *starts = &c->in[WORDS + 1];
    const int64_t count = words->count, first = *c->in[WORDS + 2].numbers;
    int64_t *lo = room(count, 8), *hi = room(count, 8);
    asking->each(
        &layer, c->in[LIST_COLUMNS].numbers, &lists, (uint64_t *)words->numbers, starts->numbers,
        count, first, lo, hi
    );
    give(c, lo, count);
    give(c, hi, count);
}

/* Inputs: lists, weights, (now, first), (weight of the first time). */
static void decayed(call *c) {
    const ds_ecm_lists lists = lists_of(c->in);
    const int64_t cells = c->in[0].count - 1, *of = c->in[LIST_COLUMNS + 1].numbers;
    double *lo = room(cells, 8), *hi = room(cells, 8);
    asking->decayed(
        &lists, (double *)c->in[LIST_COLUMNS].numbers, cells, of[0], of[1],
        *(double *)c->in[LIST_COLUMNS + 2].numbers, lo, hi
    );
    give(c, lo, cells);
    give(c, hi, cells);
}

/* -------------------------------------------------------------------------------------- merging */

/* Inputs: cells of the result, (steps), firsts and inaccuracies of sources; n and lists of each. */
static void compact(call *c) {
    enum { SOURCES = 4, SOURCE_COLUMNS = 1 + LIST_COLUMNS };
    const int64_t sources = c->in[2].count, steps = *c->in[1].numbers;
    const int64_t count = c->in[SOURCES].count;
    const ds_ecm_cells cells = cells_room(&c->in[0], count);
    ds_ecm_source *from = room(sources, sizeof *from);
    int64_t pieces = 1;
    for (int64_t k = 0; k < sources; k++) {
        const column *at = &c->in[SOURCES + SOURCE_COLUMNS * k];
        from[k] = (ds_ecm_source){
            at[0].numbers, lists_of(at + 1), c->in[2].numbers[k], c->in[3].numbers[k]
        };
        for (int64_t cell = 0; cell < count; cell++) cells.n[cell] += from[k].n[cell];
        pieces += (steps + 2) * at[2].count;
    }
    merging->compact(
        &cells, from, sources, steps, room(2 * pieces, sizeof(ds_ecm_piece)), pieces,
        room(sources + 2, 8)
    );
    give_lists(c, &cells);
}

/* -------------------------------------------------------------------------------------- reading */

/* Inputs: bytes, (count). Results: how many bytes a column takes, or -1; its numbers, and their bytes
   when they are packed again. */
static void packed_column(call *c) {
    const int64_t count = *c->in[1].numbers;
    uint64_t *numbers = room(count, 8);
    const uint8_t *data = narrow(&c->in[0], 1);
    const int64_t size = reading->column(data, c->in[0].count, count, numbers);
    give(c, &size, 1);
    if (size < 0) return;
    give(c, numbers, count);
    uint8_t *again = room(ds_ecm_packed_room(count), 1);
    give_narrow(c, again, reading->pack(numbers, count, again), 1);
}

/* Inputs: widths, depths and slots of layers, (histogram, has a horizon, arrivals), (most times),
   (first, last, edge), bytes. Results: whether they are flawless; if so, bytes, times and memory, and
   columns. */
static void lane(call *c) {
    const int64_t layers = c->in[0].count, *of = c->in[3].numbers, *span = c->in[5].numbers;
    const int64_t *width = c->in[0].numbers, *depth = c->in[1].numbers;
    const uint8_t *data = narrow(&c->in[6], 1);
    const int64_t size = c->in[6].count;
    int64_t cells = 0;
    for (int64_t k = 0; k < layers; k++) cells += width[k] * depth[k];
    const ds_ecm_shape shape = {
        .width = width,
        .depth = depth,
        .slots = c->in[2].numbers,
        .layers = layers,
        .cells = cells,
        .histogram = of[0],
        .has_horizon = of[1],
        .arrivals = of[2],
    };
    const ds_ecm_span times = {span[0], span[1], span[2]};
    ds_ecm_extent found;
    int64_t good = reading->measure(
        &shape, data, size, *c->in[4].numbers, room(2 * cells, 8), &found
    );
    const int64_t numbers = good ? layers + 2 * cells + found.times : 0;
    int64_t *columns = room(numbers, 8);
    good = good && reading->read(&shape, data, found.bytes, &times, found.times, columns);
    give(c, &good, 1);
    if (!good) return;
    give(c, (int64_t[]){found.bytes, found.times, found.memory}, 3);
    give(c, columns, numbers);
}

const adapter ecm_adapters[] = {
    {"ecm.columns", columns},
    {"ecm.minimum", minimum},
    {"ecm.total", total},
    {"ecm.update", update},
    {"ecm.kept", kept},
    {"ecm.restore", restore},
    {"ecm.grid", grid},
    {"ecm.each", each},
    {"ecm.decayed", decayed},
    {"ecm.compact", compact},
    {"ecm.column", packed_column},
    {"ecm.lane", lane},
    {0},
};
