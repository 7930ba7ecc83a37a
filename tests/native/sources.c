/* Calls of what several sources share: rows by message, and overlaps of pairs. */
#include "sources/matching.h"

#include "driver.h"

static const ds_matching_kernels *matching = &TABLE(ds_matching, DS_LEVEL);

enum { MOST = 8 };

/* Inputs: rows of each source, ids, weights, times, value keys, levels, (max weight). */
static int64_t heard_of(const call *c, ds_heard *sources) {
    int64_t first = 0;
    for (int64_t s = 0; s < c->in[0].count; s++) {
        sources[s] = (ds_heard){
            c->in[1].numbers + first, c->in[2].numbers + first, c->in[3].numbers + first,
            c->in[4].numbers + first, (int8_t *)narrow(&c->in[5], 1) + first, c->in[0].numbers[s],
        };
        first += c->in[0].numbers[s];
    }
    return first;
}

/* Results: the columns of the messages, the message of each row, the lag of each source, of each message
   the earliest time and the value, and the message of each row as many sources number them. */
static void match(call *c) {
    ds_heard sources[MOST];
    const int64_t count = c->in[0].count, n = heard_of(c, sources), max_weight = c->in[6].numbers[0];
    const int64_t cuts[] = {20, 20, INT64_MIN}, blocks = 3; /* a block of its own for most times */
    int64_t *next = room(2 * count, 8);
    const int64_t rows = matching->longest_block(sources, count, cuts, blocks, next);
    const ds_block block = {
        {{room(rows, 8), room(rows, 8)}, {room(rows, 4), room(rows, 4)}},
        room(rows, 8), room(rows, 8), room(rows, 4),
    };
    const ds_lookup by = {
        SALT, max_weight, room(1 << 13, 8), room(n + 1, sizeof(ds_suspect)), room(n + 1, 4),
    };
    const ds_matched o = {
        room(n, 8), room(n, 8), room(n, 8), room(n, 1), room(n, 4), room(n, 8),
    };
    int32_t *groups = room(n, 4);
    int scattered;
    const int64_t found = matching->match(
        sources, count, cuts, blocks, &by, &o, &block, next, groups, &scattered
    );
    for (int64_t k = 0; k < found && max_weight == 1; k++) o.weights[k] = 1;
    give(c, o.ids, found);
    give(c, o.weights, found);
    give(c, o.latest, found);
    give_narrow(c, o.levels, found, 1);
    give_narrow(c, o.degrees, found, 4);
    give(c, o.histories, found);
    give_narrow(c, groups, n, 4);
    int64_t *lags = room(count, 8), *earliest = room(found, 8), *values = room(found, 8);
    for (int64_t k = 0; k < found; k++) earliest[k] = o.latest[k], values[k] = INT64_MIN;
    matching->lags(sources, count, o.latest, groups, lags, earliest);
    matching->values(sources, count, o.latest, groups, values);
    give(c, lags, count);
    give(c, earliest, found);
    give(c, values, found);
    int32_t *others = room(n, 4);
    const ds_matched p = {room(n, 8), room(n, 8), room(n, 8), room(n, 1), room(n, 4), NULL};
    matching->match_many(sources, count, &cuts[2], 1, &by, &p, next, others, &scattered);
    give_narrow(c, others, n, 4);
}

/* Inputs: times, levels, watermarks. Result: rows. */
static void latest_first(call *c) {
    const int64_t n = c->in[0].count;
    const ds_sorting sorting = {{room(n, 8), room(n, 8)}, {room(n, 4), room(n, 4)}};
    int64_t *order = room(n, 8);
    const int64_t found = matching->latest_first(
        c->in[0].numbers, narrow(&c->in[1], 1), n, c->in[2].numbers, &sorting, order
    );
    give(c, order, found);
}

/* Inputs: messages of the rows of each source, offsets, degrees, rows. Results: rows shared, rows
   alone, longest runs. */
static void misses(call *c) {
    const int64_t count = c->in[1].count - 1, n = c->in[2].count;
    const ds_misses found = {room(count, 8), room(count, 8), room(count, 8)};
    matching->misses(
        narrow(&c->in[0], 4), c->in[1].numbers, count, narrow(&c->in[2], 4), n, c->in[3].numbers,
        c->in[3].count, room(n, 4), &found
    );
    give(c, found.shared, count);
    give(c, found.alone, count);
    give(c, found.longest, count);
}

/* Inputs: start, sources, times, bands, levels, decayed by message and by incidence, units, marks
   (levels, then one row a source), (sources, bits of a table). Results: the cells of both kinds. */
static void overlaps(call *c) {
    const int64_t *of = c->in[9].numbers, mark_levels = c->in[8].numbers[0];
    const int64_t slots = of[1] ? 1LL << of[1] : of[0] * of[0];
    const ds_incidences by = {
        c->in[0].numbers, narrow(&c->in[1], 4), c->in[2].numbers, narrow(&c->in[3], 1),
        c->in[0].count - 1,
    };
    for (int scattered = 0; scattered < 2; scattered++) {
        const ds_pairs pairs = {
            room(slots, sizeof(double[DS_AMOUNTS])), room(slots, 8), (int)of[1], of[0], SALT,
        };
        const double *units = (double *)c->in[7].numbers;
        const int8_t *levels = narrow(&c->in[4], 1);
        if (scattered)
            matching->scattered_overlaps(
                &by, (double *)c->in[6].numbers, levels, units, c->in[8].numbers + 1, mark_levels,
                &pairs
            );
        else
            matching->overlaps(&by, (double *)c->in[5].numbers, levels, units, &pairs);
        double(*sums)[DS_AMOUNTS] = room(of[0] * of[0], sizeof *sums);
        for (int64_t slot = 0; slot < slots; slot++) {
            const int64_t pair = of[1] ? (int64_t)pairs.keys[slot] - 1 : slot;
            if (pair >= 0) memcpy(sums[pair], pairs.cells[slot], sizeof *sums);
        }
        give(c, sums, of[0] * of[0] * DS_AMOUNTS);
    }
}

/* Inputs: latest times, levels, histories, decayed, units, marks (levels, then one row a source).
   Result: the cells. */
static void square(call *c) {
    const int64_t levels = c->in[5].numbers[0], count = (c->in[5].count - 1) / levels;
    const ds_matched o = {
        .latest = (int64_t *)c->in[0].numbers, .levels = narrow(&c->in[1], 1),
        .histories = (uint64_t *)c->in[2].numbers,
    };
    double(*cells)[DS_AMOUNTS] = room(count * count, sizeof *cells);
    matching->square(
        &o, c->in[0].count, (double *)c->in[3].numbers, (double *)c->in[4].numbers,
        c->in[5].numbers + 1, levels, count, cells
    );
    give(c, cells, count * count * DS_AMOUNTS);
}

const adapter sources_adapters[] = {
    {"sources.match", match},
    {"sources.overlaps", overlaps},
    {"sources.square", square},
    {"sources.latest_first", latest_first},
    {"sources.misses", misses},
    {0},
};
