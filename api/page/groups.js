// Groups: an aggregate for each value of some keys, as bars with their intervals, and each over time.

import { remember } from "./address.js";
import { keys, keysOf, numberColumns } from "./columns.js";
import { Completion } from "./complete.js";
import { register, showOld, TYPING_MS } from "./hub.js";
import { Newest, reasonOf } from "./http.js";
import { element, svg } from "./nodes.js";
import { drawnIn, drawnNow, isShown, note } from "./panel.js";
import { bar, bounds, dot, estimateParts, labelText, tableOf } from "./panels.js";
import { askQueries, groupsOfSeries, hasFilter, isSeries, perSecond, restricted, seriesQuery } from "./questions.js";
import { $, askedNow, chosenRows, latest, mayAsk, seriesChoice, serviceDecay, state, timesOf } from "./state.js";
import { takings } from "./taking.js";
import { number, told } from "./units.js";

const LISTED = 20;
const DRAWN = 12; // over time
const BUCKETS = 24;
const MOST_OVER_TIME = 50; // groups of series: each is computed for each bar

const AGGREGATES = [["count", "Decayed count"], ["mean", "Mean"], ["total", "Sum of values"], ["median", "Median"], ["rate", "Rate"]];

class Groups {
  table = null;
  #offered = AGGREGATES;

  // `changed(debounceMs)`: another question is wanted.
  constructor(changed) {
    this.completion = new Completion($("by"), (before) => keys(state.stream, state.unit)(before));
    $("by").addEventListener("input", () => { state.by = $("by").value; changed(true); });
    $("group-aggregate").addEventListener("change", () => { state.aggregate = $("group-aggregate").value; changed(false); });
    $("group-times").addEventListener("change", () => { state.times = $("group-times").checked; changed(false); });
  }

  // For another stream: what it can be asked.
  offer(stream) {
    const none = numberColumns(stream).length === 0;
    const offered = isSeries(stream) ? groupsOfSeries(state.series) : AGGREGATES.filter(([name]) => !none || name === "count" || name === "rate");
    this.#offered = offered;
    if (!offered.some(([name]) => name === state.aggregate)) [[state.aggregate]] = offered;
    $("by").placeholder = isSeries(stream) ? "an attribute, or several with commas" : "a column, or several with commas";
    $("group-aggregate").replaceChildren(...offered.map(([name, text]) => element("option", { value: name }, text)));
    $("group-aggregate").value = state.aggregate;
    if ($("by").value !== state.by) $("by").value = state.by;
    $("group-times").checked = state.times;
    $("group-times").disabled = !state.unit.hasClock;
  }

  // The question, or null: there are no keys.
  question(common) {
    const by = keysOf(state.by);
    return by.length ? { ...common, by, aggregate: state.aggregate, span: state.span, times: state.times && state.unit.hasClock, series: seriesChoice() } : null;
  }

  static async ask(signal, stream, question) {
    if (isSeries(stream)) return askOfSeries(signal, stream, question);
    const { decay, now, confidence, source, where, of, by, aggregate, times, span } = question;
    const common = { aggregate, confidence, ...(now !== null && { now }), ...(of && restricted({ of }, aggregate)) };
    const queries = [{ ...common, by, groups: LISTED, ...(decay && { decay }), ...(where && { where }) }];
    const width = bucketOf(state.unit, span);
    if (times) {
      const recent = `age < ${state.unit.toStream(span)}`;
      queries.push({ ...common, by: [...by, `bucket(time, '${width}s')`], groups: 1000, order: "key", where: where ? `(${where}) and ${recent}` : recent, ...(stream.decay ? {} : { decay: "none" }) });
    }
    const { answers } = await askQueries(stream, queries, source, signal);
    const bucket = answers[1]?.by.at(-1);
    return { groups: answers[0], times: answers[1]?.groups.map((each) => ({ ...each, at: each.by[bucket] })) ?? null, width };
  }

