/* The rows that a sketch holds: admission, compaction, canonical order.

   A sketch holds a bag of rows: what the last compaction kept, and what arrived since and is later
   than the watermark of its level. Compaction computes the state that state.py defines:

   (1) Rows are visited by time, latest first, as exactly as it matters. They are put into buckets of
       time by counting. As long as no level can become more than full and no watermark is met, the
       order does not matter: of the copies of an observation the latest one is kept, and of these
       the one with the largest value. Only a bucket that may hold a cut is parted again, down to
       runs of equal times: a few for each level, O(n) for any times.
   (2) With each bucket goes the lowest level that is still complete. A row below it is dropped
       before anything of it is read but its time and level. The others are looked up by identity
       among the rows already kept.
   (3) After each run of equal times in which a level may overflow its watermark is raised (marks.h),
       and the rows of the run that fell below the watermark of their level are dropped.

   Where the rows that were kept stand in canonical order, and fewer came since, the newcomers alone
   are sorted and looked up, and the two runs are merged: a pass over the sketch costs little more
   than copying it.

   The identity table is sized for the rows that survive and not for those that come in, and keyed by
   a random odd multiplier of the process: it is fed from the network, and never enters the bytes. */
#include "querytime/rows.h"

#include "core/sort.h"
#include "querytime/values.h"

enum {
    CHUNK = 256, /* rows that are looked at together, so that their memory is fetched in time */
    MOST_BUCKETS_BITS = 12,
    PART_BITS = 8, /* of the buckets that a bucket is parted into */
    FEW = 16,      /* rows that are sorted by insertion */
};

/* ------------------------------------------------------------------------------------- admission */

static inline int64_t value_key(int64_t bits) { /* see observations.py: -0.0 becomes 0.0 */
    bits = bits == INT64_MIN ? 0 : bits;
    return bits ^ (bits >> 63 & INT64_MAX);
}

/* Extremes of rows that are in bounds. */
typedef struct {
    int64_t earliest, latest, lightest;
} extremes;

/* Whether rows start..stop - 1 are in bounds (finite, or not the missing key, for the value). */
static inline int check_block(
    const ds_bounds *bounds, ds_batch *b, int64_t start, int64_t stop, extremes *found
) {
    const int64_t *values = b->values, *weights = b->weights, *times = b->times, *ids = b->ids;
    const int64_t exponent = 0x7FFLL << 52;
    int64_t fault = 0; /* its sign bit gathers every broken bound */
    int64_t zeros = 0, earliest = INT64_MAX, latest = INT64_MIN, lightest = INT64_MAX;
    if (b->float_bits)
        for (int64_t k = start; k < stop; k++) fault |= exponent - 1 - (values[k] & exponent);
    else
        for (int64_t k = start; k < stop; k++) fault |= values[k] == INT64_MIN ? INT64_MIN : 0;
    for (int64_t k = start; k < stop; k++) {
        fault |= weights[k] | (bounds->max_weight - weights[k]);
        fault |= ids[k] | (bounds->last_id - ids[k]);
        zeros += weights[k] == 0;
        lightest = weights[k] < lightest ? weights[k] : lightest;
        earliest = times[k] < earliest ? times[k] : earliest;
        latest = times[k] > latest ? times[k] : latest;
    }
    *found = (extremes){earliest, latest, lightest};
    b->zero_weight += zeros;
    return fault >= 0 && earliest >= -bounds->time_limit && latest <= bounds->time_limit;
}

static inline void look(const ds_batch *b, int64_t start, int64_t stop, extremes *found) {
    int64_t earliest = INT64_MAX, latest = INT64_MIN, lightest = INT64_MAX;
    for (int64_t k = start; k < stop; k++) {
        lightest = b->weights[k] < lightest ? b->weights[k] : lightest;
        earliest = b->times[k] < earliest ? b->times[k] : earliest;
        latest = b->times[k] > latest ? b->times[k] : latest;
    }
    *found = (extremes){earliest, latest, lightest};
}

