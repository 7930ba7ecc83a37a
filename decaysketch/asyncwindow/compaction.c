/* The state of a sampler, computed from a bag of elements.

   state.py defines it: of copies with one identity the latest counts, and of those the one of the
   largest value; the watermark of a level is the time of its (capacity + 1)-th latest element, or
   what it was before if that is later; an element later than the watermark of its level is kept.
   Counting is all that this needs, but for ties at a watermark: the bag is never sorted.

   (1) Count rows by level and by bucket of age. Every octave of ages has as many buckets: a level
       reaches about twice as far back as the one before it, and is to be cut as finely. From
       first_nested on a level counts all rows above as well.
   (2) Most rows of a full bag are beyond the capacity. In some bucket a level passes `spare` rows,
       which leaves some room for copies: what is older is not looked at. That is right if the level
       does get a watermark at or after these rows, which is checked at the end; else the copies
       were too many, and all rows are looked at.
   (3) Among the others, find copies. Most rows share their bit of a large bitmap with no other row,
       and have none; the rest are looked up by identity. Of two copies the earlier one is dropped
       and counts no longer; of two at one time the second is, once the first has got the larger
       value. So rows keep the order of arrival, and equal times come out in one order for ever.
   (4) With what is counted now, a level passes its capacity in the bucket of its watermark. The
       rows of such buckets, a few for each level, are sorted by age and walked, which finds it.
   (5) Drop the rows that are not later than the watermark of their level.

   Bitmap and table are keyed by random odd multipliers of the process: they are fed from the
   network, and never enter the bytes. Everything is O(n), whatever is fed. */
#include "asyncwindow/asyncwindow.h"

#include "core/table.h"
#include "core/vectors.h"

enum {
    CHUNK = 256,         /* rows whose slots are fetched ahead of their use */
    ROWS_OF_BUCKET = 32, /* at least, on average, where there are many buckets */
    BITS_OF_ROW = 4,     /* of the bitmap, at least */
    EXACT_BITS = 50,     /* of an age that is one less than a number ds_to_float takes */
    FINEST = 10,
    DROPPED = -1, /* level of a row that is a copy */
};

typedef uint16_t narrow __attribute__((vector_size(2 * DS_LANES)));

static inline int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }
static inline int64_t most(int64_t x, int64_t y) { return x > y ? x : y; }

typedef struct {
    int64_t count_levels, first_nested, capacity;
    uint64_t newest;
    int bits;   /* of the largest age */
    int coarse; /* low bits of ages that tell no bucket from another */
    int fine;   /* an octave has 2^fine buckets */
    int64_t buckets;
    uint16_t *bucket;            /* of each row */
    uint32_t *counts;            /* by bucket, then level */
    int64_t last[DS_LEVEL_ROOM]; /* rows of a level in later buckets are not looked at */
} ages;

/* The bits of a float64 are exponent above significand: the highest of them, for an age from 1 on,
   number the buckets. */
static inline ds_vec buckets_of(const ages *a, ds_uvec age) {
    const ds_uvec bits = (ds_uvec)ds_to_float((ds_vec)(age >> a->coarse) + 1);
    return (ds_vec)(bits >> (52 - a->fine)) - ((int64_t)1023 << a->fine);
}

static inline int64_t bucket_of(const ages *a, uint64_t age) {
    return buckets_of(a, (ds_uvec)ds_all((int64_t)age))[0];
}

/* The least age of a bucket or those after it. */
static inline uint64_t first_age(const ages *a, int64_t bucket) {
    const int64_t octave = bucket >> a->fine, part = bucket & ((1LL << a->fine) - 1);
    const uint64_t significand = (1ULL << a->fine) + (uint64_t)part;
    const int shift = (int)octave - a->fine;
    const uint64_t age = shift >= 0 ? significand << shift : ((significand - 1) >> -shift) + 1;
    return (age - 1) << a->coarse;
}

/* Step (1): as many buckets as are wanted, at the most, but one for an octave at least. */
static void divide(ages *a, const ds_elements *bag, int64_t n, int64_t wanted) {
    int64_t oldest, newest;
    ds_span(bag->times, n, &oldest, &newest);
    a->newest = (uint64_t)newest;
    a->bits = ds_bit_length(a->newest - (uint64_t)oldest);
    a->coarse = (int)most(0, a->bits - EXACT_BITS);
    while ((a->bits - a->coarse + 1) << (a->fine + 1) <= wanted && a->fine < FINEST) a->fine++;
    a->buckets = bucket_of(a, a->newest - (uint64_t)oldest) + 1;
    int64_t k = 0;
    for (; k + DS_LANES <= n; k += DS_LANES) {
        const ds_vec bucket = buckets_of(a, a->newest - (ds_uvec)ds_load(bag->times + k));
        const narrow few = __builtin_convertvector(bucket, narrow);
        memcpy(a->bucket + k, &few, sizeof few);
    }
    for (; k < n; k++) a->bucket[k] = (uint16_t)bucket_of(a, a->newest - (uint64_t)bag->times[k]);
}

