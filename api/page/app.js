// The page: what is chosen, what is asked when it changes, and where the answers go.

import { LineChart, sparkline } from "./charts.js";
import { ageAxis, closedForm, draw, tableRows, toAge, toShare } from "./curve.js";
import { curveOfText, formula, KINDS, LENGTH, toService } from "./decay.js";
import { key, Newest, request, streamPath } from "./http.js";
import { element, showFigures, showHitters, showTable } from "./panels.js";
import { askCounts, askFigures, askSeries, dataSpan, familyOf, seriesLabel, seriesOf } from "./questions.js";
import { number, told, Unit } from "./units.js";

const LIVE_MS = 1000; // a moving clock is asked this often
const LIVE_SERIES_MS = 5000;
const LOOK_MS = 3000; // for new posts
const SERIES_POINTS = 96;
const SPARK_POINTS = 32;
const TYPING_MS = 150;
const SPARK_MS = 400;
const WINDOW_KINDS = ["window", "expression"];
const REMEMBER_MS = 400;
const ANNOUNCE_MS = 1000;
const SLIDER = 1000;

const $ = (id) => document.getElementById(id);
const radio = (name) => document.querySelector(`input[name="${name}"]:checked`)?.value;
const check = (name, value) => {
  const found = document.querySelector(`input[name="${name}"][value="${value}"]`);
  if (found) found.checked = true;
};

const state = {
  streams: [],
  stream: null, // the answer of GET /v1/streams/{name}
  unit: new Unit("s"),
  span: 3600, // of the charts, in the page's reckoning, as every time and length here
  fitted: 3600,
  axis: { youngest: 1, oldest: 86400 },
  decay: { kind: "exponential", halfLife: 300, width: 900, scale: 60, exponent: 1.5, text: "" },
  touched: false, // the decay was chosen by hand: another stream keeps it
  wished: { kind: "exponential", mode: "newest" }, // by hand; a stream may not have them
  mode: "newest",
  chosen: 0,
  confidence: 0.95,
  phi: 0.02,
  textFault: null,
};

// ------------------------------------------------------------------------------------------- times

// The latest that a stream was told: of an observation, or of a clock that ran on.
function newestData(stream) {
  const times = [stream?.newest, stream?.clock].filter((each) => each !== null && each !== undefined);
  return times.length ? Math.max(...times) : null;
}

// The right end of the charts.
function latest() {
  const newest = newestData(state.stream);
  if (state.mode !== "live" && newest !== null) return state.unit.fromStream(newest);
  if (state.unit.hasClock) return state.unit.clock();
  return newest === null ? state.chosen : state.unit.fromStream(newest);
}

// The time asked about, in the stream's unit; null for the service's clock.
function askedNow() {
  if (state.mode === "live") return null;
  return state.unit.toStream(state.mode === "newest" ? latest() : state.chosen);
}

const shownNow = () => (state.mode === "chosen" ? state.chosen : latest());

// ------------------------------------------------------------------------------------------ asking

const fixedDecay = () => state.stream.decay;
const serviceDecay = () => (fixedDecay() ? null : toService(state.decay, state.unit));

function failed(error) {
  if (error.status === 401) { askForKey(); return; }
  const text = error.status ? error.message : "The aggregator does not answer.";
  if (!error.status) $("status").textContent = text;
  $("ask-error").textContent = text;
  showStale(true);
}

// The numbers shown are of an earlier question.
const showStale = (stale) => $("answers").classList.toggle("stale", stale);

let announcing = 0;

// Said once the numbers rest; a moving clock would never stop talking.
function announce(shown) {
  clearTimeout(announcing);
  if (state.mode === "live") return;
  const text = shown.map(({ label, estimate }) => `${label} ${told(estimate)}`).join(", ");
  announcing = setTimeout(() => { $("announcement").textContent = text; }, ANNOUNCE_MS);
}

const figures = new Newest(
  (signal, stream, question) => askFigures(stream, question, signal),
  (answer, ms, stream, question) => {
    const decay = JSON.stringify(question.decay ?? stream.decay);
    $("ask-error").textContent = "";
    showStale(false);
    showFigures($("figures"), answer.figures, { now: answer.now, decay });
    $("hitters-panel").hidden = answer.hitters === null;
    if (answer.hitters) showHitters($("hitters"), answer.hitters, question.phi);
    $("status").textContent = `answered in ${Math.max(1, Math.round(ms))} ms`;
    showNow(state.unit.fromStream(answer.now));
    announce(answer.figures);
  },
  failed,
);

