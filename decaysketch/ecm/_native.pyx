"""The kernels of the ECM-sketch's cells over NumPy columns: `columns.c`, `updates.c`, `windows.c`,
`merges.c`, `lanes.c`."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "<stdbool.h>" nogil:
    ctypedef bint bool

cdef extern from "ecm/cells.h" nogil:
    enum:
        DS_ECM_MOST_ROWS
        DS_ECM_CHUNK

    const int64_t DS_ECM_LIMIT

    ctypedef struct ds_ecm_layer:
        const uint64_t *a
        const uint64_t *b
        int64_t depth, width, shift
        bool hashed

    ctypedef struct ds_ecm_cells:
        int64_t *n
        void *times
        int64_t cells, levels, slots, base
        bool wide, histogram

    ctypedef struct ds_ecm_lists:
        int64_t *ranks
        int64_t *times
        int64_t *offsets

    ctypedef struct ds_ecm_groups:
        uint32_t *cells
        uint16_t *events
        int64_t *sums
        int64_t *starts

    ctypedef struct ds_ecm_source:
        const int64_t *n
        ds_ecm_lists lists
        int64_t first, inaccuracy

    ctypedef struct ds_ecm_piece:
        pass

    ctypedef struct ds_ecm_column_kernels:
        void (*columns)(
            const ds_ecm_layer *, const uint64_t *, int64_t, uint32_t *
        ) noexcept nogil
        uint64_t (*highest)(const uint64_t *, int64_t, int64_t) noexcept nogil
        void (*minimum)(
            const ds_ecm_layer *, const double *, const uint64_t *, int64_t, double *
        ) noexcept nogil
        void (*minimum_of_counts)(
            const ds_ecm_layer *, const int64_t *, const uint64_t *, int64_t, int64_t *
        ) noexcept nogil

    ctypedef struct ds_ecm_update_kernels:
        int64_t (*total)(const int64_t *, int64_t) noexcept nogil
        int64_t (*heaviest)(
            const ds_ecm_layer *, const ds_ecm_cells *, const uint64_t *, const int64_t *, int64_t,
            int64_t *
        ) noexcept nogil
        void (*update)(
            const ds_ecm_layer *, const ds_ecm_cells *, const uint64_t *, const int64_t *,
            const int64_t *, int64_t, const ds_ecm_groups *
        ) noexcept nogil

    ctypedef struct ds_ecm_window_kernels:
        void (*grid)(const ds_ecm_cells *, int64_t, int64_t *, int64_t *) noexcept nogil
        void (*values)(
            const ds_ecm_cells *, int64_t, int64_t, double, double *
        ) noexcept nogil
        void (*kept)(const int64_t *, int64_t, int64_t, bool, int64_t *) noexcept nogil
        void (*write)(const ds_ecm_cells *, const ds_ecm_lists *) noexcept nogil
        bool (*restore)(const ds_ecm_cells *, const int64_t *, int64_t, int64_t) noexcept nogil
        void (*each)(
            const ds_ecm_layer *, const int64_t *, const ds_ecm_lists *, const uint64_t *,
            const int64_t *, int64_t, int64_t, int64_t *, int64_t *
        ) noexcept nogil
        void (*decayed)(
            const ds_ecm_lists *, const double *, int64_t, int64_t, int64_t, double, double *,
            double *
        ) noexcept nogil

    ctypedef struct ds_ecm_merge_kernels:
        void (*compact)(
            const ds_ecm_cells *, const ds_ecm_source *, int64_t, int64_t, ds_ecm_piece *, int64_t,
            int64_t *
        ) noexcept nogil

    const ds_ecm_column_kernels *ds_ecm_columns_at(int level)
    const ds_ecm_update_kernels *ds_ecm_updates_at(int level)
    const ds_ecm_window_kernels *ds_ecm_windows_at(int level)
    const ds_ecm_merge_kernels *ds_ecm_merges_at(int level)
    int ds_level()

cdef extern from "ecm/lanes.h" nogil:
    ctypedef struct ds_ecm_shape:
        const int64_t *width
        const int64_t *depth
        const int64_t *slots
        int64_t layers, cells
        bool histogram, has_horizon, arrivals

    ctypedef struct ds_ecm_span:
        int64_t first, last, edge

    ctypedef struct ds_ecm_extent:
        int64_t bytes, times, memory

    ctypedef struct ds_ecm_lane_kernels:
        int64_t (*pack)(const uint64_t *, int64_t, uint8_t *) noexcept nogil
        int64_t (*column)(const uint8_t *, int64_t, int64_t, uint64_t *) noexcept nogil
        bool (*measure)(
            const ds_ecm_shape *, const uint8_t *, int64_t, int64_t, int64_t *, ds_ecm_extent *
        ) noexcept nogil
        bool (*read)(
            const ds_ecm_shape *, const uint8_t *, int64_t, const ds_ecm_span *, int64_t, int64_t *
        ) noexcept nogil

    const ds_ecm_lane_kernels *ds_ecm_lanes_at(int level)
    int64_t ds_ecm_packed_room(int64_t count)

cdef const ds_ecm_column_kernels *of_columns = ds_ecm_columns_at(ds_level())
cdef const ds_ecm_update_kernels *of_updates = ds_ecm_updates_at(ds_level())
cdef const ds_ecm_window_kernels *of_windows = ds_ecm_windows_at(ds_level())
cdef const ds_ecm_merge_kernels *of_merges = ds_ecm_merges_at(ds_level())
cdef const ds_ecm_lane_kernels *of_lanes = ds_ecm_lanes_at(ds_level())

MOST_ROWS = DS_ECM_MOST_ROWS
LIMIT = DS_ECM_LIMIT


cdef class Columns:
    """Columns of words in the rows of a layer. Immutable."""

    cdef ds_ecm_layer c
    cdef const uint64_t[::1] a, b

    def __cinit__(
        self, const uint64_t[::1] a, const uint64_t[::1] b, int64_t width, int64_t shift,
        bint hashed,
    ):
        cdef int64_t depth = _rows(a.shape[0], b.shape[0])
        if not 1 <= depth <= DS_ECM_MOST_ROWS or not 1 <= width <= 0xFFFFFFFF // DS_ECM_MOST_ROWS:
            raise ValueError(f"{depth} rows of {width} columns")
        if not 0 <= shift <= 64 or not (hashed or depth == 1):
            raise ValueError(f"a shift of {shift}, and {depth} rows")
        self.a, self.b = a, b
        self.c = ds_ecm_layer(&a[0], &b[0], depth, width, shift, hashed)


cdef class Counters:
    """Cells: how many ones each has counted, and the times of those that it keeps.

    `n` and `times` are written by kernels, and belong to whoever made them: int64[cells], and
    uint32[levels, cells, slots] of times less `base`, or int64 of times.
    """

    cdef ds_ecm_cells c
    cdef int64_t[::1] n
    cdef uint32_t[:, :, ::1] narrow
    cdef int64_t[:, :, ::1] wide

    def __cinit__(self, int64_t[::1] n, times, int64_t base, bint histogram):
        cdef void *at = NULL
        self.n = n
        levels, cells, slots = times.shape
        _rows(n.shape[0], cells)
        if not 1 <= levels <= 63 or not 1 <= cells < 1 << 32 or not 2 <= slots < 1 << 32:
            raise ValueError(f"{levels} levels of {cells} cells of {slots} slots")
        is_wide = times.dtype.itemsize == 8
        if is_wide:
            self.wide = times
            at = &self.wide[0, 0, 0]
        else:
            self.narrow = times
            at = &self.narrow[0, 0, 0]
        if is_wide and base:
            raise ValueError(f"wide times have the base 0, not {base}")
        self.c = ds_ecm_cells(&n[0], at, cells, levels, slots, base, is_wide, histogram)


cdef class Lists:
    """Kept ranks and times, newest first in each cell, and where those of each cell begin. Immutable.
    """

    cdef ds_ecm_lists c
    cdef readonly object ranks, times, offsets
    cdef int64_t cells, count

    def __cinit__(self, ranks, times, offsets):
        cdef const int64_t[::1] r = ranks, t = times, o = offsets
        cdef int64_t k
        self.count = _rows(r.shape[0], t.shape[0])
        self.cells = o.shape[0] - 1
        if self.cells < 0 or o[0] != 0 or o[self.cells] != self.count:
            raise ValueError(f"{o.shape[0]} offsets of lists of {self.count} ranks")
        for k in range(self.cells):
            if o[k] > o[k + 1]:
                raise ValueError(f"offset {k} is {o[k]}, and the next one {o[k + 1]}")
        self.ranks, self.times, self.offsets = ranks, times, offsets
        self.c.offsets = <int64_t *> &o[0]
        self.c.ranks = <int64_t *> &r[0] if self.count else NULL
        self.c.times = <int64_t *> &t[0] if self.count else NULL


cdef int64_t _rows(int64_t first, int64_t second) except -1:
    if first != second:
        raise ValueError(f"columns of {first} and {second} rows")
    return first


cdef int _check_words(Columns of, const uint64_t[::1] words) except -1:
    """Words of a layer that does not hash them have columns of it."""
    cdef uint64_t highest
    if not of.c.hashed and words.shape[0]:
        with nogil:
            highest = of_columns.highest(&words[0], words.shape[0], of.c.shift)
        if highest >= <uint64_t> of.c.width:
            raise ValueError(f"a word has column {highest} of {of.c.width}")
    return 0


cdef int _check_cells(Columns of, Counters counters) except -1:
    _rows(of.c.depth * of.c.width, counters.c.cells)


cdef int64_t _check_grid(Counters counters, int64_t size) except -1:
    return _rows(counters.c.cells, size)


def columns(Columns of not None, const uint64_t[::1] words, uint32_t[:, ::1] out):
    """out[r, k] = column of words[k] in row r."""
    cdef int64_t n = _rows(words.shape[0], out.shape[1])
    _rows(of.c.depth, out.shape[0])
    _check_words(of, words)
    if n:
        with nogil:
            of_columns.columns(&of.c, &words[0], n, &out[0, 0])


def minimum(
    Columns of not None, const double[:, ::1] grid, const uint64_t[::1] words, double[::1] out
):
    """out[k] = least value of the cells of words[k]."""
    cdef int64_t n = _rows(words.shape[0], out.shape[0])
    _rows(of.c.depth, grid.shape[0])
    _rows(of.c.width, grid.shape[1])
    _check_words(of, words)
    if n:
        with nogil:
            of_columns.minimum(&of.c, &grid[0, 0], &words[0], n, &out[0])


def minimum_of_counts(
    Columns of not None, const int64_t[:, ::1] grid, const uint64_t[::1] words, int64_t[::1] out
):
    """The same of integers."""
    cdef int64_t n = _rows(words.shape[0], out.shape[0])
    _rows(of.c.depth, grid.shape[0])
    _rows(of.c.width, grid.shape[1])
    _check_words(of, words)
    if n:
        with nogil:
            of_columns.minimum_of_counts(&of.c, &grid[0, 0], &words[0], n, &out[0])


def total(const int64_t[::1] weights):
    """Sum of weights >= 0, or LIMIT if it is not below that."""
    cdef int64_t n = weights.shape[0], sum = 0
    if n:
        with nogil:
            sum = of_updates.total(&weights[0], n)
    return sum


def heaviest(
    Columns of not None, Counters counters not None, const uint64_t[::1] words,
    const int64_t[::1] weights,
):
    """The largest number of ones of a cell once these events are counted; weights None: 1 each."""
    cdef int64_t n = words.shape[0], most
    cdef const int64_t *each = NULL
    cdef int64_t *added
    _check_cells(of, counters)
    _check_words(of, words)
    if weights is not None and _rows(n, weights.shape[0]):
        each = &weights[0]
    added = <int64_t *> _memory(counters.c.cells * sizeof(int64_t))
    with nogil:
        most = of_updates.heaviest(
            &of.c, &counters.c, &words[0] if n else NULL, each, n, added
        )
    PyMem_RawFree(added)
    return most


cdef void *_memory(size_t size) except NULL:
    cdef void *memory = PyMem_RawMalloc(size)
    if memory == NULL:
        raise MemoryError(f"{size} bytes")
    return memory


def update(
    Columns of not None, Counters counters not None, const uint64_t[::1] words,
    const int64_t[::1] times, const int64_t[::1] weights, bint grouped,
):
    """Count events whose times do not fall, and for which there are levels, one by one or in groups;
    weights None: 1 each."""
    cdef int64_t n = _rows(words.shape[0], times.shape[0]), cells = counters.c.cells, start, rows
    cdef int64_t room = min(n, DS_ECM_CHUNK) * of.c.depth
    cdef const int64_t *each = NULL
    cdef ds_ecm_groups groups
    cdef char *memory
    _check_cells(of, counters)
    _check_words(of, words)
    if n == 0:
        return
    if weights is not None:
        _rows(n, weights.shape[0])
        each = &weights[0]
    if not grouped:
        with nogil:
            of_updates.update(&of.c, &counters.c, &words[0], &times[0], each, n, NULL)
        return
    memory = <char *> _memory(
        room * (sizeof(int64_t) + sizeof(uint32_t) + sizeof(uint16_t))
        + (cells + 1) * sizeof(int64_t)
    )
    groups.sums = <int64_t *> memory
    groups.starts = groups.sums + room
    groups.cells = <uint32_t *> (groups.starts + cells + 1)
    groups.events = <uint16_t *> (groups.cells + room)
    with nogil:
        start = 0
        while start < n:
            rows = min(n - start, DS_ECM_CHUNK)
            of_updates.update(
                &of.c, &counters.c, &words[start], &times[start],
                NULL if each == NULL else each + start, rows, &groups,
            )
            start += rows
    PyMem_RawFree(memory)


def grid(Counters counters not None, int64_t start, int64_t[::1] lo, int64_t[::1] hi):
    """Sure bounds of the ones of each cell with a time of `start` or later."""
    _check_grid(counters, _rows(lo.shape[0], hi.shape[0]))
    with nogil:
        of_windows.grid(&counters.c, start, &lo[0], &hi[0])


def values(
    Counters counters not None, int64_t start, int64_t first, double error, double[::1] out
):
    """An estimate of each."""
    _check_grid(counters, out.shape[0])
    with nogil:
        of_windows.values(&counters.c, start, first, error, &out[0])


def kept(const int64_t[::1] n, int64_t slots, bint histogram, int64_t[::1] counts):
    """counts[k] = number of ranks that are kept of a cell of n[k] ones, each below LIMIT."""
    cdef int64_t cells = _rows(n.shape[0], counts.shape[0]), k
    if not 2 <= slots < 1 << 32:
        raise ValueError(f"{slots} slots")
    for k in range(cells):
        if not 0 <= n[k] < DS_ECM_LIMIT:
            raise ValueError(f"a cell of {n[k]} ones")
    if cells:
        with nogil:
            of_windows.kept(&n[0], cells, slots, histogram, &counts[0])


cdef int64_t _count_kept(Counters counters, int64_t[::1] counts) except -1:
    """Ranks that all cells keep; fills the numbers of each, which there is room for."""
    cdef int64_t cell, all = 0
    with nogil:
        of_windows.kept(
            counters.c.n, counters.c.cells, counters.c.slots, counters.c.histogram, &counts[0]
        )
        for cell in range(counters.c.cells):
            all += counts[cell]
    return all


def write(
    Counters counters not None, int64_t[::1] ranks, int64_t[::1] times, int64_t[::1] offsets
):
    """Fill lists with what is kept: as many ranks as that are."""
    cdef ds_ecm_lists lists
    _rows(counters.c.cells + 1, offsets.shape[0])
    cdef int64_t count = _rows(_count_kept(counters, offsets), ranks.shape[0])
    if not _rows(count, times.shape[0]):
        offsets[:] = 0
        return
    lists = ds_ecm_lists(&ranks[0], &times[0], &offsets[0])
    with nogil:
        of_windows.write(&counters.c, &lists)


def restore(
    Counters counters not None, const int64_t[::1] times, int64_t[::1] counts, int64_t first,
    int64_t last,
):
    """Fill cells, which have n, with the times that they keep: whether those of each cell are in
    order, newest first, from `last` down to `first`. `counts` is room for a number of each cell."""
    cdef bint good = True
    _check_grid(counters, counts.shape[0])
    if _rows(_count_kept(counters, counts), times.shape[0]):
        with nogil:
            good = of_windows.restore(&counters.c, &times[0], first, last)
    return good


def each(
    Columns of not None, const int64_t[::1] n, Lists lists not None, const uint64_t[::1] words,
    const int64_t[::1] starts, int64_t first, int64_t[::1] lo, int64_t[::1] hi,
):
    """Least bounds of the rows of each word, with a start of its own."""
    cdef int64_t count = _rows(words.shape[0], starts.shape[0])
    _rows(_rows(of.c.depth * of.c.width, n.shape[0]), lists.cells)
    _check_words(of, words)
    if _rows(count, _rows(lo.shape[0], hi.shape[0])):
        with nogil:
            of_windows.each(
                &of.c, &n[0], &lists.c, &words[0], &starts[0], count, first, &lo[0], &hi[0]
            )


def decayed(
    Lists lists not None, const double[::1] weights, int64_t now, int64_t first, double oldest,
    double[::1] lo, double[::1] hi,
):
    """Bounds of the decayed ones of each cell; weights[k] is that of times[k] at `now`, or at age 0
    if it is later, and `oldest` that of `first`."""
    _rows(lists.count, weights.shape[0])
    if _rows(lists.cells, _rows(lo.shape[0], hi.shape[0])):
        with nogil:
            of_windows.decayed(
                &lists.c, &weights[0] if lists.count else NULL, lists.cells, now, first, oldest,
                &lo[0], &hi[0],
            )


def compact(Counters counters not None, sources, int64_t steps):
    """Fill cells, which have n, with what sources (n, lists, first, inaccuracy) have together."""
    cdef int64_t count = len(sources), cells = counters.c.cells, room = 0, all, k, cell
    cdef ds_ecm_source *of
    cdef ds_ecm_piece *pieces = NULL
    cdef int64_t *ends = NULL
    cdef int64_t[::1] n
    cdef Lists lists
    if not 0 <= steps <= 1 << 16:
        raise ValueError(f"{steps} steps")
    of = <ds_ecm_source *> _memory((count + 1) * sizeof(ds_ecm_source))
    try:
        for k, (numbers, given, first, inaccuracy) in enumerate(sources):
            n, lists = numbers, given
            if inaccuracy < 1:
                raise ValueError(f"an inaccuracy of {inaccuracy}")
            _rows(cells, _rows(n.shape[0], lists.cells))
            of[k] = ds_ecm_source(&n[0], lists.c, first, inaccuracy)
        for cell in range(cells):
            all = 0
            for k in range(count):
                all += of[k].lists.offsets[cell + 1] - of[k].lists.offsets[cell]
            room = max(room, all)
        room = room * (steps + 2) + 1
        pieces = <ds_ecm_piece *> _memory(2 * room * sizeof(ds_ecm_piece))
        ends = <int64_t *> _memory((count + 2) * sizeof(int64_t))
        with nogil:
            of_merges.compact(&counters.c, of, count, steps, pieces, room, ends)
    finally:
        PyMem_RawFree(ends)
        PyMem_RawFree(pieces)
        PyMem_RawFree(of)


cdef class Shape:
    """The layers of a stream, root first: int64[layers] each. Immutable."""

    cdef ds_ecm_shape c
    cdef const int64_t[::1] width, depth, slots

    def __cinit__(
        self, const int64_t[::1] width, const int64_t[::1] depth, const int64_t[::1] slots,
        bint histogram, bint has_horizon, bint arrivals,
    ):
        cdef int64_t layers = _rows(width.shape[0], _rows(depth.shape[0], slots.shape[0]))
        cdef int64_t cells = 0, k
        for k in range(layers):
            if not (1 <= width[k] < 1 << 32 and 1 <= depth[k] <= DS_ECM_MOST_ROWS):
                raise ValueError(f"{depth[k]} rows of {width[k]} cells")
            if not 2 <= slots[k] < 1 << 22:
                raise ValueError(f"{slots[k]} slots")
            cells += width[k] * depth[k]
        if not 1 <= layers <= 65 or width[0] != 1 or depth[0] != 1:
            raise ValueError(f"{layers} layers, of which the first is to have one cell")
        self.width, self.depth, self.slots = width, depth, slots
        self.c = ds_ecm_shape(
            &width[0], &depth[0], &slots[0], layers, cells, histogram, has_horizon, arrivals
        )

    @property
    def layers(self):
        return self.c.layers

    @property
    def cells(self):
        return self.c.cells


cdef int64_t _size_of(const uint8_t[::1] data, int64_t start, int64_t stop) except -1:
    if not 0 <= start <= stop <= data.shape[0]:
        raise ValueError(f"bytes {start} to {stop} of {data.shape[0]}")
    return stop - start


def pack_column(const uint64_t[::1] numbers):
    """The bytes of a column of numbers."""
    cdef int64_t count = numbers.shape[0], size
    cdef uint8_t *packed
    if not count:
        return b""
    packed = <uint8_t *> _memory(ds_ecm_packed_room(count))
    try:
        with nogil:
            size = of_lanes.pack(&numbers[0], count, packed)
        return PyBytes_FromStringAndSize(<const char *> packed, size)
    finally:
        PyMem_RawFree(packed)


def read_column(
    const uint8_t[::1] data not None, int64_t start, int64_t stop, uint64_t[::1] numbers
):
    """Fill a column with packed numbers; returns the end of their bytes, or -1 where they are not
    flawless."""
    cdef int64_t size = _size_of(data, start, stop), count = numbers.shape[0]
    if not count:
        return start
    if not size:
        return -1
    with nogil:
        size = of_lanes.column(&data[0] + start, size, count, &numbers[0])
    return start + size if size >= 0 else -1


def measure_lane(
    Shape shape not None, const uint8_t[::1] data not None, int64_t start, int64_t stop,
    int64_t most, int64_t[::1] room,
):
    """(bytes on the wire, times, bytes of its cells) of the lane whose layers begin at `start`; None
    where there is no such lane, or it has more than `most` times. `room` is for two numbers of each
    cell."""
    cdef int64_t size = _size_of(data, start, stop)
    cdef ds_ecm_extent found
    cdef bint good
    _rows(2 * shape.c.cells, room.shape[0])
    if not size:
        return None
    with nogil:
        good = of_lanes.measure(&shape.c, &data[0] + start, size, most, &room[0], &found)
    return (found.bytes, found.times, found.memory) if good else None


def read_lane(
    Shape shape not None, const uint8_t[::1] data not None, int64_t start, int64_t stop,
    int64_t first, int64_t last, int64_t edge, int64_t[::1] columns,
):
    """Fill the columns of a lane that was measured, and find whether all that can be said of it alone
    is right: ends of the times of each layer, n and old of each cell, times."""
    cdef ds_ecm_span span = ds_ecm_span(first, last, edge)
    cdef int64_t times = columns.shape[0] - shape.c.layers - 2 * shape.c.cells
    cdef int64_t size = _size_of(data, start, stop)
    cdef bint good
    if times < 0:
        raise ValueError(f"room for {columns.shape[0]} numbers of {shape.c.cells} cells")
    if first > last or not size:
        return False
    with nogil:
        good = of_lanes.read(&shape.c, &data[0] + start, size, &span, times, &columns[0])
    return good