/* ------------------------------------------------------------------------------------- counting */

/* Elements of each level from the latest bucket on, as they are counted at it. */
typedef struct {
    int64_t own[DS_LEVEL_ROOM]; /* by top level */
    int64_t lowest;             /* of the nested levels that count no more than their capacity */
    int64_t nested;             /* elements of top level lowest or above */
} tally;

static inline void leave_lowest(tally *t) { t->nested -= t->own[t->lowest++]; }

static void count(const ages *a, const ds_elements *bag, int64_t n) {
    uint32_t *counts = a->counts;
    const int64_t stride = a->count_levels;
    memset(counts, 0, (size_t)(a->buckets * stride) * sizeof *counts);
    for (int64_t k = 0; k < n; k++)
        if (bag->levels[k] != DROPPED) counts[a->bucket[k] * stride + bag->levels[k]]++;
}

/* passing[i] = the bucket in which level i passes so many elements, or the number of buckets. */
static void find_passing(const ages *a, int64_t elements, int64_t passing[DS_LEVEL_ROOM]) {
    tally t = {.lowest = a->first_nested};
    int64_t open = a->count_levels;
    for (int64_t i = 0; i < a->count_levels; i++) passing[i] = a->buckets;
    for (int64_t b = 0; b < a->buckets && open; b++) {
        const uint32_t *counts = a->counts + b * a->count_levels;
        for (int64_t i = 0; i < a->count_levels; i++) t.own[i] += counts[i];
        for (int64_t i = 0; i < a->first_nested; i++)
            if (t.own[i] > elements && passing[i] == a->buckets) {
                passing[i] = b;
                open--;
            }
        for (int64_t i = t.lowest; i < a->count_levels; i++) t.nested += counts[i];
        while (t.lowest < a->count_levels && t.nested > elements) {
            passing[t.lowest] = b;
            leave_lowest(&t);
            open--;
        }
    }
}

/* Step (2): the rows that are to be looked at. */
static int64_t look_at(const ages *a, const ds_elements *bag, int64_t n, uint32_t *rows) {
    int64_t last[DS_LEVEL_ROOM + 1], found = 0;
    last[0] = -1; /* of what was dropped */
    memcpy(last + 1, a->last, (size_t)a->count_levels * sizeof *last);
    for (int64_t k = 0; k < n; k++) {
        rows[found] = (uint32_t)k;
        found += a->bucket[k] <= last[bag->levels[k] + 1];
    }
    return found;
}

/* From now on only what is looked at counts. */
static void forget_others(const ages *a) {
    for (int64_t b = 0; b < a->buckets; b++)
        for (int64_t i = 0; i < a->count_levels; i++)
            if (b > a->last[i]) a->counts[b * a->count_levels + i] = 0;
}

/* --------------------------------------------------------------------------------------- copies */

/* Step (3), for a row and an earlier one of the bag; returns the one that stays. */
static int64_t drop_copy(const ages *a, const ds_elements *bag, int64_t first, int64_t second) {
    const bool moved = bag->times[second] > bag->times[first];
    const int64_t dropped = moved ? first : second;
    if (bag->times[second] == bag->times[first])
        bag->values[first] = most(bag->values[first], bag->values[second]);
    a->counts[a->bucket[dropped] * a->count_levels + bag->levels[dropped]]--;
    bag->levels[dropped] = DROPPED;
    return moved ? second : first;
}

static inline uint64_t hash_of(
    const ds_stream *s, const ds_elements *bag, int64_t row, const uint64_t salts[2]
) {
    const uint64_t hash = bag->keys[row] * salts[0];
    return s->weighted ? hash + (uint64_t)bag->values[row] * salts[1] : hash;
}

