// A panel of results: of which query its drawing is, and why there is none.

import { register, showOld } from "./hub.js";
import { mayPass, Newest, reasonOf } from "./http.js";
import { $, mayAsk, state, subject } from "./state.js";
import { takings } from "./taking.js";

export const clockTime = () => new Date().toISOString().slice(11, 19);

// A text in place of a drawing. "": the drawing is shown.
export function note(panel, text) {
  const found = $(panel).querySelector(".note");
  found.textContent = text;
  found.hidden = text === "";
  if (text !== "") for (const each of ["of", "at"]) delete $(panel).dataset[each]; // nothing is drawn
  $(panel).classList.toggle("without-chart", text !== "");
  $(panel).classList.remove("old");
  $(panel).querySelector(".age").textContent = "";
}

// The drawing is of this stream, and of now.
export function drawnNow(panel) {
  Object.assign($(panel).dataset, { of: subject(), at: clockTime() });
}

// No result came: the last drawing, if it is of this stream, stays next to the reason.
export function undrawn(panel, error) {
  if (isShown(error)) return;
  const text = reasonOf(error);
  if ($(panel).dataset.of !== subject()) { note(panel, text); return; }
  const shown = $(panel).querySelector(".note");
  shown.textContent = text;
  shown.hidden = false;
  showOld(panel, "not answered");
}

const faults = [];

// `shows(error)`: whether a control shows this fault itself. A fault that every query of the page meets is
// shown once, next to its control.
export const onFault = (shows) => faults.push(shows);

export function isShown(error) {
  if (faults.some((shows) => shows(error))) return true;
  if (mayPass(error)) state.away = true; // the next look at the streams asks again
  return false;
}

// A panel that queries for one table of now: ask(stream, query, signal) -> result, show(result, stream) ->
// table, query() -> the query, or null where a field is empty, which `missing` then explains.
export function tableOfNow(id, { what, ask, show, query, present, missing = "" }) {
  const panel = `${id}-panel`;
  const asks = new Newest(
    (signal, stream, asked) => ask(stream, asked, signal),
    (result, _ms, stream) => {
      note(panel, "");
      asks.table = show(result, stream);
      drawnNow(panel);
    },
    (error) => undrawn(panel, error),
    () => showOld(panel, "asking"),
  );
  asks.table = null; // until there is one
  const now = (ms = 0) => {
    const asked = $(panel).hidden || !mayAsk() ? null : query();
    if (asked !== null) { asks.put([state.stream, asked], ms); return; }
    asks.cancel();
    if (!$(panel).hidden && mayAsk()) note(panel, missing);
  };
  register({ id: panel, present, now, cancel: () => asks.cancel() });
  takings($(panel), what, {
    asked: drawnIn(panel, () => asks.asked), table: drawnIn(panel, (of) => ({ name: `${of}-${id}`, ...asks.table.csv() })),
  });
  return { now };
}

// take(name of the stream) while something is drawn, else null.
export const drawnIn = (panel, take) => () => {
  const { of } = $(panel).dataset;
  return of ? take(of) : null;
};
