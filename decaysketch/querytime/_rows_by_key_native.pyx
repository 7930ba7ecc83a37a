"""The kernels of many sketches at once, `rows_by_key.c`, over NumPy columns."""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int8_t, int32_t, int64_t, uint32_t, uint64_t

from decaysketch.minhit._native cimport Hash, ds_hash

cdef extern from "core/memory.h" nogil:
    void ds_advise(void *, size_t)

cdef extern from "querytime/rows_by_key.h" nogil:
    ctypedef struct ds_fact:
        pass

    ctypedef struct ds_rows:
        ds_fact *facts
        int64_t *times
        int8_t *levels
        int64_t room

    ctypedef struct ds_entry:
        uint64_t key
        int64_t row

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

    ctypedef struct ds_record:
        pass

    ctypedef struct ds_common:
        const ds_hash *hash
        int64_t max_weight, capacity, levels
        uint64_t salt

    ctypedef struct ds_incoming:
        const int32_t *codes
        const int64_t *values
        const int64_t *weights
        const int64_t *times
        const int64_t *ids
        int64_t n

    ctypedef struct ds_states:
        ds_record *records
        int64_t *offsets
        int64_t *mark_offsets
        int64_t *marks
        int64_t keys

    ctypedef struct ds_by_key_room:
        ds_rows bag
        ds_scratch scratch
        int64_t *starts
        int64_t *next
        int64_t *replaced

    ctypedef struct ds_by_key_kernels:
        int64_t (*take)(
            const ds_common *, const ds_incoming *, const ds_states *, ds_record *
        ) noexcept nogil
        void (*count)(const ds_record *, int64_t, int, int64_t *) noexcept nogil
        void (*scatter)(const ds_record *, int64_t, int, int64_t *, ds_record *) noexcept nogil
        void (*build)(
            const ds_common *, const ds_states *, const ds_record *, const int64_t *, int,
            ds_states *, ds_by_key_room *
        ) noexcept nogil
        void (*write)(
            const ds_common *, const ds_states *, ds_by_key_room *, int64_t *, int64_t *, int64_t *,
            int64_t *
        ) noexcept nogil

    const ds_by_key_kernels *ds_by_key_at(int level)
    const ds_by_key_kernels *ds_record_by_key_at(int level)
    int ds_level()
    int ds_slot_bits(int64_t)

cdef extern from "core/sort.h" nogil:
    enum: DS_MAX_ROWS

cdef const ds_by_key_kernels *kernels = ds_by_key_at(ds_level())
cdef const ds_by_key_kernels *of_records = ds_record_by_key_at(ds_level())

cdef enum:
    FIELDS = 4  # 64-bit numbers of a record

RECORD_FIELDS = FIELDS


cdef char *_place(ds_rows *rows, char *at, size_t n) noexcept:
    """Put the wide columns of so many rows somewhere; where they end."""
    rows.facts = <ds_fact *> at
    rows.times = <int64_t *> (rows.facts + n)
    rows.room = n
    return <char *> (rows.times + n)


cdef class _Room:
    """Working memory for so many rows of a partition of so many keys."""

    cdef ds_by_key_room c
    cdef void *memory

    def __cinit__(self, int64_t rows, int64_t keys):
        if rows >= DS_MAX_ROWS:
            raise ValueError(f"{rows} rows of some keys; expected less than {DS_MAX_ROWS}")
        cdef size_t slots = <size_t> 1 << ds_slot_bits(rows), n = rows + 16, size
        size = slots * (sizeof(uint32_t) + 1) + n * (2 * sizeof(uint32_t) + 2)
        size += 2 * n * (sizeof(ds_fact) + sizeof(int64_t) + sizeof(ds_entry))
        size += 2 * (keys + 1) * sizeof(int64_t)
        cdef char *at = <char *> PyMem_RawMalloc(size)
        if at == NULL:
            raise MemoryError(f"{size} bytes")
        self.memory = at
        ds_advise(at, size)
        at = _place(&self.c.bag, at, n)
        at = _place(&self.c.scratch.out, at, n)
        self.c.scratch.entries[0] = <ds_entry *> at
        self.c.scratch.entries[1] = self.c.scratch.entries[0] + n
        self.c.starts = <int64_t *> (self.c.scratch.entries[1] + n)
        self.c.next = self.c.starts + keys + 1
        self.c.scratch.present = <uint64_t *> (self.c.next + keys + 1)
        self.c.scratch.slots = <uint32_t *> (<char *> self.c.scratch.present + slots)
        self.c.scratch.words[0] = self.c.scratch.slots + slots
        self.c.scratch.words[1] = self.c.scratch.words[0] + n
        self.c.bag.levels = <int8_t *> (self.c.scratch.words[1] + n)
        self.c.scratch.out.levels = self.c.bag.levels + n

    def __dealloc__(self):
        PyMem_RawFree(self.memory)


