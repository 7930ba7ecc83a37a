// The card of the decay: its kind, its length under the thumb, a formula, and the curve of weights by age.

import { ageAxis, closedForm, draw, tableRows, toAge, toShare } from "./curve.js";
import { curveOfText, described, formula, LENGTH } from "./decay.js";
import { ask, askResults, cancelPanels, notAsked, onDecay, register, TYPING_MS } from "./hub.js";
import { Newest } from "./http.js";
import { askSparks } from "./list.js";
import { element } from "./nodes.js";
import { isShown } from "./panel.js";
import { showTable } from "./panels.js";
import { oldestAge } from "./questions.js";
import { $, check, fixedDecay, kindsOf, radio, state } from "./state.js";

const SLIDER = 1000;

const wording = (decay, unit) => formula(decay, unit).filter(Boolean).join(" to the power of ");

const curve = new Newest(
  (signal, text, unit, oldest) => curveOfText(text, unit, oldest, signal),
  ({ points }, _ms, text) => {
    state.decayFault = null;
    showFault("");
    showCurve(points);
    if (text === state.decay.text) { askResults(); askSparks(); }
  },
  (error) => { if (error.status !== 401 || !isShown(error)) noDecay(error.faults?.[0]?.reason ?? error.message, "the formula is none"); },
);

function noDecay(fault, why) {
  state.decayFault = fault;
  showFault(fault);
  $("curve").classList.add("stale");
  notAsked(why);
}

// Checks the decay and draws it. A formula is checked by the service, and the results wait for that.
onDecay((ms) => {
  const fixed = fixedDecay();
  if (state.decay.kind === "expression" && !fixed) { readFormula(ms); return; }
  curve.cancel();
  if (state.lengthTyped !== null && !fixed) {
    noDecay(state.unit.faultOfDuration(state.lengthTyped), `the ${LENGTH[state.decay.kind][1].toLowerCase()} is none`);
    return;
  }
  state.decayFault = null;
  showFault("");
  if (!fixed) showCurve(closedForm(state.decay, state.axis));
  askResults(ms);
  askSparks();
});

function readFormula(ms) {
  cancelPanels();
  if (state.decay.text.trim() !== "") { curve.put([state.decay.text, state.unit, state.axis.oldest], ms); return; }
  curve.cancel();
  noDecay("write a formula of the age x", "there is no formula");
}

function showCurve(points) {
  const length = LENGTH[state.decay.kind];
  const { axis, unit } = state;
  draw($("curve"), { points, axis, unit, mark: length ? state.decay[length[0]] : null });
  $("curve").setAttribute("aria-label", `Weight by age: ${wording(state.decay, unit)}`);
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
  const { decay, unit } = state;
  $("define-decay").textContent = fixedDecay() ? "that of the stream" : wording(decay, unit);
  check("kind", decay.kind);
  $("age-row").hidden = !LENGTH[decay.kind];
  $("exponent-row").hidden = decay.kind !== "polynomial";
  $("expression-row").hidden = decay.kind !== "expression";
  $("examples").hidden = decay.kind !== "expression";
  const [base, raised] = formula(decay, unit);
  $("formula").replaceChildren(...(decay.kind === "expression" ? [] : [base, element("sup", {}, raised)]));
  if (LENGTH[decay.kind]) showLength(...LENGTH[decay.kind]);
  $("exponent").value = decay.exponent;
  $("exponent-text").textContent = decay.exponent;
  if ($("expression").value !== decay.text) $("expression").value = decay.text;
}

function showLength(field, label) {
  const text = state.unit.duration(state.decay[field]);
  $("age-label").textContent = label;
  $("age-slider").value = SLIDER * toShare(state.axis, state.decay[field]);
  $("age-slider").setAttribute("aria-valuetext", text);
  if (document.activeElement !== $("age-text") && state.lengthTyped === null) $("age-text").value = text;
}

function showExamples() {
  const tenth = state.unit.toStream(nice(state.span / 12));
  const texts = [`1/(1 + x/${tenth})`, `exp(-(x/${tenth})**2)`, `where(x <= ${tenth}, 1, 0.2)`];
  const most = oldestAge(state.stream);
  if (most) texts.splice(0, 3, `max(0, 1 - x/${most})`, `where(x <= ${Math.floor(most / 2)}, 1, 0)`);
  $("examples").replaceChildren(...texts.map((text) => {
    const take = element("button", { type: "button", class: "example" }, text);
    take.addEventListener("click", () => changeDecay({ text }));
    return take;
  }));
}

// The span of the charts and the axis of ages, and the decay until it was chosen by hand.
export function fit(span) {
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

function changeDecay(change, ms) {
  Object.assign(state.decay, change);
  state.touched = true;
  showDecay();
  ask(ms);
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
  const age = Number(toAge(state.axis, event.target.valueAsNumber / SLIDER).toPrecision(3));
  state.lengthTyped = null;
  changeDecay({ [field]: state.unit.hasClock ? age : Math.max(1, Math.round(age)) });
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

// Next to the results the card stays whole. Above them, on a phone, its slider stays in reach.
function keepInReach() {
  const card = document.querySelector(".decay");
  const reached = ["age-row", "expression-row"].map($).find((each) => each.offsetHeight > 0);
  const above = reached && !$("curve-table").open ? reached.offsetTop : card.offsetHeight;
  card.style.setProperty("--above", `${above}px`);
}
new ResizeObserver(keepInReach).observe(document.querySelector(".decay"));
new ResizeObserver(() => { if (state.points) showCurve(state.points); }).observe($("curve"));

// What the card says of a stream that does not leave the decay to the query.
function limitOf(stream, unit) {
  if (stream.decay) return `The decay of this stream is fixed: ${described(stream.decay, unit)}. Its sketches were built for it, and no query changes it.`;
  const most = oldestAge(stream);
  return most ? `This stream was built for windows of up to ${unit.duration(unit.fromStream(most))}.` : "";
}

register({
  present(stream, unit) {
    const fixed = Boolean(stream.decay);
    $("decay-fixed").textContent = limitOf(stream, unit);
    $("decay-fixed").hidden = $("decay-fixed").textContent === "";
    $("decay-control").hidden = $("curve-table").hidden = fixed;
    for (const each of document.querySelectorAll('input[name="kind"]')) each.disabled = !kindsOf(stream).includes(each.value);
    $("expression-unit").textContent = ` in ${unit.name}`;
    showExamples();
    showDecay();
  },
});

export const leaveDecay = () => curve.cancel();
