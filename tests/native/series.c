/* Calls of the sample of series. */
#include "series/series.h"

#include "driver.h"

static const ds_series_admission_kernels *admission = &TABLE(ds_series_admission, DS_LEVEL);
static const ds_series_compaction_kernels *compaction = &TABLE(ds_series_compaction, DS_LEVEL);
static const ds_series_guard_kernels *guards = &TABLE(ds_series_guard, DS_LEVEL);

/* An empty catalog with room for so many series, keyed by two words. */
static ds_catalog catalog_of(int64_t series, const int64_t *words) {
    const int bits = ds_table_bits(2 * (series + 2));
    return (ds_catalog){
        .entities = room(series + 1, 8),
        .series = room(series + 1, 8),
        .shifts = room(series + 1, 1),
        .levels = room(series + 1, 1),
        .room = series + 1,
        .index = ds_open_table(room(1LL << bits, sizeof(uint32_t)), bits, series + 1),
        .words = {(uint64_t)words[0], (uint64_t)words[1]},
        .salt = 0x9E3779B97F4A7C15ULL,
    };
}

static ds_samples samples_room(int64_t n) {
    return (ds_samples){
        room(n, 8), room(n, 8), room(n, 8), room(n, sizeof(uint32_t)), room(n, 1),
    };
}

/* Inputs: times, starts, keys, codes, levels. */
static ds_samples samples_of(const column *from) {
    return (ds_samples){
        copy_of(&from[0]), copy_of(&from[1]), copy_of(&from[2]), narrow(&from[3], 4),
        narrow(&from[4], 1),
    };
}

static void give_samples(call *c, const ds_samples *rows, int64_t n) {
    give(c, rows->times, n);
    give(c, rows->starts, n);
    give(c, rows->keys, n);
    give_narrow(c, rows->codes, n, 4);
    give_narrow(c, rows->levels, n, 1);
}

/* Inputs: values, weights, times, series, entities, starts; the second, fifth and sixth may be empty. */
static ds_series_batch batch_of(const column *from, int float_bits) {
    return (ds_series_batch){
        .values = from[0].numbers,
        .weights = from[1].count ? from[1].numbers : NULL,
        .times = from[2].numbers,
        .series = from[3].numbers,
        .entities = from[4].count ? from[4].numbers : NULL,
        .starts = from[5].count ? from[5].numbers : NULL,
        .rows = from[2].count,
        .float_bits = float_bits,
    };
}

/* Inputs: a batch, (float bits, max_weight, ids, time_limit). */
static void check(call *c) {
    const int64_t *of = c->in[6].numbers;
    const ds_series_batch batch = batch_of(c->in, (int)of[0]);
    const ds_series_bounds bounds = {of[1], of[2], of[3]};
    const int64_t sound = admission->check(&batch, &bounds);
    give(c, &sound, 1);
}

/* Inputs: a batch, (float bits, two words), watermarks. */
static void admit(call *c) {
    const int64_t *of = c->in[6].numbers, n = c->in[2].count;
    const ds_series_batch batch = batch_of(c->in, (int)of[0]);
    ds_catalog catalog = catalog_of(n, of + 1);
    const ds_samples out = samples_room(n + 1);
    const int64_t half = admission->admit(&catalog, &batch, 0, n / 2, c->in[7].numbers, &out, 0);
    const int64_t held =
        admission->admit(&catalog, &batch, n / 2, n, c->in[7].numbers, &out, half);
    give_samples(c, &out, held);
    give(c, catalog.entities, catalog.count);
    give(c, catalog.series, catalog.count);
    give_narrow(c, catalog.shifts, catalog.count, 1);
}

/* Inputs: entities, shifts, series, (two words). */
static void enter(call *c) {
    const int64_t n = c->in[0].count;
    ds_catalog catalog = catalog_of(n, c->in[3].numbers);
    uint32_t *codes = room(n, sizeof *codes);
    admission->enter(
        &catalog, c->in[0].numbers, narrow(&c->in[1], 1), c->in[2].numbers, n, codes
    );
    give_narrow(c, codes, n, 4);
    give_narrow(c, catalog.levels, catalog.count, 1);
}

/* Inputs: rows, codes, watermarks. */
static void append(call *c) {
    const ds_samples rows = samples_of(c->in);
    const int64_t n = c->in[0].count;
    const ds_samples out = samples_room(n + 1);
    const int64_t held =
        admission->append(&rows, n, narrow(&c->in[5], 4), c->in[6].numbers, &out, 0);
    give_samples(c, &out, held);
}

/* Inputs: rows, (codes, resolution, capacity), watermarks. */
static void compact(call *c) {
    const ds_samples rows = samples_of(c->in);
    const int64_t n = c->in[0].count, *of = c->in[5].numbers;
    const ds_sorting sorting = {
        {room(n, 8), room(n, 8)}, {room(n, sizeof(uint32_t)), room(n, sizeof(uint32_t))}
    };
    const ds_samples out = samples_room(n);
    int64_t *marks = copy_of(&c->in[6]);
    const int64_t kept =
        compaction->compact(&rows, n, of[0], of[1], marks, of[2], &sorting, room(of[0], 8), &out);
    give_samples(c, &out, kept);
    give(c, marks, c->in[6].count);
}

/* Inputs: codes, ranks. */
static void arrange(call *c) {
    const int64_t n = c->in[0].count, series = c->in[1].count;
    int64_t *order = room(n, 8);
    compaction->arrange(
        narrow(&c->in[0], 4), n, c->in[1].numbers, series, room(series, 8), order
    );
    give(c, order, n);
}

/* Inputs: keys, times, begins, (guard). */
static void settle(call *c) {
    const int64_t n = c->in[0].count;
    int64_t *settled = room(n, 8);
    guards->settle(
        c->in[0].numbers, c->in[1].numbers, narrow(&c->in[2], 1), n, c->in[3].numbers[0],
        room(n, 8), room(n, 8), settled
    );
    give(c, settled, n);
}

const adapter series_adapters[] = {
    {"series.check", check},     {"series.admit", admit},     {"series.enter", enter},
    {"series.append", append},   {"series.compact", compact}, {"series.arrange", arrange},
    {"series.settle", settle},   {0},
};
