// The streams at a glance, each with a line of its decayed count under the decay of the page.

import { sparkline } from "./charts.js";
import { LENGTH, toService } from "./decay.js";
import { mayPass, request, streamPath } from "./http.js";
import { element } from "./nodes.js";
import { askCounts, dataSpan, hasFixedDecay, hasPast, isSeries, mayBeBounded, oldestAge } from "./questions.js";
import { $, newestData, state, timesOf, WINDOW_KINDS } from "./state.js";
import { headings, Order } from "./tables.js";
import { number, told, Unit, zone } from "./units.js";

const SPARK_POINTS = 32;
const SPARK_MS = 400;
const FEW_STREAMS = 8;
const FEW_ROWS = 3; // that are in sight before "Show all"
const MOST_LISTED = 200;

let choose = () => {};

let turnOther = () => {};

// `turn(name)`: a stream is to be shown next to the chosen one, or no more.
export function onOthers(turn) {
  turnOther = turn;
}

// `chosen(name)`: a stream was clicked.
export function onChoice(chosen) {
  choose = chosen;
}

let sparkTimer = 0;
let sparkRound = 0;
const spans = new Map(); // stream@digest -> span of its data
const windowed = new Set(); // streams that answer for windows alone
const sparked = new Map(); // stream -> the question its sparkline answers
const onScreen = new Set();
const screen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) onScreen.add(target.dataset.stream);
    else onScreen.delete(target.dataset.stream);
  }
  askSparks();
});

const unfolded = new Set(); // streams whose derived streams are shown

// The streams whose name or description has the text, as many as a page bears. Derived streams stand below
// the stream that feeds them, once that is unfolded.
function listed() {
  const has = (text) => text?.toLowerCase().includes(state.find);
  const found = state.streams.filter(({ name, description }) => has(name) || has(description));
  const names = new Set(found.map(({ name }) => name));
  const top = found.filter((each) => !names.has(each.derived_from));
  return order.of(top, COLUMNS).slice(0, MOST_LISTED)
    .flatMap((each) => [each, ...(unfolded.has(each.name) ? found.filter(({ derived_from: from }) => from === each.name) : [])]);
}

const derivedOf = (name) => state.streams.filter((each) => each.derived_from === name);

// Of what each stream is put in order by.
const COLUMNS = [
  { name: "Name", value: (each) => each.name },
  { name: "Family", value: (each) => each.family },
  { name: "Rows", cls: "number", value: (each) => each.rows },
  { name: "Sources", cls: "number", value: (each) => each.sources },
  { name: "Posts", cls: "number", value: (each) => each.posts },
  { name: `Newest data (${zone.name})`, value: (each) => { const at = newestData(each); return at === null ? null : new Unit(each.time_unit).fromStream(at); } },
  { name: "Decayed count" },
];
const order = new Order();

function showHeadings(focused = null) {
  const head = headings(COLUMNS, order, (name) => { showHeadings(name); showStreams(); });
  $("streams").tHead.replaceChildren(head);
  for (const each of head.querySelectorAll("button")) if (each.textContent === focused) each.focus();
}

// The column of counts names their decay. A phone has no headings, and shows it above the list.
function showDecayed() {
  const { decay, unit } = state;
  const length = LENGTH[decay.kind];
  const under = length ? `${length[1].toLowerCase()} ${unit.duration(decay[length[0]])}` : decay.kind === "none" ? "no decay" : `weight ${decay.text}`;
  const text = state.stream === null || state.decayFault ? "Decayed count" : `Decayed count, ${under}`;
  $("streams-says").textContent = text;
  const heading = $("streams").tHead.querySelector("tr > :last-child");
  Object.assign(heading, { textContent: text, title: text });
}

