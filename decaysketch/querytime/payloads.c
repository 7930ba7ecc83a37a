/* Payloads: the columns of rows, `count` value keys each.

   Compaction permutes facts alone, whose values are payload numbers; then the payloads that are left
   are gathered. A row's keys lie together, so that two duplicates are compared in one cache line. */
#include "querytime/payloads.h"

static void take(
    ds_fact *facts, int64_t first, int64_t n, const ds_payload_source *source, int64_t count,
    int64_t *to
) {
    for (int64_t c = 0; c < count; c++) {
        const int64_t *column = source->columns[c], *map = source->maps[c];
        int64_t *at = to + first * count + c;
        if (map)
            for (int64_t k = first; k < n; k++, at += count) {
                const int64_t key = column[facts[k].value * source->stride];
                *at = key < 0 ? key : map[key];
            }
        else
            for (int64_t k = first; k < n; k++, at += count)
                *at = column[facts[k].value * source->stride];
    }
    for (int64_t k = first; k < n; k++) facts[k].value = k;
}

static void gather(ds_fact *facts, int64_t n, const int64_t *keys, int64_t count, int64_t *to) {
    enum { AHEAD = 16 };
    for (int64_t k = 0; k < n; k++, to += count) {
        if (k + AHEAD < n) __builtin_prefetch(keys + facts[k + AHEAD].value * count);
        memcpy(to, keys + facts[k].value * count, (size_t)count * sizeof *to);
        facts[k].value = k;
    }
}

DS_TABLE(ds_payload_kernels, ds_payload) = {
    .take = take,
    .gather = gather,
};
