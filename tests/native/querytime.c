/* Calls of the rows that a sketch holds, and of those of many sketches. */
#include "core/table.h"
#include "hash_of.h"
#include "querytime/rows.h"
#include "querytime/rows_by_key.h"

static const ds_rows_kernels *kernels = &TABLE(ds_rows, DS_LEVEL);
static const ds_by_key_kernels *by_key = &TABLE(ds_by_key, DS_LEVEL);

/* ------------------------------------------------------------------------------------- one sketch */

static ds_rows rows_room(int64_t n) {
    return (ds_rows){room(n, sizeof(ds_fact)), room(n, 8), room(n, 1), n};
}

static ds_scratch scratch_for(int64_t n) {
    const int64_t slots = 1LL << ds_slot_bits(n);
    return (ds_scratch){
        .out = rows_room(n + DS_BLOCK),
        .words = {room(n, 4), room(n, 4)},
        .slots = room(slots, 4),
        .present = room(slots / (64 >> DS_FILTER_BITS), 8),
        .entries = {room(n, sizeof(ds_entry)), room(n, sizeof(ds_entry))},
    };
}

enum { ROW_COLUMNS = 5 };

/* Values, weights, times, ids, levels. */
static ds_columns columns_of(const column *from) {
    return (ds_columns){
        from[0].numbers, from[1].numbers, from[2].numbers, from[3].numbers, narrow(&from[4], 1)
    };
}

static ds_rows rows_of(const column *from, int64_t max_weight) {
    const ds_columns columns = columns_of(from);
    const ds_rows rows = rows_room(from[0].count);
    for (int64_t k = 0; k < rows.room; k++) {
        const int64_t identity = columns.ids[k] * max_weight + columns.weights[k] - 1;
        rows.facts[k] = (ds_fact){columns.values[k], (uint64_t)identity};
    }
    memcpy(rows.times, columns.times, (size_t)rows.room * 8);
    memcpy(rows.levels, columns.levels, (size_t)rows.room);
    return rows;
}

static void give_rows(call *c, const ds_rows *rows, int64_t n, int64_t max_weight) {
    const ds_columns to = {room(n, 8), room(n, 8), room(n, 8), room(n, 8), room(n, 1)};
    kernels->columns(rows, n, max_weight, &to);
    give(c, to.values, n);
    give(c, to.weights, n);
    give(c, to.times, n);
    give(c, to.ids, n);
    give_narrow(c, to.levels, n, 1);
}

/* Inputs: hash, four columns, (float bits, largest weight, largest id, latest time, whether they are
   checked first), marks. */
static void admit(call *c) {
    const ds_hash h = hash_of(&c->in[0]);
    const int64_t n = c->in[1].count, *of = c->in[5].numbers;
    const ds_bounds bounds = {of[1], of[2], of[3]};
    ds_batch batch = {
        .values = c->in[1].numbers,
        .weights = c->in[2].numbers,
        .times = c->in[3].numbers,
        .ids = c->in[4].numbers,
        .float_bits = (int)of[0],
        .todo = n,
        .unchecked = n,
    };
    const ds_rows to = rows_room(n + DS_BLOCK);
    int64_t at = 0;
    const int64_t good = (!of[4] || kernels->check(&bounds, &batch)) &&
                         kernels->admit(&h, &bounds, &batch, c->in[6].numbers, &to, &at);
    give(c, &good, 1);
    if (!good) return;
    give(c, &batch.zero_weight, 1);
    give_rows(c, &to, at, bounds.max_weight);
}

/* Inputs: five columns, marks, (largest weight, capacity, rows in canonical order). Results:
   watermarks, and rows in canonical order, of both ways to compact. */
static void compact(call *c) {
    const int64_t n = c->in[0].count, levels = c->in[ROW_COLUMNS].count;
    const int64_t *of = c->in[ROW_COLUMNS + 1].numbers, kept = of[2];
    ds_rows rows = rows_of(c->in, of[0]);
    ds_scratch scratch = scratch_for(n);
    int64_t *marks = copy_of(&c->in[ROW_COLUMNS]);
    const int64_t left = kernels->compact(
        &rows, n, of[1], levels, marks, SALT, &scratch, kept ? kept : n / 2
    );
    const ds_rows in_no_order = scratch.out;
    scratch.out = rows_room(left);
    kernels->sort(&in_no_order, left, &scratch);
    give(c, marks, levels);
    give_rows(c, &scratch.out, left, of[0]);

    rows = rows_of(c->in, of[0]);
    scratch = scratch_for(n);
    marks = copy_of(&c->in[ROW_COLUMNS]);
    const int64_t merged = kernels->merge_newcomers(
        &rows, kept, n, of[1], levels, marks, SALT, &scratch
    );
    give(c, marks, levels);
    give_rows(c, &scratch.out, merged, of[0]);
}

/* Inputs: five columns, latest first, marks, (largest weight). Results: those that are later than the
   watermarks, taken from a bag and from columns. */