cdef class _States:
    """States of keys: records, offsets into them, offsets into watermarks, and watermarks."""

    cdef int64_t[:, ::1] records
    cdef int64_t[::1] offsets, mark_offsets, marks
    cdef ds_states c

    def __cinit__(self, records, offsets, mark_offsets, marks):
        self.records, self.offsets = records, offsets
        self.mark_offsets, self.marks = mark_offsets, marks
        self.c.keys = self.offsets.shape[0] - 1
        if self.c.keys < 0 or self.mark_offsets.shape[0] != self.c.keys + 1:
            raise ValueError(f"offsets of {self.c.keys} keys, of marks not as many")
        self.c.records = _records(self.records)
        self.c.offsets, self.c.mark_offsets = &self.offsets[0], &self.mark_offsets[0]
        self.c.marks = &self.marks[0]


cdef ds_record *_records(int64_t[:, ::1] records) except? NULL:
    if records.shape[1] != FIELDS:
        raise ValueError(f"records of {records.shape[1]} fields; expected {FIELDS}")
    return <ds_record *> &records[0, 0]


cdef class Payloads:
    """Columns of rows, to compare them.

    Args:
        keys: int64[payloads, columns]; a row's value is a number of these.
        ranks: for each column the rank of each text number, int64; None for one without texts.
    """

    cdef ds_payloads c
    cdef const int64_t *rank_pointers[64]
    cdef object held  # what they point to

    def __cinit__(self, const int64_t[:, ::1] keys not None, list ranks not None):
        cdef const int64_t[::1] found
        cdef int column
        if len(ranks) != keys.shape[1] or len(ranks) > 64:
            raise ValueError(f"ranks of {len(ranks)} columns; expected {keys.shape[1]}")
        for column in range(len(ranks)):
            self.rank_pointers[column] = NULL
            if ranks[column] is not None and len(ranks[column]):
                found = ranks[column]
                self.rank_pointers[column] = &found[0]
        self.held = keys, ranks
        self.c = ds_payloads(NULL, keys.shape[1], &self.rank_pointers[0])
        if keys.shape[0] and keys.shape[1]:
            self.c.keys = &keys[0, 0]


