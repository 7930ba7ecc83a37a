/* Calls of the wire: many sketches written into one buffer, and read from one. */
#include "querytime/wire.h"

#include "hash_of.h"
#include "packed.h"

static const ds_wire_kernels *kernels = &TABLE(ds_wire, DS_LEVEL);

enum { SKETCH_COLUMNS = 7 };

/* Offsets, offsets of marks, marks, four columns. */
static ds_sketches sketches_of(const column *from) {
    return (ds_sketches){
        from[0].count - 1, from[0].numbers, packed_of(from + 3), from[1].numbers, from[2].numbers
    };
}

/* Inputs: sketches, (floats), bytes in front of each. */
static void encode(call *c) {
    const ds_sketches sketches = sketches_of(c->in);
    const column *prefix = &c->in[SKETCH_COLUMNS + 1];
    uint8_t *out = room(ds_room(&sketches, prefix->count), 1);
    int64_t *offsets = room(sketches.count + 1, 8);
    kernels->encode(
        &sketches, (int)c->in[SKETCH_COLUMNS].numbers[0], narrow(prefix, 1), prefix->count, out,
        offsets
    );
    for (int64_t k = 1; k <= sketches.count; k++)
        memset(out + offsets[k] - DS_CHECKSUM_BYTES, 0, DS_CHECKSUM_BYTES);
    give(c, offsets, sketches.count + 1);
    give_narrow(c, out, offsets[sketches.count], 1);
}

/* Inputs: sketches, (levels). */
static void digest_inputs(call *c) {
    const ds_sketches sketches = sketches_of(c->in);
    const int64_t levels = c->in[SKETCH_COLUMNS].numbers[0];
    const int64_t rows = sketches.offsets[sketches.count] - sketches.offsets[0];
    const int64_t size = sketches.count * (1 + levels) + 4 * rows;
    int64_t *out = room(size, 8);
    kernels->digest_inputs(&sketches, levels, out);
    give(c, out, size);
}

/* Inputs: keys, offsets of marks, marks, (levels), joined before. */
static void join_marks(call *c) {
    int64_t *joined = copy_of(&c->in[4]);
    kernels->join_marks(
        narrow(&c->in[0], 4), c->in[0].count, c->in[1].numbers, c->in[2].numbers,
        c->in[3].numbers[0], joined
    );
    give(c, joined, c->in[4].count);
}

/* Inputs: hash, (largest weight, capacity, floats, whether watermarks are to be believable), bytes in
   front of each sketch, offsets, bytes. Results: heads, all rows, and the rows and levels of each
   sketch by itself. */
static void read(call *c) {
    const ds_hash h = hash_of(&c->in[0]);
    const int64_t *of = c->in[1].numbers, *offsets = c->in[3].numbers, count = c->in[3].count - 1;
    const ds_stream stream = {
        .limits = {1LL << h.id_bits, of[0], (int)of[2], SALT},
        .capacity = of[1],
        .plausible = (int)of[3],
    };
    const uint8_t *data = narrow(&c->in[4], 1);
    const ds_heads heads = {
        room(count, 8), room(count, 8), room(count, 8), room(count + 1, 8), room(c->in[4].count, 8)
    };
    kernels->read_heads(
        data, offsets, count, narrow(&c->in[2], 1), c->in[2].count, (int)h.top, &heads
    );
    give(c, heads.rows, count);
    give(c, heads.first_time, count);
    give(c, heads.columns_at, count);
    give(c, heads.mark_offsets, count + 1);
    give(c, heads.marks, heads.mark_offsets[count]);

    int64_t largest = 0, all = 0;
    for (int64_t k = 0; k < count; k++) {
        const int64_t n = heads.rows[k];
        largest = n > largest ? n : largest;
        all += n > 0 ? n : 0;
    }
    int8_t *levels = room(all, 1);
    uint32_t *scratch = room(ds_reading_words(largest), 4);
    int64_t *ends = room(count, 8), *out_offsets = room(count + 1, 8), at = 0;
    for (int64_t k = 0; k < count; k++) {
        const int64_t n = heads.rows[k], mark = heads.mark_offsets[k], start = heads.columns_at[k];
        if (n <= 0) continue;
        const ds_rows rows = packed_room(n);
        ends[k] = kernels->read(
            &stream, &h, data + start, offsets[k + 1] - DS_CHECKSUM_BYTES - start, n,
            heads.first_time[k], heads.marks + mark, heads.mark_offsets[k + 1] - mark, &rows,
            levels + at, scratch
        );
        at += ends[k] < 0 ? 0 : n;
    }
    give(c, ends, count);
    give_narrow(c, levels, at, 1);

    const ds_rows rows = packed_room(all);
    kernels->read_many(
        &stream, &h, data, offsets, count, &heads, &rows, room(largest, 1), scratch, out_offsets
    );
    give(c, heads.rows, count);
    give(c, out_offsets, count + 1);
    give_packed(c, &rows, out_offsets[count]);
}

const adapter querytime_wire_adapters[] = {
    {"querytime_wire.encode", encode},
    {"querytime_wire.digest_inputs", digest_inputs},
    {"querytime_wire.join_marks", join_marks},
    {"querytime_wire.read", read},
    {0},
};
