// What is chosen, in the address after #, so that it can be passed on.

import { KINDS } from "./decay.js";
import { isSeries } from "./questions.js";
import { fixedDecay, MOST_OTHERS, state } from "./state.js";

const REMEMBER_MS = 400;

const VIEWS = ["answers", "alerts", "lists", "sources", "coverage"];

const REMEMBERED = { halfLife: Number, width: Number, scale: Number, exponent: Number, text: String };

const SERIES_KINDS = ["counter", "gauge", "state"];

const WRITTEN = ["where", "of", "by"];

let remembering = 0;
let written = location.hash; // by this page

// Browsers limit how often the address may change.
export function remember() {
  clearTimeout(remembering);
  remembering = setTimeout(writeAddress, REMEMBER_MS);
}

// At once, to be copied.
export function addressNow() {
  clearTimeout(remembering);
  writeAddress();
  return location.href;
}

function writeAddress() {
  if (!state.stream) return; // it is gone: the address still says which it was
  if (location.hash !== written && namesStream()) return; // written by hand since, and about to be followed
  const { decay } = state;
  const parts = new URLSearchParams({ stream: state.stream.name });
  if (state.source) parts.set("source", state.source);
  for (const name of WRITTEN) if (state[name]) parts.set(name, state[name]);
  if (state.by && state.aggregate !== "count") parts.set("aggregate", state.aggregate);
  if (state.by && state.times) parts.set("times", "1");
  if (state.others.length) {
    parts.set("with", state.others.join(","));
    if (state.compared !== "count") parts.set("show", state.compared);
  }
  if (isSeries(state.stream)) for (const [name, value] of Object.entries(state.series)) parts.set(`series-${name}`, value);
  if (state.touched && !fixedDecay()) {
    parts.set("kind", decay.kind);
    for (const field of Object.keys(REMEMBERED)) parts.set(field, decay[field]);
  }
  if (state.mode !== "newest") parts.set("now", state.mode === "live" ? "live" : state.unit.toStream(state.chosen));
  if (state.view !== "answers") parts.set("view", state.view);
  if (state.view === "alerts" && state.alert) parts.set("alert", state.alert);
  history.replaceState(null, "", `#${parts}`);
  written = location.hash;
}

export const namesStream = () => new URLSearchParams(location.hash.slice(1)).has("stream");

function recallSeries(parts) {
  const { series } = state;
  if (SERIES_KINDS.includes(parts.get("series-kind"))) Object.assign(series, { kind: parts.get("series-kind"), given: true });
  for (const name of ["validity", "silence"]) {
    const length = Number(parts.get(`series-${name}`));
    if (length > 0 && Number.isFinite(length)) series[name] = length;
  }
  series.states = parts.get("series-states") ?? series.states;
}

export function recall() {
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
  if (VIEWS.includes(parts.get("view"))) state.view = parts.get("view");
  state.alert = parts.get("alert");
  for (const name of WRITTEN) state[name] = parts.get(name) ?? "";
  state.aggregate = parts.get("aggregate") ?? "count";
  state.times = parts.get("times") === "1";
  recallSeries(parts);
  state.others = (parts.get("with") ?? "").split(",").filter(Boolean).slice(0, MOST_OTHERS);
  state.compared = parts.get("show") ?? "count";
  if (parts.get("now") === "live") state.wished.mode = "live";
  const chosen = parts.get("now");
  return { stream: parts.get("stream"), source: parts.get("source") ?? "", chosen: /^-?[0-9]+$/.test(chosen ?? "") ? Number(chosen) : null };
}
