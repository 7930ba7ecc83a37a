"""The rows that a sketch holds, `rows.c`, between batches: memory, limits and watermarks."""

import threading

import numpy as np
from cpython.buffer cimport PyBUF_ND, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport INT64_MIN, int8_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from decaysketch.minhit._native cimport Hash, ds_hash

cdef extern from "core/memory.h" nogil:
    void ds_advise(void *, size_t)

cdef extern from "core/levels.h" nogil:
    int ds_level()

cdef extern from "querytime/rows.h" nogil:
    ctypedef struct ds_fact:
        pass
    ctypedef struct ds_rows:
        ds_fact *facts
        int64_t *times
        int8_t *levels
        int64_t room
    ctypedef struct ds_columns:
        int64_t *values
        int64_t *weights
        int64_t *times
        int64_t *ids
        int8_t *levels
    ctypedef struct ds_batch:
        const int64_t *values
        const int64_t *weights
        const int64_t *times
        const int64_t *ids
        int float_bits
        int64_t todo, unchecked, zero_weight
    ctypedef struct ds_bounds:
        int64_t max_weight, last_id, time_limit
    ctypedef struct ds_entry:
        pass
    ctypedef struct ds_replaced:
        uint64_t other, any
        int64_t rows
    ctypedef struct ds_scratch:
        ds_rows out
        uint32_t *words[2]
        uint32_t *slots
        uint64_t *present
        ds_entry *entries[2]
        ds_replaced replaced
    ctypedef struct ds_rows_kernels:
        int (*check)(const ds_bounds *, ds_batch *) noexcept nogil
        int (*admit)(
            const ds_hash *, const ds_bounds *, ds_batch *, const int64_t *, const ds_rows *, int64_t *
        ) noexcept nogil
        int64_t (*compact)(
            const ds_rows *, int64_t, int64_t, int64_t, int64_t *, uint64_t, ds_scratch *, int64_t
        ) noexcept nogil
        int64_t (*merge_newcomers)(
            const ds_rows *, int64_t, int64_t, int64_t, int64_t, int64_t *, uint64_t, ds_scratch *
        ) noexcept nogil
        void (*sort)(const ds_rows *, int64_t, const ds_scratch *) noexcept nogil
        int64_t (*append_later)(
            const ds_rows *, int64_t, const int64_t *, const ds_rows *, int64_t
        ) noexcept nogil
        int64_t (*append_columns)(
            const ds_columns *, int64_t, int64_t, const int64_t *, int64_t, const ds_rows *, int64_t
        ) noexcept nogil
        void (*columns)(const ds_rows *, int64_t, int64_t, const ds_columns *) noexcept nogil
        int64_t (*known_hits)(
            const ds_columns *, int64_t, const ds_columns *, int64_t, const int64_t *, int64_t *,
            int64_t *
        ) noexcept nogil
    const ds_rows_kernels *ds_rows_at(int level)
    int ds_slot_bits(int64_t)
    enum: DS_BLOCK

cdef extern from "core/sort.h" nogil:
    enum: DS_MAX_ROWS

cdef const ds_rows_kernels *kernels = ds_rows_at(ds_level())


# ---------------------------------------------------------------------------------------- memory


cdef char *_allocate(size_t size) except NULL:
    """Memory that tracemalloc sees."""
    cdef char *memory = <char *> PyMem_RawMalloc(size)
    if memory == NULL:
        raise MemoryError(f"{size} bytes")
    ds_advise(memory, size)
    return memory


cdef int _make_rows(ds_rows *rows, int64_t room) except -1:
    cdef char *memory = _allocate(room * (sizeof(ds_fact) + sizeof(int64_t) + sizeof(int8_t)) + 1)
    rows.facts = <ds_fact *> memory
    rows.times = <int64_t *> (rows.facts + room)
    rows.levels = <int8_t *> (rows.times + room)
    rows.room = room
    return 0


