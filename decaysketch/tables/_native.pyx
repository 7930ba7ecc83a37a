"""The kernel of the batch engine, `counts.c`, over NumPy columns."""

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef extern from "tables/counts.h" nogil:
    ctypedef struct ds_counts_kernels:
        void (*count_by_key)(
            const int32_t *, const uint8_t *, const uint8_t *, const uint8_t *, int64_t,
            int64_t (*)[4]
        ) noexcept nogil

    const ds_counts_kernels *ds_counts_at(int level)
    int ds_level()

cdef const ds_counts_kernels *kernels = ds_counts_at(ds_level())


def count_by_key(
    const int32_t[::1] codes, const uint8_t[::1] missing, const uint8_t[::1] fallback,
    const uint8_t[::1] refused, int64_t[:, ::1] counts,
):
    """Add to counts[key] the rows taken, those among them without value or time, those refused."""
    cdef int64_t n = codes.shape[0]
    if not n == missing.shape[0] == fallback.shape[0] == refused.shape[0] or counts.shape[1] != 4:
        raise ValueError(f"masks of other lengths than {n}, or counts that are not four")
    if n:
        with nogil:
            kernels.count_by_key(
                &codes[0], &missing[0], &fallback[0], &refused[0], n,
                <int64_t (*)[4]> &counts[0, 0],
            )
