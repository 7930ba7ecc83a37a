// Whose rows the answers are of: those of all sources of a stream together, or of one. There may be
// thousands: the field suggests the first that are not before what is typed, in order of name.

import { refused } from "./access.js";
import { showDevicesOf } from "./devices.js";
import { ask, cancelPanels, notAsked, register, showAllOld, showStale } from "./hub.js";
import { Newest, reasonOf, request, streamPath } from "./http.js";
import { element } from "./nodes.js";
import { onFault } from "./panel.js";
import { $, state } from "./state.js";
import { number } from "./units.js";

const SUGGESTED = 50;
const TYPING_MS = 150;

// The last text before one: the service lists what comes after a text.
function before(text) {
  const letters = [...text];
  if (!letters.length) return "";
  const last = letters.pop().codePointAt(0);
  return `${letters.join("")}${String.fromCodePoint(last - 1)}\u{10FFFF}`;
}

class SourceChoice {
  #stream = null;
  #suggest = new Newest(
    (signal, stream, typed) => request(streamPath(stream, `?${new URLSearchParams({ sources: SUGGESTED, after_source: before(typed) })}`), undefined, signal),
    ({ sources }) => {
      this.list.replaceChildren(...sources.map(({ source }) => element("option", { value: source })));
      this.#take();
    },
    (error) => { this.list.replaceChildren(); this.#failed(error); },
  );
  #failed;

  // `chosen(name)`: one is, or "" for all; `failed(error)`: no suggestions were to be had.
  constructor(field, { chosen, failed }) {
    this.#failed = (error) => { failed(error); if (error.status !== 401) this.fail(reasonOf(error)); };
    Object.assign(this, { field, chosen });
    this.input = field.querySelector("input");
    this.list = field.querySelector("datalist");
    this.error = field.querySelector(".error");
    const suggest = () => this.#suggest.put([this.#stream, this.input.value.trim()], TYPING_MS);
    this.input.addEventListener("focus", suggest);
    this.input.addEventListener("input", () => {
      this.#take();
      suggest();
    });
    this.input.addEventListener("change", () => chosen(this.input.value.trim()));
  }

  // Of a stream of one source there is nothing to choose.
  show(stream, source) {
    if (stream.name !== this.#stream) { this.#suggest.cancel(); this.list.replaceChildren(); }
    this.#stream = stream.name;
    this.field.hidden = stream.source_count < 2 && source === "";
    this.input.placeholder = `all ${number(stream.source_count)} together`;
    if (document.activeElement !== this.input) this.input.value = source;
  }

  // What is typed, if it is one that is suggested, or none; another one once it is written to its end.
  #take() {
    const name = this.input.value.trim();
    if (name === "" || [...this.list.options].some((each) => each.value === name)) this.chosen(name);
  }

  fail(text) {
    this.error.textContent = text;
    this.input.setAttribute("aria-invalid", text !== "");
  }
}

const choice = new SourceChoice($("source-field"), {
  chosen(name) {
    if (name === state.source && state.sourceFault === null) return;
    cancelPanels(); // results on the way are of others
    state.source = name;
    showSourceFault(null);
    showSource();
    showDevicesOf(name);
    showStale("asking …");
    showAllOld("asking");
    ask();
  },
  failed: refused,
});

export function showSourceFault(fault) {
  state.sourceFault = fault;
  choice.fail(fault ?? "");
}

function showSource() {
  const { stream, source } = state;
  choice.show(stream, source);
  $("answers-of").hidden = $("source-field").hidden;
  $("answers-of").textContent = source ? `Answers of the source ${source} alone` : `Answers of all ${number(stream.source_count)} sources together`;
}

onFault((error) => {
  if (!state.source || !error.faults?.some(({ field }) => field === "source")) return false;
  showSourceFault(`there is no source '${state.source}' in this stream: choose another, or none for all`);
  notAsked("there is no such source");
  return true;
});

register({ present: showSource });