static int check(const ds_bounds *bounds, ds_batch *b) {
    extremes ignored;
    for (int64_t start = 0; start < b->unchecked; start += DS_BLOCK) {
        const int64_t stop = b->unchecked - start < DS_BLOCK ? b->unchecked : start + DS_BLOCK;
        if (!check_block(bounds, b, start, stop, &ignored)) return 0;
    }
    b->unchecked = 0;
    return 1;
}

/* Takes blocks from the end, since the last rows of a batch are mostly its latest. A block of which
   no row can be later than the watermark of its level is passed over; where all are, none is asked. */
static int admit(
    const ds_hash *h, const ds_bounds *bounds, ds_batch *b, const int64_t *marks, const ds_rows *to,
    int64_t *at_
) {
    int64_t at = *at_;
    int8_t level[DS_BLOCK];
    int32_t taken[DS_BLOCK];
    while (b->todo > 0 && at + DS_BLOCK <= to->room) {
        const int64_t stop = b->todo, start = stop < DS_BLOCK ? 0 : stop - DS_BLOCK;
        const int64_t count = stop - start;
        extremes found;
        if (start < b->unchecked) {
            if (!check_block(bounds, b, start, stop, &found)) return 0;
            b->unchecked = start;
        } else {
            look(b, start, stop, &found);
        }
        b->todo = start;
        if (found.latest <= marks[h->top]) continue;
        const int64_t *values = b->values + start, *weights = b->weights + start;
        const int64_t *times = b->times + start, *ids = b->ids + start;
        ds_fact *facts = to->facts + at;
        if (found.earliest > marks[0] && found.lightest > 0) {
            ds_levels(h, ids, weights, count, to->levels + at);
            for (int64_t k = 0; k < count; k++) {
                facts[k].value = b->float_bits ? value_key(values[k]) : values[k];
                facts[k].identity = (uint64_t)(ids[k] * bounds->max_weight + weights[k] - 1);
            }
            memcpy(to->times + at, times, (size_t)count * sizeof *times);
            at += count;
            continue;
        }
        ds_levels(h, ids, weights, count, level);
        int64_t rows = 0;
        for (int64_t k = 0; k < count; k++) {
            taken[rows] = (int32_t)k;
            rows += (times[k] > marks[level[k]]) & (weights[k] > 0);
        }
        for (int64_t c = 0; c < rows; c++, at++, facts++) {
            const int64_t k = taken[c];
            facts->value = b->float_bits ? value_key(values[k]) : values[k];
            facts->identity = (uint64_t)(ids[k] * bounds->max_weight + weights[k] - 1);
            to->times[at] = times[k];
            to->levels[at] = level[k];
        }
    }
    *at_ = at;
    return 1;
}

/* ------------------------------------------------------------------------------------ compaction */

static inline void copy_row(const ds_rows *to, int64_t at, const ds_rows *from, int64_t row) {
    to->facts[at] = from->facts[row];
    to->times[at] = from->times[row];
    to->levels[at] = from->levels[row];
}

/* Move those of the rows start..stop - 1 that are later than the watermark of their level to the
   front, from `left` on; where they end. */
static inline int64_t drop_cut(
    const ds_rows *rows, int64_t start, int64_t stop, int64_t left, const int64_t *marks
) {
    for (int64_t k = start; k < stop; k++) {
        copy_row(rows, left, rows, k);
        left += rows->times[k] > marks[rows->levels[k]];
    }
    return left;
}

/* A compaction on its way. */
typedef struct {
    const ds_rows *bag, *out;
    ds_marks marks;
    ds_table table;
    ds_replaced *replaced;
    const ds_payloads *payloads;
    uint64_t salt;
    int64_t at;   /* rows kept so far; numbers in the table, so that none moves before the end */
    int64_t most; /* rows that may come */
    struct {
        int64_t start, stop;
    } cuts[DS_MOST_LEVELS]; /* runs of rows at which a watermark was raised */
    int cut_count;
} walk;

static void insert_all(walk *w) {
    for (int64_t k = 0; k < w->at; k++) {
        ds_probe at = ds_first_probe(&w->table, w->out->facts[k].identity * w->salt);
        while (ds_next(&w->table, &at) >= 0) continue;
        ds_put(&w->table, &at, k);
    }
}