/* The rows that share their bit with another one; `bits` is room for a number of each row. */
static int64_t suspects(
    const ds_stream *s, const ds_elements *bag, const uint32_t *rows, int64_t n,
    const uint64_t salts[2], uint32_t *bitmap, uint32_t *bits, uint32_t *found
) {
    const int size = (int)most(4, ds_bit_length((uint64_t)n * BITS_OF_ROW));
    memset(bitmap, 0, sizeof *bitmap << (size - 4)); /* beside each bit, whether it came again */
    for (int64_t j = 0; j < n; j++) {
        const uint32_t bit = (uint32_t)(hash_of(s, bag, rows[j], salts) >> (64 - size));
        const uint32_t word = bitmap[bit >> 4], one = 1u << 2 * (bit & 15);
        bitmap[bit >> 4] = word | one | (word & one) << 1;
        bits[j] = bit;
    }
    int64_t suspected = 0;
    for (int64_t j = 0; j < n; j++) {
        found[suspected] = rows[j];
        suspected += bitmap[bits[j] >> 4] >> (2 * (bits[j] & 15) + 1) & 1;
    }
    return suspected;
}

/* Step (3), for some rows of a bag that has `numbers`. */
static void drop_copies(
    const ds_stream *s, const ages *a, const ds_elements *bag, const uint32_t *rows, int64_t n,
    int64_t numbers, const uint64_t salts[2], uint32_t *slots
) {
    const int64_t *values = bag->values;
    const uint64_t *keys = bag->keys;
    ds_table table = ds_open_table(slots, ds_table_bits(n * 3 / 2 + 2), numbers);
    uint64_t hashes[CHUNK];
    for (int64_t start = 0; start < n; start += CHUNK) {
        const int64_t stop = least(n, start + CHUNK);
        for (int64_t j = start; j < stop; j++) {
            hashes[j - start] = hash_of(s, bag, rows[j], salts);
            ds_prefetch(&table, hashes[j - start]);
        }
        for (int64_t j = start; j < stop; j++) {
            const int64_t row = rows[j];
            ds_probe at = ds_first_probe(&table, hashes[j - start]);
            int64_t other;
            while ((other = ds_next(&table, &at)) >= 0)
                if (keys[other] == keys[row] && (!s->weighted || values[other] == values[row]))
                    break;
            ds_put(&table, &at, other < 0 ? row : drop_copy(a, bag, other, row));
        }
    }
}

/* ----------------------------------------------------------------------------------- watermarks */

static inline void raise(int64_t *mark, int64_t time) { *mark = most(*mark, time); }

/* One more element counts; its level, or nested levels in turn, may pass the capacity with it. */
static inline void count_one(const ages *a, tally *t, int64_t level, int64_t time, int64_t *marks) {
    t->own[level]++;
    if (level < a->first_nested) {
        if (t->own[level] == a->capacity + 1) raise(&marks[level], time);
    } else if (level >= t->lowest) {
        t->nested++;
        while (t->lowest < a->count_levels && t->nested > a->capacity) {
            raise(&marks[t->lowest], time);
            leave_lowest(t);
        }
    }
}

/* Step (4). */
static void raise_marks(
    const ages *a, const ds_elements *bag, const uint32_t *rows, int64_t n, int64_t *marks,
    const ds_sorting *sorting
) {
    int64_t passing[DS_LEVEL_ROOM], cuts = 0;
    bool is_cut[1 << DS_BUCKET_BITS] = {false};
    find_passing(a, a->capacity, passing);
    for (int64_t i = 0; i < a->count_levels; i++)
        if (passing[i] < a->buckets) {
            is_cut[passing[i]] = true;
            cuts = most(cuts, passing[i] + 1);
        }
    if (cuts == 0) return;
    int64_t found = 0;
    for (int64_t j = 0; j < n; j++) {
        const int64_t time = bag->times[rows[j]];
        const int8_t level = bag->levels[rows[j]];
        sorting->keys[0][found] = a->newest - (uint64_t)time;
        sorting->words[0][found] = (uint32_t)level;
        const int64_t b = a->bucket[rows[j]];
        if (level >= a->first_nested)
            found += is_cut[b];
        else
            found += level != DROPPED && passing[level] == b;
    }
    const int which = ds_radix_sort(sorting, found, a->bits);
    const uint64_t *sorted = sorting->keys[which];
    const uint32_t *levels = sorting->words[which];
    tally t = {.lowest = a->first_nested};
    int64_t j = 0;
    for (int64_t b = 0; b < cuts; b++) {
        const uint32_t *counts = a->counts + b * a->count_levels;
        if (is_cut[b]) {
            for (int64_t i = 0; i < a->first_nested; i++)
                if (passing[i] != b) t.own[i] += counts[i];
            for (; j < found && bucket_of(a, sorted[j]) == b; j++)
                count_one(a, &t, levels[j], (int64_t)(a->newest - sorted[j]), marks);
        } else {
            for (int64_t i = 0; i < a->count_levels; i++) t.own[i] += counts[i];
            for (int64_t i = t.lowest; i < a->count_levels; i++) t.nested += counts[i];
        }
    }
}

