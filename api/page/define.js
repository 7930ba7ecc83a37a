// The form that defines an alert. What the service refuses is said at the field that it names.

import { conditions, hasColumns, keys, keysOf, numberColumns } from "./columns.js";
import { Completion } from "./complete.js";
import { change, reasonOf, streamPath } from "./http.js";
import { element } from "./nodes.js";
import { findsKeys, hasLabels, hasRows, keyOf, questionsOf } from "./questions.js";
import { state } from "./state.js";
import { Unit } from "./units.js";

// What an alert can watch, and the question that the family of the stream must answer for it.
const QUESTIONS = ["count", "rate", "mean", "quantile", "median", "share", "rank", "sum", "total", "stddev", "variance", "max", "min",
  "key_count", "key_share", "key_total", "top_key_share", "self_join"];
const NEEDS = { share: "selectivity", rank: "selectivity", top_key_share: "heavy_keys" };

// Those of a stream.
export function watchable(stream) {
  const known = questionsOf(stream);
  if (!new Unit(stream.params?.time_unit).hasClock) return [];
  const counts = hasLabels(stream) ? ["count", "rate", "sum"] : QUESTIONS;
  return counts.filter((each) => (NEEDS[each] ?? each) in known && (each !== "top_key_share" || findsKeys(stream)));
}

const VALUED = ["mean", "quantile", "median", "rank", "total", "stddev", "variance"];
const ROWS = [...VALUED, "count", "rate", "share", "sum"];

const FIELDS = [
  { name: "monitor", label: "Name", required: true },
  { name: "question", label: "Watch", options: QUESTIONS },
  { name: "predicate", label: "Share of", of: ["share"], hint: "v > 30 and w >= 2" },
  { name: "value", label: "Rank of value", of: ["rank"], read: Number },
  { name: "q", label: "Quantile", of: ["quantile"], read: Number, hint: "0.9" },
  { name: "key", label: "Key", of: ["key_count", "key_share"], read: keyOf, hint: "an integer or a text" },
  { name: "side", label: "Fires", options: ["above", "below"] },
  { name: "line", label: "Threshold", required: true, read: Number },
  { name: "of", label: "Values of", of: VALUED, hint: "a column, or an expression" },
  { name: "where", label: "Only where", of: ROWS, hint: "v > 30" },
  { name: "by", label: "For each", of: ROWS, read: keysOf, hint: "a column, or several with commas" },
  { name: "for_s", label: "Fires after, s", value: "0", read: Number },
  { name: "keep_firing_s", label: "Ends after, s", value: "0", read: Number },
  { name: "webhook", label: "Webhook", hint: "a URL that the operator allows" },
  { name: "within", label: "Tolerance, a share", value: "0.05", read: Number, more: true },
  { name: "lease_s", label: "Report at least every, s", value: "30", read: Number, more: true },
  { name: "range", label: "Values from, to", of: ["mean"], read: pairOf, hint: "0, 100", more: true },
  { name: "sites", label: "Sources that may hold back, one a line", area: true, more: true, read: (text) => text.split("\n").map((each) => each.trim()).filter(Boolean) },
];
const PLACES = { above: "line", below: "line" }; // a field of the service -> of the form

function pairOf(text) {
  return text.split(/[\s,;]+/).filter(Boolean).map(Number);
}

// The field that a refusal is about: the one that it lists, or the first that its sentence names.
function placeOf(error, names) {
  const listed = error.faults.map(({ field }) => PLACES[field] ?? field).find((each) => names.includes(each));
  if (listed) return listed;
  const known = [...names, ...Object.keys(PLACES)].map((name) => [error.message.search(new RegExp(`\\b${name}\\b`)), name])
    .filter(([at]) => at >= 0).sort(([a], [b]) => a - b);
  return known.length ? PLACES[known[0][1]] ?? known[0][1] : null;
}

export class AlertForm {
  #inputs = new Map();

