/* Which rows and events a bag keeps, and what the watermarks are then.

   Derivations
   -----------
   (1) Order. Events are met by expiry, latest first; each adds one to the counts of its levels. Where
       the count of a level passes the capacity, the level is *cut*: its watermark is that expiry.
       Level i + 1 selects fewer observations than level i, and they expire no later. So levels are
       cut from the lowest on, and of an event only those at or above the lowest one left count: most
       of the rows are never looked at.
   (2) Copies. Two copies of an observation have the same events, but for the times of the rows, and
       where one of the earlier copy is alive, so is that of the later. Hence the later copy is met
       first, at each event; a row that is met when another one of its identity was is dead. Only
       copies of which both are met at one expiry are told apart by looking: by time, then value.
   (3) Order, as far as it matters. Events are parted by the leading bits of their expiries, and parts
       are met one after another. In a part that no level can be cut in, and that no watermark lies
       in, order does not matter, but that all copies are told apart before the first event counts.
       Other parts are parted again. Each event is moved once for each digit of its expiry at most.
   (4) Bounds. Some rows tell about where the watermarks will be. An event that expires no later than
       the bound of its highest level is left out at once, which most of them are. Bounds fall as the
       level rises, as watermarks do. So where every level is cut above its bound, what was left out
       would have counted nowhere: at a level of its own an event that was left out expires no later
       than that level's bound, and of two copies the later one is left out last. Where some level is
       not, all is done again without bounds. */
#include "integral/compaction.h"

#include "core/bits.h"
#include "core/table.h"

enum {
    DIGIT_BITS = 11,
    LEAST_DIGIT_BITS = 4,
    SAMPLED = 2048, /* rows, by which bounds are chosen */
    SAMPLE_BITS = 8,
    LEAST_STRIDE = 8,
    AHEAD = 64, /* rows whose slots are fetched before they are looked at */
};

/* Of the events that a level keeps, how many more are looked at: three or four times the error of
   their number by the sample. */
#define MARGIN 1.25

/* Fates of a row. */
enum { UNMET = 0, LIVE = 1, DEAD = 2 };

typedef struct {
    const ds_decay *decay;
    const ds_bag *bag;
    ds_table table;
    uint8_t *fates;
    ds_replaced replaced;
    int64_t met, live; /* rows met, and those of them that are no copies of others */
    int64_t max_weight, capacity;
    uint64_t salt;
    int64_t *marks;
    int64_t levels, lowest;                  /* the lowest level that is not cut */
    int64_t counts[DS_LEVEL_MASK + 2];       /* rows met, by level */
    int64_t differences[DS_LEVEL_MASK + 2];  /* of counts to come, from level to level */
} compaction;

static inline int64_t expiry_of(const compaction *c, ds_entry entry) {
    return ds_expiry(c->decay, c->bag->times[entry.row], entry.event);
}

/* ---------------------------------------------------------------------------------------- copies */

static inline int same(const ds_bag *bag, int64_t row, int64_t other) {
    return bag->ids[row] == bag->ids[other] && bag->weights[row] == bag->weights[other];
}

/* Whether a row is the copy that represents the observation, of two. */
static inline int represents(const ds_bag *bag, int64_t row, int64_t other) {
    if (bag->times[row] != bag->times[other]) return bag->times[row] > bag->times[other];
    return bag->values[row] > bag->values[other];
}

/* Decide on rows that were not met. */
static inline void meet(compaction *c, const uint32_t *rows, int64_t n) {
    uint64_t hashes[AHEAD];
    for (int64_t k = 0; k < n; k++) {
        hashes[k] = ds_identity_hash(
            c->bag->ids[rows[k]], c->bag->weights[rows[k]], c->max_weight, c->salt
        );
        ds_prefetch(&c->table, hashes[k]);
    }
    for (int64_t k = 0; k < n; k++) {
        const uint32_t row = rows[k];
        if (c->fates[row] != UNMET) continue; /* by another of its events */
        ds_probe at = ds_first_probe(&c->table, hashes[k]);
        int64_t other;
        while ((other = ds_next(&c->table, &at)) >= 0)
            if (same(c->bag, row, other)) break;
        if (other >= 0)
            ds_count_replaced(
                &c->replaced, c->bag->times[row], c->bag->values[row], c->bag->times[other],
                c->bag->values[other]
            );
        if (other >= 0 && !represents(c->bag, row, other)) {
            c->fates[row] = DEAD;
            c->met++;
            continue;
        }
        if (other >= 0) c->fates[other] = DEAD;
        c->fates[row] = LIVE;
        c->met++;
        c->live += other < 0;
        ds_put(&c->table, &at, row);
    }
}

