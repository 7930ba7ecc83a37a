/* Calls of the asynchronous samplers. */
#include "asyncwindow/asyncwindow.h"

#include "driver.h"

static const ds_window_admission_kernels *admission = &TABLE(ds_window_admission, DS_LEVEL);
static const ds_window_compaction_kernels *compaction = &TABLE(ds_window_compaction, DS_LEVEL);

static ds_stream stream_of(const column *from) {
    const int64_t *at = from->numbers;
    return (ds_stream){
        .lowest = at[0],
        .highest = at[1],
        .time_limit = at[2],
        .levels = at[3],
        .first_nested = at[4],
        .weighted = at[5],
    };
}

/* Four columns of the call, with room for more rows behind them. */
static ds_elements elements_of(const column *from, int64_t more) {
    const int64_t n = from[0].count, all = n + more;
    ds_elements e = {room(all, 8), room(all, 8), room(all, 8), room(all, 1)};
    memcpy(e.values, from[0].numbers, (size_t)n * 8);
    memcpy(e.times, from[1].numbers, (size_t)n * 8);
    memcpy(e.keys, from[2].numbers, (size_t)n * 8);
    memcpy(e.levels, narrow(&from[3], 1), (size_t)n);
    return e;
}

static void give_elements(call *c, const ds_elements *e, int64_t n) {
    give(c, e->values, n);
    give(c, e->times, n);
    give(c, e->keys, n);
    give_narrow(c, e->levels, n, 1);
}

static ds_sorting sorting_for(int64_t n) {
    return (ds_sorting){{room(n, 8), room(n, 8)}, {room(n, 4), room(n, 4)}};
}

/* Inputs: words, sequence. */
static void keys(call *c) {
    const int64_t n = c->in[1].count;
    uint64_t *to = room(n, sizeof *to);
    admission->keys(
        (uint64_t *)c->in[0].numbers, c->in[0].count == 1, (uint64_t *)c->in[1].numbers, n, to
    );
    give(c, to, n);
}

/* Inputs: values, keys, (weighted, levels). */
static void top_levels(call *c) {
    const int64_t n = c->in[0].count, *of = c->in[2].numbers;
    int8_t *levels = room(n, 1);
    admission->top_levels(
        c->in[0].numbers, (uint64_t *)c->in[1].numbers, of[0], of[1], n, levels
    );
    give_narrow(c, levels, n, 1);
}

/* Inputs: stream, values, times, words, sequence (or none), (first number, float values, floor,
   room), marks. */
static void admit(call *c) {
    const ds_stream s = stream_of(&c->in[0]);
    const int64_t *of = c->in[5].numbers;
    const ds_batch batch = {
        .values = c->in[1].numbers,
        .times = c->in[2].numbers,
        .words = (uint64_t *)c->in[3].numbers,
        .sequence = c->in[4].count ? (uint64_t *)c->in[4].numbers : NULL,
        .first_number = (uint64_t)of[0],
        .rows = c->in[1].count,
        .one_word = c->in[3].count == 1,
        .float_values = of[1],
    };
    const ds_elements bag = {room(of[3], 8), room(of[3], 8), room(of[3], 8), room(of[3], 1)};
    const ds_admitted done =
        admission->admit(&s, &batch, 0, c->in[6].numbers, of[2], &bag, 0, of[3]);
    const int64_t told[] = {
        admission->in_bounds(&s, &batch), done.refused, done.next, done.rows, done.zeros, done.late,
    };
    give(c, told, done.refused ? 2 : 6);
    if (!done.refused) give_elements(c, &bag, done.rows);
}

/* Inputs: four columns, marks. */
static void append(call *c) {
    const int64_t n = c->in[0].count;
    const ds_elements from = elements_of(c->in, 0);
    const ds_elements to = {room(n + 1, 8), room(n + 1, 8), room(n + 1, 8), room(n + 1, 1)};
    give_elements(c, &to, admission->append(&from, n, c->in[4].numbers, &to, 0));
}

/* Inputs: stream, four columns, (capacity, spare, salt, salt), marks. */
static void compact(call *c) {
    const ds_stream s = stream_of(&c->in[0]);
    const int64_t n = c->in[1].count, *of = c->in[5].numbers;
    int64_t *marks = copy_of(&c->in[6]);
    const ds_elements bag = elements_of(c->in + 1, 0);
    const uint64_t salts[] = {(uint64_t)of[2], (uint64_t)of[3]};
    int64_t slots = 4;
    while (slots <= 2 * n + 2) slots *= 2;
    const ds_workspace work = {
        .sorting = sorting_for(n),
        .rows = room(n, 4),
        .buckets = room(n, 2),
        .slots = room(slots, 4),
        .counts = room((s.levels + 1) << DS_BUCKET_BITS, 4),
    };
    const ds_compacted done =
        compaction->compact(&s, &bag, n, of[0], of[1], marks, salts, &work);
    const int64_t many_copies = done.many_copies;
    give(c, &many_copies, 1);
    give(c, marks, c->in[6].count);
    give_elements(c, &bag, done.rows);
}

/* Inputs: four columns, (canonical, weighted). */
static void arrange(call *c) {
    const int64_t n = c->in[0].count, *of = c->in[4].numbers;
    const ds_elements bag = elements_of(c->in, 0);
    const ds_elements out = {room(n, 8), room(n, 8), room(n, 8), room(n, 1)};
    const ds_sorting sorting = sorting_for(n);
    compaction->arrange(&bag, n, of[0], of[1], &sorting, &out);
    give_elements(c, &out, n);
}

const adapter asyncwindow_adapters[] = {
    {"asyncwindow.keys", keys},
    {"asyncwindow.top_levels", top_levels},
    {"asyncwindow.admit", admit},
    {"asyncwindow.append", append},
    {"asyncwindow.compact", compact},
    {"asyncwindow.arrange", arrange},
    {0},
};
