/* From rows to the events that watermarks leave alive.

   Derivations
   -----------
   (1) Steps. The expiry age of a first hit j is ages[s] for the first step s with f(w, s) <= j. Where
       f(w, s) is w num[s] // den[s] that is num[s] / den[s] < (j + 1) / w. The leading bits of this
       ratio select a step that is never too late (tables.py), and comparisons move on from there.
       They compare both sides rounded to float64: for weights up to 2^25 different fractions stay
       different. Above, integers are compared at last, by products below 2^62. Where f is a table of
       values, weight and position select the step, or two between which it is. Where f has losses and
       caps, which are monotone, the step is found by halving.
   (2) Most events are not alive when they come, and a bound tells so without their step. With s the
       step of the age marks[i] - t, an event of high level i is alive if and only if f(w, s) > j, hence
       (j + 1) / w <= num[s] / den[s], of which the right side only rises with t: one limit for each
       level serves the rows of a block, by the latest of their times. Likewise a row is expired at the
       clock only if 1 / w is above the fraction left at the age of the earliest row then.
   (3) A decay of one step. All levels of an observation share the expiry, so one event says it, and
       its top level is all that has to be known. */
#include "integral/admission.h"

#include <math.h>

#include "minhit/first_hits.h"

static int validate(const ds_observations *o, const ds_bounds *bounds, int64_t *zero_weight) {
    return ds_within_bounds(o, bounds, zero_weight);
}

enum { BLOCK = 32 * DS_STRIDE }; /* rows of bounds */

/* ------------------------------------------------------------------------------------------ rows */

/* DS_STRIDE rows, those behind the last one without an integer. */
typedef struct {
    int64_t count;
    const int64_t *ids, *weights;
    int64_t lengths[DS_STRIDE]; /* f(w, 0) */
    int64_t some_ids[DS_STRIDE], some_weights[DS_STRIDE];
} stride;

static inline void next_stride(
    const ds_decay *d, const ds_observations *o, int64_t start, stride *rows
) {
    const int64_t left = o->rows - start;
    rows->count = left < DS_STRIDE ? left : DS_STRIDE;
    rows->ids = o->ids + start;
    rows->weights = o->weights + start;
    if (left < DS_STRIDE) {
        memset(rows->some_ids, 0, sizeof rows->some_ids);
        memset(rows->some_weights, 0, sizeof rows->some_weights);
        memcpy(rows->some_ids, rows->ids, (size_t)left * sizeof *rows->ids);
        memcpy(rows->some_weights, rows->weights, (size_t)left * sizeof *rows->weights);
        rows->ids = rows->some_ids;
        rows->weights = rows->some_weights;
    }
    if (!d->values && !d->losses && d->numerators[0] == d->denominators[0])
        memcpy(rows->lengths, rows->weights, sizeof rows->lengths);
    else
        for (int k = 0; k < DS_STRIDE; k++) rows->lengths[k] = ds_left(d, rows->weights[k], 0);
}

/* Append rows of a stride, which are numbered in `taken`. */
static inline void append(
    ds_bag *bag, const ds_observations *o, int64_t start, const stride *rows, const uint8_t *taken,
    int64_t count
) {
    const int64_t to = bag->rows;
    if (count == rows->count) { /* all of them */
        const size_t bytes = (size_t)count * sizeof(int64_t);
        memcpy(bag->values + to, o->values + start, bytes);
        memcpy(bag->weights + to, o->weights + start, bytes);
        memcpy(bag->times + to, o->times + start, bytes);
        memcpy(bag->ids + to, o->ids + start, bytes);
    } else {
        for (int64_t c = 0; c < count; c++)
            ds_copy_row(bag, to + c, o->values, o->weights, o->times, o->ids, start + taken[c]);
    }
    if (o->float_bits)
        for (int64_t c = to; c < to + count; c++) bag->values[c] = ds_value_key(bag->values[c]);
    bag->rows += count;
}

/* ------------------------------------------------------------------------------------- one step */

/* Append those of a stride that their top level leaves alive, see (3). */
static inline void admit_single(
    const ds_hash *h, const ds_decay *d, const ds_observations *o, int64_t start,
    const stride *rows, int64_t clock, const int64_t *marks, ds_bag *bag, int64_t *expired
) {
    ds_vec x[DS_UNROLL], rest[DS_UNROLL];
    int64_t levels[DS_STRIDE];
    for (int v = 0; v < DS_UNROLL; v++) {
        x[v] = ds_first_value(h, ds_load(rows->ids + v * DS_LANES));
        rest[v] = ds_load(rows->lengths + v * DS_LANES) - 1;
    }
    ds_walk(h, x, rest);
    for (int v = 0; v < DS_UNROLL; v++) ds_store(levels + v * DS_LANES, ds_level_of(h, x[v]));
    uint8_t taken[DS_STRIDE];
    int64_t count = 0;
    for (int64_t k = 0; k < rows->count; k++) {
        const int64_t expiry = o->times[start + k] + d->ages[1];
        const int present = rows->lengths[k] > 0;
        taken[count] = (uint8_t)k;
        *expired += present & (expiry <= clock);
        count += present & (expiry > marks[levels[k]]);
    }
    const int64_t from = bag->rows;
    for (int64_t c = 0; c < count; c++) {
        bag->events[bag->event_count++] = ds_event(1, 0, levels[taken[c]]);
        bag->first[from + c + 1] = bag->event_count;
    }
    append(bag, o, start, rows, taken, count);
}

