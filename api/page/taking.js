// What can be taken from a panel: what it asks, as a curl command, and what it shows, as CSV.

import { key } from "./http.js";
import { element } from "./nodes.js";
import { showText } from "./dialogs.js";

const SAID_MS = 1600;

// In place of a button's own words, for a moment.
function say(button, text) {
  const label = button.dataset.label ??= button.textContent;
  button.textContent = text;
  setTimeout(() => { button.textContent = label; }, SAID_MS);
}

// To a spreadsheet; the same pattern is in api/queries/tables.py.
const MAY_BE_A_FORMULA = /^(?:[\t\r\n]|[\s\u200b\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b])/;

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

// The command that asks the same. The key is not in it.
export function curlOf({ path, body, method }) {
  const lines = [`curl -sS ${quoted(new URL(path, location.href).href)}`];
  if (method && method !== "GET" && method !== "POST") lines[0] += ` -X ${method}`;
  if (key.held) lines.push('-H "Authorization: Bearer $DECAYSKETCH_KEY"');
  if (body !== undefined) lines.push("-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(body))}`);
  return lines.join(" \\\n  ");
}

function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "string") return String(value);
  const text = MAY_BE_A_FORMULA.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// RFC 4180. A text that a spreadsheet would compute is made one that it shows.
export function csvOf({ columns, rows }) {
  return [columns, ...rows].map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

function save(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  element("a", { href: url, download: `${name.replace(/[^A-Za-z0-9._-]+/g, "-")}.csv` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

export async function copy(button, text, what = "The command") {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // not a page that may, or nobody lets it
    showText(what, text);
    return;
  }
  say(button, "Copied");
}

// Buttons at the end of a panel. `asked()`: {path, body, method} of what it asks, or null while it has
// asked nothing; `table()`: {name, columns, rows}, or null.
export function takings(panel, what, { asked, table }) {
  const row = element("div", { class: "takings" });
  const add = (text, does) => {
    const button = element("button", { type: "button", class: "take", "aria-label": `${text}: ${what}` }, text);
    button.addEventListener("click", () => does(button));
    row.append(button);
  };
  if (asked) add("Copy as curl", (button) => { const found = asked(); if (found) copy(button, curlOf(found)); else say(button, "Nothing asked yet"); });
  if (table) add("CSV", (button) => { const found = table(); if (found?.rows.length) save(found.name, csvOf(found)); else say(button, "Nothing to save"); });
  panel.append(row);
}
