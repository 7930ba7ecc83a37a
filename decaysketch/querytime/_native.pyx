"""The rows that a sketch holds, `rows.c`, between batches: memory, limits and watermarks."""

import threading

import numpy as np
from cpython.buffer cimport PyBUF_ND, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport INT64_MIN, int8_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from decaysketch.minhit._native import top_levels
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
    ctypedef struct ds_payloads:
        const int64_t *keys
        int64_t count
        const int64_t *const *ranks
    ctypedef struct ds_scratch:
        ds_rows out
        uint32_t *words[2]
        uint32_t *slots
        uint64_t *present
        ds_entry *entries[2]
        ds_replaced replaced
        const ds_payloads *payloads
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
    const ds_rows_kernels *ds_record_rows_at(int level)
    int ds_slot_bits(int64_t)
    enum: DS_BLOCK

cdef extern from "querytime/payloads.h" nogil:
    ctypedef struct ds_payload_source:
        const int64_t *const *columns
        int64_t stride
        const int64_t *const *maps
    ctypedef struct ds_payload_kernels:
        void (*take)(
            ds_fact *, int64_t, int64_t, const ds_payload_source *, int64_t, int64_t *
        ) noexcept nogil
        void (*gather)(ds_fact *, int64_t, const int64_t *, int64_t, int64_t *) noexcept nogil
    const ds_payload_kernels *ds_payload_at(int level)

cdef extern from "core/sort.h" nogil:
    enum: DS_MAX_ROWS

