/* Vectors of 64-bit numbers, as wide as the level of instruction set has them.

   Conversions between integers and float64 go by bit patterns: for 0 <= n < 2^51 the float64 whose
   bits are those of 2^52, or'ed with n, is 2^52 + n exactly. Unlike the hardware's conversion that is
   one instruction at every level; rounding is to nearest. */
#ifndef DS_VECTORS_H
#define DS_VECTORS_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#include <immintrin.h>
#define DS_LANES 8
#elif defined(__AVX2__)
#define DS_LANES 4
#else
#define DS_LANES 2
#endif

typedef int64_t ds_vec __attribute__((vector_size(8 * DS_LANES)));
typedef uint64_t ds_uvec __attribute__((vector_size(8 * DS_LANES)));
typedef double ds_fvec __attribute__((vector_size(8 * DS_LANES)));

#define DS_UNROLL 4 /* vectors that are worked on side by side, so that none waits for another */
#define DS_STRIDE (DS_LANES * DS_UNROLL)

#define DS_TWO_52 4503599627370496.0
#define DS_TWO_52_BITS 0x4330000000000000LL
#define DS_LOW_52 ((1LL << 52) - 1)
#define DS_TWO_84_BITS 0x4530000000000000LL
#define DS_TWO_84_AND_52 19342813118337666422669312.0 /* 2^84 + 2^52 */
#define DS_LOW_32 0xFFFFFFFFLL

static inline ds_vec ds_load(const int64_t *from) {
    ds_vec v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void ds_store(int64_t *to, ds_vec v) { memcpy(to, &v, sizeof v); }

static inline ds_vec ds_all(int64_t x) { return (ds_vec){0} + x; }

/* Lanes of the first where the mask is set (-1), of the second where it is not (0). */
static inline ds_vec ds_pick(ds_vec mask, ds_vec yes, ds_vec no) {
    return (yes & mask) | (no & ~mask);
}

static inline int64_t ds_largest(ds_vec v) {
    int64_t most = v[0];
    for (int lane = 1; lane < DS_LANES; lane++) most = v[lane] > most ? v[lane] : most;
    return most;
}

/* float64 of 0 <= n < 2^51. */
static inline ds_fvec ds_to_float(ds_vec n) { return (ds_fvec)(n | DS_TWO_52_BITS) - DS_TWO_52; }

/* Nearest float64 of 0 <= n < 2^63, by halves of 32 bits. */
static inline ds_fvec ds_wide_to_float(ds_vec n) {
    ds_fvec high = (ds_fvec)((ds_vec)((ds_uvec)n >> 32) | DS_TWO_84_BITS) - DS_TWO_84_AND_52;
    return high + (ds_fvec)((n & DS_LOW_32) | DS_TWO_52_BITS);
}

/* Nearest integer of 0 <= x < 2^51. */
static inline ds_vec ds_to_int(ds_fvec x) { return (ds_vec)(x + DS_TWO_52) & DS_LOW_52; }

/* Write the lanes where the mask is set (-1) to the front; how many. Writes DS_LANES numbers at most,
   of which those behind them mean nothing. */
static inline int ds_compress(int64_t *to, ds_vec mask, ds_vec v) {
#if DS_LANES == 8
    const __mmask8 lanes = _mm512_movepi64_mask((__m512i)mask);
    ds_store(to, (ds_vec)_mm512_maskz_compress_epi64(lanes, (__m512i)v));
    return __builtin_popcount(lanes);
#else
    int count = 0;
    for (int lane = 0; lane < DS_LANES; lane++) {
        to[count] = v[lane];
        count -= (int)mask[lane];
    }
    return count;
#endif
}

/* Whether the mask is set in any lane. */
static inline int ds_any(ds_vec mask) {
#if DS_LANES == 8
    return _mm512_movepi64_mask((__m512i)mask) != 0;
#else
    int64_t any = 0;
    for (int lane = 0; lane < DS_LANES; lane++) any |= mask[lane];
    return any != 0;
#endif
}

/* In the lanes where *x >= d and *rest >= q: *x -= d, *rest -= q. */
static inline void ds_take(ds_vec *x, ds_vec *rest, int64_t d, int64_t q) {
#if DS_LANES == 8
    __m512i value = (__m512i)*x, left = (__m512i)*rest;
    __m512i drop = _mm512_set1_epi64(d), length = _mm512_set1_epi64(q);
    __mmask8 mask = _mm512_cmpge_epi64_mask(value, drop);
    mask = _mm512_mask_cmpge_epi64_mask(mask, left, length);
    *x = (ds_vec)_mm512_mask_sub_epi64(value, mask, value, drop);
    *rest = (ds_vec)_mm512_mask_sub_epi64(left, mask, left, length);
#else
    ds_vec mask = (*x >= d) & (*rest >= q);
    *x -= mask & d;
    *rest -= mask & q;
#endif
}

#endif
