// The page: what is chosen, what is asked when it changes, and where the answers go.

import { addressNow, recall, remember } from "./address.js";
import { OneAlert } from "./alert.js";
import { Alerts } from "./alerts.js";
import { AnyQuestion } from "./asking.js";
import { LineChart } from "./charts.js";
import { conditions, hasColumns, numberColumns } from "./columns.js";
import { Completion } from "./complete.js";
import { ageAxis, closedForm, draw, tableRows, toAge, toShare } from "./curve.js";
import { curveOfText, described, formula, LENGTH } from "./decay.js";
import { AlertForm, watchable } from "./define.js";
import { Coverage } from "./coverage.js";
import { askDevices, hasDevices, showDevices } from "./devices.js";
import { Groups } from "./groups.js";
import { key, mayPass, Newest, reasonOf, request, requestAgain, streamPath } from "./http.js";
import { askSparks, onChoice, showStreams, spanOf } from "./list.js";
import { SourceFunctions } from "./functions.js";
import { Lists } from "./lists.js";
import { element } from "./nodes.js";
import { estimateParts, keyText, showFigures, showHitters, showKeys, showPrefixes, showSkew, showTable, tableOf } from "./panels.js";
import {
  askFigures, askKey, askSeries, familyOf, findsKeys, hasCoverage, hasFixedDecay, hasLabels, hasPast, hasRows, keyOf, learnFamilies, questionsOf, restricted,
  oldestAge, seriesLabel, seriesOf,
} from "./questions.js";
import { Service } from "./service.js";
import { SourceChoice } from "./source.js";
import { Sources } from "./sources.js";
import {
  $, askedNow, check, chosenRows, fixedDecay, kindsOf, latest, mayAsk, newestData, radio, serviceDecay, shownNow, state, subject, timesOf,
} from "./state.js";
import { copy, takings } from "./taking.js";
import { askVersus, isCompared, offerAgo, showVersus } from "./versus.js";
import { number, told, Unit, zone } from "./units.js";

const LIVE_MS = 1000; // a moving clock is asked this often
const LIVE_SERIES_MS = 5000;
const LOOK_MS = 3000; // for new posts
const STREAMS_ASKED = 1000;
const TYPING_MS = 150;
const ANNOUNCE_MS = 1000;
const SLIDER = 1000;

// ------------------------------------------------------------------------------------------ asking

function failed(error) {
  if (isMet(error)) return;
  $("ask-error").textContent = reasonOf(error);
  if ($("figures").dataset.of !== subject()) clearFigures();
  const { at } = $("figures").dataset;
  showStale(at ? `not answered · shown since ${at}` : "not answered");
}

// What any question may meet is said in one place, whether or not others meet it too.
function isMet(error) {
  if (error.status === 401) { askForKey(); return true; }
  const condition = state.where && error.faults?.find(({ field }) => /where$/.test(field ?? ""));
  if (condition) { noCondition(condition.reason); return true; }
  if (state.source && error.faults?.some(({ field }) => field === "source")) { noSource(); return true; }
  askAgainAfter(error);
  return false;
}

// Of what may pass it is known at the next look at the streams.
function askAgainAfter(error) {
  if (mayPass(error)) state.away = true;
}

// The numbers shown are of an earlier question, and that is said; "": they are not.
function showStale(why) {
  $("answers").classList.toggle("stale", why !== "");
  if (why !== "") $("status").textContent = why;
}

// Numbers of another stream, once this one refused: they would stand under its name.
function clearFigures() {
  for (const id of ["hitters", "keys", "skew"]) $(`${id}-panel`).hidden = true;
  $("figures").replaceChildren();
  state.figures = [];
  for (const each of ["shape", "of", "at"]) delete $("figures").dataset[each];
}

const DRAWN = ["count-panel", "quantile-panel", "key-panel", "versus-panel", "devices-panel", "any-panel", "groups-panel"];

// A drawing stays until another one takes its place, and says of when it is, and of which stream where
// that is another, while that is awaited.
function showOld(panel, why) {
  const { at, of } = $(panel).dataset;
  $(panel).classList.add("old");
  const drawn = of === subject() ? `drawn at ${at}` : `drawn at ${at} of ${of}`;
  $(panel).querySelector(".age").textContent = of ? `${drawn} · ${why}` : why;
}

// What is drawn is of this stream, and of now.
function drawnNow(panel) {
  Object.assign($(panel).dataset, { of: subject(), at: clockTime() });
}

const clockTime = () => new Date().toISOString().slice(11, 19);

