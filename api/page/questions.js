// Which questions a family of sketches answers, and how they are asked.

import { learnCaveats } from "./caveats.js";
import { request, streamPath } from "./http.js";

const QUANTILES = [0.1, 0.5, 0.9];
const NAMES = { 0.1: "p10", 0.5: "p50", 0.9: "p90" };

// The numbers that a family mainly tells of: the first two of these that it has.
const MAIN = ["count", "mean", "sum", "key_total", "self_join", "max", "min"];
export const LABELS = {
  count: "Decayed count", mean: "Decayed mean", sum: "Decayed sum", key_total: "Decayed count", self_join: "Self-join",
  max: "Largest value", min: "Least value",
};
const KEYS_ASKED = 100;

// The figures of a series sample, by the kind of its values: aggregate, label, and arguments.
const SERIES_FIGURES = {
  counter: [["increase_rate", "Rate"], ["increase", "Increase"]],
  gauge: [["time_average", "Time-weighted mean"]],
  state: [["transitions", "State changes"]],
};

// Aggregates of values, which may be those of a column.
const OF_VALUES = ["mean", "total", "variance", "stddev", "median", "quantile", "rank", "cdf", "heavy_hitters", "histogram", "group_by"];
const OF_SERIES = ["increase_rate", "increase", "time_average", "transitions", "series_count", "silent_series", "time_in_state"];
const OF_ROWS = [...OF_VALUES, ...OF_SERIES, "count", "sum", "rate", "selectivity", "last"];

// The modifiers of an aggregate: which rows, and which column.
export function restricted({ where, of }, aggregate) {
  if (!OF_ROWS.includes(aggregate)) return {};
  return { ...(where && { where }), ...(of && OF_VALUES.includes(aggregate) && { of }) };
}

let families = null;

// What streams of each family can be asked, as the service says; once.
export async function learnFamilies() {
  if (families) return;
  const found = await request("/v1/families");
  learnCaveats(found.caveats);
  families = found.families;
}

// By name: a description, arguments, and the parts of an answer.
export function questionsOf(stream) {
  const all = families?.[stream.family]?.questions ?? {};
  return hasLabels(stream) ? Object.fromEntries(Object.entries(all).filter(([, each]) => !each.numbers)) : all;
}

// Whether its rows can be filtered and grouped.
export function hasRows(stream) {
  const { named_by: named, series } = inputOf(stream);
  return named === "ids" && !series && "count" in questionsOf(stream);
}

// Whether it samples series, which have counters, gauges or states.
export const isSeries = (stream) => Boolean(inputOf(stream).series);

// Whether its rows, or its series by their attributes, can be filtered and grouped.
export const hasFilter = (stream) => hasRows(stream) || attributesOf(stream).length > 0;

export const attributesOf = (stream) => (isSeries(stream) ? stream.params?.attributes ?? "" : "").split(/[\s,]+/).filter(Boolean);

// Whether its values are texts.
export const hasLabels = (stream) => stream.params?.value_type === "label";

// What its rows are: whether its decay is fixed, and which parameter bounds ages.
const inputOf = (stream) => families?.[stream.family]?.input ?? {};

export const hasFixedDecay = (stream) => inputOf(stream).decay === "fixed";

// Whether its sources can be compared: by ids of which each is one observation, under a decay that the query chooses.
export function hasCoverage(stream) {
  const { named_by: named, joined, decay } = inputOf(stream);
  return named === "ids" && joined && decay === "query";
}

// Whether it can be asked as of the past: of extremes only the present is kept.
export const hasPast = (stream) => !hasFixedDecay(stream) && !("max" in questionsOf(stream));

// Whether its streams may be built for ages up to some bound.
export const mayBeBounded = (stream) => Boolean(inputOf(stream).age_bound);

// The oldest age that a stream with its parameters answers for, in its unit; undefined or null: any.
export const oldestAge = (stream) => stream.params?.[inputOf(stream).age_bound];

export function familyOf(stream) {
  const questions = questionsOf(stream);
  // Of labels, where all weights are 1, the sum is the count once more.
  const columns = Object.values(stream.params?.columns ?? {});
  const valued = !columns.length || columns.some((kind) => kind === "float64" || kind === "int64");
  const told = (name) => name in questions && !(name === "sum" && hasLabels(stream) && stream.params.max_weight === 1) && (valued || name !== "mean");
  return {
    scalars: MAIN.filter(told).slice(0, 2), values: valued && "quantile" in questions, hitters: valued && "heavy_hitters" in questions, keys: "key_count" in questions,
  };
}

