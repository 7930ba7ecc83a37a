/* Rows of several sources matched by observation, and overlaps of pairs of sources.

   match: block by block of time, the rows of all sources are sorted by time. Duplicates at one time
   become neighbours, so they are found without a table, and numbers follow time, which every later
   pass gains from. Then the few observations whose hash another one may have too, as a sieve of two
   bits a hash shows, are looked up in a table: so duplicates at different times are found, however
   far apart. A sieve and a table of the network's ids are salted per process. Memory is the caller's.

   match_many: the same for hundreds of sources, where rows in order of time would jump among them all:
   source by source in longer blocks, each row looked up in a table that grows by four. Numbers nearly
   follow time.

   overlaps: an observation that sources a and b store counts for the pair at the coarser of their two
   levels, from which on both are complete at its time. With p the probability of that level, u = 1/p
   and g the decayed weight, its mass is g u. Its moments follow from one Bernoulli draw:

       variance  E (m - g)^2 ~ g^2 u (u - 1)        skew  variance * (g u - g / 2)

   which is what `query/aggregates.py` takes of a row of weight 1 (the half belongs to the gamma variable
   that it compares with). Every pair so gets the amounts of its own joint sample in one pass.

   square: the same of 64 sources at most, whose levels change with time alone. It reads which sources
   heard an observation from one word, and sums observations of equal words before their pairs are. */
#include "sources/matching.h"

#include "core/table.h"

enum { AHEAD = 16, FEW = 8, CACHED = 1 << 16, FIRST_BITS = 12, SHARED_BITS = 9 };

#define SPREAD 0x9E3779B97F4A7C15ULL /* odd; ids are spread by it, and need not be */

/* ------------------------------------------------------------------------------------ observations */

typedef struct {
    const ds_matched *o;
    int64_t max_weight, found;
    int scattered;
} matching;

/* The first row from a row on that is earlier than a time. */
static int64_t first_before(const ds_heard *from, int64_t row, int64_t time) {
    int64_t step = 1, stop = from->rows;
    for (; row + step < stop && from->times[row + step] >= time; step *= 2) row += step;
    stop = row + step < stop ? row + step : stop;
    while (row < stop) {
        const int64_t middle = row + (stop - row) / 2;
        if (from->times[middle] >= time) row = middle + 1;
        else stop = middle;
    }
    return row;
}

static int64_t longest_block(
    const ds_heard *sources, int64_t count, const int64_t *cuts, int64_t blocks, int64_t *next
) {
    int64_t longest = 0;
    for (int64_t s = 0; s < count; s++) next[s] = 0;
    for (int64_t b = 0; b < blocks; b++) {
        int64_t rows = 0;
        for (int64_t s = 0; s < count; s++) {
            const int64_t stop = first_before(&sources[s], next[s], cuts[b]);
            rows += stop - next[s];
            next[s] = stop;
        }
        longest = rows > longest ? rows : longest;
    }
    return longest;
}

typedef struct {
    const ds_heard *sources;
    int64_t count, rows;
    const int64_t *next, *stop; /* the rows of each source */
    int64_t newest;
    int bits, more; /* of ages, and of ids below them */
} span;

/* The rows of each source up to a cut. */
static span span_of(const ds_heard *sources, int64_t count, int64_t *next, int64_t cut) {
    int64_t *stop = next + count, oldest = INT64_MAX;
    span of = {.sources = sources, .count = count, .next = next, .stop = stop, .newest = INT64_MIN};
    for (int64_t s = 0; s < count; s++) {
        stop[s] = first_before(&sources[s], next[s], cut);
        if (next[s] == stop[s]) continue;
        const int64_t first = sources[s].times[next[s]], last = sources[s].times[stop[s] - 1];
        of.rows += stop[s] - next[s];
        of.newest = first > of.newest ? first : of.newest;
        oldest = last < oldest ? last : oldest;
    }
    if (of.rows == 0) return of;
    of.bits = ds_bit_length((uint64_t)of.newest - (uint64_t)oldest);
    of.more = of.bits < 2 * DS_DIGIT_BITS ? 2 * DS_DIGIT_BITS - of.bits : 0;
    return of;
}

