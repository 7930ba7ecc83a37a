"""Kernels over the rows of a sample by group: lengths are checked, values are not."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

import numpy as np

cdef extern from "query/groups.h" nogil:
    ctypedef struct ds_group_rows:
        const int64_t *group
        const double *masses
        const double *variances
        const double *jumps
        const double *decayed
        int64_t rows, exact, groups

    ctypedef struct ds_ranked_rows:
        const int64_t *group
        const int64_t *values
        const double *masses
        const double *variances
        const double *weight
        int64_t rows, exact, groups
        int floats

    ctypedef struct ds_ranks:
        const int64_t *starts
        int64_t *values
        double *exact
        double *sampled
        double *variance

    ctypedef struct ds_sorting:
        uint64_t *keys[2]
        uint32_t *words[2]

    ctypedef struct ds_contrast:
        double *terms
        double *near
        double *sizes
        double *amounts
        double *squares

    ctypedef struct ds_group_kernels:
        void (*largest)(const int64_t *, const double *, int64_t, double *) noexcept nogil
        void (*extremes)(
            const int64_t *, const double *, int64_t, double *, double *
        ) noexcept nogil
        void (*moments)(const ds_group_rows *, const double *, double *) noexcept nogil
        void (*residuals)(
            const ds_group_rows *, const double *, const double *, const double *, double, double *
        ) noexcept nogil
        void (*terms)(const ds_group_rows *, const double *, double *, double *) noexcept nogil
        void (*sizes)(
            const ds_group_rows *, const double *, const int64_t *, double *
        ) noexcept nogil
        void (*contrast)(
            const ds_group_rows *, const double *, const double *, const double *,
            const ds_contrast *
        ) noexcept nogil
        void (*rank)(
            const ds_ranked_rows *, int64_t *, const ds_sorting *, const ds_ranks *
        ) noexcept nogil
        void (*reach)(
            const ds_ranks *, const int64_t *, const double *, int64_t, int64_t *
        ) noexcept nogil

    const ds_group_kernels *ds_group_at(int level)
    int ds_level()
    enum:
        DS_LEAST
        DS_MOST
        DS_TERMS
        DS_LOW
        DS_HIGH
        DS_MOMENTS
        DS_SIZES

cdef const ds_group_kernels *kernels = ds_group_at(ds_level())


cdef int _same(int64_t first, int64_t second) except -1:
    if first != second:
        raise ValueError(f"columns of {first} and {second} rows")
    return 0


def largest(const int64_t[::1] group, const double[::1] column, int64_t groups):
    """The largest column entry by group, at least 0: float64[groups]."""
    found = np.zeros(groups)
    cdef double[::1] to = found
    cdef int64_t n = group.shape[0]
    _same(n, column.shape[0])
    if n and groups:
        with nogil:
            kernels.largest(&group[0], &column[0], n, &to[0])
    return found


def extremes(const int64_t[::1] group, const double[::1] column, int64_t groups):
    """The least and the largest column entry by group, infinite without one."""
    low, high = np.full(groups, np.inf), np.full(groups, -np.inf)
    cdef double[::1] least = low, most = high
    cdef int64_t n = group.shape[0]
    _same(n, column.shape[0])
    if n and groups:
        with nogil:
            kernels.extremes(&group[0], &column[0], n, &least[0], &most[0])
    return low, high


cdef class Rows:
    """Rows of a sample, known masses first.

    Args:
        group: int64[n], below ``groups``.
        masses, variances, jumps, decayed: float64[n].
        exact: the number of known masses.
        groups: the number of groups.
    """

    cdef ds_group_rows rows
    cdef const int64_t[::1] group
    cdef const double[::1] masses, variances, jumps, decayed

    def __init__(
        self, const int64_t[::1] group, const double[::1] masses, const double[::1] variances,
        const double[::1] jumps, const double[::1] decayed, int64_t exact, int64_t groups,
    ):
        cdef int64_t n = group.shape[0]
        for length in (masses.shape[0], variances.shape[0], jumps.shape[0], decayed.shape[0]):
            _same(n, length)
        if not 0 <= exact <= n or groups < (n > 0):
            raise ValueError(f"{exact} known masses of {n} in {groups} groups")
        self.group, self.masses, self.variances = group, masses, variances
        self.jumps, self.decayed = jumps, decayed
        self.rows.rows, self.rows.exact, self.rows.groups = n, exact, groups
        if n:
            self.rows.group, self.rows.masses = &group[0], &masses[0]
            self.rows.variances, self.rows.jumps = &variances[0], &jumps[0]
            self.rows.decayed = &decayed[0]

    def moments(self, const double[::1] x):
        """Sums of masses, and of masses times x, and the least and the largest x: float64[groups, 4].
        Without a row the latter are infinite.
        """
        found = np.zeros((self.rows.groups, DS_MOMENTS))
        found[:, DS_LOW], found[:, DS_HIGH] = np.inf, -np.inf
        cdef double[:, ::1] to = found
        _same(self.rows.rows, x.shape[0])
        if self.rows.rows:
            with nogil:
                kernels.moments(&self.rows, &x[0], &to[0, 0])
        return found

    def residuals(
        self, const double[::1] x, const double[::1] center, const double[::1] share, double rest
    ):
        """x less its group's center, over 1 less mass times its group's share, at least rest."""
        found = np.empty(self.rows.rows)
        cdef double[::1] to = found
        _same(self.rows.rows, x.shape[0])
        _same(self.rows.groups, center.shape[0])
        _same(self.rows.groups, share.shape[0])
        if self.rows.rows:
            with nogil:
                kernels.residuals(&self.rows, &x[0], &center[0], &share[0], rest, &to[0])
        return found

    def terms(self, const double[::1] x):
        """Sums of masses times x: float64[2 groups, 8], of positive terms and then of negative
        ones, with the columns in ``groups.h``; and the largest known x: float64[2 groups].
        """
        found, largest = np.zeros((2 * self.rows.groups, DS_TERMS)), np.zeros(2 * self.rows.groups)
        found[:, DS_LEAST], found[:, DS_MOST] = np.inf, -np.inf
        cdef double[:, ::1] to = found
        cdef double[::1] near = largest
        _same(self.rows.rows, x.shape[0])
        if self.rows.rows:
            with nogil:
                kernels.terms(&self.rows, &x[0], &to[0, 0], &near[0])
        return found, largest

    def sizes(self, const double[::1] function, const int64_t[::1] weights=None):
        """Sizes of a function: float64[groups, 8], with the columns in ``groups.h``."""
        found = np.zeros((self.rows.groups, DS_SIZES))
        cdef double[:, ::1] to = found
        cdef const int64_t *beside = NULL
        _same(self.rows.rows, function.shape[0])
        if self.rows.rows == 0:
            return found
        if weights is not None:
            _same(self.rows.rows, weights.shape[0])
            beside = &weights[0]
        with nogil:
            kernels.sizes(&self.rows, &function[0], beside, &to[0, 0])
        return found

    def contrast(self, const double[::1] a, const double[::1] b, const double[::1] ratio):
        """Sums over masses times ``a - ratio * b``, with a ratio by group: :meth:`terms`,
        :meth:`sizes`, and sums over masses times distances from 0 and times squares: float64[2, 2
        groups]. Groups whose ratio is NaN have no sums.
        """
        cdef int64_t groups = self.rows.groups
        found, largest = np.zeros((2 * groups, DS_TERMS)), np.zeros(2 * groups)
        found[:, DS_LEAST], found[:, DS_MOST] = np.inf, -np.inf
        shown, drawn = np.zeros((groups, DS_SIZES)), np.zeros((2, 2 * groups))
        cdef double[:, ::1] terms = found, sizes = shown, sums = drawn
        cdef double[::1] near = largest
        cdef ds_contrast to
        for length in (a.shape[0], b.shape[0]):
            _same(self.rows.rows, length)
        _same(groups, ratio.shape[0])
        if self.rows.rows:
            to.terms, to.near, to.sizes = &terms[0, 0], &near[0], &sizes[0, 0]
            to.amounts, to.squares = &sums[0, 0], &sums[1, 0]
            with nogil:
                kernels.contrast(&self.rows, &a[0], &b[0], &ratio[0], &to)
        return found, largest, shown, drawn


def rank(
    const int64_t[::1] group, const int64_t[::1] values, bint floats, const double[::1] masses,
    const double[::1] variances, int64_t exact, const double[::1] weight,
    const int64_t[::1] starts,
):
    """Sort rows by group and value.

    Args:
        group, masses, variances: of the rows.
        values: int64, or the bits of float64.
        floats: whether they are these.
        exact: the number of known masses.
        weight: float64[groups].
        starts: int64[groups + 1], the first row of each group, and their end.

    Returns:
        (values, exact masses, sampled masses, variances): the values as given, and sums up to the
        last row with an equal value, over the group's weight.
    """
    cdef ds_ranked_rows rows
    cdef ds_ranks ranks
    cdef ds_sorting room
    cdef int64_t n = group.shape[0]
    for length in (values.shape[0], masses.shape[0], variances.shape[0]):
        _same(n, length)
    _same(weight.shape[0] + 1, starts.shape[0])
    found = np.empty(n, np.int64), np.empty(n), np.empty(n), np.empty(n)
    if not n:
        return found
    most = int(np.diff(starts).max())
    cdef int64_t[::1] sorted_values = found[0], next_row = np.empty(weight.shape[0], np.int64)
    cdef double[::1] known = found[1], sampled = found[2], spread = found[3]
    cdef uint64_t[:, ::1] keys = np.empty((2, most), np.uint64)
    cdef uint32_t[:, ::1] words = np.empty((2, most), np.uint32)
    for which in range(2):
        room.keys[which], room.words[which] = &keys[which, 0], &words[which, 0]
    rows.group, rows.values, rows.masses = &group[0], &values[0], &masses[0]
    rows.variances, rows.weight = &variances[0], &weight[0]
    rows.rows, rows.exact, rows.groups, rows.floats = n, exact, weight.shape[0], floats
    ranks.starts, ranks.values = &starts[0], &sorted_values[0]
    ranks.exact, ranks.sampled, ranks.variance = &known[0], &sampled[0], &spread[0]
    with nogil:
        kernels.rank(&rows, &next_row[0], &room, &ranks)
    return found


def reach(
    const int64_t[::1] starts, const double[::1] exact, const double[::1] sampled,
    const int64_t[::1] some, const double[::1] wanted,
):
    """The first place in some groups whose mass reaches a number, or the group's row count.

    Args:
        starts, exact, sampled: see :func:`rank`.
        some: int64[k], groups.
        wanted: float64[k].
    """
    cdef ds_ranks ranks
    cdef int64_t n = some.shape[0]
    _same(n, wanted.shape[0])
    _same(exact.shape[0], sampled.shape[0])
    places = np.zeros(n, np.int64)
    cdef int64_t[::1] to = places
    if n and exact.shape[0]:
        ranks.starts = &starts[0]
        ranks.exact, ranks.sampled = <double *> &exact[0], <double *> &sampled[0]
        with nogil:
            kernels.reach(&ranks, &some[0], &wanted[0], n, &to[0])
    return places
