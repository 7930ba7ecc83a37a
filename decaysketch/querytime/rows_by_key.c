/* Many sketches at once: group rows, build key by key.

   A row that is not later than the watermark of its level, in the sketch of its key, may be turned
   away where it comes in: that is most of them, once the sketches are full, if the latest came first.
   The others become records of 32 bytes. They are moved twice, whole: into at most some hundred
   ranges of keys, and inside a range to their key, by counting, beside the records that the key had.
   Then the rows of a key lie together, and its state (state.py) is built with working memory that all
   keys share:

   * without new rows: nothing has changed;
   * at most `capacity` rows and no watermark yet: nothing can be discarded, only copies are dropped;
   * otherwise the kernels of a single sketch do it (rows.c). */
#include "querytime/rows_by_key.h"

#include "querytime/identity.h"
#include "querytime/values.h"

enum {
    KEY_BITS = 32,
    FEW = 12, /* rows that are compared or sorted one by one */
};

#define UNKNOWN (-1)

#ifdef DS_RECORDS
static const ds_rows_kernels *const one = &DS_PASTE(ds_record_rows, DS_LEVEL);
#else
static const ds_rows_kernels *const one = &DS_PASTE(ds_rows, DS_LEVEL);
#endif

static inline int64_t key_of(const ds_record *r) { return (int64_t)(r->tag & 0xFFFFFFFF); }

static inline int8_t level_of(const ds_record *r) { return (int8_t)((r->tag >> KEY_BITS) - 1); }

static inline uint64_t tag_of(int64_t key, int64_t level) {
    return (uint64_t)key | (uint64_t)(level + 1) << KEY_BITS;
}

/* -------------------------------------------------------------------------------------- grouping */

static inline ds_record record_of(
    const ds_common *c, const ds_incoming *in, int64_t row, int64_t level
) {
    return (ds_record){
        .tag = tag_of(in->codes[row], level),
        .value = in->values[row],
        .identity = ds_identity(in->ids[row], in->weights[row], c->max_weight),
        .time = in->times[row],
    };
}

/* Whether a time is later than the watermark of a level of a key, or there is none. */
static inline int is_later(const ds_states *s, int64_t key, int64_t level, int64_t time) {
    if (key >= s->keys) return 1;
    const int64_t mark = s->mark_offsets[key] + level;
    return mark >= s->mark_offsets[key + 1] || time > s->marks[mark];
}

static int64_t take(
    const ds_common *c, const ds_incoming *in, const ds_states *look, ds_record *to
) {
    int64_t at = 0;
    if (look == NULL) {
        for (int64_t k = 0; k < in->n; k++) {
            to[at] = record_of(c, in, k, UNKNOWN);
            at += in->weights[k] > 0;
        }
        return at;
    }
    int8_t level[DS_BLOCK];
    for (int64_t start = 0; start < in->n; start += DS_BLOCK) {
        const int64_t count = in->n - start < DS_BLOCK ? in->n - start : DS_BLOCK;
        for (int64_t k = start; k < start + count; k++)
            if (in->codes[k] < look->keys) __builtin_prefetch(&look->mark_offsets[in->codes[k]]);
        ds_levels(c->hash, in->ids + start, in->weights + start, count, level);
        for (int64_t k = start; k < start + count; k++) {
            const int later = is_later(look, in->codes[k], level[k - start], in->times[k]);
            to[at] = record_of(c, in, k, level[k - start]);
            at += later & (in->weights[k] > 0);
        }
    }
    return at;
}

static void count(const ds_record *records, int64_t n, int shift, int64_t *counts) {
    for (int64_t k = 0; k < n; k++) counts[key_of(&records[k]) >> shift]++;
}

static void scatter(
    const ds_record *records, int64_t n, int shift, int64_t *positions, ds_record *to
) {
    for (int64_t k = 0; k < n; k++) to[positions[key_of(&records[k]) >> shift]++] = records[k];
}

/* ----------------------------------------------------------------------------------- state by key */

static inline void load(const ds_rows *bag, int64_t row, const ds_record *r) {
    bag->facts[row] = (ds_fact){r->value, r->identity};
    bag->times[row] = r->time;
    bag->levels[row] = level_of(r);
}

static inline ds_rows from_row(const ds_rows *bag, int64_t row) {
    return (ds_rows){bag->facts + row, bag->times + row, bag->levels + row, bag->room - row};
}