cdef const ds_rows_kernels *one_value = ds_rows_at(ds_level())
cdef const ds_rows_kernels *records = ds_record_rows_at(ds_level())
cdef const ds_payload_kernels *payloads = ds_payload_at(ds_level())


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
    cdef int64_t room, entries, key_room
    cdef int64_t *keys  # of payloads

    def __dealloc__(self):
        PyMem_RawFree(self.keys)
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

    cdef int reserve_keys(self, int64_t keys) except -1:
        """Working memory for so many keys of payloads."""
        if keys > self.key_room:
            self.key_room = 0
            PyMem_RawFree(self.keys)
            self.keys = NULL
            self.keys = <int64_t *> _allocate(keys * sizeof(int64_t))
            self.key_room = keys
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

    cdef const ds_rows_kernels *kernels
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
        self.kernels = one_value
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

    def top_levels(self, ids, weights):
        """int8[n], the top level of each observation, which is in bounds."""
        levels = np.empty(len(ids), np.int8)
        top_levels(self.hash, ids, weights, levels)
        return levels

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
                        good = self.kernels.check(&self.bounds, batch)
                    if not good:
                        return False
                    self.rows, self.dirty = at, True
                self._make_room(batch.todo)
                at = self.rows
            if batch.todo < LITTLE:
                good = self.kernels.admit(
                    &self.hash.c, &self.bounds, batch, self.marks, &self.bag, &at
                )
            else:
                with nogil:
                    good = self.kernels.admit(
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
            self._resize(room)
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
            self.rows = self.kernels.append_later(
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
            rows = self.kernels.append_columns(
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
            scratch.c.payloads = self._payloads()
            with nogil:
                if self.in_order:
                    rows = self.kernels.merge_newcomers(
                        &self.bag, self.kept, rows, self.capacity, self.levels, self.marks,
                        self.salt, &scratch.c,
                    )
                else:
                    rows = self.kernels.compact(
                        &self.bag, rows, self.capacity, self.levels, self.marks, self.salt,
                        &scratch.c, self.kept if self.kept else rows // 2,
                    )
            self.lost += scratch.c.replaced.rows
            self._trade(scratch, rows)
        self.kept, self.dirty = rows, False

    cdef const ds_payloads *_payloads(self) noexcept:
        """The columns of rows with columns."""
        return NULL

    cdef int _trade(self, Scratch scratch, int64_t rows) except -1:
        """Take so many rows that were written elsewhere."""
        if scratch.c.out.room <= 2 * self.bag.room:  # like sizes: memory instead of copying
            self.bag, scratch.c.out = scratch.c.out, self.bag
        else:
            _copy_rows(&self.bag, &scratch.c.out, rows)
        self.rows = rows
        return 0

    def shrink(self, int64_t room):
        """Compact, and give back the room that no row takes, where it is more than so much."""
        self.compact()
        cdef ds_rows smaller
        if self.bag.room > max(room, self.rows):
            _make_rows(&smaller, self.rows)
            _copy_rows(&smaller, &self.bag, self.rows)
            PyMem_RawFree(self.bag.facts)
            self.bag = smaller
            self._resize(self.rows)

    cdef int _resize(self, int64_t room) except -1:
        """The same room for the columns of rows with columns."""
        return 0

    cdef int _order(self) except -1:
        """Compact, and leave the bag in canonical order, in which it stays while little is added.
        O(rows)."""
        self.compact()
        cdef int64_t rows = self.rows
        cdef Scratch scratch
        if rows and not self.in_order:
            scratch = _scratch()
            scratch.reserve(rows, rows if rows <= scratch.c.out.room else self.bag.room)
            scratch.reserve_entries(rows)
            with nogil:
                self.kernels.sort(&self.bag, rows, &scratch.c)
            self._trade(scratch, rows)
            self.in_order = True
        return 0

    def in_place(self):
        """Identities (id * max_weight + weight - 1), times, value keys and levels in canonical
        order, as they are: views of memory that is lost with the next change of the bag.
        O(rows) after a change, else O(1).
        """
        self._order()
        if not self.rows:
            empty = np.empty(0, np.int64)
            return empty, empty, empty, np.empty(0, np.int8)
        facts = np.asarray(<int64_t[:self.rows, :2]> <int64_t *> self.bag.facts)
        times = np.asarray(<int64_t[:self.rows]> self.bag.times)
        return facts[:, 1], times, facts[:, 0], np.asarray(<int8_t[:self.rows]> self.bag.levels)

    def columns(self):
        """Value keys, weights, times, ids and levels in canonical order, copied out. O(rows)."""
        self._order()
        cdef int64_t rows = self.rows
        cdef _Borrowed borrowed = _Borrowed()
        cdef ds_columns to
        made = (*(np.empty(rows, np.int64) for _ in range(4)), np.empty(rows, np.int8))
        _columns_of(borrowed, &to, made)
        if not rows:
            return made
        with nogil:
            self.kernels.columns(&self.bag, rows, self.bounds.max_weight, &to)
        return made


cdef class RecordRows(Rows):
    """The same for rows with columns, whose keys stand in payloads next to the rows.

    A row's value is the number of its payload: the row's own number between calls, and the number
    of a source's row between admission and :meth:`take`.

    Args:
        columns: how many they are.
    """

    cdef int64_t *keys  # of payloads, row by row
    cdef int64_t count, key_room
    cdef ds_payloads compared
    cdef const int64_t *rank_pointers[64]
    cdef object ranks  # what they point to

    def __init__(self, Hash hash not None, *, int columns, **more):
        if not 0 < columns <= 64 or self.count:
            raise ValueError(f"{columns} columns; expected 1 to 64, once")
        Rows.__init__(self, hash, **more)
        self.count, self.kernels = columns, records
        self.set_ranks([None] * columns)

    def __dealloc__(self):
        PyMem_RawFree(self.keys)

    @property
    def nbytes(self):
        return Rows.nbytes.__get__(self) + self.key_room * self.count * sizeof(int64_t)

    def set_ranks(self, list ranks):
        """For each column the rank of each text number, int64; None for one without texts."""
        cdef const int64_t[::1] found
        cdef int c
        if len(ranks) != self.count:
            raise ValueError(f"ranks of {len(ranks)} columns; expected {self.count}")
        for c in range(self.count):
            self.rank_pointers[c] = NULL
            if ranks[c] is not None and len(ranks[c]):
                found = ranks[c]
                self.rank_pointers[c] = &found[0]
        self.ranks = ranks

    cdef const ds_payloads *_payloads(self) noexcept:
        self.compared.keys, self.compared.count = self.keys, self.count
        self.compared.ranks = &self.rank_pointers[0]
        return &self.compared

    cdef int _resize(self, int64_t room) except -1:
        cdef int64_t *made = <int64_t *> _allocate(room * self.count * sizeof(int64_t) + 1)
        if self.rows:
            memcpy(made, self.keys, self.rows * self.count * sizeof(int64_t))
        PyMem_RawFree(self.keys)
        self.keys, self.key_room = made, room
        return 0

    cdef int _trade(self, Scratch scratch, int64_t rows) except -1:
        Rows._trade(self, scratch, rows)
        cdef int64_t keys = rows * self.count
        scratch.reserve_keys(keys)
        with nogil:
            payloads.gather(self.bag.facts, rows, self.keys, self.count, scratch.keys)
        if self.key_room < self.bag.room:  # the bag took larger memory that was there
            self._resize(self.bag.room)
        if keys:
            memcpy(self.keys, scratch.keys, keys * sizeof(int64_t))
        return 0

    def expect(self, int64_t rows):
        """Room for so many rows, so that admitting them compacts nothing."""
        if self.rows + rows + DS_BLOCK > self.bag.room:
            self._make_room(rows)
            self._reserve(min(self.rows + rows + DS_BLOCK, DS_MAX_ROWS))

    def check(self, weights, times, ids):
        """How many rows have weight 0; -1 where a row is out of bounds, or a column is none."""
        cdef ds_batch batch
        cdef _Borrowed borrowed = _Borrowed()
        batch.weights = <int64_t *> borrowed.take(weights, _int64)
        batch.times = <int64_t *> borrowed.take(times, _int64)
        batch.ids = <int64_t *> borrowed.take(ids, _int64)
        if not (batch.weights and batch.times and batch.ids):
            return -1
        batch.values, batch.float_bits = batch.ids, 0  # values are checked where they are read
        batch.todo, batch.unchecked, batch.zero_weight = borrowed.rows, borrowed.rows, 0
        cdef bint good
        with nogil:
            good = self.kernels.check(&self.bounds, &batch)
        return batch.zero_weight if good else -1

    def take(self, int64_t first, list columns, list maps):
        """Copy the payloads of the rows from ``first`` on, whose values are row numbers.

        Args:
            first: the first row that has none.
            columns: int64[n] each, keys; or one array int64[n, count] for all.
            maps: for each column the number here of each text there, int64; None for one without.
        """
        cdef int c
        cdef const int64_t *from_columns[64]
        cdef const int64_t *from_maps[64]
        cdef ds_payload_source source
        cdef const int64_t[::1] column
        if not len(columns) == len(maps) == self.count:
            raise ValueError(f"{len(columns)} columns and {len(maps)} maps; not {self.count}")
        source.columns, source.maps, source.stride = from_columns, from_maps, 1
        for c in range(self.count):
            column = columns[c]
            from_columns[c] = &column[0] if column.shape[0] else NULL
            from_maps[c] = NULL
            if maps[c] is not None and len(maps[c]):
                column = maps[c]
                from_maps[c] = &column[0]
        with nogil:
            payloads.take(self.bag.facts, first, self.rows, &source, self.count, self.keys)

    def take_from(self, int64_t first, RecordRows other not None, list maps):
        """The same of another bag's rows."""
        cdef int c
        cdef const int64_t *from_columns[64]
        cdef const int64_t *from_maps[64]
        cdef ds_payload_source source
        cdef const int64_t[::1] column
        if not other.count == len(maps) == self.count:
            raise ValueError(f"{other.count} columns and {len(maps)} maps; not {self.count}")
        source.columns, source.maps, source.stride = from_columns, from_maps, other.count
        for c in range(self.count):
            from_columns[c] = &other.keys[c]
            from_maps[c] = NULL
            if maps[c] is not None and len(maps[c]):
                column = maps[c]
                from_maps[c] = &column[0]
        with nogil:
            payloads.take(self.bag.facts, first, self.rows, &source, self.count, self.keys)

    def keys_of(self, int column):
        """Keys of a column, int64[rows], copied out in the order of the rows."""
        made = np.empty(self.rows, np.int64)
        cdef int64_t[::1] to = made
        cdef int64_t k
        if not 0 <= column < self.count:
            raise ValueError(f"column {column} of {self.count}")
        for k in range(self.rows):
            to[k] = self.keys[k * self.count + column]
        return made

    def set_keys(self, int column, const int64_t[::1] keys not None):
        """Overwrite the keys of a column."""
        cdef int64_t k
        if not 0 <= column < self.count or keys.shape[0] != self.rows:
            raise ValueError(f"column {column} of {self.count}, {keys.shape[0]} keys")
        for k in range(self.rows):
            self.keys[k * self.count + column] = keys[k]


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
        missing = one_value.known_hits(
            &new, rows.rows, &old, before.rows, &old_hits[0] if before.rows else NULL, &hits[0],
            &unknown[0],
        )
    return missing