/* Count the events of a part. */
static void count(compaction *c, const ds_entry *entries, int64_t n) {
    uint32_t rows[AHEAD];
    int64_t waiting = 0;
    for (int64_t k = 0; k < n; k++) {
        rows[waiting] = entries[k].row;
        waiting += (c->fates[entries[k].row] == UNMET) & (ds_high(entries[k].event) >= c->lowest);
        if (waiting == AHEAD) {
            meet(c, rows, waiting);
            waiting = 0;
        }
    }
    meet(c, rows, waiting);
    for (int64_t k = 0; k < n; k++) {
        const int64_t one = c->fates[entries[k].row] == LIVE;
        c->differences[ds_low(entries[k].event)] += one;
        c->differences[ds_high(entries[k].event) + 1] -= one;
    }
    int64_t here = 0;
    for (int64_t level = 0; level < c->levels; level++) {
        here += c->differences[level];
        c->differences[level] = 0;
        c->counts[level] += here;
    }
    c->differences[c->levels] = 0;
}

/* ----------------------------------------------------------------------------------------- order */

/* Parts of the expiries from `latest` down, 2^shift wide. What is later is in the first part, what is
   earlier than all parts in the last. */
typedef struct {
    int64_t latest, earliest;
    int shift;
    int64_t parts;
} partition;

static inline partition partition_of(int64_t earliest, int64_t latest, int64_t n) {
    const uint64_t span = (uint64_t)latest - (uint64_t)earliest;
    int bits = ds_bit_length((uint64_t)n);
    bits = bits < LEAST_DIGIT_BITS ? LEAST_DIGIT_BITS : bits > DIGIT_BITS ? DIGIT_BITS : bits;
    const int shift = ds_bit_length(span) > bits ? ds_bit_length(span) - bits : 0;
    return (partition){latest, earliest, shift, (int64_t)(span >> shift) + 1};
}

static inline int64_t part_of(const partition *p, int64_t expiry) {
    const int64_t within = expiry > p->latest ? p->latest : expiry < p->earliest ? p->earliest : expiry;
    return (int64_t)(((uint64_t)p->latest - (uint64_t)within) >> p->shift);
}

/* Counts of parts become where each begins. */
static inline void to_starts(uint32_t *starts, int64_t parts) {
    uint32_t start = 0;
    for (int64_t part = 0; part < parts; part++) {
        const uint32_t here = starts[part];
        starts[part] = start;
        start += here;
    }
}

/* No expiry of a part is earlier. */
static inline int64_t floor_of(const partition *p, int64_t part) {
    if (part == p->parts - 1) return INT64_MIN;
    return p->latest - (int64_t)(((uint64_t)part + 1) << p->shift) + 1;
}

