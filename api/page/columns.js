// The columns of a stream, and what completes an expression over them.

import { askQueries, attributesOf, isSeries } from "./questions.js";

const VALUES_ASKED = 50;
const NUMBERS = ["float64", "int64"];
const values = new Map(); // stream@digest column -> promise of its most frequent texts

// [{name, kind}], in order of name. A stream without declared columns has its value, and one of series has
// their attributes.
export function columnsOf(stream) {
  if (isSeries(stream)) return attributesOf(stream).map((name) => ({ name: written(name), kind: "text" }));
  const declared = Object.entries(stream.params.columns ?? {});
  const own = declared.length ? declared : [["v", stream.params.value_type === "label" ? "text" : "float64"]];
  return own.map(([name, kind]) => ({ name: written(name), kind }));
}

export const hasColumns = (stream) => Object.keys(stream.params?.columns ?? {}).length > 0;

// The columns that a mean can be of.
export const numberColumns = (stream) => columnsOf(stream).filter(({ kind }) => NUMBERS.includes(kind)).map(({ name }) => name);

// A name that is no word is written as a field.
const written = (name) => (/^[A-Za-z_][0-9A-Za-z_]*$/.test(name) ? name : `field('${name.replaceAll("'", "\\'")}')`);

const quoted = (text) => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;

// The most frequent values of a text column.
function valuesOf(stream, column) {
  const held = `${stream.name}@${stream.digest} ${column}`;
  if (!values.has(held)) {
    const query = { aggregate: isSeries(stream) ? "series_count" : "count", by: [column], groups: VALUES_ASKED, ...(stream.decay ? {} : { decay: "none" }) };
    values.set(held, askQueries(stream, [query], "").then(({ answers }) => answers[0].groups.map(({ by, estimate }) => ({ value: Object.values(by)[0], estimate })))
      .catch(() => { values.delete(held); return []; }));
  }
  return values.get(held);
}

const COMPARED = /([A-Za-z_][0-9A-Za-z_]*|field\('(?:[^'\\]|\\.)*'\))\s*(?:==|!=|(?:not\s+)?in\s*\([^()]*)\s*('[^']*)?$/;
const WORD = /[A-Za-z_][0-9A-Za-z_]*$/;
const TIMES = (unit) => (unit.hasClock ? [
  { text: "bucket(time, '15min')", note: "a quarter of an hour each" }, { text: "bucket(time, '1h')", note: "an hour each" },
  { text: "hour(time)", note: "0 to 23, UTC" }, { text: "weekday(time)", note: "Monday is 0" }] : []);

// What completes a condition: columns, and after a comparison the values of the column.
export const conditions = (stream, unit) => async (before) => {
  const compared = COMPARED.exec(before);
  const column = compared && columnsOf(stream).find(({ name, kind }) => name === compared[1] && kind === "text");
  if (column) {
    const found = await valuesOf(stream, column.name);
    const options = found.filter(({ value }) => typeof value === "string").map(({ value }) => ({ text: quoted(value), note: "value" }));
    return { word: compared[2] ?? "", options };
  }
  if (/'[^']*$/.test(before.replace(/'(?:[^'\\]|\\.)*'/g, ""))) return { word: "", options: [] }; // within quotes
  const word = WORD.exec(before)?.[0] ?? "";
  const words = unit.hasClock && !isSeries(stream) ? [{ text: "age < '1h'", note: "the last hour" }, ...TIMES(unit).slice(2)] : [];
  const own = columnsOf(stream).map(({ name, kind }) => ({ text: name, note: kind }));
  const joins = ["and", "or", "not", "is null"].map((text) => ({ text, note: "" }));
  return { word, options: [...own, ...words, ...(word ? joins : [])] };
};

// What completes the keys of groups.
export const keys = (stream, unit) => (before) => {
  const word = WORD.exec(before)?.[0] ?? "";
  const own = columnsOf(stream).map(({ name, kind }) => ({ text: name, note: kind }));
  return { word, options: [...own.sort((a, b) => (b.note === "text") - (a.note === "text")), ...(isSeries(stream) ? [] : TIMES(unit))] };
};

// Texts between commas outside of brackets and quotes.
export function keysOf(text) {
  const found = [""];
  let [depth, quote] = [0, false];
  for (const each of text) {
    if (each === "'") quote = !quote;
    else if (!quote) depth += (each === "(") - (each === ")");
    if (each === "," && depth === 0 && !quote) found.push("");
    else found[found.length - 1] += each;
  }
  return found.map((each) => each.trim()).filter(Boolean);
}
