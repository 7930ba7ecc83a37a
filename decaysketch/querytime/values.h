/* Values of rows: which of two is larger. With columns (DS_RECORDS) a value is a payload number. */
#ifndef DS_QUERYTIME_VALUES_H
#define DS_QUERYTIME_VALUES_H

#include "querytime/rows.h"

#ifdef DS_RECORDS
/* Whether payload a is larger: column by column, texts by their ranks. A missing value is the least. */
static inline int is_larger(const ds_payloads *p, int64_t a, int64_t b) {
    const int64_t *x = p->keys + a * p->count, *y = p->keys + b * p->count;
    if (!memcmp(x, y, (size_t)p->count * sizeof *x)) return 0; /* a true duplicate, as nearly always */
    for (int64_t c = 0; c < p->count; c++) {
        if (x[c] == y[c]) continue;
        const int64_t *ranks = p->ranks[c];
        if (!ranks || x[c] < 0 || y[c] < 0) return x[c] > y[c];
        return ranks[x[c]] > ranks[y[c]];
    }
    return 0;
}

/* Value b, or a where both have equal columns. */
static inline int64_t as_value(const ds_payloads *p, int64_t a, int64_t b) {
    const int64_t *x = p->keys + a * p->count, *y = p->keys + b * p->count;
    return memcmp(x, y, (size_t)p->count * sizeof *x) ? b : a;
}
#else
static inline int is_larger(const ds_payloads *p, int64_t a, int64_t b) { return a > b; }
static inline int64_t as_value(const ds_payloads *p, int64_t a, int64_t b) { return b; }
#endif

#endif
