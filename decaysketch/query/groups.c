/* Rows of a sample by group.

   Sums are in row order, as NumPy's bincount has them, so they have the same bits. All sums over one
   term are made in one pass: a row is read once, and its group's sums lie in few cache lines.

   Values are sorted within each group alone, so masses of one group never meet sums of another. A
   group's values are sorted as unsigned distances from its least value, which are few bits for values
   close together. */
#include "query/groups.h"

#include <math.h>
#include <string.h>

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
        const int64_t g = r->group[k];
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
