/* Family 1: many sketches written into one buffer, and read from one.

   What is encoded is trusted, and nothing of what is decoded: what is not flawless beyond doubt gets
   -1 rows, and wire.py says why, or reads it.

   A watermark is beyond doubt where so many of the observations that it claims, N, may well have
   stopped at its level, with k of them one level up. Each goes up with a chance of 1/2 at most, so k
   or fewer do with a chance of at least C(N, k) / 2^N >= 2^(N (H(k / N) - 1)) / (N + 1) (Cover and
   Thomas, "Elements of Information Theory", 11.1.3), and for the binary entropy 1 - H(x) <= (1 - 2
   x)^2. So (N - 2 k)^2 / N + log2(N + 1) <= 29 leaves no doubt, since 2^-29 is more than what wire.py
   calls implausible. */
#include "querytime/wire.h"
#include "core/bits.h"

#define BITPACK DS_PASTE(ds_bitpack, DS_LEVEL)
#define ROWS DS_PASTE(ds_row, DS_LEVEL)

enum { BEYOND_DOUBT = 29 };

/* Of the columns from a row on. */
static inline ds_rows from_row(const ds_rows *r, int64_t first) {
    return (ds_rows){r->times + first, r->ids + first, r->weights + first, r->values + first};
}

/* ----------------------------------------------------------------------------------------- writing */

static inline uint8_t *put_varint(uint8_t *out, uint64_t number) {
    for (; number > 0x7F; number >>= 7) *out++ = (uint8_t)(number & 0x7F) | 0x80;
    *out++ = (uint8_t)number;
    return out;
}

static void encode(
    const ds_sketches *s, int floats, const uint8_t *prefix, int64_t prefix_size, uint8_t *out,
    int64_t *out_offsets
) {
    uint8_t *at = out;
    out_offsets[0] = 0;
    for (int64_t k = 0; k < s->count; k++) {
        const int64_t start = s->offsets[k], n = s->offsets[k + 1] - start;
        const int64_t first = s->mark_offsets[k], last = s->mark_offsets[k + 1];
        memcpy(at, prefix, (size_t)prefix_size);
        at = put_varint(at + prefix_size, (uint64_t)(last - first));
        for (int64_t m = first; m < last; m++)
            at = put_varint(
                at, m == first ? ds_zigzag(s->marks[m]) : (uint64_t)(s->marks[m - 1] - s->marks[m])
            );
        at = put_varint(at, (uint64_t)n);
        if (n > 0) {
            const ds_rows rows = from_row(&s->rows, start);
            at = put_varint(at, ds_zigzag(rows.times[0]));
            at += BITPACK.pack(&rows, n, floats, 1, at);
        }
        at += DS_CHECKSUM_BYTES;
        out_offsets[k + 1] = at - out;
    }
}

static void digest_inputs(const ds_sketches *s, int64_t levels, int64_t *out) {
    for (int64_t k = 0; k < s->count; k++) {
        const int64_t start = s->offsets[k], n = s->offsets[k + 1] - start;
        const int64_t first = s->mark_offsets[k], set = s->mark_offsets[k + 1] - first;
        *out++ = n;
        for (int64_t level = 0; level < levels; level++)
            *out++ = level < set ? s->marks[first + level] : DS_NO_WATERMARK;
        if (n == 0) continue;
        const ds_rows rows = from_row(&s->rows, start);
        const int64_t *const columns[4] = {rows.times, rows.ids, rows.weights, rows.values};
        for (int c = 0; c < 4; c++, out += n) memcpy(out, columns[c], (size_t)n * sizeof *out);
    }
}

static void join_marks(
    const int32_t *keys, int64_t count, const int64_t *mark_offsets, const int64_t *marks,
    int64_t levels, int64_t *joined
) {
    for (int64_t k = 0; k < count; k++) {
        int64_t *own = joined + keys[k] * levels;
        for (int64_t m = mark_offsets[k]; m < mark_offsets[k + 1]; m++, own++)
            *own = *own > marks[m] ? *own : marks[m];
    }
}

/* ----------------------------------------------------------------------------------------- reading */

/* The number at *at, which is moved behind it; *at becomes -1 where it is not in its shortest form. */
static inline uint64_t get_varint(const uint8_t *data, int64_t *at, int64_t stop) {
    uint64_t number = 0;
    for (int k = 0; k < 9 && *at + k < stop; k++) { /* 63 bits; a longer one is not simple */
        const uint8_t byte = data[*at + k];
        number |= (uint64_t)(byte & 0x7F) << 7 * k;
        if (byte >= 0x80) continue;
        if (byte == 0 && k > 0) break;
        *at += k + 1;
        return number;
    }
    *at = -1;
    return 0;
}

/* Reads the watermarks of one sketch; how many, or -1. */
static int64_t get_marks(
    const uint8_t *data, int64_t *at, int64_t stop, int top, int64_t *marks
) {
    const uint64_t count = get_varint(data, at, stop);
    if (*at < 0 || count > (uint64_t)top) return -1; /* the coarsest level is for the careful reader */
    int64_t mark = 0;
    for (uint64_t m = 0; m < count; m++) {
        const uint64_t word = get_varint(data, at, stop);
        if (*at < 0) return -1;
        if (m == 0) {
            mark = ds_unzigzag(word);
            if (mark > DS_TIME_LIMIT || mark < -DS_TIME_LIMIT) return -1;
        } else {
            if (word > (uint64_t)mark + (uint64_t)DS_TIME_LIMIT) return -1;
            mark -= (int64_t)word;
        }
        marks[m] = mark;
    }
    return (int64_t)count;
}