/* Keep rows of which none is below the lowest complete level, and all are after its watermark. */
static inline void keep(walk *w, const uint32_t *words, int64_t n) {
    const ds_rows *bag = w->bag, *out = w->out;
    while (w->at + n > w->table.most) {
        w->table = ds_open_table(w->table.slots, 65 - w->table.shift, w->most);
        insert_all(w);
    }
    uint64_t hash[CHUNK];
    for (int64_t c = 0; c < n; c++) {
        const int64_t row = ds_row_of(words[c]);
        hash[c] = bag->facts[row].identity * w->salt;
        ds_prefetch(&w->table, hash[c]);
        __builtin_prefetch(&bag->times[row]);
    }
    for (int64_t c = 0; c < n; c++) {
        const int64_t row = ds_row_of(words[c]), time = bag->times[row];
        const ds_fact fact = bag->facts[row];
        ds_probe at = ds_first_probe(&w->table, hash[c]);
        int64_t copy;
        while ((copy = ds_next(&w->table, &at)) >= 0)
            if (out->facts[copy].identity == fact.identity) break;
        if (copy >= 0) {
            const int64_t other = as_value(w->payloads, fact.value, out->facts[copy].value);
            ds_count_replaced(w->replaced, time, fact.value, out->times[copy], other);
            if (time > out->times[copy]) {
                out->times[copy] = time;
                out->facts[copy].value = fact.value;
            } else if (
                time == out->times[copy] &&
                is_larger(w->payloads, fact.value, out->facts[copy].value)
            ) {
                out->facts[copy].value = fact.value;
            }
            continue;
        }
        const int level = ds_level_of_word(words[c]);
        out->facts[w->at] = fact;
        out->times[w->at] = time;
        out->levels[w->at] = (int8_t)level;
        ds_put(&w->table, &at, w->at++);
        ds_keep(&w->marks, level);
    }
}

/* The same of rows of any level, in chunks. */
static void take(walk *w, const uint32_t *words, int64_t n) {
    const uint32_t least = ds_word(0, (int)w->marks.lowest);
    for (int64_t start = 0; start < n; start += CHUNK) {
        const int64_t stop = n - start < CHUNK ? n : start + CHUNK;
        uint32_t chosen[CHUNK];
        int64_t found = 0;
        for (int64_t k = start; k < stop; k++) {
            chosen[found] = words[k];
            found += words[k] >= least;
        }
        for (int64_t c = 0; c < found; c++)
            __builtin_prefetch(&w->bag->facts[ds_row_of(chosen[c])]);
        keep(w, chosen, found);
    }
}

/* Rows of one time, all that there are: step (3). */
static void take_run(walk *w, const uint32_t *words, int64_t n, int64_t now) {
    ds_pass_marks(&w->marks, now);
    if (w->marks.lowest == w->marks.levels) return;
    const int64_t start = w->at;
    take(w, words, n);
    if (w->marks.complete > w->marks.capacity) {
        ds_raise_marks(&w->marks, now);
        w->cuts[w->cut_count].start = start;
        w->cuts[w->cut_count++].stop = w->at;
    }
}

/* Drop the rows of the cuts that fell below the watermark of their level; how many are left. */
static int64_t drop_cuts(walk *w) {
    const ds_rows *out = w->out;
    int64_t left = w->cut_count ? w->cuts[0].start : w->at;
    for (int c = 0; c < w->cut_count; c++) {
        const int64_t stop = w->cuts[c].stop;
        const int64_t next = c + 1 < w->cut_count ? w->cuts[c + 1].start : w->at;
        const size_t rest = (size_t)(next - stop);
        left = drop_cut(out, w->cuts[c].start, stop, left, w->marks.marks);
        memmove(out->facts + left, out->facts + stop, rest * sizeof *out->facts);
        memmove(out->times + left, out->times + stop, rest * sizeof *out->times);
        memmove(out->levels + left, out->levels + stop, rest * sizeof *out->levels);
        left += (int64_t)rest;
    }
    return left;
}

