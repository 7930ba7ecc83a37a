/* Hashes of keys, under a key word, as hashing.py specifies them.

   An integer x has the hash mix64(x ^ word). Text and bytes chain h = mix64(h ^ w) over their
   little-endian words of eight bytes, the last one filled up with zeros, from mix64(length ^ word)
   on. A row of several columns takes in their hashes in order by h = mix64((h + GAMMA) ^ hash). */
#include "core/keys.h"

#include "core/mix.h"

static void hash_integers(const uint64_t *keys, uint64_t word, int64_t n, uint64_t *hashes) {
    for (int64_t k = 0; k < n; k++) hashes[k] = ds_mix64(keys[k] ^ word);
}

static inline uint64_t four_bytes(const uint8_t *b) {
    return (uint64_t)b[0] | (uint64_t)b[1] << 8 | (uint64_t)b[2] << 16 | (uint64_t)b[3] << 24;
}

static inline uint64_t eight_bytes(const uint8_t *b) {
    return four_bytes(b) | four_bytes(b + 4) << 32;
}

/* One to seven bytes; reads overlap. */
static inline uint64_t last_bytes(const uint8_t *b, int64_t count) {
    if (count >= 4) return four_bytes(b) | four_bytes(b + count - 4) << 8 * (count - 4);
    return (uint64_t)b[0] | (uint64_t)b[count >> 1] << 8 * (count >> 1)
        | (uint64_t)b[count - 1] << 8 * (count - 1);
}

static uint64_t hash_bytes(const uint8_t *data, int64_t length, uint64_t word) {
    uint64_t hash = ds_mix64((uint64_t)length ^ word);
    for (; length >= 8; data += 8, length -= 8) hash = ds_mix64(hash ^ eight_bytes(data));
    return length ? ds_mix64(hash ^ last_bytes(data, length)) : hash;
}

static void hash_encoded(
    const uint8_t *data, const int64_t *offsets, uint64_t word, int64_t n, uint64_t *hashes
) {
    for (int64_t k = 0; k < n; k++)
        hashes[k] = hash_bytes(data + offsets[k], offsets[k + 1] - offsets[k], word);
}

static void absorb(uint64_t *rows, const uint64_t *hashes, int64_t n) {
    for (int64_t k = 0; k < n; k++) rows[k] = ds_mix64((rows[k] + DS_GAMMA) ^ hashes[k]);
}

DS_TABLE(ds_keys_kernels, ds_keys) = {
    .hash_integers = hash_integers,
    .hash_encoded = hash_encoded,
    .hash_bytes = hash_bytes,
    .absorb = absorb,
};
