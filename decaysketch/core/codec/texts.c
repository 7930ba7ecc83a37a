/* See texts.h. */
#include "core/codec/texts.h"

static inline uint8_t *put_varint(uint8_t *out, uint64_t number) {
    for (; number >= 128; number >>= 7) *out++ = (uint8_t)(number | 128);
    *out++ = (uint8_t)number;
    return out;
}

/* How many first bytes are equal, of at most so many. */
static inline int64_t shared(const uint8_t *a, const uint8_t *b, int64_t most) {
    int64_t equal = 0;
    for (; most - equal >= 8; equal += 8)
        if (memcmp(a + equal, b + equal, 8)) break;
    while (equal < most && a[equal] == b[equal]) equal++;
    return equal;
}

static int64_t front_code(
    const uint8_t *texts, const int64_t *bounds, const int64_t *numbers, int64_t n, uint8_t *out
) {
    const uint8_t *before = texts, *begin = out;
    int64_t before_length = 0;
    out = put_varint(out, (uint64_t)n);
    for (int64_t k = 0; k < n; k++) {
        const uint8_t *text = texts + bounds[numbers[k]];
        const int64_t length = bounds[numbers[k] + 1] - bounds[numbers[k]];
        const int64_t most = length < before_length ? length : before_length;
        const int64_t equal = shared(before, text, most), others = length - equal;
        out = put_varint(out, (uint64_t)equal);
        out = put_varint(out, (uint64_t)others);
        memcpy(out, text + equal, (size_t)others);
        out += others;
        before = text;
        before_length = length;
    }
    return out - begin;
}

DS_TABLE(ds_text_kernels, ds_text) = {.front_code = front_code};
