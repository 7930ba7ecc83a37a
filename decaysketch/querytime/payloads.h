/* Columns of rows, stored row by row next to the rows; payloads.c. */
#ifndef DS_QUERYTIME_PAYLOADS_H
#define DS_QUERYTIME_PAYLOADS_H

#include "querytime/rows.h"

/* Columns to copy payloads from: column c of row k is columns[c][k * stride], and a text there is
   number maps[c][...] here. No map: the key itself. */
typedef struct {
    const int64_t *const *columns;
    int64_t stride;
    const int64_t *const *maps;
} ds_payload_source;

typedef struct {
    /* Copy the payloads of the rows facts[first..n - 1], whose values are row numbers of the source,
       and give each row its own number as value. */
    void (*take)(
        ds_fact *facts, int64_t first, int64_t n, const ds_payload_source *, int64_t count,
        int64_t *to
    );
    /* Write the payloads of n rows in row order, and number them so. */
    void (*gather)(ds_fact *facts, int64_t n, const int64_t *keys, int64_t count, int64_t *to);
} ds_payload_kernels;

DS_TABLES(ds_payload_kernels, ds_payload)

#endif
