// The figures of the chosen time, the most frequent values, and the state of the query in the title.

import { hasColumns } from "./columns.js";
import { register, showStale } from "./hub.js";
import { Newest, reasonOf } from "./http.js";
import { showKeysNow } from "./keys.js";
import { clockTime, isShown } from "./panel.js";
import { estimateParts, showFigures, showHitters, tableOf } from "./panels.js";
import { askFigures, familyOf, hasLabels, isSeries, questionsOf } from "./questions.js";
import { $, aboutOf, askedNow, chosenRows, seriesChoice, serviceDecay, state, subject } from "./state.js";
import { takings } from "./taking.js";
import { showNow } from "./time.js";
import { told } from "./units.js";

const ANNOUNCE_MS = 1000;
const OF_ROWS = "Every distinct reading has a weight: 1 while it is new, less as it ages. A decayed count is the sum of these weights.";
const OF_SERIES = "Every moment has a weight: 1 while it is new, less as it ages. An increase and a mean weigh the time since each reading by it.";
const IN_UNIT = /^(mean|max|min|p\d+|increase|time_average)$/; // figures in the unit of the values

let announcing = 0;

// Read aloud once the numbers rest: a moving clock would never stop talking.
function announce(shown) {
  clearTimeout(announcing);
  if (state.mode === "live") return;
  const text = shown.map(({ label, estimate }) => `${label} ${told(estimate)}`).join(", ");
  announcing = setTimeout(() => { $("announcement").textContent = text; }, ANNOUNCE_MS);
}

// Numbers of another stream would stand under the name of this one.
function clear() {
  for (const id of ["hitters", "keys", "skew"]) $(`${id}-panel`).hidden = true;
  $("figures").replaceChildren();
  state.figures = [];
  for (const each of ["shape", "of", "at"]) delete $("figures").dataset[each];
}

const clearOthers = () => { if ($("figures").dataset.of !== subject()) clear(); };

export function failed(error) {
  if (isShown(error)) return;
  $("ask-error").textContent = reasonOf(error);
  clearOthers();
  const { at } = $("figures").dataset;
  showStale(at ? `not answered · shown since ${at}` : "not answered");
}

function unitOf(figure, unit) {
  if (figure === "increase_rate") return state.unit.hasClock ? (unit ? `${unit}/s` : "per second") : unit;
  return IN_UNIT.test(figure) ? unit : "";
}

function show(answer, ms, stream, query) {
  const decay = JSON.stringify(query.decay ?? stream.decay);
  $("ask-error").textContent = "";
  showStale("");
  Object.assign($("figures").dataset, { of: subject(), at: clockTime() });
  const { unit } = hasColumns(stream) ? {} : aboutOf(stream); // a column may have another unit
  showFigures($("figures"), answer.figures.map((each) => ({ ...each, unit: unitOf(each.id, unit) })), { now: answer.now, decay });
  state.figures = answer.figures;
  $("hitters-panel").hidden = answer.hitters === null;
  if (answer.hitters) showHitters($("hitters"), answer.hitters, query.phi);
  if (familyOf(stream).keys) showKeysNow(answer, query.phi);
  $("status").textContent = `answered in ${Math.max(1, Math.round(ms))} ms`;
  showNow(state.unit.fromStream(answer.now));
  announce(answer.figures);
}

const figures = new Newest(
  (signal, stream, query) => askFigures(stream, query, signal), show, failed, () => showStale("asking …"));

register({
  present(stream) {
    $("decayed-says").hidden = Boolean(stream.decay) || !("count" in questionsOf(stream) || isSeries(stream));
    $("decayed-says").textContent = isSeries(stream) ? OF_SERIES : OF_ROWS;
    $("hitters-panel").hidden = !familyOf(stream).hitters;
    $("hitters-title").textContent = hasLabels(stream) ? "Most frequent labels" : "Heavy hitters";
  },
  now(ms) {
    const { stream, confidence, phi, source } = state;
    const { unit } = state;
    figures.put([stream, { decay: serviceDecay(), now: askedNow(), confidence, phi, source, rows: chosenRows(), series: seriesChoice(), unit }], ms);
  },
  cancel: () => figures.cancel(),
  notAsked: clearOthers,
});

takings($("time-panel"), "the figures", {
  asked: () => figures.asked,
  table: () => ({ name: `${$("figures").dataset.of ?? subject()}-figures`, columns: ["figure", ...Object.keys(estimateParts("value"))],
    rows: state.figures.map(({ label, estimate }) => [label, ...Object.values(estimateParts("value", () => estimate)).map((part) => part())]) }),
});
for (const id of ["hitters", "keys"]) {
  takings($(`${id}-panel`), $(`${id}-title`).textContent, {
    asked: () => figures.asked,
    table: () => (figures.asked ? { name: `${$("figures").dataset.of ?? subject()}-${id}`, ...tableOf($(id)).csv() } : null),
  });
}
