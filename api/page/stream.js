// The chosen stream: how one is chosen, presented, and left.

import { recall } from "./address.js";
import { fit, leaveDecay } from "./decaycard.js";
import { failed } from "./figures.js";
import { ask, cancelPanels, presentPanels, showAllOld, showStale } from "./hub.js";
import { key, request, streamPath } from "./http.js";
import { showStreams, spanOf } from "./list.js";
import { hasFixedDecay } from "./questions.js";
import { fitSeries } from "./series.js";
import { showSourceFault } from "./source.js";
import { $, aboutOf, latest, newestData, state } from "./state.js";
import { pickTime, showNowFault } from "./time.js";
import { number, Unit } from "./units.js";
import { leaveViews, showView } from "./views.js";

const PHONE = "(max-width: 760px)";
const FITTED = { clock: 3600, none: 1000 }; // the span of a stream of which no more is known

let choosing = null;

// Results of another stream are of all its sources, or of the source that is given.
export async function chooseStream(name, moved, source = "") {
  choosing?.abort();
  choosing = new AbortController();
  cancelPanels();
  leaveDecay();
  try {
    await enter(await request(streamPath(name), undefined, choosing.signal), source, choosing.signal);
    present();
    if (moved && matchMedia(PHONE).matches) $("detail").scrollIntoView();
  } catch (error) {
    if (error.name !== "AbortError") failed(error);
  }
}

async function enter(stream, source, signal) {
  const before = state.stream;
  const other = before?.name !== stream.name;
  const unit = new Unit(stream.params.time_unit);
  Object.assign(state, { stream, unit });
  $("no-such-stream").textContent = "";
  if (other) forget(before, source);
  showSourceFault(null); // it may have posted since
  if (other) await fitSeries(stream, unit, signal);
  if (other || newestData(before) === null) await fitTo(stream, unit, signal);
}

// What was chosen for another stream. Its filter and groups name columns that this one may not have.
function forget(before, source) {
  Object.assign(state, { key: "", lengthTyped: null, source });
  showNowFault(null);
  if (!before) return; // the address may have chosen these
  Object.assign(state, { where: "", of: "", by: "" });
  showStale("asking …");
  showAllOld("asking");
}

async function fitTo(stream, unit, signal) {
  const newest = newestData(stream);
  state.mode = state.wished.mode === "live" && !unit.hasClock ? "newest" : state.wished.mode;
  if (newest === null && state.mode === "newest" && unit.hasClock) state.mode = "live";
  state.fitted = unit.hasClock ? FITTED.clock : FITTED.none;
  if (!hasFixedDecay(stream) && stream.rows > 0) {
    state.fitted = await spanOf(stream, unit, newest, signal).catch((error) => {
      if (error.name === "AbortError") throw error;
      return state.fitted;
    });
  }
  fit(state.fitted);
  state.chosen = latest();
}

export function present() {
  const { stream, unit } = state;
  $("detail").hidden = false;
  $("stream-name").textContent = stream.name;
  const { unit: measured, description } = aboutOf(stream);
  $("stream-about").textContent = [description, measured].filter(Boolean).join(", in ");
  const sources = stream.source_count;
  $("stream-facts").textContent = [
    `family ${stream.family}`, `capacity ${number(stream.params.capacity)}`, `${number(stream.rows)} rows`,
    `${sources} ${sources === 1 ? "source" : "sources"}`, `${number(stream.bytes)} bytes`, `times in ${unit.name}`,
  ].join(" · ");
  presentPanels();
  showView();
  showStreams();
  ask();
}

// The stream that the address names, or the one with the most rows where it names none. A stream that does
// not exist is not replaced: the address keeps it, and each look at the streams tries it again.
export async function firstStream(streams) {
  const { stream, source, chosen } = recall();
  if (stream === null) {
    await chooseStream(streams.reduce((best, each) => (each.rows > best.rows ? each : best)).name, false, source);
  } else if (streams.some((each) => each.name === stream)) {
    await chooseStream(stream, false, source);
    if (chosen !== null) pickTime(state.unit.fromStream(chosen));
  } else {
    const seen = key.held ? " that this key may read" : "";
    const text = `There is no stream '${stream}'${seen}: choose one of these.`;
    if ($("no-such-stream").textContent !== text) $("no-such-stream").textContent = text;
  }
}

// It was deleted, or the key may no longer read it.
export function leaveStream() {
  cancelPanels();
  leaveDecay();
  leaveViews();
  state.stream = null;
  $("detail").hidden = true;
  $("stream-name").textContent = "";
  showStale("asking …"); // once another is chosen
  showAllOld("asking");
  $("status").textContent = "";
}
