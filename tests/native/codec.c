/* Calls of the codec: rows as bit-packed columns, and back. */
#include "packed.h"

static const ds_bitpack_kernels *bitpack = &TABLE(ds_bitpack, DS_LEVEL);
static const ds_row_kernels *rows_of_bytes = &TABLE(ds_row, DS_LEVEL);

/* Inputs: times, ids, weights, value keys, (floats). */
static void pack(call *c) {
    const int64_t n = c->in[0].count;
    const ds_rows rows = packed_of(c->in);
    uint8_t *to = room(ds_packed_room(n), 1);
    give_narrow(c, to, bitpack->pack(&rows, n, (int)c->in[4].numbers[0], 1, to), 1);
}

/* Inputs: bytes, (rows, first time, floats). */
static void unpack(call *c) {
    const uint8_t *data = narrow(&c->in[0], 1);
    const int64_t size = c->in[0].count, *of = c->in[1].numbers, n = of[0];
    const int floats = (int)of[2];
    const ds_outcome found = bitpack->scan(data, size, n, floats);
    give(c, &found, sizeof found / sizeof(int64_t));
    if (found.code != DS_OK) return;
    const ds_rows rows = packed_room(n);
    ds_unpacker in;
    bitpack->open(&in, data, size, of[1], floats);
    for (int64_t at = 0; at < n; at += DS_ROW_BLOCK)
        bitpack->next(&in, n - at < DS_ROW_BLOCK ? n - at : DS_ROW_BLOCK, &rows, at);
    give_packed(c, &rows, n);
}

/* Inputs: bytes, (rows, first time, floats), (id bits, largest weight). */
static void read(call *c) {
    const int64_t *of = c->in[1].numbers, n = of[0], *limits_of = c->in[2].numbers;
    const ds_limits limits = {
        .ids = 1LL << limits_of[0], .max_weight = limits_of[1], .floats = (int)of[2], .salt = SALT
    };
    const ds_rows rows = packed_room(n);
    const int64_t taken = rows_of_bytes->read(
        &limits, narrow(&c->in[0], 1), c->in[0].count, n, of[1], &rows,
        room(ds_reading_words(n), 4)
    );
    give(c, &taken, 1);
    if (taken >= 0) give_packed(c, &rows, n);
}

/* Inputs: times, ids, weights. */
static void first_out_of_order(call *c) {
    const ds_rows rows = packed_of(c->in);
    const int64_t found = rows_of_bytes->first_out_of_order(&rows, c->in[0].count);
    give(c, &found, 1);
}

const adapter codec_adapters[] = {
    {"codec.pack", pack},
    {"codec.unpack", unpack},
    {"codec.read", read},
    {"codec.first_out_of_order", first_out_of_order},
    {0},
};
