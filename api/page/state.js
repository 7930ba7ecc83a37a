// What is chosen, and what follows from it alone. Times and lengths are in the page's reckoning.

import { KINDS, toService } from "./decay.js";
import { oldestAge } from "./questions.js";
import { Unit } from "./units.js";

export const WINDOW_KINDS = ["window", "expression"];
const SERIES_POINTS = 96;
export const MOST_OTHERS = 5; // streams next to the chosen one

export const $ = (id) => document.getElementById(id);
export const radio = (name) => document.querySelector(`input[name="${name}"]:checked`)?.value;
export const check = (name, value) => {
  const found = document.querySelector(`input[name="${name}"][value="${value}"]`);
  if (found) found.checked = true;
};

export const state = {
  streams: [],
  stream: null, // the answer of GET /v1/streams/{name}
  unit: new Unit("s"),
  span: 3600, // of the charts, in the page's reckoning
  fitted: 3600,
  axis: { youngest: 1, oldest: 86400 },
  decay: { kind: "exponential", halfLife: 300, width: 900, scale: 60, exponent: 1.5, text: "" },
  touched: false, // the decay was chosen by hand: another stream keeps it
  wished: { kind: "exponential", mode: "newest" }, // by hand; a stream may not have them
  mode: "newest",
  chosen: 0,
  confidence: 0.95,
  phi: 0.02,
  key: "", // what stands in the field
  decayFault: null, // why what is written of the decay is none
  lengthTyped: null, // in the field, where that is no length
  nowFault: null, // why what is written is no time
  source: "", // whose rows the answers are of; "": of all together
  sourceFault: null, // why there is none such
  where: "", // the condition that rows meet; "": all
  of: "", // the column that values are of, where a stream has several
  by: "", // the keys of groups, with commas between; "": none
  aggregate: "count", // of groups
  times: false, // groups over time
  find: "",
  view: "answers", // of the stream: answers, alerts, lists or sources
  alert: null, // the name of the one that is looked at
  series: { kind: "counter", validity: 300, silence: 3600, states: "0, 1" }, // of series: lengths as the page reckons
  others: [], // names of streams that are shown next to the chosen one
  compared: "count", // the aggregate that several streams show
  figures: [], // that are shown
  alerts: [], // of all streams, as the service lists them
  caller: null, // what the key may do
  away: false, // the aggregator did not answer
};

// The latest that a stream was told: of an observation, or of a clock that ran on.
export function newestData(stream) {
  const times = [stream?.newest, stream?.clock].filter((each) => each !== null && each !== undefined);
  return times.length ? Math.max(...times) : null;
}

// The right end of the charts.
export function latest() {
  const newest = newestData(state.stream);
  if (state.mode !== "live" && newest !== null) return state.unit.fromStream(newest);
  if (state.unit.hasClock) return state.unit.clock();
  return newest === null ? state.chosen : state.unit.fromStream(newest);
}

// The time asked about, in the stream's unit; null for the service's clock.
export function askedNow() {
  if (state.mode === "live") return null;
  return state.unit.toStream(state.mode === "newest" ? latest() : state.chosen);
}

export const shownNow = () => (state.mode === "chosen" ? state.chosen : latest());

export function timesOf(unit, end, span, points = SERIES_POINTS) {
  const stop = unit.toStream(end);
  const step = Math.max(1, Math.round(span / unit.scale / points));
  return { start: stop - step * points, stop, step };
}

// Nothing is asked while something is written that cannot be read: the answer would be to another question.
export const mayAsk = () => state.decayFault === null && state.nowFault === null && state.sourceFault === null;

// What the values of a stream measure. A derived stream measures the same as the stream that feeds it.
export function aboutOf(stream) {
  const listed = (name) => state.streams.find((each) => each.name === name);
  const from = listed(stream.derived_from ?? listed(stream.name)?.derived_from);
  return { unit: stream.unit ?? from?.unit ?? "", description: stream.description ?? from?.description ?? "" };
}

// What chooses rows and values, for any question to rows.
export const chosenRows = () => ({ where: state.where.trim(), of: state.of });

// What the answers are of, in words.
export const subject = () => (state.source ? `${state.stream?.name}, source ${state.source}` : state.stream?.name);

// The choices for series, in the stream's unit.
export function seriesChoice() {
  const { kind, validity, silence, states } = state.series;
  const whole = (length) => Math.max(1, state.unit.toStream(length));
  return { kind, states, validity: whole(validity), silence: whole(silence) };
}

export const fixedDecay = () => state.stream.decay;
export const serviceDecay = () => (fixedDecay() ? null : toService(state.decay, state.unit));

// A sketch that was built for windows of some width answers for decays that end within it.
export const kindsOf = (stream) => (oldestAge(stream) ? WINDOW_KINDS : KINDS);
