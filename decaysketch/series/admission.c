/* Rows come in: each is checked, its series is found in the catalog, and it is appended if it is later
   than the watermark of the level of its series.

   Level. The entity is mixed to 64 bits, U = mix64(mix64(entity ^ k0) + k1), with key words of the
   stream. An entity of weight 2^a belongs to level i if U < 2^(64 - i + a), that is with probability
   min(1, 2^(a - i)). Its top level is 64 - bit_length(U) + a, or the coarsest level.

   Catalog. A series that is found costs a probe and the comparison of one entry. A series that is new
   costs the level as well, and is entered only where its row is kept. */
#include "series/series.h"

#include "core/bits.h"
#include "core/mix.h"
#include "core/observations.h"

enum { BLOCK = 64 }; /* rows whose slots are fetched together */

/* ------------------------------------------------------------------------------------------ bounds */

static int check(const ds_series_batch *b, const ds_series_bounds *of) {
    const int64_t exponent = 0x7FFLL << 52, limit = of->time_limit, ids = of->id_limit;
    int bad = 0;
    if (b->float_bits) /* finite numbers: missing values come as keys */
        for (int64_t k = 0; k < b->rows; k++) bad |= (b->values[k] & exponent) == exponent;
    else
        for (int64_t k = 0; k < b->rows; k++) bad |= b->values[k] == DS_MISSING_KEY;
    for (int64_t k = 0; k < b->rows; k++) {
        bad |= b->times[k] > limit || b->times[k] < -limit;
        bad |= b->series[k] < 0 || b->series[k] >= ids;
    }
    if (b->weights)
        for (int64_t k = 0; k < b->rows; k++)
            bad |= b->weights[k] < 0 || b->weights[k] > of->max_weight;
    if (b->entities)
        for (int64_t k = 0; k < b->rows; k++) bad |= b->entities[k] < 0 || b->entities[k] >= ids;
    if (b->starts)
        for (int64_t k = 0; k < b->rows; k++)
            bad |= b->starts[k] != DS_NO_START &&
                   (b->starts[k] < -limit || b->starts[k] > b->times[k]);
    return !bad;
}

/* ----------------------------------------------------------------------------------------- catalog */

static inline int level_of(const ds_catalog *c, int64_t entity, int shift) {
    const uint64_t word = ds_mix64(ds_mix64((uint64_t)entity ^ c->words[0]) + c->words[1]);
    const int level = 64 - ds_bit_length(word) + shift;
    return level < DS_SERIES_TOP ? level : DS_SERIES_TOP;
}

static inline uint64_t hash_of(const ds_catalog *c, int64_t entity, int shift, int64_t series) {
    const uint64_t word = (uint64_t)series + ((uint64_t)entity << 7) + ((uint64_t)entity >> 57);
    return (word + ((uint64_t)shift << 58)) * c->salt;
}

/* The code of a series, or -1; the probe ends where it belongs. */
static inline int64_t find(
    const ds_catalog *c, ds_probe *at, int64_t entity, int shift, int64_t series
) {
    int64_t code;
    while ((code = ds_next(&c->index, at)) >= 0)
        if (c->series[code] == series && c->entities[code] == entity && c->shifts[code] == shift)
            break;
    return code;
}

static inline int64_t add(
    ds_catalog *c, const ds_probe *at, int64_t entity, int shift, int64_t series, int level
) {
    const int64_t code = c->count++;
    c->entities[code] = entity;
    c->series[code] = series;
    c->shifts[code] = (int8_t)shift;
    c->levels[code] = (int8_t)level;
    ds_put(&c->index, at, code);
    return code;
}

static void enter(
    ds_catalog *c, const int64_t *entities, const int8_t *shifts, const int64_t *series, int64_t n,
    uint32_t *codes
) {
    for (int64_t k = 0; k < n; k++) {
        ds_probe at = ds_first_probe(&c->index, hash_of(c, entities[k], shifts[k], series[k]));
        int64_t code = find(c, &at, entities[k], shifts[k], series[k]);
        if (code < 0)
            code = add(c, &at, entities[k], shifts[k], series[k], level_of(c, entities[k], shifts[k]));
        codes[k] = (uint32_t)code;
    }
}

/* -------------------------------------------------------------------------------------------- rows */

static inline int64_t key_of(const ds_series_batch *b, int64_t row) {
    return b->float_bits ? ds_value_key(b->values[row]) : b->values[row];
}

static int64_t admit(
    ds_catalog *c, const ds_series_batch *b, int64_t first, int64_t last, const int64_t *marks,
    const ds_samples *out, int64_t held
) {
    uint64_t hashes[BLOCK];
    for (int64_t start = first; start < last; start += BLOCK) {
        const int64_t n = last - start < BLOCK ? last - start : BLOCK;
        for (int64_t k = 0; k < n; k++) {
            const int64_t row = start + k, series = b->series[row];
            const int64_t entity = b->entities ? b->entities[row] : series;
            const int shift = b->weights ? ds_bit_length((uint64_t)b->weights[row]) - 1 : 0;
            hashes[k] = hash_of(c, entity, shift, series);
            ds_prefetch(&c->index, hashes[k]);
        }
        for (int64_t k = 0; k < n; k++) {
            const int64_t row = start + k, series = b->series[row];
            const int64_t entity = b->entities ? b->entities[row] : series;
            const int shift = b->weights ? ds_bit_length((uint64_t)b->weights[row]) - 1 : 0;
            if (shift < 0) continue; /* of weight 0: no observation */
            ds_probe at = ds_first_probe(&c->index, hashes[k]);
            int64_t code = find(c, &at, entity, shift, series);
            if (code < 0) {
                const int level = level_of(c, entity, shift);
                if (b->times[row] <= marks[level]) continue;
                code = add(c, &at, entity, shift, series, level);
            }
            const int level = c->levels[code];
            out->times[held] = b->times[row];
            out->starts[held] = b->starts ? b->starts[row] : DS_NO_START;
            out->keys[held] = key_of(b, row);
            out->codes[held] = (uint32_t)code;
            out->levels[held] = (int8_t)level;
            held += b->times[row] > marks[level];
        }
    }
    return held;
}

static int64_t append(
    const ds_samples *from, int64_t n, const uint32_t *codes, const int64_t *marks,
    const ds_samples *out, int64_t held
) {
    for (int64_t k = 0; k < n; k++) {
        out->times[held] = from->times[k];
        out->starts[held] = from->starts[k];
        out->keys[held] = from->keys[k];
        out->codes[held] = codes[from->codes[k]];
        out->levels[held] = from->levels[k];
        held += from->times[k] > marks[from->levels[k]];
    }
    return held;
}

DS_TABLE(ds_series_admission_kernels, ds_series_admission) = {
    .check = check,
    .admit = admit,
    .enter = enter,
    .append = append,
};
