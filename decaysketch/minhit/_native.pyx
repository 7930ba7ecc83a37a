"""The kernels of the range hash, `minhit.c`, over NumPy columns."""

from libc.stdlib cimport free, malloc

cdef extern from "minhit/minhit.h" nogil:
    ctypedef struct ds_minhit_kernels:
        void (*top_levels)(
            const ds_hash *, const int64_t *, const int64_t *, int64_t, int8_t *
        ) noexcept nogil
        void (*minimum_hashes)(
            const ds_hash *, const int64_t *, const int64_t *, int64_t, int64_t *
        ) noexcept nogil
        void (*range_samples)(
            const ds_hash *, const int64_t *, const int64_t *, const int8_t *, int64_t, int64_t *
        ) noexcept nogil
        void (*min_hits)(
            const ds_hash *, const int64_t *, const int64_t *, const int8_t *, int64_t, int64_t *
        ) noexcept nogil
        void (*min_hits_all_levels)(
            const ds_hash *, const int64_t *, const int64_t *, int64_t, int64_t *
        ) noexcept nogil

    const ds_minhit_kernels *ds_minhit_at(int level)
    int ds_level()

cdef const ds_minhit_kernels *kernels = ds_minhit_at(ds_level())


cdef class Hash:
    """What the kernels need of one hash function. Immutable."""

    def __cinit__(
        self, *, int id_bits, mix, multiplier, start_multiplier, offset, prime, int top,
        const int64_t[:, ::1] steps, chain,
    ):
        if not (0 <= id_bits <= 56 and 1 < prime < 1 << 61 and 0 <= top < 62):
            raise ValueError(f"id_bits {id_bits}, prime {prime} or top {top} is out of range")
        if len(mix) not in (0, 6) or steps.shape[1] != 6:
            raise ValueError(f"{len(mix)} words of mixing, {steps.shape[1]} fields of a step")
        self.c.id_bits, self.c.mix_words, self.c.top = id_bits, len(mix), top
        for k, word in enumerate(mix):
            self.c.mix[k] = word
        self.c.a, self.c.a1, self.c.b, self.c.p = multiplier, start_multiplier, offset, prime
        a2 = (start_multiplier << 28) % prime
        self.c.a2 = a2
        self.c.a1_over_p = <double> self.c.a1 / <double> self.c.p
        self.c.a2_over_p = <double> self.c.a2 / <double> self.c.p
        self.c.p_exponent = prime.bit_length() - 1 + 1023
        self.steps = steps
        self.c.step_count = steps.shape[0]
        self.c.steps = <const int64_t (*)[6]> &steps[0, 0] if steps.shape[0] else NULL
        self.chain = <ds_chain *> malloc(max(1, len(chain)) * sizeof(ds_chain))
        if self.chain == NULL:
            raise MemoryError
        for k, (modulus, a, ratio) in enumerate(chain):
            self.chain[k] = ds_chain(
                modulus, a, ratio, <double> <int64_t> a / <double> <int64_t> modulus,
                1.0 / <double> <int64_t> modulus, 1.0 / <double> <int64_t> a if a else 0.0,
            )
        self.c.chain, self.c.chain_count = self.chain, len(chain)

    def __dealloc__(self):
        free(self.chain)


cdef int64_t _rows(int64_t first, int64_t second) except -1:
    if first != second:
        raise ValueError(f"columns of {first} and {second} rows")
    return first


def top_levels(
    Hash hash not None, const int64_t[::1] ids, const int64_t[::1] weights, int8_t[::1] levels
):
    """levels[k] = top level of the observation (ids[k], weights[k])."""
    cdef int64_t n = _rows(_rows(ids.shape[0], weights.shape[0]), levels.shape[0])
    if n:
        with nogil:
            kernels.top_levels(&hash.c, &ids[0], &weights[0], n, &levels[0])


def minimum_hashes(
    Hash hash not None, const int64_t[::1] ids, const int64_t[::1] weights, int64_t[::1] minima
):
    """minima[k] = least hash value in the range of the observation."""
    cdef int64_t n = _rows(_rows(ids.shape[0], weights.shape[0]), minima.shape[0])
    if n:
        with nogil:
            kernels.minimum_hashes(&hash.c, &ids[0], &weights[0], n, &minima[0])


def range_samples(
    Hash hash not None, const int64_t[::1] ids, const int64_t[::1] weights,
    const int8_t[::1] levels, int64_t[::1] hits,
):
    """hits[k] = number of the observation's hash values below floor(p / 2^levels[k])."""
    cdef int64_t n = _rows(_rows(ids.shape[0], weights.shape[0]), levels.shape[0])
    if _rows(n, hits.shape[0]):
        with nogil:
            kernels.range_samples(&hash.c, &ids[0], &weights[0], &levels[0], n, &hits[0])


def min_hits(
    Hash hash not None, const int64_t[::1] ids, const int64_t[::1] weights,
    const int8_t[::1] levels, int64_t[::1] positions,
):
    """positions[k] = first j with a hash value below floor(p / 2^levels[k]), else -1 (MinHit)."""
    cdef int64_t n = _rows(_rows(ids.shape[0], weights.shape[0]), levels.shape[0])
    if _rows(n, positions.shape[0]):
        with nogil:
            kernels.min_hits(&hash.c, &ids[0], &weights[0], &levels[0], n, &positions[0])


def min_hits_all_levels(
    Hash hash not None, const int64_t[::1] ids, const int64_t[::1] weights,
    int64_t[:, ::1] positions,
):
    """positions[k, i] = first j with a hash value below floor(p / 2^i), else -1."""
    cdef int64_t n = _rows(_rows(ids.shape[0], weights.shape[0]), positions.shape[0])
    _rows(hash.c.top + 1, positions.shape[1])
    if n:
        with nogil:
            kernels.min_hits_all_levels(&hash.c, &ids[0], &weights[0], n, &positions[0, 0])