  show({ groups: answer, times, width }, { aggregate, of }) {
    const { groups, total_groups: total, unseen_at_most: unseen, by, kinds } = answer;
    const unit = state.unit;
    const text = (name, value) => keyName(value, kinds[by.indexOf(name)], unit);
    const longest = Math.max(...groups.map(({ estimate }) => Math.abs(estimate.upper ?? estimate.value ?? 0)), 1e-300);
    const [, label] = [...this.#offered, ...AGGREGATES].find(([name]) => name === aggregate) ?? [aggregate, aggregate];
    const ofSeries = isSeries(state.stream);
    const title = of && aggregate !== "count" && aggregate !== "rate" ? `${label} of ${of}` : label;
    const scale = scaleOf(groups.map(({ estimate, small }) => ({ ...estimate, small })), aggregate);
    const drawn = ({ estimate }) => (estimate.value === null ? "" : scale.zero ? bar(estimate, longest) : dot(estimate, scale.low, scale.high));
    this.table = tableOf($("groups"), { caption: "Groups", cls: "hitters groups", data: ({ small, by: key, estimate }) => ({ group: JSON.stringify(key), small, value: estimate.value }) });
    this.table.show([
      ...by.map((name) => ({ name, cls: "label", value: (row) => row.by[name], show: (row) => labelText(text(name, row.by[name])) })),
      { name: "", cls: "bar-cell", hidden: true, show: drawn },
      { name: title, cls: "number", value: ({ estimate }) => estimate.value, show: ({ estimate }) => told(estimate), csv: estimateParts(title, ({ estimate }) => estimate) },
      { name: "Interval", cls: "number interval", show: ({ estimate }) => bounds(estimate) },
      { name: ofSeries ? "Devices" : "Rows", cls: "number", value: ({ rows }) => rows, show: ({ rows }) => number(rows) },
      { name: "small", hidden: true, csv: { small: ({ small }) => small }, show: () => "" },
    ], groups, { most: LISTED });
    const small = groups.filter((each) => each.small).length;
    $("groups-says").textContent = [
      `${number(groups.length)} of ${number(total)} groups, the largest first.`,
      small ? `${small === groups.length ? "All" : number(small)} ${small === 1 ? "is" : "are"} pale: fewer than 20 ${ofSeries ? "devices" : "rows"} are stored, so read the interval and not the value.` : "",
      unseen === 0 ? "" : unseen === null ? "Groups without a stored row are not bounded." : `A group without a stored row has ${ofSeries ? `at most ${number(unseen)} devices` : `a decayed count of at most ${number(unseen)}`}.`,
      "All intervals hold together.",
      ofSeries && state.times && total > MOST_OVER_TIME ? `Groups over time are computed for up to ${MOST_OVER_TIME} groups: narrow the filter.` : "",
    ].filter(Boolean).join(" ");
    this.#showTimes(times, groups.slice(0, DRAWN), { by, text, title, width, aggregate });
  }

  // A small chart for each group, on one scale.
  #showTimes(times, groups, { by, text, title, width, aggregate }) {
    const host = $("group-multiples");
    host.hidden = !times || !groups.length;
    if (host.hidden) { host.replaceChildren(); $("group-times-says").textContent = ""; return; }
    const keyed = (row) => JSON.stringify(by.map((name) => row[name]));
    const series = new Map(groups.map((each) => [keyed(each.by), []]));
    for (const each of times) series.get(keyed(each.by))?.push({ ...each.estimate, at: each.at, small: each.small });
    const all = [...series.values()].flat().filter(({ value }) => value !== null);
    const starts = all.map(({ at }) => at);
    const step = state.unit.toStream(width);
    const [first, last] = [Math.min(...starts), Math.max(...starts) + step];
    const { low, high, zero } = scaleOf(all, aggregate);
    const unit = state.unit;
    $("group-times-says").textContent = all.length
      ? `Each ${unit.duration(width)} from ${unit.time(unit.fromStream(first))} to ${unit.time(unit.fromStream(last))}, without decay. One scale, ${number(low)} to ${number(high)}.`
      : "No row in this span.";
    host.replaceChildren(...groups.map((each) => {
      const points = series.get(keyed(each.by));
      const name = by.map((key) => text(key, each.by[key])).join(", ");
      const shown = points.map(({ value }) => number(value));
      return element("figure", { class: "multiple" }, element("figcaption", {}, labelText(name)),
        multiple(points, { first, last, step, low, high, zero, label: `${title}, ${name}: ${shown.join(", ")}` }));
    }));
  }
}

// The same of series. Over time, each bar is the window that ends with it.
async function askOfSeries(signal, stream, { decay, now, confidence, source, where, by, aggregate, times, span, series }) {
  const { unit } = state;
  const scaled = (each) => (aggregate === "increase_rate" ? { ...each, estimate: perSecond(each.estimate, unit) } : each);
  const asked = (aged, at) => ({ ...seriesQuery(aggregate, aged, series), by, groups: LISTED, confidence, ...at, ...(where && { where }) });
  const { answers: [found] } = await askQueries(stream, [asked(decay, now !== null && { now })], source, signal);
  const groups = { ...found, groups: found.groups.map(scaled) };
  if (!times || found.total_groups > MOST_OVER_TIME) return { groups, times: null, width: null };
  const width = bucketOf(unit, span);
  const ends = timesOf(unit, latest(), span, Math.max(1, Math.round(span / width)));
  ends.start += ends.step;
  const { answers: [{ points }] } = await askQueries(stream, [asked({ kind: "window", width: ends.step }, { times: ends })], source, signal);
  const bars = points.flatMap((point) => point.groups.map((each) => ({ ...scaled(each), at: point.now - ends.step })));
  return { groups, times: bars, width: unit.fromStream(ends.step) };
}

