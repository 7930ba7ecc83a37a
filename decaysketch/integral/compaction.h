/* What a bag keeps: kernels of compaction and merging; compaction.c says how. */
#ifndef DS_COMPACTION_H
#define DS_COMPACTION_H

#include "core/levels.h"
#include "core/replaced.h"
#include "integral/events.h"

/* An event and its row. */
typedef struct {
    uint32_t row, event;
} ds_entry;

/* Working memory. */
typedef struct {
    uint8_t *fates;       /* of rows */
    uint32_t *slots;      /* 2^ds_table_bits(2 rows) */
    ds_entry *entries[2]; /* of events */
    ds_replaced *replaced;
} ds_integral_compaction_scratch;

typedef struct {
    /* Drop copies, raise marks[0..levels - 1] to what the capacity allows, and drop the events that
       are not alive then and the rows without any. */
    void (*compact)(
        const ds_decay *, ds_bag *, int64_t max_weight, int64_t capacity, uint64_t salt,
        const ds_integral_compaction_scratch *, int64_t *marks, int64_t levels
    );
    /* Append the rows and events of another bag that the watermarks leave alive; there is room for
       all, and for one event to spare. */
    void (*append_alive)(const ds_decay *, const ds_bag *, const int64_t *marks, ds_bag *to);
    /* Of every level, rows that expire later than its watermark, and rows that expire exactly then
       both at that level and at the next, which keeps them. Events are alive. */
    void (*held_by_level)(
        const ds_decay *, const ds_bag *, const int64_t *marks, int64_t *later, int64_t *tied
    );
} ds_integral_compaction_kernels;

DS_TABLES(ds_integral_compaction_kernels, ds_integral_compaction)

#endif
