/* Verdicts: copies of a batch, what a state holds of them, what it will hold.

   An identity is a pair of int64: (id, weight) of an observation, (key, value) of an element.

   (1) The identities of a batch are numbered, and the latest copy of each is found, the maximum by
       (time, value); of equal copies the first.
   (2) The rows of a state are looked up among these identities. The table holds the batch and not
       the state, because a state has many rows where a batch often has one; a bit for each hash that
       is there lets nearly all of them pass without a look at the table.
   (3) The watermarks of the merged state are found by walking the rows of the state and the batch's
       new copies together, latest first, as compaction does (marks.h). No table is needed: it is
       known which rows of the state a later copy replaces.

   The table is keyed by two random odd multipliers of this process: it is fed from the network. */
#include "core/row_status.h"

#include "core/marks.h"

enum { RETAINED, ALREADY_RETAINED, BELOW_WATERMARK };

enum { CHUNK = 256 }; /* rows that are looked at together */

static inline int64_t first_of(const ds_copies *c, int64_t row) {
    return c->first[row * c->first_step];
}

static inline int64_t second_of(const ds_copies *c, int64_t row) {
    return c->second[row * c->second_step];
}

static inline int64_t value_of(const ds_copies *c, int64_t row) {
    return c->values[row * c->value_step];
}

/* Whether a copy is later than another one. */
static inline int is_later(const ds_copies *c, int64_t row, const ds_copies *other, int64_t there) {
    const int64_t time = c->times[row], other_time = other->times[there];
    return (time > other_time) |
           ((time == other_time) & (value_of(c, row) > value_of(other, there)));
}

static inline uint64_t hash_of(const ds_offered *o, const ds_copies *c, int64_t row) {
    return (uint64_t)first_of(c, row) * o->salts[0] + (uint64_t)second_of(c, row) * o->salts[1];
}

static inline uint64_t bit_of(const ds_offered *o, uint64_t hash) {
    return hash >> (64 - DS_PRESENT_BITS - o->bits);
}

/* The number of the identity of a row, or -1; it is where the probe ended. */
static inline int64_t identity_of(
    const ds_offered *o, const ds_table *table, ds_probe *at, const ds_copies *c, int64_t row
) {
    int64_t number;
    while ((number = ds_next(table, at)) >= 0) {
        const int64_t same = o->latest[number];
        if (first_of(&o->rows, same) == first_of(c, row) &&
            second_of(&o->rows, same) == second_of(c, row))
            break;
    }
    return number;
}

static void group(ds_offered *o) {
    const ds_copies *rows = &o->rows;
    ds_table table = ds_open_table(o->slots, o->bits, rows->n);
    memset(o->present, 0, sizeof *o->present << (o->bits + DS_PRESENT_BITS - 6));
    o->groups = 0;
    for (int64_t k = 0; k < rows->n; k++) {
        const uint64_t hash = hash_of(o, rows, k), bit = bit_of(o, hash);
        ds_probe at = ds_first_probe(&table, hash);
        int64_t found = identity_of(o, &table, &at, rows, k);
        if (found < 0) {
            found = o->groups++;
            o->latest[found] = (int32_t)k;
            ds_put(&table, &at, found);
            o->present[bit >> 6] |= 1ULL << (bit & 63);
        } else if (is_later(rows, k, rows, o->latest[found])) {
            o->latest[found] = (int32_t)k;
        }
        o->group[k] = (int32_t)found;
    }
    o->table = table;
}

static void find(const ds_offered *o, const ds_copies *state, int32_t *held) {
    for (int64_t g = 0; g < o->groups; g++) held[g] = -1;
    for (int64_t start = 0; start < state->n; start += CHUNK) {
        const int64_t stop = state->n - start < CHUNK ? state->n : start + CHUNK;
        int64_t rows[CHUNK];
        uint64_t hashes[CHUNK];
        int64_t found = 0;
        for (int64_t k = start; k < stop; k++) {
            const uint64_t hash = hash_of(o, state, k), bit = bit_of(o, hash);
            rows[found] = k;
            hashes[found] = hash;
            found += o->present[bit >> 6] >> (bit & 63) & 1;
        }
        for (int64_t c = 0; c < found; c++) {
            ds_probe at = ds_first_probe(&o->table, hashes[c]);
            const int64_t number = identity_of(o, &o->table, &at, state, rows[c]);
            if (number >= 0) held[number] = (int32_t)rows[c];
        }
    }
}

