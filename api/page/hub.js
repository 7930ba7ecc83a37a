// Which panels query when a choice changes. Each panel registers itself here, so that none knows another.

import { remember } from "./address.js";
import { $, mayAsk, state, subject } from "./state.js";

export const TYPING_MS = 150;

const panels = [];

// A panel has the parts that it needs:
//   id: of the element that keeps a drawing until the next one replaces it
//   present(stream, unit): the stream changed, or was posted to
//   now(ms): query for the chosen time, after so long without a newer query
//   overTime(ms): query for the span of the charts
//   cancel(): drop the query under way and the one that waits
//   notAsked(): a choice cannot be read, so no result will come
export function register(panel) {
  panels.push(panel);
  return panel;
}

const tell = (part, ...args) => { for (const each of panels) each[part]?.(...args); };

export const presentPanels = () => tell("present", state.stream, state.unit);
export const cancelPanels = () => tell("cancel");

let readDecay = () => {};

// `read(ms)`: checks the decay that is chosen, and calls `askResults` once it is one.
export const onDecay = (read) => { readDecay = read; };

// Queries for everything that a change of a choice may change.
export function ask(ms = 0) {
  if (!state.stream) return;
  remember();
  readDecay(ms);
}

// The same under a decay that was checked.
export function askResults(ms = 0) {
  if (state.nowFault !== null) notAsked("the time is none");
  else if (state.sourceFault !== null) notAsked("there is no such source");
  else {
    askNow(ms);
    askOverTime(ms);
  }
}

export function askNow(ms = 0) {
  if (state.view === "answers" && mayAsk()) tell("now", ms);
}

export function askOverTime(ms = 0) {
  if (state.view === "answers" && mayAsk()) tell("overTime", ms);
}

// The numbers shown are of an earlier query, and the page says so. "": they are not.
export function showStale(why) {
  $("answers").classList.toggle("stale", why !== "");
  if (why !== "") $("status").textContent = why;
}

// What is shown stays, and says that it is not of what is written.
export function notAsked(why) {
  cancelPanels();
  tell("notAsked");
  showStale(`not asked: ${why}`);
  showAllOld("not asked");
}

export const showAllOld = (why) => { for (const { id } of panels) if (id) showOld(id, why); };

// A drawing stays until another one replaces it. Meanwhile it shows its time, and its stream where that is another.
export function showOld(panel, why) {
  const { at, of } = $(panel).dataset;
  $(panel).classList.add("old");
  const drawn = of === subject() ? `drawn at ${at}` : `drawn at ${at} of ${of}`;
  $(panel).querySelector(".age").textContent = of ? `${drawn} · ${why}` : why;
}
