"""The kernels of the sketch of extremes, `staircase.c`, over NumPy columns."""

from libc.stdint cimport int64_t

cdef extern from "<stdbool.h>" nogil:
    ctypedef bint bool

cdef extern from "extremes/extremes.h" nogil:
    ctypedef struct ds_steps:
        int64_t *times
        int64_t *keys

    ctypedef struct ds_readings:
        const int64_t *values
        const int64_t *weights
        const int64_t *times
        const int64_t *ids
        int64_t rows
        bool float_values

    ctypedef struct ds_reading_limits:
        int64_t max_weight, last_id, time_limit

    ctypedef enum ds_read_outcome:
        DS_READ_IN_ORDER
        DS_READ
        DS_READ_REFUSED

    ctypedef struct ds_extremes_kernels:
        ds_read_outcome (*read)(
            const ds_readings *, const ds_reading_limits *, int64_t *
        ) noexcept nogil
        int64_t (*climb)(
            const ds_steps *, int64_t, const int64_t *, const int64_t *, int64_t, bool,
            const ds_steps *
        ) noexcept nogil
        int64_t (*thin)(const ds_steps *, int64_t, int64_t, int64_t) noexcept nogil
        int64_t (*end_of_span)(int64_t, int64_t, int64_t) noexcept nogil

    const ds_extremes_kernels *ds_extremes_at(int level)
    int ds_level()

cdef const ds_extremes_kernels *kernels = ds_extremes_at(ds_level())

IN_ORDER = DS_READ_IN_ORDER
REFUSED = DS_READ_REFUSED


cdef class Limits:
    """What all rows of a stream keep to. Immutable."""

    cdef ds_reading_limits c

    def __cinit__(self, *, int64_t max_weight, int64_t last_id, int64_t time_limit):
        self.c = ds_reading_limits(max_weight, last_id, time_limit)


cdef const int64_t *_column(const int64_t[::1] column, int64_t rows) except? NULL:
    if column.shape[0] != rows:
        raise ValueError(f"columns of {column.shape[0]} and {rows} rows")
    return &column[0] if rows else NULL


def read(
    Limits limits, const int64_t[::1] values, bint float_values, const int64_t[::1] weights,
    const int64_t[::1] times, const int64_t[::1] ids, int64_t[::1] keys,
):
    """Check rows, and write the keys of their values; IN_ORDER, REFUSED, or else.

    Values are int64, or the bits of float64; weights and ids may be None, and weights are 1 then.
    """
    cdef int64_t n = times.shape[0]
    cdef ds_readings c
    cdef int64_t *to = <int64_t *> _column(keys, n)
    c.rows, c.float_values = n, float_values
    c.times, c.values = _column(times, n), _column(values, n)
    c.weights = NULL if weights is None else _column(weights, n)
    c.ids = NULL if ids is None else _column(ids, n)
    cdef ds_read_outcome outcome
    with nogil:
        outcome = kernels.read(&c, &limits.c, to)
    return outcome


cdef ds_steps _steps(int64_t[::1] times, int64_t[::1] keys, int64_t rows) except *:
    cdef ds_steps c = ds_steps(NULL, NULL)
    if times.shape[0] != keys.shape[0] or not 0 <= rows <= times.shape[0]:
        raise ValueError(f"{rows} steps in columns of {times.shape[0]} and {keys.shape[0]}")
    if times.shape[0]:
        c.times, c.keys = &times[0], &keys[0]
    return c


def climb(
    int64_t[::1] times, int64_t[::1] keys, int64_t held, const int64_t[::1] row_times,
    const int64_t[::1] row_keys, bint turned, int64_t[::1] spare_times, int64_t[::1] spare_keys,
):
    """Take rows whose times do not fall into a staircase; how many steps it has then.

    There is room for all rows behind the steps, and for both together in the spare columns.
    """
    cdef int64_t n = row_times.shape[0]
    cdef ds_steps stairs = _steps(times, keys, held)
    cdef ds_steps spare = _steps(spare_times, spare_keys, held + n)
    cdef const int64_t *of_times = _column(row_times, n)
    cdef const int64_t *of_keys = _column(row_keys, n)
    if held + n > times.shape[0]:
        raise ValueError(f"{held} steps and {n} rows in columns of {times.shape[0]}")
    with nogil:
        held = kernels.climb(&stairs, held, of_times, of_keys, n, turned, &spare)
    return held


def thin(int64_t[::1] times, int64_t[::1] keys, int64_t held, int64_t newest, int64_t spans):
    """Keep one step of each span; how many are left. No step is later than ``newest``."""
    cdef ds_steps stairs = _steps(times, keys, held)
    if spans < 1:
        raise ValueError(f"{spans} spans")
    with nogil:
        held = kernels.thin(&stairs, held, newest, spans)
    return held


def end_of_span(int64_t time, int64_t newest, int64_t spans):
    """The last instant of the span that a time lies in, which is not later than ``newest``."""
    if spans < 1 or time > newest:
        raise ValueError(f"time {time} as of {newest}, {spans} spans")
    return kernels.end_of_span(time, newest, spans)
