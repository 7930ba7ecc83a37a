/* Rows as they are packed: columns of times, ids, weights and value keys. */
#ifndef PACKED_H
#define PACKED_H

#include "core/codec/rows.h"
#include "driver.h"

static inline ds_rows packed_of(const column *from) {
    return (ds_rows){from[0].numbers, from[1].numbers, from[2].numbers, from[3].numbers};
}

static inline ds_rows packed_room(int64_t n) {
    return (ds_rows){room(n, 8), room(n, 8), room(n, 8), room(n, 8)};
}

static inline void give_packed(call *c, const ds_rows *rows, int64_t n) {
    give(c, rows->times, n);
    give(c, rows->ids, n);
    give(c, rows->weights, n);
    give(c, rows->values, n);
}

#endif