const series = new Newest(
  (signal, stream, question) => askSeries(stream, question, signal),
  (answer, _ms, stream) => showSeries(stream, answer),
  (error) => {
    if (error.status === 401) { askForKey(); return; }
    for (const id of ["count-panel", "quantile-panel"]) {
      note(id, error.status ? error.message : "The aggregator does not answer.");
    }
  },
);

const curve = new Newest(
  (signal, text, unit, oldest) => curveOfText(text, unit, oldest, signal),
  ({ points }, _ms, text) => {
    state.textFault = null;
    showFault("");
    showCurve(points, false);
    if (text === state.decay.text) { askAnswers(); askSparks(); }
  },
  (error) => {
    if (error.status === 401) { askForKey(); return; }
    state.textFault = error.faults?.[0]?.reason ?? error.message;
    showFault(state.textFault);
    $("curve").classList.add("stale");
    showStale(true);
  },
);

function ask(debounceMs = 0) {
  if (!state.stream) return;
  remember();
  if (state.decay.kind === "expression" && !fixedDecay()) {
    figures.cancel();
    series.cancel();
    if (state.decay.text.trim() === "") {
      curve.cancel();
      state.textFault = "write a formula of the age x";
      showFault(state.textFault);
      showStale(true);
      return;
    }
    curve.put([state.decay.text, state.unit, state.axis.oldest], debounceMs); // then the answers
    return;
  }
  curve.cancel();
  state.textFault = null;
  showFault("");
  if (!fixedDecay()) showCurve(closedForm(state.decay, state.axis), true);
  askAnswers(debounceMs);
  askSparks();
}

function askAnswers(debounceMs = 0) {
  askNow(debounceMs);
  askOverTime(debounceMs);
}

function askNow(debounceMs = 0) {
  const { stream, confidence, phi } = state;
  figures.put([stream, { decay: serviceDecay(), now: askedNow(), confidence, phi }], debounceMs);
}

function askOverTime(debounceMs = 0) {
  const { stream, confidence } = state;
  if (fixedDecay()) {
    const since = stream.clock === null ? "" : ` from ${state.unit.time(state.unit.fromStream(stream.clock))} on`;
    note("count-panel", `A stream with a fixed decay forgets what has expired: it answers${since}, and has no past to draw.`);
    return;
  }
  series.put([stream, { decay: serviceDecay(), times: timesOf(state.unit, latest(), state.span), confidence }], debounceMs);
}

function timesOf(unit, end, span, points = SERIES_POINTS) {
  const stop = unit.toStream(end);
  const step = Math.max(1, Math.round(span / unit.scale / points));
  return { start: stop - step * points, stop, step };
}

// ----------------------------------------------------------------------------------------- showing

function note(panel, text) {
  const found = $(panel).querySelector(".note");
  found.textContent = text;
  found.hidden = text === "";
  $(panel).classList.toggle("without-chart", text !== "");
}

const countChart = new LineChart($("count-chart"), {
  fromZero: true, picked: pickTime, read: (text) => { $("count-key").textContent = text || $("count-key").dataset.text; },
});
const quantileChart = new LineChart($("quantile-chart"), {
  fromZero: false, picked: pickTime, read: (text) => { $("quantile-key").textContent = text || $("quantile-key").dataset.text; },
});

function line(label, estimates, main) {
  return {
    label, main, estimates,
    values: estimates.map((each) => each.value),
    lower: estimates.map((each) => each.lower),
    upper: estimates.map((each) => each.upper),
  };
}

function showSeries(stream, { times, count, quantiles }) {
  const seconds = times.map((time) => state.unit.fromStream(time));
  show("count", countChart, seconds, [line(seriesOf(stream), count, true)], false);
  $("quantile-panel").hidden = quantiles === null;
  if (quantiles) {
    const lines = Object.entries(quantiles).map(([name, each]) => line(name, each, name === "p50"));
    show("quantile", quantileChart, seconds, lines, true);
  }
}

