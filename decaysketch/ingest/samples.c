/* Samples in protobuf messages, in the form in which all exporters write them.

   A series of a remote write: labels, then one sample with a value and a time in ms that is in
   nanoseconds an integer of 64 bits above 0. A data point of OTLP: maybe a start, then a time and a
   double, then attributes. Anything else that is a message is there, and not plain. */
#include "ingest/scan.h"

#include <math.h>
#include <stdbool.h>

enum { VARINT, FIXED64, BYTES, FIXED32 = 5 };

#define TAG(number, encoding) ((number) << 3 | (encoding))
#define NS_OF_MS 1000000ULL

/* A number of 64 bits at text[*at], which moves behind it. False: it has no end. */
static inline bool read_varint(const uint8_t *text, int64_t *at, int64_t end, uint64_t *number) {
    *number = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (*at >= end) return false;
        const uint8_t byte = text[(*at)++];
        *number |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

/* The length at text[*at], which moves behind it. False: the content is not all there. */
static inline bool read_length(const uint8_t *text, int64_t *at, int64_t end, int64_t *length) {
    uint64_t number;
    if (!read_varint(text, at, end, &number) || number > (uint64_t)(end - *at)) return false;
    *length = (int64_t)number;
    return true;
}

static inline double read_double(const uint8_t *text) {
    uint64_t word = 0;
    for (int k = 7; k >= 0; k--) word = word << 8 | text[k];
    double value;
    memcpy(&value, &word, sizeof value);
    return value;
}

static inline uint64_t read_word(const uint8_t *text) {
    uint64_t word = 0;
    for (int k = 7; k >= 0; k--) word = word << 8 | text[k];
    return word;
}

/* Moves behind the content of a field. False: it is none. */
static inline bool skip_field(const uint8_t *text, int64_t *at, int64_t end, int encoding) {
    uint64_t number;
    int64_t length;
    switch (encoding) {
        case VARINT: return read_varint(text, at, end, &number);
        case FIXED64: length = 8; break;
        case FIXED32: length = 4; break;
        case BYTES:
            if (!read_length(text, at, end, &length)) return false;
            break;
        default: return false;
    }
    if (length > end - *at) return false;
    *at += length;
    return true;
}

/* The series text[at..end] as sample k. False: it is not plain. */
static inline bool read_series(
    const uint8_t *text, int64_t at, int64_t end, const ds_samples *to, int64_t k
) {
    int64_t length;
    const int64_t labels = at;
    while (at < end && text[at] == TAG(1, BYTES)) {
        at++;
        if (!read_length(text, &at, end, &length)) return false;
        at += length;
    }
    const int64_t stop = at;
    if (end - at < 13 || text[at] != TAG(2, BYTES) || text[at + 1] != end - at - 2) return false;
    if (text[at + 2] != TAG(1, FIXED64) || text[at + 11] != TAG(2, VARINT)) return false;
    const double value = read_double(text + at + 3);
    uint64_t time;
    at += 12;
    if (!read_varint(text, &at, end, &time) || at != end) return false;
    if (time == 0 || time > (uint64_t)INT64_MAX / NS_OF_MS || !isfinite(value)) return false;
    to->labels[0][k] = labels, to->labels[1][k] = stop;
    to->values[k] = value;
    to->times[k] = (int64_t)(time * NS_OF_MS);
    return true;
}

static ds_samples_read read_all_series(
    const uint8_t *text, int64_t at, int64_t end, int64_t most, const ds_samples *to
) {
    ds_samples_read read = {0, at, DS_SCANNED};
    while (at < end && read.samples < most) {
        uint64_t tag;
        const int64_t begin = at;
        read.code = DS_BROKEN;
        if (!read_varint(text, &at, end, &tag) || (at - begin > 1 && tag < 0x80)) return read;
        const int64_t content = at;
        if (!skip_field(text, &at, end, (int)(tag & 7))) return read;
        read.code = DS_FOREIGN;
        if (tag == TAG(4, BYTES) || tag == TAG(5, BYTES)) return read;
        read.code = DS_SCANNED;
        read.at = at;
        if (tag != TAG(1, BYTES)) continue;
        int64_t body = content, length;
        read_length(text, &body, end, &length);
        const int64_t k = read.samples++;
        to->bodies[0][k] = body, to->bodies[1][k] = at;
        to->plain[k] = read_series(text, body, at, to, k);
    }
    return read;
}

/* The data point text[at..end] as sample k. False: it is not plain. */
static inline bool read_point(
    const uint8_t *text, int64_t at, int64_t end, const ds_samples *to, int64_t k
) {
    to->starts[k] = 0;
    if (end - at >= 9 && text[at] == TAG(2, FIXED64)) {
        const uint64_t start = read_word(text + at + 1);
        if (start > (uint64_t)INT64_MAX) return false;
        to->starts[k] = (int64_t)start;
        at += 9;
    }
    if (end - at < 18 || text[at] != TAG(3, FIXED64) || text[at + 9] != TAG(4, FIXED64))
        return false;
    const uint64_t time = read_word(text + at + 1);
    const double value = read_double(text + at + 10);
    at += 18;
    if (time == 0 || time > (uint64_t)INT64_MAX || !isfinite(value)) return false;
    if (at < end && text[at] != TAG(7, BYTES)) return false;
    to->labels[0][k] = at, to->labels[1][k] = end;
    to->values[k] = value;
    to->times[k] = (int64_t)time;
    return true;
}

static ds_samples_read read_points(
    const uint8_t *text, int64_t at, int64_t end, int64_t most, const ds_samples *to
) {
    ds_samples_read read = {0, at, DS_SCANNED};
    int64_t length;
    while (at < end && read.samples < most && text[at] == TAG(1, BYTES)) {
        at++;
        if (!read_length(text, &at, end, &length)) break;
        const int64_t k = read.samples++;
        to->bodies[0][k] = at, to->bodies[1][k] = at + length;
        to->plain[k] = read_point(text, at, at + length, to, k);
        read.at = at += length;
    }
    return read;
}

DS_TABLE(ds_sample_kernels, ds_sample) = {.series = read_all_series, .points = read_points};
