/* Lines of Influx line protocol, without the parts that only the grammar of line_protocol.py reads.

   A plain line is `head name=value,name=value time`, with one space between its parts. The head
   (measurement and tags) may have escapes, and is not inspected. A field name has none. A value is
   a run without quotes, or a quoted text without line ends and backslashes. The time is an integer
   of 64 bits, also in nanoseconds.

   A number with at most 19 digits, that is m * 10^e with m <= 2^53 and |e| <= 22, is one exact
   double times or divided by another, so rounded once: correctly (Clinger, "How to read floating
   point numbers accurately", PLDI 1990). */
#include "ingest/scan.h"

#include <stdbool.h>

#define EXACT_DIGITS 19
#define EXACT_INTEGER (1ULL << 53)
#define EXACT_POWER 22

static const double powers[EXACT_POWER + 1] = {
    1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
};

static inline bool is_digit(uint8_t byte) { return (uint8_t)(byte - '0') < 10; }

/* A magnitude below 2^63, or 2^63 if negative, with its sign. False: beyond 64 bits. */
static inline bool with_sign(uint64_t magnitude, bool negative, int64_t *number) {
    if (magnitude > (uint64_t)INT64_MAX + negative) return false;
    *number = (int64_t)(negative ? 0 - magnitude : magnitude);
    return true;
}

/* The kind of the value text[at..end], and the number. */
static inline uint8_t read_value(
    const uint8_t *text, int64_t at, int64_t end, double *number, int64_t *integer
) {
    const bool negative = text[at] == '-';
    if (negative || text[at] == '+') at++;
    uint64_t mantissa = 0;
    int64_t digits = 0, power = 0;
    const int64_t first = at;
    while (at < end && text[at] == '0') at++;
    for (; at < end && is_digit(text[at]); at++, digits++)
        mantissa = mantissa * 10 + (uint64_t)(text[at] - '0');
    bool there = at > first; /* a digit */
    if (there && at == end - 1 && (text[at] == 'i' || text[at] == 'u')) {
        if (digits > EXACT_DIGITS || at - first > 20) return DS_OTHER;
        return with_sign(mantissa, negative, integer) ? DS_INTEGER : DS_OTHER;
    }
    if (at < end && text[at] == '.') {
        const int64_t point = ++at;
        if (digits == 0)
            for (; at < end && text[at] == '0'; at++) power--;
        for (; at < end && is_digit(text[at]); at++, digits++, power--)
            mantissa = mantissa * 10 + (uint64_t)(text[at] - '0');
        there = there || at > point;
    }
    if (!there) return DS_OTHER;
    if (at < end && (text[at] == 'e' || text[at] == 'E')) {
        at++;
        const bool down = at < end && text[at] == '-';
        if (at < end && (down || text[at] == '+')) at++;
        const int64_t begin = at;
        int64_t exponent = 0;
        for (; at < end && is_digit(text[at]); at++)
            if (exponent < 100000) exponent = exponent * 10 + (text[at] - '0');
        if (at == begin) return DS_OTHER;
        power += down ? -exponent : exponent;
    }
    if (at != end) return DS_OTHER;
    if (mantissa == 0 && digits <= EXACT_DIGITS) {
        *number = negative ? -0.0 : 0.0;
        return DS_FLOAT;
    }
    if (digits > EXACT_DIGITS || mantissa > EXACT_INTEGER) return DS_LONG;
    if (power < -EXACT_POWER || power > EXACT_POWER) return DS_LONG;
    const double exact = (double)mantissa;
    const double found = power < 0 ? exact / powers[-power] : exact * powers[power];
    *number = negative ? -found : found;
    return DS_FLOAT;
}

/* Where the head ends that begins at text[at]: at a space. -1: there is none in the line. */
static inline int64_t end_of_head(const uint8_t *text, int64_t at, int64_t end) {
    for (; at < end; at++) {
        const uint8_t byte = text[at];
        if (byte == ' ') return at;
        if (byte == '\n') return -1;
        if (byte == '\\' && at + 1 < end) {
            const uint8_t next = text[at + 1];
            at += next == ',' || next == '=' || next == ' ';
        }
    }
    return -1;
}

/* Where the value ends that begins at text[at]: at a comma or a space. -1: it is not plain. */
static inline int64_t end_of_value(const uint8_t *text, int64_t at, int64_t end) {
    if (text[at] == '"') {
        for (at++; at < end && text[at] != '"'; at++)
            if (text[at] == '\\' || text[at] == '\n') return -1;
        if (++at >= end) return -1;
        return text[at] == ',' || text[at] == ' ' ? at : -1;
    }
    const int64_t begin = at;
    for (; at < end; at++) {
        const uint8_t byte = text[at];
        if (byte == ',' || byte == ' ') return at > begin ? at : -1;
        if (byte == '=' || byte == '"' || byte == '\\' || byte == '\n' || byte == '\r') return -1;
    }
    return -1;
}