/* Ages of the rows of a block with their places; by coarse clocks, ages with bits of the id. */
static int collect(const span *of, const ds_block *to, int heavy) {
    const int packed = of->bits + of->more <= 32;
    int64_t place = 0;
    for (int64_t s = 0; s < of->count; s++) {
        const ds_heard *from = &of->sources[s];
        for (int64_t row = of->next[s]; row < of->stop[s]; row++, place++) {
            const int64_t id = from->ids[row];
            uint64_t key = (uint64_t)of->newest - (uint64_t)from->times[row];
            if (of->more) key = key << of->more | (uint64_t)id * SPREAD >> (64 - of->more);
            to->ids[place] = id;
            if (heavy) to->weights[place] = from->weights[row];
            to->sorting.keys[0][place] = packed ? key << 32 | (uint64_t)place : key;
            if (!packed) to->sorting.words[0][place] = (uint32_t)place;
        }
    }
    return packed;
}

/* One of the last few observations, all of one time, that an identity is of; -1: none. */
static int64_t one_of_the_last(
    const ds_matched *o, int64_t last, int64_t id, int64_t weight, int heavy
) {
    const int64_t time = o->latest[last];
    for (int64_t k = last; k >= 0 && k > last - FEW && o->latest[k] == time; k--)
        if (o->ids[k] == id && (!heavy || o->weights[k] == weight)) return k;
    return -1;
}

/* Number sorted rows; those of an observation at one time are neighbours. No branch hangs on data
   but for several observations of one key. */
static inline __attribute__((always_inline)) void number(
    matching *m, const span *of, const ds_block *block, const uint64_t *keys, const uint32_t *words
) {
    const ds_matched *o = m->o;
    const int heavy = m->max_weight > 1, shift = words ? 0 : 32, more = of->more;
    int64_t found = m->found - 1, last_id = 0, last_weight = 0, weight = 0;
    const int beyond = of->rows > CACHED; /* the caches: rows of one time */
    uint64_t last_key = 0;
    int32_t degree = 0;
    for (int64_t k = 0; k < of->rows; k++) {
        const int64_t place = words ? words[k] : (uint32_t)keys[k], id = block->ids[place];
        const uint64_t key = keys[k] >> shift;
        if (beyond && k + AHEAD < of->rows) {
            const int64_t soon = words ? words[k + AHEAD] : (uint32_t)keys[k + AHEAD];
            __builtin_prefetch(&block->ids[soon]);
            __builtin_prefetch(&block->groups[soon], 1);
        }
        if (heavy) weight = block->weights[place];
        const int other = (id != last_id) | (weight != last_weight), later = key != last_key;
        if (__builtin_expect((k > 0) & other & !later, 0)) {
            const int64_t before = one_of_the_last(o, found, id, weight, heavy);
            if (before >= 0) {
                o->degrees[before]++;
                block->groups[place] = (int32_t)before;
                continue;
            }
        }
        const int is_new = (k == 0) | other | later;
        found += is_new;
        o->ids[found] = last_id = id;
        if (heavy) o->weights[found] = last_weight = weight;
        o->latest[found] = of->newest - (int64_t)(key >> more);
        last_key = key;
        degree = is_new ? 1 : degree + 1;
        o->degrees[found] = degree;
        block->groups[place] = (int32_t)found;
    }
    m->found = found + 1;
}

static void number_block(matching *m, const span *of, const ds_block *block) {
    const ds_sorting *by = &block->sorting;
    const int bits = of->bits + of->more;
    const int64_t before = m->found;
    if (collect(of, block, m->max_weight > 1)) {
        const int which = ds_radix_sort_packed(by->keys[0], by->keys[1], of->rows, 32, bits);
        number(m, of, block, by->keys[which], NULL);
    } else {
        const int which = ds_radix_sort(by, of->rows, bits);
        number(m, of, block, by->keys[which], by->words[which]);
    }
    memset(m->o->histories + before, 0, sizeof *m->o->histories * (size_t)(m->found - before));
}

