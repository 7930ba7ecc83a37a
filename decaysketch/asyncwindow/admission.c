/* Validation, keys and levels of elements, and their way into the bag.

   A batch is taken block by block, so that whatever belongs to a block stays in the first-level
   cache. Keys and levels are made where the bag will have them. Where a whole block is later than
   all watermarks, as it is while elements come nearly in order, its other columns are copied; else
   its rows are filtered in place. Rows are appended before the later blocks of the batch are
   validated: a batch is refused by not counting them. */
#include "asyncwindow/asyncwindow.h"

#include "asyncwindow/coins.h"

enum { BLOCK = 512 };

#define MAGNITUDE INT64_MAX
#define NEGATIVE_ZERO INT64_MIN       /* bits of -0.0 */
#define INFINITE 0x7FF0000000000000LL /* bits of the least magnitude that is not finite */

static inline int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }
static inline int64_t most(int64_t x, int64_t y) { return x > y ? x : y; }

/* ---------------------------------------------------------------------------------------- coins */

/* The next numbers of a column, DS_LANES at the most; 0 behind the last one. */
static inline ds_vec load_some(const void *from, int64_t rows) {
    if (rows >= DS_LANES) return ds_load(from);
    int64_t some[DS_LANES] = {0};
    memcpy(some, from, (size_t)rows * sizeof *some);
    return ds_load(some);
}

static inline void store_some(void *to, ds_vec x, int64_t rows) {
    if (rows >= DS_LANES)
        ds_store(to, x);
    else
        memcpy(to, &x, (size_t)rows * sizeof(int64_t));
}

typedef int8_t narrow __attribute__((vector_size(DS_LANES)));

static inline void store_levels(int8_t *to, ds_vec levels, int64_t rows) {
    const narrow bytes = __builtin_convertvector(levels, narrow);
    memcpy(to, &bytes, rows >= DS_LANES ? DS_LANES : (size_t)rows);
}

/* Keys of rows of a batch from a row on. */
static inline void keys_of(const ds_batch *b, int64_t start, int64_t n, uint64_t *keys) {
    ds_uvec number = (ds_uvec)ds_all((int64_t)b->first_number + start), word = {0};
    for (int lane = 0; lane < DS_LANES; lane++) number[lane] += (uint64_t)lane;
    if (b->one_word) word += b->words[0];
    for (int64_t k = 0; k < n; k += DS_LANES, number += DS_LANES) {
        if (b->sequence) number = (ds_uvec)load_some(b->sequence + start + k, n - k);
        if (!b->one_word) word = (ds_uvec)load_some(b->words + start + k, n - k);
        store_some(keys + k, (ds_vec)ds_keys(word, number), n - k);
    }
}

static void keys(
    const uint64_t *words, bool one_word, const uint64_t *sequence, int64_t n, uint64_t *keys
) {
    const ds_batch batch = {.words = words, .one_word = one_word, .sequence = sequence};
    keys_of(&batch, 0, n, keys);
}

static void top_levels(
    const int64_t *values, const uint64_t *keys, bool weighted, int64_t levels, int64_t n,
    int8_t *out
) {
    ds_vec bits = ds_all(DS_ONE_BITS);
    for (int64_t k = 0; k < n; k += DS_LANES) {
        if (weighted) bits = (ds_vec)ds_wide_to_float(load_some(values + k, n - k));
        const ds_uvec key = (ds_uvec)load_some(keys + k, n - k);
        store_levels(out + k, ds_coin_levels(bits, key, levels), n - k);
    }
}

/* ------------------------------------------------------------------------------------ admission */

typedef struct {
    int64_t lowest, highest; /* of a value; of the magnitude of a float64 */
    int64_t earliest, latest;
} extent;

/* Of n rows of a batch from a row on. */
static inline extent extent_of(const ds_batch *b, int64_t start, int64_t n) {
    extent e = {INT64_MAX, INT64_MIN, INT64_MAX, INT64_MIN};
    const int64_t mask = b->float_values ? MAGNITUDE : -1;
    for (int64_t k = start; k < start + n; k++) {
        const int64_t value = b->values[k] & mask, time = b->times[k];
        e.lowest = least(e.lowest, value);
        e.highest = most(e.highest, value);
        e.earliest = least(e.earliest, time);
        e.latest = most(e.latest, time);
    }
    return e;
}

