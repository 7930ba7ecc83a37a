/* Scanners of bytes from the network. They read nothing outside the given bytes, allocate nothing,
   and stop at everything that their plain form does not have: Python reads that. */
#ifndef DS_INGEST_SCAN_H
#define DS_INGEST_SCAN_H

#include <stdint.h>

#include "core/levels.h"

/* How a field's value is written. */
enum {
    DS_OTHER,   /* a text, a truth value, or an integer beyond 64 bits */
    DS_FLOAT,   /* a number, in floats */
    DS_INTEGER, /* with the ending i or u, in integers */
    DS_LONG,    /* a number with more digits than double arithmetic rounds correctly */
};

typedef struct {
    /* of each line */
    int64_t *heads[2];  /* begin and end of measurement and tags */
    int64_t *first;     /* number of its first field; one more than there are lines */
    int64_t *times;
    int64_t *places;    /* number of line ends before it */
    uint8_t *repeats;   /* whether its field names are those of the line before */
    /* of each field */
    int64_t *names[2];
    int64_t *values[2];
    uint8_t *kinds;
    double *floats;
    int64_t *integers;
} ds_lines;

typedef struct {
    int64_t lines, fields;
    int64_t at;   /* begin of the first line that was not read */
    int64_t ends; /* line ends before it */
} ds_lines_read;

/* Samples in protobuf messages. */
typedef struct {
    int64_t *labels[2]; /* begin and end of labels or attributes */
    int64_t *bodies[2]; /* begin and end of the message */
    int64_t *times;
    int64_t *starts;    /* 0: there is none */
    double *values;
    uint8_t *plain;     /* 0: only bodies is set */
} ds_samples;

typedef struct {
    int64_t samples;
    int64_t at;    /* begin of the first field that was not read */
    int code;      /* DS_SCANNED, or why it ended there */
} ds_samples_read;

enum { DS_SCANNED, DS_FOREIGN, DS_BROKEN };

typedef struct {
    /* Lines from text[at] to text[end], where a line ends, until one that is not plain.
       precision: nanoseconds in a unit of the times. longest: bytes of a line. */
    ds_lines_read (*lines)(
        const uint8_t *text, int64_t at, int64_t end, int64_t precision, int64_t longest,
        const ds_lines *to
    );
} ds_line_kernels;

typedef struct {
    /* Series of a remote write of version 1, at most so many. */
    ds_samples_read (*series)(
        const uint8_t *text, int64_t at, int64_t end, int64_t most, const ds_samples *to
    );
    /* Data points of an OTLP metric, at most so many. */
    ds_samples_read (*points)(
        const uint8_t *text, int64_t at, int64_t end, int64_t most, const ds_samples *to
    );
} ds_sample_kernels;

DS_TABLES(ds_line_kernels, ds_line)
DS_TABLES(ds_sample_kernels, ds_sample)

#endif
