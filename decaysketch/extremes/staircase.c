/* The staircase of the rows that may be the largest of some window, and its spans of time.

   A row is a step unless a later one, or one of its own time, has a key as large. So times rise and
   keys fall from step to step, and the largest key since any time is that of the first step from it
   on. Rows are taken from the latest to the earliest: one is a step if its key exceeds all keys
   before it. The steps that are earlier than all new rows stay where they are, but for those at
   their end that a new row is as large as; only later ones are merged, so that rows which come in
   order cost O(1) each, and those of a late batch no more than all steps since its beginning.

   The least of some window is the largest where all bits of a key are turned. */
#include "extremes/extremes.h"

#include <string.h>

enum { TOP_LEVEL = 63 };

#define MAGNITUDE INT64_MAX
#define NEGATIVE_ZERO INT64_MIN       /* bits of -0.0 */
#define INFINITE 0x7FF0000000000000LL /* bits of the least magnitude that is not finite */
#define MISSING INT64_MIN

/* ---------------------------------------------------------------------------------------- reading */

static ds_read_outcome read(const ds_readings *b, const ds_reading_limits *of, int64_t *keys) {
    bool bad = false, falls = false;
    const int64_t n = b->rows, *times = b->times;
    for (int64_t k = 0; k < n; k++) bad |= times[k] > of->time_limit || times[k] < -of->time_limit;
    for (int64_t k = 1; k < n; k++) falls |= times[k] < times[k - 1];
    if (b->weights)
        for (int64_t k = 0; k < n; k++) bad |= b->weights[k] < 1 || b->weights[k] > of->max_weight;
    if (b->ids)
        for (int64_t k = 0; k < n; k++) bad |= b->ids[k] < 0 || b->ids[k] > of->last_id;
    if (b->float_values) {
        for (int64_t k = 0; k < n; k++) { /* see observations.py */
            const int64_t bits = b->values[k] == NEGATIVE_ZERO ? 0 : b->values[k];
            bad |= (bits & MAGNITUDE) >= INFINITE;
            keys[k] = bits ^ ((bits >> 63) & MAGNITUDE);
        }
    } else {
        for (int64_t k = 0; k < n; k++) bad |= b->values[k] == MISSING;
        memcpy(keys, b->values, (size_t)n * sizeof *keys);
    }
    return bad ? DS_READ_REFUSED : falls ? DS_READ : DS_READ_IN_ORDER;
}

/* ------------------------------------------------------------------------------------- staircases */

/* The first step that is not earlier. */
static inline int64_t first_from(const ds_steps *stairs, int64_t held, int64_t time) {
    int64_t low = 0, high = held;
    if (held && stairs->times[held - 1] < time) return held;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (stairs->times[middle] < time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int64_t climb(
    const ds_steps *stairs, int64_t held, const int64_t *times, const int64_t *keys, int64_t n,
    bool turned, const ds_steps *spare
) {
    if (n == 0) return held;
    const int64_t flip = turned ? -1 : 0;
    const int64_t first = first_from(stairs, held, times[0]);
    /* From the end of both, and into the end of the room: steps are found latest first. */
    const int64_t room = n + held - first;
    int64_t at = room, highest = 0, k = n - 1, j = held - 1;
    while (k >= 0 || j >= first) {
        const bool row = j < first || (k >= 0 && times[k] >= stairs->times[j]);
        const int64_t time = row ? times[k] : stairs->times[j];
        const int64_t key = row ? keys[k] ^ flip : stairs->keys[j];
        k -= row;
        j -= !row;
        if (at < room && key <= highest) continue;
        highest = key;
        at -= at == room || spare->times[at] != time; /* of one time the largest */
        spare->times[at] = time;
        spare->keys[at] = key;
    }
    int64_t earlier = first;
    while (earlier > 0 && stairs->keys[earlier - 1] <= highest) earlier--;
    const int64_t found = room - at;
    memcpy(stairs->times + earlier, spare->times + at, (size_t)found * sizeof(int64_t));
    memcpy(stairs->keys + earlier, spare->keys + at, (size_t)found * sizeof(int64_t));
    return earlier + found;
}

/* ------------------------------------------------------------------------------------------- spans */

/* How long the span is that a time lies in, as the binary logarithm: the largest so that there are
   `spans` of them or more between the one of the time and the one of the newest. */
static inline int level_of(int64_t time, int64_t newest, int64_t spans) {
    const uint64_t age = (uint64_t)newest - (uint64_t)time;
    if (age < (uint64_t)spans) return 0;
    int level = spans == 1 ? TOP_LEVEL : TOP_LEVEL - __builtin_clzll(age / (uint64_t)spans) + 1;
    if (level > TOP_LEVEL) level = TOP_LEVEL;
    while (level > 0 && (newest >> level) - (time >> level) < spans) level--;
    return level;
}

static int64_t end_of_span(int64_t time, int64_t newest, int64_t spans) {
    const int level = level_of(time, newest, spans);
    return time | (int64_t)((1ULL << level) - 1);
}

static int64_t thin(const ds_steps *stairs, int64_t held, int64_t newest, int64_t spans) {
    int64_t left = 0, end = INT64_MIN;
    for (int64_t k = 0; k < held; k++) {
        const int64_t time = stairs->times[k];
        if (time <= end) continue; /* the first of a span is the largest of it */
        end = end_of_span(time, newest, spans);
        stairs->times[left] = time;
        stairs->keys[left++] = stairs->keys[k];
    }
    return left;
}

DS_TABLE(ds_extremes_kernels, ds_extremes) = {
    .read = read,
    .climb = climb,
    .thin = thin,
    .end_of_span = end_of_span,
};
