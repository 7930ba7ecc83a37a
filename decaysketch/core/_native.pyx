"""What all families share: observations that come one by one, and kernels over NumPy columns."""

import numpy as np
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.unicode cimport PyUnicode_AsEncodedString
from libc.math cimport isfinite
from libc.stdint cimport INT64_MIN, int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    FEWEST = 16  # rows that there is room for at first


cdef class SingleRows:
    """Observations (value, weight, timestamp, id) that wait to be folded in together.

    Args:
        floats: whether values are float64, else int64.
        max_weight, last_id, time_limit: bounds; a weight is at least 1, an id at least 0.
    """

    cdef bint floats
    cdef int64_t max_weight, last_id, time_limit, count, room
    cdef int64_t (*rows)[4]

    def __init__(
        self, *, bint floats, int64_t max_weight, int64_t last_id, int64_t time_limit
    ):
        self.floats, self.max_weight = floats, max_weight
        self.last_id, self.time_limit = last_id, time_limit

    def __dealloc__(self):
        PyMem_RawFree(self.rows)

    def __len__(self):
        return self.count

    def clear(self):
        """Forget all of them, once they were folded in."""
        PyMem_RawFree(self.rows)
        self.rows, self.count, self.room = NULL, 0, 0

    def take(self, value, weight, timestamp, id):
        """Gather an observation of plain numbers; 0, with nothing taken, for anything else.

        Returns:
            How many there are now.
        """
        cdef int64_t row[4]
        cdef int overflow = 0
        cdef double number
        if not (
            PyLong_CheckExact(id) and PyLong_CheckExact(weight) and PyLong_CheckExact(timestamp)
        ):
            return 0
        row[3] = PyLong_AsLongLongAndOverflow(id, &overflow)
        if overflow or not 0 <= row[3] <= self.last_id:
            return 0
        row[1] = PyLong_AsLongLongAndOverflow(weight, &overflow)
        if overflow or not 0 < row[1] <= self.max_weight:
            return 0
        row[2] = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
        if overflow or not -self.time_limit <= row[2] <= self.time_limit:
            return 0
        if PyLong_CheckExact(value):
            row[0] = PyLong_AsLongLongAndOverflow(value, &overflow)
            if overflow or row[0] == INT64_MIN:
                return 0
            if self.floats:
                if not -((<int64_t> 1) << 53) <= row[0] <= (<int64_t> 1) << 53:
                    return 0
                number = <double> row[0]
                memcpy(row, &number, sizeof(number))
        elif self.floats and PyFloat_CheckExact(value):
            number = PyFloat_AS_DOUBLE(value)
            if not isfinite(number):
                return 0
            memcpy(row, &number, sizeof(number))
        else:
            return 0
        if self.count == self.room:
            self._grow()
        memcpy(self.rows[self.count], row, sizeof(row))
        self.count += 1
        return self.count

    cdef int _grow(self) except -1:
        cdef int64_t room = max(FEWEST, 2 * self.room)
        cdef void *rows = PyMem_RawRealloc(self.rows, room * 4 * sizeof(int64_t))
        if rows == NULL:
            raise MemoryError
        self.rows, self.room = <int64_t (*)[4]> rows, room
        return 0

    def columns(self):
        """The columns, copied out; values are float64 or int64."""
        made = [np.empty(self.count, np.int64) for _ in range(4)]
        cdef int64_t[::1] to
        for column in range(4):
            to = made[column]
            for row in range(self.count):
                to[row] = self.rows[row][column]
        if self.floats:
            made[0] = made[0].view(np.float64)
        return tuple(made)


# ----------------------------------------------------------------------------------------- kernels

cdef extern from "core/distinct.h" nogil:
    ctypedef struct ds_slot:
        int64_t key, number

    ctypedef struct ds_distinct:
        ds_slot *slots
        int bits
        uint64_t salt
        int64_t *distinct
        int64_t count, room

    ctypedef struct ds_distinct_kernels:
        int64_t (*number_keys)(
            ds_distinct *, const int64_t *, int64_t, int64_t, int32_t *
        ) noexcept nogil
        void (*fill_table)(ds_distinct *, int64_t) noexcept nogil

    const ds_distinct_kernels *ds_distinct_at(int level)
    int ds_level()

cdef extern from "core/keys.h" nogil:
    ctypedef struct ds_keys_kernels:
        void (*hash_integers)(const uint64_t *, uint64_t, int64_t, uint64_t *) noexcept nogil
        void (*hash_encoded)(
            const uint8_t *, const int64_t *, uint64_t, int64_t, uint64_t *
        ) noexcept nogil
        uint64_t (*hash_bytes)(const uint8_t *, int64_t, uint64_t) noexcept nogil
        void (*absorb)(uint64_t *, const uint64_t *, int64_t) noexcept nogil

    const ds_keys_kernels *ds_keys_at(int level)

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object text)
    const uint8_t *PyUnicode_1BYTE_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)