static inline bool is_within(const ds_stream *s, const ds_batch *b, const extent *e) {
    const int64_t lowest = b->float_values ? 0 : s->lowest;
    const int64_t highest = b->float_values ? INFINITE - 1 : s->highest;
    return e->earliest >= -s->time_limit && e->latest <= s->time_limit && e->lowest >= lowest &&
           e->highest <= highest;
}

static bool in_bounds(const ds_stream *s, const ds_batch *b) {
    const extent e = extent_of(b, 0, b->rows);
    return b->rows == 0 || is_within(s, b, &e);
}

/* See observations.py: -0.0 becomes 0.0, and keys order as values do. */
static inline int64_t key_of_float(int64_t bits) {
    bits = bits == NEGATIVE_ZERO ? 0 : bits;
    return bits ^ ((bits >> 63) & MAGNITUDE);
}

static inline void value_keys(const ds_batch *b, int64_t start, int64_t n, int64_t *to) {
    if (!b->float_values)
        memcpy(to, b->values + start, (size_t)n * sizeof *to);
    else
        for (int64_t k = 0; k < n; k++) to[k] = key_of_float(b->values[start + k]);
}

/* Move the rows from `from` up to `to` that are later than the watermark of their level, and not of
   a lesser value, up to `rows`; returns where they end. */
static inline int64_t filter(
    const ds_elements *bag, int64_t from, int64_t to, const int64_t *marks, int64_t least_value,
    int64_t rows
) {
    for (int64_t k = from; k < to; k++) {
        const int64_t value = bag->values[k], time = bag->times[k];
        const int8_t level = bag->levels[k];
        bag->values[rows] = value;
        bag->times[rows] = time;
        bag->keys[rows] = bag->keys[k];
        bag->levels[rows] = level;
        rows += (time > marks[level]) & (value >= least_value);
    }
    return rows;
}

static ds_admitted admit(
    const ds_stream *s, const ds_batch *b, int64_t next, const int64_t *marks, int64_t floor,
    const ds_elements *bag, int64_t rows, int64_t room
) {
    ds_admitted done = {.next = next, .rows = rows};
    int64_t last_mark = marks[0];
    for (int64_t i = 1; i <= s->levels; i++) last_mark = most(last_mark, marks[i]);
    while (done.next < b->rows && done.rows < room) {
        const int64_t start = done.next, at = done.rows;
        const int64_t n = least(least(BLOCK, b->rows - start), room - at);
        const int64_t *values = b->values + start, *times = b->times + start;
        const extent e = extent_of(b, start, n);
        if (!is_within(s, b, &e)) {
            done.refused = true;
            return done;
        }
        const bool some_zero = s->weighted && e.lowest == 0;
        if (some_zero)
            for (int64_t k = 0; k < n; k++) done.zeros += values[k] == 0;
        if (e.earliest <= floor)
            for (int64_t k = 0; k < n; k++) done.late += times[k] <= floor;
        done.next += n;
        if (e.latest <= floor) continue; /* no watermark is earlier than the floor */
        keys_of(b, start, n, bag->keys + at);
        top_levels(values, bag->keys + at, s->weighted, s->levels, n, bag->levels + at);
        value_keys(b, start, n, bag->values + at);
        memcpy(bag->times + at, times, (size_t)n * sizeof *times);
        if (e.earliest > last_mark && !some_zero)
            done.rows += n;
        else
            done.rows = filter(bag, at, at + n, marks, s->weighted ? 1 : INT64_MIN, at);
    }
    return done;
}

static int64_t append(
    const ds_elements *from, int64_t n, const int64_t *marks, const ds_elements *bag, int64_t rows
) {
    for (int64_t k = 0; k < n; k++) {
        const int64_t time = from->times[k];
        const int8_t level = from->levels[k];
        bag->values[rows] = from->values[k];
        bag->times[rows] = time;
        bag->keys[rows] = from->keys[k];
        bag->levels[rows] = level;
        rows += time > marks[level];
    }
    return rows;
}

DS_TABLE(ds_window_admission_kernels, ds_window_admission) = {
    .keys = keys,
    .top_levels = top_levels,
    .in_bounds = in_bounds,
    .admit = admit,
    .append = append,
};
