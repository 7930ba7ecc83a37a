/* Columns of numbers, packed; and the layers of a lane, unpacked and checked cell by cell: docs/wire-format.md, 10.1, 10.2 and 10.5.

   Everything is asked of the bytes that the format excludes; what is read has no other bytes. Whatever
   is not flawless is left to the careful reader, wire.py, which says what is wrong with it. Bytes are
   not read beyond their end, nor more times written than there is room for, whatever they say.

   Of a cell of n ones, the kept ranks after `old` have times, and those that are left of `old` when
   its lowest ones, in binary, are taken off one by one. Both are found region by region (cells.h). */
#include "ecm/lanes.h"

enum { IN_BLOCK = 8 }; /* numbers */

/* Bytes, from the front. */
typedef struct {
    const uint8_t *data;
    int64_t at, size;
} bytes;

/* A column of numbers: one byte of width for each block of them, then the blocks. */
typedef struct {
    const uint8_t *widths, *data;
    int64_t count;
} packed;

static inline int64_t blocks_of(int64_t count) { return (count + IN_BLOCK - 1) / IN_BLOCK; }

static inline int bits_of(uint64_t number) { return number ? 64 - __builtin_clzll(number) : 1; }

/* The next column; false where its widths are none, or it does not end before the bytes do. */
static bool next_column(bytes *from, int64_t count, packed *found) {
    const int64_t blocks = blocks_of(count), left = from->size - from->at;
    if (blocks > left) return false;
    const uint8_t *widths = from->data + from->at;
    int64_t size = 0;
    for (int64_t k = 0; k < blocks; k++) {
        const int64_t here = k < blocks - 1 ? IN_BLOCK : count - IN_BLOCK * (blocks - 1);
        if (widths[k] < 1 || widths[k] > 64) return false;
        size += (here * widths[k] + 7) / 8;
    }
    if (size > left - blocks) return false;
    *found = (packed){widths, widths + blocks, count};
    from->at += blocks + size;
    return true;
}

/* Unpacks a column; false where a block is not packed as narrow as it is, or bits are set behind its
   last number. */
static bool unpack(const packed *column, uint64_t *to) {
    const uint8_t *data = column->data;
    const int64_t blocks = blocks_of(column->count);
    for (int64_t k = 0; k < blocks; k++) {
        const int width = column->widths[k];
        const int64_t here =
            k < blocks - 1 ? (int64_t)IN_BLOCK : column->count - IN_BLOCK * (blocks - 1);
        const int64_t size = (here * width + 7) / 8;
        const uint64_t mask = width == 64 ? UINT64_MAX : (1ULL << width) - 1;
        uint8_t block[64 + 16] = {0}; /* behind which more may be loaded */
        memcpy(block, data, (size_t)size);
        uint64_t all = 0;
        for (int64_t j = 0; j < here; j++) {
            const int64_t bit = j * width;
            const int shift = (int)(bit & 7);
            uint64_t low;
            memcpy(&low, block + (bit >> 3), sizeof low); /* low bytes come first */
            uint64_t number = low >> shift;
            if (shift) number |= (uint64_t)block[(bit >> 3) + 8] << (64 - shift);
            to[j] = number & mask;
            all |= to[j];
        }
        if (bits_of(all) != width) return false;
        const int64_t behind = size * 8 - here * width;
        if (behind && block[size - 1] >> (8 - behind)) return false;
        data += size;
        to += here;
    }
    return true;
}

static int64_t pack(const uint64_t *numbers, int64_t count, uint8_t *to) {
    const int64_t blocks = blocks_of(count);
    uint8_t *data = to + blocks;
    for (int64_t k = 0; k < blocks; k++) {
        const uint64_t *of = numbers + IN_BLOCK * k;
        const int64_t here = k < blocks - 1 ? (int64_t)IN_BLOCK : count - IN_BLOCK * k;
        uint8_t block[64 + 16] = {0};
        uint64_t all = 0;
        for (int64_t j = 0; j < here; j++) all |= of[j];
        const int width = bits_of(all);
        for (int64_t j = 0; j < here; j++) {
            const int64_t bit = j * width;
            const int shift = (int)(bit & 7);
            uint64_t low;
            memcpy(&low, block + (bit >> 3), sizeof low);
            low |= of[j] << shift;
            memcpy(block + (bit >> 3), &low, sizeof low);
            if (shift) block[(bit >> 3) + 8] |= (uint8_t)(of[j] >> (64 - shift));
        }
        const int64_t size = (here * width + 7) / 8;
        memcpy(data, block, (size_t)size);
        to[k] = (uint8_t)width;
        data += size;
    }
    return data - to;
}

