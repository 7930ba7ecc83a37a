/* Many sketches of one stream, written into one buffer and read from one; wire.c says how. */
#ifndef DS_QUERYTIME_WIRE_H
#define DS_QUERYTIME_WIRE_H

#include "core/codec/rows.h"
#include "minhit/hash.h"

#define DS_NO_WATERMARK INT64_MIN

enum { DS_CHECKSUM_BYTES = 4, DS_LONGEST_VARINT = 10 };

/* What a sketch of a stream may hold. */
typedef struct {
    ds_limits limits;
    int64_t capacity;
    int plausible; /* whether watermarks are to be believable, not only possible */
} ds_stream;

/* Canonical states of sketches of one copy, end to end. */
typedef struct {
    int64_t count;
    const int64_t *offsets; /* count + 1, the rows of each */
    ds_rows rows;
    const int64_t *mark_offsets; /* count + 1, the watermarks of each */
    const int64_t *marks;        /* those that are set, from level 0 up */
} ds_sketches;

/* What stands in front of the columns of each sketch. */
typedef struct {
    int64_t *rows;       /* how many; -1 where it is not to be read */
    int64_t *first_time;
    int64_t *columns_at; /* offset in the data */
    int64_t *mark_offsets, *marks;
} ds_heads;

typedef struct {
    /* Writes the bodies of all sketches, each with room for its checksum behind it; out_offsets has
       count + 1, and `out` has ds_room for them. */
    void (*encode)(
        const ds_sketches *, int floats, const uint8_t *prefix, int64_t prefix_size, uint8_t *out,
        int64_t *out_offsets
    );
    /* Reads what stands in front of the columns of each of `count` sketches; -1 rows where it is not
       simple. There is room for a watermark of each byte. */
    void (*read_heads)(
        const uint8_t *data, const int64_t *offsets, int64_t count, const uint8_t *prefix,
        int64_t prefix_size, int top, const ds_heads *
    );
    /* Reads n rows from the front of so many bytes, and their levels, and checks all of it together
       with the watermarks, none of them at the coarsest level. Returns the bytes that the rows take,
       or -1 where that is not flawless beyond doubt. `levels` may be null where there is no watermark;
       `scratch` has ds_reading_words(n). */
    int64_t (*read)(
        const ds_stream *, const ds_hash *, const uint8_t *data, int64_t size, int64_t n,
        int64_t first_time, const int64_t *marks, int64_t mark_count, const ds_rows *, int8_t *levels,
        uint32_t *scratch
    );
    /* The rows of the sketches with rows >= 0, end to end; -1 rows where one is not flawless.
       `levels` has one of each row of the largest, out_offsets has count + 1. */
    void (*read_many)(
        const ds_stream *, const ds_hash *, const uint8_t *data, const int64_t *offsets,
        int64_t count, const ds_heads *, const ds_rows *, int8_t *levels, uint32_t *scratch,
        int64_t *out_offsets
    );
    /* What `state.digest_of` hashes behind the parameters, of all sketches, end to end. */
    void (*digest_inputs)(const ds_sketches *, int64_t levels, int64_t *out);
    /* joined[k, i] = the latest watermark of level i of the sketches of key k. */
    void (*join_marks)(
        const int32_t *keys, int64_t count, const int64_t *mark_offsets, const int64_t *marks,
        int64_t levels, int64_t *joined
    );
} ds_wire_kernels;

DS_TABLES(ds_wire_kernels, ds_wire)

/* Bytes that no encoding of these sketches exceeds. A bound of each by itself would be page after page
   of memory that is never written. */
static inline int64_t ds_room(const ds_sketches *s, int64_t prefix_size) {
    const int64_t numbers = s->mark_offsets[s->count] - s->mark_offsets[0] + 3 * s->count;
    int64_t room = s->count * (prefix_size + DS_CHECKSUM_BYTES) + numbers * DS_LONGEST_VARINT + 64;
    for (int64_t k = 0; k < s->count; k++) {
        const int64_t n = s->offsets[k + 1] - s->offsets[k];
        room += 32 * n + 72 * ((n + DS_ROW_BLOCK - 1) / DS_ROW_BLOCK);
    }
    return room;
}

#endif