export function showStreams() {
  unfoldChosen();
  showDecayed();
  const body = $("streams").tBodies[0];
  const shown = listed();
  $("no-streams").hidden = state.streams.length > 0;
  $("find").hidden = state.streams.length <= FEW_STREAMS;
  const top = shown.filter((each) => !unfolded.has(each.derived_from)).length;
  const all = state.streams.filter(({ derived_from: from }) => !state.streams.some(({ name }) => name === from)).length;
  $("more-streams").hidden = top >= all;
  $("more-streams").textContent = `${number(top)} of ${number(all)} shown`;
  $("all-streams").hidden = shown.length <= FEW_ROWS;
  const rows = new Map([...body.rows].map((row) => [row.dataset.stream, row]));
  const wanted = shown.map((stream) => {
    const row = rows.get(stream.name) ?? newRow(stream);
    showName(row, stream);
    const unit = stream.time_unit ? new Unit(stream.time_unit) : null;
    const newest = newestData(stream);
    const cells = [stream.family, number(stream.rows), number(stream.sources), number(stream.posts),
      newest === null || !unit ? "–" : unit.time(unit.fromStream(newest))];
    cells.forEach((text, i) => { if (row.cells[i + 1].textContent !== text) row.cells[i + 1].textContent = text; });
    const chosen = stream.name === state.stream?.name;
    row.classList.toggle("chosen", chosen);
    if (chosen) row.querySelector("button").setAttribute("aria-current", "true");
    else row.querySelector("button").removeAttribute("aria-current");
    return row;
  });
  if (wanted.length !== body.rows.length || wanted.some((row, i) => row !== body.rows[i])) {
    for (const row of rows.values()) if (!wanted.includes(row)) { screen.unobserve(row); onScreen.delete(row.dataset.stream); }
    body.replaceChildren(...wanted);
  }
  keepChosenInSight(body);
  askSparks();
}

// A derived stream that is chosen is not hidden in a fold.
function unfoldChosen() {
  const chosen = state.streams.find(({ name }) => name === state.stream?.name);
  if (chosen?.derived_from && inSight !== chosen.name) unfolded.add(chosen.derived_from);
}

// The name with what the stream measures, and the fold of its derived streams.
function showName(row, stream) {
  const { unit, description } = stream;
  const about = [description, unit && `(${unit})`].filter(Boolean).join(" ");
  const said = row.querySelector(".about");
  if (said.textContent !== about) Object.assign(said, { textContent: about, title: about });
  row.classList.toggle("derived", Boolean(stream.derived_from) && unfolded.has(stream.derived_from));
  const derived = derivedOf(stream.name).length;
  const fold = row.querySelector(".fold");
  fold.hidden = derived === 0;
  fold.textContent = `${derived} derived`;
  fold.setAttribute("aria-expanded", unfolded.has(stream.name));
  const add = row.querySelector(".add");
  add.hidden = !state.stream || stream.name === state.stream.name;
  add.setAttribute("aria-pressed", state.others.includes(stream.name));
}

function turnFold(name) {
  if (!unfolded.delete(name)) unfolded.add(name);
  showStreams();
}

let inSight = null; // the stream that was brought into sight last

// The list shows the row of the chosen stream, without moving the page; once for each choice.
function keepChosenInSight(body) {
  const row = body.querySelector(".chosen");
  if (!row || row.dataset.stream === inSight) return;
  inSight = row.dataset.stream;
  const box = body.closest(".scroll");
  const above = $("streams").tHead.offsetHeight; // sticks
  const at = row.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientTop + box.scrollTop;
  const [top, bottom] = [at - above, at + row.offsetHeight - box.clientHeight];
  if (box.scrollTop > top) box.scrollTop = top;
  else if (box.scrollTop < bottom) box.scrollTop = bottom;
}

function newRow({ name }) {
  const button = element("button", { type: "button", class: "name" }, name);
  button.addEventListener("click", () => choose(name));
  const fold = element("button", { type: "button", class: "fold", title: `Streams derived from ${name}` });
  fold.addEventListener("click", () => turnFold(name));
  const add = element("button", { type: "button", class: "add", "aria-label": `Show ${name} next to the chosen stream`, title: "Show next to the chosen stream" });
  add.addEventListener("click", () => turnOther(name));
  const labels = ["Family", "Rows", "Sources", "Posts", "Newest data", "Decayed count"];
  const row = element("tr", { "data-stream": name }, element("th", { scope: "row" }, element("div", { class: "named" }, button, element("span", { class: "about" }), fold, add)),
    ...labels.map((label, i) => element("td", { "data-label": label, class: i >= 1 && i <= 3 ? "number" : i === 5 ? "spark-cell" : "" })));
  screen.observe(row);
  return row;
}

