/* Kernels of many sketches at once; rows_by_key.c says how they work. */
#ifndef DS_ROWS_BY_KEY_H
#define DS_ROWS_BY_KEY_H

#include "querytime/rows.h"

/* A row of some key. */
typedef struct {
    uint64_t tag; /* the number of the key; above its 32 bits the level and one more, 0: not known */
    int64_t value;
    uint64_t identity; /* see identity.h */
    int64_t time;
} ds_record;

/* What all sketches have in common. */
typedef struct {
    const ds_hash *hash;
    int64_t max_weight, capacity, levels;
    uint64_t salt; /* odd */
} ds_common;

/* Rows as they come in, of keys by number. */
typedef struct {
    const int32_t *codes;
    const int64_t *values, *weights, *times, *ids;
    int64_t n;
} ds_incoming;

/* States of keys: of key k the records offsets[k] to offsets[k + 1], and as many watermarks, of level
   0 and up, as are set. */
typedef struct {
    ds_record *records;
    int64_t *offsets, *mark_offsets, *marks;
    int64_t keys;
} ds_states;

/* Working memory for so many rows, and keys, as a partition has. */
typedef struct {
    ds_rows bag;
    ds_scratch scratch;
    int64_t *starts, *next; /* one more than keys */
    int64_t *replaced; /* of each key in all partitions: readings that a later one replaced; added up */
} ds_by_key_room;

typedef struct {
    /* Write the rows of weight above 0 to records, but for those that are not later than a watermark,
       where there are any to look at; how many they are. */
    int64_t (*take)(const ds_common *, const ds_incoming *, const ds_states *look, ds_record *to);
    /* counts[p] += records of keys with number >> shift == p */
    void (*count)(const ds_record *, int64_t n, int shift, int64_t *counts);
    /* Move each record to the next position of its partition. */
    void (*scatter)(const ds_record *, int64_t n, int shift, int64_t *positions, ds_record *to);
    /* The state of every key, where partition p has the records partitions[p] to partitions[p + 1]
       beside those of the states before. */
    void (*build)(
        const ds_common *, const ds_states *before, const ds_record *, const int64_t *partitions,
        int shift, ds_states *after, ds_by_key_room *
    );
    /* Columns of the states, key by key in canonical order: (time, id, weight), all descending. */
    void (*write)(
        const ds_common *, const ds_states *, ds_by_key_room *, int64_t *times, int64_t *ids,
        int64_t *weights, int64_t *values
    );
} ds_by_key_kernels;

DS_TABLES(ds_by_key_kernels, ds_by_key)
/* The same for rows with columns (record_rows_by_key.c): a value is a payload number. */
DS_TABLES(ds_by_key_kernels, ds_record_by_key)

#endif