// Whether the heaviest keys can be found: keys are integers then, and others are known by hashes alone.
export const findsKeys = (stream) => "heavy_keys" in questionsOf(stream) && Number.isInteger(stream.params?.key_bits);

// How many observations, or events, there are.
const counted = (stream) => ["key_total", "series_count"].find((name) => name in questionsOf(stream)) ?? "count";

// What the series of a stream without values is of.
export const seriesOf = (stream) => {
  const { hitters, keys, scalars } = familyOf(stream);
  return hitters || keys ? counted(stream) : scalars.at(-1);
};

export const seriesLabel = (stream) => LABELS[seriesOf(stream)];

// Answers to queries from the join of all sources, or from one of them.
// An error says which conditions were asked for: the field may have another one by then.
export async function askQueries(stream, queries, source, signal) {
  try {
    // Such a stream has only messages of a level, and answers queries to a set alone.
    if (stream.from_level) queries = queries.map((query) => ({ set: "any", settle: 0, ...query }));
    return await request(streamPath(stream.name, "/query"), { queries, ...(source && { sources: [source] }) }, signal);
  } catch (error) {
    throw Object.assign(error, { conditions: queries.map(({ where }) => where) });
  }
}

// Everything about one time: [{id, label, estimate}], the heavy hitters, the heaviest keys and prefixes, and the time.
export async function askFigures(stream, query, signal) {
  if (isSeries(stream)) return askSeriesFigures(stream, query, signal);
  const { decay, now, confidence, phi, source, rows } = query;
  const { scalars, values, hitters: shown } = familyOf(stream);
  const common = { confidence, ...(decay && { decay }), ...(now !== null && { now }) };
  const queries = scalars.map((aggregate) => ({ aggregate, ...common, ...restricted(rows, aggregate) }));
  if (values) queries.push({ aggregate: "quantile", q: QUANTILES, ...common, ...restricted(rows, "quantile") });
  if (shown) queries.push({ aggregate: "heavy_hitters", phi, ...common, ...restricted(rows, "heavy_hitters") });
  if (findsKeys(stream)) {
    for (const aggregate of ["heavy_keys", "heavy_prefixes"]) queries.push({ aggregate, phi, limit: KEYS_ASKED, ...common });
  }
  const { answers, digest } = await askQueries(stream, queries, source, signal);
  const named = (label) => (rows.of ? `${label} of ${rows.of}` : label);
  const figures = scalars.map((id, i) => ({ id, label: OF_VALUES.includes(id) ? named(LABELS[id]) : LABELS[id], estimate: answers[i].estimate }));
  const quantiles = answers.find((each) => each.aggregate === "quantile")?.quantiles ?? [];
  for (const { q, estimate } of quantiles) {
    figures.push({ id: NAMES[q], label: named(q === 0.5 ? "Median" : NAMES[q]), estimate });
  }
  const hitters = answers.find((each) => each.aggregate === "heavy_hitters")?.heavy_hitters ?? null;
  const heaviest = answers.find((each) => each.aggregate === "heavy_keys")?.heavy_keys ?? null;
  const prefixes = answers.find((each) => each.aggregate === "heavy_prefixes") ?? null;
  return { figures, hitters, heaviest, prefixes, now: answers[0].now, digest };
}

// Rates are told for each second, where the stream has a clock.
export function perSecond(estimate, unit) {
  const scaled = (value) => (value === null ? null : value / unit.scale);
  return { ...estimate, value: scaled(estimate.value), lower: scaled(estimate.lower), upper: scaled(estimate.upper) };
}

// The arguments of an aggregate of series.
export function seriesArguments(aggregate, { kind, validity }) {
  const holds = kind === "counter" ? {} : { validity };
  return ["time_average", "transitions", "time_in_state"].includes(aggregate) ? holds : {};
}

// What groups of series show, by the kind of their values: [aggregate, label].
const ACTIVITY = [["series_count", "Active series"], ["silent_series", "Silent series"]];
export const groupsOfSeries = ({ kind }) => [...SERIES_FIGURES[kind], ...ACTIVITY];

// A query to series. Activity has a decay of its own.
export const seriesQuery = (aggregate, decay, series) =>
  activityQueries(series).find((each) => each.aggregate === aggregate) ?? { aggregate, ...(decay && { decay }), ...seriesArguments(aggregate, series) };

