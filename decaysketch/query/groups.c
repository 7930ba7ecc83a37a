/* Rows of a sample by group.

   Sums are in row order, as NumPy's bincount has them, so they have the same bits. All sums over one
   term are made in one pass: a row is read once, and its group's sums lie in few cache lines. A single
   group is summed in eight lanes.

   Values are sorted within each group alone, so masses of one group never meet sums of another. A
   group's values are sorted as unsigned distances from its least value, which are few bits for values
   close together. */
#include "query/groups.h"

#include <math.h>
#include <string.h>

#include "core/vectors.h"

/* ------------------------------------------------------------------------------------ a single group

   Row k is summed in lane k % 8, at every level of instruction set: so sums have the same bits at every
   level. A level whose vectors are shorter has several of them, its parts. */

#define PARTS (8 / DS_LANES)

/* Up to DS_LANES numbers, and others behind them. */
static inline ds_fvec load(const double *from, int64_t count, double others) {
    ds_fvec v = (ds_fvec){0} + others;
    if (count >= DS_LANES)
        memcpy(&v, from, sizeof v);
    else
        for (int lane = 0; lane < count; lane++) v[lane] = from[lane];
    return v;
}

static inline ds_fvec where(ds_vec mask, ds_fvec v) { return (ds_fvec)((ds_vec)v & mask); }

static inline ds_fvec pick(ds_vec mask, ds_fvec yes, ds_fvec no) {
    return (ds_fvec)ds_pick(mask, (ds_vec)yes, (ds_vec)no);
}

static inline ds_fvec larger(ds_fvec v, ds_fvec most) { return pick(v > most, v, most); }

/* The sum of a column of lanes over all parts. */
static double sum_of(const ds_fvec *lanes, int columns) {
    double sum = 0.0;
    for (int lane = 0; lane < 8; lane++) sum += lanes[lane / DS_LANES * columns][lane % DS_LANES];
    return sum;
}

static double most_of(const ds_fvec *lanes, int columns) {
    double most = -INFINITY;
    for (int lane = 0; lane < 8; lane++) {
        const double x = lanes[lane / DS_LANES * columns][lane % DS_LANES];
        most = x > most ? x : most;
    }
    return most;
}

static void single_moments(const ds_group_rows *r, const double *x, double *found) {
    enum { WEIGHT, TOTAL, DOWN, UP, COLUMNS }; /* the least x is the largest -x */
    ds_fvec of[PARTS][COLUMNS] = {0};
    for (int part = 0; part < PARTS; part++) of[part][DOWN] = of[part][UP] -= INFINITY;
    for (int64_t k = 0; k < r->rows; k += DS_LANES) {
        ds_fvec *to = of[k / DS_LANES % PARTS];
        const ds_fvec f = load(x + k, r->rows - k, x[k]), m = load(r->masses + k, r->rows - k, 0.0);
        to[WEIGHT] += m;
        to[TOTAL] += m * load(x + k, r->rows - k, 0.0);
        to[DOWN] = larger(-f, to[DOWN]);
        to[UP] = larger(f, to[UP]);
    }
    found[DS_WEIGHT] = sum_of(&of[0][WEIGHT], COLUMNS);
    found[DS_TOTAL] = sum_of(&of[0][TOTAL], COLUMNS);
    found[DS_LOW] = -most_of(&of[0][DOWN], COLUMNS);
    found[DS_HIGH] = most_of(&of[0][UP], COLUMNS);
}

/* Rows with one sign. */
typedef struct {
    ds_fvec masses, variances, jumps, lengths; /* a third moment over its variance */
} columns;

/* Add terms with one sign: their sizes, x itself, and the lanes that have the sign. */
static inline void add_lanes(ds_fvec *to, ds_fvec size, ds_fvec x, ds_vec mask, const columns *c) {
    const ds_fvec spread = c->variances * size * size;
    to[DS_SAMPLED] += c->masses * size;
    to[DS_SPREAD] += spread;
    to[DS_SKEW] += spread * c->lengths * size;
    to[DS_SEEN_MASS] += where(size > 0.0, c->masses);
    to[DS_JUMP] = larger(c->jumps * size, to[DS_JUMP]);
    to[DS_LARGEST_SPREAD] = larger(spread, to[DS_LARGEST_SPREAD]);
    to[DS_LEAST] = pick(mask & (x < to[DS_LEAST]), x, to[DS_LEAST]);
    to[DS_MOST] = pick(mask & (x > to[DS_MOST]), x, to[DS_MOST]);
}

