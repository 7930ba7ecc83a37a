/* The law of the watermarks, for rows that are walked from the latest one on.

   A level holds the latest `capacity` rows of its top level or above; where more are met, its
   watermark is the time of the last one, and all of that time are dropped with it: the lowest level
   that is still complete leaves first, since each level holds what those above it hold. After each
   run of equal times ds_raise_marks is called, before each of another time ds_pass_marks. */
#ifndef DS_MARKS_H
#define DS_MARKS_H

#include <stdint.h>

enum { DS_MOST_LEVELS = 63 }; /* 0..top, where a prime below 2^61 has top < 62 */

typedef struct {
    int64_t *marks; /* the watermark of each level, raised in place */
    int64_t levels, capacity;
    int64_t complete; /* rows kept of top level lowest or above */
    int64_t lowest;   /* the lowest level that has discarded nothing down to the current time */
    int64_t kept[DS_MOST_LEVELS + 1]; /* rows kept, by top level */
} ds_marks;

static inline ds_marks ds_first_marks(int64_t *marks, int64_t levels, int64_t capacity) {
    return (ds_marks){.marks = marks, .levels = levels, .capacity = capacity};
}

/* One more row is kept, of top level lowest or above. */
static inline void ds_keep(ds_marks *m, int64_t level) {
    m->kept[level]++;
    m->complete++;
}

/* A run of rows of equal time ended. */
static inline void ds_raise_marks(ds_marks *m, int64_t now) {
    while (m->lowest < m->levels && m->complete > m->capacity) {
        m->marks[m->lowest] = now;
        m->complete -= m->kept[m->lowest++];
    }
}

/* Leave the levels that are not complete at a time. */
static inline void ds_pass_marks(ds_marks *m, int64_t now) {
    while (m->lowest < m->levels && m->marks[m->lowest] >= now)
        m->complete -= m->kept[m->lowest++];
}

#endif