cdef void _copy_rows(const ds_rows *to, const ds_rows *source, int64_t rows) noexcept nogil:
    if rows == 0:
        return
    memcpy(to.facts, source.facts, rows * sizeof(ds_fact))
    memcpy(to.times, source.times, rows * sizeof(int64_t))
    memcpy(to.levels, source.levels, rows * sizeof(int8_t))


cdef class Scratch:
    """Working memory of compaction, grown geometrically."""

    cdef ds_scratch c
    cdef int64_t room, entries

    def __dealloc__(self):
        PyMem_RawFree(self.c.out.facts)
        PyMem_RawFree(self.c.slots)
        PyMem_RawFree(self.c.entries[0])

    cdef int reserve_entries(self, int64_t rows) except -1:
        """Working memory to sort so many rows."""
        if rows > self.entries:
            self.entries = 0
            PyMem_RawFree(self.c.entries[0])
            self.c.entries[0] = NULL
            rows += rows >> 1
            self.c.entries[0] = <ds_entry *> _allocate(2 * rows * sizeof(ds_entry))
            self.c.entries[1] = self.c.entries[0] + rows
            self.entries = rows
        return 0

    cdef int reserve(self, int64_t rows, int64_t out) except -1:
        """Working memory for so many rows, and room to write others."""
        cdef size_t slots
        if out > self.c.out.room:
            PyMem_RawFree(self.c.out.facts)
            self.c.out = ds_rows(NULL, NULL, NULL, 0)
            _make_rows(&self.c.out, out)
        if rows > self.room:
            self.room = 0
            PyMem_RawFree(self.c.slots)
            self.c.slots = NULL
            rows += rows >> 1
            slots = <size_t> 1 << ds_slot_bits(rows)
            self.c.slots = <uint32_t *> _allocate(
                slots * (sizeof(uint32_t) + 1) + 2 * rows * sizeof(uint32_t)
            )
            self.c.present = <uint64_t *> (self.c.slots + slots)
            self.c.words[0] = <uint32_t *> (<char *> self.c.present + slots)
            self.c.words[1] = self.c.words[0] + rows
            self.room = rows
        return 0


_of_thread = threading.local()


cdef Scratch _scratch():
    try:
        return _of_thread.scratch
    except AttributeError:
        _of_thread.scratch = Scratch()
        return _of_thread.scratch


def release_scratch():
    """Give back the working memory of the calling thread; it is made anew when it is needed."""
    _of_thread.__dict__.clear()


# --------------------------------------------------------------------------------- columns of NumPy


_ndarray = np.ndarray
_int64, _float64, _int8 = np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.int8)


cdef class _Borrowed:
    """Columns of other objects: contiguous arrays of one dimension and one length."""

    cdef Py_buffer views[5]
    cdef int count
    cdef int64_t rows

    def __dealloc__(self):
        for k in range(self.count):
            PyBuffer_Release(&self.views[k])

    cdef void *take(self, object array, object dtype):
        """Where the numbers are; NULL where the array is none of these."""
        cdef Py_buffer *view = &self.views[self.count]
        if type(array) is not _ndarray or not (array.dtype is dtype or array.dtype == dtype):
            return NULL
        try:
            PyObject_GetBuffer(array, view, PyBUF_ND)
        except (BufferError, ValueError):
            return NULL
        self.count += 1
        if view.ndim != 1 or (self.count > 1 and view.shape[0] != self.rows):
            return NULL
        self.rows = view.shape[0]
        return view.buf


cdef bint _columns_of(_Borrowed borrowed, ds_columns *to, tuple columns) except -1:
    to.values = <int64_t *> borrowed.take(columns[0], _int64)
    to.weights = <int64_t *> borrowed.take(columns[1], _int64)
    to.times = <int64_t *> borrowed.take(columns[2], _int64)
    to.ids = <int64_t *> borrowed.take(columns[3], _int64)
    to.levels = <int8_t *> borrowed.take(columns[4], _int8)
    if not (to.values and to.weights and to.times and to.ids and to.levels):
        raise ValueError("expected contiguous columns of 64-bit integers, and levels of 8 bits")
    return True