/* ------------------------------------------------------------------------------------ many steps */

/* Bounds on ratios for the rows of a block, see (2). */
typedef struct {
    double alive[DS_LEVEL_MASK]; /* by highest level: above it no event is alive */
    double expired;              /* below it no row is expired */
} ratio_bounds;

/* The fraction left at the time `at` of rows of a time. */
static inline double fraction_left(const ds_decay *d, int64_t at, int64_t time) {
    if (at < time) return INFINITY;
    return d->rounded[ds_step_at(d, (uint64_t)at - (uint64_t)time)];
}

static ratio_bounds bounds_of_block(
    const ds_decay *d, const int64_t *times, int64_t rows, int64_t clock, const int64_t *marks,
    int64_t levels
) {
    int64_t earliest = times[0], latest = times[0];
    for (int64_t k = 1; k < rows; k++) {
        earliest = times[k] < earliest ? times[k] : earliest;
        latest = times[k] > latest ? times[k] : latest;
    }
    ratio_bounds bounds;
    for (int64_t level = 0; level < levels; level++) {
        if (level && marks[level] == marks[level - 1])
            bounds.alive[level] = bounds.alive[level - 1];
        else
            bounds.alive[level] = fraction_left(d, marks[level], latest);
    }
    bounds.expired = fraction_left(d, clock, earliest);
    return bounds;
}

/* First step s with num[s] / den[s] < (j + 1) / w, which rounded is the ratio. */
static inline int64_t step_of_ratio(
    const ds_decay *d, int64_t weight, int64_t j, double ratio, int64_t halvings
) {
    int64_t bits;
    memcpy(&bits, &ratio, sizeof bits);
    int64_t s = d->guesses[(bits >> d->shift) - d->first];
    s += d->rounded[s] >= ratio;
    for (int64_t half = 1LL << halvings >> 1; half > 0; half >>= 1)
        s += -(int64_t)(d->rounded[s + half - 1] >= ratio) & half;
    if (d->wide) {
        while (weight * d->numerators[s] >= (j + 1) * d->denominators[s]) s++;
        while (s > 0 && weight * d->numerators[s - 1] < (j + 1) * d->denominators[s - 1]) s--;
    }
    return s;
}