/* Whether so many rows, none of them earlier than a time, may come in any order. */
static inline int is_plain(const walk *w, int64_t n, int64_t earliest) {
    const ds_marks *m = &w->marks;
    return m->complete + n <= m->capacity && m->marks[m->lowest] < earliest;
}

/* Rows in order of time, latest first: of few of them. */
static void take_few(walk *w, uint32_t *words, int64_t n) {
    const int64_t *times = w->bag->times;
    for (int64_t k = 1; k < n; k++) {
        const uint32_t word = words[k];
        const int64_t time = times[ds_row_of(word)];
        int64_t place = k;
        for (; place > 0 && times[ds_row_of(words[place - 1])] < time; place--)
            words[place] = words[place - 1];
        words[place] = word;
    }
    for (int64_t start = 0, stop; start < n; start = stop) {
        const int64_t now = times[ds_row_of(words[start])];
        for (stop = start + 1; stop < n && times[ds_row_of(words[stop])] == now; stop++) continue;
        take_run(w, words + start, stop - start, now);
    }
}

static inline uint64_t least_of(uint64_t x, uint64_t y) { return x < y ? x : y; }

/* Rows of a bucket, between two times, none of them later than those before: step (1). */
static void visit(
    walk *w, uint32_t *words, uint32_t *room, int64_t n, int64_t newest, int64_t oldest
) {
    const int64_t *times = w->bag->times;
    ds_pass_marks(&w->marks, newest);
    if (w->marks.lowest == w->marks.levels) return;
    const uint32_t least = ds_word(0, (int)w->marks.lowest);
    int64_t found = 0;
    for (int64_t k = 0; k < n; k++) {
        words[found] = words[k];
        found += words[k] >= least;
    }
    n = found;
    if (n == 0) return;
    if (is_plain(w, n, oldest)) {
        take(w, words, n);
        return;
    }
    if (n <= FEW) {
        take_few(w, words, n);
        return;
    }
    newest = oldest = times[ds_row_of(words[0])];
    for (int64_t k = 1; k < n; k++) {
        const int64_t time = times[ds_row_of(words[k])];
        newest = time > newest ? time : newest;
        oldest = time < oldest ? time : oldest;
    }
    if (newest == oldest) {
        take_run(w, words, n, newest);
        return;
    }
    const uint64_t latest = (uint64_t)newest, span = latest - (uint64_t)oldest;
    const int bits = ds_bit_length(span), shift = bits > PART_BITS ? bits - PART_BITS : 0;
    uint32_t ends[1 << PART_BITS] = {0};
    for (int64_t k = 0; k < n; k++) ends[(latest - (uint64_t)times[ds_row_of(words[k])]) >> shift]++;
    ds_positions(ends, 1 << PART_BITS);
    for (int64_t k = 0; k < n; k++)
        room[ends[(latest - (uint64_t)times[ds_row_of(words[k])]) >> shift]++] = words[k];
    int64_t start = 0;
    for (uint64_t part = 0; start < n && w->marks.lowest < w->marks.levels; part++) {
        const int64_t stop = ends[part];
        const uint64_t first = part << shift, last = least_of(((part + 1) << shift) - 1, span);
        if (stop > start)
            visit(
                w, room + start, words + start, stop - start, (int64_t)(latest - first),
                (int64_t)(latest - last)
            );
        start = stop;
    }
}

/* Put rows into buckets of time, latest first, as words of a row and its level; ends[g] is where
   bucket g ends. Two halves of the rows are counted and scattered in turn: neighbours mostly fall
   into the same bucket, and each would wait for the one before it. */