/* Row `row` is a copy of an earlier one: keep the larger by (time, value) there. */
static inline void keep_larger(
    const ds_rows *bag, int64_t copy, int64_t row, ds_scratch *scratch
) {
    const ds_payloads *payloads = scratch->payloads;
    const int64_t time = bag->times[row], value = bag->facts[row].value;
    const int64_t other = bag->facts[copy].value;
    ds_count_replaced(
        &scratch->replaced, time, value, bag->times[copy], as_value(payloads, value, other)
    );
    if (time > bag->times[copy] ||
        (time == bag->times[copy] && is_larger(payloads, value, other))) {
        bag->facts[copy].value = value;
        bag->times[copy] = time;
    }
}

static inline void move(const ds_rows *bag, int64_t to, int64_t row) {
    bag->facts[to] = bag->facts[row];
    bag->times[to] = bag->times[row];
}

/* Keep one row of each observation, the largest by (time, value), in front; their number. */
static int64_t drop_copies(const ds_rows *bag, int64_t n, uint64_t salt, ds_scratch *scratch) {
    ds_table table = ds_open_table(scratch->slots, ds_table_bits(2 * n), n);
    int64_t out = 0;
    for (int64_t k = 0; k < n; k++) {
        const uint64_t identity = bag->facts[k].identity;
        ds_probe at = ds_first_probe(&table, identity * salt);
        int64_t copy;
        while ((copy = ds_next(&table, &at)) >= 0)
            if (bag->facts[copy].identity == identity) break;
        if (copy >= 0) {
            keep_larger(bag, copy, k, scratch);
        } else {
            move(bag, out, k);
            ds_put(&table, &at, out++);
        }
    }
    return out;
}

/* The same of few rows, of which the first `kept` are no copies of one another. */
static int64_t drop_few_copies(
    const ds_rows *bag, int64_t kept, int64_t n, ds_scratch *scratch
) {
    for (int64_t k = kept; k < n; k++) {
        int64_t copy = 0;
        while (copy < kept && bag->facts[copy].identity != bag->facts[k].identity) copy++;
        if (copy < kept)
            keep_larger(bag, copy, k, scratch);
        else
            move(bag, kept++, k);
    }
    return kept;
}

/* The levels of rows, where that of one is not known. */
static void find_levels(
    const ds_common *c, const ds_parting *parting, const ds_rows *bag, int64_t n
) {
    int8_t least = 0;
    for (int64_t k = 0; k < n; k++) least = bag->levels[k] < least ? bag->levels[k] : least;
    if (least != UNKNOWN) return;
    int64_t ids[DS_BLOCK], weights[DS_BLOCK];
    for (int64_t start = 0; start < n; start += DS_BLOCK) {
        const int64_t count = n - start < DS_BLOCK ? n - start : DS_BLOCK;
        for (int64_t k = 0; k < count; k++)
            ds_part(parting, bag->facts[start + k].identity, &ids[k], &weights[k]);
        ds_levels(c->hash, ids, weights, count, bag->levels + start);
    }
}

/* The state of one key, of n rows, the first `kept` of which it had; appended to the states after. */
static void build_key(
    const ds_common *c, const ds_parting *parting, const ds_states *before, int64_t key,
    const ds_rows *bag, int64_t kept, int64_t n, ds_states *after, ds_scratch *scratch
) {
    const int64_t first_mark = before->mark_offsets[key];
    const int64_t marks_before = before->mark_offsets[key + 1] - first_mark;
    const ds_rows *from = bag;
    int64_t mark_at = after->mark_offsets[key], at = after->offsets[key];
    if (n <= c->capacity && marks_before == 0) {
        n = n <= FEW ? drop_few_copies(bag, kept, n, scratch)
                     : drop_copies(bag, n, c->salt, scratch);
        memset(bag->levels, UNKNOWN, (size_t)n);
    } else {
        int64_t marks[DS_MOST_LEVELS];
        for (int64_t level = 0; level < c->levels; level++)
            marks[level] = level < marks_before ? before->marks[first_mark + level] : INT64_MIN;
        find_levels(c, parting, bag, n);
        n = one->compact(
            bag, n, c->capacity, c->levels, marks, c->salt, scratch, kept ? kept : n / 2
        );
        from = &scratch->out;
        for (int64_t level = 0; level < c->levels && marks[level] != INT64_MIN; level++)
            after->marks[mark_at++] = marks[level];
    }
    for (int64_t r = 0; r < n; r++)
        after->records[at++] = (ds_record){
            tag_of(key, from->levels[r]), from->facts[r].value, from->facts[r].identity,
            from->times[r],
        };
    after->offsets[key + 1] = at;
    after->mark_offsets[key + 1] = mark_at;
}