cdef extern from "core/sort.h" nogil:
    ctypedef struct ds_sorting:
        uint64_t *keys[2]
        uint32_t *words[2]

cdef extern from "core/row_status.h" nogil:
    ctypedef struct ds_copies:
        const int64_t *first
        const int64_t *second
        const int64_t *times
        const int64_t *values
        int64_t n
        int64_t first_step, second_step, value_step

    ctypedef struct ds_offered:
        ds_copies rows
        uint64_t salts[2]
        uint32_t *slots
        uint64_t *present
        int bits
        int32_t *group
        int32_t *latest
        int64_t groups

    ctypedef struct ds_judging:
        int32_t *held
        int64_t *times
        int8_t *levels
        ds_sorting sorting
        uint8_t *replaced

    ctypedef struct ds_verdict_kernels:
        void (*group)(ds_offered *) noexcept nogil
        void (*find)(const ds_offered *, const ds_copies *, int32_t *) noexcept nogil
        void (*judge_by_marks)(
            const ds_offered *, const int8_t *, const ds_copies *, const int8_t *, int64_t *, int64_t,
            int64_t, ds_judging *, int8_t *
        ) noexcept nogil
        void (*judge_by_states)(
            const ds_offered *, const ds_copies *, const ds_copies *, const int32_t *,
            const int32_t *, int8_t *
        ) noexcept nogil

    const ds_verdict_kernels *ds_verdict_at(int level)
    enum: DS_PRESENT_BITS

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

    int64_t ds_value_key(int64_t bits)
    bint ds_within_bounds(const ds_observations *, const ds_bounds *, int64_t *zero_weight)

cdef const ds_distinct_kernels *numbering = ds_distinct_at(ds_level())
cdef const ds_keys_kernels *hashing = ds_keys_at(ds_level())
cdef const ds_verdict_kernels *judging = ds_verdict_at(ds_level())


cdef int64_t _rows(int64_t first, int64_t second) except -1:
    if first != second:
        raise ValueError(f"columns of {first} and {second} rows")
    return first


# ----------------------------------------------------------------------- columns of observations


_ndarray = np.ndarray
_int64, _float64 = np.dtype(np.int64), np.dtype(np.float64)


cdef const int64_t[::1] _integers(column, dtype):
    """The words of a contiguous column of this type; None for anything else."""
    if type(column) is not _ndarray or column.dtype is not dtype or column.ndim != 1:
        return None
    if not column.flags.c_contiguous:
        return None
    return column if dtype is _int64 else column.view(_int64)


def value_keys(values, weights, times, ids, *, bint floats, int64_t max_weight, int64_t id_limit):
    """The value keys of observations, int64[n]; None, to be looked at again, where a column has
    another type or length or a row is out of bounds.
    """
    cdef const int64_t[::1] given = _integers(values, _float64 if floats else _int64)
    cdef const int64_t[::1] w = _integers(weights, _int64), t = _integers(times, _int64)
    cdef const int64_t[::1] i = _integers(ids, _int64)
    if given is None or w is None or t is None or i is None:
        return None
    cdef int64_t n = given.shape[0], zero_weight
    if n == 0 or w.shape[0] != n or t.shape[0] != n or i.shape[0] != n:
        return None
    cdef ds_observations rows = ds_observations(n, &given[0], &w[0], &t[0], &i[0], floats)
    cdef ds_bounds bounds = ds_bounds(max_weight, id_limit)
    cdef bint good
    with nogil:
        good = ds_within_bounds(&rows, &bounds, &zero_weight)
    if not good:
        return None
    if not floats:
        return values.copy()
    keys = np.empty(n, np.int64)
    cdef int64_t[::1] to = keys
    with nogil:
        for k in range(n):
            to[k] = ds_value_key(given[k])
    return keys


def are_within(column, int64_t low, int64_t high):
    """Whether all integers of a column are within bounds; None for a column of another type."""
    cdef const int64_t[::1] given = _integers(column, _int64)
    if given is None:
        return None
    cdef int64_t k, outside = 0
    with nogil:
        for k in range(given.shape[0]):
            outside |= (given[k] < low) | (given[k] > high)
    return outside == 0


# ------------------------------------------------------------------------------ distinct numbers