/* Where the name ends that begins at text[at]: at its sign. -1: it is not plain. */
static inline int64_t end_of_name(const uint8_t *text, int64_t at, int64_t end) {
    const int64_t begin = at;
    for (; at < end; at++) {
        const uint8_t byte = text[at];
        if (byte == '=') return at > begin ? at : -1;
        if (byte == ',' || byte == ' ' || byte == '\n' || byte == '\\') return -1;
    }
    return -1;
}

/* Where the time ends that begins at text[at], before its line end. -1: it is not plain. */
static inline int64_t read_time(
    const uint8_t *text, int64_t at, int64_t end, int64_t precision, int64_t *time
) {
    const bool negative = at < end && text[at] == '-';
    at += negative;
    const int64_t begin = at;
    uint64_t magnitude = 0;
    for (; at < end && is_digit(text[at]) && at - begin < EXACT_DIGITS; at++)
        magnitude = magnitude * 10 + (uint64_t)(text[at] - '0');
    if (at == begin || !with_sign(magnitude, negative, time)) return -1;
    if (__builtin_mul_overflow(*time, precision, time)) return -1;
    if (at < end && text[at] == '\r') at++;
    return at == end || text[at] == '\n' ? at : -1;
}

/* Whether the names of the fields from `first` on are those of the fields before them. */
static inline bool are_repeated(
    const uint8_t *text, const ds_lines *to, int64_t before, int64_t first, int64_t stop
) {
    const int64_t count = stop - first;
    if (first - before != count) return false;
    for (int64_t k = 0; k < count; k++) {
        const int64_t a = to->names[0][before + k], b = to->names[0][first + k];
        const int64_t length = to->names[1][first + k] - b;
        if (to->names[1][before + k] - a != length) return false;
        if (memcmp(text + a, text + b, (size_t)length)) return false;
    }
    return true;
}

/* Where the fields end that begin at text[at], at a space. -1: they are not plain. */
static inline int64_t read_fields(
    const uint8_t *text, int64_t at, int64_t end, const ds_lines *to, int64_t *fields
) {
    for (;;) {
        const int64_t sign = end_of_name(text, at, end);
        if (sign < 0 || sign + 1 >= end) return -1;
        const int64_t stop = end_of_value(text, sign + 1, end), k = *fields;
        if (stop < 0) return -1;
        to->names[0][k] = at, to->names[1][k] = sign;
        to->values[0][k] = sign + 1, to->values[1][k] = stop;
        to->kinds[k] = read_value(text, sign + 1, stop, &to->floats[k], &to->integers[k]);
        ++*fields;
        if (text[stop] == ' ') return stop;
        at = stop + 1;
    }
}

static inline bool is_mark(const uint8_t *text, int64_t at, int64_t end) {
    return end - at >= 3 && text[at] == 0xEF && text[at + 1] == 0xBB && text[at + 2] == 0xBF;
}

static ds_lines_read read_lines(
    const uint8_t *text, int64_t at, int64_t end, int64_t precision, int64_t longest,
    const ds_lines *to
) {
    ds_lines_read read = {0, 0, at, 0};
    while (at < end) {
        if (text[at] == '\n' || text[at] == '#') {
            const uint8_t *next = memchr(text + at, '\n', (size_t)(end - at));
            at = next ? next - text + 1 : end;
            read.ends += next != NULL;
            read.at = at;
            continue;
        }
        const int64_t begin = at, limit = end - at < longest ? end : at + longest;
        if (text[at] == ' ' || is_mark(text, at, end)) break;
        const int64_t head = end_of_head(text, at, limit);
        if (head < 0 || head + 1 >= limit) break;
        int64_t fields = read.fields, time;
        to->first[read.lines] = fields;
        at = read_fields(text, head + 1, limit, to, &fields);
        if (at < 0 || (at = read_time(text, at + 1, limit, precision, &time)) < 0) break;
        if (at == limit && limit < end) break;
        const int64_t k = read.lines++;
        to->heads[0][k] = begin, to->heads[1][k] = head;
        to->times[k] = time;
        to->places[k] = read.ends;
        to->repeats[k] = k > 0 && are_repeated(text, to, to->first[k - 1], read.fields, fields);
        read.fields = fields;
        read.ends += at < end;
        at += at < end;
        read.at = at;
    }
    to->first[read.lines] = read.fields;
    return read;
}

DS_TABLE(ds_line_kernels, ds_line) = {.lines = read_lines};
