/* Kernels of the sketch of extremes; staircase.c says how they work. */
#ifndef DS_EXTREMES_H
#define DS_EXTREMES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/levels.h"

/* The steps of a staircase: times rise, and keys fall. */
typedef struct {
    int64_t *times;
    int64_t *keys;
} ds_steps;

/* Columns of rows that nobody has validated yet. */
typedef struct {
    const int64_t *values;  /* or the bits of float64 */
    const int64_t *weights; /* or none: all rows have the weight 1 */
    const int64_t *times;
    const int64_t *ids; /* or none */
    int64_t rows;
    bool float_values;
} ds_readings;

typedef struct {
    int64_t max_weight, last_id, time_limit;
} ds_reading_limits;

typedef enum {
    DS_READ_IN_ORDER, /* times do not fall */
    DS_READ,
    DS_READ_REFUSED, /* a row is out of bounds, has no value, or has the weight 0 */
} ds_read_outcome;

typedef struct {
    /* keys[k] = key of the value of row k */
    ds_read_outcome (*read)(const ds_readings *, const ds_reading_limits *, int64_t *keys);
    /* take n rows, whose times do not fall, into a staircase that has room for them: how many steps
       it has then. Keys are those given, or all bits of them turned; spare has room for n steps and
       for all of the staircase that are not earlier than the first row */
    int64_t (*climb)(
        const ds_steps *, int64_t held, const int64_t *times, const int64_t *keys, int64_t n,
        bool turned, const ds_steps *spare
    );
    /* keep one step of each span: how many are left */
    int64_t (*thin)(const ds_steps *, int64_t held, int64_t newest, int64_t spans);
    /* the last instant of the span that a time lies in */
    int64_t (*end_of_span)(int64_t time, int64_t newest, int64_t spans);
} ds_extremes_kernels;

DS_TABLES(ds_extremes_kernels, ds_extremes)

#endif
