/* What the kernels of the integral sketch share: a decay, a bag of rows and its events.

   An event is the first hit (position j) of the levels low..high of an observation, all of which share
   the expiry: the time of the row plus the age of the step at which it expires, the first step s with
   f(w, s) <= j. It is a word, step << 12 | low << 6 | high. Expiries fall as the level rises, and so do
   watermarks; hence an event is of use, *alive*, if and only if its expiry is later than the watermark
   of its highest level. */
#ifndef DS_EVENTS_H
#define DS_EVENTS_H

#include <stdint.h>

enum {
    DS_EVENT_LOW = 6,
    DS_EVENT_STEP = 12,
    DS_STEP_BITS = 20,
    DS_LEVEL_MASK = 63,
};

/* A decay: how much of a weight is left at a step, the age at which each step begins, and what finds
   a step; see tables.py. */
typedef struct {
    int64_t steps; /* f(w, .) is 0 from the last one on */
    const int64_t *ages;
    /* f(w, s) = w numerators[s] / denominators[s], or values[w steps + s] where there are values, or
       max(min(w - losses[s], caps[s]), 0) for w > 0 where there are losses */
    const int64_t *numerators, *denominators, *values, *losses, *caps;
    const double *rounded;   /* numerators[s] / denominators[s] */
    const int32_t *guesses;  /* of ratios, or of positions */
    const int64_t *offsets;  /* where the guesses of each weight begin, where there are values */
    int64_t shift;           /* bits of a ratio or position that guesses do not tell apart */
    int64_t first, halvings; /* what is left of the least ratio, comparisons by halving */
    int64_t wide;            /* rounded numbers do not tell all fractions apart */
} ds_decay;

/* Rows that are held, in columns with room for more. */
typedef struct {
    int64_t rows, event_count;
    int64_t row_room, event_room;
    int64_t met, live; /* rows that the last compaction met, and those that were no copies; or 0 */
    int64_t *values, *weights, *times, *ids;
    int64_t *first; /* where the events of a row begin; one more entry than rows */
    uint32_t *events;
} ds_bag;

/* f(w, s). */
static inline int64_t ds_left(const ds_decay *d, int64_t weight, int64_t step) {
    if (d->values) return d->values[weight * d->steps + step];
    if (d->losses) {
        const int64_t rest = weight - d->losses[step];
        const int64_t left = rest < d->caps[step] ? rest : d->caps[step];
        return weight > 0 && left > 0 ? left : 0;
    }
    return weight * d->numerators[step] / d->denominators[step];
}

/* The step that an age falls into: f is constant from ages[step] to before the next. */
static inline int64_t ds_step_at(const ds_decay *d, uint64_t age) {
    int64_t low = 0, high = d->steps - 1;
    while (high - low > 1) {
        const int64_t middle = (low + high) >> 1;
        if ((uint64_t)d->ages[middle] <= age)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static inline uint32_t ds_event(int64_t step, int64_t low, int64_t high) {
    return (uint32_t)(step << DS_EVENT_STEP | low << DS_EVENT_LOW | high);
}

static inline int64_t ds_low(uint32_t event) { return event >> DS_EVENT_LOW & DS_LEVEL_MASK; }

static inline int64_t ds_high(uint32_t event) { return event & DS_LEVEL_MASK; }

static inline int64_t ds_expiry(const ds_decay *d, int64_t time, uint32_t event) {
    return time + d->ages[event >> DS_EVENT_STEP];
}

static inline int ds_alive(const ds_decay *d, int64_t time, uint32_t event, const int64_t *marks) {
    return ds_expiry(d, time, event) > marks[ds_high(event)];
}

/* Row k of some columns becomes row `to` of the bag. */
static inline void ds_copy_row(
    ds_bag *bag, int64_t to, const int64_t *values, const int64_t *weights, const int64_t *times,
    const int64_t *ids, int64_t k
) {
    bag->values[to] = values[k];
    bag->weights[to] = weights[k];
    bag->times[to] = times[k];
    bag->ids[to] = ids[k];
}

#endif
