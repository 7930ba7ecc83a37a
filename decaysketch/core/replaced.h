/* Counts readings that a later one of their identity replaced; core/replaced.py says what they are. */
#ifndef DS_REPLACED_H
#define DS_REPLACED_H

#include <stdint.h>

/* Two rows of one identity are different readings where their times lie further apart than `other`
   and their values differ, or where their times lie further apart than `any`. */
typedef struct {
    uint64_t other, any;
    int64_t rows;
} ds_replaced;

/* Look at two rows of one identity, of which one stays. */
static inline void ds_count_replaced(
    ds_replaced *r, int64_t time, int64_t value, int64_t other_time, int64_t other_value
) {
    const uint64_t gap = time > other_time ? (uint64_t)time - (uint64_t)other_time
                                           : (uint64_t)other_time - (uint64_t)time;
    r->rows += (gap > r->any) | ((gap > r->other) & (value != other_value));
}

#endif
