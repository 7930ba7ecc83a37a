/* Rows of several sources matched by observation, and overlaps of pairs of sources.

   match: one pass over all rows, block by block of time, so that duplicates of an observation come
   close together: the columns that they change are in cache, and numbers nearly follow time, which
   every later pass gains from. Blocks only order the rows; duplicates far apart in time match as well.
   The table begins small and grows by four with the observations that it meets. Its entries for rows
   ahead are prefetched. Memory is the caller's; a table of the network's ids is salted per process.

   overlaps: an observation that sources a and b store counts for the pair at the coarser of their two
   levels, from which on both are complete at its time. With p the probability of that level, u = 1/p
   and g the decayed weight, its mass is g u. Its moments follow from one Bernoulli draw:

       variance  E (m - g)^2 ~ g^2 u (u - 1)        skew  variance * (g u - g / 2)

   which is what `query/aggregates.py` takes of a row of weight 1 (the half belongs to the gamma variable
   that it compares with). Every pair so gets the amounts of its own joint sample in one pass. */
#include "sources/matching.h"

#include "core/table.h"

enum { AHEAD = 16, FIRST_BITS = 12, BLOCK_ROWS = 1 << 13, ROWS_OF_A_SOURCE = 512 };

/* ------------------------------------------------------------------------------------ observations */

static inline uint64_t hash_of(const ds_heard *s, int64_t row, const ds_lookup *by) {
    return ds_identity_hash(s->ids[row], s->weights[row], by->max_weight, by->salt);
}

static inline uint64_t hash_of_number(
    const ds_observations *o, int64_t number, const ds_lookup *by
) {
    return ds_identity_hash(o->ids[number], o->weights[number], by->max_weight, by->salt);
}

static void refill(ds_table *table, const ds_lookup *by, const ds_observations *o, int64_t count) {
    for (int64_t number = 0; number < count; number++) {
        if (number + AHEAD < count) ds_prefetch(table, hash_of_number(o, number + AHEAD, by));
        ds_probe at = ds_first_probe(table, hash_of_number(o, number, by));
        while (ds_next(table, &at) >= 0) {
        }
        ds_put(table, &at, number);
    }
}

static inline void add_observation(
    const ds_observations *o, int64_t number, const ds_heard *s, int64_t row
) {
    o->ids[number] = s->ids[row];
    o->weights[number] = s->weights[row];
    o->latest[number] = o->earliest[number] = s->times[row];
    o->value_keys[number] = s->value_keys[row];
    o->levels[number] = s->levels[row];
    o->degrees[number] = 1;
}

static inline void add_duplicate(
    const ds_observations *o, int64_t number, const ds_heard *s, int64_t row
) {
    const int64_t time = s->times[row], value = s->value_keys[row];
    o->degrees[number]++;
    if (time < o->earliest[number]) o->earliest[number] = time;
    if (time < o->latest[number]) return;
    if (time > o->latest[number] || value > o->value_keys[number]) o->value_keys[number] = value;
    o->latest[number] = time;
}

typedef struct {
    const ds_lookup *by;
    const ds_observations *o;
    ds_table table;
    int bits;
    int64_t found, total;
} matching;

static void grow(matching *m) {
    m->bits = m->bits + 2 < m->by->most_bits ? m->bits + 2 : m->by->most_bits;
    m->table = ds_open_table(m->by->slots, m->bits, m->total);
    refill(&m->table, m->by, m->o, m->found);
}

/* The number of the observation of a row. */
static inline int64_t number_of(matching *m, const ds_heard *from, int64_t row) {
    const ds_observations *o = m->o;
    if (m->found == m->table.most && m->bits < m->by->most_bits) grow(m);
    if (row + AHEAD < from->rows) ds_prefetch(&m->table, hash_of(from, row + AHEAD, m->by));
    ds_probe at = ds_first_probe(&m->table, hash_of(from, row, m->by));
    int64_t number;
    while ((number = ds_next(&m->table, &at)) >= 0)
        if (o->ids[number] == from->ids[row] && o->weights[number] == from->weights[row]) {
            add_duplicate(o, number, from, row);
            return number;
        }
    number = m->found++;
    ds_put(&m->table, &at, number);
    add_observation(o, number, from, row);
    return number;
}