/* Whether every level of which rows were not looked at has a watermark at or after them. */
static bool were_right(const ages *a, const int64_t *marks) {
    for (int64_t i = 0; i < a->count_levels; i++)
        if (a->last[i] < a->buckets - 1 &&
            marks[i] < (int64_t)(a->newest - first_age(a, a->last[i] + 1)))
            return false;
    return true;
}

/* Step (5): rows that are later than the watermark of their level, moved to the front. */
static int64_t drop_earlier(
    const ages *a, const ds_elements *bag, const uint32_t *rows, int64_t n, const int64_t *marks
) {
    int64_t limits[DS_LEVEL_ROOM + 1], kept = 0;
    limits[0] = INT64_MAX; /* of what was dropped */
    memcpy(limits + 1, marks, (size_t)a->count_levels * sizeof *marks);
    for (int64_t j = 0; j < n; j++) {
        const int64_t row = rows[j], time = bag->times[row];
        const int8_t level = bag->levels[row];
        bag->values[kept] = bag->values[row];
        bag->keys[kept] = bag->keys[row];
        bag->times[kept] = time;
        bag->levels[kept] = level;
        kept += time > limits[level + 1];
    }
    return kept;
}

static ds_compacted compact(
    const ds_stream *s, const ds_elements *bag, int64_t n, int64_t capacity, int64_t spare,
    int64_t *marks, const uint64_t salts[2], const ds_workspace *w
) {
    const ds_sorting *sorting = &w->sorting;
    ds_compacted done = {0};
    ages a = {
        .count_levels = s->levels + 1,
        .first_nested = s->first_nested,
        .capacity = capacity,
        .bucket = w->buckets,
        .counts = w->counts,
    };
    if (n == 0) return done;
    divide(&a, bag, n, least(n / ROWS_OF_BUCKET, 1 << DS_BUCKET_BITS));
    for (;;) {
        count(&a, bag, n);
        find_passing(&a, done.many_copies || n <= 2 * spare ? n : spare, a.last);
        const int64_t found = look_at(&a, bag, n, w->rows);
        forget_others(&a);
        const int64_t suspected = suspects(
            s, bag, w->rows, found, salts, w->slots, sorting->words[0],
            sorting->words[1]
        );
        drop_copies(s, &a, bag, sorting->words[1], suspected, n, salts, w->slots);
        raise_marks(&a, bag, w->rows, found, marks, sorting);
        if (were_right(&a, marks)) {
            done.rows = drop_earlier(&a, bag, w->rows, found, marks);
            return done;
        }
        done.many_copies = true;
    }
}

/* ------------------------------------------------------------------------------------- ordering */

/* Order rows of one time by key, then value, descending, where they are in sorting->words[0]. */
static void sort_ties(
    const ds_elements *bag, int64_t n, bool weighted, const ds_sorting *sorting
) {
    for (int by_key = !weighted; by_key < 2; by_key++) { /* a key has one value but in a sum */
        for (int64_t k = 0; k < n; k++) {
            const int64_t row = ds_row_of(sorting->words[0][k]);
            sorting->keys[0][k] = ~(by_key ? bag->keys[row] : (uint64_t)bag->values[row]);
        }
        if (ds_radix_sort(sorting, n, 64))
            memcpy(sorting->words[0], sorting->words[1], (size_t)n * sizeof *sorting->words[0]);
    }
}

static void arrange(
    const ds_elements *bag, int64_t n, bool canonical, bool weighted, const ds_sorting *sorting,
    const ds_elements *out
) {
    int64_t newest;
    const int which = ds_sort_by_time(bag->times, bag->levels, n, sorting, &newest);
    uint64_t *sorted = sorting->keys[which];
    uint32_t *words = sorting->words[which];
    for (int64_t k = 0; k < n; k++) out->times[k] = (int64_t)((uint64_t)newest - sorted[k]);
    for (int64_t start = 0, stop; canonical && start < n; start = stop) {
        for (stop = start + 1; stop < n && out->times[stop] == out->times[start];) stop++;
        const ds_sorting ties = {
            {sorted + start, sorting->keys[!which] + start},
            {words + start, sorting->words[!which] + start},
        };
        if (stop - start > 1) sort_ties(bag, stop - start, weighted, &ties);
    }
    for (int64_t k = 0; k < n; k++) {
        const int64_t row = ds_row_of(words[k]);
        out->values[k] = bag->values[row];
        out->keys[k] = bag->keys[row];
        out->levels[k] = (int8_t)ds_level_of_word(words[k]);
    }
}

DS_TABLE(ds_window_compaction_kernels, ds_window_compaction) = {
    .compact = compact,
    .arrange = arrange,
};