/* Meet events by expiry, none of which is before a floor, latest first; other is room for as many. */
static void meet_in_order(
    compaction *c, ds_entry *entries, ds_entry *other, int64_t n, int64_t floor
) {
    if (c->lowest == c->levels || n == 0) return;
    if (c->marks[c->lowest] < floor && c->counts[c->lowest] + n <= c->capacity) {
        count(c, entries, n);
        return;
    }
    int64_t left = 0, earliest = INT64_MAX, latest = INT64_MIN;
    for (int64_t k = 0; k < n; k++) {
        const ds_entry entry = entries[k];
        entries[left] = entry;
        if (ds_high(entry.event) < c->lowest) continue;
        const int64_t expiry = expiry_of(c, entry);
        left++;
        earliest = expiry < earliest ? expiry : earliest;
        latest = expiry > latest ? expiry : latest;
    }
    if (left == 0) return;
    while (c->lowest < c->levels && c->marks[c->lowest] >= latest) c->lowest++;
    if (c->lowest == c->levels) return;
    const int certain = c->marks[c->lowest] < earliest;
    if (certain && (earliest == latest || c->counts[c->lowest] + left <= c->capacity)) {
        count(c, entries, left);
        while (c->lowest < c->levels && c->counts[c->lowest] > c->capacity)
            c->marks[c->lowest++] = latest;
        return;
    }
    const partition p = partition_of(earliest, latest, left);
    uint32_t ends[1 << DIGIT_BITS];
    memset(ends, 0, (size_t)p.parts * sizeof *ends);
    for (int64_t k = 0; k < left; k++) ends[part_of(&p, expiry_of(c, entries[k]))]++;
    to_starts(ends, p.parts);
    for (int64_t k = 0; k < left; k++)
        other[ends[part_of(&p, expiry_of(c, entries[k]))]++] = entries[k];
    for (int64_t part = 0, start = 0; part < p.parts; start = ends[part++])
        meet_in_order(c, other + start, entries + start, ends[part] - start, floor_of(&p, part));
}

/* -------------------------------------------------------------------------------------- bounds */

/* Every stride-th row tells, for each level, how many events expire from some time on; see (4). The
   bounds are the marks where too few rows are held, or nothing is known of their copies. */
static void choose_bounds(const compaction *c, int64_t *bounds) {
    const ds_decay *d = c->decay;
    const ds_bag *bag = c->bag;
    const int64_t stride = bag->rows / SAMPLED;
    memcpy(bounds, c->marks, (size_t)c->levels * sizeof *bounds);
    if (stride < LEAST_STRIDE || bag->live == 0) return;
    int64_t earliest = INT64_MAX, latest = INT64_MIN;
    for (int64_t row = 0; row < bag->rows; row += stride)
        for (int64_t k = bag->first[row]; k < bag->first[row + 1]; k++) {
            const int64_t expiry = ds_expiry(d, bag->times[row], bag->events[k]);
            earliest = expiry < earliest ? expiry : earliest;
            latest = expiry > latest ? expiry : latest;
        }
    const partition p = partition_of(earliest, latest, (1 << SAMPLE_BITS) - 1);
    int16_t differences[1 << SAMPLE_BITS][DS_LEVEL_MASK + 2] = {0};
    for (int64_t row = 0; row < bag->rows; row += stride)
        for (int64_t k = bag->first[row]; k < bag->first[row + 1]; k++) {
            const uint32_t event = bag->events[k];
            int16_t *part = differences[part_of(&p, ds_expiry(d, bag->times[row], event))];
            part[ds_low(event)]++;
            part[ds_high(event) + 1]--;
        }
    const double copies = (double)bag->met / (double)bag->live;
    const double wanted = MARGIN * copies * (double)c->capacity / (double)stride;
    int64_t counts[DS_LEVEL_MASK + 1] = {0}, cut = 0; /* levels below it have their bounds */
    for (int64_t part = 0; part < p.parts - 1 && cut < c->levels; part++) {
        int64_t here = 0;
        for (int64_t level = 0; level < c->levels; level++) {
            here += differences[part][level];
            counts[level] += here;
        }
        for (; cut < c->levels && (double)counts[cut] > wanted; cut++) {
            const int64_t bound = floor_of(&p, part) - 1;
            if (bound > bounds[cut]) bounds[cut] = bound;
        }
    }
}

/* Meet the events of a bag that expire later than the bounds of their levels. Says whether they were
   enough. */
static int meet_all(
    compaction *c, const ds_integral_compaction_scratch *scratch, const int64_t *bounds
) {
    const ds_bag *bag = c->bag;
    ds_entry *entries = scratch->entries[0];
    int64_t n = 0;
    for (int64_t row = 0; row < bag->rows; row++)
        for (int64_t k = bag->first[row]; k < bag->first[row + 1]; k++) {
            entries[n] = (ds_entry){(uint32_t)row, bag->events[k]};
            n += ds_alive(c->decay, bag->times[row], bag->events[k], bounds);
        }
    const int64_t most = n < bag->rows ? n + 1 : bag->rows; /* rows that are met */
    c->table = ds_open_table(scratch->slots, ds_table_bits(2 * most), bag->rows);
    memset(c->fates, UNMET, (size_t)bag->rows);
    meet_in_order(c, entries, scratch->entries[1], n, INT64_MIN);
    for (int64_t level = 0; level < c->levels; level++)
        if (c->marks[level] < bounds[level]) return 0;
    return 1;
}