/* `next` is where each source's next row stands, a row of the block that ends at a time. */
static int64_t match(
    const ds_heard *sources, int64_t count, const ds_lookup *by, const ds_observations *o,
    int64_t *next, int32_t *groups
) {
    const ds_heard *longest = sources;
    const int bits = by->most_bits < FIRST_BITS ? by->most_bits : FIRST_BITS;
    matching m = {.by = by, .o = o, .bits = bits};
    for (int64_t s = 0; s < count; s++) {
        next[s] = 0;
        m.total += sources[s].rows;
        if (sources[s].rows > longest->rows) longest = &sources[s];
    }
    m.table = ds_open_table(by->slots, bits, m.total);
    /* So many rows of the longest source are about a block of all. */
    const int64_t few = ROWS_OF_A_SOURCE * count, block = few > BLOCK_ROWS ? few : BLOCK_ROWS;
    const int64_t blocks = m.total / block + 1, step = longest->rows / blocks + 1;
    for (int64_t last = step - 1; count > 0; last += step) {
        const int is_last = last >= longest->rows;
        const int64_t until = is_last ? INT64_MIN : longest->times[last];
        int32_t *group = groups;
        for (int64_t s = 0; s < count; group += sources[s].rows, s++) {
            const ds_heard *from = &sources[s];
            int64_t row = next[s];
            for (; row < from->rows && from->times[row] >= until; row++)
                group[row] = (int32_t)number_of(&m, from, row);
            next[s] = row;
        }
        if (is_last) break;
    }
    return m.found;
}

static void lags(
    const ds_heard *sources, int64_t count, const int64_t *latest, const int32_t *groups,
    int64_t *lags
) {
    for (int64_t s = 0; s < count; groups += sources[s].rows, s++) {
        int64_t longest = 0;
        for (int64_t row = 0; row < sources[s].rows; row++) {
            const int64_t lag = latest[groups[row]] - sources[s].times[row];
            longest = lag > longest ? lag : longest;
        }
        lags[s] = longest;
    }
}

/* ------------------------------------------------------------------------------------ order of time */

static int64_t latest_first(
    const int64_t *times, const int8_t *levels, int64_t n, const int64_t *marks,
    const ds_sorting *sorting, int64_t *order
) {
    if (n == 0) return 0;
    int64_t oldest, newest, found = 0;
    ds_span(times, n, &oldest, &newest);
    const uint64_t latest = (uint64_t)newest;
    const int bits = ds_bit_length(latest - (uint64_t)oldest);
    /* One packed number a row halves the memory traffic; few rows are sorted by comparisons. */
    const int packed = bits <= 32 && n > DS_INSERTION_SORT;
    uint64_t *keys = sorting->keys[0];
    uint32_t *words = sorting->words[0];
    for (int64_t row = 0; row < n; row++) {
        const uint64_t age = latest - (uint64_t)times[row];
        keys[found] = packed ? age << 32 | (uint64_t)row : age;
        words[found] = (uint32_t)row;
        found += times[row] > marks[levels[row]];
    }
    if (packed) {
        const int which = ds_radix_sort_packed(keys, sorting->keys[1], found, 32, bits);
        keys = sorting->keys[which];
        for (int64_t k = 0; k < found; k++) order[k] = (uint32_t)keys[k];
    } else {
        words = sorting->words[ds_radix_sort(sorting, found, bits)];
        for (int64_t k = 0; k < found; k++) order[k] = words[k];
    }
    return found;
}

/* ------------------------------------------------------------------------------------------ silences */