/* First step s at which a loss reaches w - j or a cap falls to j. */
static inline int64_t step_of_loss(const ds_decay *d, int64_t weight, int64_t j) {
    int64_t low = 0, high = d->steps - 1;
    while (low < high) {
        const int64_t middle = (low + high) >> 1;
        if (weight - d->losses[middle] <= j || d->caps[middle] <= j)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* First step s with values[w, s] <= j. */
static inline int64_t step_of_position(const ds_decay *d, int64_t weight, int64_t j) {
    if (d->losses) return step_of_loss(d, weight, j);
    const int64_t part = j >> d->shift;
    const int32_t *guess = d->guesses + d->offsets[weight] + part;
    int64_t low = guess[0];
    if (d->shift == 0) return low;
    int64_t high = part ? guess[-1] : d->steps - 1;
    const int64_t *values = d->values + weight * d->steps;
    while (low < high) {
        const int64_t middle = (low + high) >> 1;
        if (values[middle] <= j)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The steps of some hits, which are numbered. */
typedef struct {
    int64_t count;
    uint16_t hit[DS_STRIDE * DS_MOST_HITS];
    int32_t step[DS_STRIDE * DS_MOST_HITS];
} judged;

static inline void find_steps_by_ratio(
    const ds_decay *d, const ds_first_hits *hits, const double *ratios, int64_t halvings, judged *to
) {
    for (int64_t k = 0; k < to->count; k++) {
        const int64_t hit = to->hit[k];
        to->step[k] = (int32_t)step_of_ratio(
            d, hits->words[hit] >> DS_HIT_WEIGHT, hits->positions[hit], ratios[hit], halvings
        );
    }
}

/* The steps of all hits that may be of use. */
static inline void judge_by_ratio(
    const ds_decay *d, ds_first_hits *hits, const ratio_bounds *bounds, judged *to
) {
    double ratios[DS_STRIDE * DS_MOST_HITS + DS_LANES];
    for (int lane = 0; lane < DS_LANES; lane++) { /* what vectors read behind the last one */
        hits->words[hits->count + lane] = 1LL << DS_HIT_WEIGHT;
        hits->positions[hits->count + lane] = 0;
    }
    for (int64_t k = 0; k < hits->count; k += DS_LANES) {
        ds_fvec ratio = ds_to_float(ds_load(hits->positions + k) + 1) /
                        ds_to_float(ds_load(hits->words + k) >> DS_HIT_WEIGHT);
        memcpy(ratios + k, &ratio, sizeof ratio);
    }
    to->count = 0;
    for (int64_t k = 0; k < hits->count; k++) {
        const int may_be_alive = ratios[k] <= bounds->alive[ds_hit_high(hits->words[k])];
        const int may_be_expired = ratios[k] >= bounds->expired;
        to->hit[to->count] = (uint16_t)k;
        to->count += may_be_alive | (may_be_expired & (ds_hit_low(hits->words[k]) == 0));
    }
    switch (d->halvings) { /* loops of a known length */
        case 0: find_steps_by_ratio(d, hits, ratios, 0, to); break;
        case 1: find_steps_by_ratio(d, hits, ratios, 1, to); break;
        case 2: find_steps_by_ratio(d, hits, ratios, 2, to); break;
        case 3: find_steps_by_ratio(d, hits, ratios, 3, to); break;
        default: find_steps_by_ratio(d, hits, ratios, d->halvings, to);
    }
}

static inline void judge_by_position(const ds_decay *d, const ds_first_hits *hits, judged *to) {
    to->count = hits->count;
    for (int64_t k = 0; k < hits->count; k++) {
        to->hit[k] = (uint16_t)k;
        to->step[k] =
            (int32_t)step_of_position(d, hits->words[k] >> DS_HIT_WEIGHT, hits->positions[k]);
    }
}

/* Append those of a stride that have events alive. */
static inline void admit_hits(
    const ds_decay *d, const ds_observations *o, int64_t start, const stride *rows,
    const ds_first_hits *hits, const judged *judged, int64_t clock, const int64_t *marks,
    ds_bag *bag, int64_t *expired
) {
    const int64_t *times = o->times + start;
    uint32_t events[DS_STRIDE * DS_MOST_HITS];
    uint8_t row_of[DS_STRIDE * DS_MOST_HITS], counts[DS_STRIDE] = {0}, taken[DS_STRIDE];
    int64_t alive = 0, gone = 0;
    for (int64_t k = 0; k < judged->count; k++) {
        const int64_t word = hits->words[judged->hit[k]], step = judged->step[k];
        const int64_t row = ds_hit_row(word), low = ds_hit_low(word), high = ds_hit_high(word);
        const int64_t expiry = times[row] + d->ages[step];
        const int is_alive = expiry > marks[high];
        gone += (low == 0) & (expiry <= clock);
        events[alive] = ds_event(step, low, high);
        row_of[alive] = (uint8_t)row;
        counts[row] += (uint8_t)is_alive;
        alive += is_alive;
    }
    *expired += gone;
    int64_t place[DS_STRIDE], end = bag->event_count, count = 0;
    for (int64_t k = 0; k < rows->count; k++) {
        place[k] = end;
        end += counts[k];
        taken[count] = (uint8_t)k;
        count += counts[k] > 0;
        bag->first[bag->rows + count] = end;
    }
    for (int64_t k = 0; k < alive; k++) bag->events[place[row_of[k]]++] = events[k];
    bag->event_count = end;
    append(bag, o, start, rows, taken, count);
}

static int64_t admit(
    const ds_hash *h, const ds_decay *d, const ds_observations *o, int64_t start, int64_t clock,
    const int64_t *marks, ds_bag *bag, int64_t *expired
) {
    stride rows;
    ds_first_hits hits;
    judged judged;
    ratio_bounds bounds;
    int64_t bounded = start; /* rows before it are those of the bounds */
    while (start < o->rows && bag->rows + DS_ADMITTED <= bag->row_room &&
           bag->event_count + DS_ADMITTED_EVENTS <= bag->event_room) {
        next_stride(d, o, start, &rows);
        if (d->steps == 2) {
            admit_single(h, d, o, start, &rows, clock, marks, bag, expired);
        } else {
            ds_walk_to_hits(h, rows.ids, rows.weights, rows.lengths, &hits);
            if (d->values || d->losses) {
                judge_by_position(d, &hits, &judged);
            } else {
                if (start == bounded) {
                    const int64_t left = o->rows - start, block = left < BLOCK ? left : BLOCK;
                    bounds = bounds_of_block(d, o->times + start, block, clock, marks, h->top + 1);
                    bounded = start + block;
                }
                judge_by_ratio(d, &hits, &bounds, &judged);
            }
            admit_hits(d, o, start, &rows, &hits, &judged, clock, marks, bag, expired);
        }
        start += rows.count;
    }
    return start;
}

DS_TABLE(ds_integral_admission_kernels, ds_integral_admission) = {.admit = admit, .validate = validate};