function show(name, chart, times, lines, between) {
  const panel = `${name}-panel`;
  const title = $(`${name}-title`).textContent;
  const told = lines.flatMap((each) => each.estimates).filter((each) => each.value !== null);
  const exact = told.length > 0 && told.every((each) => each.exact);
  note(panel, told.length ? "" : "No observation has weight in this span.");
  const from = state.unit.time(times[0]);
  const to = state.unit.time(times.at(-1));
  const last = lines.map((each) => `${each.label} ${number(each.values.at(-1))}`).join(", ");
  chart.show({
    times, lines, between, unit: state.unit, now: shownNow(),
    label: `${title}, from ${from} to ${to}; at the end ${last}. The table below has the numbers.`,
  });
  const bands = exact ? "exact" : `bands: ${Math.round(100 * state.confidence)} % intervals`;
  const legend = $(`${name}-key`);
  legend.dataset.text = between ? `p10 – p50 – p90 · ${bands}` : bands;
  legend.textContent = legend.dataset.text;
  legend.classList.toggle("exact", exact);
  Object.assign($(panel).dataset, { points: times.length, exact, last: lines[0].values.at(-1) ?? "" });
  showTable($(panel).querySelector(".as-table"), title,
    ["Time", ...lines.flatMap((each) => [each.label, "lower", "upper"])],
    times.map((time, i) => [state.unit.time(time),
      ...lines.flatMap(({ estimates }) => {
        const each = estimates[i];
        return [told(each), ...(each.exact ? ["exact", "exact"] : [told(each, each.lower), told(each, each.upper)])];
      })]));
}

function showCurve(points) {
  const length = LENGTH[state.decay.kind];
  const { axis, unit } = state;
  draw($("curve"), { points, axis, unit, mark: length ? state.decay[length[0]] : null });
  $("curve").setAttribute("aria-label", `Weight by age: ${formula(state.decay, unit).filter(Boolean).join(" to the power of ")}`);
  showTable($("curve-table"), "Weight by age", ["Age", "Weight"], tableRows(points, axis, unit));
  state.points = points;
}

function showFault(text) {
  $("decay-error").textContent = text;
  for (const id of ["expression", "age-text"]) {
    const guilty = text !== "" && (id === "expression") === (state.decay.kind === "expression");
    $(id).setAttribute("aria-invalid", guilty);
  }
}

function showDecay() {
  const { decay, unit, axis } = state;
  check("kind", decay.kind);
  const length = LENGTH[decay.kind];
  $("age-row").hidden = !length;
  $("exponent-row").hidden = decay.kind !== "polynomial";
  $("expression-row").hidden = decay.kind !== "expression";
  $("examples").hidden = decay.kind !== "expression";
  const [base, raised] = formula(decay, unit);
  $("formula").replaceChildren(...(decay.kind === "expression" ? [] : [base, element("sup", {}, raised)]));
  if (length) {
    const [field, label] = length;
    const text = unit.duration(decay[field]);
    $("age-label").textContent = label;
    $("age-slider").value = SLIDER * toShare(axis, decay[field]);
    $("age-slider").setAttribute("aria-valuetext", text);
    if (document.activeElement !== $("age-text")) $("age-text").value = text;
  }
  $("exponent").value = decay.exponent;
  $("exponent-text").textContent = decay.exponent;
  if ($("expression").value !== decay.text) $("expression").value = decay.text;
}

function showNow(at) {
  const end = latest();
  if (document.activeElement !== $("now-text")) $("now-text").value = state.unit.time(at);
  $("now-slider").value = SLIDER * Math.min(1, Math.max(0, 1 - (end - at) / state.span));
  const ago = end - at;
  $("now-slider").setAttribute("aria-valuetext",
    ago < state.unit.scale ? "at the end of the charts" : `${state.unit.duration(ago)} before the end`);
  countChart.moveNow(at);
  quantileChart.moveNow(at);
}

// ----------------------------------------------------------------------------------- list of streams

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