cdef ds_distinct _table(
    int64_t[:, ::1] slots, uint64_t salt, int64_t[::1] distinct, int64_t count
) except *:
    cdef ds_distinct table
    cdef int bits = (<object> slots.shape[0]).bit_length() - 1
    if slots.shape[1] != 2 or slots.shape[0] != 1 << bits or not 0 < distinct.shape[0] < 1 << bits:
        raise ValueError(f"a table of {slots.shape[0]} slots for {distinct.shape[0]} numbers")
    if not 0 <= count <= distinct.shape[0]:
        raise ValueError(f"{count} numbers of {distinct.shape[0]}")
    table.slots, table.bits, table.salt = <ds_slot *> &slots[0, 0], bits, salt
    table.distinct, table.count, table.room = &distinct[0], count, distinct.shape[0]
    return table


def number_keys(
    const int64_t[::1] keys, int64_t start, int64_t[:, ::1] slots, uint64_t salt,
    int64_t[::1] distinct, int64_t count, int32_t[::1] codes,
):
    """codes[k] = the number of keys[k], for k >= start; returns (distinct keys, next row)."""
    cdef ds_distinct table = _table(slots, salt, distinct, count)
    cdef int64_t n = _rows(keys.shape[0], codes.shape[0])
    if start < n:
        with nogil:
            start = numbering.number_keys(&table, &keys[0], start, n, &codes[0])
    return table.count, start


def fill_table(
    int64_t[:, ::1] slots, uint64_t salt, int64_t[::1] distinct, int64_t count, int64_t left_out
):
    """Put the first ``count`` keys into an empty table, but for the one numbered ``left_out``."""
    cdef ds_distinct table = _table(slots, salt, distinct, count)
    with nogil:
        numbering.fill_table(&table, left_out)


# ---------------------------------------------------------------------------------- hashes of keys

def hash_integers(const uint64_t[::1] keys, uint64_t word, uint64_t[::1] hashes):
    """hashes[k] = the hash of an integer."""
    cdef int64_t n = _rows(keys.shape[0], hashes.shape[0])
    if n:
        with nogil:
            hashing.hash_integers(&keys[0], word, n, &hashes[0])


def hash_encoded(
    const uint8_t[::1] data, const int64_t[::1] offsets, uint64_t word, uint64_t[::1] hashes
):
    """hashes[k] = the hash of data[offsets[k]:offsets[k + 1]]; offsets rise from 0 or above."""
    cdef int64_t n = _rows(offsets.shape[0] - 1, hashes.shape[0])
    if n and not 0 <= offsets[0] <= offsets[n] <= data.shape[0]:
        raise ValueError(f"offsets {offsets[0]} to {offsets[n]} into {data.shape[0]} bytes")
    cdef const uint8_t *first = &data[0] if data.shape[0] else NULL
    if n:
        with nogil:
            hashing.hash_encoded(first, &offsets[0], word, n, &hashes[0])


def hash_objects(
    list keys not None, type kind, Py_ssize_t most, uint64_t word, uint64_t[::1] hashes
):
    """hashes[k] = the hash of a str, as UTF-8, or of bytes, whichever is the kind.

    Returns the first row that has another type, or more than so many bytes; the number of rows
    where none has.
    """
    cdef int64_t k, n = _rows(len(keys), hashes.shape[0])
    cdef const uint8_t *data
    cdef Py_ssize_t length
    for k in range(n):
        key = keys[k]
        if not isinstance(key, kind):
            return k
        if kind is str and PyUnicode_IS_ASCII(key):
            data, length = PyUnicode_1BYTE_DATA(key), PyUnicode_GET_LENGTH(key)
        else:
            if kind is str:
                key = PyUnicode_AsEncodedString(key, "utf-8", "surrogatepass")
            data, length = <const uint8_t *> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)
        if length > most:
            return k
        hashes[k] = hashing.hash_bytes(data, length, word)
    return n


def absorb(uint64_t[::1] rows, const uint64_t[::1] hashes):
    """rows[k] takes in the hash of the row's key in one more column."""
    cdef int64_t n = _rows(rows.shape[0], hashes.shape[0])
    if n:
        with nogil:
            hashing.absorb(&rows[0], &hashes[0], n)


# ---------------------------------------------------------------------------------------- verdicts


cdef class _Block:
    """Memory of one object, handed out in parts; larger numbers first."""

    cdef char *memory
    cdef char *next

    def __cinit__(self, size_t size):
        self.memory = self.next = <char *> PyMem_RawMalloc(size + 1)
        if self.memory == NULL:
            raise MemoryError(f"{size} bytes")

    def __dealloc__(self):
        PyMem_RawFree(self.memory)

    cdef void *part(self, size_t size) noexcept:
        cdef void *part = self.next
        self.next += size
        return part


