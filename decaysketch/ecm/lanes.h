/* Columns of numbers as bytes, and lanes that are read from bytes and found flawless; lanes.c says
   how. */
#ifndef DS_ECM_LANES_H
#define DS_ECM_LANES_H

#include "ecm/cells.h"

/* The layers of a stream, root first. */
typedef struct {
    const int64_t *width, *depth, *slots; /* [layers] */
    int64_t layers;
    int64_t cells; /* of all layers */
    bool histogram, has_horizon, arrivals;
} ds_ecm_shape;

/* Times of a lane: of its first and its last event, and the first that is within the horizon. */
typedef struct {
    int64_t first, last, edge;
} ds_ecm_span;

typedef struct {
    int64_t bytes;  /* on the wire */
    int64_t times;  /* that are kept */
    int64_t memory; /* bytes that its cells take at the least, once they are built */
} ds_ecm_extent;

typedef struct {
    /* Packs numbers into a column; how many bytes it takes. There is room for
       ds_ecm_packed_room(count). */
    int64_t (*pack)(const uint64_t *numbers, int64_t count, uint8_t *to);
    /* A column of `count` numbers at the front of so many bytes: how many of these it takes, or -1
       where it is not flawless. */
    int64_t (*column)(const uint8_t *data, int64_t size, int64_t count, uint64_t *numbers);
    /* Whether so many bytes begin with the layers of a lane, as far as numbers of ones and lengths
       tell, with `most` times or fewer; what they take. `cells` is room for two numbers of each
       cell. */
    bool (*measure)(
        const ds_ecm_shape *, const uint8_t *data, int64_t size, int64_t most, int64_t *cells,
        ds_ecm_extent *
    );
    /* Fills columns: [layers] ends of their times, [cells] n, [cells] old, and times, so many of
       which there is room for. Whether all of it is flawless. */
    bool (*read)(
        const ds_ecm_shape *, const uint8_t *data, int64_t size, const ds_ecm_span *, int64_t times,
        int64_t *columns
    );
} ds_ecm_lane_kernels;

DS_TABLES(ds_ecm_lane_kernels, ds_ecm_lanes)

/* Bytes that no column of so many numbers exceeds. */
static inline int64_t ds_ecm_packed_room(int64_t count) { return 8 * count + count / 8 + 1; }

#endif