export function askSparks() {
  showDecayed();
  clearTimeout(sparkTimer);
  sparkRound += 1;
  const round = sparkRound;
  sparkTimer = setTimeout(() => drawSparks(round), SPARK_MS);
}

const cellOf = ({ name }) => document.querySelector(`tr[data-stream="${CSS.escape(name)}"] .spark-cell`);

// What its sparkline is to be of: {decay, asked}, the second to tell one question from another.
function questionOf(summary) {
  const decay = toService(state.decay, new Unit(summary.time_unit), state.unit);
  return { decay, asked: JSON.stringify([summary.digest, decay, state.confidence]) };
}

// What is drawn of another question, or of other rows, stays until its answer comes, and is marked.
function markOld() {
  for (const summary of listed()) {
    const cell = onScreen.has(summary.name) && summary.time_unit ? cellOf(summary) : null;
    if (cell?.querySelector(".spark")) cell.classList.toggle("old", sparked.get(summary.name) !== questionOf(summary).asked);
  }
}

// One after another, after the panels: they are the smallest thing on the page.
async function drawSparks(round) {
  if (!state.decayFault) markOld();
  for (const summary of listed()) {
    if (round !== sparkRound) return;
    if (!onScreen.has(summary.name) || document.hidden) continue;
    const cell = cellOf(summary);
    const unit = summary.time_unit ? new Unit(summary.time_unit) : null;
    const newest = newestData(summary);
    if (!cell || !hasPast(summary) || !unit || newest === null) {
      const why = hasFixedDecay(summary) ? "fixed decay" : hasPast(summary) ? "–" : "the present alone";
      cell?.replaceChildren(element("span", { class: "hint" }, why));
      continue;
    }
    const { decay, asked } = questionOf(summary);
    if (sparked.get(summary.name) === asked || state.decayFault) continue;
    try {
      const span = await spanOf(summary, unit, newest);
      if (windowed.has(summary.name) && !WINDOW_KINDS.includes(decay.kind)) {
        cell.replaceChildren(element("span", { class: "hint" }, "windows only"));
        cell.classList.remove("old");
        continue;
      }
      const times = timesOf(unit, unit.fromStream(newest), span, SPARK_POINTS);
      const count = await askCounts(summary, { decay, times, confidence: state.confidence });
      if (round !== sparkRound) return;
      const last = count.at(-1);
      cell.replaceChildren(sparkline(count, `over ${unit.duration(span)}, now ${told(last)}`),
        element("span", { class: "spark-value" }, isSeries(summary) ? `${told(last)} series` : told(last)));
      cell.classList.remove("old");
      sparked.set(summary.name, asked);
    } catch (error) {
      if (error.status === 401 || error.status === 429 || mayPass(error)) return; // what is drawn stays, and is asked for anew
      cell.classList.remove("old");
      cell.replaceChildren(element("span", { class: "hint", title: error.message }, "not for this decay"));
      sparked.set(summary.name, asked);
    }
  }
}

export async function spanOf(stream, unit, newest, signal) {
  const held = `${stream.name}@${stream.digest}`;
  if (!spans.has(held)) {
    const whole = stream.params || !mayBeBounded(stream) ? stream : await request(streamPath(stream.name), undefined, signal);
    const bound = oldestAge(whole);
    const most = bound ?? 2 ** 62;
    if (bound) windowed.add(stream.name);
    const lengths = unit.niceLengths.map((each) => unit.toStream(each)).filter((each) => each >= 1 && each < most);
    if (most < 2 ** 62) lengths.push(most);
    const found = await dataSpan(stream, lengths, newest, signal);
    spans.set(held, unit.fromStream(found ?? lengths[Math.floor(lengths.length / 2)]));
  }
  return spans.get(held);
}

showHeadings();

$("find").addEventListener("input", (event) => {
  state.find = event.target.value.trim().toLowerCase();
  showStreams();
});

// Beyond a few rows the list scrolls, so that the results of the chosen stream stay in sight.
$("all-streams").addEventListener("click", () => {
  const open = $("all-streams").getAttribute("aria-expanded") !== "true";
  $("all-streams").setAttribute("aria-expanded", open);
  $("all-streams").textContent = open ? "Show few" : "Show all";
  $("streams").closest(".streams").classList.toggle("all", open);
});
