/* Calls of what all families share: hashes of keys, distinct numbers, verdicts. */
#include "core/distinct.h"
#include "core/keys.h"
#include "core/row_status.h"
#include "driver.h"

static const ds_keys_kernels *hashing = &TABLE(ds_keys, DS_LEVEL);
static const ds_distinct_kernels *numbering = &TABLE(ds_distinct, DS_LEVEL);
static const ds_verdict_kernels *judging = &TABLE(ds_verdict, DS_LEVEL);

/* ---------------------------------------------------------------------------------- hashes of keys */

/* Inputs: (word), keys. */
static void hash_integers(call *c) {
    const int64_t n = c->in[1].count;
    uint64_t *hashes = room(n, 8);
    hashing->hash_integers(
        (uint64_t *)c->in[1].numbers, (uint64_t)c->in[0].numbers[0], n, hashes
    );
    give(c, hashes, n);
}

/* Inputs: (word), offsets, bytes. Results: hashes, and the same one by one. */
static void hash_encoded(call *c) {
    const int64_t n = c->in[1].count - 1, *offsets = c->in[1].numbers;
    const uint64_t word = (uint64_t)c->in[0].numbers[0];
    const uint8_t *data = narrow(&c->in[2], 1);
    uint64_t *hashes = room(n, 8);
    hashing->hash_encoded(data, offsets, word, n, hashes);
    give(c, hashes, n);
    for (int64_t k = 0; k < n; k++)
        hashes[k] = hashing->hash_bytes(data + offsets[k], offsets[k + 1] - offsets[k], word);
    give(c, hashes, n);
}

/* Inputs: rows, hashes. */
static void absorb(call *c) {
    uint64_t *rows = (uint64_t *)copy_of(&c->in[0]);
    hashing->absorb(rows, (uint64_t *)c->in[1].numbers, c->in[0].count);
    give(c, rows, c->in[0].count);
}

/* -------------------------------------------------------------------------------- distinct numbers */

static void give_numbers(call *c, ds_distinct *d, const column *keys) {
    int32_t *codes = room(keys->count, 4);
    const int64_t next = numbering->number_keys(d, keys->numbers, 0, keys->count, codes);
    give_narrow(c, codes, next, 4);
    give(c, d->distinct, d->count);
}

/* Inputs: keys, (bits, room, number left out). They are numbered while there is room, and again in
   a table four times as large, into which all but one were put. */
static void number_keys(call *c) {
    const int64_t *of = c->in[1].numbers, size = 4 * of[1];
    const int bits = (int)of[0];
    ds_distinct d = {room(1LL << bits, sizeof(ds_slot)), bits, SALT, room(size, 8), 0, of[1]};
    give_numbers(c, &d, &c->in[0]);
    ds_distinct larger = {
        room(4LL << bits, sizeof(ds_slot)), bits + 2, SALT, d.distinct, d.count, size
    };
    numbering->fill_table(&larger, of[2]);
    give_numbers(c, &larger, &c->in[0]);
}

/* ---------------------------------------------------------------------------------------- verdicts */

static ds_copies copies_of(const column *from) {
    return (ds_copies){
        from[0].numbers, from[1].numbers, from[2].numbers, from[3].numbers, from[0].count, 1, 1, 1
    };
}

static ds_offered grouped(const column *from) {
    ds_offered o = {.rows = copies_of(from), .salts = {SALT, ~SALT | 1}, .bits = 4};
    while (1LL << o.bits <= 2 * o.rows.n) o.bits++;
    o.slots = room(1LL << o.bits, sizeof *o.slots);
    o.present = room((1LL << o.bits) / (64 >> DS_PRESENT_BITS), sizeof *o.present);
    o.group = room(o.rows.n, sizeof *o.group);
    o.latest = room(o.rows.n, sizeof *o.latest);
    judging->group(&o);
    return o;
}

/* Inputs: four columns of a batch, of a state, levels of either, marks, (capacity). */
static void judge_by_marks(call *c) {
    const ds_offered o = grouped(c->in);
    const ds_copies state = copies_of(c->in + 4);
    const int64_t groups = o.groups, levels = c->in[10].count;
    ds_judging j = {
        .held = room(groups, 4),
        .times = room(groups, 8),
        .levels = room(groups, 1),
        .sorting = {{room(groups, 8), room(groups, 8)}, {room(groups, 4), room(groups, 4)}},
        .replaced = room(state.n, 1),
    };
    int64_t *marks = copy_of(&c->in[10]);
    int8_t *verdicts = room(o.rows.n, 1);
    judging->judge_by_marks(
        &o, narrow(&c->in[8], 1), &state, narrow(&c->in[9], 1), marks, levels,
        c->in[11].numbers[0], &j, verdicts
    );
    give_narrow(c, verdicts, o.rows.n, 1);
    give(c, marks, levels);
}

/* Inputs: four columns of a batch, of a state before, of one after. */
static void judge_by_states(call *c) {
    const ds_offered o = grouped(c->in);
    const ds_copies before = copies_of(c->in + 4), after = copies_of(c->in + 8);
    int32_t *held = room(o.groups, 4), *holds = room(o.groups, 4);
    int8_t *verdicts = room(o.rows.n, 1);
    judging->find(&o, &before, held);
    judging->find(&o, &after, holds);
    judging->judge_by_states(&o, &before, &after, held, holds, verdicts);
    give_narrow(c, verdicts, o.rows.n, 1);
}

const adapter core_adapters[] = {
    {"core.hash_integers", hash_integers},
    {"core.hash_encoded", hash_encoded},
    {"core.absorb", absorb},
    {"core.number_keys", number_keys},
    {"core.judge_by_marks", judge_by_marks},
    {"core.judge_by_states", judge_by_states},
    {0},
};
