"""The kernels of the integral sketch, `admission.c`, `compaction.c` and `strata.c`, over NumPy
columns."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from decaysketch.minhit._native cimport Hash, ds_hash

cdef extern from "core/table.h" nogil:
    int ds_table_bits(int64_t slots)

cdef extern from "core/observations.h" nogil:
    ctypedef struct ds_observations:
        int64_t rows
        const int64_t *values
        const int64_t *weights
        const int64_t *times
        const int64_t *ids
        int float_bits

    ctypedef struct ds_bounds:
        int64_t max_weight, id_limit

cdef extern from "integral/events.h" nogil:
    enum:
        DS_STEP_BITS

    ctypedef struct ds_decay:
        int64_t steps
        const int64_t *ages
        const int64_t *numerators
        const int64_t *denominators
        const int64_t *values
        const int64_t *losses
        const int64_t *caps
        const double *rounded
        const int32_t *guesses
        const int64_t *offsets
        int64_t shift, first, halvings, wide

    ctypedef struct ds_bag:
        int64_t rows, event_count, row_room, event_room, met, live
        int64_t *values
        int64_t *weights
        int64_t *times
        int64_t *ids
        int64_t *first
        uint32_t *events

cdef extern from "integral/admission.h" nogil:
    enum:
        DS_ADMITTED
        DS_ADMITTED_EVENTS

    ctypedef struct ds_integral_admission_kernels:
        int64_t (*admit)(
            const ds_hash *, const ds_decay *, const ds_observations *, int64_t, int64_t,
            const int64_t *, ds_bag *, int64_t *
        ) noexcept nogil
        int (*validate)(const ds_observations *, const ds_bounds *, int64_t *) noexcept nogil

    const ds_integral_admission_kernels *ds_integral_admission_at(int level)
    int ds_level()

cdef extern from "integral/compaction.h" nogil:
    ctypedef struct ds_entry:
        pass

    ctypedef struct ds_replaced:
        uint64_t other, any
        int64_t rows

    ctypedef struct ds_integral_compaction_scratch:
        uint8_t *fates
        uint32_t *slots
        ds_entry *entries[2]
        ds_replaced *replaced

    ctypedef struct ds_integral_compaction_kernels:
        void (*compact)(
            const ds_decay *, ds_bag *, int64_t, int64_t, uint64_t,
            const ds_integral_compaction_scratch *, int64_t *, int64_t
        ) noexcept nogil
        void (*append_alive)(const ds_decay *, const ds_bag *, const int64_t *, ds_bag *) noexcept nogil
        void (*held_by_level)(
            const ds_decay *, const ds_bag *, const int64_t *, int64_t *, int64_t *
        ) noexcept nogil

    const ds_integral_compaction_kernels *ds_integral_compaction_at(int level)

cdef extern from "integral/strata.h" nogil:
    ctypedef struct ds_strata_kernels:
        int64_t (*stratum)(
            const ds_decay *, const int64_t *, const int64_t *, int64_t, int64_t, int64_t *,
            int64_t *, int64_t *, int64_t *
        ) noexcept nogil

    const ds_strata_kernels *ds_strata_at(int level)

cdef const ds_integral_admission_kernels *admission = ds_integral_admission_at(ds_level())
cdef const ds_integral_compaction_kernels *compaction = ds_integral_compaction_at(ds_level())
cdef const ds_strata_kernels *strata = ds_strata_at(ds_level())

STEP_BITS = DS_STEP_BITS
ADMITTED_ROWS = DS_ADMITTED
ADMITTED_EVENTS = DS_ADMITTED_EVENTS


cdef int64_t _same(int64_t first, int64_t second) except -1:
    if first != second:
        raise ValueError(f"columns of {first} and {second} rows")
    return first


cdef class Decay:
    """What the kernels need of one decay, see `tables.py`. Immutable."""

    cdef ds_decay c
    cdef const int64_t[::1] ages, numerators, denominators, offsets, losses, caps
    cdef const int64_t[:, ::1] values
    cdef const double[::1] rounded
    cdef const int32_t[::1] guesses

    def __cinit__(
        self, *, const int64_t[::1] ages, const int64_t[::1] numerators,
        const int64_t[::1] denominators, const int64_t[:, ::1] values,
        const double[::1] rounded, const int32_t[::1] guesses, const int64_t[::1] offsets,
        int64_t shift, int64_t first, int64_t halvings, bint wide,
        const int64_t[::1] losses=None, const int64_t[::1] caps=None,
    ):
        cdef int64_t steps = ages.shape[0]
        if steps < 2 or steps > 1 << DS_STEP_BITS:
            raise ValueError(f"{steps} steps; expected 2 to {1 << DS_STEP_BITS}")
        if losses is not None:
            _same(_same(steps, losses.shape[0]), caps.shape[0])
        elif values is None:
            _same(_same(steps, numerators.shape[0]), denominators.shape[0])
        else:
            _same(_same(steps, values.shape[1]), steps)
            _same(values.shape[0], offsets.shape[0])
        if guesses.shape[0] < 1 or not 0 <= shift < 64 or not 0 <= halvings < 32:
            raise ValueError(f"{guesses.shape[0]} guesses, shift {shift}, {halvings} halvings")
        self.ages, self.numerators, self.denominators = ages, numerators, denominators
        self.values, self.rounded, self.guesses, self.offsets = values, rounded, guesses, offsets
        self.c.steps, self.c.ages, self.c.guesses = steps, &ages[0], &guesses[0]
        self.c.shift, self.c.first, self.c.halvings, self.c.wide = shift, first, halvings, wide
        self.losses, self.caps = losses, caps
        if losses is not None:
            self.c.losses, self.c.caps = &losses[0], &caps[0]
        elif values is None:
            self.c.numerators, self.c.denominators = &numerators[0], &denominators[0]
            self.c.rounded = &rounded[0]
        else:
            self.c.values, self.c.offsets = &values[0, 0], &offsets[0]


cdef class Room:
    """The columns of a bag, and how many rows and events it has in them; what compaction has learned
    of those of a room ``before`` it."""

    cdef ds_bag c
    cdef int64_t[::1] values, weights, times, ids, first
    cdef uint32_t[::1] events

    def __cinit__(
        self, int64_t[::1] values, int64_t[::1] weights, int64_t[::1] times, int64_t[::1] ids,
        int64_t[::1] first, uint32_t[::1] events, int64_t rows=0, int64_t event_count=0,
        Room before=None,
    ):
        cdef int64_t room = _same(_same(values.shape[0], weights.shape[0]), times.shape[0])
        _same(_same(room, ids.shape[0]), first.shape[0] - 1)
        if not (0 <= rows <= room and 0 <= event_count <= events.shape[0]):
            raise ValueError(f"{rows} rows, {event_count} events; room for {room}")
        self.values, self.weights, self.times, self.ids = values, weights, times, ids
        self.first, self.events = first, events
        self.c.row_room, self.c.event_room = room, events.shape[0]
        self.c.rows, self.c.event_count = rows, event_count
        if room:
            self.c.values, self.c.weights = &values[0], &weights[0]
            self.c.times, self.c.ids = &times[0], &ids[0]
        if events.shape[0]:
            self.c.events = &events[0]
        self.c.first = &first[0]
        if rows == 0:
            first[0] = 0
        if before is not None:
            self.c.met, self.c.live = before.c.met, before.c.live

    @property
    def rows(self):
        return self.c.rows

    @property
    def event_count(self):
        return self.c.event_count


cdef class Batch:
    """Columns of observations as they were given. Values are value keys, or float64 numbers."""

    cdef ds_observations c
    cdef const int64_t[::1] values, weights, times, ids
    cdef const double[::1] floats

    def __cinit__(
        self, values, const int64_t[::1] weights, const int64_t[::1] times,
        const int64_t[::1] ids,
    ):
        cdef int64_t n = _same(_same(ids.shape[0], weights.shape[0]), times.shape[0])
        self.c.float_bits = values.dtype.kind == "f"
        if self.c.float_bits:
            self.floats = values
            _same(n, self.floats.shape[0])
        else:
            self.values = values
            _same(n, self.values.shape[0])
        self.weights, self.times, self.ids = weights, times, ids
        self.c.rows = n
        if n:
            self.c.weights, self.c.times, self.c.ids = &weights[0], &times[0], &ids[0]
            if self.c.float_bits:
                self.c.values = <const int64_t *> &self.floats[0]
            else:
                self.c.values = &self.values[0]

    def __len__(self):
        return self.c.rows

    def check(self, int64_t max_weight, int64_t id_limit):
        """The number of rows of weight 0, or -1 where a row is out of bounds."""
        cdef ds_bounds bounds = ds_bounds(max_weight, id_limit)
        cdef int64_t zero_weight = 0
        cdef bint within
        with nogil:
            within = admission.validate(&self.c, &bounds, &zero_weight)
        return zero_weight if within else -1


def admit(
    Hash hash not None, Decay decay not None, Room to not None, const int64_t[::1] marks,
    int64_t clock, Batch batch not None, int64_t start,
):
    """Append the rows of a batch in bounds from ``start`` on that some watermark leaves alive,
    while there is room for ADMITTED_ROWS more and ADMITTED_EVENTS. Returns (first row not done,
    rows that were expired at the clock)."""
    cdef int64_t expired = 0
    _same(hash.c.top + 1, marks.shape[0])
    if 0 <= start < batch.c.rows:
        with nogil:
            start = admission.admit(
                &hash.c, &decay.c, &batch.c, start, clock, &marks[0], &to.c, &expired
            )
    return start, expired


def compact(
    Decay decay not None, Room room not None, int64_t[::1] marks, int64_t max_weight,
    int64_t capacity, uint64_t salt, uint8_t[::1] fates, uint32_t[::1] slots,
    uint64_t[:, ::1] entries, uint64_t far_other, uint64_t far_any,
):
    """Drop copies, raise the watermarks to what the capacity allows, and drop what they do not
    leave alive. Working memory: for each row a fate and two slots, rounded up to a power of two;
    two entries for each event. Returns how many readings a later one of their identity replaced,
    further apart than the last arguments say (``core/replaced.h``)."""
    cdef int64_t rows = room.c.rows, levels = marks.shape[0]
    cdef ds_integral_compaction_scratch scratch
    cdef ds_replaced replaced = ds_replaced(far_other, far_any, 0)
    if rows == 0:
        return 0
    if (
        fates.shape[0] < rows or slots.shape[0] < 1 << ds_table_bits(2 * rows)
        or entries.shape[0] != 2 or entries.shape[1] < room.c.event_count
    ):
        raise ValueError(f"{rows} rows, {room.c.event_count} events; expected memory for as many")
    scratch.fates, scratch.slots, scratch.replaced = &fates[0], &slots[0], &replaced
    scratch.entries[0], scratch.entries[1] = <ds_entry *> &entries[0, 0], <ds_entry *> &entries[1, 0]
    with nogil:
        compaction.compact(
            &decay.c, &room.c, max_weight, capacity, salt, &scratch, &marks[0], levels
        )
    return replaced.rows


def append_alive(Decay decay not None, Room room not None, const int64_t[::1] marks, Room to not None):
    """Append the rows and events of another bag that the watermarks leave alive."""
    if (
        to.c.rows + room.c.rows > to.c.row_room
        or to.c.event_count + room.c.event_count >= to.c.event_room
    ):
        raise ValueError("no room for as many rows and events")
    with nogil:
        compaction.append_alive(&decay.c, &room.c, &marks[0], &to.c)


def held_by_level(
    Decay decay not None, Room room not None, const int64_t[::1] marks, int64_t[::1] later,
    int64_t[::1] tied,
):
    """Of every level, rows that expire later than its watermark, and rows that expire exactly then
    both at that level and at the next."""
    _same(_same(marks.shape[0], later.shape[0]), tied.shape[0])
    with nogil:
        compaction.held_by_level(&decay.c, &room.c, &marks[0], &later[0], &tied[0])


def stratum(
    Decay decay not None, const int64_t[::1] weights, const int64_t[::1] times, int64_t until,
    int64_t[::1] seen, int64_t[::1] rows, int64_t[::1] lows, int64_t[::1] highs,
):
    """Integers of each observation that are left at the time ``until`` and were not seen before.

    ``seen[k]`` of an observation's integers were seen, and is raised. Times are <= ``until``.
    Returns the number of observations that have any; ``rows`` says which, the integers are those
    from ``lows`` to before ``highs``, all with room for one to spare."""
    cdef int64_t n = _same(_same(weights.shape[0], times.shape[0]), seen.shape[0])
    cdef int64_t found = 0
    if n >= min(rows.shape[0], lows.shape[0], highs.shape[0]):
        raise ValueError(f"{n} rows; expected less than there is room for")
    if n:
        with nogil:
            found = strata.stratum(
                &decay.c, &weights[0], &times[0], n, until, &seen[0], &rows[0], &lows[0], &highs[0]
            )
    return found
