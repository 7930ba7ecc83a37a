/* Radix sorts, stable and ascending, of 64-bit keys with a 32-bit word beside each. O(n) for any
   input: 64 bits are 13 digits at the most, and one that is the same everywhere costs no pass.

   Rows are sorted by time as (newest - time), 64 bits, beside a word that packs the row number and
   the level of the row. Wide spans (microseconds over months) only cost more passes. */
#ifndef DS_SORT_H
#define DS_SORT_H

#include <stdint.h>

#include "core/bits.h"

enum {
    DS_ROW_BITS = 26, /* row number within a word; the level is above it */
    DS_MAX_ROWS = 1 << DS_ROW_BITS,
    DS_DIGIT_BITS = 11,
    DS_MOST_COUNTS = 6 << DS_DIGIT_BITS, /* of 64 bits; digits of few keys are smaller */
    DS_INSERTION_SORT = 24,
};

/* Room for n keys and words, twice: a sort moves them from one to the other and back. */
typedef struct {
    uint64_t *keys[2];
    uint32_t *words[2];
} ds_sorting;

static inline uint32_t ds_word(int64_t row, int level) {
    return (uint32_t)row | (uint32_t)level << DS_ROW_BITS;
}

static inline int64_t ds_row_of(uint32_t word) { return word & (DS_MAX_ROWS - 1); }

static inline int ds_level_of_word(uint32_t word) { return (int)(word >> DS_ROW_BITS); }

/* Bits of a digit: as many as few passes need, and no more counters than there are about keys. */
static inline int ds_digit_bits(int64_t n, int bits) {
    int most = ds_bit_length((uint64_t)n);
    most = most < 4 ? 4 : most > DS_DIGIT_BITS ? DS_DIGIT_BITS : most;
    const int passes = (bits + most - 1) / most;
    return (bits + passes - 1) / passes;
}

/* Counts become positions of the first key of each digit. */
static inline void ds_positions(uint32_t *counts, int64_t size) {
    uint32_t position = 0;
    for (int64_t digit = 0; digit < size; digit++) {
        const uint32_t here = counts[digit];
        counts[digit] = position;
        position += here;
    }
}

/* Sort keys[0] and words[0] by the low bits of the keys; returns which of the two has the result. */
static int ds_radix_sort(const ds_sorting *room, int64_t n, int bits) {
    uint64_t *keys = room->keys[0], *to_keys = room->keys[1];
    uint32_t *words = room->words[0], *to_words = room->words[1];
    if (bits == 0 || n < 2) return 0;
    if (n <= DS_INSERTION_SORT) {
        const uint64_t mask = ~0ULL >> (64 - bits);
        for (int64_t k = 1; k < n; k++) {
            const uint64_t key = keys[k];
            const uint32_t word = words[k];
            int64_t place = k;
            for (; place > 0 && (keys[place - 1] & mask) > (key & mask); place--) {
                keys[place] = keys[place - 1];
                words[place] = words[place - 1];
            }
            keys[place] = key;
            words[place] = word;
        }
        return 0;
    }
    const int width = ds_digit_bits(n, bits), passes = (bits + width - 1) / width;
    const int64_t size = 1LL << width;
    const uint64_t mask = (uint64_t)size - 1;
    uint32_t counts[DS_MOST_COUNTS];
    for (int64_t k = 0; k < passes * size; k++) counts[k] = 0;
    for (int64_t k = 0; k < n; k++)
        for (int d = 0; d < passes; d++) counts[d * size + (int64_t)(keys[k] >> (d * width) & mask)]++;
    int which = 0;
    for (int d = 0; d < passes; d++) {
        const int shift = d * width;
        uint32_t *count = counts + d * size;
        if (count[keys[0] >> shift & mask] == (uint32_t)n) continue;
        ds_positions(count, size);
        for (int64_t k = 0; k < n; k++) {
            const uint32_t place = count[keys[k] >> shift & mask]++;
            to_keys[place] = keys[k];
            to_words[place] = words[k];
        }
        which ^= 1;
        keys = room->keys[which], to_keys = room->keys[!which];
        words = room->words[which], to_words = room->words[!which];
    }
    return which;
}

/* Sort numbers by so many of their bits from a first one up, with room for as many more beside them;
   returns whether the result is there. */
static int ds_radix_sort_packed(uint64_t *numbers, uint64_t *room, int64_t n, int first, int bits) {
    if (bits == 0 || n < 2) return 0;
    const int width = ds_digit_bits(n, bits), passes = (bits + width - 1) / width;
    const int64_t size = 1LL << width;
    const uint64_t mask = (uint64_t)size - 1;
    uint32_t counts[DS_MOST_COUNTS];
    for (int64_t k = 0; k < passes * size; k++) counts[k] = 0;
    for (int64_t k = 0; k < n; k++) {
        const uint64_t key = numbers[k] >> first;
        for (int d = 0; d < passes; d++) counts[d * size + (int64_t)(key >> (d * width) & mask)]++;
    }
    int which = 0;
    for (int d = 0; d < passes; d++) {
        const int shift = first + d * width;
        uint32_t *count = counts + d * size;
        if (count[numbers[0] >> shift & mask] == (uint32_t)n) continue;
        ds_positions(count, size);
        for (int64_t k = 0; k < n; k++) room[count[numbers[k] >> shift & mask]++] = numbers[k];
        uint64_t *sorted = room;
        room = numbers;
        numbers = sorted;
        which ^= 1;
    }
    return which;
}

static inline void ds_span(const int64_t *times, int64_t n, int64_t *oldest, int64_t *newest) {
    int64_t least = times[0], most = times[0];
    for (int64_t k = 1; k < n; k++) {
        least = times[k] < least ? times[k] : least;
        most = times[k] > most ? times[k] : most;
    }
    *oldest = least;
    *newest = most;
}

/* Put n > 0 rows in order of time, latest first, and equal times in the order of the rows:
   keys = newest - time, words = ds_word(row, level). Returns which of the two has the result. Spans
   below 2^32 are sorted as one packed number a row, which halves the memory traffic. */
static int ds_sort_by_time(
    const int64_t *times, const int8_t *levels, int64_t n, const ds_sorting *room, int64_t *newest
) {
    int64_t oldest;
    ds_span(times, n, &oldest, newest);
    const uint64_t latest = (uint64_t)*newest;
    const int bits = ds_bit_length(latest - (uint64_t)oldest);
    uint64_t *keys = room->keys[0];
    uint32_t *words = room->words[0];
    if (bits > 32 || n <= DS_INSERTION_SORT) {
        for (int64_t k = 0; k < n; k++) {
            keys[k] = latest - (uint64_t)times[k];
            words[k] = ds_word(k, levels[k]);
        }
        return ds_radix_sort(room, n, bits);
    }
    for (int64_t k = 0; k < n; k++)
        keys[k] = (latest - (uint64_t)times[k]) << 32 | ds_word(k, levels[k]);
    const int which = ds_radix_sort_packed(keys, room->keys[1], n, 32, bits);
    keys = room->keys[which];
    words = room->words[which];
    for (int64_t k = 0; k < n; k++) {
        words[k] = (uint32_t)keys[k];
        keys[k] >>= 32;
    }
    return which;
}

#endif
