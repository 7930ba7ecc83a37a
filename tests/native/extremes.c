/* Calls of the sketch of extremes. */
#include "extremes/extremes.h"

#include "driver.h"

static const ds_extremes_kernels *kernels = &TABLE(ds_extremes, DS_LEVEL);

/* Steps of the call, with room for more behind them. */
static ds_steps steps_of(const column *from, int64_t more) {
    const int64_t n = from[0].count;
    const ds_steps s = {room(n + more, 8), room(n + more, 8)};
    memcpy(s.times, from[0].numbers, (size_t)n * 8);
    memcpy(s.keys, from[1].numbers, (size_t)n * 8);
    return s;
}

static void give_steps(call *c, const ds_steps *s, int64_t n) {
    give(c, s->times, n);
    give(c, s->keys, n);
}

/* Inputs: values, weights (or none), times, ids (or none), (float values, max_weight, last_id,
   time_limit). */
static void read(call *c) {
    const int64_t n = c->in[2].count, *of = c->in[4].numbers;
    const ds_readings readings = {
        .values = c->in[0].numbers,
        .weights = c->in[1].count ? c->in[1].numbers : NULL,
        .times = c->in[2].numbers,
        .ids = c->in[3].count ? c->in[3].numbers : NULL,
        .rows = n,
        .float_values = of[0],
    };
    const ds_reading_limits limits = {of[1], of[2], of[3]};
    int64_t *keys = room(n, 8);
    const int64_t outcome = kernels->read(&readings, &limits, keys);
    give(c, &outcome, 1);
    if (outcome != DS_READ_REFUSED) give(c, keys, n);
}

/* Inputs: times and keys of the steps, times and keys of the rows, (turned). */
static void climb(call *c) {
    const int64_t held = c->in[0].count, n = c->in[2].count;
    const ds_steps steps = steps_of(&c->in[0], n);
    const ds_steps spare = {room(held + n, 8), room(held + n, 8)};
    const int64_t found = kernels->climb(
        &steps, held, c->in[2].numbers, c->in[3].numbers, n, c->in[4].numbers[0], &spare
    );
    give_steps(c, &steps, found);
}

/* Inputs: times and keys of the steps, (newest, spans). */
static void thin(call *c) {
    const ds_steps steps = steps_of(&c->in[0], 0);
    const int64_t *of = c->in[2].numbers;
    give_steps(c, &steps, kernels->thin(&steps, c->in[0].count, of[0], of[1]));
}

/* Inputs: times, (newest, spans). */
static void end_of_span(call *c) {
    const int64_t n = c->in[0].count, *of = c->in[1].numbers;
    int64_t *ends = room(n, 8);
    for (int64_t k = 0; k < n; k++)
        ends[k] = kernels->end_of_span(c->in[0].numbers[k], of[0], of[1]);
    give(c, ends, n);
}

const adapter extremes_adapters[] = {
    {"extremes.read", read},
    {"extremes.climb", climb},
    {"extremes.thin", thin},
    {"extremes.end_of_span", end_of_span},
    {0},
};