/* ------------------------------------------------------------------------------------ compaction */

/* Keep live rows and the events of them that are alive; in place. */
static void squeeze(const ds_decay *d, ds_bag *bag, const uint8_t *fates, const int64_t *marks) {
    int64_t held = 0, kept = 0, stop = bag->first[0];
    for (int64_t row = 0; row < bag->rows; row++) {
        const int64_t start = stop, before = kept;
        stop = bag->first[row + 1];
        if (fates[row] != LIVE) continue;
        for (int64_t k = start; k < stop; k++) {
            const uint32_t event = bag->events[k];
            bag->events[kept] = event;
            kept += ds_alive(d, bag->times[row], event, marks);
        }
        ds_copy_row(bag, held, bag->values, bag->weights, bag->times, bag->ids, row);
        held += kept > before;
        bag->first[held] = kept;
    }
    bag->rows = held;
    bag->event_count = kept;
}

static void compact(
    const ds_decay *d, ds_bag *bag, int64_t max_weight, int64_t capacity, uint64_t salt,
    const ds_integral_compaction_scratch *scratch, int64_t *marks, int64_t levels
) {
    const compaction start = {
        .decay = d, .bag = bag, .fates = scratch->fates, .max_weight = max_weight,
        .capacity = capacity, .salt = salt, .marks = marks, .levels = levels,
        .replaced = *scratch->replaced,
    };
    int64_t before[DS_LEVEL_MASK + 1], bounds[DS_LEVEL_MASK + 1];
    memcpy(before, marks, (size_t)levels * sizeof *marks);
    choose_bounds(&start, bounds);
    compaction c = start;
    if (!meet_all(&c, scratch, bounds)) {
        memcpy(marks, before, (size_t)levels * sizeof *marks);
        c = start;
        meet_all(&c, scratch, before);
    }
    bag->met = c.met;
    bag->live = c.live;
    *scratch->replaced = c.replaced;
    squeeze(d, bag, c.fates, marks);
}

static void append_alive(const ds_decay *d, const ds_bag *bag, const int64_t *marks, ds_bag *to) {
    const int64_t rows = bag->rows; /* a bag may be appended to itself */
    for (int64_t row = 0; row < rows; row++) {
        const int64_t before = to->event_count;
        for (int64_t k = bag->first[row]; k < bag->first[row + 1]; k++) {
            const uint32_t event = bag->events[k];
            to->events[to->event_count] = event;
            to->event_count += ds_alive(d, bag->times[row], event, marks);
        }
        if (to->event_count == before) continue;
        ds_copy_row(to, to->rows, bag->values, bag->weights, bag->times, bag->ids, row);
        to->first[++to->rows] = to->event_count;
    }
}

/* ------------------------------------------------------------------------------------ plausibility */

static void held_by_level(
    const ds_decay *d, const ds_bag *bag, const int64_t *marks, int64_t *later, int64_t *tied
) {
    for (int64_t row = 0; row < bag->rows; row++) {
        int64_t high_before = -1;
        for (int64_t k = bag->first[row]; k < bag->first[row + 1]; k++) {
            const uint32_t event = bag->events[k];
            const int64_t expiry = ds_expiry(d, bag->times[row], event);
            const int64_t low = ds_low(event), high = ds_high(event);
            for (int64_t level = low; level <= high; level++) later[level] += expiry > marks[level];
            /* Where the event before is stored up to level i, the row expires later than t_i there. */
            int64_t start = low;
            if (high_before != low - 1 && low > 0) start = low - 1;
            for (int64_t level = start; level < high; level++) tied[level] += expiry == marks[level];
            high_before = high;
        }
    }
}

DS_TABLE(ds_integral_compaction_kernels, ds_integral_compaction) = {
    .compact = compact,
    .append_alive = append_alive,
    .held_by_level = held_by_level,
};
