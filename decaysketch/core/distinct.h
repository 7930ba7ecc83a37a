/* Distinct int64 numbers, numbered 0, 1, ... in order of first appearance; distinct.c says how. */
#ifndef DS_CORE_DISTINCT_H
#define DS_CORE_DISTINCT_H

#include <stdint.h>

#include "core/levels.h"

/* A slot of the table: a key beside what it is numbered by. */
typedef struct {
    int64_t key;
    int64_t number; /* + 1; 0: the slot is free */
} ds_slot;

/* An open-addressed table of 2^bits slots; there is room for fewer keys. */
typedef struct {
    ds_slot *slots;
    int bits;
    uint64_t salt;     /* odd */
    int64_t *distinct; /* the keys by number */
    int64_t count;     /* of them */
    int64_t room;      /* for so many, fewer than slots */
} ds_distinct;

typedef struct {
    /* codes[k] = the number of keys[k], for start <= k < n; returns the next row: it stops before a
       key that there is no room for */
    int64_t (*number_keys)(
        ds_distinct *, const int64_t *keys, int64_t start, int64_t n, int32_t *codes
    );
    /* put all keys but the one numbered left_out into an empty table */
    void (*fill_table)(ds_distinct *, int64_t left_out);
} ds_distinct_kernels;

DS_TABLES(ds_distinct_kernels, ds_distinct)

#endif