// What cannot be drawn now: the last drawing, if it is of this stream, is kept beside the reason.
function undrawn(panel, error) {
  if (isMet(error)) return;
  const text = reasonOf(error);
  if ($(panel).dataset.of !== subject()) { note(panel, text); return; }
  const said = $(panel).querySelector(".note");
  said.textContent = text;
  said.hidden = false;
  showOld(panel, "not answered");
}

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
    showStale("");
    Object.assign($("figures").dataset, { of: subject(), at: clockTime() });
    showFigures($("figures"), answer.figures, { now: answer.now, decay });
    state.figures = answer.figures;
    $("hitters-panel").hidden = answer.hitters === null;
    if (answer.hitters) showHitters($("hitters"), answer.hitters, question.phi);
    if (familyOf(stream).keys) showCounters(answer, question.phi);
    $("status").textContent = `answered in ${Math.max(1, Math.round(ms))} ms`;
    showNow(state.unit.fromStream(answer.now));
    announce(answer.figures);
  },
  failed,
  () => showStale("asking …"),
);

const series = new Newest(
  (signal, stream, question) => askSeries(stream, question, signal),
  (answer, _ms, stream) => showSeries(stream, answer),
  (error) => { for (const id of ["count-panel", "quantile-panel"]) undrawn(id, error); },
  () => { for (const id of ["count-panel", "quantile-panel"]) showOld(id, "asking"); },
);

// What asks for a panel that shows one table of now. show(answer, stream) -> the table.
function tableOfNow(id, ask, show) {
  const asks = new Newest(
    (signal, stream, question) => ask(stream, question, signal),
    (answer, _ms, stream) => {
      note(`${id}-panel`, "");
      asks.table = show(answer, stream);
      drawnNow(`${id}-panel`);
    },
    (error) => undrawn(`${id}-panel`, error),
    () => showOld(`${id}-panel`, "asking"),
  );
  asks.table = null; // until there is one
  return asks;
}

const versus = tableOfNow("versus", askVersus, (answer, stream) => showVersus($("versus"), answer, stream));
const devices = tableOfNow("devices", askDevices, (answer) => showDevices($("devices"), answer, state.unit));

const grouping = new Groups((typed) => { remember(); askGroupsNow(typed ? TYPING_MS : 0); });
const groups = new Newest(
  (signal, stream, question) => Groups.ask(signal, stream, question),
  (answer, _ms, _stream, question) => {
    note("groups-panel", "");
    $("by-error").textContent = "";
    grouping.show(answer, question);
    drawnNow("groups-panel");
  },
  (error) => {
    if (isMet(error)) return;
    $("by-error").textContent = reasonOf(error);
    if ($("groups-panel").dataset.of) showOld("groups-panel", "not answered");
  },
  () => { if ($("groups-panel").dataset.of) showOld("groups-panel", "asking"); },
);

const overTime = new Newest(
  (signal, stream, question) => askKey(stream, question, signal),
  ({ times, counts }, _ms, _stream, { key: asked }) => {
    const seconds = times.map((time) => state.unit.fromStream(time));
    show("key", keyChart, seconds, [line(keyText(asked), counts, true)], false);
  },
  (error) => undrawn("key-panel", error),
  () => showOld("key-panel", "asking"),
);

const any = new AnyQuestion($("any-panel"), (debounceMs = TYPING_MS) => askAny(debounceMs));

const found = new Newest(
  (signal, stream, query, _question, source) => AnyQuestion.ask(signal, stream, { ...query, ...restricted(chosenRows(), query.aggregate) }, source),
  (answer, _ms, _stream, _query, question) => {
    note("any-panel", "");
    any.answer(answer, question, state.unit);
    drawnNow("any-panel");
  },
  (error) => {
    if (isMet(error)) return;
    if ($("any-panel").dataset.of === subject()) showOld("any-panel", "not answered");
    else { note("any-panel", ""); any.clear(); }
    any.fail(reasonOf(error));
  },
  () => showOld("any-panel", "asking"),
);

// ------------------------------------------------------------------------------ alerts and operating

const refused = (error) => { if (error.status === 401) askForKey(); };

const allAlerts = new Alerts($("all-alerts"), { caption: "Alerts of all streams", streams: true, chosen: openAlert });
const ownAlerts = new Alerts($("own-alerts"), { caption: "Alerts of this stream", streams: false, chosen: openAlert });
const oneAlert = new OneAlert($("alert"), { gone: () => { state.alert = null; remember(); lookAtAlerts(); }, failed: refused });
const sources = new Sources($("sources"), { failed: refused });
const coverage = new Coverage($("coverage"), { failed: refused });
const lists = new Lists($("lists"), { failed: refused });
const functions = new SourceFunctions($("functions"), { failed: refused });
new Service($("service"), $("service-button"));
const alertForm = new AlertForm($("define"), {
  stream: () => state.stream.name, decay: serviceDecay, decayFault: () => state.decayFault,
  defined: ({ monitor }) => { showForm(false); openAlert(state.stream.name, monitor); lookAtAlerts(); },
});

