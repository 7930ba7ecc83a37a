/* Columns of observations as callers give them, and their bounds; see observations.py. */
#ifndef DS_OBSERVATIONS_H
#define DS_OBSERVATIONS_H

#include <stdint.h>

#define DS_MISSING_KEY INT64_MIN /* also the bits of -0.0 */
#define DS_TIME_LIMIT (1LL << 62)

typedef struct {
    int64_t rows;
    const int64_t *values; /* value keys, or the bits of float64 numbers */
    const int64_t *weights, *times, *ids;
    int float_bits;
} ds_observations;

typedef struct {
    int64_t max_weight, id_limit;
} ds_bounds;

/* Value key of a float64 by its bits. */
static inline int64_t ds_value_key(int64_t bits) {
    bits = bits == DS_MISSING_KEY ? 0 : bits; /* -0.0 becomes 0.0 */
    return bits ^ (bits >> 63 & INT64_MAX);
}

/* Whether every row is within its bounds: finite, or not the missing key, for the value. Counts the
   rows of weight 0. */
static inline int ds_within_bounds(
    const ds_observations *o, const ds_bounds *bounds, int64_t *zero_weight
) {
    const int64_t exponent = 0x7FFLL << 52;
    int64_t fault = 0, zeros = 0; /* the sign bit of fault gathers every broken bound */
    if (o->float_bits)
        for (int64_t k = 0; k < o->rows; k++) fault |= exponent - 1 - (o->values[k] & exponent);
    else
        for (int64_t k = 0; k < o->rows; k++) fault |= -(int64_t)(o->values[k] == DS_MISSING_KEY);
    for (int64_t k = 0; k < o->rows; k++) {
        fault |= o->weights[k] | (bounds->max_weight - o->weights[k]);
        fault |= o->ids[k] | (bounds->id_limit - 1 - o->ids[k]);
        const int64_t sign = o->times[k] >> 63;
        const int64_t magnitude = (o->times[k] ^ sign) - sign; /* of the least int64 alone below 0 */
        fault |= magnitude | (DS_TIME_LIMIT - magnitude);
        zeros += o->weights[k] == 0;
    }
    *zero_weight = zeros;
    return fault >= 0;
}

#endif
