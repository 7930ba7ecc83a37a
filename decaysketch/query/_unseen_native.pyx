"""Kernels for the times that no row shows: lengths are checked, values are not."""

from libc.stdint cimport int64_t, uint64_t

import numpy as np

cdef enum:
    PARTS = 8


cdef inline bint _is_steep(double start, double stop, double hit, double least) noexcept nogil:
    return (stop - start) * hit > least


def divided(
    const int64_t[:, ::1] times, const double[:, :, ::1] values, const double[::1] hits,
    const int64_t[::1] grid, const double[:, ::1] least,
):
    """Divide the cells in which a hit changes by more than its grid's ``least`` on either side.

    A cell lies between neighbouring times in a row. A cell of one time unit is not divided.

    Args:
        times: int64[k, m], rising in each row.
        values: float64[2, k, m], decay weights on either side.
        hits: float64[k], the mass of a hit in each row.
        grid: int64[k], the grid of each row, below g.
        least: float64[2, g].

    Returns:
        (times, values, hits, grid, new): a row for each divided cell, with the times that divide it
        into about eight parts: int64[c, 9], float64[2, c, 9] without the values in between,
        float64[c] and int64[c]. Where a cell has fewer times, the last ones are its end. int64[g]
        counts the others in between.
    """
    cdef int64_t rows = times.shape[0], cells = times.shape[1] - 1, count = 0, k, c, p
    cdef int64_t start, stop
    cdef uint64_t width, step, offset
    cdef int side
    if values.shape[0] != 2 or values.shape[1] != rows or values.shape[2] != cells + 1:
        raise ValueError(f"{rows} rows of {cells + 1} times, and other values")
    if not hits.shape[0] == grid.shape[0] == rows or least.shape[0] != 2:
        raise ValueError(f"{hits.shape[0]} hits in {grid.shape[0]} grids for {rows} rows")
    chosen, new = np.empty((rows * cells, 2), np.int64), np.zeros(least.shape[1], np.int64)
    cdef int64_t[:, ::1] at = chosen
    cdef int64_t[::1] counts = new
    with nogil:
        for k in range(rows):
            for c in range(cells):
                if times[k, c + 1] - times[k, c] != 1 and (
                    _is_steep(values[0, k, c], values[0, k, c + 1], hits[k], least[0, grid[k]])
                    or _is_steep(values[1, k, c], values[1, k, c + 1], hits[k], least[1, grid[k]])
                ):
                    at[count, 0], at[count, 1] = k, c
                    count += 1
    found = (
        np.empty((count, PARTS + 1), np.int64), np.empty((2, count, PARTS + 1)), np.empty(count),
        np.empty(count, np.int64),
    )  # fmt: skip
    cdef int64_t[:, ::1] parts = found[0]
    cdef double[:, :, ::1] weights = found[1]
    cdef double[::1] masses = found[2]
    cdef int64_t[::1] grids = found[3]
    with nogil:
        for p in range(count):
            k, c = at[p, 0], at[p, 1]
            start, stop, masses[p], grids[p] = times[k, c], times[k, c + 1], hits[k], grid[k]
            width = <uint64_t> stop - <uint64_t> start  # up to 2^63
            step = width // PARTS if width > PARTS else 1
            for side in range(2):
                weights[side, p, 0] = values[side, k, c]
                weights[side, p, PARTS] = values[side, k, c + 1]
            parts[p, 0], parts[p, PARTS] = start, stop
            for c in range(1, PARTS):
                offset = step * <uint64_t> c
                counts[grids[p]] += offset < width
                parts[p, c] = <int64_t> (<uint64_t> start + (offset if offset < width else width))
    return (*found, new)


def widths(
    const int64_t[::1] times, const int64_t[::1] first, const int64_t[::1] last,
    const double[::1] seen,
):
    """The chance to see a row between neighbouring times, summed over bands.

    Args:
        times: int64[n], rising.
        first, last: int64[b], the earliest and the latest time in each band.
        seen: float64[b], the chance at each of its times.

    Returns:
        float64[n + 1]: up to the first time, between each time and the next (without the former,
        with the latter), and from the last time on.
    """
    cdef int64_t n = times.shape[0], band, low, high, middle, until, before
    if not first.shape[0] == last.shape[0] == seen.shape[0]:
        raise ValueError(f"columns of {first.shape[0]} and other bands")
    found = np.zeros(n + 1)
    cdef double[::1] to = found
    with nogil:
        for band in range(first.shape[0]):
            low, high = 0, n  # the first time not before the band
            while low < high:
                middle = (low + high) // 2
                if times[middle] < first[band]:
                    low = middle + 1
                else:
                    high = middle
            before = first[band] - 1
            while before < last[band]:
                until = times[low] if low < n and times[low] < last[band] else last[band]
                to[low] += <double> (<uint64_t> until - <uint64_t> before) * seen[band]
                before, low = until, low + 1
    return found