static void read_heads(
    const uint8_t *data, const int64_t *offsets, int64_t count, const uint8_t *prefix,
    int64_t prefix_size, int top, const ds_heads *heads
) {
    int64_t mark_out = 0;
    heads->mark_offsets[0] = 0;
    for (int64_t k = 0; k < count; k++) {
        heads->rows[k] = -1;
        heads->mark_offsets[k + 1] = mark_out;
        const int64_t start = offsets[k], stop = offsets[k + 1] - DS_CHECKSUM_BYTES;
        if (stop - start < prefix_size + 2) continue;
        if (memcmp(data + start, prefix, (size_t)prefix_size)) continue;
        int64_t at = start + prefix_size;
        const int64_t marks = get_marks(data, &at, stop, top, heads->marks + mark_out);
        if (marks < 0) continue;
        const uint64_t rows = get_varint(data, &at, stop);
        /* a row takes a bit at the least, see `scan` of bitpack.c */
        if (at < 0 || rows > (uint64_t)(8 * (stop - start))) continue;
        heads->first_time[k] = 0;
        if (rows > 0) {
            heads->first_time[k] = ds_unzigzag(get_varint(data, &at, stop));
            if (at < 0) continue;
        }
        heads->rows[k] = (int64_t)rows;
        heads->columns_at[k] = at;
        mark_out += marks;
        heads->mark_offsets[k + 1] = mark_out;
    }
}

/* Whether a watermark is beyond doubt that claims so many observations of one time, of which so many
   are seen one level up. */
static int believable(int64_t claimed, int64_t seen) {
    if (seen >= claimed || claimed <= BEYOND_DOUBT) return 1;
    const int64_t spare = BEYOND_DOUBT - ds_bit_length((uint64_t)claimed); /* >= log2(N + 1) */
    const int64_t away = claimed - 2 * seen;
    return away <= 0 || (spare > 0 && away * away <= claimed * spare);
}

/* The first row from `start` on, of n whose times descend, that is not later than a time. */
static int64_t first_not_later(const int64_t *times, int64_t start, int64_t n, int64_t time) {
    while (start < n) {
        const int64_t middle = start + (n - start) / 2;
        if (times[middle] > time)
            start = middle + 1;
        else
            n = middle;
    }
    return start;
}

/* How many of n levels are as high as one, or higher. */
static int64_t count_reaching(const int8_t *levels, int64_t n, int64_t level) {
    int64_t count = 0;
    for (int64_t r = 0; r < n; r++) count += levels[r] >= (int8_t)level;
    return count;
}

/* What `wire._check_watermarks` asks for, doubtful cases left to it. Watermarks never rise from level
   to level, so that rows not later than that of a level have to be of a higher one. */
static int marks_are_good(
    const ds_stream *stream, const ds_rows *rows, const int8_t *levels, int64_t n,
    const int64_t *marks, int64_t count
) {
    for (int64_t i = 0, seen = 0; i <= count; i++) {
        const int64_t mark = i < count ? marks[i] : DS_NO_WATERMARK;
        const int64_t end = first_not_later(rows->times, seen, n, mark);
        if (count_reaching(levels + seen, end - seen, i) < end - seen) return 0;
        seen = end;
        const int64_t later = count_reaching(levels, seen, i);
        if (later > stream->capacity) return 0;
        if (!stream->plausible || i == count || (i + 1 < count && marks[i + 1] == mark)) continue;
        const int64_t tied = first_not_later(rows->times, seen, n, mark - 1) - seen;
        if (!believable(stream->capacity + 1 - later, tied)) return 0;
    }
    return 1;
}

static int64_t read_sketch(
    const ds_stream *stream, const ds_hash *hash, const uint8_t *data, int64_t size, int64_t n,
    int64_t first_time, const int64_t *marks, int64_t mark_count, const ds_rows *rows,
    int8_t *levels, uint32_t *scratch
) {
    if (mark_count > hash->top) return -1;
    const int64_t taken = ROWS.read(&stream->limits, data, size, n, first_time, rows, scratch);
    if (taken < 0 || (!mark_count && n > stream->capacity)) return -1;
    if (!levels) return taken;
    ds_levels(hash, rows->ids, rows->weights, n, levels);
    return marks_are_good(stream, rows, levels, n, marks, mark_count) ? taken : -1;
}

static void read_many(
    const ds_stream *stream, const ds_hash *hash, const uint8_t *data, const int64_t *offsets,
    int64_t count, const ds_heads *heads, const ds_rows *rows, int8_t *levels, uint32_t *scratch,
    int64_t *out_offsets
) {
    int64_t out = 0;
    out_offsets[0] = 0;
    for (int64_t k = 0; k < count; k++) {
        const int64_t n = heads->rows[k];
        out_offsets[k + 1] = out;
        if (n < 0) continue;
        const int64_t first = heads->columns_at[k], mark = heads->mark_offsets[k];
        const int64_t size = offsets[k + 1] - DS_CHECKSUM_BYTES - first;
        const int64_t marks = heads->mark_offsets[k + 1] - mark;
        const ds_rows own = from_row(rows, out);
        const int64_t taken =
            n == 0 ? -(marks > 0)
                   : read_sketch(
                         stream, hash, data + first, size, n, heads->first_time[k],
                         heads->marks + mark, marks, &own, marks ? levels : NULL, scratch
                     );
        if (taken != size)
            heads->rows[k] = -1;
        else
            out_offsets[k + 1] = out += n;
    }
}

DS_TABLE(ds_wire_kernels, ds_wire) = {
    .encode = encode,
    .read_heads = read_heads,
    .read = read_sketch,
    .read_many = read_many,
    .digest_inputs = digest_inputs,
    .join_marks = join_marks,
};