static int64_t column(const uint8_t *data, int64_t size, int64_t count, uint64_t *numbers) {
    bytes from = {data, 0, size};
    packed found;
    return next_column(&from, count, &found) && unpack(&found, numbers) ? from.at : -1;
}

/* ----------------------------------------------------------------------------------------- ranks */

/* Does something for each region of a cell down to that of `old`, with the oldest and the newest of its
   ranks above that. */
#define EACH_REGION(n, slots, histogram, old, ...)                                                 \
    for (int64_t region = 0, newest = (n), oldest, bottom; newest > (old);                         \
         newest = bottom - (1LL << region), region++) {                                            \
        bottom = ds_ecm_oldest((n), (slots), (histogram), (int)region);                            \
        oldest = bottom;                                                                           \
        if (oldest <= (old)) oldest += (((old) - oldest) / (1LL << region) + 1) * (1LL << region); \
        if (oldest <= newest) __VA_ARGS__                                                          \
    }

/* How many ranks above `old` are kept. */
static int64_t kept_above(int64_t n, int64_t slots, bool histogram, int64_t old) {
    int64_t count = 0;
    EACH_REGION(n, slots, histogram, old, { count += ((newest - oldest) >> region) + 1; })
    return count;
}

static bool is_kept(int64_t n, int64_t slots, bool histogram, int64_t rank) {
    for (int64_t region = 0;; region++) {
        const int64_t oldest = ds_ecm_oldest(n, slots, histogram, (int)region);
        if (rank >= oldest) return !(rank & ((1LL << region) - 1));
        if (oldest == 1LL << region) return false;
    }
}

/* Whether times are those of the ranks that the root has: arrivals are their own times. */
static bool are_ranks(
    const int64_t *times, int64_t n, int64_t slots, bool histogram, int64_t old
) {
    EACH_REGION(n, slots, histogram, old, {
        for (int64_t rank = newest; rank >= oldest; rank -= 1LL << region)
            if (*times++ != rank) return false;
    })
    for (int64_t rank = old; rank; rank &= rank - 1)
        if (*times++ != rank) return false;
    return true;
}

/* --------------------------------------------------------------------------------------- columns */

/* One layer. */
typedef struct {
    int64_t width, depth, slots, cells;
    packed n, old, times;
} layer;

/* Ones and old ranks of the cells of the next layer; false where they cannot be, or rows have not seen
   `total`, which is set where it is 0. */
static bool read_cells(
    const ds_ecm_shape *shape, bytes *from, layer *of, int64_t *total, int64_t *n, int64_t *old
) {
    if (!next_column(from, of->cells, &of->n) || !unpack(&of->n, (uint64_t *)n)) return false;
    for (int64_t row = 0; row < of->depth; row++) {
        int64_t sum = 0;
        for (int64_t cell = row * of->width; cell < (row + 1) * of->width; cell++) {
            if ((uint64_t)n[cell] >= (uint64_t)(DS_ECM_LIMIT - sum)) return false;
            sum += n[cell];
        }
        if (!*total) *total = sum;
        if (!sum || sum != *total) return false;
    }
    if (!shape->has_horizon) {
        memset(old, 0, (size_t)of->cells * sizeof *old);
        return true;
    }
    if (!next_column(from, of->cells, &of->old) || !unpack(&of->old, (uint64_t *)old)) return false;
    for (int64_t cell = 0; cell < of->cells; cell++) {
        const uint64_t after = (uint64_t)old[cell];
        if (!after) continue;
        if (after > (uint64_t)n[cell]) return false;
        old[cell] = n[cell] - (int64_t)after + 1;
        if (!is_kept(n[cell], of->slots, shape->histogram, old[cell])) return false;
    }
    return true;
}

