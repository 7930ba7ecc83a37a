// The results now against those of a while ago, or of some rows against those of others: differences, and
// ratios of counts and sums, each from one sample, and whether the interval excludes that nothing changed.

import { conditions, hasColumns, keysOf } from "./columns.js";
import { Completion } from "./complete.js";
import { TYPING_MS } from "./hub.js";
import { element } from "./nodes.js";
import { tableOfNow } from "./panel.js";
import { bounds, estimateParts, tableOf } from "./panels.js";
import { askQueries, hasLabels, hasRows, LABELS, oldestAge, questionsOf, restricted } from "./questions.js";
import { $, askedNow, chosenRows, serviceDecay, state } from "./state.js";
import { told } from "./units.js";

const COMPARED = ["count", "mean", "total", "sum"]; // those of them that a stream can be compared by
const DIVIDED = ["count", "total", "sum"]; // a ratio of means says little
const OTHER_ROWS = "rows"; // the choice to compare two filters at one time
const GROUPS = 20;

// Where all weights are 1, the sum is the count. A total is offered where its column is chosen.
function comparedOf(stream, of) {
  const questions = questionsOf(stream);
  return COMPARED.filter((name) => questions[name]?.compared)
    .filter((name) => name !== "sum" || (stream.params?.max_weight !== 1 && !of))
    .filter((name) => name !== "total" || of)
    .filter((name) => name !== "mean" || of || !hasColumns(stream));
}

// Whether two moments of it can be compared, a wall clock's while apart, or two parts of its rows.
const isCompared = (stream, unit) => (unit.hasClock || hasRows(stream)) && comparedOf(stream, state.of).length > 0;

// Offers the times that the stream reaches back for, and other rows where rows can be filtered.
function offerChoices(select, stream, unit) {
  const most = oldestAge(stream) ?? Infinity;
  for (const each of select.options) {
    each.disabled = each.value === OTHER_ROWS ? !hasRows(stream) : !unit.hasClock || unit.toStream(Number(each.value)) >= most;
  }
  const offered = [...select.options].filter((each) => !each.disabled);
  if (offered.length && select.selectedOptions[0].disabled) select.value = offered[0].value;
  return offered.length > 0;
}

// Rows of what is compared: {rows: [{name, label, difference, ratio}], groups: the same for each group, or null}.
async function askVersus(stream, query, signal) {
  const { decay, now, confidence, versus, source, rows, by, aggregate } = query;
  const names = comparedOf(stream, rows.of);
  const common = { confidence, versus, ...(decay && { decay }), ...(now !== null && { now }) };
  const pair = (name) => ["difference", "ratio"].filter((how) => how === "difference" || DIVIDED.includes(name))
    .map((how) => ({ aggregate: name, how, ...common, ...restricted(rows, name) }));
  const grouped = by.length && names.includes(aggregate) ? pair(aggregate).slice(0, 1).map((each) => ({ ...each, by, groups: GROUPS })) : [];
  const queries = [...names.flatMap(pair), ...grouped];
  const { answers } = await askQueries(stream, queries, source, signal);
  const found = new Map(answers.map((each, i) => [`${queries[i].aggregate} ${queries[i].how}`, each.estimate]).filter(([, each]) => each));
  return {
    rows: names.map((name) => ({ name, label: labelOf(stream, name, rows.of), difference: found.get(`${name} difference`), ratio: found.get(`${name} ratio`) ?? null })),
    groups: grouped.length ? answers.at(-1).groups.map(({ by: key, estimate }) => ({ name: JSON.stringify(key), label: Object.values(key).map((each) => each ?? "null").join(", "), difference: estimate, ratio: null })) : [],
  };
}

function labelOf(stream, name, of) {
  if (name === "count" && hasLabels(stream)) return "Decayed count";
  const label = name === "total" ? "Sum of values" : LABELS[name];
  return of && name !== "count" ? `${label}, ${of}` : label;
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

function showVersus(host, { rows, groups }) {
  const table = tableOf(host, { caption: "Compared", cls: "versus cards", data: ({ name, difference }) => ({ compared: name, changed: difference.changed }) });
  table.show([
    { name: "What", value: ({ label }) => label },
    { name: "Difference", cls: "number", value: ({ difference }) => difference.value, show: ({ difference }) => shown(difference, signed), csv: estimateParts("difference", ({ difference }) => difference) },
    { name: "Changed", value: ({ difference }) => verdict(difference),
      show: ({ difference }) => [element("span", { class: difference.changed ? "changed" : "hint" }, verdict(difference))] },
    { name: "Ratio", cls: "number", value: ({ ratio }) => ratio?.value, show: ({ ratio }) => shown(ratio, times), csv: estimateParts("ratio", ({ ratio }) => ratio ?? {}) },
  ], [...rows, ...groups]);
  return table;
}

const isOfRows = () => $("versus-ago").value === OTHER_ROWS;

function query() {
  const { unit, confidence, source, by, aggregate } = state;
  const where = $("versus-where").value.trim();
  if (isOfRows() && where === "") return null;
  const versus = isOfRows() ? { where } : { ago: unit.toStream(Number($("versus-ago").value)) };
  return { decay: serviceDecay(), now: askedNow(), confidence, source, versus, rows: chosenRows(), by: isOfRows() ? keysOf(by) : [], aggregate };
}

function showControl() {
  const ofRows = isOfRows();
  $("versus-where-field").hidden = !ofRows;
  $("versus-title").textContent = ofRows ? "These rows against others" : "Now against before";
}

const panel = tableOfNow("versus", {
  what: "the comparison",
  ask: askVersus,
  show: (answer) => showVersus($("versus"), answer),
  query,
  missing: "Write a condition for the other rows, such as fw == '2.0'. The rows that the filter above leaves are compared with them.",
  present(stream, unit) {
    $("versus-panel").hidden = !(isCompared(stream, unit) && offerChoices($("versus-ago"), stream, unit));
    showControl();
  },
});
new Completion($("versus-where"), (before) => conditions(state.stream, state.unit)(before));
$("versus-ago").addEventListener("change", () => { showControl(); panel.now(); });
$("versus-where").addEventListener("input", () => panel.now(TYPING_MS));