/* The numbers of the rows of a block, and of each number its level. */
static void tell_sources(
    const span *of, const ds_matched *o, const ds_block *block, int64_t *next, int32_t *groups
) {
    const int32_t *number = block->groups;
    for (int64_t s = 0; s < of->count; groups += of->sources[s].rows, s++) {
        const ds_heard *from = &of->sources[s];
        for (int64_t row = next[s]; row < of->stop[s]; row++, number++) {
            groups[row] = *number;
            o->levels[*number] = from->levels[row];
            o->histories[*number] |= 1ULL << s;
        }
        next[s] = of->stop[s];
    }
}

/* ---------------------------------------------------------------- duplicates at different times */

static inline uint64_t hash_of(const matching *m, int64_t number, uint64_t salt) {
    const int64_t weight = m->max_weight > 1 ? m->o->weights[number] : 1;
    return ds_identity_hash(m->o->ids[number], weight, m->max_weight, salt);
}

/* Observations whose hash another one may have, by two bits for each of 16 times as many parts of the
   hashes: one was there, a second one was. */
static int64_t suspects(const matching *m, const ds_lookup *by) {
    const int bits = ds_bit_length((uint64_t)m->found | 3) + 3, shift = 64 - bits;
    uint64_t *sieve = by->slots;
    memset(sieve, 0, (size_t)1 << (bits - 2));
    for (int64_t number = 0; number < m->found; number++) {
        const uint64_t part = hash_of(m, number, by->salt) >> shift;
        uint64_t *word = &sieve[part >> 5];
        const int bit = (int)(part & 31) * 2;
        *word |= (1 + (*word >> bit & 1)) << bit;
    }
    int64_t found = 0;
    for (int64_t number = 0; number < m->found; number++) {
        const uint64_t part = hash_of(m, number, by->salt) >> shift;
        by->suspects[found].number = (int32_t)number;
        found += sieve[part >> 5] >> ((part & 31) * 2 + 1) & 1;
    }
    return found;
}

/* For each suspect the first observation of its id and weight; returns how many have another. */
static int64_t find_first(const matching *m, const ds_lookup *by, int64_t count) {
    const ds_matched *o = m->o;
    ds_table table = ds_open_table(
        (uint32_t *)by->slots, ds_bit_length((uint64_t)(2 * count + 1)), m->found
    );
    ds_suspect *suspect = by->suspects;
    int64_t twins = 0;
    for (int64_t k = 0; k < count; k++, suspect++) {
        if (k + AHEAD < count) ds_prefetch(&table, hash_of(m, suspect[AHEAD].number, by->salt));
        ds_probe at = ds_first_probe(&table, hash_of(m, suspect->number, by->salt));
        int64_t first;
        while ((first = ds_next(&table, &at)) >= 0)
            if (o->ids[first] == o->ids[suspect->number]
                && (m->max_weight == 1 || o->weights[first] == o->weights[suspect->number]))
                break;
        if (first < 0) ds_put(&table, &at, suspect->number);
        suspect->first = first < 0 ? suspect->number : (int32_t)first;
        twins += first >= 0;
    }
    return twins;
}

/* Join observations with the first of their id and weight, and number them again. */
static void join(matching *m, const ds_lookup *by) {
    const ds_matched *o = m->o;
    const ds_suspect *suspect = by->suspects;
    int64_t found = 0;
    for (int64_t number = 0; number < m->found; number++) {
        if (suspect->number == number && suspect++->first != number) {
            const int32_t first = by->renumbered[suspect[-1].first];
            by->renumbered[number] = first;
            o->degrees[first] += o->degrees[number];
            o->histories[first] |= o->histories[number];
            m->scattered |= o->latest[first] != o->latest[number];
            continue;
        }
        by->renumbered[number] = (int32_t)found;
        o->ids[found] = o->ids[number];
        if (m->max_weight > 1) o->weights[found] = o->weights[number];
        o->latest[found] = o->latest[number];
        o->levels[found] = o->levels[number];
        o->histories[found] = o->histories[number];
        o->degrees[found++] = o->degrees[number];
    }
    m->found = found;
}