cdef class _Copies:
    """Rows by identity: two columns that identify, then what orders copies. All but the times may
    have a stride."""

    cdef const int64_t[:] first, second, values
    cdef const int64_t[::1] times
    cdef ds_copies c

    def __cinit__(self, first, second, times, values):
        self.first, self.second, self.times, self.values = first, second, times, values
        cdef int64_t n = _rows(self.first.shape[0], self.second.shape[0])
        if _rows(n, _rows(self.times.shape[0], self.values.shape[0])):
            self.c = ds_copies(
                &self.first[0], &self.second[0], &self.times[0], &self.values[0], n,
                self.first.strides[0] // 8, self.second.strides[0] // 8,
                self.values.strides[0] // 8,
            )


cdef class Offered:
    """A batch whose copies are found: what several states may be asked about."""

    cdef ds_offered c
    cdef _Copies rows
    cdef _Block block
    cdef readonly int64_t known  # identities that the state judged last holds

    @property
    def repeats(self):
        """Whether an identity is there twice."""
        return self.c.groups < self.c.rows.n

    def __init__(self, first, second, times, values, *, salts):
        self.rows = _Copies(first, second, times, values)
        cdef int64_t n = self.rows.c.n
        # A quarter to half of the slots are taken, and each has some bits beside it.
        cdef int bits = max(4, (2 * n).bit_length())
        cdef size_t slots = <size_t> 1 << bits, present = (slots << DS_PRESENT_BITS) // 8
        self.block = _Block(present + slots * sizeof(uint32_t) + 2 * n * sizeof(int32_t))
        self.c.rows, self.c.bits = self.rows.c, bits
        self.c.salts[0], self.c.salts[1] = salts
        self.c.present = <uint64_t *> self.block.part(present)
        self.c.slots = <uint32_t *> self.block.part(slots * sizeof(uint32_t))
        self.c.group = <int32_t *> self.block.part(n * sizeof(int32_t))
        self.c.latest = <int32_t *> self.block.part(n * sizeof(int32_t))
        with nogil:
            judging.group(&self.c)

    def judge_by_marks(
        self, const int8_t[::1] levels not None, state, const int8_t[::1] state_levels not None,
        int64_t[::1] marks not None, int64_t capacity,
    ):
        """Verdicts where a copy stays that is later than the watermark of its level.

        Args:
            levels: int8[n], top levels of the rows of the batch.
            state, state_levels: the columns of the state, latest first, and their top levels.
            marks: watermarks before a row of the batch is looked at; raised in place to those of
                the merged state, as far as the batch can tell.
            capacity: of the merged state.

        Returns:
            int8[n].
        """
        cdef _Copies held = _Copies(*state)
        cdef int64_t n = _rows(self.c.rows.n, levels.shape[0]), groups = self.c.groups
        _rows(held.c.n, state_levels.shape[0])
        if not 0 < marks.shape[0] < 64:
            raise ValueError(f"watermarks of {marks.shape[0]} levels")
        verdicts = np.empty(n, np.int8)
        if n == 0:
            return verdicts
        cdef int8_t[::1] to = verdicts
        cdef const int8_t *held_levels = &state_levels[0] if held.c.n else NULL
        cdef ds_judging j
        cdef _Block block = _Block(
            groups * (3 * sizeof(int64_t) + 3 * sizeof(int32_t) + 1) + held.c.n
        )
        j.times = <int64_t *> block.part(groups * sizeof(int64_t))
        for which in range(2):
            j.sorting.keys[which] = <uint64_t *> block.part(groups * sizeof(uint64_t))
        for which in range(2):
            j.sorting.words[which] = <uint32_t *> block.part(groups * sizeof(uint32_t))
        j.held = <int32_t *> block.part(groups * sizeof(int32_t))
        j.levels = <int8_t *> block.part(groups)
        j.replaced = <uint8_t *> block.part(held.c.n)
        with nogil:
            judging.judge_by_marks(
                &self.c, &levels[0], &held.c, held_levels, &marks[0], marks.shape[0], capacity, &j,
                &to[0],
            )
            self.known = 0
            for g in range(groups):
                self.known += j.held[g] >= 0
        return verdicts

    def judge_by_states(self, before, after):
        """Verdicts, int8[n], where the columns of the state are known before and after."""
        cdef _Copies old = _Copies(*before), new = _Copies(*after)
        verdicts = np.empty(self.c.rows.n, np.int8)
        if self.c.rows.n == 0:
            return verdicts
        cdef int8_t[::1] to = verdicts
        cdef _Block block = _Block(2 * self.c.groups * sizeof(int32_t))
        cdef int32_t *held = <int32_t *> block.part(self.c.groups * sizeof(int32_t))
        cdef int32_t *holds = <int32_t *> block.part(self.c.groups * sizeof(int32_t))
        with nogil:
            judging.find(&self.c, &old.c, held)
            judging.find(&self.c, &new.c, holds)
            judging.judge_by_states(&self.c, &old.c, &new.c, held, holds, &to[0])
        return verdicts