cdef class ByKey:
    """Sketches of many keys under one hash function.

    Args:
        hash: the hash function.
        max_weight, capacity, levels: of every sketch.
        salt: an odd number that keys tables of identities.
        far: see :class:`decaysketch.querytime._native.Rows`.
        records: whether values are payload numbers.
    """

    cdef Hash hash
    cdef ds_common c
    cdef uint64_t far_other, far_any
    cdef const ds_by_key_kernels *kernels

    def __init__(
        self, Hash hash not None, *, int64_t max_weight, int64_t capacity, int levels,
        uint64_t salt, tuple far, bint records=False,
    ):
        if levels != hash.c.top + 1:
            raise ValueError(f"{levels} levels of a hash function that has {hash.c.top + 1}")
        self.hash, self.kernels = hash, of_records if records else kernels
        self.c = ds_common(&hash.c, max_weight, capacity, levels, salt)
        self.far_other, self.far_any = far

    def take(
        self, const int32_t[::1] codes, const int64_t[::1] values, const int64_t[::1] weights,
        const int64_t[::1] times, const int64_t[::1] ids, int64_t[:, ::1] to, states=None,
    ):
        """Write the rows of weight above 0 to records, of which there is room for all.

        Args:
            codes: the number of the key of each row.
            states: of keys whose watermarks turn rows away, or None.

        Returns:
            How many were taken.
        """
        cdef int64_t n = codes.shape[0], taken = 0
        if not n == values.shape[0] == weights.shape[0] == times.shape[0] == ids.shape[0]:
            raise ValueError(f"columns of other lengths than {n}")
        if to.shape[0] < n:
            raise ValueError(f"room for {to.shape[0]} records of {n}")
        cdef ds_record *records = _records(to)
        cdef _States look = None if states is None else _States(*states)
        cdef const ds_states *marks = NULL if look is None else &look.c
        cdef ds_incoming rows
        if n:
            rows = ds_incoming(&codes[0], &values[0], &weights[0], &times[0], &ids[0], n)
            with nogil:
                taken = self.kernels.take(&self.c, &rows, marks, records)
        return taken

    def build(
        self, before, int64_t[:, ::1] records, const int64_t[::1] partitions, int shift,
        int64_t largest, after, int64_t[::1] replaced, Payloads payloads=None,
    ):
        """The state of every key.

        Args:
            before: records, offsets, mark offsets and marks of the keys before.
            records: of rows that came in; partition p, of the keys whose number >> shift is p, has
                those from partitions[p] to partitions[p + 1].
            largest: rows of a partition at the most, those before included.
            after: like ``before``, out, with room for all.
            replaced: int64[keys]; readings that a later one of their identity replaced, far away
                in time, are added.
            payloads: of rows with columns.
        """
        cdef _States old = _States(*before), new = _States(*after)
        cdef ds_record *incoming = _records(records)
        if new.c.keys != old.c.keys or (partitions.shape[0] - 1) << shift < old.c.keys:
            raise ValueError(f"{partitions.shape[0] - 1} partitions of {old.c.keys} keys")
        if replaced.shape[0] != old.c.keys:
            raise ValueError(f"{replaced.shape[0]} counts of {old.c.keys} keys")
        cdef _Room room = _Room(largest, (<int64_t> 1) << shift)
        room.c.replaced = &replaced[0]
        room.c.scratch.replaced = ds_replaced(self.far_other, self.far_any, 0)
        if (payloads is None) != (self.kernels == kernels):
            raise ValueError("payloads and kernels do not belong together")
        room.c.scratch.payloads = NULL if payloads is None else &payloads.c
        with nogil:
            self.kernels.build(&self.c, &old.c, incoming, &partitions[0], shift, &new.c, &room.c)

    def write(
        self, states, int64_t largest, int64_t[::1] times, int64_t[::1] ids, int64_t[::1] weights,
        int64_t[::1] values,
    ):
        """Columns of the states, key by key in canonical order: (time, id, weight), descending.

        Args:
            states: records, offsets from 0 on, mark offsets and marks.
            largest: records of a key at the most.
            times, ids, weights, values: int64, out; as many as there are records.
        """
        cdef _States given = _States(*states)
        cdef int64_t n = given.records.shape[0]
        if not n == times.shape[0] == ids.shape[0] == weights.shape[0] == values.shape[0]:
            raise ValueError(f"columns of other lengths than {n}")
        cdef _Room room = _Room(largest, 0)
        if n:
            with nogil:
                self.kernels.write(
                    &self.c, &given.c, &room.c, &times[0], &ids[0], &weights[0], &values[0]
                )


def count(int64_t[:, ::1] records, int shift, int64_t[::1] counts):
    """counts[p] += records of keys with number >> shift == p."""
    cdef ds_record *first = _records(records)
    cdef int64_t n = records.shape[0]
    if n:
        with nogil:
            kernels.count(first, n, shift, &counts[0])


def scatter(int64_t[:, ::1] records, int shift, int64_t[::1] positions, int64_t[:, ::1] to):
    """Move each record to the next position of its partition."""
    cdef ds_record *first = _records(records)
    cdef ds_record *room = _records(to)
    cdef int64_t n = records.shape[0]
    if to.shape[0] < n:
        raise ValueError(f"room for {to.shape[0]} records of {n}")
    if n:
        with nogil:
            kernels.scatter(first, n, shift, &positions[0], room)
