/* The coins of elements, some at a time: coins.py says what they are.

   Levels. x 2^i < v 2^53 with 53-bit integers x and v. As float64 both are exact, x = m_x 2^e_x
   and v = m_v 2^e_v with significands in [1, 2), so the largest i is 53 + e_v - e_x where
   m_x < m_v, else one less. The bits of a float64 are exponent above significand, so that is
   53 + floor((bits(v) - bits(x) - 1) / 2^52): no division, no logarithm. x = 0 has bits 0 and lands
   above every level. */
#ifndef DS_COINS_H
#define DS_COINS_H

#include "core/mix.h"
#include "core/vectors.h"

#define DS_COIN_BITS 53
#define DS_ONE_BITS 0x3FF0000000000000LL /* of the float64 1 */

/* ds_mix64 of each. */
static inline ds_uvec ds_mix64_each(ds_uvec words) {
    words = (words ^ words >> 27) * DS_MIX_1;
    words = (words ^ words >> 33) * DS_MIX_2;
    return words ^ words >> 27;
}

/* Keys of the elements that sources number so; words are those of their sources. */
static inline ds_uvec ds_keys(ds_uvec words, ds_uvec numbers) {
    return ds_mix64_each(words + (numbers + 1) * DS_GAMMA);
}

/* Top levels of elements; value_bits are those of float64(v), 0 <= v <= 2^53. A value of 0 has no
   level, and is given 0. */
static inline ds_vec ds_coin_levels(ds_vec value_bits, ds_uvec keys, int64_t levels) {
    const ds_vec coin = (ds_vec)(keys >> (64 - DS_COIN_BITS));
    const ds_vec coin_bits = (ds_vec)ds_wide_to_float(coin);
    /* shifted as unsigned, 2^63 higher, since not every level of instruction set shifts signs */
    const ds_uvec difference = (ds_uvec)(value_bits - coin_bits - 1) ^ (1ULL << 63);
    ds_vec level = DS_COIN_BITS - (1 << 11) + (ds_vec)(difference >> 52);
    level &= level > 0;
    return ds_pick(level < levels, level, ds_all(levels));
}

#endif
