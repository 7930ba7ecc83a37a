/* The 64-bit mixer of hashing.py, mix64: a bijection. */
#ifndef DS_MIX_H
#define DS_MIX_H

#include <stdint.h>

#define DS_GAMMA 0x9E3779B97F4A7C15ULL
#define DS_MIX_1 0x3C79AC492BA7B653ULL
#define DS_MIX_2 0x1C69B3F74AC4AE35ULL

static inline uint64_t ds_mix64(uint64_t word) {
    word = (word ^ word >> 27) * DS_MIX_1;
    word = (word ^ word >> 33) * DS_MIX_2;
    return word ^ word >> 27;
}

#endif