// Of a series sample: what its values tell, and how many series are active and silent without any decay.
async function askSeriesFigures(stream, { decay, now, confidence, source, rows, series, unit }, signal) {
  const common = { confidence, ...(now !== null && { now }) };
  const asked = groupsOfSeries(series);
  const queries = asked.map(([aggregate]) => ({ ...seriesQuery(aggregate, decay, series), ...common, ...restricted(rows, aggregate) }));
  const { answers, digest } = await askQueries(stream, queries, source, signal);
  const ids = { series_count: "active", silent_series: "silent" };
  const figures = answers.map(({ aggregate, estimate }, i) => ({
    id: ids[aggregate] ?? aggregate, label: asked[i][1], estimate: aggregate === "increase_rate" ? perSecond(estimate, unit) : estimate,
  }));
  return { figures, hitters: null, heaviest: null, prefixes: null, now: answers[0].now, digest };
}

// A series is active if its latest row is younger than the silence, and else silent.
export const activityQueries = ({ silence }) => [
  { aggregate: "series_count", decay: { kind: "window", width: silence } },
  { aggregate: "silent_series", silence, decay: { kind: "none" } },
];

// The counts of one key over times: {times, counts: [estimate]}.
export async function askKey(stream, { decay, times, confidence, key, source }, signal) {
  const queries = [{ aggregate: "key_count", keys: [key], confidence, times, ...(decay && { decay }) }];
  const { answers } = await askQueries(stream, queries, source, signal);
  const { points } = answers[0];
  return { times: points.map((point) => point.now), counts: points.map((point) => point.counts[0].estimate) };
}

// What a text says as a key: an integer, a text, a list of these as JSON has them; or the text itself.
export function keyOf(text) {
  try {
    const said = JSON.parse(text);
    if (Number.isSafeInteger(said) || typeof said === "string" || Array.isArray(said)) return said;
  } catch { /* the text itself */ }
  return text;
}

// The same over times: {times, count: [estimate], quantiles: {p10: [estimate], ...} or null}.
export async function askSeries(stream, { decay, times, confidence, source, rows }, signal) {
  const common = { confidence, times, ...(decay && { decay }) };
  const queries = [{ aggregate: seriesOf(stream), ...common, ...restricted(rows, seriesOf(stream)) }];
  if (familyOf(stream).values) queries.push({ aggregate: "quantile", q: QUANTILES, ...common, ...restricted(rows, "quantile") });
  const { answers } = await askQueries(stream, queries, source, signal);
  const [count, quantile] = answers.map((each) => each.points);
  return {
    times: count.map((point) => point.now),
    count: count.map((point) => point.estimate),
    quantiles: quantile
      ? Object.fromEntries(QUANTILES.map((q, i) => [NAMES[q], quantile.map((point) => point.quantiles[i].estimate)]))
      : null,
  };
}

// The decayed count over times, for a glance.
export async function askCounts(stream, { decay, times, confidence }) {
  const queries = [{ aggregate: counted(stream), decay, times, confidence }];
  const { answers } = await askQueries(stream, queries, "");
  return answers[0].points.map((point) => point.estimate);
}

// The least of some lengths that holds nearly every observation at a time, or null. Lengths that the
// sketch does not answer for are left out.
export async function dataSpan(stream, lengths, now, signal) {
  if (!(counted(stream) in questionsOf(stream))) return null;
  const rows = isSeries(stream) ? { aggregate: "gaps", longer_than: 1 } : { aggregate: counted(stream) }; // intervals tell of rows
  const ask = (widths) => {
    const at = now === null ? {} : { now };
    const queries = widths.map((width) => ({ ...rows, decay: { kind: "window", width }, ...at }));
    return askQueries(stream, queries, "", signal);
  };
  let asked = lengths;
  let answers;
  try {
    ({ answers } = await ask(asked));
  } catch (error) {
    const refused = new Set((error.faults ?? []).map(({ field }) => Number(/^queries\[(\d+)\]/.exec(field)?.[1])));
    asked = lengths.filter((_, i) => !refused.has(i));
    if (!refused.size || !asked.length) throw error;
    ({ answers } = await ask(asked));
  }
  const counts = answers.map((each) => each.estimate.value);
  const all = counts.at(-1);
  return all > 0 ? asked[counts.findIndex((each) => each >= 0.99 * all)] : null;
}
