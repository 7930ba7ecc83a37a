/* See names.h. The hash is that of keys.c (mix64 chained over little-endian words of eight bytes),
   under a word into which the context is mixed. */
#include "ingest/names.h"

#include <stdbool.h>

#include "core/mix.h"

static inline uint64_t bytes_of(const uint8_t *at, int64_t count) {
    uint64_t word = 0;
    memcpy(&word, at, (size_t)count);
    return word;
}

static inline uint64_t hash_of(const uint8_t *at, int64_t length, uint64_t word, int64_t context) {
    uint64_t hash = ds_mix64(((uint64_t)context + DS_GAMMA) ^ word) ^ (uint64_t)length;
    hash = ds_mix64(hash);
    for (; length >= 8; at += 8, length -= 8) hash = ds_mix64(hash ^ bytes_of(at, 8));
    return length ? ds_mix64(hash ^ bytes_of(at, length)) : hash;
}

static inline bool is_same(
    const ds_names *names, int64_t number, uint64_t hash, const uint8_t *at, int64_t length,
    int64_t context
) {
    const int64_t begin = names->offsets[number];
    return names->hashes[number] == hash && names->contexts[number] == context
        && names->offsets[number + 1] - begin == length
        && !memcmp(names->bytes + begin, at, (size_t)length);
}

static inline int64_t find_hashed(
    const ds_names *names, uint64_t hash, const uint8_t *at, int64_t length, int64_t context
) {
    const uint64_t mask = (1ULL << names->bits) - 1;
    for (uint64_t slot = hash >> (64 - names->bits);; slot = (slot + 1) & mask) {
        const int64_t number = (int64_t)names->slots[slot] - 1;
        if (number < 0 || is_same(names, number, hash, at, length, context)) return number;
    }
}

static int64_t find(
    const ds_names *names, const uint8_t *text, int64_t begin, int64_t end, int64_t context
) {
    const uint64_t hash = hash_of(text + begin, end - begin, names->word, context);
    return find_hashed(names, hash, text + begin, end - begin, context);
}

enum { AHEAD = 16 };

/* The slots of some strings are fetched before the first of them is looked at. */
static void find_all(
    const ds_names *names, const uint8_t *text, const int64_t *begins, const int64_t *ends,
    int64_t context, int64_t n, int64_t *numbers
) {
    uint64_t hashes[AHEAD];
    for (int64_t at = 0; at < n; at += AHEAD) {
        const int64_t some = n - at < AHEAD ? n - at : AHEAD;
        for (int64_t k = 0; k < some; k++) {
            const int64_t begin = begins[at + k];
            hashes[k] = hash_of(text + begin, ends[at + k] - begin, names->word, context);
            __builtin_prefetch(&names->slots[hashes[k] >> (64 - names->bits)]);
        }
        for (int64_t k = 0; k < some; k++) {
            const uint32_t entry = names->slots[hashes[k] >> (64 - names->bits)];
            if (entry) {
                __builtin_prefetch(&names->hashes[entry - 1]);
                __builtin_prefetch(&names->bytes[names->offsets[entry - 1]]);
            }
        }
        for (int64_t k = 0; k < some; k++) {
            const int64_t begin = begins[at + k], length = ends[at + k] - begin;
            numbers[at + k] = find_hashed(names, hashes[k], text + begin, length, context);
        }
    }
}

static inline void put(ds_names *names, int64_t number) {
    const uint64_t mask = (1ULL << names->bits) - 1;
    uint64_t slot = names->hashes[number] >> (64 - names->bits);
    while (names->slots[slot]) slot = (slot + 1) & mask;
    names->slots[slot] = (uint32_t)(number + 1);
}

static void append(ds_names *names, const uint8_t *text, int64_t length, int64_t context) {
    const int64_t number = names->count++, begin = names->offsets[number];
    if (length) memcpy(names->bytes + begin, text, (size_t)length);
    names->offsets[number + 1] = begin + length;
    names->contexts[number] = context;
    names->hashes[number] = hash_of(text, length, names->word, context);
    put(names, number);
}

static void rebuild(ds_names *names) {
    for (int64_t number = 0; number < names->count; number++) put(names, number);
}

DS_TABLE(ds_name_kernels, ds_name) = {
    .find = find,
    .find_all = find_all,
    .append = append,
    .rebuild = rebuild,
};