static void fill_buckets(
    const ds_rows *bag, int64_t n, uint64_t latest, int shift, int64_t buckets, uint32_t *ends,
    uint32_t *words
) {
    uint32_t first[1 << MOST_BUCKETS_BITS];
    const int64_t half = n / 2;
    const int64_t *times = bag->times, *later = bag->times + half;
    memset(first, 0, (size_t)buckets * sizeof *first);
    memset(ends, 0, (size_t)buckets * sizeof *ends);
    for (int64_t k = 0; k < half; k++) {
        first[(latest - (uint64_t)times[k]) >> shift]++;
        ends[(latest - (uint64_t)later[k]) >> shift]++;
    }
    if (n & 1) ends[(latest - (uint64_t)times[n - 1]) >> shift]++;
    uint32_t position = 0;
    for (int64_t g = 0; g < buckets; g++) {
        const uint32_t here = first[g], there = ends[g];
        first[g] = position;
        ends[g] = position + here;
        position += here + there;
    }
    for (int64_t k = 0; k < half; k++) {
        const int64_t j = half + k;
        words[first[(latest - (uint64_t)times[k]) >> shift]++] = ds_word(k, bag->levels[k]);
        words[ends[(latest - (uint64_t)times[j]) >> shift]++] = ds_word(j, bag->levels[j]);
    }
    if (n & 1)
        words[ends[(latest - (uint64_t)times[n - 1]) >> shift]++] =
            ds_word(n - 1, bag->levels[n - 1]);
}

static int64_t compact(
    const ds_rows *bag, int64_t n, int64_t capacity, int64_t levels, int64_t *marks, uint64_t salt,
    ds_scratch *scratch, int64_t expected
) {
    int64_t oldest, newest;
    ds_span(bag->times, n, &oldest, &newest);
    const uint64_t latest = (uint64_t)newest, span = latest - (uint64_t)oldest;
    int bucket_bits = ds_bit_length((uint64_t)n >> 3);
    bucket_bits = bucket_bits < 4 ? 4 : bucket_bits;
    bucket_bits = bucket_bits > MOST_BUCKETS_BITS ? MOST_BUCKETS_BITS : bucket_bits;
    const int span_bits = ds_bit_length(span);
    const int shift = span_bits > bucket_bits ? span_bits - bucket_bits : 0;
    const int64_t buckets = (int64_t)(span >> shift) + 1;
    uint32_t ends[1 << MOST_BUCKETS_BITS];
    uint32_t *words = scratch->words[0];
    fill_buckets(bag, n, latest, shift, buckets, ends, words);

    const int most_bits = ds_slot_bits(n), some_bits = ds_slot_bits(expected * 4 / 5);
    const int table_bits = some_bits < most_bits ? some_bits : most_bits;
    walk w = {
        .bag = bag,
        .out = &scratch->out,
        .marks = ds_first_marks(marks, levels, capacity),
        .table = ds_open_table(scratch->slots, table_bits, n),
        .replaced = &scratch->replaced,
        .payloads = scratch->payloads,
        .salt = salt,
        .most = n,
    };
    int64_t start = 0;
    for (int64_t g = 0; g < buckets;) {
        const int64_t later = (int64_t)(latest - ((uint64_t)g << shift));
        ds_pass_marks(&w.marks, later);
        if (w.marks.lowest == levels) break;
        int64_t stop = start, earliest = later;
        for (; g < buckets; g++) { /* as many buckets as hold no cut are one run */
            earliest = (int64_t)(latest - least_of(((uint64_t)(g + 1) << shift) - 1, span));
            if (ends[g] > stop && !is_plain(&w, ends[g] - start, earliest)) break;
            stop = ends[g];
        }
        if (stop == start && g < buckets) {
            stop = ends[g++];
            visit(&w, words + start, scratch->words[1] + start, stop - start, later, earliest);
        } else {
            take(&w, words + start, stop - start);
        }
        start = stop;
    }
    return drop_cuts(&w);
}

/* ------------------------------------------------------------------------------- canonical order */

/* Whether a row comes before another one. */
static inline int is_before(const ds_rows *rows, int64_t row, int64_t other) {
    if (rows->times[row] != rows->times[other]) return rows->times[row] > rows->times[other];
    return rows->facts[row].identity > rows->facts[other].identity;
}

/* Part entries by the leading bits in which their keys differ, into at most 2^most parts; ends[g] is
   where part g ends. 0 where all keys are equal. */