static double nearest(const ds_group_rows *r, const double *x, double sign) {
    ds_fvec near = {0};
    for (int64_t k = 0; k < r->exact; k += DS_LANES)
        near = larger(sign * load(x + k, r->exact - k, 0.0), near);
    double most = 0.0;
    for (int lane = 0; lane < DS_LANES; lane++) most = near[lane] > most ? near[lane] : most;
    return most;
}

static void collect(ds_fvec of[PARTS][DS_TERMS], double *found) {
    for (int k = DS_SAMPLED; k <= DS_SEEN_MASS; k++) found[k] = sum_of(&of[0][k], DS_TERMS);
    for (int k = DS_JUMP; k < DS_TERMS; k++) found[k] = most_of(&of[0][k], DS_TERMS);
    for (int part = 0; part < PARTS; part++) of[part][DS_LEAST] = -of[part][DS_LEAST];
    found[DS_LEAST] = -most_of(&of[0][DS_LEAST], DS_TERMS);
}

static void single_terms(const ds_group_rows *r, const double *x, double *found, double *near) {
    ds_fvec up[PARTS][DS_TERMS] = {0}, down[PARTS][DS_TERMS];
    for (int part = 0; part < PARTS; part++) {
        up[part][DS_LEAST] += INFINITY;
        up[part][DS_MOST] -= INFINITY;
    }
    memcpy(down, up, sizeof up);
    for (int64_t k = r->exact; k < r->rows; k += DS_LANES) {
        const int64_t count = r->rows - k, part = (k - r->exact) / DS_LANES % PARTS;
        const ds_fvec jumps = load(r->jumps + k, count, 0.0);
        const columns c = {
            load(r->masses + k, count, 0.0), load(r->variances + k, count, 0.0), jumps,
            jumps - 0.5 * load(r->decayed + k, count, 0.0),
        };
        const ds_fvec f = load(x + k, count, 0.0), shown = load(x + k, count, x[k]);
        add_lanes(up[part], where(~(f < 0.0), f), shown, ~(shown < 0.0), &c);
        add_lanes(down[part], where(f < 0.0, -f), shown, shown < 0.0, &c);
    }
    collect(up, found);
    collect(down, found + DS_TERMS);
    near[0] = nearest(r, x, 1.0);
    near[1] = nearest(r, x, -1.0);
}

static void single_sizes(
    const ds_group_rows *r, const double *function, const int64_t *weights, double *found
) {
    ds_fvec of[PARTS][DS_SIZES] = {0};
    for (int64_t k = 0; k < r->exact; k += DS_LANES) {
        ds_fvec *to = of[k / DS_LANES % PARTS];
        const ds_fvec f = load(function + k, r->exact - k, 0.0);
        to[DS_UP] = larger(f, to[DS_UP]);
        to[DS_DOWN] = larger(-f, to[DS_DOWN]);
        to[DS_SHOWN_SQUARE] += f * f;
    }
    for (int64_t k = r->exact; k < r->rows; k += DS_LANES) {
        const int64_t count = r->rows - k;
        ds_fvec *to = of[(k - r->exact) / DS_LANES % PARTS];
        const ds_fvec f = load(function + k, count, 0.0), m = load(r->masses + k, count, 0.0);
        const ds_fvec v = load(r->variances + k, count, 0.0);
        to[DS_UP] = larger(f, to[DS_UP]);
        to[DS_DOWN] = larger(-f, to[DS_DOWN]);
        to[DS_FAR_SPREAD] += v;
        to[DS_FAR_SQUARE] += v * f * f;
        to[DS_MASS] += m;
        if (weights) {
            const ds_fvec w = load((const double *)(weights + k), count, 0.0);
            to[DS_COUNTED] += where(m > 0.0, m / ds_wide_to_float((ds_vec)w));
        }
    }
    for (int k = DS_SHOWN_SQUARE; k < DS_SIZES; k++) found[k] = sum_of(&of[0][k], DS_SIZES);
    found[DS_UP] = most_of(&of[0][DS_UP], DS_SIZES);
    found[DS_DOWN] = most_of(&of[0][DS_DOWN], DS_SIZES);
    found[DS_SHOWN] = (double)r->exact;
}

/* ---------------------------------------------------------------------------------- several groups */

static void largest(const int64_t *group, const double *column, int64_t rows, double *to) {
    for (int64_t k = 0; k < rows; k++)
        if (column[k] > to[group[k]]) to[group[k]] = column[k];
}

