// Several streams in one view: the same aggregate of each, at the same times and under the same decay.

import { remember } from "./address.js";
import { toService } from "./decay.js";
import { register, showOld } from "./hub.js";
import { Newest, reasonOf, request, streamPath } from "./http.js";
import { onOthers, showStreams } from "./list.js";
import { element } from "./nodes.js";
import { ChartPanel, line } from "./overtime.js";
import { drawnIn, drawnNow, note, undrawn } from "./panel.js";
import { bounds, dot, estimateParts, labelText, tableOf } from "./panels.js";
import { askQueries, hasFixedDecay, hasPast, perSecond, questionsOf } from "./questions.js";
import { $, aboutOf, latest, mayAsk, MOST_OTHERS, seriesChoice, shownNow, state, timesOf } from "./state.js";
import { takings } from "./taking.js";
import { told, Unit } from "./units.js";

// What can be shown: its label, and the aggregates for it, of which a stream has one at most.
const SHOWN = {
  count: ["Decayed count", ["count", "key_total", "series_count"]],
  mean: ["Mean", ["mean", "time_average"]],
  median: ["Median", ["median"]],
  rate: ["Rate per second", ["rate", "increase_rate"]],
};
const RATES = ["rate", "increase_rate"];

const chart = new ChartPanel("several", { fromZero: false });
const states = new Map(); // stream@digest -> promise of its state

// Parameters come with the state of a stream, which its digest names.
function stateOf(name) {
  const listed = state.streams.find((each) => each.name === name);
  if (!listed) throw new Error("this stream is gone");
  const held = `${name}@${listed.digest}`;
  if (!states.has(held)) {
    states.set(held, request(streamPath(name, "?sources=0")).catch((error) => { states.delete(held); throw error; }));
  }
  return states.get(held);
}

// {name, now: estimate, points: [{at, estimate}]}, or {name, why}: there is no result.
async function askOne(name, { shown, decay, unit: writtenFor, now, span, end, confidence, validity }, signal) {
  try {
    const stream = await stateOf(name);
    const unit = new Unit(stream.params.time_unit);
    if (unit.hasClock !== writtenFor.hasClock || (!unit.hasClock && unit.name !== writtenFor.name)) throw new Error(`its times are in ${unit.name}`);
    const aggregate = SHOWN[shown][1].find((each) => each in questionsOf(stream));
    if (!aggregate) throw new Error("it does not answer this");
    const holds = aggregate === "time_average" ? { validity: Math.max(1, unit.toStream(validity)) } : {};
    const fixed = hasFixedDecay(stream);
    const common = { aggregate, confidence, ...holds, ...(fixed ? {} : { decay: toService(decay, unit, writtenFor) }) };
    const queries = [{ ...common, ...(now === null ? {} : { now: unit.toStream(now) }) }];
    if (!fixed && hasPast(stream)) queries.push({ ...common, times: timesOf(unit, end, span) });
    const { answers } = await askQueries(stream, queries, "", signal);
    const scaled = (estimate) => (RATES.includes(aggregate) ? perSecond(estimate, unit) : estimate);
    return {
      name, about: aboutOf(stream), now: scaled(answers[0].estimate),
      points: (answers[1]?.points ?? []).map((point) => ({ at: unit.fromStream(point.now), estimate: scaled(point.estimate) })),
    };
  } catch (error) {
    if (error.name === "AbortError" || error.status === 401 || error.status === 429) throw error;
    return { name, why: error.status || error instanceof TypeError ? reasonOf(error) : error.message };
  }
}

const NOTHING = { value: null, lower: null, upper: null, exact: false };

// One estimate for each time, of the nearest point within half a step.
function aligned(points, times) {
  const step = (times.at(-1) - times[0]) / Math.max(times.length - 1, 1);
  let place = 0;
  return times.map((time) => {
    while (place + 1 < points.length && Math.abs(points[place + 1].at - time) <= Math.abs(points[place].at - time)) place += 1;
    const point = points[place];
    return point && Math.abs(point.at - time) <= step / 2 ? point.estimate : NOTHING;
  });
}