/* Rows that others than source s heard are numbered by s apart: all before, less those s heard alone. */
static void misses(
    const ds_incidences *by, const int64_t *rows, int64_t n, int64_t sources, const ds_misses *m
) {
    for (int64_t s = 0; s < sources; s++) m->shared[s] = m->alone[s] = m->longest[s] = m->next[s] = 0;
    for (int64_t k = 0; k < n; k++) {
        const int64_t first = by->start[rows[k]], stop = by->start[rows[k] + 1];
        if (stop - first == 1) {
            m->alone[by->sources[first]]++;
            continue;
        }
        for (int64_t x = first; x < stop; x++) {
            const int32_t s = by->sources[x];
            const int64_t number = k - m->alone[s], run = number - m->next[s];
            m->longest[s] = run > m->longest[s] ? run : m->longest[s];
            m->next[s] = number + 1;
            m->shared[s]++;
        }
    }
    for (int64_t s = 0; s < sources; s++) {
        const int64_t run = n - m->alone[s] - m->next[s];
        m->longest[s] = run > m->longest[s] ? run : m->longest[s];
    }
}

/* -------------------------------------------------------------------------------------- incidences */

/* The lowest level whose watermark lies before a time; watermarks fall as levels rise. */
static inline int band_at(const int64_t *marks, int64_t levels, int64_t time, int from) {
    while (from < levels && marks[from] >= time) from++;
    return from;
}

static void gather(
    const ds_heard *sources, int64_t count, const int64_t *marks, int64_t levels,
    const int32_t *groups, int64_t *next, int32_t *by, int64_t *times,
    int8_t *bands
) {
    for (int64_t s = 0; s < count; groups += sources[s].rows, marks += levels, s++) {
        const ds_heard *from = &sources[s];
        int band = 0; /* rows are latest first, so it only rises */
        for (int64_t row = 0; row < from->rows; row++) {
            band = band_at(marks, levels, from->times[row], band);
            const int64_t at = next[groups[row]]++;
            by[at] = (int32_t)s;
            bands[at] = (int8_t)band;
            if (times) times[at] = from->times[row];
        }
    }
}

/* ---------------------------------------------------------------------------------------- overlaps */

typedef double amounts __attribute__((vector_size(8 * DS_AMOUNTS), aligned(8)));
typedef int64_t lanes __attribute__((vector_size(8 * DS_AMOUNTS), aligned(8)));

/* Amounts of one message. The last two are the largest of a row, and no sums. */
static inline amounts amounts_of(double decayed, double unit) {
    if (unit == 1.0) return (amounts){decayed, 0.0, 0.0, 0.0, 0.0, 1.0};
    const double mass = decayed * unit, variance = mass * (mass - decayed);
    return (amounts){
        0.0, mass, variance, variance * (mass - 0.5 * decayed), decayed, 1.0, variance, mass,
    };
}

/* One store: a later load of the cell is not held up by parts of it. */
static inline void add_amounts(double *cell, amounts more) {
    static const lanes maxima = {0, 0, 0, 0, 0, 0, -1, -1};
    const amounts old = *(amounts *)cell, sum = old + more;
    const lanes larger = old > more;
    const lanes most = ((lanes)old & larger) | ((lanes)more & ~larger);
    *(lanes *)cell = ((lanes)sum & ~maxima) | (most & maxima);
}

/* The cell of a pair, a <= b; NULL: half of the sparse table is taken. */
static inline double *cell_of(const ds_pairs *pairs, int64_t *taken, int64_t a, int64_t b) {
    if (pairs->bits == 0) return pairs->cells[a * pairs->sources + b];
    const uint64_t pair = (uint64_t)(a * pairs->sources + b) + 1;
    const int64_t mask = (1LL << pairs->bits) - 1;
    int64_t slot = (int64_t)(pair * pairs->salt >> (64 - pairs->bits));
    while (pairs->keys[slot] != 0 && pairs->keys[slot] != pair) slot = (slot + 1) & mask;
    if (pairs->keys[slot] == 0) {
        if (2 * ++*taken > mask) return NULL;
        pairs->keys[slot] = pair;
    }
    return pairs->cells[slot];
}

