/* Levels of instruction set, and the choice among them.

   Every kernel file is compiled once for each level, with DS_LEVEL its name: v2, v3 and v4 of
   x86-64, or base elsewhere. All that it has is static, but for one table of its kernels, whose name
   carries the level; the Cython layer takes the table of the best level that the processor has. */
#ifndef DS_LEVELS_H
#define DS_LEVELS_H

#include <stdlib.h>
#include <string.h>

#define DS_PASTE_(a, b) a##_##b
#define DS_PASTE(a, b) DS_PASTE_(a, b)

/* The table of this file: DS_TABLE(ds_minhit_kernels, ds_minhit) = {...}; */
#define DS_TABLE(type, name) const type DS_PASTE(name, DS_LEVEL)

#if defined(__x86_64__)
#include <cpuid.h>

/* Declares the tables of a file, and name_at(level), which chooses among them. */
#define DS_TABLES(type, name)                                                                      \
    extern const type name##_v2, name##_v3, name##_v4;                                             \
    static inline const type *name##_at(int level) {                                               \
        return level >= 4 ? &name##_v4 : level == 3 ? &name##_v3 : &name##_v2;                     \
    }

/* 2, 3 or 4: what the processor has and the system saves. */
static inline int ds_processor_level(void) {
    unsigned a, b, c, d;
    const unsigned v3 = bit_AVX2 | bit_BMI | bit_BMI2;
    const unsigned v4 = bit_AVX512F | bit_AVX512DQ | bit_AVX512CD | bit_AVX512BW | bit_AVX512VL;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX) || !(c & bit_FMA))
        return 2;
    unsigned saved, high;
    __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    if ((saved & 0x06) != 0x06 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & v3) != v3)
        return 2;
    return (saved & 0xE6) == 0xE6 && (b & v4) == v4 ? 4 : 3;
}
#else
#define DS_TABLES(type, name)                                                                      \
    extern const type name##_base;                                                                 \
    static inline const type *name##_at(int level) {                                               \
        (void)level;                                                                               \
        return &name##_base;                                                                       \
    }

static inline int ds_processor_level(void) { return 0; }
#endif

/* The level to use: the processor's, or a lower one that the environment asks for, as tests do. */
static inline int ds_level(void) {
    int best = ds_processor_level();
    const char *asked = getenv("DECAYSKETCH_LEVEL"); /* v2, v3 or v4 */
    if (asked && asked[0] == 'v' && asked[1] >= '2' && asked[1] < '0' + best && !asked[2])
        return asked[1] - '0';
    return best;
}

#endif
