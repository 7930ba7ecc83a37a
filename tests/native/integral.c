/* Calls of the integral sketch. All but one begin with a hash function and the columns of a decay. */
#include "hash_of.h"
#include "integral/admission.h"
#include "integral/compaction.h"
#include "integral/strata.h"

#include "core/table.h"

static const ds_integral_admission_kernels *admission = &TABLE(ds_integral_admission, DS_LEVEL);
static const ds_integral_compaction_kernels *compaction = &TABLE(ds_integral_compaction, DS_LEVEL);

enum { DECAY = 1, ROWS = DECAY + 8, MARKS = ROWS + 6 }; /* where columns begin */

/* (shift, first, halvings, wide), ages, numerators, denominators, values, rounded, guesses,
   offsets. */
static ds_decay decay_of(const column *from) {
    const int64_t *of = from[0].numbers;
    return (ds_decay){
        .steps = from[1].count,
        .ages = from[1].numbers,
        .numerators = from[2].numbers,
        .denominators = from[3].numbers,
        .values = from[4].count ? from[4].numbers : NULL,
        .rounded = (const double *)from[5].numbers,
        .guesses = narrow(&from[6], 4),
        .offsets = from[7].numbers,
        .shift = of[0],
        .first = of[1],
        .halvings = of[2],
        .wide = of[3],
    };
}

/* Values, weights, times, ids. */
static ds_observations observations_of(const column *from, int64_t float_bits) {
    return (ds_observations){
        from[0].count,   from[0].numbers, from[1].numbers,
        from[2].numbers, from[3].numbers, (int)float_bits,
    };
}

static ds_bag bag_room(int64_t rows, int64_t events) {
    return (ds_bag){
        .row_room = rows,
        .event_room = events,
        .values = room(rows, 8),
        .weights = room(rows, 8),
        .times = room(rows, 8),
        .ids = room(rows, 8),
        .first = room(rows + 1, 8),
        .events = room(events, 4),
    };
}

/* Values, weights, times, ids, first, events. */
static ds_bag bag_of(const column *from) {
    return (ds_bag){
        .rows = from[0].count,
        .event_count = from[5].count,
        .values = copy_of(&from[0]),
        .weights = copy_of(&from[1]),
        .times = copy_of(&from[2]),
        .ids = copy_of(&from[3]),
        .first = copy_of(&from[4]),
        .events = narrow(&from[5], 4),
    };
}

static void give_bag(call *c, const ds_bag *bag) {
    give(c, bag->values, bag->rows);
    give(c, bag->weights, bag->rows);
    give(c, bag->times, bag->rows);
    give(c, bag->ids, bag->rows);
    give(c, bag->first, bag->rows + 1);
    give_narrow(c, bag->events, bag->event_count, 4);
}

/* Inputs, without a decay: four columns, (float bits, largest weight, ids). */
static void validate(call *c) {
    const int64_t *of = c->in[4].numbers;
    const ds_observations rows = observations_of(c->in, of[0]);
    const ds_bounds bounds = {of[1], of[2]};
    int64_t zeros;
    if (!admission->validate(&rows, &bounds, &zeros)) zeros = -1;
    give(c, &zeros, 1);
}

/* Inputs: four columns, (float bits, clock, room for rows, for events), marks. */
static void admit(call *c) {
    const column *in = c->in + ROWS;
    const ds_hash h = hash_of(&c->in[0]);
    const ds_decay d = decay_of(c->in + DECAY);
    const int64_t *of = in[4].numbers;
    const ds_observations rows = observations_of(in, of[0]);
    ds_bag bag = bag_room(of[2], of[3]);
    int64_t told[2] = {0};
    told[0] = admission->admit(&h, &d, &rows, 0, of[1], in[5].numbers, &bag, &told[1]);
    give(c, told, 2);
    give_bag(c, &bag);
}

/* Inputs: bag, marks, (largest weight, capacity). */
static void compact(call *c) {
    const ds_decay d = decay_of(c->in + DECAY);
    ds_bag bag = bag_of(c->in + ROWS);
    const int64_t *of = c->in[MARKS + 1].numbers, levels = c->in[MARKS].count;
    int64_t *marks = copy_of(&c->in[MARKS]);
    ds_replaced replaced = {0};
    const ds_integral_compaction_scratch scratch = {
        .replaced = &replaced,
        .fates = room(bag.rows, 1),
        .slots = room(1LL << ds_table_bits(2 * bag.rows), 4),
        .entries = {room(bag.event_count, sizeof(ds_entry)), room(bag.event_count, sizeof(ds_entry))},
    };
    compaction->compact(&d, &bag, of[0], of[1], SALT, &scratch, marks, levels);
    give(c, marks, levels);
    give_bag(c, &bag);
}

/* Inputs: bag, marks. */
static void append_alive(call *c) {
    const ds_decay d = decay_of(c->in + DECAY);
    const ds_bag bag = bag_of(c->in + ROWS);
    ds_bag to = bag_room(bag.rows + 1, bag.event_count + 1);
    compaction->append_alive(&d, &bag, c->in[MARKS].numbers, &to);
    give_bag(c, &to);
}

/* Inputs: bag, marks. */
static void held_by_level(call *c) {
    const ds_decay d = decay_of(c->in + DECAY);
    const ds_bag bag = bag_of(c->in + ROWS);
    const column *marks = &c->in[MARKS];
    int64_t *later = room(marks->count, 8), *tied = room(marks->count, 8);
    compaction->held_by_level(&d, &bag, marks->numbers, later, tied);
    give(c, later, marks->count);
    give(c, tied, marks->count);
}

/* Inputs: weights, times, seen, (until). */
static void stratum(call *c) {
    const column *in = c->in + ROWS;
    const ds_decay d = decay_of(c->in + DECAY);
    const int64_t n = in[0].count;
    int64_t *rows = room(n, 8), *lows = room(n, 8), *highs = room(n, 8), *seen = copy_of(&in[2]);
    const int64_t found = TABLE(ds_strata, DS_LEVEL).stratum(
        &d, in[0].numbers, in[1].numbers, n, in[3].numbers[0], seen, rows, lows, highs
    );
    give(c, rows, found);
    give(c, lows, found);
    give(c, highs, found);
    give(c, seen, n);
}

const adapter integral_adapters[] = {
    {"integral.validate", validate},
    {"integral.admit", admit},
    {"integral.compact", compact},
    {"integral.append_alive", append_alive},
    {"integral.held_by_level", held_by_level},
    {"integral.stratum", stratum},
    {0},
};
