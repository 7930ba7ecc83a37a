/* Which rows stay: all of an entity later than the watermark of its level.

   Rows are walked from the latest one on, by one radix sort of their times. Of the rows of a series in
   one cell of time the first that is met is the latest, and it alone stays. Rows of one time are taken
   together: where they overflow a level, its watermark becomes their time, and those of that level
   leave again (core/marks.h). What is met later is below the watermark, so rows of lower levels are
   dropped as they come. */
#include "series/series.h"

#include "core/marks.h"

static inline void keep(const ds_samples *out, int64_t at, const ds_samples *rows, int64_t row) {
    out->times[at] = rows->times[row];
    out->starts[at] = rows->starts[row];
    out->keys[at] = rows->keys[row];
    out->codes[at] = rows->codes[row];
    out->levels[at] = rows->levels[row];
}

/* Of two rows of one time, the one of the later start stays, then of the larger value. */
static inline void replace(const ds_samples *out, int64_t at, const ds_samples *rows, int64_t row) {
    const int64_t start = rows->starts[row], key = rows->keys[row];
    if (start < out->starts[at] || (start == out->starts[at] && key <= out->keys[at])) return;
    out->starts[at] = start;
    out->keys[at] = key;
}

/* Take the rows of levels below the lowest out of a run; how many rows there are then. */
static int64_t squeeze(
    const ds_samples *out, int64_t run, int64_t kept, int64_t lowest, int64_t *latest
) {
    int64_t at = run;
    for (int64_t k = run; k < kept; k++) {
        if (out->levels[k] < lowest) continue;
        if (at < k) keep(out, at, out, k);
        latest[out->codes[at]] = at;
        at++;
    }
    return at;
}

static int64_t compact(
    const ds_samples *rows, int64_t n, int64_t codes, int64_t resolution, int64_t *marks,
    int64_t capacity, const ds_sorting *sorting, int64_t *latest, const ds_samples *out
) {
    int64_t newest;
    const int which = ds_sort_by_time(rows->times, rows->levels, n, sorting, &newest);
    const uint64_t *ages = sorting->keys[which];
    const uint32_t *words = sorting->words[which];
    for (int64_t code = 0; code < codes; code++) latest[code] = -1;
    ds_marks m = ds_first_marks(marks, DS_SERIES_TOP + 1, capacity);
    int64_t kept = 0;
    for (int64_t k = 0; k < n && m.lowest < m.levels;) {
        const uint64_t age = ages[k];
        const int64_t time = (int64_t)((uint64_t)newest - age), run = kept;
        const int64_t cell = ds_cell(time, resolution);
        ds_pass_marks(&m, time);
        for (; k < n && ages[k] == age; k++) {
            const int level = ds_level_of_word(words[k]);
            if (level < m.lowest) continue;
            const int64_t row = ds_row_of(words[k]);
            int64_t *of = &latest[rows->codes[row]];
            if (*of >= run)
                replace(out, *of, rows, row);
            else if (*of < 0 || ds_cell(out->times[*of], resolution) != cell) {
                *of = kept;
                keep(out, kept++, rows, row);
                ds_keep(&m, level);
            }
        }
        const int64_t before = m.lowest;
        ds_raise_marks(&m, time);
        if (m.lowest > before) kept = squeeze(out, run, kept, m.lowest, latest);
    }
    return kept;
}

static void arrange(
    const uint32_t *codes, int64_t n, const int64_t *ranks, int64_t series, int64_t *places,
    int64_t *order
) {
    for (int64_t k = 0; k < series; k++) places[k] = 0;
    for (int64_t k = 0; k < n; k++) places[ranks[codes[k]]]++;
    int64_t place = 0;
    for (int64_t k = 0; k < series; k++) {
        const int64_t here = places[k];
        places[k] = place;
        place += here;
    }
    for (int64_t k = n; k-- > 0;) order[places[ranks[codes[k]]]++] = k;
}

DS_TABLE(ds_series_compaction_kernels, ds_series_compaction) = {
    .compact = compact,
    .arrange = arrange,
};