static int64_t match(
    const ds_heard *sources, int64_t count, const int64_t *cuts, int64_t blocks,
    const ds_lookup *by, const ds_matched *o, const ds_block *block, int64_t *next,
    int32_t *groups, int *scattered
) {
    matching m = {.o = o, .max_weight = by->max_weight};
    int64_t rows = 0;
    for (int64_t s = 0; s < count; s++) next[s] = 0;
    for (int64_t cut = 0; cut < blocks; cut++) {
        const span of = span_of(sources, count, next, cuts[cut]);
        if (of.rows == 0) continue;
        number_block(&m, &of, block);
        tell_sources(&of, o, block, next, groups);
        rows += of.rows;
    }
    const int64_t suspected = suspects(&m, by);
    by->suspects[suspected].number = -1;
    if (find_first(&m, by, suspected) > 0) {
        join(&m, by);
        for (int64_t row = 0; row < rows; row++) groups[row] = by->renumbered[groups[row]];
    }
    *scattered = m.scattered;
    return m.found;
}

/* ------------------------------------------------------------------------------- many sources */

typedef struct {
    const ds_lookup *by;
    ds_table table;
    int bits, most_bits;
    int64_t rows;
} lookup;

static void grow(lookup *l, const matching *m) {
    l->bits = l->bits + 2 < l->most_bits ? l->bits + 2 : l->most_bits;
    l->table = ds_open_table((uint32_t *)l->by->slots, l->bits, l->rows);
    for (int64_t number = 0; number < m->found; number++) {
        if (number + AHEAD < m->found) ds_prefetch(&l->table, hash_of(m, number + AHEAD, l->by->salt));
        ds_probe at = ds_first_probe(&l->table, hash_of(m, number, l->by->salt));
        while (ds_next(&l->table, &at) >= 0) {
        }
        ds_put(&l->table, &at, number);
    }
}

static inline uint64_t hash_of_row(const ds_heard *from, int64_t row, const lookup *l) {
    return ds_identity_hash(from->ids[row], from->weights[row], l->by->max_weight, l->by->salt);
}

/* The number of the observation of a row. */
static inline int64_t number_of(matching *m, lookup *l, const ds_heard *from, int64_t row) {
    const ds_matched *o = m->o;
    const int64_t id = from->ids[row], weight = from->weights[row], time = from->times[row];
    if (m->found == l->table.most && l->bits < l->most_bits) grow(l, m);
    if (row + AHEAD < from->rows) ds_prefetch(&l->table, hash_of_row(from, row + AHEAD, l));
    ds_probe at = ds_first_probe(&l->table, hash_of_row(from, row, l));
    int64_t number;
    while ((number = ds_next(&l->table, &at)) >= 0)
        if (o->ids[number] == id && (m->max_weight == 1 || o->weights[number] == weight)) {
            m->scattered |= time != o->latest[number];
            o->latest[number] = time > o->latest[number] ? time : o->latest[number];
            o->degrees[number]++;
            return number;
        }
    number = m->found++;
    ds_put(&l->table, &at, number);
    o->ids[number] = id;
    if (m->max_weight > 1) o->weights[number] = weight;
    o->latest[number] = time;
    o->levels[number] = from->levels[row];
    o->degrees[number] = 1;
    return number;
}