async function openAlert(stream, monitor) {
  state.view = "alerts";
  state.alert = monitor;
  if (state.stream?.name === stream) present();
  else await chooseStream(stream, true);
  $("alert").scrollIntoView({ block: "nearest" });
}

async function lookAtAlerts() {
  try {
    state.caller ??= await request("/v1/caller");
    state.alerts = (await requestAgain("/v1/monitors")).monitors;
  } catch (error) {
    refused(error);
    $("alerts-says").textContent = "Not heard of now.";
    $("alerts").classList.add("stale");
    return;
  }
  $("alerts").classList.remove("stale");
  showAlerts();
}

function showAlerts() {
  const { alerts, stream } = state;
  const count = (held) => alerts.filter((each) => each.state === held).length;
  $("alerts").hidden = alerts.length === 0;
  $("alerts-says").textContent = `${count("firing")} firing, ${count("uncertain")} uncertain, ${count("calm")} calm`;
  allAlerts.show(alerts);
  const own = alerts.filter((each) => each.stream === stream?.name);
  $("no-alerts").hidden = own.length > 0;
  $("own-alerts").hidden = own.length === 0;
  ownAlerts.show(own, state.alert);
  const questions = stream ? watchable(stream) : [];
  $("unwatchable").hidden = !stream || questions.length > 0;
  $("no-alerts").hidden ||= questions.length === 0;
  $("define-button").hidden = state.caller?.role !== "admin" || questions.length === 0;
  if (state.view === "alerts" && !state.alert && own.length) {
    state.alert = own[0].monitor;
    showView();
    ownAlerts.show(own, state.alert);
  }
}

function showForm(open) {
  $("define").hidden = !open;
  $("define-button").setAttribute("aria-expanded", open);
  if (!open) return;
  alertForm.offer(watchable(state.stream));
  $("define").querySelector("input").focus();
}
$("define-button").addEventListener("click", () => showForm($("define").hidden));

// What is looked at of the stream, and nothing else is asked for.
function showView() {
  const { view, stream, alert } = state;
  check("view", view);
  $("columns").hidden = view === "sources" || view === "lists" || view === "coverage";
  $("columns").dataset.view = view;
  $("answers").hidden = view !== "answers";
  $("stream-alerts").hidden = view !== "alerts";
  if (view === "sources") sources.watch(stream.name);
  else sources.leave();
  if (view === "lists") lists.watch(stream.name);
  else lists.leave();
  if (view === "lists") functions.watch(stream.name);
  else functions.leave();
  if (view === "coverage") coverage.watch(stream.name);
  else coverage.leave();
  if (view === "alerts" && alert) oneAlert.watch(stream.name, alert);
  else oneAlert.leave();
}

$("views").addEventListener("change", () => {
  state.view = radio("view");
  present();
  lookAtAlerts();
});

const curve = new Newest(
  (signal, text, unit, oldest) => curveOfText(text, unit, oldest, signal),
  ({ points }, _ms, text) => {
    state.decayFault = null;
    showFault("");
    showCurve(points, false);
    if (text === state.decay.text) { askAnswers(); askSparks(); }
  },
  (error) => {
    if (error.status === 401) { askForKey(); return; }
    noDecay(error.faults?.[0]?.reason ?? error.message, "the formula is none");
  },
);

// What is asked for of the answers.
const ASKED = [figures, versus, devices, series, overTime, found, groups];

// What is shown stays, and says that it is not of what is written.
function notAsked(why) {
  for (const each of ASKED) each.cancel();
  if ($("figures").dataset.of !== subject()) clearFigures();
  showStale(`not asked: ${why}`);
  showNow(shownNow());
  for (const each of DRAWN) showOld(each, "not asked");
}

function noDecay(fault, why) {
  state.decayFault = fault;
  showFault(fault);
  $("curve").classList.add("stale");
  notAsked(why);
}

function ask(debounceMs = 0) {
  if (!state.stream) return;
  remember();
  if (state.decay.kind === "expression" && !fixedDecay()) {
    for (const each of ASKED) each.cancel();
    if (state.decay.text.trim() === "") {
      curve.cancel();
      noDecay("write a formula of the age x", "there is no formula");
      return;
    }
    curve.put([state.decay.text, state.unit, state.axis.oldest], debounceMs); // then the answers
    return;
  }
  curve.cancel();
  if (state.lengthTyped !== null && !fixedDecay()) {
    noDecay(state.unit.faultOfDuration(state.lengthTyped), `the ${LENGTH[state.decay.kind][1].toLowerCase()} is none`);
    return;
  }
  state.decayFault = null;
  showFault("");
  if (!fixedDecay()) showCurve(closedForm(state.decay, state.axis), true);
  askAnswers(debounceMs);
  askSparks();
}

function askAnswers(debounceMs = 0) {
  if (state.nowFault !== null) { notAsked("the time is none"); return; }
  if (state.sourceFault !== null) { notAsked("there is no such source"); return; }
  askNow(debounceMs);
  askOverTime(debounceMs);
}

