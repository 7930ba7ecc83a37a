/* Rising texts, each without the bytes that it shares with the one before. */
#ifndef DS_CODEC_TEXTS_H
#define DS_CODEC_TEXTS_H

#include <stdint.h>

#include "core/levels.h"

typedef struct {
    /* Writes n, then the texts with these numbers, where text k has the bytes bounds[k] to bounds[k + 1]:
       two varints for each, how many bytes it shares and how many others follow, then these. Returns
       the bytes written, at most ds_varint_bytes(n) + 2 * ds_varint_bytes(longest) * n more than the
       texts have. */
    int64_t (*front_code)(
        const uint8_t *texts, const int64_t *bounds, const int64_t *numbers, int64_t n, uint8_t *out
    );
} ds_text_kernels;

DS_TABLES(ds_text_kernels, ds_text)

static inline int64_t ds_varint_bytes(uint64_t number) {
    int64_t bytes = 1;
    for (; number >= 128; number >>= 7) bytes++;
    return bytes;
}

#endif
