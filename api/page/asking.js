// Any question that a stream answers. Its fields and the columns of its answer are made of what the
// service says of it: a question that the service learns is on the page.

import { keysOf } from "./columns.js";
import { register, showOld, TYPING_MS } from "./hub.js";
import { Newest, reasonOf } from "./http.js";
import { element } from "./nodes.js";
import { drawnIn, drawnNow, isShown, note } from "./panel.js";
import { bounds, estimateParts, keyText, tableOf } from "./panels.js";
import { askQueries, isSeries, keyOf, questionsOf, restricted } from "./questions.js";
import { $, askedNow, chosenRows, mayAsk, serviceDecay, state, subject } from "./state.js";
import { takings } from "./taking.js";
import { number, told } from "./units.js";

const FIRST = "histogram"; // where there is one
const FIRST_OF_SERIES = { counter: "increase", gauge: "interval_quantile", state: "state_time" };
const ROWS_SHOWN = 50;

class AnyQuestion {
  #stream = null;
  #name = null;
  #table = null;
  #given = new Map(); // what was typed, by question and argument

  // asked(): a question or one of its arguments was chosen
  constructor(panel, asked) {
    Object.assign(this, { panel, asked });
    this.choice = panel.querySelector("select");
    this.choice.addEventListener("change", () => { this.#name = this.choice.value; this.#showFields(); asked(0); });
  }

  // For a stream: its questions, the chosen one among them if it has that.
  show(stream) {
    this.#stream = stream;
    const questions = questionsOf(stream);
    const names = Object.keys(questions);
    const first = isSeries(stream) ? FIRST_OF_SERIES[state.series.kind] : FIRST;
    if (!names.includes(this.#name)) this.#name = names.includes(first) ? first : names[0];
    this.choice.replaceChildren(...names.map((name) => element("option", { value: name }, spoken(name))));
    this.choice.value = this.#name;
    this.#showFields();
  }

  get #question() { return questionsOf(this.#stream)[this.#name]; }

  #showFields() {
    this.panel.querySelector(".says").textContent = this.#question.description.replaceAll("`", "");
    const fields = Object.entries(this.#question.arguments).map(([name, argument]) => {
      const place = `${this.#name} ${name}`;
      const example = argument.kind === "sketch" ? this.#stream.name : argument.example;
      const first = argument.required || argument.kind === "predicate" ? example : argument.default ?? example;
      const input = element("input", {
        type: "text", name, spellcheck: "false", autocomplete: "off", autocapitalize: "off",
        title: argument.description.replaceAll("`", ""), "aria-describedby": "any-error",
      });
      input.value = this.#given.get(place) ?? [first ?? []].flat().join(", ");
      input.addEventListener("input", () => { this.#given.set(place, input.value); this.asked(); });
      return element("label", { class: argument.kind === "predicate" ? "stack wide" : "stack" }, spoken(name), input);
    });
    this.panel.querySelector(".fields").replaceChildren(...fields);
  }

  // What the fields say, as a query has it; null where that is nothing, which is then said.
  #read() {
    const query = { aggregate: this.#name };
    let fault = "";
    for (const input of this.panel.querySelectorAll(".fields input")) {
      const argument = this.#question.arguments[input.name];
      const text = input.value.trim();
      const values = valuesOf(argument, text);
      const empty = text === "";
      const wrong = (empty && argument.required) || (!empty && values.some((each) => Number.isNaN(each)));
      input.setAttribute("aria-invalid", wrong);
      if (wrong) fault = `${input.name}: ${argument.description.replaceAll("`", "")}`;
      if (!empty) query[input.name] = argument.many === "no" ? values[0] : values;
    }
    this.fail(fault);
    return fault ? null : query;
  }

  // The question under a decay and at a time, as arguments of `ask`; null where it is none.
  with(common) {
    const query = this.#read();
    return query && [this.#stream, { ...query, ...common }, this.#question];
  }

  static async ask(signal, stream, query, source) {
    const { answers } = await askQueries(stream, [query], source, signal);
    return answers[0];
  }

  // Nothing was answered.
  clear() {
    this.#table = null;
    for (const each of this.panel.querySelectorAll(".found > *")) each.replaceChildren();
  }

  fail(text) { this.panel.querySelector(".error").textContent = text; }

  answer(answer, question, unit) {
    this.fail("");
    const { rows, columns, beside } = question;
    const listed = rows === null ? [answer] : [answer[rows] ?? []].flat();
    const [host, rest] = this.panel.querySelectorAll(".found > *");
    this.#table = tableOf(host, { caption: "Answer" });
    this.#table.show(columnsOf(rows === null ? beside : columns, unit), listed, { most: ROWS_SHOWN });
    if (!listed.length) host.replaceChildren(element("p", { class: "hint" }, "Nothing to tell of."));
    this.#table.table.tBodies[1]?.remove();
    rest.replaceChildren();
    if (rows !== null) this.#showBeside(rest, beside, answer, unit);
    Object.assign(this.panel.querySelector(".found").dataset, { aggregate: answer.aggregate, rows: listed.length });
  }

  // What an answer tells beside its rows: an estimate below those of the rows, a number in a line of its own.
  #showBeside(rest, beside, answer, unit) {
    const estimates = beside.filter(({ kind }) => kind === "estimate");
    const span = this.#table.width - 2;
    this.#table.table.append(element("tbody", {}, ...estimates.map(({ name, kind }) => element("tr", {},
      element("th", { scope: "row", colspan: span }, spoken(name)),
      ...cells(answer[name], kind, unit).map((each) => element("td", { class: "number" }, each))))));
    for (const { name, kind } of beside.filter((each) => !estimates.includes(each))) {
      rest.append(element("p", { class: "hint" }, `${spoken(name)}: `, ...cells(answer[name], kind, unit)));
    }
  }