function askNow(debounceMs = 0) {
  const { stream, confidence, phi, source } = state;
  if (state.view !== "answers" || !mayAsk()) return;
  figures.put([stream, { decay: serviceDecay(), now: askedNow(), confidence, phi, source, rows: chosenRows() }], debounceMs);
  askGroupsNow(debounceMs);
  askVersusNow(debounceMs);
  askDevicesNow(debounceMs);
  askAny(debounceMs);
}

function askGroupsNow(debounceMs = 0) {
  const { stream, confidence, source } = state;
  if ($("groups-panel").hidden || !mayAsk()) { groups.cancel(); return; }
  const question = grouping.question({ decay: serviceDecay(), now: askedNow(), confidence, source, ...chosenRows() });
  $("groups-found").hidden = question === null;
  if (question) groups.put([stream, question], debounceMs);
  else { groups.cancel(); $("by-error").textContent = ""; note("groups-panel", ""); delete $("groups-panel").dataset.of; }
}

// The rows that are asked about, and the column.
new Completion($("where"), (before) => conditions(state.stream, state.unit)(before));
$("where").addEventListener("input", () => { state.where = $("where").value; showWhereFault(null); ask(TYPING_MS); });
$("of").addEventListener("change", () => { state.of = $("of").value; ask(); });

function showRows(stream) {
  const rows = hasRows(stream);
  $("rows-field").hidden = !rows;
  $("groups-panel").hidden = !rows;
  const numbers = rows && hasColumns(stream) ? numberColumns(stream) : [];
  if (!rows) Object.assign(state, { where: "", by: "" });
  if (!numbers.includes(state.of)) state.of = numbers[0] ?? "";
  $("of-field").hidden = numbers.length < 2;
  $("of").replaceChildren(...numbers.map((name) => element("option", { value: name }, name)));
  $("of").value = state.of;
  if ($("where").value !== state.where) $("where").value = state.where;
  if (rows) grouping.offer(stream);
}

function showWhereFault(fault) {
  state.whereFault = fault;
  $("where").setAttribute("aria-invalid", fault !== null);
  $("where-error").textContent = fault ?? "";
}

function noCondition(reason) {
  showWhereFault(reason);
  notAsked("the filter cannot be read");
}

function askVersusNow(debounceMs = 0) {
  const { stream, unit, confidence, source } = state;
  if ($("versus-panel").hidden || !mayAsk()) { versus.cancel(); return; }
  const length = unit.toStream(Number($("versus-ago").value));
  versus.put([stream, { decay: serviceDecay(), now: askedNow(), confidence, ago: length, source }], debounceMs);
}
$("versus-ago").addEventListener("change", () => askVersusNow());

function askDevicesNow(debounceMs = 0) {
  const { stream, unit } = state;
  if ($("devices-panel").hidden || !mayAsk()) { devices.cancel(); return; }
  const now = askedNow() ?? unit.toStream(unit.clock());
  devices.put([stream, { width: $("devices-width").value, now, listed: $("devices-listed").value }], debounceMs);
}
for (const id of ["devices-width", "devices-listed"]) $(id).addEventListener("change", () => askDevicesNow());

function askAny(debounceMs) {
  if (!mayAsk()) return;
  const [decay, now] = [serviceDecay(), askedNow()];
  const question = any.with({ confidence: state.confidence, ...(decay && { decay }), ...(now !== null && { now }) });
  if (question) found.put([...question, state.source], debounceMs);
  else found.cancel();
}

function askOverTime(debounceMs = 0) {
  const { stream, confidence, source } = state;
  if (state.view !== "answers" || !mayAsk()) return;
  if (fixedDecay()) {
    const since = stream.clock === null ? "" : ` from ${state.unit.time(state.unit.fromStream(stream.clock))} on`;
    note("count-panel", `A stream with a fixed decay forgets what has expired: it answers${since}, and has no past to draw.`);
    return;
  }
  if (!hasPast(stream)) {
    note("count-panel", "The largest and least values are known as of the newest observation alone: there is no past to draw.");
    return;
  }
  series.put([stream, { decay: serviceDecay(), times: timesAsked(), confidence, source, rows: chosenRows() }], debounceMs);
  askOneKey(debounceMs);
}

// Counters of keys answer for the past as far as their windows do not reach back beyond what is kept.
function timesAsked() {
  const { stream, unit, decay, span } = state;
  const times = timesOf(unit, latest(), span);
  const most = familyOf(stream).keys ? oldestAge(stream) : null;
  if (!most || stream.clock === null || decay.kind !== "window") return times;
  const first = stream.clock - most + unit.toStream(decay.width);
  const steps = Math.max(0, Math.floor((times.stop - first) / times.step));
  return { ...times, start: Math.max(times.start, times.stop - steps * times.step) };
}

