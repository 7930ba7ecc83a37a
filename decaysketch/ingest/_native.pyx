"""Scanners of protocol bodies, and numbers of byte strings: `lines.c`, `samples.c`, `names.c`."""

import secrets

import numpy as np
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.math cimport isfinite
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "ingest/scan.h" nogil:
    ctypedef struct ds_lines:
        int64_t *heads[2]
        int64_t *first
        int64_t *times
        int64_t *places
        uint8_t *repeats
        int64_t *names[2]
        int64_t *values[2]
        uint8_t *kinds
        double *floats
        int64_t *integers

    ctypedef struct ds_lines_read:
        int64_t lines, fields, at, ends

    ctypedef struct ds_samples:
        int64_t *labels[2]
        int64_t *bodies[2]
        int64_t *times
        int64_t *starts
        double *values
        uint8_t *plain

    ctypedef struct ds_samples_read:
        int64_t samples, at
        int code

    ctypedef struct ds_line_kernels:
        ds_lines_read (*lines)(
            const uint8_t *, int64_t, int64_t, int64_t, int64_t, const ds_lines *
        ) noexcept nogil

    ctypedef struct ds_sample_kernels:
        ds_samples_read (*series)(
            const uint8_t *, int64_t, int64_t, int64_t, const ds_samples *
        ) noexcept nogil
        ds_samples_read (*points)(
            const uint8_t *, int64_t, int64_t, int64_t, const ds_samples *
        ) noexcept nogil

    const ds_line_kernels *ds_line_at(int level)
    const ds_sample_kernels *ds_sample_at(int level)
    int ds_level()
    enum: DS_OTHER, DS_FLOAT, DS_INTEGER, DS_LONG, DS_SCANNED, DS_FOREIGN, DS_BROKEN

cdef extern from "ingest/names.h" nogil:
    ctypedef struct ds_names:
        uint32_t *slots
        int bits
        uint64_t word
        int64_t count
        uint64_t *hashes
        int64_t *contexts
        int64_t *offsets
        uint8_t *bytes

    ctypedef struct ds_name_kernels:
        int64_t (*find)(const ds_names *, const uint8_t *, int64_t, int64_t, int64_t) noexcept nogil
        void (*find_all)(
            const ds_names *, const uint8_t *, const int64_t *, const int64_t *, int64_t, int64_t,
            int64_t *
        ) noexcept nogil
        void (*append)(ds_names *, const uint8_t *, int64_t, int64_t) noexcept nogil
        void (*rebuild)(ds_names *) noexcept nogil

    const ds_name_kernels *ds_name_at(int level)

cdef const ds_line_kernels *of_lines = ds_line_at(ds_level())
cdef const ds_sample_kernels *of_samples = ds_sample_at(ds_level())
cdef const ds_name_kernels *of_names = ds_name_at(ds_level())

OTHER, FLOAT, INTEGER = DS_OTHER, DS_FLOAT, DS_INTEGER
SCANNED, FOREIGN, BROKEN = DS_SCANNED, DS_FOREIGN, DS_BROKEN



cdef int64_t _within(bytes text, int64_t at, int64_t end) except -1:
    if not 0 <= at <= end <= PyBytes_GET_SIZE(text):
        raise ValueError(f"bytes {at} to {end} of {len(text)}")
    return end - at


# ----------------------------------------------------------------------------- numbers of strings