const several = new Newest(
  (signal, names, query) => Promise.all(names.map((name) => askOne(name, query, signal))),
  (found, _ms, _names, query) => {
    show(found, query);
    drawnNow("several-panel");
  },
  (error) => undrawn("several-panel", error),
  () => showOld("several-panel", "asking"),
);

let table = null;

function show(found, { shown }) {
  const colour = (name) => `--series-${found.findIndex((each) => each.name === name)}`;
  const drawn = found.filter(({ points }) => points?.length);
  if (drawn.length) {
    const stamps = drawn[0].points.map(({ at }) => state.unit.toStream(at));
    const times = stamps.map((stamp) => state.unit.fromStream(stamp));
    chart.show(stamps, drawn.map(({ name, points }) => ({ ...line(name, aligned(points, times), true), colour: colour(name) })));
  } else note("several-panel", "None of these streams has a past to draw.");
  const known = found.filter(({ now }) => now && now.value !== null).flatMap(({ now }) => [now.lower ?? now.value, now.upper ?? now.value]);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const remove = ({ name }) => {
    const button = element("button", { type: "button", class: "take", "aria-label": `Remove ${name}`, "data-focus": name }, "Remove");
    button.addEventListener("click", () => turn(name));
    return name === state.stream.name ? "" : button;
  };
  const swatch = ({ name }) => {
    const made = element("span", { class: "swatch" });
    made.style.setProperty("--colour", `var(${colour(name)})`);
    return element("span", { class: "swatched" }, made, labelText(name));
  };
  const valueOf = ({ now, about, why }) => (why ? element("span", { class: "hint" }, why) : `${told(now)}${["mean", "median"].includes(shown) && about.unit ? ` ${about.unit}` : ""}`);
  table = tableOf($("several"), { caption: "Several streams", cls: "hitters", data: ({ name, now }) => ({ several: name, value: now?.value ?? "" }) });
  table.show([
    { name: "Stream", cls: "label", value: ({ name }) => name, show: swatch },
    { name: "", cls: "bar-cell", hidden: true, show: ({ now }) => (now && now.value !== null ? dot(now, low, high) : "") },
    { name: SHOWN[shown][0], cls: "number", value: ({ now }) => now?.value ?? null, show: valueOf, csv: estimateParts(SHOWN[shown][0], ({ now }) => now ?? NOTHING) },
    { name: "Interval", cls: "number interval wide", show: ({ now }) => (now ? bounds(now) : "") },
    { name: "Remove", cls: "number", hidden: true, show: remove },
  ], found);
}

function askNow(ms = 0) {
  if ($("several-panel").hidden || !mayAsk()) { several.cancel(); return; }
  const { decay, unit, span, confidence, compared } = state;
  const now = state.mode === "live" ? null : shownNow();
  const query = { shown: compared, decay: { ...decay }, unit, now, span, end: latest(), confidence, validity: unit.fromStream(seriesChoice().validity) };
  several.put([[state.stream.name, ...state.others], query], ms);
}

// Adds a stream to the view, or removes it.
function turn(name) {
  const { others } = state;
  state.others = others.includes(name) ? others.filter((each) => each !== name) : [...others, name].slice(-MOST_OTHERS);
  remember();
  showStreams();
  present();
  if (state.view === "answers") askNow();
}
onOthers(turn);

function present() {
  state.others = state.others.filter((each) => each !== state.stream.name);
  $("several-panel").hidden = state.others.length === 0 || Boolean(state.stream.decay);
  if (!(state.compared in SHOWN)) state.compared = "count";
  $("several-shown").value = state.compared;
  $("several-title").textContent = `${SHOWN[state.compared][0]} of ${state.others.length + 1} streams`;
}

$("several-shown").replaceChildren(...Object.entries(SHOWN).map(([value, [label]]) => element("option", { value }, label)));
$("several-shown").addEventListener("change", () => { state.compared = $("several-shown").value; remember(); present(); askNow(); });

register({ id: "several-panel", present, now: askNow, cancel: () => several.cancel() });
takings($("several-panel"), "several streams", { table: drawnIn("several-panel", (of) => ({ name: `${of}-several`, ...table.csv() })) });
