/* Rows of a sketch as bit-packed blocks, and back.

   Rows arrive in canonical order and are cut into blocks of 256. A block holds four columns, each as
   *patched frames of reference* (Zukowski, Heman, Nes and Boncz, "Super-scalar RAM-CPU cache
   compression", ICDE 2006): non-negative residuals are stored in the one width that makes the column
   shortest, and the few that do not fit (the exceptions) leave their high bits in a list behind.

     times     previous time minus this one (the order is descending, so it is never negative). If
               that saves much, over the greatest common divisor of the block: 60 for times of whole
               minutes in seconds
     ids       what is shorter of: id minus the block's smallest; zigzag of previous id minus this one
     weights   weight minus the block's smallest
     values    of the rows that have one: float64 as integers over the smallest power of ten that
               gives every one of them back exactly, else as order-preserving bits; minus the block's
               smallest

   docs/wire-format.md names every bit. What is written is a function of the rows alone: integers, and
   for decimals IEEE multiplication, rounding to integer and division, which are exactly defined.

   Packing trusts its input, unpacking nothing: `scan` walks the headers first, so that the length of
   every column is known to lie inside the buffer, and the size of what unpacking allocates is paid for
   in bytes, before a row is read.

   Whether packing again gives the same bits is seen while a block is unpacked, of what lies in the
   cache. A column's bits are its header (width, extra bits, number of exceptions), the low bits, the
   places of the exceptions and their high bits. Low and high bits are those of the residuals that were
   put together from them, provided that no place is named twice and places ascend; so the column is
   what packing writes if and only if the plan made from its residuals, with the set of places, is the
   one that was read. And the residuals are those that packing finds if the base of a frame is the
   least number of its column and the first time is that of the header: sums wrap around, and the
   differences that packing takes wrap back. */
#include "core/codec/bitpack.h"
#include "core/bits.h"
#include "core/vectors.h"
#include <math.h>

enum { TIMES, IDS, WEIGHTS, VALUES };

enum {
    MAX_DECIMALS = 14, /* 10^14 and every quotient by it is one correctly rounded operation */
    RAW = 15,          /* what stands in place of a number of decimals: order-preserving bits */
    LENGTHS = 65,      /* of a residual, 0 to 64 */
    DIVIDED = 64,      /* added to a divisor's length, where a width of at most 64 is without one */
    LEAST_SAVING = 512, /* bits for which a block is divided */
    FLAG_WORDS = DS_ROW_BLOCK / 64,
};

enum { NONE_MISSING, SOME_MISSING, ALL_MISSING };

static const double powers_of_ten[MAX_DECIMALS + 1] = {
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14,
};

/* ------------------------------------------------------------------------------------------ bits */

