/* Counters that two clocks have stamped: which falls are resets.

   Rows of two collectors, whose clocks differ, interleave in a wrong order, and each fall looks like a
   reset. Within a life (since the latest reset) the settled value is the largest so far. A row that
   falls to v is no reset

     if a row of this life within the guard before has a settled value of v or less: this row is older
     than its stamp; or
     if a row within the guard after is back at the settled value that this life had at the guard's
     beginning, or above: this row was ahead, and belongs to the next life.

   Otherwise a life begins. Settled values do not fall within a life, so both conditions look at one row:
   the first of this life within the guard, and the largest of those after. A queue of falling values
   finds the latter, so that n rows take O(n), whatever they are. */
#include "series/series.h"

/* ahead[k] = the largest key of the rows after k within the guard, or the least number. */
static void look_ahead(
    const int64_t *keys, const int64_t *times, int64_t first, int64_t last, int64_t guard,
    int64_t *ahead, int64_t *queue
) {
    int64_t head = 0, tail = 0; /* queue[head..tail): rows, earlier ones at the tail, keys fall */
    for (int64_t k = last; k-- > first;) {
        while (head < tail && (uint64_t)times[queue[head]] - (uint64_t)times[k] > (uint64_t)guard) head++;
        ahead[k] = head < tail ? keys[queue[head]] : INT64_MIN;
        while (head < tail && keys[queue[tail - 1]] <= keys[k]) tail--;
        queue[tail++] = k;
    }
}

static void settle(
    const int64_t *keys, const int64_t *times, const uint8_t *begins, int64_t n, int64_t guard,
    int64_t *ahead, int64_t *queue, int64_t *settled
) {
    for (int64_t first = 0, last; first < n; first = last) {
        last = first + 1;
        while (last < n && !begins[last]) last++;
        look_ahead(keys, times, first, last, guard, ahead, queue);
        int64_t high = settled[first] = keys[first], since = first;
        for (int64_t k = first + 1; k < last; k++) {
            while (since < k && (uint64_t)times[k] - (uint64_t)times[since] > (uint64_t)guard) since++;
            if (keys[k] < high) {
                const int64_t low = since < k ? settled[since] : high;
                const int older = since < k && low <= keys[k];
                if (!older && ahead[k] < low) {
                    high = keys[k]; /* a reset */
                    since = k;
                }
            } else
                high = keys[k];
            settled[k] = high;
        }
    }
}

DS_TABLE(ds_series_guard_kernels, ds_series_guard) = {.settle = settle};