cdef class Names:
    """Numbers 0, 1, 2, ... of byte strings, each with a context, which is an integer.

    Not safe to change in one thread and to use in another one, without the interpreter's lock.
    """

    cdef ds_names c
    cdef int64_t room, bytes_room
    cdef uint32_t[::1] slots
    cdef uint64_t[::1] hashes
    cdef int64_t[::1] contexts, offsets
    cdef uint8_t[::1] bytes

    def __cinit__(self):
        self.c.word = secrets.randbits(64)
        self.offsets = np.zeros(1, np.int64)
        self._widen(64)
        self._lengthen(4096)

    def __len__(self):
        return self.c.count

    cdef _widen(self, int64_t room):
        """Make room for so many strings, a power of two."""
        hashes, contexts = np.empty(room, np.uint64), np.empty(room, np.int64)
        offsets = np.empty(room + 1, np.int64)
        if self.c.count:
            hashes[: self.c.count], contexts[: self.c.count] = self.hashes, self.contexts
        offsets[: self.c.count + 1] = self.offsets[: self.c.count + 1]
        self.hashes, self.contexts, self.offsets = hashes, contexts, offsets
        self.slots = np.zeros(2 * room, np.uint32)
        self.c.slots, self.c.bits = &self.slots[0], (<object> room).bit_length()
        self.c.hashes, self.c.contexts = &self.hashes[0], &self.contexts[0]
        self.c.offsets, self.room = &self.offsets[0], room
        of_names.rebuild(&self.c)

    cdef _lengthen(self, int64_t room):
        """Make room for strings of so many bytes together."""
        used = self.offsets[self.c.count]
        data = np.empty(room, np.uint8)
        if used:
            data[:used] = self.bytes[:used]
        self.bytes, self.bytes_room = data, room
        self.c.bytes = &self.bytes[0]

    def find(self, bytes text not None, int64_t context=0):
        """Return the number of a string. -1: it has none. O(length)."""
        cdef const uint8_t *data = <const uint8_t *> PyBytes_AS_STRING(text)
        return of_names.find(&self.c, data, 0, PyBytes_GET_SIZE(text), context)

    def find_all(
        self, bytes text not None, const int64_t[::1] begins, const int64_t[::1] ends,
        int64_t context=0,
    ):
        """Return the number of each text[begin:end], int64[n], -1 for those without. O(bytes)."""
        cdef int64_t k, n = begins.shape[0], size = PyBytes_GET_SIZE(text)
        if ends.shape[0] != n:
            raise ValueError(f"columns of {n} and {ends.shape[0]} rows")
        found = np.empty(n, np.int64)
        cdef int64_t[::1] numbers = found
        for k in range(n):
            if not 0 <= begins[k] <= ends[k] <= size:
                raise ValueError(f"bytes {begins[k]} to {ends[k]} of {size}")
        if n:
            of_names.find_all(
                &self.c, <const uint8_t *> PyBytes_AS_STRING(text), &begins[0], &ends[0], context,
                n, &numbers[0],
            )
        return found

    def add(self, bytes text not None, int64_t context=0):
        """Return the number of a string, the next one if it has none. O(length), amortised."""
        cdef int64_t number = self.find(text, context), size = PyBytes_GET_SIZE(text)
        if number >= 0:
            return number
        if self.c.count == self.room:
            self._widen(2 * self.room)
        cdef int64_t needed = self.offsets[self.c.count] + size
        if needed > self.bytes_room:
            self._lengthen(max(self.bytes_room + self.bytes_room // 4, needed))
        of_names.append(&self.c, <const uint8_t *> PyBytes_AS_STRING(text), size, context)
        return self.c.count - 1


# ------------------------------------------------------------------------------------------ lines


cdef int64_t *_part(int64_t[:, ::1] columns, int64_t row):
    return &columns[row, 0]


cdef class Lines:
    """The plain lines of a text, from one byte on until the first that is not plain.

    Attributes:
        at: begin of the first line that was not read.
        ends: line ends before it.
        lines: int64[5, lines + 1]: begin and end of the head, number of the first field, time in
            nanoseconds, line ends before. The last column has the number of fields alone.
        repeats: uint8[lines], whether the field names are those of the line before.
        fields: int64[5, fields]: begin and end of the name, begin and end of the value, integer.
        kinds: uint8[fields]: OTHER, FLOAT or INTEGER.
        floats: float64[fields].
    """

    cdef readonly int64_t at, ends
    cdef readonly object lines, repeats, fields, kinds, floats

    def __init__(
        self, bytes text not None, int64_t at, int64_t end, *, int64_t precision, int64_t longest
    ):
        _within(text, at, end)
        if precision < 1 or longest < 1:
            raise ValueError(f"precision {precision}, longest {longest}")
        cdef int64_t rows = text.count(b"\n", at, end) + 1
        cdef int64_t fields = text.count(b"=", at, end) + 1
        lines, of_fields = np.empty((5, rows + 1), np.int64), np.empty((5, fields), np.int64)
        repeats, kinds = np.empty(rows, np.uint8), np.empty(fields, np.uint8)
        floats = np.empty(fields, np.float64)
        cdef int64_t[:, ::1] l = lines, f = of_fields
        cdef uint8_t[::1] r = repeats, k = kinds
        cdef double[::1] d = floats
        cdef ds_lines to
        to.heads[0], to.heads[1] = _part(l, 0), _part(l, 1)
        to.first, to.times, to.places = _part(l, 2), _part(l, 3), _part(l, 4)
        to.repeats = &r[0]
        to.names[0], to.names[1] = _part(f, 0), _part(f, 1)
        to.values[0], to.values[1], to.integers = _part(f, 2), _part(f, 3), _part(f, 4)
        to.kinds, to.floats = &k[0], &d[0]
        cdef const uint8_t *data = <const uint8_t *> PyBytes_AS_STRING(text)
        cdef ds_lines_read read
        with nogil:
            read = of_lines.lines(data, at, end, precision, longest, &to)
        self.at, self.ends = read.at, read.ends
        self.lines, self.repeats = lines[:, : read.lines + 1], repeats[: read.lines]
        self.fields, self.kinds = of_fields[:, : read.fields], kinds[: read.fields]
        self.floats = floats[: read.fields]
        cdef int64_t at_field
        for at_field in range(read.fields):
            if k[at_field] == DS_LONG:
                value = float(text[f[2, at_field] : f[3, at_field]])
                d[at_field] = value
                k[at_field] = DS_FLOAT if isfinite(<double> value) else DS_OTHER

    def __len__(self):
        return self.repeats.shape[0]

    def shapes(self, bytes text not None, Names known not None, int64_t most):
        """Return a number for the field names of each line, int64[lines]: their number in
        ``known``, which has at most so many. -1: it would have more.
        """
        cdef int64_t rows = len(self), row, field, number = -1
        cdef int64_t[:, ::1] l = self.lines.copy(), f = self.fields.copy()
        cdef uint8_t[::1] r = self.repeats
        found = np.empty(rows, np.int64)
        cdef int64_t[::1] numbers = found
        for row in range(rows):
            if not r[row]:
                key = b",".join([
                    text[f[0, field] : f[1, field]] for field in range(l[2, row], l[2, row + 1])
                ])
                number = known.find(key)
                if number < 0 and len(known) < most:
                    number = known.add(key)
            numbers[row] = number
        return found


# ---------------------------------------------------------------------------------------- samples


cdef class Samples:
    """Samples in a protobuf message.

    Attributes:
        at: end of the last field that was read.
        code: SCANNED, or why it ended there: FOREIGN or BROKEN.
        labels: int64[2, n], begin and end of labels or attributes.
        bodies: int64[2, n], begin and end of each message.
        times: int64[n], in nanoseconds.
        starts: int64[n], likewise, 0 if there is none. Of data points.
        values: float64[n].
        plain: bool[n]. Of a sample that is not plain, only ``bodies`` is set.
    """

    cdef readonly int64_t at
    cdef readonly int code
    cdef readonly object labels, bodies, times, starts, values, plain

    def __len__(self):
        return self.plain.shape[0]

    def __init__(self, bytes text not None, int64_t at, int64_t most, *, bint points=False):
        cdef int64_t end = PyBytes_GET_SIZE(text)
        _within(text, at, end)
        most = min(most, (end - at) // 2 + 1)  # a message takes two bytes at the least
        numbers, values = np.zeros((6, most + 1), np.int64), np.zeros(most + 1, np.float64)
        plain = np.zeros(most + 1, np.uint8)
        cdef int64_t[:, ::1] n = numbers
        cdef double[::1] d = values
        cdef uint8_t[::1] p = plain
        cdef ds_samples to
        to.labels[0], to.labels[1] = _part(n, 0), _part(n, 1)
        to.bodies[0], to.bodies[1] = _part(n, 2), _part(n, 3)
        to.times, to.starts, to.values, to.plain = _part(n, 4), _part(n, 5), &d[0], &p[0]
        cdef const uint8_t *data = <const uint8_t *> PyBytes_AS_STRING(text)
        cdef ds_samples_read read
        with nogil:
            if points:
                read = of_samples.points(data, at, end, most, &to)
            else:
                read = of_samples.series(data, at, end, most, &to)
        cdef int64_t rows = read.samples
        self.at, self.code = read.at, read.code
        self.labels, self.bodies = numbers[:2, :rows], numbers[2:4, :rows]
        self.times, self.starts, self.values = numbers[4, :rows], numbers[5, :rows], values[:rows]
        self.plain = plain[:rows].view(np.bool_)
