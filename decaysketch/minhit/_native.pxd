from libc.stdint cimport int8_t, int64_t

cdef extern from "minhit/hash.h" nogil:
    ctypedef struct ds_chain:
        int64_t modulus, a, ratio
        double a_over_modulus, one_over_modulus, one_over_a

    ctypedef struct ds_hash:
        int64_t id_bits, mix_words
        int64_t mix[6]
        int64_t a, a1, b, p, top
        const int64_t (*steps)[6]
        int64_t step_count
        const ds_chain *chain
        int64_t chain_count, a2
        double a1_over_p, a2_over_p
        int64_t p_exponent


cdef class Hash:
    cdef ds_hash c
    cdef ds_chain *chain
    cdef const int64_t[:, ::1] steps
