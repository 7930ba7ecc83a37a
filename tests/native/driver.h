/* What the driver gives to the adapters, which call kernels with recorded numbers. */
#ifndef DRIVER_H
#define DRIVER_H

#include <stddef.h>
#include <stdint.h>

enum { MOST_COLUMNS = 16 };

typedef struct {
    int64_t count;
    int64_t *numbers;
} column;

/* One recorded call. Whatever a number is to a kernel, it is recorded as 64 bits. */
typedef struct {
    column in[MOST_COLUMNS];
    int ins, results;
    int bad; /* results that are not those recorded */
    const column *expected; /* null to write results down instead */
    int expectations;
} call;

typedef struct {
    const char *name; /* table.kernel */
    void (*run)(call *);
} adapter;

/* The adapters of a table, up to one without a name. */
extern const adapter minhit_adapters[], asyncwindow_adapters[], ecm_adapters[];

/* Memory for a number of objects, all zero; given back when the call is done. */
void *room(int64_t count, size_t size);

/* The next result of the call. */
void give(call *, const int64_t *numbers, int64_t count);
void give_bytes(call *, const int8_t *numbers, int64_t count);

/* A column of the call in bytes. */
int8_t *bytes_of(const column *);

/* The table of this build. */
#define TABLE_(name, level) name##_##level
#define TABLE(name, level) TABLE_(name, level)

#endif