/* The state of a key that no row came to. */
static void copy_key(const ds_states *before, int64_t key, ds_states *after) {
    const int64_t first = before->offsets[key], n = before->offsets[key + 1] - first;
    const int64_t mark = before->mark_offsets[key], marks = before->mark_offsets[key + 1] - mark;
    memcpy(after->records + after->offsets[key], before->records + first, (size_t)n * sizeof(ds_record));
    memcpy(
        after->marks + after->mark_offsets[key], before->marks + mark, (size_t)marks * sizeof(int64_t)
    );
    after->offsets[key + 1] = after->offsets[key] + n;
    after->mark_offsets[key + 1] = after->mark_offsets[key] + marks;
}

static void build(
    const ds_common *c, const ds_states *before, const ds_record *records,
    const int64_t *partitions, int shift, ds_states *after, ds_by_key_room *room
) {
    const ds_parting parting = ds_parting_of(c->max_weight);
    const int64_t width = 1LL << shift;
    int64_t *starts = room->starts, *next = room->next;
    after->offsets[0] = 0;
    after->mark_offsets[0] = 0;
    for (int64_t first = 0, z = 0; first < before->keys; first += width, z++) {
        const int64_t keys = before->keys - first < width ? before->keys - first : width;
        const int64_t *had = before->offsets + first;
        memset(next, 0, (size_t)keys * sizeof *next);
        for (int64_t r = partitions[z]; r < partitions[z + 1]; r++)
            next[key_of(&records[r]) - first]++;
        starts[0] = 0;
        for (int64_t k = 0; k < keys; k++) { /* rows that it had, then those that came */
            const int64_t kept = next[k] ? had[k + 1] - had[k] : 0;
            starts[k + 1] = starts[k] + kept + next[k];
            next[k] = starts[k] + kept;
        }
        for (int64_t r = partitions[z]; r < partitions[z + 1]; r++)
            load(&room->bag, next[key_of(&records[r]) - first]++, &records[r]);
        for (int64_t k = 0; k < keys; k++) {
            const int64_t n = starts[k + 1] - starts[k];
            if (n == 0) {
                copy_key(before, first + k, after);
                continue;
            }
            const ds_rows bag = from_row(&room->bag, starts[k]);
            const int64_t kept = had[k + 1] - had[k];
            for (int64_t r = 0; r < kept; r++) load(&bag, r, &before->records[had[k] + r]);
            const int64_t replaced = room->scratch.replaced.rows;
            build_key(c, &parting, before, first + k, &bag, kept, n, after, &room->scratch);
            room->replaced[first + k] += room->scratch.replaced.rows - replaced;
        }
    }
}

/* ------------------------------------------------------------------------------- canonical columns */

/* Whether a row comes before another one. */
static inline int is_before(const ds_record *r, const ds_record *other) {
    return r->time > other->time || (r->time == other->time && r->identity > other->identity);
}

/* Sort a few records, in their place. */
static void sort_few(ds_record *records, int64_t n) {
    for (int64_t k = 1; k < n; k++) {
        const ds_record record = records[k];
        int64_t place = k;
        for (; place > 0 && is_before(&record, &records[place - 1]); place--)
            records[place] = records[place - 1];
        records[place] = record;
    }
}

static void write(
    const ds_common *c, const ds_states *s, ds_by_key_room *room, int64_t *times, int64_t *ids,
    int64_t *weights, int64_t *values
) {
    const ds_parting parting = ds_parting_of(c->max_weight);
    const ds_rows *sorted = &room->scratch.out;
    for (int64_t key = 0; key < s->keys; key++) {
        const int64_t start = s->offsets[key], n = s->offsets[key + 1] - start;
        const ds_record *records = s->records + start;
        if (n <= FEW) {
            ds_record few[FEW];
            memcpy(few, records, (size_t)n * sizeof *few);
            sort_few(few, n);
            for (int64_t r = 0; r < n; r++) load(sorted, r, &few[r]);
        } else {
            for (int64_t r = 0; r < n; r++) load(&room->bag, r, &records[r]);
            one->sort(&room->bag, n, &room->scratch);
        }
        for (int64_t r = 0; r < n; r++) {
            times[start + r] = sorted->times[r];
            values[start + r] = sorted->facts[r].value;
            ds_part(&parting, sorted->facts[r].identity, &ids[start + r], &weights[start + r]);
        }
    }
}

#ifdef DS_RECORDS
DS_TABLE(ds_by_key_kernels, ds_record_by_key) = {
#else
DS_TABLE(ds_by_key_kernels, ds_by_key) = {
#endif
    .take = take,
    .count = count,
    .scatter = scatter,
    .build = build,
    .write = write,
};