const SIZE = { width: 200, height: 64 };

function multiple(points, { first, last, step, low, high, zero, label }) {
  const { width, height } = SIZE;
  const x = (at) => (width * (at - first)) / Math.max(last - first, 1);
  const y = (value) => height - 3 - ((height - 6) * (Math.min(high, Math.max(low, value)) - low)) / Math.max(high - low, 1e-300);
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("line", { class: "rail", x1: 0, x2: width, y1: height - 1, y2: height - 1 }));
  const wide = x(first + step);
  for (const { at, value, lower, upper, small } of points) {
    if (value === null) continue;
    const [left, middle, cls] = [x(at) + wide * 0.12, x(at) + wide / 2, small ? "share small" : "share"];
    if (zero) drawn.append(svg("rect", { class: cls, x: left, width: wide * 0.76, y: y(value), height: Math.max(y(0) - y(value), 1) }));
    if (lower !== upper) drawn.append(svg("line", { class: small ? "whisker small" : "whisker", x1: middle, x2: middle, y1: y(upper ?? high), y2: y(lower ?? low) }));
    if (!zero) drawn.append(svg("rect", { class: `${cls} mark`, x: left, width: wide * 0.76, y: y(value) - 1.5, height: 3 }));
  }
  return drawn;
}

// One scale for all. Counts and sums begin at zero, means do not. Small groups, and intervals with a caveat, widen it by
// their values alone.
function scaleOf(estimates, aggregate) {
  const known = estimates.filter(({ value }) => value !== null);
  const ends = known.flatMap(({ value, lower, upper, small, caveats }) => (small || caveats?.length ? [value] : [lower ?? value, upper ?? value]));
  const zero = !["mean", "median", "time_average"].includes(aggregate) && ends.every((each) => each >= 0);
  const [least, most] = [Math.min(...ends), Math.max(...ends)];
  const margin = 0.06 * (most - least) || Math.abs(most) * 0.1 || 1;
  return zero ? { zero, low: 0, high: most || 1 } : { zero, low: least - margin, high: most + margin };
}

// Seconds that divide a span into about as many bars as one reads at a glance.
function bucketOf(unit, span) {
  const lengths = unit.niceLengths.filter((each) => each >= Math.max(unit.scale, 1));
  return lengths.find((each) => span / each <= BUCKETS) ?? lengths.at(-1);
}

function keyName(value, kind, unit) {
  if (value === null) return "null";
  if (kind === "time") return unit.time(unit.fromStream(value));
  return String(value);
}

const panel = new Groups((typed) => { remember(); askNow(typed ? TYPING_MS : 0); });

const groups = new Newest(
  (signal, stream, query) => Groups.ask(signal, stream, query),
  (answer, _ms, _stream, query) => {
    note("groups-panel", "");
    $("by-error").textContent = "";
    panel.show(answer, query);
    drawnNow("groups-panel");
  },
  (error) => {
    if (isShown(error)) return;
    $("by-error").textContent = reasonOf(error);
    if ($("groups-panel").dataset.of) showOld("groups-panel", "not answered");
  },
  () => { if ($("groups-panel").dataset.of) showOld("groups-panel", "asking"); },
);

function askNow(ms = 0) {
  if ($("groups-panel").hidden || !mayAsk()) { groups.cancel(); return; }
  if (isSeries(state.stream)) panel.offer(state.stream);
  const { confidence, source } = state;
  const query = panel.question({ decay: serviceDecay(), now: askedNow(), confidence, source, ...chosenRows() });
  $("groups-found").hidden = query === null;
  if (query) { groups.put([state.stream, query], ms); return; }
  groups.cancel();
  $("by-error").textContent = "";
  note("groups-panel", "");
  delete $("groups-panel").dataset.of;
}

register({
  id: "groups-panel",
  present(stream) {
    $("groups-panel").hidden = !hasFilter(stream);
    if (hasFilter(stream)) panel.offer(stream);
  },
  now: askNow,
  cancel: () => groups.cancel(),
});
takings($("groups-panel"), "the groups", {
  asked: drawnIn("groups-panel", () => groups.asked), table: drawnIn("groups-panel", (of) => ({ name: `${of}-groups`, ...panel.table.csv() })),
});