function askOneKey(debounceMs = 0) {
  const { stream, confidence, source } = state;
  if (!familyOf(stream).keys || !mayAsk()) { overTime.cancel(); return; }
  if (state.key === "") {
    overTime.cancel();
    note("key-panel", findsKeys(stream) ? "Choose a key above, or write one." : "Write a key.");
    return;
  }
  const question = { decay: serviceDecay(), times: timesAsked(), confidence, source, key: keyOf(state.key) };
  overTime.put([stream, question], debounceMs);
}

// What is said of the keys at one time; the heaviest stands for one over time until another is chosen.
function showCounters({ figures: told, heaviest, prefixes }, phi) {
  const [total, join] = ["key_total", "self_join"].map((id) => told.find((each) => each.id === id).estimate);
  $("skew-panel").hidden = false;
  showSkew($("skew"), total, join);
  $("keys-panel").hidden = heaviest === null;
  if (heaviest === null) return;
  showKeys($("keys"), heaviest, total.value, phi, pickKey);
  showPrefixes($("prefixes"), prefixes, total.value, phi);
  if (state.key === "" && heaviest.length) pickKey(heaviest[0].key);
}

function pickKey(chosen) {
  state.key = keyText(chosen);
  $("one-key").value = state.key;
  askOneKey();
}

// ----------------------------------------------------------------------------------------- showing

function note(panel, text) {
  const found = $(panel).querySelector(".note");
  found.textContent = text;
  found.hidden = text === "";
  if (text !== "") for (const each of ["of", "at"]) delete $(panel).dataset[each]; // nothing is drawn
  $(panel).classList.toggle("without-chart", text !== "");
  $(panel).classList.remove("old");
  $(panel).querySelector(".age").textContent = "";
}

const countChart = new LineChart($("count-chart"), {
  fromZero: true, picked: pickTime, read: (text) => { $("count-key").textContent = text || $("count-key").dataset.text; },
});
const quantileChart = new LineChart($("quantile-chart"), {
  fromZero: false, picked: pickTime, read: (text) => { $("quantile-key").textContent = text || $("quantile-key").dataset.text; },
});