static inline int64_t count_of(const ds_ecm_shape *shape, const layer *of, int64_t n, int64_t old) {
    return kept_above(n, of->slots, shape->histogram, old) + __builtin_popcountll((uint64_t)old);
}

static layer layer_at(const ds_ecm_shape *shape, int64_t k) {
    const int64_t width = shape->width[k], depth = shape->depth[k];
    return (layer){.width = width, .depth = depth, .slots = shape->slots[k], .cells = width * depth};
}

static bool measure(
    const ds_ecm_shape *shape, const uint8_t *data, int64_t size, int64_t most, int64_t *cells,
    ds_ecm_extent *found
) {
    bytes from = {data, 0, size};
    int64_t total = 0;
    *found = (ds_ecm_extent){0};
    for (int64_t k = 0; k < shape->layers; k++) {
        layer of = layer_at(shape, k);
        int64_t *n = cells, *old = cells + of.cells, count = 0;
        uint64_t all = 0;
        if (!read_cells(shape, &from, &of, &total, n, old)) return false;
        for (int64_t cell = 0; cell < of.cells; cell++) {
            count += count_of(shape, &of, n[cell], old[cell]);
            all |= (uint64_t)n[cell];
        }
        if (count > most - found->times || !next_column(&from, count, &of.times)) return false;
        found->times += count;
        found->memory += 8 * of.cells * of.slots * bits_of(all);
    }
    found->bytes = from.at;
    return true;
}

/* Makes times of the steps between them; false where they are not in order, within the lane, on their
   side of the edge, or the newest of a row is not its last. */
static bool read_times(
    const ds_ecm_shape *shape, const layer *of, const ds_ecm_span *span, const int64_t *n,
    const int64_t *old, int64_t *times, int64_t room
) {
    const uint64_t longest = (uint64_t)span->last - (uint64_t)span->first;
    for (int64_t row = 0, cell = 0; row < of->depth; row++) {
        bool newest = false;
        for (; cell < (row + 1) * of->width; cell++) {
            const int64_t above = kept_above(n[cell], of->slots, shape->histogram, old[cell]);
            const int64_t count = above + __builtin_popcountll((uint64_t)old[cell]);
            if (count > room) return false;
            uint64_t age = 0;
            for (int64_t k = 0; k < count; k++) {
                const uint64_t step = (uint64_t)times[k];
                if (step > longest - age) return false;
                age += step;
                times[k] = (int64_t)((uint64_t)span->last - age);
                if (shape->has_horizon && (times[k] >= span->edge) != (k < above)) return false;
            }
            newest |= count && times[0] == span->last;
            times += count;
            room -= count;
        }
        if (!newest) return false;
    }
    return room == 0;
}

static bool read(
    const ds_ecm_shape *shape, const uint8_t *data, int64_t size, const ds_ecm_span *span,
    int64_t room, int64_t *columns
) {
    bytes from = {data, 0, size};
    int64_t *ends = columns, *n = ends + shape->layers, *old = n + shape->cells;
    int64_t *const times = old + shape->cells, end = 0, total = 0;
    for (int64_t k = 0; k < shape->layers; k++) {
        layer of = layer_at(shape, k);
        int64_t count = 0, *here = times + end;
        if (!read_cells(shape, &from, &of, &total, n, old)) return false;
        for (int64_t cell = 0; cell < of.cells; cell++)
            count += count_of(shape, &of, n[cell], old[cell]);
        if (count > room - end || !next_column(&from, count, &of.times)) return false;
        if (!unpack(&of.times, (uint64_t *)here)) return false;
        if (!read_times(shape, &of, span, n, old, here, count)) return false;
        if (k == 0) { /* the root has one cell, and so the first event, if it keeps that */
            const bool has_first =
                *old ? *old == 1 : ds_ecm_oldest(*n, of.slots, shape->histogram, 0) == 1;
            if (has_first && here[count - 1] != span->first) return false;
            if (shape->arrivals && span->first != 1) return false;
            if (shape->arrivals && !are_ranks(here, *n, of.slots, shape->histogram, *old))
                return false;
        }
        ends[k] = end += count;
        n += of.cells;
        old += of.cells;
    }
    return end == room;
}

DS_TABLE(ds_ecm_lane_kernels, ds_ecm_lanes) = {pack, column, measure, read};
