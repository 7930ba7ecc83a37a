/* Columns of words, and the least value of a grid in the cells of each word.

   A word is shifted and mixed once; each row multiplies and adds, and the high half of the product of
   the 32 high bits and the width is the column (multiply-add-shift: Dietzfelbinger 1996; the range
   without a division: Lemire 2019). Blocks of words go through each step, so that it is done in
   vectors. */
#include "ecm/cells.h"

static inline int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }

static void columns(
    const ds_ecm_layer *layer, const uint64_t *words, int64_t n, uint32_t *columns
) {
    for (int64_t start = 0; start < n; start += DS_ECM_BLOCK)
        ds_ecm_columns_of(
            layer, words + start, least(DS_ECM_BLOCK, n - start), 0, columns + start, n
        );
}

static uint64_t highest(const uint64_t *words, int64_t n, int64_t shift) {
    uint64_t most = 0;
    for (int64_t k = 0; k < n; k++) most = words[k] > most ? words[k] : most;
    return shift < 64 ? most >> shift : 0;
}

#define MINIMUM(name, number)                                                                      \
    static void name(                                                                              \
        const ds_ecm_layer *layer, const number *grid, const uint64_t *words, int64_t n,           \
        number *out                                                                                \
    ) {                                                                                            \
        uint32_t cells[DS_ECM_MOST_ROWS * DS_ECM_BLOCK];                                           \
        for (int64_t start = 0; start < n; start += DS_ECM_BLOCK) {                                \
            const int64_t rows = least(DS_ECM_BLOCK, n - start);                                   \
            number *to = out + start;                                                              \
            ds_ecm_columns_of(                                                                     \
                layer, words + start, rows, layer->width, cells, DS_ECM_BLOCK                      \
            );                                                                                     \
            for (int64_t k = 0; k < rows; k++) to[k] = grid[cells[k]];                             \
            for (int64_t r = 1; r < layer->depth; r++)                                             \
                for (int64_t k = 0; k < rows; k++) {                                               \
                    const number value = grid[cells[r * DS_ECM_BLOCK + k]];                        \
                    to[k] = value < to[k] ? value : to[k];                                         \
                }                                                                                  \
        }                                                                                          \
    }

MINIMUM(minimum, double)
MINIMUM(minimum_of_counts, int64_t)

DS_TABLE(ds_ecm_column_kernels, ds_ecm_columns) = {
    .columns = columns,
    .highest = highest,
    .minimum = minimum,
    .minimum_of_counts = minimum_of_counts,
};
