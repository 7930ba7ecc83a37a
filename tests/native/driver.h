/* What the driver gives to the adapters, which call kernels with recorded numbers. */
#ifndef DRIVER_H
#define DRIVER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { MOST_COLUMNS = 24 };

typedef struct {
    int64_t count;
    int64_t *numbers;
} column;

/* One recorded call. Whatever a number is to a kernel, it is recorded as 64 bits. */
typedef struct {
    char kernel[64]; /* table.kernel */
    column in[MOST_COLUMNS], expected[MOST_COLUMNS];
    int ins, expectations;
    int results, bad; /* given so far; those that are not the expected ones */
} call;

typedef struct {
    const char *kernel;
    void (*run)(call *);
} adapter;

/* The adapters of a table, up to one without a name. */
extern const adapter asyncwindow_adapters[], batch_adapters[], codec_adapters[], core_adapters[],
    ecm_adapters[], extremes_adapters[], integral_adapters[], minhit_adapters[], querytime_adapters[],
    querytime_wire_adapters[], series_adapters[], sources_adapters[];

/* Memory for a number of objects and one more, all zero, until the driver ends. */
void *room(int64_t count, size_t size);

/* A column of the call that may be written to. Inputs are not: later calls may have them too. */
int64_t *copy_of(const column *);

/* A column of the call as numbers of so many bytes each. */
void *narrow(const column *, size_t size);

/* The next result of the call. */
void give(call *, const void *numbers, int64_t count); /* of 64 bits */
void give_narrow(call *, const void *numbers, int64_t count, size_t size);

/* An odd number for tables, whose results do not depend on it. */
#define SALT 0x9E3779B97F4A7C15ULL

/* The table of this build. */
#define TABLE_(name, level) name##_##level
#define TABLE(name, level) TABLE_(name, level)

#endif