  // `decay()`: as the service takes it, or null where it is fixed; `decayFault()`: why what is written is
  // none, or null; `stream()`: its name; `defined(answer)`.
  constructor(form, { decay, decayFault, stream, defined }) {
    Object.assign(this, { form, decay, decayFault, stream, defined });
    this.more = form.querySelector(".more");
    this.general = form.querySelector(".general");
    const [fields, more] = form.querySelectorAll(".fields");
    fields.replaceChildren(...FIELDS.filter((each) => !each.more).map((each) => this.#field(each)));
    more.replaceChildren(...FIELDS.filter((each) => each.more).map((each) => this.#field(each)));
    const completed = { where: conditions, of: conditions, by: keys };
    for (const [name, complete] of Object.entries(completed)) {
      new Completion(this.#inputs.get(name), (before) => complete(state.stream, state.unit)(before));
    }
    this.#inputs.get("question").addEventListener("change", () => this.#fit());
    form.addEventListener("submit", (event) => { event.preventDefault(); this.#define(); });
    this.#fit();
  }

  #field({ name, label, options, area, hint, value, required }) {
    const id = `define-${name}`;
    const made = options ? element("select", {}, ...options.map((each) => element("option", { value: each }, each)))
      : element(area ? "textarea" : "input", { spellcheck: "false", autocomplete: "off", autocapitalize: "off", placeholder: hint });
    if (!options && !area) made.setAttribute("type", "text");
    for (const [key, held] of [["id", id], ["name", name], ["aria-describedby", `${id}-fault`]]) made.setAttribute(key, held);
    if (required) made.required = true;
    if (area) made.rows = 2;
    if (value) made.value = value;
    this.#inputs.set(name, made);
    return element("div", { class: `stack field-${name}` }, element("label", { for: id }, label), made,
      element("span", { class: "error", id: `${id}-fault` }));
  }

  // Offers what the stream can be watched by.
  offer(questions) {
    const select = this.#inputs.get("question");
    const before = select.value;
    select.replaceChildren(...questions.map((each) => element("option", { value: each }, each)));
    if (questions.includes(before)) select.value = before;
    const of = this.#inputs.get("of");
    if (of.value === "" && hasColumns(state.stream)) of.value = numberColumns(state.stream)[0] ?? "";
    this.#fit();
  }

  // The fields that the question has.
  #fit() {
    for (const field of FIELDS) this.form.querySelector(`.field-${field.name}`).hidden = !this.#has(field);
  }

  // Whether the question has a field, in a stream like this.
  #has({ of }) {
    if (!of) return true;
    const rows = of !== ROWS && of !== VALUED;
    return of.includes(this.#inputs.get("question").value) && (rows || (state.stream !== null && hasRows(state.stream)));
  }

  #blame(name, text) {
    const input = name && this.#inputs.get(name);
    if (!input || input.closest(".stack").hidden) { this.general.textContent = text; return; }
    if (this.more.contains(input)) this.more.open = true;
    input.setAttribute("aria-invalid", true);
    this.form.querySelector(`#define-${name}-fault`).textContent = text;
    input.focus();
  }

  #clear() {
    this.general.textContent = "";
    for (const [name, input] of this.#inputs) {
      input.removeAttribute("aria-invalid");
      this.form.querySelector(`#define-${name}-fault`).textContent = "";
    }
  }

  // The spec that the fields say; null where one of them says nothing that can be sent.
  #spec() {
    const spec = { kind: "threshold" };
    const decay = this.decay();
    if (decay) spec.decay = decay;
    for (const field of FIELDS) {
      const { name, read = String } = field;
      const input = this.#inputs.get(name);
      const text = input.value.trim();
      if (name === "monitor" || name === "side" || text === "" || !this.#has(field)) continue;
      const said = read(text);
      if ([said].flat().some((each) => Number.isNaN(each))) { this.#blame(name, `${text} is no number`); return null; }
      spec[name === "line" ? this.#inputs.get("side").value : name] = said;
    }
    return spec;
  }

  async #define() {
    this.#clear();
    const fault = this.decayFault();
    if (fault !== null) { this.general.textContent = `The decay beside: ${fault}`; return; }
    const spec = this.#spec();
    if (!spec) return;
    const name = this.#inputs.get("monitor").value.trim();
    const button = this.form.querySelector("button[type=submit]");
    button.disabled = true;
    try {
      const answer = await change("PUT", streamPath(this.stream(), `/monitors/${encodeURIComponent(name)}`), spec);
      this.#inputs.get("monitor").value = "";
      this.defined(answer);
    } catch (error) {
      this.#blame(error.status ? placeOf(error, [...this.#inputs.keys()]) : null, reasonOf(error));
    } finally {
      button.disabled = false;
    }
  }
}