static inline int64_t part_entries(
    ds_entry *entries, ds_entry *room, int64_t n, int most, uint32_t *ends
) {
    uint64_t least = entries[0].key, largest = least;
    for (int64_t k = 1; k < n; k++) {
        least = entries[k].key < least ? entries[k].key : least;
        largest = entries[k].key > largest ? entries[k].key : largest;
    }
    if (least == largest) return 0;
    const int bits = ds_bit_length(largest - least), wanted = ds_bit_length((uint64_t)n >> 1);
    const int part_bits = wanted < most ? wanted : most;
    const int shift = bits > part_bits ? bits - part_bits : 0;
    const int64_t parts = (int64_t)((largest - least) >> shift) + 1;
    memset(ends, 0, (size_t)parts * sizeof *ends);
    for (int64_t k = 0; k < n; k++) ends[(entries[k].key - least) >> shift]++;
    ds_positions(ends, parts);
    for (int64_t k = 0; k < n; k++) room[ends[(entries[k].key - least) >> shift]++] = entries[k];
    memcpy(entries, room, (size_t)n * sizeof *entries);
    return parts;
}

/* Sort entries by their keys, rising: parted until there are few. A part is narrower by three bits or
   more each time, so that O(n) is true of any keys. */
static void sort_entries(ds_entry *entries, ds_entry *room, int64_t n) {
    if (n <= FEW) {
        for (int64_t k = 1; k < n; k++) {
            const ds_entry entry = entries[k];
            int64_t place = k;
            for (; place > 0 && entries[place - 1].key > entry.key; place--)
                entries[place] = entries[place - 1];
            entries[place] = entry;
        }
        return;
    }
    uint32_t ends[1 << PART_BITS];
    const int64_t parts = part_entries(entries, room, n, PART_BITS, ends);
    for (int64_t part = 0, start = 0; part < parts; start = ends[part++])
        sort_entries(entries + start, room, ends[part] - start);
}

/* Entries of the rows first..stop - 1 in canonical order: by time, then runs of one time by identity. */
static const ds_entry *canonical_order(
    const ds_rows *rows, int64_t first, int64_t stop, const ds_scratch *scratch
) {
    ds_entry *entries = scratch->entries[0], *room = scratch->entries[1];
    const int64_t n = stop - first;
    for (int64_t k = 0; k < n; k++) {
        entries[k].key = (uint64_t)INT64_MAX - (uint64_t)rows->times[first + k];
        entries[k].row = first + k;
    }
    uint32_t ends[1 << MOST_BUCKETS_BITS];
    if (n > FEW) {
        const int64_t parts = part_entries(entries, room, n, MOST_BUCKETS_BITS, ends);
        for (int64_t part = 0, start = 0; part < parts; start = ends[part++])
            sort_entries(entries + start, room, ends[part] - start);
    } else {
        sort_entries(entries, room, n);
    }
    for (int64_t start = 0, end; start < n; start = end) {
        const uint64_t key = entries[start].key;
        for (end = start + 1; end < n && entries[end].key == key; end++) continue;
        if (end == start + 1) continue;
        for (int64_t k = start; k < end; k++)
            entries[k].key = ~rows->facts[entries[k].row].identity;
        sort_entries(entries + start, room, end - start);
    }
    return entries;
}

static void sort(const ds_rows *rows, int64_t n, const ds_scratch *scratch) {
    const ds_entry *order = canonical_order(rows, 0, n, scratch);
    for (int64_t k = 0; k < n; k++) copy_row(&scratch->out, k, rows, order[k].row);
}

#define GONE UINT32_MAX /* of a newcomer that has a later copy in the state */