/* Whether the latest copy of an identity is later than what is held of it. */
static inline int replaces(
    const ds_offered *o, int64_t row, const ds_copies *state, int64_t there
) {
    return there < 0 || is_later(&o->rows, row, state, there);
}

/* Collect the latest copies that are later than what is held and than their watermark, and mark the
   rows of the state that they take the place of. Returns their number. */
static int64_t find_new(
    const ds_offered *o, const int8_t *levels, const ds_copies *state, const int64_t *marks,
    ds_judging *j
) {
    int64_t count = 0;
    memset(j->replaced, 0, (size_t)state->n);
    for (int64_t g = 0; g < o->groups; g++) {
        const int64_t row = o->latest[g], there = j->held[g];
        if (o->rows.times[row] <= marks[levels[row]] || !replaces(o, row, state, there)) continue;
        if (there >= 0) j->replaced[there] = 1;
        j->times[count] = o->rows.times[row];
        j->levels[count++] = levels[row];
    }
    return count;
}

/* Raise watermarks to those of the merged state, as far as new copies can tell, at least one. The
   walk ends below the oldest of them: what a watermark may rise to there is earlier than all. */
static void raise_marks(
    const ds_copies *state, const int8_t *state_levels, ds_judging *j, int64_t count,
    ds_marks *marks
) {
    int64_t newest;
    const int which = ds_sort_by_time(j->times, j->levels, count, &j->sorting, &newest);
    const uint64_t *keys = j->sorting.keys[which];
    const uint32_t *words = j->sorting.words[which];
    const int64_t oldest = (int64_t)((uint64_t)newest - keys[count - 1]);
    int64_t old = 0, new = 0, now = 0;
    int started = 0;
    while (marks->lowest < marks->levels) {
        while (old < state->n && j->replaced[old]) old++;
        if (new == count && (old == state->n || state->times[old] < oldest)) break;
        int64_t time = new < count ? (int64_t)((uint64_t)newest - keys[new]) : INT64_MIN;
        int level;
        if (new == count || (old < state->n && state->times[old] >= time)) {
            time = state->times[old];
            level = state_levels[old++];
        } else {
            level = ds_level_of_word(words[new++]);
        }
        if (started && time != now) ds_raise_marks(marks, now);
        started = 1;
        now = time;
        ds_pass_marks(marks, now);
        if (level >= marks->lowest) ds_keep(marks, level);
    }
    ds_raise_marks(marks, now);
}

static inline int8_t verdict(int is_new, int is_latest, int has) {
    return is_new & is_latest ? RETAINED : has ? ALREADY_RETAINED : BELOW_WATERMARK;
}

static void judge_by_marks(
    const ds_offered *o, const int8_t *levels, const ds_copies *state, const int8_t *state_levels,
    int64_t *marks, int64_t mark_count, int64_t capacity, ds_judging *j, int8_t *verdicts
) {
    find(o, state, j->held);
    const int64_t count = find_new(o, levels, state, marks, j);
    if (count) {
        ds_marks raised = ds_first_marks(marks, mark_count, capacity);
        raise_marks(state, state_levels, j, count, &raised);
    }
    for (int64_t k = 0; k < o->rows.n; k++) {
        const int64_t row = o->latest[o->group[k]], there = j->held[o->group[k]];
        const int is_new = (o->rows.times[row] > marks[levels[row]]) & replaces(o, row, state, there);
        const int has = is_new || (there >= 0 && !is_later(&o->rows, k, state, there));
        verdicts[k] = verdict(is_new, row == k, has);
    }
}

static void judge_by_states(
    const ds_offered *o, const ds_copies *before, const ds_copies *after, const int32_t *held,
    const int32_t *holds, int8_t *verdicts
) {
    const ds_copies *rows = &o->rows;
    for (int64_t k = 0; k < rows->n; k++) {
        const int64_t g = o->group[k], row = o->latest[g], old = held[g], new = holds[g];
        int is_new = 0, has = 0;
        if (new >= 0) {
            is_new = (after->times[new] == rows->times[row]) &
                     (value_of(after, new) == value_of(rows, row));
            has = !is_later(rows, k, after, new);
        }
        if (old >= 0) {
            is_new &= is_later(rows, row, before, old);
            has |= !is_later(rows, k, before, old);
        }
        verdicts[k] = verdict(is_new, row == k, has);
    }
}

DS_TABLE(ds_verdict_kernels, ds_verdict) = {
    .group = group,
    .find = find,
    .judge_by_marks = judge_by_marks,
    .judge_by_states = judge_by_states,
};