  // What is shown, as a file, with what it is of; null where nothing is.
  csv(of) {
    return this.#table && { name: `${of}-${this.#name}`, ...this.#table.csv() };
  }
}

// What a text gives for an argument, as a list.
function valuesOf({ kind, many }, text) {
  if (kind === "predicate" || kind === "sketch") return [text];
  if (kind === "column") return keysOf(text); // commas within brackets are of an expression
  if (kind === "keys" && text.startsWith("[")) return [keyOf(text)].flat();
  if (kind === "column") return text.split(/,(?![^(]*\))/).map((each) => each.trim()).filter(Boolean);
  const parts = many === "no" ? [text] : text.split(/[\s,;]+/).filter(Boolean);
  return parts.map(kind === "keys" ? keyOf : Number);
}

const spoken = (name) => name.replaceAll("_", " ");

// As a table has them: an estimate is two.
function columnsOf(columns, unit) {
  return columns.flatMap(({ name, kind }) => {
    const label = spoken(name);
    const shown = { name: label, cls: "number", show: (row) => cells(row[name], kind, unit)[0] };
    if (kind === "estimate") {
      return [{ ...shown, value: (row) => row[name].value, csv: estimateParts(label, (row) => row[name]) },
        { name: "Interval", cls: "number", show: (row) => bounds(row[name]) }];
    }
    const text = kind === "key" ? (row) => (typeof row[name] === "number" ? row[name] : keyText(row[name])) : null;
    return [{ ...shown, value: text ?? ((row) => row[name]) }];
  });
}

// What a value is shown as: an estimate with its interval.
function cells(value, kind, unit) {
  if (kind === "key" || typeof value === "string") return [keyText(value)];
  if (kind === "flag") return [value ? "yes" : "no"];
  if (kind === "estimate") return [told(value), bounds(value)];
  return [kind === "time" ? unit.time(unit.fromStream(value)) : number(value)];
}

const any = new AnyQuestion($("any-panel"), (ms = TYPING_MS) => askNow(ms));

const found = new Newest(
  (signal, stream, query, _question, source) => AnyQuestion.ask(signal, stream, { ...query, ...restricted(chosenRows(), query.aggregate) }, source),
  (answer, _ms, _stream, _query, question) => {
    note("any-panel", "");
    any.answer(answer, question, state.unit);
    drawnNow("any-panel");
  },
  (error) => {
    if (isShown(error)) return;
    if ($("any-panel").dataset.of === subject()) showOld("any-panel", "not answered");
    else { note("any-panel", ""); any.clear(); }
    any.fail(reasonOf(error));
  },
  () => showOld("any-panel", "asking"),
);

function askNow(ms) {
  if (!mayAsk()) return;
  const [decay, now] = [serviceDecay(), askedNow()];
  const query = any.with({ confidence: state.confidence, ...(decay && { decay }), ...(now !== null && { now }) });
  if (query) found.put([...query, state.source], ms);
  else found.cancel();
}

register({ id: "any-panel", present: (stream) => any.show(stream), now: askNow, cancel: () => found.cancel() });
takings($("any-panel"), "any question", { asked: drawnIn("any-panel", () => found.asked), table: drawnIn("any-panel", (of) => any.csv(of)) });