static int64_t merge_newcomers(
    const ds_rows *bag, int64_t kept, int64_t n, int64_t capacity, int64_t levels, int64_t *marks_,
    uint64_t salt, ds_scratch *scratch
) {
    const ds_rows *out = &scratch->out;
    const ds_entry *entries = canonical_order(bag, kept, n, scratch);
    uint32_t *order = scratch->words[0];
    for (int64_t k = 0; k < n - kept; k++) order[k] = (uint32_t)entries[k].row;
    const int bits = ds_table_bits(2 * (n - kept) + 64);
    ds_table table = ds_open_table(scratch->slots, bits, n);
    /* A bit for each hash that is there: it is rarely set for a row that has no copy. */
    const int bit_shift = table.shift - DS_FILTER_BITS;
    uint64_t *present = scratch->present;
    memset(present, 0, sizeof *present << (bits + DS_FILTER_BITS - 6));
    int64_t size = 0; /* newcomers without copies among themselves */
    for (int64_t k = 0; k < n - kept; k++) {
        const uint32_t row = order[k];
        const uint64_t identity = bag->facts[row].identity, hash = identity * salt;
        present[hash >> bit_shift >> 6] |= 1ULL << (hash >> bit_shift & 63);
        ds_probe at = ds_first_probe(&table, hash);
        int64_t copy;
        while ((copy = ds_next(&table, &at)) >= 0)
            if (bag->facts[order[copy]].identity == identity) break;
        if (copy < 0) {
            order[size] = row;
            ds_put(&table, &at, size++);
        } else {
            ds_fact *fact = &bag->facts[order[copy]];
            const int64_t value = bag->facts[row].value;
            ds_count_replaced(
                &scratch->replaced, bag->times[row], value, bag->times[order[copy]],
                as_value(scratch->payloads, value, fact->value)
            );
            if (bag->times[order[copy]] == bag->times[row] &&
                is_larger(scratch->payloads, value, fact->value))
                fact->value = value;
        }
    }

    ds_marks marks = ds_first_marks(marks_, levels, capacity);
    int64_t at = 0, run = 0; /* rows written, and those before the current time */
    int64_t i = 0, j = 0, now = kept ? bag->times[0] : 0;
    while (marks.lowest < levels && (i < kept || j < size)) {
        int64_t row = i;
        int64_t value;
        if (j < size && order[j] == GONE) {
            j++;
            continue;
        }
        if (j == size || (i < kept && is_before(bag, i, order[j]))) {
            i++;
            const ds_fact fact = bag->facts[row];
            const uint64_t hash = fact.identity * salt;
            if (present[hash >> bit_shift >> 6] >> (hash >> bit_shift & 63) & 1) {
                ds_probe probe = ds_first_probe(&table, hash);
                int64_t copy;
                while ((copy = ds_next(&table, &probe)) >= 0)
                    if (order[copy] != GONE && bag->facts[order[copy]].identity == fact.identity)
                        break;
                if (copy >= 0)
                    ds_count_replaced(
                        &scratch->replaced, bag->times[row], fact.value, bag->times[order[copy]],
                        as_value(scratch->payloads, fact.value, bag->facts[order[copy]].value)
                    );
                if (copy >= j)
                    order[copy] = GONE;
                else if (copy >= 0)
                    continue; /* a later copy was there */
            }
            value = fact.value;
        } else {
            row = order[j++];
            value = bag->facts[row].value;
            if (i < kept && !is_before(bag, row, i)) { /* they are copies, of one time */
                const int64_t other = bag->facts[i++].value;
                value = is_larger(scratch->payloads, value, other) ? value : other;
            }
        }
        const int64_t time = bag->times[row];
        if (time != now) { /* a run of equal times ended */
            if (marks.complete > capacity) {
                ds_raise_marks(&marks, now);
                at = drop_cut(out, run, at, run, marks_);
            }
            now = time;
            run = at;
        }
        ds_pass_marks(&marks, now);
        if (bag->levels[row] < marks.lowest) continue;
        copy_row(out, at, bag, row);
        out->facts[at++].value = value;
        ds_keep(&marks, bag->levels[row]);
    }
    ds_raise_marks(&marks, now);
    return drop_cut(out, run, at, run, marks_);
}

/* ---------------------------------------------------------------------------- to and from columns */

static int64_t append_later(
    const ds_rows *rows, int64_t n, const int64_t *marks, const ds_rows *to, int64_t at
) {
    for (int64_t start = 0; start < n; start += CHUNK) {
        const int64_t stop = n - start < CHUNK ? n : start + CHUNK;
        int64_t later[CHUNK], found = 0;
        for (int64_t k = start; k < stop; k++) {
            later[found] = k;
            found += rows->times[k] > marks[rows->levels[k]];
        }
        for (int64_t f = 0; f < found; f++) copy_row(to, at++, rows, later[f]);
    }
    return at;
}

