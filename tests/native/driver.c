/* Runs recorded calls of kernels, where there need be no Python: `driver FILE` compares what they
   give with the results of the file, and exits with 1 where one differs.

   A file is of lines of decimal numbers: a call is `! table.kernel`, then `< ` and an input, ..., then
   `> ` and a result, ... An input that is the latest one at its place is `=`, and 7x3 stands for
   7 7 7. */
#include "driver.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const adapter *const tables[] = {
    asyncwindow_adapters, batch_adapters,    codec_adapters,  core_adapters,      ecm_adapters,
    extremes_adapters,    integral_adapters, minhit_adapters, querytime_adapters, querytime_wire_adapters,
    series_adapters,      sources_adapters,
};

static void fail(const char *why, const char *what) {
    fprintf(stderr, "%s: %s\n", why, what);
    exit(2);
}

void *room(int64_t count, size_t size) {
    void *block = calloc((size_t)count + 1, size);
    if (!block) fail("no memory", "");
    return block;
}

int64_t *copy_of(const column *from) {
    int64_t *copy = room(from->count, sizeof *copy);
    return memcpy(copy, from->numbers, (size_t)from->count * sizeof *copy);
}

void *narrow(const column *from, size_t size) {
    uint8_t *to = room(from->count, size);
    for (int64_t k = 0; k < from->count; k++)
        memcpy(to + (size_t)k * size, &from->numbers[k], size); /* the low bytes come first */
    return to;
}

void give(call *c, const void *numbers, int64_t count) {
    const column *expected = &c->expected[c->results++];
    c->bad += c->results > c->expectations || count != expected->count ||
              memcmp(numbers, expected->numbers, (size_t)count * sizeof(int64_t));
}

void give_narrow(call *c, const void *numbers, int64_t count, size_t size) {
    int64_t *wide = room(count, sizeof *wide);
    const int shift = 64 - 8 * (int)size;
    for (int64_t k = 0; k < count; k++) {
        memcpy(&wide[k], (const uint8_t *)numbers + (size_t)k * size, size);
        wide[k] = (int64_t)((uint64_t)wide[k] << shift) >> shift;
    }
    give(c, wide, count);
}

/* Reads numbers into memory, or none; how many there are. */
static int64_t read_numbers(const char *text, int64_t *to) {
    int64_t count = 0;
    for (char *end;; text = end) {
        const int64_t number = strtoll(text, &end, 10);
        if (end == text) return count;
        for (int64_t times = *end == 'x' ? strtoll(end + 1, &end, 10) : 1; times; times--, count++)
            if (to) to[count] = number;
    }
}

static column column_of(const char *text) {
    column c = {.count = read_numbers(text, NULL)};
    c.numbers = room(c.count, sizeof *c.numbers);
    read_numbers(text, c.numbers);
    return c;
}

/* Whether the results of a call are other ones. */
static int differs(call *c, int number) {
    const adapter *found = NULL;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const adapter *a = tables[t]; a->kernel; a++)
            if (!strcmp(a->kernel, c->kernel)) found = a;
    if (!found) fail("no such kernel", c->kernel);
    found->run(c);
    if (!c->bad && c->results == c->expectations) return 0;
    printf("call %d, %s: %d of %d results differ\n", number, c->kernel, c->bad, c->results);
    return 1;
}

int main(int count, char **arguments) {
    FILE *file = count == 2 ? fopen(arguments[1], "r") : NULL;
    if (!file) fail("cannot read", count == 2 ? arguments[1] : "a file");
    static char line[1 << 20];
    call c = {0};
    int calls = 0, bad = 0;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] == '!') {
            if (*c.kernel) bad += differs(&c, calls++);
            c.ins = c.expectations = c.results = c.bad = 0;
            snprintf(c.kernel, sizeof c.kernel, "%.63s", line + 2);
        } else if (line[0] == '<' && c.ins < MOST_COLUMNS) {
            c.in[c.ins++] = column_of(line + 1);
        } else if (line[0] == '=' && c.ins < MOST_COLUMNS) {
            c.ins++; /* it is there */
        } else if (line[0] == '>' && c.expectations < MOST_COLUMNS) {
            c.expected[c.expectations++] = column_of(line + 1);
        } else {
            fail("no line of a call", line);
        }
    }
    if (*c.kernel) bad += differs(&c, calls++);
    printf("%d calls, %d differ\n", calls, bad);
    return bad || !calls;
}