static void append(call *c) {
    const int64_t n = c->in[0].count, max_weight = c->in[ROW_COLUMNS + 1].numbers[0];
    const column *marks = &c->in[ROW_COLUMNS];
    const ds_rows rows = rows_of(c->in, max_weight), to = rows_room(2 * n);
    const ds_columns columns = columns_of(c->in);
    give_rows(c, &to, kernels->append_later(&rows, n, marks->numbers, &to, 0), max_weight);
    const int64_t appended = kernels->append_columns(
        &columns, n, max_weight, marks->numbers, marks->count, &to, 0
    );
    give_rows(c, &to, appended, max_weight);
}

/* Inputs: five columns, the same of an older state, hits of that. */
static void known_hits(call *c) {
    const int64_t n = c->in[0].count, old_n = c->in[ROW_COLUMNS].count;
    const ds_columns columns = columns_of(c->in), old = columns_of(c->in + ROW_COLUMNS);
    int64_t *hits = room(n, 8), *unknown = room(n, 8);
    const int64_t missing = kernels->known_hits(
        &columns, n, &old, old_n, c->in[2 * ROW_COLUMNS].numbers, hits, unknown
    );
    give(c, hits, n);
    give(c, unknown, missing);
}

/* ---------------------------------------------------------------------------------- many sketches */

static const int64_t record_words = sizeof(ds_record) / sizeof(int64_t);

/* Codes, values, weights, times, ids: so many rows from one on. */
static ds_incoming incoming_of(const column *from, int64_t start, int64_t n) {
    return (ds_incoming){
        (int32_t *)narrow(&from[0], 4) + start, from[1].numbers + start, from[2].numbers + start,
        from[3].numbers + start, from[4].numbers + start, n,
    };
}

static ds_states states_room(int64_t keys, int64_t rows, int64_t levels) {
    return (ds_states){
        room(rows, sizeof(ds_record)), room(keys + 1, 8), room(keys + 1, 8),
        room(keys * levels, 8), keys,
    };
}

static int64_t partitions_of(int64_t keys, int shift) { return ((keys - 1) >> shift) + 1; }

/* Moves records to the front of their partitions; where these start. */
static int64_t *sorted_into(
    ds_record *to, const ds_record *records, int64_t n, int64_t partitions, int shift
) {
    int64_t *starts = room(partitions + 1, 8), *next = room(partitions + 1, 8);
    by_key->count(records, n, shift, starts + 1);
    for (int64_t p = 0; p < partitions; p++) starts[p + 1] += starts[p];
    memcpy(next, starts, (size_t)partitions * sizeof *next);
    by_key->scatter(records, n, shift, next, to);
    return starts;
}

/* Inputs: hash, codes, values, weights, times, ids, (largest weight), offsets of marks, marks: of no
   key, if none is to be looked at. */
static void take(call *c) {
    const ds_hash h = hash_of(&c->in[0]);
    const ds_common common = {&h, c->in[6].numbers[0], 1, h.top + 1, SALT};
    const int64_t n = c->in[1].count, keys = c->in[7].count - 1;
    const ds_incoming rows = incoming_of(c->in + 1, 0, n);
    const ds_states look = {
        .mark_offsets = c->in[7].numbers, .marks = c->in[8].numbers, .keys = keys
    };
    ds_record *records = room(n, sizeof *records);
    const int64_t taken = by_key->take(&common, &rows, keys > 0 ? &look : NULL, records);
    give(c, records, taken * record_words);
}

/* Inputs: hash, codes, values, weights, times, ids, (largest weight, capacity, keys, shift, rows that
   come first). Results: states after these and after the others, which they may turn away. */
static void build(call *c) {
    const ds_hash h = hash_of(&c->in[0]);
    const int64_t n = c->in[1].count, *of = c->in[6].numbers, keys = of[2], first = of[4];
    const ds_common common = {&h, of[0], of[1], h.top + 1, SALT};
    const int shift = (int)of[3];
    const int64_t partitions = partitions_of(keys, shift), width = 1LL << shift;
    ds_by_key_room working = {
        rows_room(2 * n), scratch_for(2 * n), room(width + 1, 8), room(width + 1, 8), room(keys, 8)
    };
    ds_states states = states_room(keys, 0, 0);
    for (int64_t round = 0, start = 0; round < 2; round++, start = first) {
        const ds_incoming rows = incoming_of(c->in + 1, start, round ? n - first : first);
        ds_record *records = room(n, sizeof *records), *sorted = room(n, sizeof *sorted);
        const int64_t came = by_key->take(&common, &rows, round ? &states : NULL, records);
        const int64_t *starts = sorted_into(sorted, records, came, partitions, shift);
        ds_states after = states_room(keys, n, h.top + 1);
        by_key->build(&common, &states, sorted, starts, shift, &after, &working);
        states = after;
        const int64_t held = states.offsets[keys];
        int64_t *columns[] = {room(held, 8), room(held, 8), room(held, 8), room(held, 8)};
        by_key->write(
            &common, &states, &working, columns[0], columns[1], columns[2], columns[3]
        );
        give(c, states.offsets, keys + 1);
        give(c, states.mark_offsets, keys + 1);
        give(c, states.marks, states.mark_offsets[keys]);
        for (int k = 0; k < 4; k++) give(c, columns[k], held);
    }
}

const adapter querytime_adapters[] = {
    {"querytime.admit", admit},
    {"querytime.compact", compact},
    {"querytime.append", append},
    {"querytime.known_hits", known_hits},
    {"querytime.take", take},
    {"querytime.build", build},
    {0},
};
