/* Rows of a sample by group: sums, extremes, and masses up to each value; groups.c says how. */
#ifndef DS_QUERY_GROUPS_H
#define DS_QUERY_GROUPS_H

#include <stdint.h>

#include "core/levels.h"
#include "core/sort.h"

/* Rows of a sample, known masses first. */
typedef struct {
    const int64_t *group; /* of each row, below groups */
    const double *masses, *variances, *jumps, *decayed;
    int64_t rows, exact, groups;
} ds_group_rows;

/* Sums over terms with one sign, a cache line each: of the positive terms of each group, then of the
   negative ones. A 0 is a positive term. */
enum {
    DS_SAMPLED, DS_SPREAD, DS_SKEW, DS_SEEN_MASS, DS_JUMP, DS_LARGEST_SPREAD, DS_LEAST, DS_MOST,
    DS_TERMS
};
/* Sums of masses by group, and extremes. */
enum { DS_WEIGHT, DS_TOTAL, DS_LOW, DS_HIGH, DS_MOMENTS };
/* Sizes of a function by group. */
enum {
    DS_UP, DS_DOWN, DS_SHOWN, DS_SHOWN_SQUARE, DS_FAR_SPREAD, DS_FAR_SQUARE, DS_MASS, DS_COUNTED,
    DS_SIZES
};

/* Results over masses times x: terms[2 groups][DS_TERMS] and near[2 groups], sizes[groups][DS_SIZES],
   and sums over masses times |x| and times x * x: amounts[2 groups], squares[2 groups]. */
typedef struct {
    double *terms, *near, *sizes, *amounts, *squares;
} ds_contrast;

/* Rows with a value by group and value. */
typedef struct {
    const int64_t *group;
    const int64_t *values; /* int64, or the bits of float64 */
    const double *masses, *variances, *weight; /* of rows, and of groups */
    int64_t rows, exact, groups;
    int floats;
} ds_ranked_rows;

/* Each group's rows by rising value. Masses are over the group's weight, and summed up to the last
   row with an equal value. */
typedef struct {
    const int64_t *starts; /* of each group's rows, and their end */
    int64_t *values;
    double *exact, *sampled, *variance;
} ds_ranks;

typedef struct {
    /* to[g] = the largest entry of group g, or what was there */
    void (*largest)(const int64_t *group, const double *column, int64_t rows, double *to);
    /* the same, and the least */
    void (*extremes)(
        const int64_t *group, const double *column, int64_t rows, double *least, double *most
    );
    /* found[groups][DS_MOMENTS] over masses times x */
    void (*moments)(const ds_group_rows *, const double *x, double *found);
    /* to[k] = (x[k] - center of its group) / (1 - mass times share of its group, at least rest) */
    void (*residuals)(
        const ds_group_rows *, const double *x, const double *center, const double *share,
        double rest, double *to
    );
    /* sums over masses times x: found[2 groups][DS_TERMS], and near[2 groups], the largest known x */
    void (*terms)(const ds_group_rows *, const double *x, double *found, double *near);
    /* found[groups][DS_SIZES] */
    void (*sizes)(
        const ds_group_rows *, const double *function, const int64_t *weights, double *found
    );
    /* all of these for x = a - ratio of its group * b, except in groups whose ratio is NaN */
    void (*contrast)(
        const ds_group_rows *, const double *a, const double *b, const double *ratio,
        const ds_contrast *
    );
    /* sort and sum rows by group and value. next: a number for each group. room: for the largest */
    void (*rank)(
        const ds_ranked_rows *, int64_t *next, const ds_sorting *room, const ds_ranks *
    );
    /* place[k] = first place of group some[k] whose mass reaches wanted[k], or the number of rows */
    void (*reach)(
        const ds_ranks *, const int64_t *some, const double *wanted, int64_t n, int64_t *place
    );
} ds_group_kernels;

DS_TABLES(ds_group_kernels, ds_group)

#endif