static int64_t match_many(
    const ds_heard *sources, int64_t count, const int64_t *cuts, int64_t blocks,
    const ds_lookup *by, const ds_matched *o, int64_t *next, int32_t *groups, int *scattered
) {
    matching m = {.o = o, .max_weight = by->max_weight};
    lookup l = {.by = by, .bits = FIRST_BITS};
    for (int64_t s = 0; s < count; s++) {
        next[s] = 0;
        l.rows += sources[s].rows;
    }
    l.most_bits = ds_bit_length((uint64_t)(2 * l.rows + 1));
    l.bits = l.bits < l.most_bits ? l.bits : l.most_bits;
    l.table = ds_open_table((uint32_t *)by->slots, l.bits, l.rows);
    for (int64_t cut = 0; cut < blocks; cut++) {
        int32_t *group = groups;
        for (int64_t s = 0; s < count; group += sources[s].rows, s++) {
            const ds_heard *from = &sources[s];
            int64_t row = next[s];
            for (; row < from->rows && from->times[row] >= cuts[cut]; row++)
                group[row] = (int32_t)number_of(&m, &l, from, row);
            next[s] = row;
        }
    }
    *scattered = m.scattered;
    return m.found;
}

static void lags(
    const ds_heard *sources, int64_t count, const int64_t *latest, const int32_t *groups,
    int64_t *lags, int64_t *earliest
) {
    for (int64_t s = 0; s < count; groups += sources[s].rows, s++) {
        int64_t longest = 0;
        for (int64_t row = 0; row < sources[s].rows; row++) {
            const int64_t time = sources[s].times[row], lag = latest[groups[row]] - time;
            longest = lag > longest ? lag : longest;
            if (time < earliest[groups[row]]) earliest[groups[row]] = time;
        }
        lags[s] = longest;
    }
}

static void values(
    const ds_heard *sources, int64_t count, const int64_t *latest, const int32_t *groups,
    int64_t *value_keys
) {
    for (int64_t s = 0; s < count; groups += sources[s].rows, s++)
        for (int64_t row = 0; row < sources[s].rows; row++) {
            const int64_t number = groups[row], value = sources[s].value_keys[row];
            if (sources[s].times[row] == latest[number] && value > value_keys[number])
                value_keys[number] = value;
        }
}

