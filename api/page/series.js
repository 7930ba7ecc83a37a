// Series: the rate of counters, the mean of gauges, or the time in each state, and which series are silent.

import { remember } from "./address.js";
import { ask, register, showOld, TYPING_MS } from "./hub.js";
import { Newest } from "./http.js";
import { element, svg } from "./nodes.js";
import { ChartPanel, line, timesAsked } from "./overtime.js";
import { drawnIn, drawnNow, note, undrawn } from "./panel.js";
import { estimateParts } from "./panels.js";
import { activityQueries, askQueries, isSeries, perSecond, restricted, seriesArguments } from "./questions.js";
import { $, aboutOf, chosenRows, latest, seriesChoice, serviceDecay, state, subject, timesOf } from "./state.js";
import { takings } from "./taking.js";
import { percent } from "./units.js";

const BUCKETS = 48; // of the state timeline
const MOST_STATES = 8;
const OTHER = "other";
const USUAL = { validity: 3, silence: 20 }; // times the usual interval between two rows
const TITLES = { counter: "Rate over time", gauge: "Time-weighted mean over time", state: "Time in each state" };
const CHARTED = { counter: "increase_rate", gauge: "time_average" };

const chart = new ChartPanel("readings", { fromZero: false });
const activity = new ChartPanel("activity", { fromZero: true });

// Lengths that fit how often rows come, for a stream that is new to the page.
export async function fitSeries(stream, unit, signal) {
  if (!isSeries(stream)) return;
  const kind = stream.ingest?.map?.find((each) => each.kind)?.kind;
  if (kind && !state.series.given) state.series.kind = kind;
  if (state.series.given || stream.rows === 0) { delete state.series.given; return; }
  const query = { aggregate: "interval_quantile", q: 0.5, decay: { kind: "none" }, ...(stream.newest !== null && { now: stream.newest }) };
  const { answers } = await askQueries(stream, [query], "", signal);
  const usual = unit.fromStream(answers[0].estimate.value ?? unit.toStream(60));
  for (const [name, times] of Object.entries(USUAL)) state.series[name] = Math.max(unit.scale, Number((times * usual).toPrecision(2)));
}

// ------------------------------------------------------------------------------------------ over time

const values = new Newest(
  (signal, stream, { aggregate, ...query }, source) => askQueries(stream, [{ aggregate, ...query }], source, signal),
  ({ answers: [{ aggregate, points }] }) => {
    const estimates = points.map(({ estimate }) => (aggregate === "increase_rate" ? perSecond(estimate, state.unit) : estimate));
    chart.show(points.map(({ now }) => now), [line(aggregate === "increase_rate" ? "rate" : "mean", estimates, true)]);
  },
  (error) => undrawn("readings-panel", error),
  () => showOld("readings-panel", "asking"),
);

const counts = new Newest(
  (signal, stream, queries, source) => askQueries(stream, queries, source, signal),
  ({ answers }) => {
    const [active, silent] = answers.map(({ points }) => points.map(({ estimate }) => estimate));
    activity.show(answers[0].points.map(({ now }) => now), [line("active", active, true), line("silent", silent, false)], { legend: "active (bold), silent" });
  },
  (error) => undrawn("activity-panel", error),
  () => showOld("activity-panel", "asking"),
);

function overTime(ms = 0) {
  const { stream, confidence, source } = state;
  if (!isSeries(stream)) return;
  const choice = seriesChoice();
  const common = { confidence, times: timesAsked() };
  const queries = activityQueries(choice).map((query) => ({ ...query, ...common, ...restricted(chosenRows(), query.aggregate) }));
  counts.put([stream, queries, source], ms);
  const aggregate = CHARTED[choice.kind];
  if (!aggregate) { values.cancel(); askStates(ms); return; }
  shares.cancel();
  const query = { aggregate, decay: serviceDecay(), ...common, ...seriesArguments(aggregate, choice), ...restricted(chosenRows(), aggregate) };
  values.put([stream, query, source], ms);
}

// -------------------------------------------------------------------------------------- state timeline

// [{name, predicate}], one for each value that is typed, and one for all others. A text that is no list of numbers: null.
function statesOf(text) {
  const typed = [...new Set(text.split(/[\s,;]+/).filter(Boolean))];
  if (!typed.length || typed.length > MOST_STATES || typed.some((each) => !Number.isFinite(Number(each)))) return null;
  const predicates = typed.map((each) => `v == ${Number(each)}`);
  return [...typed.map((name, i) => ({ name, predicate: predicates[i] })), { name: OTHER, predicate: `not (${predicates.join(" or ")})` }];
}

let table = null; // of the timeline, as a file

const shares = new Newest(
  (signal, stream, states, query, source) => askQueries(stream, states.map(({ predicate }) => ({ ...query, predicate })), source, signal),
  ({ answers }, _ms, _stream, states, { times }) => {
    note("readings-panel", "");
    showStates(states, answers.map(({ points }) => points), times.step);
    drawnNow("readings-panel");
  },
  (error) => undrawn("readings-panel", error),
  () => showOld("readings-panel", "asking"),
);

function askStates(ms) {
  const { stream, unit, span, confidence, source } = state;
  const states = statesOf(state.series.states);
  $("series-states").setAttribute("aria-invalid", states === null);
  $("series-error").textContent = states === null ? `States are numbers with commas between, such as 0, 1. There may be ${MOST_STATES}.` : "";
  if (states === null) { shares.cancel(); return; }
  const times = timesOf(unit, latest(), span, BUCKETS);
  times.start += times.step; // the first bucket ends one step after the start
  const choice = seriesChoice();
  const query = { aggregate: "time_in_state", decay: { kind: "window", width: times.step }, times, confidence,
    ...seriesArguments("time_in_state", choice), ...restricted(chosenRows(), "time_in_state") };
  shares.put([stream, states, query, source], ms);
}