function showStreams() {
  const body = $("streams").tBodies[0];
  $("no-streams").hidden = state.streams.length > 0;
  const rows = new Map([...body.rows].map((row) => [row.dataset.stream, row]));
  const wanted = state.streams.map((stream) => {
    const row = rows.get(stream.name) ?? newRow(stream);
    const unit = stream.time_unit ? new Unit(stream.time_unit) : null;
    const newest = newestData(stream);
    const cells = [stream.family, number(stream.rows), number(stream.sources), number(stream.posts),
      newest === null || !unit ? "–" : unit.time(unit.fromStream(newest))];
    cells.forEach((text, i) => { row.cells[i + 1].textContent = text; });
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
  askSparks();
}

function newRow({ name }) {
  const choose = element("button", { type: "button", class: "name" }, name);
  choose.addEventListener("click", () => chooseStream(name, true));
  const labels = ["Family", "Rows", "Sources", "Posts", "Newest data", "Decayed count"];
  const row = element("tr", { "data-stream": name }, element("th", { scope: "row" }, choose),
    ...labels.map((label, i) => element("td", { "data-label": label, class: i >= 1 && i <= 3 ? "number" : i === 5 ? "spark-cell" : "" })));
  screen.observe(row);
  return row;
}

function askSparks() {
  clearTimeout(sparkTimer);
  sparkRound += 1;
  const round = sparkRound;
  sparkTimer = setTimeout(() => drawSparks(round), SPARK_MS);
}

// One after another, after the panels: they are the smallest thing on the page.
async function drawSparks(round) {
  for (const summary of state.streams) {
    if (round !== sparkRound) return;
    if (!onScreen.has(summary.name) || document.hidden) continue;
    const cell = document.querySelector(`tr[data-stream="${CSS.escape(summary.name)}"] .spark-cell`);
    const unit = summary.time_unit ? new Unit(summary.time_unit) : null;
    const newest = newestData(summary);
    if (!cell || summary.family === "integral" || !unit || newest === null) {
      cell?.replaceChildren(element("span", { class: "hint" }, summary.family === "integral" ? "fixed decay" : "–"));
      continue;
    }
    const decay = toService(state.decay, unit, state.unit);
    const asked = JSON.stringify([summary.digest, decay, state.confidence]);
    if (sparked.get(summary.name) === asked || state.textFault) continue;
    try {
      const span = await spanOf(summary, unit, newest);
      if (windowed.has(summary.name) && !WINDOW_KINDS.includes(decay.kind)) {
        cell.replaceChildren(element("span", { class: "hint" }, "windows only"));
        continue;
      }
      const times = timesOf(unit, unit.fromStream(newest), span, SPARK_POINTS);
      const count = await askCounts(summary, { decay, times, confidence: state.confidence });
      if (round !== sparkRound) return;
      const last = count.at(-1);
      cell.replaceChildren(sparkline(count, `over ${unit.duration(span)}, now ${number(last.value)}`),
        element("span", { class: "spark-value" }, number(last.value)));
      sparked.set(summary.name, asked);
    } catch (error) {
      if (error.status === 401 || error.status === 429 || !error.status) return;
      cell.replaceChildren(element("span", { class: "hint", title: error.message }, "not for this decay"));
      sparked.set(summary.name, asked);
    }
  }
}

async function spanOf(stream, unit, newest, signal) {
  const held = `${stream.name}@${stream.digest}`;
  if (!spans.has(held)) {
    const ofWindows = ["sum", "median"].includes(stream.family);
    const { params } = stream.params || !ofWindows ? stream : await request(streamPath(stream.name), undefined, signal);
    const most = params?.max_window ?? 2 ** 62;
    if (params?.max_window) windowed.add(stream.name);
    const lengths = unit.niceLengths.map((each) => unit.toStream(each)).filter((each) => each >= 1 && each < most);
    if (most < 2 ** 62) lengths.push(most);
    const found = await dataSpan(stream, lengths, newest, signal);
    spans.set(held, unit.fromStream(found ?? lengths[Math.floor(lengths.length / 2)]));
  }
  return spans.get(held);
}

// ---------------------------------------------------------------------------------- choosing a stream

let choosing = null;

async function chooseStream(name, moved) {
  choosing?.abort();
  choosing = new AbortController();
  const { signal } = choosing;
  for (const each of [figures, series, curve]) each.cancel();
  try {
    const stream = await request(streamPath(name), undefined, signal);
    const unit = new Unit(stream.params.time_unit);
    const newest = newestData(stream);
    const before = state.stream;
    Object.assign(state, { stream, unit });
    if (before?.name !== name || newestData(before) === null) {
      state.mode = state.wished.mode === "live" && !unit.hasClock ? "newest" : state.wished.mode;
      if (newest === null && state.mode === "newest" && unit.hasClock) state.mode = "live";
      state.fitted = unit.hasClock ? 3600 : 1000;
      if (stream.family !== "integral" && stream.rows > 0) {
        state.fitted = await spanOf(stream, unit, newest, signal).catch((error) => {
          if (error.name === "AbortError") throw error;
          return state.fitted;
        });
      }
      fit(state.fitted);
      state.chosen = latest();
    }
    present();
    if (moved && matchMedia("(max-width: 760px)").matches) $("detail").scrollIntoView();
  } catch (error) {
    if (error.name !== "AbortError") failed(error);
  }
}

// The span of the charts and the axis of ages; the decay too, until it was chosen by hand.
function fit(span) {
  const { decay, unit, stream } = state;
  state.span = span;
  state.axis = ageAxis(unit, span);
  const most = stream.params.max_window;
  if (most) state.axis.oldest = Math.max(unit.fromStream(most), state.axis.youngest * 10);
  decay.kind = kindsOf(stream).includes(state.wished.kind) ? state.wished.kind : "window";
  if (!state.touched) {
    Object.assign(decay, {
      halfLife: nice(span / 12), width: nice(span / 6), scale: nice(span / 30),
      text: most ? `max(0, 1 - x/${most})` : `1/(1 + x/${unit.toStream(nice(span / 30))})`,
    });
  }
  for (const [field] of Object.values(LENGTH)) {
    decay[field] = Math.min(state.axis.oldest, Math.max(state.axis.youngest, decay[field]));
  }
}

// A sketch that was built for windows of some width answers for decays that end within it.
const kindsOf = (stream) => (stream.params.max_window ? WINDOW_KINDS : KINDS);

function nice(length) {
  const lengths = state.unit.niceLengths.filter((each) => each >= state.unit.scale);
  return lengths.reduce((best, each) => (Math.abs(Math.log(each / length)) < Math.abs(Math.log(best / length)) ? each : best));
}

function present() {
  const { stream, unit } = state;
  const fixed = stream.decay;
  $("detail").hidden = false;
  $("stream-name").textContent = stream.name;
  const sources = stream.sources.length;
  $("stream-facts").textContent = [
    `family ${stream.family}`, `capacity ${number(stream.params.capacity)}`, `${number(stream.rows)} rows`,
    `${sources} ${sources === 1 ? "source" : "sources"}`, `${number(stream.bytes)} bytes`, `times in ${unit.name}`,
  ].join(" · ");
  $("decay-fixed").hidden = !fixed && !stream.params.max_window;
  $("decay-fixed").textContent = fixed
    ? `The decay of this stream is fixed: ${describeFixed(fixed, unit)}. Its sketches were built for it, and no question changes it.`
    : stream.params.max_window
      ? `This stream was built for windows of up to ${unit.duration(unit.fromStream(stream.params.max_window))}.` : "";
  $("decay-control").hidden = Boolean(fixed);
  $("curve-table").hidden = Boolean(fixed);
  $("count-title").textContent = `${seriesLabel(stream)} over time`;
  $("quantile-panel").hidden = !familyOf(stream).values || Boolean(fixed);
  $("range-field").hidden = Boolean(fixed);
  $("past").hidden = Boolean(fixed);
  $("now-zone").hidden = !unit.hasClock;
  for (const each of document.querySelectorAll('input[name="kind"]')) each.disabled = !kindsOf(stream).includes(each.value);
  $("hitters-panel").hidden = !familyOf(stream).values;
  $("expression-unit").textContent = ` in ${unit.name}`;
  document.querySelector('input[name="mode"][value="live"]').disabled = !unit.hasClock;
  document.querySelector('input[name="mode"][value="newest"]').disabled = newestData(stream) === null;
  check("mode", state.mode);
  showRanges();
  showExamples();
  showDecay();
  showStreams();
  ask();
}

function describeFixed(fixed, unit) {
  const age = (value) => unit.duration(unit.fromStream(Number(value)));
  const plain = (value) => typeof value !== "string" || /^[0-9.]+$/.test(value);
  if (fixed.half_life !== undefined && plain(fixed.half_life)) return `a half-life of ${age(fixed.half_life)}`;
  if (fixed.width !== undefined && plain(fixed.width)) return `a window of ${age(fixed.width)}`;
  const rest = Object.entries(fixed).filter(([field]) => field !== "kind").map(([field, value]) => `${field} ${value}`);
  return [fixed.kind, ...rest].join(", ");
}

function showRanges() {
  const { unit } = state;
  const lengths = unit.niceLengths.filter((each) => each >= 10 * unit.scale && each >= state.fitted / 1000 && each <= state.fitted * 50);
  if (!lengths.includes(state.span)) lengths.push(state.span);
  $("range").replaceChildren(...lengths.sort((a, b) => a - b).map((each) => {
    const option = element("option", { value: each }, unit.duration(each));
    option.selected = each === state.span;
    return option;
  }));
}

function showExamples() {
  const tenth = state.unit.toStream(nice(state.span / 12));
  const texts = [`1/(1 + x/${tenth})`, `exp(-(x/${tenth})**2)`, `where(x <= ${tenth}, 1, 0.2)`];
  const most = state.stream.params.max_window;
  if (most) texts.splice(0, 3, `max(0, 1 - x/${most})`, `where(x <= ${Math.floor(most / 2)}, 1, 0)`);
  $("examples").replaceChildren(...texts.map((text) => {
    const take = element("button", { type: "button", class: "example" }, text);
    take.addEventListener("click", () => { state.decay.text = text; state.touched = true; showDecay(); ask(); });
    return take;
  }));
}

// ------------------------------------------------------------------------------------------ controls

function changeDecay(change, debounceMs) {
  Object.assign(state.decay, change);
  state.touched = true;
  showDecay();
  ask(debounceMs);
}

function pickTime(at) {
  state.mode = "chosen";
  state.chosen = state.unit.fromStream(state.unit.toStream(at));
  check("mode", "chosen");
  remember();
  showNow(state.chosen);
  if (!state.textFault) askNow();
}

$("kinds").addEventListener("change", () => {
  const kind = radio("kind");
  state.wished.kind = kind;
  changeDecay({ kind });
  if (kind === "expression") $("expression").focus();
});
$("age-slider").addEventListener("input", (event) => {
  const [field] = LENGTH[state.decay.kind];
  const age = toAge(state.axis, event.target.valueAsNumber / SLIDER);
  const whole = Number(age.toPrecision(3));
  changeDecay({ [field]: state.unit.hasClock ? whole : Math.max(1, Math.round(whole)) });
});
$("age-text").addEventListener("input", (event) => {
  const length = state.unit.parseDuration(event.target.value);
  if (length === null) { showFault(`a length such as ${state.unit.hasClock ? "90 s, 1.5 h or 2 d" : `90 ${state.unit.name}`}`); return; }
  changeDecay({ [LENGTH[state.decay.kind][0]]: length }, TYPING_MS);
});
$("age-text").addEventListener("change", (event) => { event.target.blur(); showDecay(); ask(); });
$("exponent").addEventListener("input", (event) => changeDecay({ exponent: event.target.valueAsNumber }));
$("expression").addEventListener("input", (event) => changeDecay({ text: event.target.value }, TYPING_MS));

$("modes").addEventListener("change", () => {
  const before = shownNow();
  state.mode = radio("mode");
  state.wished.mode = state.mode === "live" ? "live" : "newest";
  if (state.mode === "chosen") { state.chosen = before; $("now-text").focus(); }
  ask();
});
$("now-slider").addEventListener("input", (event) => {
  const end = latest();
  pickTime(end - state.span * (1 - event.target.valueAsNumber / SLIDER));
});
$("now-text").addEventListener("change", (event) => {
  const at = state.unit.parseTime(event.target.value);
  const form = state.unit.hasClock ? "a time such as 2026-01-31 12:00:00 (UTC)" : "a whole number";
  event.target.setAttribute("aria-invalid", at === null);
  if (at === null) { $("ask-error").textContent = `Now is ${form}.`; return; }
  event.target.blur();
  pickTime(at);
});
$("range").addEventListener("change", (event) => { state.span = Number(event.target.value); remember(); showNow(shownNow()); if (!state.textFault) askOverTime(); });
$("confidence").addEventListener("change", (event) => { state.confidence = Number(event.target.value); ask(); });
$("phi").addEventListener("change", (event) => { state.phi = Number(event.target.value); if (!state.textFault) askNow(); });

// -------------------------------------------------------------------------------------------- theme

const dark = matchMedia("(prefers-color-scheme: dark)");

function showTheme() {
  const held = localStorage.getItem("decaysketch-theme");
  const isDark = held ? held === "dark" : dark.matches;
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  $("theme").setAttribute("aria-pressed", isDark);
  countChart.paint();
  quantileChart.paint();
}
$("theme").addEventListener("click", () => {
  localStorage.setItem("decaysketch-theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  showTheme();
});
dark.addEventListener("change", showTheme);

// ---------------------------------------------------------------------------------------------- key

function askForKey() {
  $("key-form").hidden = false;
  $("forget-key").hidden = true;
  $("status").textContent = key.held ? "The key was refused." : "An API key is needed.";
  key.forget();
  $("key").focus();
}
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key.keep($("key").value.trim());
  $("key").value = "";
  $("key-form").hidden = true;
  $("status").textContent = "";
  look();
});
$("forget-key").addEventListener("click", () => { key.forget(); location.reload(); });

// ------------------------------------------------------------------------------ address and clockwork

const REMEMBERED = { halfLife: Number, width: Number, scale: Number, exponent: Number, text: String };

let remembering = 0;

// Browsers limit how often the address may change.
function remember() {
  clearTimeout(remembering);
  remembering = setTimeout(writeAddress, REMEMBER_MS);
}

function writeAddress() {
  const { decay } = state;
  const parts = new URLSearchParams({ stream: state.stream.name });
  if (state.touched && !fixedDecay()) {
    parts.set("kind", decay.kind);
    for (const field of Object.keys(REMEMBERED)) parts.set(field, decay[field]);
  }
  if (state.mode !== "newest") parts.set("now", state.mode === "live" ? "live" : state.unit.toStream(state.chosen));
  history.replaceState(null, "", `#${parts}`);
}

function recall() {
  const parts = new URLSearchParams(location.hash.slice(1));
  if (KINDS.includes(parts.get("kind"))) {
    state.touched = true;
    state.decay.kind = parts.get("kind");
    state.wished.kind = state.decay.kind;
    for (const [field, read] of Object.entries(REMEMBERED)) {
      const value = read(parts.get(field) ?? NaN);
      if (read === String ? parts.has(field) : value > 0 && Number.isFinite(value)) state.decay[field] = value;
    }
  }
  if (parts.get("now") === "live") state.wished.mode = "live";
  const chosen = parts.get("now");
  return { stream: parts.get("stream"), chosen: /^-?[0-9]+$/.test(chosen ?? "") ? Number(chosen) : null };
}

// What there is; and the chosen stream again where it changed.
async function look() {
  try {
    const { streams } = await request("/v1/streams");
    $("forget-key").hidden = !key.held;
    if (!$("key-form").hidden) $("key-form").hidden = true;
    state.streams = streams;
    const held = streams.find((each) => each.name === state.stream?.name);
    if (held && held.digest !== state.stream.digest) await chooseStream(held.name, false);
    else if (!state.stream && streams.length) await firstStream(streams);
    showStreams();
  } catch (error) {
    failed(error);
  }
}

async function firstStream(streams) {
  const { stream, chosen } = recall();
  const wanted = streams.find((each) => each.name === stream)
    ?? streams.reduce((best, each) => (each.rows > best.rows ? each : best));
  await chooseStream(wanted.name, false);
  if (chosen !== null && wanted.name === stream) pickTime(state.unit.fromStream(chosen));
}

const waitsForKey = () => !$("key-form").hidden;

setInterval(() => { if (!document.hidden && !waitsForKey()) look(); }, LOOK_MS);
setInterval(() => { if (!document.hidden && !waitsForKey() && state.stream && state.mode === "live" && !state.textFault) askNow(); }, LIVE_MS);
setInterval(() => {
  if (!document.hidden && !waitsForKey() && state.stream && state.mode === "live" && !state.textFault) askOverTime();
}, LIVE_SERIES_MS);
new ResizeObserver(() => { if (state.points) showCurve(state.points); }).observe($("curve"));

showTheme();
look();