/* How many of n falling times are later than a watermark. */
static int64_t count_later(const int64_t *times, int64_t n, int64_t mark) {
    int64_t low = 0, high = n;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (times[middle] > mark)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Watermarks fall along the levels and times along the rows: between two watermarks the level alone
   decides. */
static int64_t append_columns(
    const ds_columns *c, int64_t n, int64_t max_weight, const int64_t *marks, int64_t levels,
    const ds_rows *to, int64_t at
) {
    for (int64_t k = 0; k < n; k++)
        if (c->levels[k] < 0 || c->levels[k] >= levels) return -1;
    for (int64_t lowest = 0, start = 0; lowest < levels && start < n; lowest++) {
        const int64_t end = count_later(c->times, n, marks[lowest]);
        while (start < end) {
            const int64_t stop = end - start < CHUNK ? end : start + CHUNK;
            int64_t chosen[CHUNK], found = 0;
            for (int64_t k = start; k < stop; k++) {
                chosen[found] = k;
                found += c->levels[k] >= lowest;
            }
            for (int64_t f = 0; f < found; f++, at++) {
                const int64_t k = chosen[f];
                to->facts[at].value = c->values[k];
                to->facts[at].identity = (uint64_t)(c->ids[k] * max_weight + c->weights[k] - 1);
                to->times[at] = c->times[k];
                to->levels[at] = c->levels[k];
            }
            start = stop;
        }
    }
    return at;
}

/* The quotient of an identity x < 2^58 and w = max_weight <= 2^bits is floor(x m / 2^(58 + bits)) with
   m = floor(2^(58 + bits) / w) + 1: m w exceeds 2^(58 + bits) by w at most, so x m / 2^(58 + bits)
   exceeds x / w by less than 1 / w. */
static void columns(const ds_rows *rows, int64_t n, int64_t max_weight, const ds_columns *to) {
    const int bits = ds_bit_length((uint64_t)max_weight - 1), shift = 58 + bits;
    const uint64_t inverse =
        (uint64_t)(((unsigned __int128)1 << shift) / (uint64_t)max_weight) + 1;
    for (int64_t k = 0; k < n; k++) {
        const uint64_t identity = rows->facts[k].identity;
        const int64_t id = (int64_t)((unsigned __int128)identity * inverse >> shift);
        to->values[k] = rows->facts[k].value;
        to->ids[k] = id;
        to->weights[k] = (int64_t)identity - id * max_weight + 1;
    }
    memcpy(to->times, rows->times, (size_t)n * sizeof *to->times);
    memcpy(to->levels, rows->levels, (size_t)n);
}

static int64_t known_hits(
    const ds_columns *c, int64_t n, const ds_columns *old, int64_t old_n, const int64_t *old_hits,
    int64_t *hits, int64_t *unknown
) {
    int64_t missing = 0, j = 0;
    for (int64_t k = 0; k < n; k++) {
        const int64_t time = c->times[k], id = c->ids[k], weight = c->weights[k];
        while (j < old_n &&
               (old->times[j] > time ||
                (old->times[j] == time &&
                 (old->ids[j] > id || (old->ids[j] == id && old->weights[j] > weight)))))
            j++;
        if (j < old_n && old->times[j] == time && old->ids[j] == id && old->weights[j] == weight &&
            old->levels[j] == c->levels[k])
            hits[k] = old_hits[j];
        else
            unknown[missing++] = k;
    }
    return missing;
}

#ifdef DS_RECORDS
DS_TABLE(ds_rows_kernels, ds_record_rows) = {
#else
DS_TABLE(ds_rows_kernels, ds_rows) = {
#endif
    .check = check,
    .admit = admit,
    .compact = compact,
    .merge_newcomers = merge_newcomers,
    .sort = sort,
    .append_later = append_later,
    .append_columns = append_columns,
    .columns = columns,
    .known_hits = known_hits,
};
