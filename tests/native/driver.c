/* Runs recorded calls of kernels, where there need be no Python:

       driver FILE        compares results with those of the file; exits with 1 where one differs
       driver --write     reads inputs from the standard input, and writes the file

   A file is of lines of decimal numbers: a call is `! table.kernel`, then `< ` and an input, ..., then
   `> ` and a result, ... */
#include "driver.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const adapter *const tables[] = {minhit_adapters, asyncwindow_adapters, ecm_adapters};

static void *blocks[64];
static int block_count;

static void fail(const char *why, const char *what) {
    fprintf(stderr, "%s: %s\n", why, what);
    exit(2);
}

void *room(int64_t count, size_t size) {
    void *block = calloc((size_t)(count + 1), size);
    if (!block || block_count == 64) fail("no memory", "");
    return blocks[block_count++] = block;
}

static void free_blocks(void) {
    while (block_count) free(blocks[--block_count]);
}

void give(call *c, const int64_t *numbers, int64_t count) {
    const int k = c->results++;
    if (!c->expected) {
        printf(">");
        for (int64_t i = 0; i < count; i++) printf(" %" PRId64, numbers[i]);
        printf("\n");
        return;
    }
    const column *wanted = &c->expected[k];
    c->bad += k >= c->expectations || count != wanted->count ||
              memcmp(numbers, wanted->numbers, (size_t)count * sizeof *numbers);
}

void give_bytes(call *c, const int8_t *numbers, int64_t count) {
    int64_t *wide = room(count, sizeof *wide);
    for (int64_t k = 0; k < count; k++) wide[k] = numbers[k];
    give(c, wide, count);
}

int8_t *bytes_of(const column *from) {
    int8_t *bytes = room(from->count, 1);
    for (int64_t k = 0; k < from->count; k++) bytes[k] = (int8_t)from->numbers[k];
    return bytes;
}

static column numbers_of(const char *text) {
    column c = {0};
    int64_t count = 1;
    for (const char *at = text; *at; at++) count += *at == ' ';
    c.numbers = room(count, sizeof *c.numbers);
    for (char *end;; text = end) {
        const int64_t number = strtoll(text, &end, 10);
        if (end == text) return c;
        c.numbers[c.count++] = number;
    }
}

static const adapter *find(const char *name) {
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const adapter *a = tables[t]; a->name; a++)
            if (!strcmp(a->name, name)) return a;
    fail("no such kernel", name);
    return NULL;
}

int main(int count, char **arguments) {
    const int writes = count == 2 && !strcmp(arguments[1], "--write");
    FILE *file = count != 2 ? NULL : writes ? stdin : fopen(arguments[1], "r");
    if (!file) fail("cannot read", count == 2 ? arguments[1] : "a file");
    static char line[1 << 20], name[128];
    column results[MOST_COLUMNS];
    call c = {0};
    int calls = 0, bad = 0;
    for (;;) {
        const int more = fgets(line, sizeof line, file) != NULL;
        if (more) line[strcspn(line, "\n")] = 0;
        if (!more || line[0] == '!') { /* the call before is complete */
            if (name[0]) {
                if (writes) {
                    printf("! %s\n", name);
                    for (int k = 0; k < c.ins; k++) {
                        printf("<");
                        for (int64_t i = 0; i < c.in[k].count; i++)
                            printf(" %" PRId64, c.in[k].numbers[i]);
                        printf("\n");
                    }
                }
                c.expected = writes ? NULL : results;
                find(name)->run(&c);
                if (!writes && (c.bad || c.results != c.expectations)) {
                    printf("call %d, %s: %d of %d results differ\n", calls, name, c.bad, c.results);
                    bad++;
                }
                calls++;
            }
            if (!more) break;
            free_blocks();
            c = (call){0};
            snprintf(name, sizeof name, "%s", line + 2);
        } else if (line[0] == '<' && c.ins < MOST_COLUMNS) {
            c.in[c.ins++] = numbers_of(line + 1);
        } else if (line[0] == '>' && c.expectations < MOST_COLUMNS) {
            results[c.expectations++] = numbers_of(line + 1);
        } else {
            fail("no line of a call", line);
        }
    }
    free_blocks();
    if (!writes) printf("%d calls, %d differ\n", calls, bad);
    return bad || !calls;
}
