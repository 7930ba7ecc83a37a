// The answers now against those of a while ago: differences, of counts and sums also ratios, each from
// one sample of the two moments, and whether the interval leaves no room for that nothing changed.

import { hasColumns } from "./columns.js";
import { element } from "./nodes.js";
import { tableOfNow } from "./panel.js";
import { bounds, estimateParts, tableOf } from "./panels.js";
import { askQueries, hasLabels, LABELS, oldestAge, questionsOf } from "./questions.js";
import { $, askedNow, serviceDecay, state } from "./state.js";
import { told } from "./units.js";

const COMPARED = ["count", "mean", "sum"]; // those of them that a stream can be compared by
const DIVIDED = ["count", "sum"]; // a ratio of means says little, and has no interval

// Where all weights are 1, the sum is the count.
const comparedOf = (stream) => COMPARED.filter((name) => questionsOf(stream)[name]?.compared)
  .filter((name) => name !== "sum" || stream.params?.max_weight !== 1);

// Whether two moments of it can be compared, a wall clock's while apart.
const isCompared = (stream, unit) => unit.hasClock && comparedOf(stream).length > 0;

// Leaves to choose the whiles that the stream reaches back for, one of them chosen; whether there are any.
function offerAgo(select, stream, unit) {
  const most = oldestAge(stream) ?? Infinity;
  for (const each of select.options) each.disabled = unit.toStream(Number(each.value)) >= most;
  const offered = [...select.options].filter((each) => !each.disabled);
  if (offered.length && select.selectedOptions[0].disabled) select.value = offered[0].value;
  return offered.length > 0;
}

// Rows of what is compared: {rows: [{name, difference, ratio}], then}.
async function askVersus(stream, { decay, now, confidence, ago, source }, signal) {
  const names = comparedOf(stream);
  const common = { decay, confidence, versus: { ago }, ...(now !== null && { now }) };
  const queries = names.flatMap((aggregate) => ["difference", "ratio"]
    .filter((how) => how === "difference" || DIVIDED.includes(aggregate))
    .map((how) => ({ aggregate, how, ...common })));
  const { answers } = await askQueries(stream, queries, source, signal);
  const found = new Map(answers.map((each, i) => [`${queries[i].aggregate} ${queries[i].how}`, each.estimate]));
  return {
    rows: names.map((name) => ({ name, difference: found.get(`${name} difference`), ratio: found.get(`${name} ratio`) ?? null })),
    now: answers[0].now,
  };
}

// A difference has a sign, unless what is written is zero.
function signed(estimate, value = estimate.value) {
  const text = told(estimate, value);
  return (value > 0 && /[1-9]/.test(text) ? "+" : "") + text;
}

const times = (estimate, value = estimate.value) => `× ${told(estimate, value)}`;

// Of what was not there before, or is not now, there is nothing to say.
function verdict({ value, exact, changed }) {
  if (value === null) return "–";
  if (exact && value === 0) return "the same";
  return changed ? "changed" : "may be chance";
}

const shown = (estimate, write) => (estimate === null || estimate.value === null
  ? ["–"]
  : [element("div", {}, write(estimate)), element("div", { class: "hint" }, bounds(estimate, (end) => write(estimate, end).replace("× ", "")))]);

function showVersus(host, { rows }, stream) {
  const label = ({ name }) => (name === "count" && hasLabels(stream) ? "Decayed count" : LABELS[name]);
  const table = tableOf(host, { caption: "Compared", cls: "versus cards", data: ({ name, difference }) => ({ compared: name, changed: difference.changed }) });
  table.show([
    { name: "What", value: label },
    { name: "Difference", cls: "number", value: ({ difference }) => difference.value, show: ({ difference }) => shown(difference, signed), csv: estimateParts("difference", ({ difference }) => difference) },
    { name: "Changed", value: ({ difference }) => verdict(difference),
      show: ({ difference }) => [element("span", { class: difference.changed ? "changed" : "hint" }, verdict(difference))] },
    { name: "Ratio", cls: "number", value: ({ ratio }) => ratio?.value, show: ({ ratio }) => shown(ratio, times), csv: estimateParts("ratio", ({ ratio }) => ratio ?? {}) },
  ], rows);
  return table;
}

const panel = tableOfNow("versus", {
  what: "the comparison",
  ask: askVersus,
  show: (answer, stream) => showVersus($("versus"), answer, stream),
  query() {
    const { unit, confidence, source } = state;
    const ago = unit.toStream(Number($("versus-ago").value));
    return { decay: serviceDecay(), now: askedNow(), confidence, ago, source };
  },
  present(stream, unit) {
    $("versus-panel").hidden = state.where !== "" || hasColumns(stream) || !(isCompared(stream, unit) && offerAgo($("versus-ago"), stream, unit));
  },
});
$("versus-ago").addEventListener("change", () => panel.now());
