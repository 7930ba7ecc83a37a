// Coverage: what each source of a stream heard, alone and with others; spells of silence; and a range for
// messages that no source heard, which stands next to its caveat.

import { refused } from "./access.js";
import { streamPath } from "./http.js";
import { register } from "./hub.js";
import { element, svg } from "./nodes.js";
import { bar, bounds, estimateParts, tableOf } from "./panels.js";
import { hasCoverage } from "./questions.js";
import { $, state } from "./state.js";
import { takings } from "./taking.js";
import { number, percent, share, short, told, Unit } from "./units.js";
import { onView } from "./views.js";
import { Watching } from "./watching.js";

const SHOWN = 20;
const MOST_SQUARES = 24; // of the heatmap, to a side
const MOST_LEVEL = 5; // names below the columns; more stand upright

const at = (part) => `${(100 * Math.min(1, Math.max(0, part))).toFixed(2)}%`;

function asked() {
  const query = new URLSearchParams({ decay: $("coverage-decay").value, limit: SHOWN });
  if ($("coverage-without").checked) query.set("without_silence", "true");
  return `/coverage?${query}`;
}

// Windows that the span of the stream leaves something to tell of; of a stream without a clock all time alone.
function offer(stream, unit) {
  const lengths = unit.hasClock ? [["window(1h)", "the last hour"], ["window(1d)", "the last day"], ["window(7d)", "the last week"], ["window(30d)", "the last 30 days"]] : [];
  const options = [["none", "all time"], ...lengths];
  $("coverage-decay").replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
}

class Coverage extends Watching {
  constructor(panel, { failed }) {
    super(panel, asked, failed);
    for (const id of ["coverage-decay", "coverage-without"]) $(id).addEventListener("change", () => this.look());
    takings($("coverage-exclusive-panel"), "what each source heard", {
      asked: () => ({ path: streamPath(this.stream, asked()) }),
      table: () => ({ name: `${this.stream}-coverage`, ...this.sources.csv() }),
    });
  }

  begin() { offer(state.stream, state.unit); }

  show(answer) {
    const unit = new Unit(state.stream.params.time_unit);
    this.panel.dataset.now = answer.now;
    const unsettled = answer.unsettled.length;
    $("coverage-says").textContent = [
      `As of ${unit.time(unit.fromStream(answer.now))}: ${told(answer.union)} messages that at least one of ${number(answer.sources.length)} sources heard.`,
      unsettled ? `${number(unsettled)} ${unsettled === 1 ? "source has" : "sources have"} posted nothing since: messages may still come.` : "",
    ].join(" ").trim();
    this.sources = showSources($("coverage-exclusive"), answer);
    showHeat($("coverage-heat"), answer);
    showCurve($("coverage-cover"), answer.cover);
    showHistories($("coverage-histories"), answer.histories);
    showSilences($("coverage-silences"), answer, unit);
    showUnheard($("coverage-unheard"), answer.unheard);
    $("coverage-caveats").replaceChildren(...Object.entries(answer.caveats).map(([name, text]) =>
      element("li", {}, element("strong", {}, name), `: ${text}`)));
  }
}

// Counts, and bars of what each source alone heard.
function showSources(host, { sources, exclusive, unsettled, disagreement }) {
  const rows = sources.map((each, i) => ({ ...each, alone: exclusive[i].estimate }));
  const longest = Math.max(...rows.map(({ alone }) => alone.upper ?? alone.value), 1e-300);
  const table = tableOf(host, { caption: "What each source heard", cls: "hitters", data: ({ source, count, alone }) => ({ source, heard: count.value, alone: alone.value }) });
  table.show([
    { name: "Source", cls: "label", value: ({ source }) => source, show: ({ source }) => element("span", { class: "label-text", title: source }, source) },
    { name: "Heard", cls: "number", value: ({ count }) => count.value, show: ({ count }) => told(count), csv: estimateParts("heard", ({ count }) => count) },
    { name: "", cls: "bar-cell", hidden: true, show: ({ alone }) => bar(alone, longest) },
    { name: "Alone", cls: "number", value: ({ alone }) => alone.value, show: ({ alone }) => told(alone), csv: estimateParts("alone", ({ alone }) => alone) },
    { name: "Interval", cls: "number interval wide", show: ({ alone }) => bounds(alone) },
    { name: "Posted", cls: "number wide", value: ({ source }) => unsettled.includes(source), show: ({ source }) => (unsettled.includes(source) ? "not since" : "") },
  ], rows, { most: 50 });
  return table;
}

