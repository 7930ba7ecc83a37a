/* Hashes of keys, column by column; keys.c says how. All columns are of n rows. */
#ifndef DS_CORE_KEYS_H
#define DS_CORE_KEYS_H

#include <stdint.h>

#include "core/levels.h"

typedef struct {
    /* hashes[k] = the hash of an integer */
    void (*hash_integers)(const uint64_t *keys, uint64_t word, int64_t n, uint64_t *hashes);
    /* hashes[k] = the hash of the bytes from offsets[k] to offsets[k + 1] */
    void (*hash_encoded)(
        const uint8_t *data, const int64_t *offsets, uint64_t word, int64_t n, uint64_t *hashes
    );
    /* the hash of so many bytes */
    uint64_t (*hash_bytes)(const uint8_t *data, int64_t length, uint64_t word);
    /* rows[k] takes in the hash of the row's key in one more column */
    void (*absorb)(uint64_t *rows, const uint64_t *hashes, int64_t n);
} ds_keys_kernels;

DS_TABLES(ds_keys_kernels, ds_keys)

#endif
