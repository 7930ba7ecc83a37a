/* Numbers 0, 1, 2, ... of byte strings, each with a context: an open-addressed table.

   The strings stand end to end in `bytes`, the n-th from offsets[n] to offsets[n + 1]. The table is
   fed from the network: its hash has a random word. At most half of the slots are taken. */
#ifndef DS_INGEST_NAMES_H
#define DS_INGEST_NAMES_H

#include <stdint.h>

#include "core/levels.h"

typedef struct {
    uint32_t *slots;   /* number + 1, or 0 */
    int bits;
    uint64_t word;     /* of the hash */
    int64_t count;
    uint64_t *hashes;
    int64_t *contexts;
    int64_t *offsets;
    uint8_t *bytes;
} ds_names;

typedef struct {
    /* The number of text[begin..end] in a context, or -1. */
    int64_t (*find)(
        const ds_names *, const uint8_t *text, int64_t begin, int64_t end, int64_t context
    );
    /* The numbers of so many, -1 for those that are not there. */
    void (*find_all)(
        const ds_names *, const uint8_t *text, const int64_t *begins, const int64_t *ends,
        int64_t context, int64_t n, int64_t *numbers
    );
    /* Append one that is not there; there is room for it. */
    void (*append)(ds_names *, const uint8_t *text, int64_t length, int64_t context);
    /* Fill empty slots anew. */
    void (*rebuild)(ds_names *);
} ds_name_kernels;

DS_TABLES(ds_name_kernels, ds_name)

#endif