static void extremes(
    const int64_t *group, const double *column, int64_t rows, double *least, double *most
) {
    for (int64_t k = 0; k < rows; k++) {
        const int64_t g = group[k];
        if (column[k] < least[g]) least[g] = column[k];
        if (column[k] > most[g]) most[g] = column[k];
    }
}

static void moments(const ds_group_rows *r, const double *x, double *found) {
    if (r->groups == 1) {
        single_moments(r, x, found);
        return;
    }
    for (int64_t k = 0; k < r->rows; k++) {
        double *of = found + r->group[k] * DS_MOMENTS;
        of[DS_WEIGHT] += r->masses[k];
        of[DS_TOTAL] += r->masses[k] * x[k];
        of[DS_LOW] = x[k] < of[DS_LOW] ? x[k] : of[DS_LOW];
        of[DS_HIGH] = x[k] > of[DS_HIGH] ? x[k] : of[DS_HIGH];
    }
}

static void residuals(
    const ds_group_rows *r, const double *x, const double *center, const double *share, double rest,
    double *to
) {
    for (int64_t k = 0; k < r->rows; k++) {
        const int64_t g = r->groups == 1 ? 0 : r->group[k];
        const double others = 1.0 - r->masses[k] * share[g];
        to[k] = (x[k] - center[g]) / (others < rest ? rest : others);
    }
}

/* A term: one row's mass times x. */
static inline void add_term(
    const ds_group_rows *r, int64_t k, double x, double *restrict found, double *restrict near
) {
    const int64_t side = r->group[k] + (x < 0.0 ? r->groups : 0);
    const double size = fabs(x);
    if (k < r->exact) {
        near[side] = size > near[side] ? size : near[side];
        return;
    }
    double *of = found + side * DS_TERMS;
    const double variance = r->variances[k] * x * x, hit = r->jumps[k] * size;
    of[DS_SAMPLED] += r->masses[k] * size;
    of[DS_SPREAD] += variance;
    of[DS_SKEW] += variance * (r->jumps[k] - 0.5 * r->decayed[k]) * size;
    of[DS_SEEN_MASS] += size > 0.0 ? r->masses[k] : 0.0;
    of[DS_JUMP] = hit > of[DS_JUMP] ? hit : of[DS_JUMP];
    of[DS_LARGEST_SPREAD] = variance > of[DS_LARGEST_SPREAD] ? variance : of[DS_LARGEST_SPREAD];
    of[DS_LEAST] = x < of[DS_LEAST] ? x : of[DS_LEAST];
    of[DS_MOST] = x > of[DS_MOST] ? x : of[DS_MOST];
}

static void terms(const ds_group_rows *r, const double *x, double *found, double *near) {
    if (r->groups == 1) {
        single_terms(r, x, found, near);
        return;
    }
    for (int64_t k = 0; k < r->rows; k++) add_term(r, k, x[k], found, near);
}

static inline void add_size(
    const ds_group_rows *r, int64_t k, double f, const int64_t *weights, double *found
) {
    double *of = found + r->group[k] * DS_SIZES;
    of[DS_UP] = f > of[DS_UP] ? f : of[DS_UP];
    of[DS_DOWN] = -f > of[DS_DOWN] ? -f : of[DS_DOWN];
    if (k < r->exact) {
        of[DS_SHOWN] += 1.0;
        of[DS_SHOWN_SQUARE] += f * f;
    } else {
        of[DS_FAR_SPREAD] += r->variances[k];
        of[DS_FAR_SQUARE] += r->variances[k] * f * f;
        of[DS_MASS] += r->masses[k];
        if (weights) of[DS_COUNTED] += r->masses[k] / (double)weights[k];
    }
}

static void sizes(
    const ds_group_rows *r, const double *function, const int64_t *weights, double *found
) {
    if (r->groups == 1) {
        single_sizes(r, function, weights, found);
        return;
    }
    for (int64_t k = 0; k < r->rows; k++) add_size(r, k, function[k], weights, found);
}

static void contrast(
    const ds_group_rows *r, const double *a, const double *b, const double *ratio,
    const ds_contrast *to
) {
    for (int64_t k = 0; k < r->rows; k++) {
        const int64_t g = r->group[k];
        if (isnan(ratio[g])) continue;
        const double x = a[k] - ratio[g] * b[k], amount = r->masses[k] * fabs(x);
        const int64_t side = g + (x < 0.0 ? r->groups : 0);
        add_term(r, k, x, to->terms, to->near);
        add_size(r, k, x, 0, to->sizes);
        to->amounts[side] += amount;
        to->squares[side] += amount * fabs(x);
    }
}