cdef enum:
    FIRST_ROOM = 1024
    LITTLE = 2048  # rows that are admitted in no more time than another thread may wait


cdef class Rows:
    """Rows and watermarks under one hash function. Not safe to use from two threads at once.

    Args:
        hash: the hash function.
        max_weight, id_bits, time_limit: bounds of the rows.
        floats: whether values that come in are float64.
        capacity: of each level.
        levels: how many there are.
        salt: an odd number that keys the identity table.
        factor: times the rows that the last compaction kept, at which the bag is compacted again.
        smallest_limit: rows below which it is not, to make room.
        far: times of one identity further apart than the first number, with another value, or than
            the second are those of different readings, which :attr:`replaced` counts.
    """

    cdef Hash hash
    cdef ds_rows bag
    cdef ds_bounds bounds
    cdef object value_dtype
    cdef int64_t marks[64]
    cdef readonly int64_t kept  # rows that the last compaction kept: the first ones of the bag
    cdef int64_t rows, levels, capacity, factor, smallest_limit, lost
    cdef uint64_t salt, far_other, far_any
    cdef bint dirty, in_order

    def __init__(
        self, Hash hash not None, *, int64_t max_weight, int id_bits, int64_t time_limit,
        bint floats, int64_t capacity, int levels, uint64_t salt, int64_t factor,
        int64_t smallest_limit, tuple far,
    ):
        if not 0 < levels < 64 or levels != hash.c.top + 1 or self.hash is not None:
            raise ValueError(f"{levels} levels of a hash function that has {hash.c.top + 1}")
        self.hash, self.capacity, self.levels = hash, capacity, levels
        self.value_dtype = _float64 if floats else _int64
        self.bounds = ds_bounds(max_weight, ((<int64_t> 1) << id_bits) - 1, time_limit)
        self.salt, self.factor, self.smallest_limit = salt, factor, smallest_limit
        self.far_other, self.far_any = far
        self.in_order = True
        for level in range(levels):
            self.marks[level] = INT64_MIN

    def __dealloc__(self):
        PyMem_RawFree(self.bag.facts)

    def __len__(self):
        self.compact()
        return self.rows

    @property
    def nbytes(self):
        """Bytes that the bag takes, room for more rows included."""
        return self.bag.room * (sizeof(ds_fact) + sizeof(int64_t) + sizeof(int8_t))

    @property
    def room(self):
        """Rows that the bag has memory for."""
        return self.bag.room

    @property
    def gathered(self):
        """Rows in the bag, before they are compacted."""
        return self.rows

    @property
    def replaced(self):
        """Readings that a later one of their identity replaced here, far away in time."""
        self.compact()
        return self.lost

    @property
    def watermarks(self):
        """int64[levels], a copy."""
        marks = np.empty(self.levels, np.int64)
        cdef int64_t[::1] to = marks
        memcpy(&to[0], self.marks, self.levels * sizeof(int64_t))
        return marks

    def raise_marks(self, const int64_t[::1] marks):
        """Take the later watermark of each level."""
        if marks.shape[0] != self.levels:
            raise ValueError(f"{marks.shape[0]} watermarks of {self.levels} levels")
        for level in range(self.levels):
            self.marks[level] = max(self.marks[level], marks[level])
        self.dirty = True

    def set_capacity(self, int64_t capacity):
        self.capacity, self.dirty = capacity, True

    # ------------------------------------------------------------------------------------ input

    def admit(self, values, weights, times, ids, *, bint checked=False):
        """Take a batch of columns of equal length.

        Args:
            values: value keys, int64, or float64 as they are where that is the stream's type.
            weights, times, ids: int64.
            checked: whether the rows are known to be in bounds.

        Returns:
            The number of rows of weight 0, or -1, with nothing taken, where a row is out of bounds
            or a column is no contiguous array of such numbers.
        """
        cdef ds_batch batch
        cdef _Borrowed borrowed = _Borrowed()
        batch.float_bits = self.value_dtype is _float64 and not checked
        batch.values = <int64_t *> borrowed.take(
            values, _float64 if batch.float_bits else _int64
        )
        if batch.values == NULL:
            return -1
        batch.weights = <int64_t *> borrowed.take(weights, _int64)
        batch.times = <int64_t *> borrowed.take(times, _int64)
        batch.ids = <int64_t *> borrowed.take(ids, _int64)
        if not (batch.weights and batch.times and batch.ids):
            return -1
        batch.todo, batch.zero_weight = borrowed.rows, 0
        batch.unchecked = 0 if checked else borrowed.rows
        return batch.zero_weight if self._admit(&batch) else -1

    cdef bint _admit(self, ds_batch *batch) except -1:
        """Whether all rows are in bounds; where one is not, none was taken."""
        cdef int64_t at = self.rows
        cdef bint good
        while batch.todo:
            if at + DS_BLOCK > self.bag.room:
                if at > self.rows:  # before rows are mixed up: all must be in bounds
                    with nogil:
                        good = kernels.check(&self.bounds, batch)
                    if not good:
                        return False
                    self.rows, self.dirty = at, True
                self._make_room(batch.todo)
                at = self.rows
            if batch.todo < LITTLE:
                good = kernels.admit(
                    &self.hash.c, &self.bounds, batch, self.marks, &self.bag, &at
                )
            else:
                with nogil:
                    good = kernels.admit(
                        &self.hash.c, &self.bounds, batch, self.marks, &self.bag, &at
                    )
            if not good:
                return False
        self.dirty = self.dirty or at > self.rows
        self.rows = at
        return True

    cdef int _make_room(self, int64_t incoming) except -1:
        """Room for one more block, by growing the bag up to its limit, else by compacting it."""
        if self.rows > self._limit():
            self.dirty = True
            self.compact()
        if self.rows + DS_BLOCK > self.bag.room:
            self._reserve(
                min(
                    self._limit() + DS_BLOCK,
                    max(FIRST_ROOM, 2 * self.bag.room, self.rows + incoming + DS_BLOCK),
                )
            )
        return 0

    cdef int64_t _limit(self) noexcept:
        """Rows at which the bag is compacted before more are admitted. A row number has to fit the
        kernels' words."""
        return min(max(self.smallest_limit, self.factor * self.kept), DS_MAX_ROWS - DS_BLOCK)

    cdef int _reserve(self, int64_t room) except -1:
        cdef ds_rows larger
        if room > self.bag.room:
            _make_rows(&larger, room)
            _copy_rows(&larger, &self.bag, self.rows)
            PyMem_RawFree(self.bag.facts)
            self.bag = larger
        return 0

    def reserve(self, int64_t room):
        """Room for so many rows, those that are there included."""
        if room > DS_MAX_ROWS:
            raise ValueError(f"{room} rows at once; expected at most {DS_MAX_ROWS}")
        self._reserve(room)

    def append(self, Rows other not None):
        """Take the rows of a compacted bag that are later than the watermarks; there is room."""
        if self.rows + other.rows > self.bag.room or other.levels != self.levels:
            raise ValueError(f"room for {self.bag.room} rows, not {self.rows + other.rows}")
        with nogil:
            self.rows = kernels.append_later(
                &other.bag, other.rows, self.marks, &self.bag, self.rows
            )
        self.dirty = True

    def append_columns(self, *columns, bint settled=False):
        """Take the rows of a state (value keys, weights, times, ids, levels) that are later than
        the watermarks; there is room.

        Args:
            settled: whether they are all that there is, and compacted.
        """
        cdef _Borrowed borrowed = _Borrowed()
        cdef ds_columns given
        cdef int64_t rows
        _columns_of(borrowed, &given, columns)
        if self.rows + borrowed.rows > self.bag.room:
            raise ValueError(f"room for {self.bag.room} rows, not {self.rows + borrowed.rows}")
        with nogil:
            rows = kernels.append_columns(
                &given, borrowed.rows, self.bounds.max_weight, self.marks, self.levels, &self.bag,
                self.rows,
            )
        if rows < 0:
            raise ValueError(f"a level is not below {self.levels}")
        self.rows, self.dirty = rows, not settled
        if settled:
            self.kept = rows

    # ------------------------------------------------------------------------------- compaction

    def compact(self):
        """Drop copies, and what is beyond the capacity. O(rows)."""
        if not self.dirty:
            return
        cdef Scratch scratch
        cdef int64_t rows = self.rows
        if rows:
            scratch = _scratch()
            scratch.reserve(rows, rows if rows <= scratch.c.out.room else self.bag.room)
            self.in_order = self.in_order and rows <= 2 * self.kept
            if self.in_order:
                scratch.reserve_entries(rows - self.kept)
            scratch.c.replaced = ds_replaced(self.far_other, self.far_any, 0)
            with nogil:
                if self.in_order:
                    rows = kernels.merge_newcomers(
                        &self.bag, self.kept, rows, self.capacity, self.levels, self.marks,
                        self.salt, &scratch.c,
                    )
                else:
                    rows = kernels.compact(
                        &self.bag, rows, self.capacity, self.levels, self.marks, self.salt,
                        &scratch.c, self.kept if self.kept else rows // 2,
                    )
            self.lost += scratch.c.replaced.rows
            self._trade(scratch, rows)
        self.kept, self.dirty = rows, False

    cdef void _trade(self, Scratch scratch, int64_t rows) noexcept:
        """Take so many rows that were written elsewhere."""
        if scratch.c.out.room <= 2 * self.bag.room:  # like sizes: memory instead of copying
            self.bag, scratch.c.out = scratch.c.out, self.bag
        else:
            _copy_rows(&self.bag, &scratch.c.out, rows)
        self.rows = rows

    def shrink(self, int64_t room):
        """Compact, and give back the room that no row takes, where it is more than so much."""
        self.compact()
        cdef ds_rows smaller
        if self.bag.room > max(room, self.rows):
            _make_rows(&smaller, self.rows)
            _copy_rows(&smaller, &self.bag, self.rows)
            PyMem_RawFree(self.bag.facts)
            self.bag = smaller

    def columns(self):
        """Value keys, weights, times, ids and levels in canonical order, copied out. O(rows).

        The bag is left in canonical order, in which it stays while little is added.
        """
        self.compact()
        cdef int64_t rows = self.rows
        cdef Scratch scratch
        if rows and not self.in_order:
            scratch = _scratch()
            scratch.reserve(rows, rows if rows <= scratch.c.out.room else self.bag.room)
            scratch.reserve_entries(rows)
            with nogil:
                kernels.sort(&self.bag, rows, &scratch.c)
            self._trade(scratch, rows)
            self.in_order = True
        cdef _Borrowed borrowed = _Borrowed()
        cdef ds_columns to
        made = (*(np.empty(rows, np.int64) for _ in range(4)), np.empty(rows, np.int8))
        _columns_of(borrowed, &to, made)
        if not rows:
            return made
        with nogil:
            kernels.columns(&self.bag, rows, self.bounds.max_weight, &to)
        return made


def known_hits(
    tuple columns, tuple old_columns, const int64_t[::1] old_hits, int64_t[::1] hits,
    int64_t[::1] unknown,
):
    """hits[k] of the rows that an older state has at the same level.

    Columns are value keys, weights, times, ids and levels of rows in canonical order. Returns how
    many rows it has not: their numbers are the first of ``unknown``.
    """
    cdef ds_columns new, old
    cdef _Borrowed rows = _Borrowed(), before = _Borrowed()
    cdef int64_t missing
    _columns_of(rows, &new, columns)
    _columns_of(before, &old, old_columns)
    if not hits.shape[0] == unknown.shape[0] == rows.rows or old_hits.shape[0] != before.rows:
        raise ValueError(f"hits of {hits.shape[0]} and {old_hits.shape[0]} rows")
    if not rows.rows:
        return 0
    with nogil:
        missing = kernels.known_hits(
            &new, rows.rows, &old, before.rows, &old_hits[0] if before.rows else NULL, &hits[0],
            &unknown[0],
        )
    return missing