const SIZE = { width: 960, height: 30 };

// One state: a bar for its share in each bucket, with the interval.
function strip(name, points) {
  const { width, height } = SIZE;
  const wide = width / points.length;
  const y = (share) => height - (height - 2) * Math.min(1, Math.max(0, share));
  const known = points.filter(({ estimate }) => estimate.value !== null);
  const mean = known.reduce((sum, { estimate }) => sum + estimate.value, 0) / Math.max(known.length, 1);
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img",
    "aria-label": known.length ? `State ${name}: between ${percent(Math.min(...known.map(({ estimate }) => estimate.value)))} and ${percent(Math.max(...known.map(({ estimate }) => estimate.value)))} of the time` : `State ${name}: not known` });
  points.forEach(({ now, estimate }, i) => {
    const at = state.unit.time(state.unit.fromStream(now));
    const slot = svg("rect", { class: "slot", x: i * wide, y: 0, width: wide, height });
    const { value, lower, upper, exact } = estimate;
    const spread = exact ? "exact" : `${percent(lower ?? 0)} – ${percent(upper ?? 1)}`;
    slot.append(svg("title", {}));
    slot.firstChild.textContent = value === null ? `up to ${at}: no valid value` : `up to ${at}: ${percent(value)} (${spread})`;
    if (value !== null) drawn.append(svg("rect", { class: "share", x: i * wide + wide * 0.08, width: wide * 0.84, y: y(value), height: height - y(value) }));
    if (value !== null && !exact) drawn.append(svg("line", { class: "whisker", x1: (i + 0.5) * wide, x2: (i + 0.5) * wide, y1: y(upper ?? 1), y2: y(lower ?? 0) }));
    drawn.append(slot);
  });
  return { drawn, mean, known: known.length };
}

function showStates(states, all, step) {
  const { unit } = state;
  const shown = states.map(({ name }, i) => ({ name, points: all[i] })).filter(({ name, points }) => name !== OTHER || points.some(({ estimate }) => estimate.value > 0));
  const time = (stamp) => unit.time(unit.fromStream(stamp));
  const [first, last] = [all[0][0].now - step, all[0].at(-1).now];
  $("states").replaceChildren(
    ...shown.map(({ name, points }) => {
      const { drawn, mean, known } = strip(name, points);
      return element("figure", { class: "state", "data-state": name },
        element("figcaption", {}, name), drawn, element("span", { class: "hint" }, known ? percent(mean) : "–"));
    }),
    element("p", { class: "hint state-axis" }, element("span", {}, time(first)), element("span", {}, `each bar: ${unit.duration(unit.fromStream(step))}`), element("span", {}, time(last))),
  );
  table = {
    name: `${subject()}-states`, columns: ["state", "until", "at", ...Object.keys(estimateParts("share"))],
    rows: states.flatMap(({ name }, i) => all[i].map(({ now, estimate }) => [name, now, time(now), ...Object.values(estimateParts("share", () => estimate)).map((part) => part())])),
  };
}

// -------------------------------------------------------------------------------------------- controls

$("series-kind").addEventListener("change", () => { state.series.kind = $("series-kind").value; showKind(); ask(); });
$("series-states").addEventListener("input", () => { state.series.states = $("series-states").value; remember(); overTime(TYPING_MS); });
for (const name of ["validity", "silence"]) {
  const input = $(`series-${name}`);
  input.addEventListener("input", () => {
    const length = state.unit.parseDuration(input.value);
    input.setAttribute("aria-invalid", length === null);
    $("series-error").textContent = length === null ? state.unit.faultOfDuration(input.value) : "";
    if (length === null) return;
    state.series[name] = length;
    ask(TYPING_MS);
  });
}

function showKind() {
  const { kind } = state.series;
  const { unit } = aboutOf(state.stream);
  $("series-kind").value = kind;
  const measured = kind === "state" || !unit ? "" : kind === "counter" ? `, ${unit} per second` : `, ${unit}`;
  $("readings-title").textContent = TITLES[kind] + (measured || (kind === "counter" && state.unit.hasClock ? ", per second" : ""));
  $("series-validity-field").hidden = kind === "counter";
  $("series-states-field").hidden = kind !== "state";
  $("states").hidden = kind !== "state";
  $("readings-panel").classList.toggle("of-states", kind === "state");
  $("readings-panel").dataset.kind = kind;
}

register({
  id: "readings-panel",
  present(stream, unit) {
    $("readings-panel").hidden = $("activity-panel").hidden = !isSeries(stream);
    if (!isSeries(stream)) return;
    for (const name of ["validity", "silence"]) {
      if (document.activeElement !== $(`series-${name}`)) $(`series-${name}`).value = unit.duration(state.series[name]);
    }
    if (document.activeElement !== $("series-states")) $("series-states").value = state.series.states;
    showKind();
  },
  overTime,
  cancel() { for (const each of [values, counts, shares]) each.cancel(); },
});
register({ id: "activity-panel" });
takings($("readings-panel"), "the series", {
  asked: drawnIn("readings-panel", () => (state.series.kind === "state" ? shares : values).asked),
  table: drawnIn("readings-panel", () => (state.series.kind === "state" ? table : chart.file)),
});
activity.offerFiles(() => counts.asked);
