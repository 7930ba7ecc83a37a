/* Kernels of the verdicts; verdicts.c says how they work. */
#ifndef DS_VERDICTS_H
#define DS_VERDICTS_H

#include "core/levels.h"
#include "core/sort.h"
#include "core/table.h"

/* Rows by identity: two columns that identify, then what orders copies. A column may be part of
   wider rows, of so many words each. */
typedef struct {
    const int64_t *first, *second, *times, *values;
    int64_t n;
    int64_t first_step, second_step, value_step; /* of times it is 1 */
} ds_copies;

/* A batch whose copies are found. */
typedef struct {
    ds_copies rows;
    uint64_t salts[2];   /* odd */
    uint32_t *slots;     /* 2^bits, more than a third more than there are rows */
    uint64_t *present;   /* 2^DS_PRESENT_BITS bits for each slot: whether a hash is there */
    int bits;            /* >= 6 - DS_PRESENT_BITS */
    ds_table table;
    int32_t *group;      /* the number of the identity of each row */
    int32_t *latest;     /* of each identity, the first row of its latest copy */
    int64_t groups;      /* identities */
} ds_offered;

enum { DS_PRESENT_BITS = 3 };

/* Working memory for the verdicts on a batch; of each identity, but for the last one. */
typedef struct {
    int32_t *held;     /* the row of the state that has it, or -1 */
    int64_t *times;    /* of copies that are new */
    int8_t *levels;
    ds_sorting sorting;
    uint8_t *replaced; /* of each row of the state: whether a later copy takes its place */
} ds_judging;

typedef struct {
    /* number the identities of a batch and find the latest copy of each */
    void (*group)(ds_offered *);
    /* held[g] = row of a state that has identity g, or -1 */
    void (*find)(const ds_offered *, const ds_copies *state, int32_t *held);
    /* Verdicts where a copy stays that is later than the watermark of its level. Levels are those of
       the rows of the batch, then of the state, latest first; watermarks become those of the merged
       state, as far as the batch can tell. */
    void (*judge_by_marks)(
        const ds_offered *, const int8_t *levels, const ds_copies *state,
        const int8_t *state_levels, int64_t *marks, int64_t mark_count, int64_t capacity,
        ds_judging *, int8_t *verdicts
    );
    /* verdicts where the state is known before and after the batch */
    void (*judge_by_states)(
        const ds_offered *, const ds_copies *before, const ds_copies *after, const int32_t *held,
        const int32_t *holds, int8_t *verdicts
    );
} ds_verdict_kernels;

DS_TABLES(ds_verdict_kernels, ds_verdict)

#endif