static inline uint64_t load_word(const uint8_t *from) {
    uint64_t word;
    memcpy(&word, from, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static inline void store_word(uint8_t *to, uint64_t word) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    memcpy(to, &word, sizeof word);
}

static inline uint64_t low_bits(int width) { return width >= 64 ? ~0ULL : (1ULL << width) - 1; }

/* Up to 64 bits, of which all that is read lies in memory. */
static inline uint64_t get(const uint8_t *data, int64_t position, int width) {
    const uint8_t *from = data + (position >> 3);
    const int shift = (int)(position & 7);
    const uint64_t beyond = (uint64_t)from[8] << 1 << (63 - shift);
    return (load_word(from) >> shift | beyond) & low_bits(width);
}

/* The same, where bits behind the end of `size` bytes are zero. */
static inline uint64_t get_within(
    const uint8_t *data, int64_t size, int64_t position, int width
) {
    const int64_t first = position >> 3;
    if (first + 9 <= size) return get(data, position, width);
    uint8_t some[9] = {0};
    if (first < size) memcpy(some, data + first, (size_t)(size - first));
    return get(some, position & 7, width);
}

typedef struct {
    uint8_t *at;
    uint64_t word; /* bits that are not stored yet */
    int filled;    /* how many, below 64 */
} writer;

/* Appends the low `width` bits of a value that has no higher ones. */
static inline void put(writer *out, uint64_t value, int width) {
    const uint64_t word = out->word | value << out->filled;
    const int filled = out->filled + width, full = filled >= 64;
    store_word(out->at, word); /* again and again, until it is full */
    out->word = full ? (value >> 1) >> (63 - out->filled) : word;
    out->at += full ? 8 : 0;
    out->filled = filled & 63;
}

/* ------------------------------------------------------------------------------------ one column */

/* How a column is packed. */
typedef struct {
    int64_t bits;            /* all of them, header included as far as plans differ in it */
    int width, extra;        /* of every residual; more of them, of an exception */
    int exceptions;          /* how many */
    uint64_t at[FLAG_WORDS]; /* which ones, a bit for each */
} plan;

/* Bits that name one of m residuals. */
static inline int place_bits(int m) { return ds_bit_length((uint64_t)(m - 1)); }

static inline int lesser(int a, int b) { return a < b ? a : b; }

/* Bits that say where the exceptions are: a place for each, or a bit for each residual. */
static inline int where_bits(int m, int exceptions) {
    return lesser(m, exceptions * place_bits(m));
}

/* Chooses the width of m residuals, of which the largest takes `longest` bits and longer[b] take more
   than b, from longest - 1 down to where all do.

   With q the bit length of m - 1, and x residuals longer than the width b, a column takes m b bits,
   and if x > 0 another 7 for longest - b, q for x, the lesser of m and x q for where they are, and
   x (longest - b) for their high bits. The cheapest b is taken, the largest of equals. */
static inline void choose_width(plan *p, const int *longer, int m, int longest) {
    const int place = place_bits(m);
    for (int b = longest - 1; b >= 0 && longer[b] < m; b--) { /* if all are longer, none is best */
        const int x = longer[b];
        const int bits = m * b + 7 + place + lesser(m, x * place) + x * (longest - b);
        if (bits < p->bits) {
            p->bits = bits;
            p->width = b;
            p->exceptions = x;
        }
    }
    p->extra = longest - p->width;
}

#if DS_LANES == 8
/* Plans residuals whose bit lengths are gathered as bytes, so that 64 of them are compared at once. */
static inline void plan_lengths(plan *p, const uint64_t *residuals, int m, int longest) {
    uint8_t lengths[DS_ROW_BLOCK];
    int longer[LENGTHS], i = 0;
    const int groups = (m + 63) / 64;
    for (; i < m; i += 8) {
        const __mmask8 inside = (__mmask8)low_bits(lesser(m - i, 8));
        const __m512i some = _mm512_maskz_loadu_epi64(inside, residuals + i);
        const __m512i length = _mm512_sub_epi64(_mm512_set1_epi64(64), _mm512_lzcnt_epi64(some));
        _mm_storel_epi64((__m128i *)(lengths + i), _mm512_cvtepi64_epi8(length));
    }
    memset(lengths + i, 0, (size_t)(groups * 64 - i));
    for (int b = longest - 1, count = 0; b >= 0 && count < m; b--) {
        const __m512i limit = _mm512_set1_epi8((char)b);
        count = 0;
        for (int k = 0; k < groups; k++)
            count += __builtin_popcountll(
                _mm512_cmpgt_epu8_mask(_mm512_loadu_si512(lengths + 64 * k), limit)
            );
        longer[b] = count;
    }
    choose_width(p, longer, m, longest);
    const __m512i limit = _mm512_set1_epi8((char)p->width);
    for (int k = 0; k < groups; k++)
        p->at[k] = _mm512_cmpgt_epu8_mask(_mm512_loadu_si512(lengths + 64 * k), limit);
}
#else
static inline void plan_lengths(plan *p, const uint64_t *residuals, int m, int longest) {
    uint16_t counts[4][64] = {{0}}; /* so that equal lengths do not wait for each other */
    int longer[LENGTHS];
    int64_t some = 0; /* longer than 0; by length, 0 is taken for 1 */
    for (int i = 0; i < m; i++) some += residuals[i] != 0;
    for (int i = 0; i < m; i++) counts[i & 3][__builtin_clzll(residuals[i] | 1)]++;
    for (int b = longest - 1, count = 0; b > 0; b--) {
        for (int k = 0; k < 4; k++) count += counts[k][63 - b];
        longer[b] = count;
    }
    longer[0] = (int)some;
    choose_width(p, longer, m, longest);
    if (p->extra == 0) return;
    for (int first = 0; first < m; first += 64, residuals += 64) {
        const int n = lesser(64, m - first);
        uint64_t found = 0;
        for (int k = 0; k < n; k++) found |= (uint64_t)(residuals[k] >> p->width != 0) << k;
        p->at[first / 64] = found;
    }
}
#endif

static void make_plan(const uint64_t *residuals, int m, plan *p) {
    uint64_t any = 0;
    for (int i = 0; i < m; i++) any |= residuals[i];
    const int longest = ds_bit_length(any);
    memset(p, 0, sizeof *p);
    p->bits = (int64_t)m * longest;
    p->width = longest;
    if (longest > 0) plan_lengths(p, residuals, m, longest);
}

/* Joins words of so many bits two by two; behind an odd number of them stands a zero. */
static inline int join(uint64_t *restrict to, uint64_t *restrict from, int words, int size) {
    from[words] = 0;
    words = (words + 1) / 2;
    for (int i = 0; i < words; i++) to[i] = from[2 * i] | from[2 * i + 1] << size;
    return words;
}

/* Low bits of all residuals. They are joined while two fit a word, so that few words are left to be
   appended one after the other. */
static inline void put_low_bits(writer *out, const uint64_t *residuals, int m, int width) {
    uint64_t some[DS_ROW_BLOCK + 1], others[DS_ROW_BLOCK + 1], *joined = some, *spare = others;
    const uint64_t mask = low_bits(width);
    for (int i = 0; i < m; i++) some[i] = residuals[i] & mask;
    const int bits = m * width;
    int words = m, size = width;
    for (; 2 * size <= 64 && words > 1; size *= 2) {
        words = join(spare, joined, words, size);
        uint64_t *const last = joined;
        joined = spare;
        spare = last;
    }
    const int whole = bits / size;
    writer w = *out;
    for (int i = 0; i < whole; i++) put(&w, joined[i], size);
    if (bits > whole * size) put(&w, joined[whole], bits - whole * size);
    *out = w;
}

/* Writes one planned column: its header, low bits, exceptions. */
static void put_column(writer *out, const uint64_t *residuals, int m, const plan *p) {
    const int place = place_bits(m);
    put(out, (uint64_t)p->width, 7);
    put(out, p->extra > 0, 1);
    if (p->extra > 0) {
        put(out, (uint64_t)p->extra, 7);
        put(out, (uint64_t)(p->exceptions - 1), place);
    }
    if (p->width > 0) put_low_bits(out, residuals, m, p->width);
    if (p->extra == 0) return;
    const int bitmap = p->exceptions * place > m;
    if (bitmap)
        for (int i = 0; i < m; i += 64) put(out, p->at[i / 64], lesser(64, m - i));
    for (int high = bitmap; high < 2; high++) /* places, if they are listed; then high bits */
        for (int i = 0; i < m; i += 64)
            for (uint64_t left = p->at[i / 64]; left; left &= left - 1) {
                const int row = i + __builtin_ctzll(left);
                if (high)
                    put(out, residuals[row] >> p->width, p->extra); /* width < 64 */
                else
                    put(out, (uint64_t)row, place);
            }
}

/* A frame's smallest number: 7 bits for the bit length of its zigzag, then that zigzag. */
static inline void put_base(writer *out, int64_t base) {
    const uint64_t word = ds_zigzag(base);
    const int length = ds_bit_length(word);
    put(out, (uint64_t)length, 7);
    put(out, word, length);
}

static inline int64_t base_bits(int64_t base) { return 7 + ds_bit_length(ds_zigzag(base)); }

static inline int64_t smallest(const int64_t *numbers, int m) {
    int64_t least = numbers[0];
    for (int i = 1; i < m; i++) least = numbers[i] < least ? numbers[i] : least;
    return least;
}

/* Residuals of m numbers above their smallest, which is returned. */
static inline int64_t frame(const int64_t *numbers, int m, uint64_t *residuals) {
    const int64_t base = smallest(numbers, m);
    for (int i = 0; i < m; i++) residuals[i] = (uint64_t)(numbers[i] - base);
    return base;
}

/* Residuals of m ids as steps from the one before. */
static inline void steps(const int64_t *ids, int m, int64_t last, uint64_t *residuals) {
    residuals[0] = ds_zigzag(last - ids[0]);
    for (int i = 1; i < m; i++) residuals[i] = ds_zigzag(ids[i - 1] - ids[i]);
}

/* ---------------------------------------------------------------------------------------- divisors */

/* Division of multiples by one multiplication (Granlund and Montgomery, "Division by invariant integers
   using multiplication", PLDI 1994). The inverse of the odd part modulo 2^64 gives the quotient, and
   for any other number more than `most`. */
typedef struct {
    uint64_t d, inverse, most;
    int shift;
} divisor;

static inline divisor divisor_of(uint64_t d) {
    divisor by = {d, 0, ~0ULL / d, __builtin_ctzll(d)};
    const uint64_t odd = d >> by.shift;
    by.inverse = odd * 3 ^ 2;                                          /* right in 5 bits */
    for (int k = 0; k < 4; k++) by.inverse *= 2 - odd * by.inverse; /* in twice as many */
    return by;
}

static inline uint64_t divided(uint64_t number, divisor by) {
    const uint64_t product = number * by.inverse;
    return product >> by.shift | product << (-by.shift & 63);
}

static inline uint64_t common_divisor(uint64_t a, uint64_t b) {
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The greatest common divisor of m numbers and the quotients by it; 1 and none if it is 1 or all are
   zero. Most blocks of irregular times end the loop after two or three numbers. */
static uint64_t divide_all(const uint64_t *numbers, int m, uint64_t *quotients) {
    int i = 0;
    while (i < m && numbers[i] == 0) i++;
    if (i == m) return 1;
    divisor by = divisor_of(numbers[i]);
    for (; i < m && by.d > 1; i++)
        if (divided(numbers[i], by) > by.most) by = divisor_of(common_divisor(by.d, numbers[i]));
    if (by.d > 1)
        for (i = 0; i < m; i++) quotients[i] = divided(numbers[i], by);
    return by.d;
}

/* Plans m differences of times, and their quotients. Returns the divisor that packing takes, or 1. */
static uint64_t plan_times(
    const uint64_t *residuals, int m, plan *plain, uint64_t *quotients, plan *of_quotients
) {
    make_plan(residuals, m, plain);
    if (plain->bits < LEAST_SAVING) return 1;
    const uint64_t d = divide_all(residuals, m, quotients);
    const int length = ds_bit_length(d);
    if (d == 1 || length > 63) return 1;
    make_plan(quotients, m, of_quotients);
    return of_quotients->bits + 7 + length + LEAST_SAVING <= plain->bits ? d : 1;
}

/* --------------------------------------------------------------------------------------- decimals */

/* The bits of a float from its order-preserving key, and the other way. */
static inline int64_t flipped(int64_t key) { return key ^ ((key >> 63) & INT64_MAX); }

static inline double float_of(int64_t key) {
    const int64_t bits = flipped(key);
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline int64_t key_of(double x) {
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return flipped(bits);
}

enum { AT_ONCE = 32 }; /* floats that are tried together */

/* The fewest decimals that give every float back, and the integers over that power of ten; or RAW.

   A float x passes with k decimals if the integer j = round(x 10^k), ties to even, is at most 2^53 in
   magnitude and j / 10^k == x; both operations are rounded once. */
static int to_decimals(const int64_t *keys, int m, int64_t *integers) {
    double floats[DS_ROW_BLOCK];
    for (int i = 0; i < m; i++) floats[i] = float_of(keys[i]);
    for (int i = m; i & (AT_ONCE - 1); i++) floats[i] = 0.0; /* passes with any number */
    for (int decimals = 0; decimals <= MAX_DECIMALS; decimals++) {
        const double power = powers_of_ten[decimals];
        int64_t failed = 0;
        for (int start = 0; start < m && !failed; start += AT_ONCE)
            for (int i = start; i < start + AT_ONCE; i++) {
                const double scaled = rint(floats[i] * power);
                failed |= !(fabs(scaled) <= 0x1p53) | (scaled / power != floats[i]);
            }
        if (failed) continue;
        for (int i = 0; i < m; i++) integers[i] = (int64_t)rint(floats[i] * power);
        return decimals;
    }
    return RAW;
}

/* ----------------------------------------------------------------------------------------- packing */

/* A bit for each key that is not missing; how many. */
static inline int find_present(const int64_t *keys, int m, uint64_t *present) {
    int found = 0;
    for (int first = 0; first < m; first += 64) {
        uint64_t word = 0;
        for (int i = first; i < m && i < first + 64; i++)
            word |= (uint64_t)(keys[i] != DS_MISSING) << (i - first);
        present[first / 64] = word;
        found += __builtin_popcountll(word);
    }
    return found;
}

static inline int any_missing(const int64_t *keys, int m) {
    int64_t any = 0;
    for (int i = 0; i < m; i++) any |= keys[i] == DS_MISSING;
    return any != 0;
}

static void put_ids(writer *out, const int64_t *ids, int m, int64_t last_id) {
    uint64_t by_steps[DS_ROW_BLOCK], framed[DS_ROW_BLOCK];
    plan of_steps, of_frame;
    steps(ids, m, last_id, by_steps);
    make_plan(by_steps, m, &of_steps);
    const int64_t base = frame(ids, m, framed);
    make_plan(framed, m, &of_frame);
    const int takes_steps = of_steps.bits < base_bits(base) + of_frame.bits;
    put(out, (uint64_t)takes_steps, 1);
    if (takes_steps) {
        put_column(out, by_steps, m, &of_steps);
    } else {
        put_base(out, base);
        put_column(out, framed, m, &of_frame);
    }
}

static void put_framed(writer *out, const int64_t *numbers, int m) {
    uint64_t residuals[DS_ROW_BLOCK];
    plan p;
    put_base(out, frame(numbers, m, residuals));
    make_plan(residuals, m, &p);
    put_column(out, residuals, m, &p);
}

static void put_values(writer *out, const int64_t *keys, int m, int floats) {
    int64_t some[DS_ROW_BLOCK], integers[DS_ROW_BLOCK];
    uint64_t present[FLAG_WORDS];
    const int found = any_missing(keys, m) ? find_present(keys, m, present) : m;
    put(out, found == m ? NONE_MISSING : found ? SOME_MISSING : ALL_MISSING, 2);
    if (found == 0) return;
    if (found < m) {
        for (int i = 0; i < m; i += 64) put(out, present[i / 64], lesser(64, m - i));
        for (int i = 0, taken = 0; i < m; i++)
            if (keys[i] != DS_MISSING) some[taken++] = keys[i];
        keys = some;
    }
    const int64_t *numbers = keys;
    if (floats) {
        const int decimals = to_decimals(keys, found, integers);
        if (decimals != RAW) numbers = integers;
        put(out, (uint64_t)decimals, 4);
    }
    put_framed(out, numbers, found);
}

static void put_times(writer *out, const uint64_t *residuals, int m, int divides) {
    uint64_t quotients[DS_ROW_BLOCK];
    plan plain, of_quotients;
    const uint64_t d = plan_times(residuals, m, &plain, quotients, &of_quotients);
    if (d == 1 || !divides) {
        put_column(out, residuals, m, &plain);
        return;
    }
    const int length = ds_bit_length(d);
    put(out, (uint64_t)(DIVIDED + length), 7);
    put(out, d, length);
    put_column(out, quotients, m, &of_quotients);
}

static int64_t pack(const ds_rows *rows, int64_t n, int floats, int divides, uint8_t *to) {
    writer out = {to, 0, 0};
    int64_t last_time = n > 0 ? rows->times[0] : 0, last_id = 0;
    for (int64_t start = 0; start < n; start += DS_ROW_BLOCK) {
        const int m = (int)(n - start < DS_ROW_BLOCK ? n - start : DS_ROW_BLOCK);
        const int64_t *times = rows->times + start, *ids = rows->ids + start;
        uint64_t residuals[DS_ROW_BLOCK];
        residuals[0] = (uint64_t)(last_time - times[0]);
        for (int i = 1; i < m; i++) residuals[i] = (uint64_t)(times[i - 1] - times[i]);
        put_times(&out, residuals, m, divides);
        put_ids(&out, ids, m, last_id);
        put_framed(&out, rows->weights + start, m);
        put_values(&out, rows->values + start, m, floats);
        last_time = times[m - 1];
        last_id = ids[m - 1];
    }
    store_word(out.at, out.word);
    return out.at - to + (out.filled + 7) / 8;
}

/* ---------------------------------------------------------------------------------------- scanning */

/* What stands in front of a column's numbers. */
typedef struct {
    int numbers;        /* how many */
    int framed;         /* whether they are a frame */
    int missing;        /* values */
    int decimals;       /* values */
    int length;         /* times: bits of the divisor, or 0 */
    uint64_t divisor;   /* times */
    int64_t bitmap;     /* position of the bits that say which values are present */
    int64_t position;   /* behind all that */
} modes;

static inline modes get_modes(
    const uint8_t *data, int64_t size, int64_t position, int column, int m, int floats
) {
    modes found = {
        .numbers = m, .framed = column == WEIGHTS, .decimals = RAW, .position = position
    };
    if (column == TIMES) {
        const int width = (int)get_within(data, size, position, 7);
        if (width > DIVIDED + 1) { /* a divisor has two bits at least */
            found.length = width - DIVIDED;
            found.divisor = get_within(data, size, position + 7, found.length);
            found.position += 7 + found.length;
        }
    } else if (column == IDS) {
        found.framed = !get_within(data, size, position, 1);
        found.position += 1;
    } else if (column == VALUES) {
        found.framed = 1;
        found.missing = (int)get_within(data, size, position, 2);
        found.position += 2;
        found.bitmap = found.position;
        if (found.missing != NONE_MISSING) found.numbers = 0;
        if (found.missing == SOME_MISSING) {
            for (int i = 0; i < m; i += 64)
                found.numbers += __builtin_popcountll(
                    get_within(data, size, found.bitmap + i, lesser(64, m - i))
                );
            found.position += m;
        }
        if (floats && found.numbers > 0) {
            found.decimals = (int)get_within(data, size, found.position, 4);
            found.position += 4;
        }
    }
    return found;
}

/* The header of a packed column of m residuals; `bits` of all that is behind it, `position` there. */
static inline plan get_header(const uint8_t *data, int64_t size, int64_t *position, int m) {
    const int place = place_bits(m);
    const uint64_t head = get_within(data, size, *position, 7 + 1 + 7 + 8);
    plan p = {0};
    p.width = (int)(head & 127);
    *position += 8;
    if (head >> 7 & 1) {
        p.extra = (int)(head >> 8 & 127);
        p.exceptions = 1 + (int)(head >> 15 & low_bits(place));
        *position += 7 + place;
    }
    p.bits = m * p.width + where_bits(m, p.exceptions) + p.exceptions * p.extra;
    return p;
}

static ds_outcome scan(const uint8_t *data, int64_t size, int64_t n, int floats) {
    const int64_t bits = 8 * size;
    int64_t position = 0, start = 0;
    for (; start < n; start += DS_ROW_BLOCK) {
        const int m = (int)(n - start < DS_ROW_BLOCK ? n - start : DS_ROW_BLOCK);
        int64_t told_apart = 0;
        for (int column = TIMES; column <= VALUES; column++) {
            const modes found = get_modes(data, size, position, column, m, floats);
            position = found.position;
            if (found.missing > ALL_MISSING)
                return (ds_outcome){
                    DS_WIDTH_TOO_LARGE, start, column, found.missing, ALL_MISSING, position
                };
            if (found.numbers > 0) {
                if (found.framed) {
                    const int length = (int)get_within(data, size, position, 7);
                    position += 7 + length;
                    if (length > 64)
                        return (ds_outcome){
                            DS_WIDTH_TOO_LARGE, start, column, length, 64, position
                        };
                }
                const plan p = get_header(data, size, &position, found.numbers);
                if (p.width + p.extra > 64)
                    return (ds_outcome){
                        DS_WIDTH_TOO_LARGE, start, column, p.width + p.extra, 64, position
                    };
                position += p.bits;
                if (column == IDS || column == WEIGHTS) told_apart += p.bits;
            }
            if (position > bits)
                return (ds_outcome){DS_PAST_END, start, column, position, bits, position};
        }
        /* No two rows share id and weight, so of two neighbours one must leave the frame or take a
           step. Hence n < bits, whatever was declared, before memory for the rows is allocated. */
        if (told_apart < m - 1)
            return (ds_outcome){DS_TOO_FEW_BITS, start, IDS, told_apart, m - 1, position};
    }
    return (ds_outcome){DS_OK, n, 0, 0, 0, position};
}

/* --------------------------------------------------------------------------------------- unpacking */

/* The low bits of m residuals; up to DS_SPARE_BYTES behind them are read. */
static inline void get_low_bits(
    const uint8_t *data, int64_t position, int width, int m, uint64_t *residuals
) {
    const uint64_t mask = low_bits(width);
    int i = 0;
    if (width == 0) {
        memset(residuals, 0, (size_t)m * sizeof *residuals);
        return;
    }
#if DS_LANES == 8
    /* Eight residuals take a whole number of bytes, so that eight by eight they lie alike. Each is
       within four 16-bit units that are brought into its lane. */
    if (width <= 49) {
        const ds_uvec lane = {0, 1, 2, 3, 4, 5, 6, 7};
        const ds_uvec bit = lane * (uint64_t)width + (uint64_t)(position & 7);
        const __m512i units = (__m512i)((bit >> 4) * 0x0001000100010001u + 0x0003000200010000u);
        const __m512i shifts = (__m512i)(bit & 15), masks = _mm512_set1_epi64((long long)mask);
        const uint8_t *from = data + (position >> 3);
        for (; i < m; i += 8, from += width) {
            __m512i x = _mm512_permutexvar_epi16(units, _mm512_loadu_si512(from));
            x = _mm512_and_si512(_mm512_srlv_epi64(x, shifts), masks);
            _mm512_storeu_si512(residuals + i, x);
        }
        return;
    }
#endif
    if (width <= 57)
        for (; i < m; i++) {
            const int64_t at = position + (int64_t)i * width;
            residuals[i] = load_word(data + (at >> 3)) >> (at & 7) & mask;
        }
    else
        for (; i < m; i++) residuals[i] = get(data, position + (int64_t)i * width, width);
}

/* Reads one column that was scanned. Returns whether its exceptions are in order; those that are
   misplaced or too many are skipped, and packing again would show them. */
static inline int get_column(ds_unpacker *in, uint64_t *residuals, int m, plan *p) {
    int64_t position = in->position;
    *p = get_header(in->data, in->size, &position, m);
    in->position = position + p->bits;
    get_low_bits(in->data, position, p->width, m, residuals);
    if (p->exceptions == 0) return 1;
    const int place = place_bits(m), where = where_bits(m, p->exceptions);
    const int64_t from = position + (int64_t)m * p->width;
    int64_t high = from + where;
    int in_order = 1, last = -1;
    if (where < p->exceptions * place) {
        for (int first = 0; first < m; first += 64) {
            uint64_t left = get(in->data, from + first, lesser(64, m - first));
            p->at[first / 64] = left;
            for (; left && high < in->position; left &= left - 1, high += p->extra) {
                const int row = first + __builtin_ctzll(left);
                /* A width of 64 leaves an exception no bit. */
                residuals[row] |= get(in->data, high, p->extra) << (p->width & 63);
            }
        }
        return 1;
    }
    for (int j = 0; j < p->exceptions; j++, high += p->extra) {
        const int row = (int)get(in->data, from + j * place, place);
        in_order &= row > last && row < m;
        last = row;
        if (row < m) {
            residuals[row] |= get(in->data, high, p->extra) << (p->width & 63);
            p->at[row / 64] |= 1ULL << (row & 63);
        }
    }
    return in_order;
}

/* Whether the column that was read is what packing would write. */
static inline int as_planned(const plan *read, const plan *made) {
    int same = read->width == made->width && read->extra == made->extra;
    same &= read->exceptions == made->exceptions;
    for (int k = 0; k < FLAG_WORDS; k++) same &= read->at[k] == made->at[k];
    return same;
}

/* A base, and whether its length is as short as can be. */
static inline int64_t get_base(ds_unpacker *in, int *shortest) {
    const int length = (int)get(in->data, in->position, 7);
    const uint64_t word = get(in->data, in->position + 7, length);
    in->position += 7 + length;
    *shortest = ds_bit_length(word) == length;
    return ds_unzigzag(word);
}

/* The numbers of a frame. Returns whether packing them gives the same bits. */
static inline int get_frame(ds_unpacker *in, int64_t *numbers, int m, int64_t *base, plan *made) {
    uint64_t residuals[DS_ROW_BLOCK];
    plan read;
    int good;
    *base = get_base(in, &good);
    good &= get_column(in, residuals, m, &read);
    make_plan(residuals, m, made);
    for (int i = 0; i < m; i++) numbers[i] = *base + (int64_t)residuals[i];
    return good & as_planned(&read, made) & (smallest(numbers, m) == *base);
}

/* Times, divided or not. Releases before divisors wrote all blocks without one, so either all blocks
   that packing divides are divided, or none is. */
static int get_times(ds_unpacker *in, int64_t *times, int m) {
    const modes found = get_modes(in->data, in->size, in->position, TIMES, m, 0);
    uint64_t residuals[DS_ROW_BLOCK], quotients[DS_ROW_BLOCK];
    plan read, plain, of_quotients;
    in->position = found.position;
    int good = get_column(in, residuals, m, &read);
    if (found.length) {
        good &= ds_bit_length(found.divisor) == found.length;
        for (int i = 0; i < m; i++)
            good &= !__builtin_mul_overflow(residuals[i], found.divisor, &residuals[i]);
    }
    const uint64_t d = plan_times(residuals, m, &plain, quotients, &of_quotients);
    if (found.length)
        good = good && d == found.divisor && as_planned(&read, &of_quotients);
    else
        good &= as_planned(&read, &plain);
    if (d > 1) in->forms |= found.length ? 1 : 2;
    good &= in->forms != 3;
    if (in->first) good &= residuals[0] == 0;
    in->first = 0;
    int64_t time = in->last_time;
    for (int i = 0; i < m; i++) times[i] = time -= (int64_t)residuals[i];
    in->last_time = time;
    return good;
}

static int get_ids(ds_unpacker *in, int64_t *ids, int m) {
    uint64_t residuals[DS_ROW_BLOCK];
    plan read, made, other;
    int64_t base, last = in->last_id;
    int good;
    const int by_steps = (int)get(in->data, in->position, 1);
    in->position += 1;
    if (by_steps) {
        good = get_column(in, residuals, m, &read);
        make_plan(residuals, m, &made);
        good &= as_planned(&read, &made);
        for (int i = 0; i < m; i++) ids[i] = last -= ds_unzigzag(residuals[i]);
        base = frame(ids, m, residuals);
        make_plan(residuals, m, &other);
        good &= made.bits < base_bits(base) + other.bits;
    } else {
        good = get_frame(in, ids, m, &base, &made);
        steps(ids, m, last, residuals);
        make_plan(residuals, m, &other);
        good &= other.bits >= base_bits(base) + made.bits;
    }
    in->last_id = ids[m - 1];
    return good;
}

/* Whether packing floats again finds these integers over this number of decimals. */
static inline int decimals_again(const int64_t *keys, int m, const int64_t *numbers, int decimals) {
    int64_t again[DS_ROW_BLOCK];
    if (to_decimals(keys, m, again) != decimals) return 0;
    return decimals == RAW || !memcmp(again, numbers, (size_t)m * sizeof *again);
}

static int get_values(ds_unpacker *in, int64_t *keys, int m) {
    int64_t numbers[DS_ROW_BLOCK], present[DS_ROW_BLOCK], base;
    const modes found = get_modes(in->data, in->size, in->position, VALUES, m, in->floats);
    const int count = found.numbers;
    int good = found.missing != SOME_MISSING || (count > 0 && count < m);
    plan made;
    in->position = found.position;
    int64_t *to = count == m ? keys : present;
    if (count > 0) {
        good &= get_frame(in, in->floats ? numbers : to, count, &base, &made);
        if (in->floats) {
            if (found.decimals == RAW)
                memcpy(to, numbers, (size_t)count * sizeof *to);
            else
                for (int i = 0; i < count; i++)
                    to[i] = key_of((double)numbers[i] / powers_of_ten[found.decimals]);
            good &= decimals_again(to, count, numbers, found.decimals);
        }
        good &= !any_missing(to, count);
    }
    if (count == m) return good;
    for (int i = 0; i < m; i++) keys[i] = DS_MISSING;
    if (count == 0) return good;
    for (int first = 0; first < m; first += 64) {
        uint64_t left = get(in->data, found.bitmap + first, lesser(64, m - first));
        for (; left; left &= left - 1) keys[first + __builtin_ctzll(left)] = *to++;
    }
    return good;
}

static void open_columns(
    ds_unpacker *in, const uint8_t *data, int64_t size, int64_t first_time, int floats
) {
    in->data = data;
    in->size = size;
    in->position = 0;
    in->last_time = first_time;
    in->last_id = 0;
    in->floats = floats;
    in->first = 1;
    in->forms = 0;
}

/* The last blocks are read from a copy with something behind it. */
static inline void read_on(ds_unpacker *in) {
    const int64_t passed = in->position >> 3, left = in->size - passed;
    if (in->data != in->tail && left < DS_LARGEST_BLOCK + DS_SPARE_BYTES) {
        memcpy(in->tail, in->data + passed, (size_t)left);
        memset(in->tail + left, 0, DS_SPARE_BYTES);
        in->data = in->tail;
        in->size = left + DS_SPARE_BYTES;
        in->position &= 7;
    }
}

static int next_block(ds_unpacker *in, int64_t m, const ds_rows *rows, int64_t at) {
    read_on(in);
    int good = get_times(in, rows->times + at, (int)m);
    good &= get_ids(in, rows->ids + at, (int)m);
    int64_t base;
    plan made;
    good &= get_frame(in, rows->weights + at, (int)m, &base, &made);
    good &= get_values(in, rows->values + at, (int)m);
    return good;
}

/* -------------------------------------------------------------------------------- values by themselves */

static int64_t pack_values(const int64_t *keys, int64_t n, int floats, uint8_t *to) {
    writer out = {to, 0, 0};
    for (int64_t start = 0; start < n; start += DS_ROW_BLOCK)
        put_values(&out, keys + start, (int)(n - start < DS_ROW_BLOCK ? n - start : DS_ROW_BLOCK), floats);
    store_word(out.at, out.word);
    return out.at - to + (out.filled + 7) / 8;
}

/* The bits that n packed values take; -1 where they run past the end, or a width is none. */
static int64_t scan_values(const uint8_t *data, int64_t size, int64_t n, int floats) {
    int64_t position = 0;
    for (int64_t start = 0; start < n; start += DS_ROW_BLOCK) {
        const int m = (int)(n - start < DS_ROW_BLOCK ? n - start : DS_ROW_BLOCK);
        const modes found = get_modes(data, size, position, VALUES, m, floats);
        position = found.position;
        if (found.missing > ALL_MISSING) return -1;
        if (found.numbers > 0) {
            const int length = (int)get_within(data, size, position, 7);
            position += 7 + length;
            if (length > 64) return -1;
            const plan p = get_header(data, size, &position, found.numbers);
            if (p.width + p.extra > 64) return -1;
            position += p.bits;
        }
        if (position > 8 * size) return -1;
    }
    return position;
}

static int64_t read_values(
    const uint8_t *data, int64_t size, int64_t n, int floats, int64_t *keys
) {
    const int64_t bits = scan_values(data, size, n, floats), bytes = (bits + 7) / 8;
    if (bits < 0 || get_within(data, size, bits, (int)(8 * bytes - bits))) return -1;
    ds_unpacker in;
    open_columns(&in, data, size, 0, floats);
    int good = 1;
    for (int64_t at = 0; at < n; at += DS_ROW_BLOCK) {
        read_on(&in);
        good &= get_values(&in, keys + at, (int)(n - at < DS_ROW_BLOCK ? n - at : DS_ROW_BLOCK));
    }
    return good ? bytes : -1;
}

DS_TABLE(ds_bitpack_kernels, ds_bitpack) = {
    .pack = pack,
    .scan = scan,
    .open = open_columns,
    .next = next_block,
    .pack_values = pack_values,
    .read_values = read_values,
};