static int64_t latest_first(
    const int64_t *times, const int8_t *levels, int64_t n, const int64_t *marks,
    const ds_sorting *sorting, int64_t *order
) {
    int64_t oldest, newest, found = 0;
    int sorted = 1;
    for (int64_t row = 1; row < n; row++) sorted &= times[row] <= times[row - 1];
    if (sorted) {
        for (int64_t row = 0; row < n; row++) {
            order[found] = row;
            found += times[row] > marks[levels[row]];
        }
        return found;
    }
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

/* Rows that others than source s heard are numbered by s: all before, less those s heard alone. A
   place is twice the position, and 1 more if several sources heard the row. */
static void misses(
    const int32_t *groups, const int64_t *offsets, int64_t sources, const int32_t *degrees,
    int64_t observations, const int64_t *rows, int64_t n, int32_t *places, const ds_misses *m
) {
    memset(places, -1, sizeof *places * (size_t)observations);
    for (int64_t k = 0; k < n; k++) places[rows[k]] = (int32_t)(2 * k + (degrees[rows[k]] > 1));
    for (int64_t s = 0; s < sources; s++) {
        int64_t shared = 0, alone = 0, longest = 0, next = 0;
        for (int64_t row = offsets[s]; row < offsets[s + 1]; row++) {
            const int64_t place = places[groups[row]];
            if (place < 0) continue;
            const int64_t others = place & 1, number = (place >> 1) - alone, run = number - next;
            longest = run > longest ? run : longest;
            next = number + others;
            shared += others;
            alone += 1 - others;
        }
        const int64_t run = n - alone - next;
        m->longest[s] = run > longest ? run : longest;
        m->shared[s] = shared;
        m->alone[s] = alone;
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
    const int32_t *groups, int32_t *next, int32_t *by, int64_t *times, int8_t *bands
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

/* The amounts of one history, for which observations are summed before its pairs are. */
typedef struct {
    uint64_t history; /* 0: none yet */
    double cell[DS_AMOUNTS] __attribute__((aligned(64)));
} ds_shared;

/* Add the amounts of a history to the pairs of its sources, in a square. */
static void add_to_square(const ds_pairs *pairs, ds_shared *from) {
    const amounts more = *(amounts *)from->cell;
    for (uint64_t left = from->history; left; left &= left - 1) {
        double(*row)[DS_AMOUNTS] = pairs->cells + __builtin_ctzll(left) * pairs->sources;
        for (uint64_t other = left; other; other &= other - 1)
            add_amounts(row[__builtin_ctzll(other)], more);
    }
}

static inline void add_to_history(
    const ds_pairs *pairs, ds_shared *shared, uint64_t history, amounts more
) {
    ds_shared *at = &shared[history * SPREAD >> (64 - SHARED_BITS)];
    if (__builtin_expect(at->history != history, 0)) {
        add_to_square(pairs, at);
        at->history = history;
        *(amounts *)at->cell = more;
        return;
    }
    add_amounts(at->cell, more);
}

/* The levels from which up to 64 sources are complete, as time goes back. */
typedef struct {
    const int64_t *marks;
    int64_t sources, mark_levels;
    int64_t until; /* they hold for times after this one */
    int8_t band[64];
    uint64_t at[65]; /* by level, the sources that are complete from it on, as bits; the last: none */
} complete;

static void go_back(complete *c, int64_t time) {
    c->until = INT64_MIN;
    memset(c->at, 0, sizeof c->at);
    for (int64_t s = 0; s < c->sources; s++) {
        const int64_t *marks = c->marks + s * c->mark_levels;
        const int band = band_at(marks, c->mark_levels, time, c->band[s]);
        c->band[s] = (int8_t)band;
        c->at[band] |= 1ULL << s;
        if (band < c->mark_levels && marks[band] > c->until) c->until = marks[band];
    }
}

static void square(
    const ds_matched *o, int64_t n, const double *decayed, const double *units,
    const int64_t *marks, int64_t mark_levels, int64_t sources, ds_cells cells
) {
    const ds_pairs pairs = {.cells = cells, .sources = sources};
    complete c = {.marks = marks, .mark_levels = mark_levels, .sources = sources, .until = INT64_MAX};
    ds_shared shared[1 << SHARED_BITS];
    for (int k = 0; k < 1 << SHARED_BITS; k++) shared[k].history = 0;
    for (int64_t j = 0; j < n; j++) {
        const double g = decayed[j];
        const uint64_t history = o->histories[j];
        if (!(g > 0.0 && history)) continue;
        if (o->latest[j] <= c.until) go_back(&c, o->latest[j]);
        const int8_t band = c.band[__builtin_ctzll(history)], level = o->levels[j];
        if (__builtin_expect((history & ~c.at[band]) == 0, 1)) {
            if (band <= level) add_to_history(&pairs, shared, history, amounts_of(g, units[band]));
            continue;
        }
        for (uint64_t left = history; left; left &= left - 1) {
            const int64_t a = __builtin_ctzll(left);
            for (uint64_t other = left; other; other &= other - 1) {
                const int64_t b = __builtin_ctzll(other);
                const int8_t of = c.band[a] > c.band[b] ? c.band[a] : c.band[b];
                if (of <= level) add_amounts(cells[a * sources + b], amounts_of(g, units[of]));
            }
        }
    }
    for (int k = 0; k < 1 << SHARED_BITS; k++) add_to_square(&pairs, &shared[k]);
}

static int overlaps(
    const ds_incidences *by, const double *decayed, const int8_t *levels, const double *units,
    const ds_pairs *pairs
) {
    int64_t taken = 0;
    for (int64_t j = 0; j < by->observations; j++) {
        const double g = decayed[j];
        if (!(g > 0.0)) continue;
        int of = -1; /* the level that `more` is of: mostly that of the pair before */
        amounts more = {0};
        for (int64_t x = by->start[j]; x < by->start[j + 1]; x++) {
            for (int64_t y = x; y < by->start[j + 1]; y++) {
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
    .longest_block = longest_block,
    .match = match,
    .match_many = match_many,
    .lags = lags,
    .values = values,
    .latest_first = latest_first,
    .misses = misses,
    .gather = gather,
    .square = square,
    .overlaps = overlaps,
    .scattered_overlaps = scattered_overlaps,
};
