/* Admission of rows into a bag; admission.c says how. */
#ifndef DS_ADMISSION_H
#define DS_ADMISSION_H

#include "core/levels.h"
#include "core/observations.h"
#include "integral/events.h"
#include "minhit/hash.h"

enum {
    DS_ADMITTED = 32,         /* rows for which there is room, or none is admitted */
    DS_ADMITTED_EVENTS = 2048 /* and events */
};

typedef struct {
    /* Append the rows from `start` on, and their events, that some watermark leaves alive, while there
       is room for DS_ADMITTED more and their events. Rows that weigh nothing are passed over. Returns
       the first row not done; *expired is raised by the rows that were expired at the clock. */
    int64_t (*admit)(
        const ds_hash *, const ds_decay *, const ds_observations *, int64_t start, int64_t clock,
        const int64_t *marks, ds_bag *, int64_t *expired
    );
    /* Whether every row is within bounds; *zero_weight: rows of weight 0. */
    int (*validate)(const ds_observations *, const ds_bounds *, int64_t *zero_weight);
} ds_integral_admission_kernels;

DS_TABLES(ds_integral_admission_kernels, ds_integral_admission)

#endif