/* Whether all sources of an observation are complete from the same level on, as mostly. */
static inline int agree(const int8_t *bands, int64_t first, int64_t stop) {
    int differ = 0;
    for (int64_t x = first + 1; x < stop; x++) differ |= bands[x] ^ bands[first];
    return !differ;
}

/* The same amounts for all pairs, in a square. */
static void add_to_square(
    const int32_t *sources, int64_t degree, const ds_pairs *pairs, amounts more
) {
    for (int64_t x = 0; x < degree; x++) {
        double (*row)[DS_AMOUNTS] = pairs->cells + sources[x] * pairs->sources;
        for (int64_t y = x; y < degree; y++) add_amounts(row[sources[y]], more);
    }
}

static int overlaps(
    const ds_incidences *by, const double *decayed, const int8_t *levels, const double *units,
    const ds_pairs *pairs
) {
    int64_t taken = 0;
    for (int64_t j = 0; j < by->observations; j++) {
        const int64_t first = by->start[j], stop = by->start[j + 1];
        const double g = decayed[j];
        if (!(g > 0.0)) continue;
        if (pairs->bits == 0 && agree(by->bands, first, stop)) {
            const int8_t band = by->bands[first];
            if (band <= levels[j])
                add_to_square(by->sources + first, stop - first, pairs, amounts_of(g, units[band]));
            continue;
        }
        int of = -1; /* the level that `more` is of: mostly that of the pair before */
        amounts more = {0};
        for (int64_t x = first; x < stop; x++) {
            for (int64_t y = x; y < stop; y++) {
                const int8_t band = by->bands[x] > by->bands[y] ? by->bands[x] : by->bands[y];
                if (band > levels[j]) continue;
                if (band != of) more = amounts_of(g, units[of = band]);
                double *cell = cell_of(pairs, &taken, by->sources[x], by->sources[y]);
                if (!cell) return 0;
                add_amounts(cell, more);
            }
        }
    }
    return 1;
}

static int scattered_overlaps(
    const ds_incidences *by, const double *decayed, const int8_t *levels, const double *units,
    const int64_t *marks, int64_t mark_levels, const ds_pairs *pairs
) {
    int64_t taken = 0;
    if (pairs->bits)
        for (int64_t slot = 0; slot < 1LL << pairs->bits; slot++) taken += pairs->keys[slot] != 0;
    for (int64_t j = 0; j < by->observations; j++) {
        for (int64_t x = by->start[j]; x < by->start[j + 1]; x++) {
            for (int64_t y = x; y < by->start[j + 1]; y++) {
                /* The pair's own latest duplicate represents the observation. */
                const int64_t late = by->times[x] >= by->times[y] ? x : y, other = x + y - late;
                const double g = decayed[late];
                if (!(g > 0.0)) continue;
                const int64_t *of = marks + by->sources[other] * mark_levels;
                int band = by->bands[other];
                while (band > 0 && of[band - 1] < by->times[late]) band--;
                band = by->bands[late] > band ? by->bands[late] : band;
                if (band > levels[j]) continue;
                const amounts more = amounts_of(g, units[band]);
                double *cell = cell_of(pairs, &taken, by->sources[x], by->sources[y]);
                if (!cell) return 0;
                add_amounts(cell, more);
            }
        }
    }
    return 1;
}

DS_TABLE(ds_matching_kernels, ds_matching) = {
    .match = match,
    .lags = lags,
    .latest_first = latest_first,
    .misses = misses,
    .gather = gather,
    .overlaps = overlaps,
    .scattered_overlaps = scattered_overlaps,
};