const keyChart = new LineChart($("key-chart"), {
  fromZero: true, picked: pickTime, read: (text) => { $("key-key").textContent = text || $("key-key").dataset.text; },
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

const files = new Map(); // what a chart shows, to be taken along

function show(name, chart, times, lines, between) {
  const panel = `${name}-panel`;
  const title = $(`${name}-title`).textContent;
  const known = lines.flatMap((each) => each.estimates).filter((each) => each.value !== null);
  const exact = known.length > 0 && known.every((each) => each.exact);
  note(panel, known.length ? "" : "No observation has weight in this span.");
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
  Object.assign($(panel).dataset, {
    points: times.length, exact, last: lines[0].values.at(-1) ?? "",
  });
  drawnNow(panel);
  files.set(name, {
    name: `${subject()}-${name}`,
    columns: ["time", "at", ...lines.flatMap((each) => Object.keys(estimateParts(each.label)))],
    rows: times.map((time, i) => [state.unit.toStream(time), state.unit.time(time),
      ...lines.flatMap((each) => Object.values(estimateParts(each.label, () => each.estimates[i])).map((part) => part()))]),
  });
  showTable($(panel).querySelector(".as-table"), title,
    ["Time", ...lines.flatMap((each) => [each.label, "lower", "upper"])],
    times.map((time, i) => [state.unit.time(time),
      ...lines.flatMap(({ estimates }) => {
        const each = estimates[i];
        if (each.value === null) return ["–", "–", "–"];
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
  $("define-decay").textContent = fixedDecay() ? "that of the stream" : formula(decay, unit).filter(Boolean).join(" to the power of ");
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
    if (document.activeElement !== $("age-text") && state.lengthTyped === null) $("age-text").value = text;
  }
  $("exponent").value = decay.exponent;
  $("exponent-text").textContent = decay.exponent;
  if ($("expression").value !== decay.text) $("expression").value = decay.text;
}

function showNow(at) {
  const end = latest();
  if (document.activeElement !== $("now-text") && state.nowFault === null) $("now-text").value = state.unit.time(at);
  $("now-slider").value = SLIDER * Math.min(1, Math.max(0, 1 - (end - at) / state.span));
  const ago = end - at;
  $("now-slider").setAttribute("aria-valuetext",
    ago < state.unit.scale ? "at the end of the charts" : `${state.unit.duration(ago)} before the end`);
  for (const each of [countChart, quantileChart, keyChart]) each.moveNow(at);
}

// ---------------------------------------------------------------------------------- choosing a stream

let choosing = null;

// Of another stream than before all sources are asked for, or the one that is given.
async function chooseStream(name, moved, source = "") {
  choosing?.abort();
  choosing = new AbortController();
  const { signal } = choosing;
  for (const each of [...ASKED, curve]) each.cancel();
  try {
    const stream = await request(streamPath(name), undefined, signal);
    const unit = new Unit(stream.params.time_unit);
    const newest = newestData(stream);
    const before = state.stream;
    Object.assign(state, { stream, unit });
    $("no-such-stream").textContent = "";
    if (before?.name !== name) {
      state.key = "";
      $("one-key").value = "";
      state.lengthTyped = null;
      state.source = source;
      if (before) Object.assign(state, { where: "", of: "", by: "" }); // they are of the columns of another
      showWhereFault(null);
      showNowFault(null);
    }
    showSourceFault(null); // it may have posted since
    if (before && before.name !== name) {
      showStale("asking …");
      for (const each of DRAWN) showOld(each, "asking");
    }
    if (before?.name !== name || newestData(before) === null) {
      state.mode = state.wished.mode === "live" && !unit.hasClock ? "newest" : state.wished.mode;
      if (newest === null && state.mode === "newest" && unit.hasClock) state.mode = "live";
      state.fitted = unit.hasClock ? 3600 : 1000;
      if (!hasFixedDecay(stream) && stream.rows > 0) {
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
  const most = oldestAge(stream);
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

function nice(length) {
  const lengths = state.unit.niceLengths.filter((each) => each >= state.unit.scale);
  return lengths.reduce((best, each) => (Math.abs(Math.log(each / length)) < Math.abs(Math.log(best / length)) ? each : best));
}

function present() {
  const { stream, unit } = state;
  const fixed = stream.decay;
  $("detail").hidden = false;
  $("stream-name").textContent = stream.name;
  const sources = stream.source_count;
  $("stream-facts").textContent = [
    `family ${stream.family}`, `capacity ${number(stream.params.capacity)}`, `${number(stream.rows)} rows`,
    `${sources} ${sources === 1 ? "source" : "sources"}`, `${number(stream.bytes)} bytes`, `times in ${unit.name}`,
  ].join(" · ");
  $("decay-fixed").hidden = !fixed && !oldestAge(stream);
  $("decay-fixed").textContent = fixed
    ? `The decay of this stream is fixed: ${described(fixed, unit)}. Its sketches were built for it, and no question changes it.`
    : oldestAge(stream)
      ? `This stream was built for windows of up to ${unit.duration(unit.fromStream(oldestAge(stream)))}.` : "";
  $("decay-control").hidden = Boolean(fixed);
  $("curve-table").hidden = Boolean(fixed);
  $("count-title").textContent = hasPast(stream) || fixed ? `${seriesLabel(stream)} over time` : "Over time";
  $("quantile-panel").hidden = !familyOf(stream).values || Boolean(fixed);
  $("range-field").hidden = Boolean(fixed);
  $("past").hidden = Boolean(fixed);
  $("now-zone").hidden = $("zone-field").hidden = !unit.hasClock;
  $("now-zone").textContent = ` (${zone.name})`;
  $("zone").value = zone.name;
  $("decayed-says").hidden = Boolean(fixed) || !("count" in questionsOf(stream));
  for (const each of document.querySelectorAll('input[name="kind"]')) each.disabled = !kindsOf(stream).includes(each.value);
  showRows(stream);
  $("versus-panel").hidden = state.where !== "" || hasColumns(stream) || !(isCompared(stream, unit) && offerAgo($("versus-ago"), stream, unit));
  showSource();
  $("hitters-panel").hidden = !familyOf(stream).hitters;
  $("hitters-title").textContent = hasLabels(stream) ? "Most frequent labels" : "Heavy hitters";
  $("key-panel").hidden = !familyOf(stream).keys;
  $("keys-panel").hidden = !findsKeys(stream);
  $("skew-panel").hidden = !familyOf(stream).keys;
  $("key-says").textContent = findsKeys(stream)
    ? "An integer." : "A text, an integer, or a list of these such as [\"JFK\", \"LAX\"]; a text of digits in quotes.";
  $("expression-unit").textContent = ` in ${unit.name}`;
  document.querySelector('input[name="mode"][value="live"]').disabled = !unit.hasClock;
  document.querySelector('input[name="mode"][value="newest"]').disabled = newestData(stream) === null;
  check("mode", state.mode);
  any.show(stream);
  $("coverage-view").hidden = !hasCoverage(stream);
  if (state.view === "coverage" && !hasCoverage(stream)) state.view = "answers";
  showView();
  showRanges();
  showExamples();
  showDecay();
  showStreams();
  ask();
}

function showSource() {
  const { stream, unit, source } = state;
  sourceChoice.show(stream, source);
  const told = hasDevices(stream, unit);
  $("devices-panel").hidden = !told || source !== "";
  $("source-says").hidden = !told || source === "";
  $("answers-of").hidden = $("source-field").hidden;
  $("answers-of").textContent = source ? `Answers of the source ${source} alone` : `Answers of all ${number(stream.source_count)} sources together`;
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
  const most = oldestAge(state.stream);
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
  const mended = state.nowFault !== null;
  showNowFault(null);
  showNow(state.chosen);
  if (mended) ask(); // for all that was not asked meanwhile
  else askNow();
}

function showNowFault(fault) {
  state.nowFault = fault;
  $("now-text").setAttribute("aria-invalid", fault !== null);
  $("now-error").textContent = fault ?? "";
}

$("kinds").addEventListener("change", () => {
  const kind = radio("kind");
  state.wished.kind = kind;
  state.lengthTyped = null;
  changeDecay({ kind });
  if (kind === "expression") $("expression").focus();
});
$("age-slider").addEventListener("input", (event) => {
  const [field] = LENGTH[state.decay.kind];
  const age = toAge(state.axis, event.target.valueAsNumber / SLIDER);
  const whole = Number(age.toPrecision(3));
  state.lengthTyped = null;
  changeDecay({ [field]: state.unit.hasClock ? whole : Math.max(1, Math.round(whole)) });
});
$("age-text").addEventListener("input", (event) => {
  const typed = event.target.value;
  const length = state.unit.parseDuration(typed);
  state.lengthTyped = length === null ? typed : null;
  if (length === null) ask();
  else changeDecay({ [LENGTH[state.decay.kind][0]]: length }, TYPING_MS);
});
$("age-text").addEventListener("change", (event) => {
  if (state.lengthTyped !== null) return; // it stays, to be mended
  event.target.blur();
  showDecay();
  ask();
});
$("exponent").addEventListener("input", (event) => changeDecay({ exponent: event.target.valueAsNumber }));
$("expression").addEventListener("input", (event) => changeDecay({ text: event.target.value }, TYPING_MS));

$("modes").addEventListener("change", () => {
  const before = shownNow();
  showNowFault(null);
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
  if (at === null) {
    const form = state.unit.hasClock ? `one such as 2026-01-31 12:00:00 (${zone.name})` : `a whole number of ${state.unit.name}`;
    showNowFault(`'${event.target.value.trim()}' is no time: write ${form}`);
    ask();
    return;
  }
  event.target.blur();
  pickTime(at);
});
const sourceChoice = new SourceChoice($("source-field"), {
  chosen: (name) => {
    if (name === state.source && state.sourceFault === null) return;
    for (const each of ASKED) each.cancel(); // answers on the way are of others
    state.source = name;
    showSourceFault(null);
    showSource();
    showStale("asking …");
    for (const each of DRAWN) showOld(each, "asking");
    ask();
  },
  failed: refused,
});

function showSourceFault(fault) {
  state.sourceFault = fault;
  sourceChoice.fail(fault ?? "");
}

function noSource() {
  showSourceFault(`there is no source '${state.source}' in this stream: choose another, or none for all`);
  notAsked("there is no such source");
}

$("zone").addEventListener("change", () => { zone.choose($("zone").value); addressNow(); location.reload(); });
$("range").addEventListener("change", (event) => { state.span = Number(event.target.value); remember(); showNow(shownNow()); askOverTime(); });
$("confidence").addEventListener("change", (event) => { state.confidence = Number(event.target.value); ask(); });
$("phi").addEventListener("change", (event) => { state.phi = Number(event.target.value); askNow(); });

$("keys-phi").addEventListener("change", (event) => { state.phi = Number(event.target.value); askNow(); });
$("one-key").addEventListener("input", (event) => { state.key = event.target.value.trim(); askOneKey(TYPING_MS); });

// -------------------------------------------------------------------------------------------- theme

const dark = matchMedia("(prefers-color-scheme: dark)");

function showTheme() {
  const held = localStorage.getItem("decaysketch-theme");
  const isDark = held ? held === "dark" : dark.matches;
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  $("theme").setAttribute("aria-pressed", isDark);
  for (const each of [countChart, quantileChart, keyChart, oneAlert]) each.paint();
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

// --------------------------------------------------------------------------------------- clockwork

// What there is; and the chosen stream again where it changed.
async function look() {
  try {
    await learnFamilies();
    const streams = await allStreams();
    $("forget-key").hidden = !key.held;
    if (!$("key-form").hidden) $("key-form").hidden = true;
    state.streams = streams;
    const held = streams.find((each) => each.name === state.stream?.name);
    const back = state.away;
    state.away = false;
    if (state.stream && !held) leaveStream();
    if (held && held.digest !== state.stream.digest) await chooseStream(held.name, false);
    else if (held && back) ask();
    else if (!state.stream && streams.length) await firstStream(streams);
    showStreams();
    await lookAtAlerts();
  } catch (error) {
    failed(error);
  }
}

// Page by page, each in order of name.
async function allStreams() {
  const streams = [];
  let next = "";
  do {
    const page = await requestAgain(`/v1/streams?limit=${STREAMS_ASKED}&after=${encodeURIComponent(next)}`);
    streams.push(...page.streams);
    next = page.next;
  } while (next);
  return streams;
}

// The one that the address names; the one with the most rows where it names none. In place of one that
// there is not no other is opened: it is looked for again, and the address keeps it, until one is chosen.
async function firstStream(streams) {
  const { stream, source, chosen } = recall();
  if (stream === null) {
    await chooseStream(streams.reduce((best, each) => (each.rows > best.rows ? each : best)).name, false, source);
  } else if (streams.some((each) => each.name === stream)) {
    await chooseStream(stream, false, source);
    if (chosen !== null) pickTime(state.unit.fromStream(chosen));
  } else {
    const seen = key.held ? " that this key may read" : "";
    const said = `There is no stream '${stream}'${seen}: choose one of these.`;
    if ($("no-such-stream").textContent !== said) $("no-such-stream").textContent = said;
  }
}

// It was deleted, or may no longer be read.
function leaveStream() {
  for (const each of [...ASKED, curve]) each.cancel();
  for (const each of [sources, coverage, lists, oneAlert]) each.leave();
  state.stream = null;
  $("detail").hidden = true;
  $("stream-name").textContent = "";
  showStale("asking …"); // once another is chosen
  for (const each of DRAWN) showOld(each, "asking");
  $("status").textContent = "";
}

// An address that was written by hand, or followed, into a page that is open.
addEventListener("hashchange", () => {
  if (new URLSearchParams(location.hash.slice(1)).has("stream")) location.reload();
});

const waitsForKey = () => !$("key-form").hidden;

setInterval(() => { if (!document.hidden && !waitsForKey()) look(); }, LOOK_MS);
setInterval(() => { if (!document.hidden && !waitsForKey() && state.stream && state.mode === "live") askNow(); }, LIVE_MS);
setInterval(() => {
  if (!document.hidden && !waitsForKey() && state.stream && state.mode === "live") askOverTime();
}, LIVE_SERIES_MS);
// Beside the answers the card of the decay stays whole; above them, on a phone, what moves it stays in reach.
function keepInReach() {
  const card = document.querySelector(".decay");
  const reached = ["age-row", "expression-row"].map($).find((each) => each.offsetHeight > 0);
  const above = reached && !$("curve-table").open ? reached.offsetTop : card.offsetHeight;
  card.style.setProperty("--above", `${above}px`);
}
new ResizeObserver(keepInReach).observe(document.querySelector(".decay"));
new ResizeObserver(() => { if (state.points) showCurve(state.points); }).observe($("curve"));

onChoice((name) => { state.alert = null; chooseStream(name, true); });

const listedIn = (id) => () => (figures.asked ? { name: `${$("figures").dataset.of ?? subject()}-${id}`, ...tableOf($(id)).csv() } : null);
takings($("time-panel"), "the figures", {
  asked: () => figures.asked,
  table: () => ({ name: `${$("figures").dataset.of ?? subject()}-figures`, columns: ["figure", ...Object.keys(estimateParts("value"))],
    rows: state.figures.map(({ label, estimate }) => [label, ...Object.values(estimateParts("value", () => estimate)).map((part) => part())]) }),
});
// Of what is drawn in a panel, if anything is; the name of its stream is given.
const drawnIn = (id, take) => () => {
  const { of } = $(`${id}-panel`).dataset;
  return of ? take(of) : null;
};
for (const [id, asks] of [["count", series], ["quantile", series], ["key", overTime]]) {
  takings($(`${id}-panel`), $(`${id}-title`).textContent, { asked: drawnIn(id, () => asks.asked), table: drawnIn(id, () => files.get(id)) });
}
for (const id of ["hitters", "keys"]) {
  takings($(`${id}-panel`), $(`${id}-title`).textContent, { asked: () => figures.asked, table: listedIn(id) });
}
for (const [id, what, asks] of [["versus", "the comparison", versus], ["devices", "the devices", devices]]) {
  takings($(`${id}-panel`), what, {
    asked: drawnIn(id, () => asks.asked), table: drawnIn(id, (of) => ({ name: `${of}-${id}`, ...asks.table.csv() })),
  });
}
takings($("groups-panel"), "the groups", {
  asked: drawnIn("groups", () => groups.asked), table: drawnIn("groups", (of) => ({ name: `${of}-groups`, ...grouping.table.csv() })),
});
$("share").addEventListener("click", () => copy($("share"), addressNow(), "The link"));
takings($("any-panel"), "any question", { asked: () => found.asked, table: drawnIn("any", (of) => any.csv(of)) });
showTheme();
look();