/* ---------------------------------------------------------------------------------------- quantiles */

/* Unsigned numbers in the order of the values. Both zeros are one. */
static inline uint64_t ordered(int64_t value, int floats) {
    const uint64_t top = 1ULL << 63;
    if (!floats) return (uint64_t)value ^ top;
    const uint64_t bits = (uint64_t)value == top ? 0 : (uint64_t)value;
    return bits & top ? ~bits : bits | top;
}

/* Put each row's columns among those of its group, in row order. */
static void scatter(const ds_ranked_rows *r, int64_t *next, const ds_ranks *to) {
    for (int64_t g = 0; g < r->groups; g++) next[g] = to->starts[g];
    for (int64_t k = 0; k < r->rows; k++) {
        const int64_t at = next[r->group[k]]++, known = k < r->exact;
        to->values[at] = r->values[k];
        to->exact[at] = known ? r->masses[k] : 0.0;
        to->sampled[at] = known ? 0.0 : r->masses[k];
        to->variance[at] = known ? 0.0 : r->variances[k];
    }
}

/* Sort a group's values; returns the positions in its row order. */
static const uint32_t *sort_group(
    const int64_t *values, int64_t count, int floats, const ds_sorting *room
) {
    uint64_t least = ~0ULL, most = 0;
    for (int64_t k = 0; k < count; k++) {
        const uint64_t key = room->keys[0][k] = ordered(values[k], floats);
        room->words[0][k] = (uint32_t)k;
        least = key < least ? key : least;
        most = key > most ? key : most;
    }
    for (int64_t k = 0; k < count; k++) room->keys[0][k] -= least;
    return room->words[ds_radix_sort(room, count, count ? ds_bit_length(most - least) : 0)];
}

static void sum_sorted(double *column, double *room, const uint32_t *order, int64_t n, double over) {
    double sum = 0.0;
    memcpy(room, column, (size_t)n * sizeof(double));
    for (int64_t k = 0; k < n; k++) column[k] = sum += room[order[k]] * over;
}

/* Sort a group's columns, sum them, and give equal values the sums of the last one. */
static void rank_group(
    const ds_ranked_rows *r, int64_t g, const ds_sorting *room, const ds_ranks *to
) {
    const int64_t at = to->starts[g], n = to->starts[g + 1] - at;
    const double over = r->weight[g] > 0.0 ? 1.0 / r->weight[g] : 1.0;
    int64_t *values = to->values + at;
    const uint32_t *order = sort_group(values, n, r->floats, room);
    memcpy(room->keys[0], values, (size_t)n * sizeof(int64_t)); /* which are sorted, and free again */
    for (int64_t k = 0; k < n; k++) values[k] = (int64_t)room->keys[0][order[k]];
    double *free_column = (double *)room->keys[1];
    sum_sorted(to->exact + at, free_column, order, n, over);
    sum_sorted(to->sampled + at, free_column, order, n, over);
    sum_sorted(to->variance + at, free_column, order, n, over * over);
    for (int64_t k = at + n - 2; k >= at; k--)
        if (ordered(to->values[k], r->floats) == ordered(to->values[k + 1], r->floats)) {
            to->exact[k] = to->exact[k + 1];
            to->sampled[k] = to->sampled[k + 1];
            to->variance[k] = to->variance[k + 1];
        }
}

static void rank(
    const ds_ranked_rows *r, int64_t *next, const ds_sorting *room, const ds_ranks *to
) {
    scatter(r, next, to);
    for (int64_t g = 0; g < r->groups; g++) rank_group(r, g, room, to);
}

static void reach(
    const ds_ranks *r, const int64_t *some, const double *wanted, int64_t n, int64_t *place
) {
    for (int64_t k = 0; k < n; k++) {
        const int64_t start = r->starts[some[k]];
        int64_t low = start, high = r->starts[some[k] + 1];
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (r->exact[middle] + r->sampled[middle] < wanted[k])
                low = middle + 1;
            else
                high = middle;
        }
        place[k] = low - start;
    }
}

DS_TABLE(ds_group_kernels, ds_group) = {
    .largest = largest,
    .extremes = extremes,
    .moments = moments,
    .residuals = residuals,
    .terms = terms,
    .sizes = sizes,
    .contrast = contrast,
    .rank = rank,
    .reach = reach,
};
