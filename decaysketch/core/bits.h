/* Bits of one 64-bit word. */
#ifndef DS_BITS_H
#define DS_BITS_H

#include <stdint.h>

/* Number of bits up to the highest one that is set; 0 of 0. */
static inline int ds_bit_length(uint64_t word) { return word ? 64 - __builtin_clzll(word) : 0; }

/* Small magnitudes of either sign as small words: 0, -1, 1, -2, ... */
static inline uint64_t ds_zigzag(int64_t number) {
    return ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
}

static inline int64_t ds_unzigzag(uint64_t word) {
    return (int64_t)(word >> 1) ^ -(int64_t)(word & 1);
}

#endif
