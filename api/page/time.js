// The time of the query: the clock, the newest data, or a chosen time; the span; the confidence; the time zone.

import { addressNow, remember } from "./address.js";
import { ask, askNow, askOverTime, register } from "./hub.js";
import { element } from "./nodes.js";
import { $, check, latest, newestData, radio, shownNow, state } from "./state.js";
import { zone } from "./units.js";

const SLIDER = 1000;

const marks = [];

// `moved(time)`: the time that is shown is another.
export const onNow = (moved) => marks.push(moved);

export function showNow(at) {
  const end = latest();
  if (document.activeElement !== $("now-text") && state.nowFault === null) $("now-text").value = state.unit.time(at);
  $("now-slider").value = SLIDER * Math.min(1, Math.max(0, 1 - (end - at) / state.span));
  const ago = end - at;
  $("now-slider").setAttribute("aria-valuetext",
    ago < state.unit.scale ? "at the end of the charts" : `${state.unit.duration(ago)} before the end`);
  for (const moved of marks) moved(at);
}

export function pickTime(at) {
  state.mode = "chosen";
  state.chosen = state.unit.fromStream(state.unit.toStream(at));
  check("mode", "chosen");
  remember();
  const mended = state.nowFault !== null;
  showNowFault(null);
  showNow(state.chosen);
  if (mended) ask(); // for everything that was not asked meanwhile
  else askNow();
}

export function showNowFault(fault) {
  state.nowFault = fault;
  $("now-text").setAttribute("aria-invalid", fault !== null);
  $("now-error").textContent = fault ?? "";
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
$("zone").addEventListener("change", () => { zone.choose($("zone").value); addressNow(); location.reload(); });
$("range").addEventListener("change", (event) => { state.span = Number(event.target.value); remember(); showNow(shownNow()); askOverTime(); });
$("confidence").addEventListener("change", (event) => { state.confidence = Number(event.target.value); ask(); });
for (const id of ["phi", "keys-phi"]) $(id).addEventListener("change", (event) => { state.phi = Number(event.target.value); askNow(); });

register({
  present(stream, unit) {
    $("range-field").hidden = $("past").hidden = Boolean(stream.decay);
    $("now-zone").hidden = $("zone-field").hidden = !unit.hasClock;
    $("now-zone").textContent = ` (${zone.name})`;
    $("zone").value = zone.name;
    document.querySelector('input[name="mode"][value="live"]').disabled = !unit.hasClock;
    document.querySelector('input[name="mode"][value="newest"]').disabled = newestData(stream) === null;
    check("mode", state.mode);
    showRanges();
  },
  notAsked: () => showNow(shownNow()),
});
