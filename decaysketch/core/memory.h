/* Memory that tracemalloc sees, and that needs no interpreter's lock. */
#ifndef DS_MEMORY_H
#define DS_MEMORY_H

#include <stdint.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

/* A hint that a large block of memory will be used as a whole: in pages of 2 MB the first touch of it
   costs a fraction. */
static inline void ds_advise(void *memory, size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const uintptr_t page = 1 << 21;
    const uintptr_t first = ((uintptr_t)memory + page - 1) & ~(page - 1);
    const uintptr_t last = ((uintptr_t)memory + bytes) & ~(page - 1);
    if (memory && last > first) madvise((void *)first, last - first, MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}

#endif