// A square for each pair: the share of the messages of the column that the row heard.
function showHeat(host, { sources, overlaps }) {
  const none = $("coverage-heat-says");
  const shown = [...sources].sort((a, b) => b.count.value - a.count.value).slice(0, MOST_SQUARES);
  none.hidden = overlaps !== null && sources.length === shown.length;
  none.textContent = overlaps === null ? "Pairs are read from weights of 1 and one hash function alone." : `The ${shown.length} sources that heard most.`;
  if (overlaps === null || shown.length < 2) { host.replaceChildren(); return; }
  const both = new Map();
  for (const { source, other, estimate } of overlaps) for (const pair of [[source, other], [other, source]]) both.set(JSON.stringify(pair), estimate);
  const n = shown.length;
  const side = 100 / n;
  const squares = svg("svg", { class: "heat", viewBox: "0 0 100 100", role: "img", "aria-label": "Share of the messages of the column that the row heard" });
  shown.forEach((row, y) => shown.forEach((column, x) => {
    const pair = both.get(JSON.stringify([row.source, column.source]));
    const part = x === y ? 1 : column.count.value > 0 && pair ? Math.min(1, pair.value / column.count.value) : 0;
    const square = svg("rect", { x: x * side + 0.2, y: y * side + 0.2, width: side - 0.4, height: side - 0.4, rx: 0.6, "fill-opacity": (0.06 + 0.94 * part).toFixed(3), "data-pair": `${row.source} ${column.source}`, "data-share": part });
    square.append(svg("title", {}, x === y ? row.source : `${row.source} heard ${percent(part)} of ${column.source}`));
    squares.append(square);
    if (n <= 12 && x !== y) squares.append(svg("text", { x: (x + 0.5) * side, y: (y + 0.5) * side, "font-size": Math.min(4.2, side / 2.6), class: part > 0.82 ? "on" : part > 0.6 ? "mid" : "" }, short(100 * part)));
  }));
  const names = (cls) => element("div", { class: cls, "aria-hidden": "true" }, ...shown.map(({ source }) => element("span", { title: source }, source)));
  host.replaceChildren(names("heat-rows"), squares, names(n > MOST_LEVEL ? "heat-columns tall" : "heat-columns"));
}

// The fewest sources that hear a share: a curve inside its intervals.
function showCurve(host, steps) {
  if (!steps.length) { host.replaceChildren(element("p", { class: "hint" }, "No message has weight.")); return; }
  const table = tableOf(host, { caption: "The fewest sources that hear a share", cls: "hitters", data: ({ source, covered }) => ({ step: source, covered: covered.value }) });
  table.show([
    { name: "Source", cls: "label", show: ({ place, source }) => element("span", { class: "label-text", title: source }, `${place}. ${source}`) },
    { name: "", cls: "bar-cell", hidden: true, show: ({ covered }) => bar(covered, 1) },
    { name: "Covered", cls: "number", show: ({ covered }) => share(covered.value), csv: estimateParts("covered", ({ covered }) => covered) },
    { name: "Adds", cls: "number", show: ({ gain }) => share(gain) },
  ], steps.map((each, i) => ({ ...each, place: i + 1 })), { most: SHOWN });
}

// The largest sets of sources that heard exactly the same messages.
function showHistories(host, histories) {
  const longest = Math.max(...histories.map(({ estimate }) => estimate.upper ?? estimate.value), 1e-300);
  const names = ({ sources }) => sources.join(", ");
  tableOf(host, { caption: "Messages heard by exactly these sources", cls: "hitters", data: ({ sources, estimate }) => ({ history: sources.join(" "), messages: estimate.value }) }).show([
    { name: "Exactly", cls: "label", show: (each) => element("span", { class: "label-text", title: names(each) }, names(each)) },
    { name: "", cls: "bar-cell", hidden: true, show: ({ estimate }) => bar(estimate, longest) },
    { name: "Messages", cls: "number", show: ({ estimate }) => told(estimate), csv: estimateParts("messages", ({ estimate }) => estimate) },
  ], histories, { most: SHOWN });
}

// Spells of silence on a line of time for each source that has one.
function showSilences(host, { silences, now }, unit) {
  if (!silences.length) { host.replaceChildren(element("p", { class: "hint" }, "No source was silent while others heard messages.")); return; }
  const first = Math.min(...silences.map(({ after }) => after));
  const place = (time) => at((time - first) / Math.max(now - first, 1));
  const sources = [...new Set(silences.map(({ source }) => source))];
  host.replaceChildren(...sources.map((source) => {
    const line = svg("svg", { class: "gauge", "aria-hidden": "true" }, svg("line", { class: "rail", x1: "0%", x2: "100%", y1: 17, y2: 17 }));
    const spells = silences.filter((each) => each.source === source);
    for (const { after, before } of spells) line.append(svg("line", { class: "middle", x1: place(after), x2: place(before), y1: 17, y2: 17 }));
    const text = spells.map(({ after, before }) => `${unit.time(unit.fromStream(after))} – ${unit.time(unit.fromStream(before))}`).join("; ");
    return element("div", { "data-silent": source, "data-spells": spells.map(({ after, before }) => `${after}-${before}`).join(" ") }, element("strong", {}, source), " ", element("span", { class: "hint" }, text), line);
  }));
}

// A range over models, with the sentence that belongs to it.
function showUnheard(host, found) {
  if (found === null) { host.replaceChildren(element("p", { class: "hint" }, "One source alone: nothing bounds what it missed.")); return; }
  const ends = (lower, upper) => `${lower === null ? "0" : number(lower)} – ${upper === null ? "no bound" : number(upper)}`;
  const range = found.span === null ? `at least ${number(found.at_least)}` : ends(...found.span);
  host.replaceChildren(
    element("p", { class: "unheard-range", "data-unheard": found.caveats.join(" ") }, range, element("span", { class: "hint" }, " messages, over the models")),
    element("p", { class: "note" }, found.note),
    ...(found.models.length ? [element("dl", { class: "facts" }, ...found.models.map(({ name, value, lower, upper }) =>
      element("div", {}, element("dt", {}, name), element("dd", {}, `${value === null ? "no estimate" : number(value)} (${ends(lower, upper)})`))))] : []));
}

onView("coverage", new Coverage($("coverage"), { failed: refused }));

register({
  present(stream) {
    const has = hasCoverage(stream);
    $("coverage-view").hidden = !has;
    if (state.view === "coverage" && !has) state.view = "answers";
  },
});
