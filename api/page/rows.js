// The filter and the column: which rows the results are of, and which of their values.

import { conditions, hasColumns, numberColumns } from "./columns.js";
import { Completion } from "./complete.js";
import { ask, notAsked, register, TYPING_MS } from "./hub.js";
import { element } from "./nodes.js";
import { onFault } from "./panel.js";
import { hasFilter, hasRows } from "./questions.js";
import { $, state } from "./state.js";

new Completion($("where"), (before) => conditions(state.stream, state.unit)(before));
$("where").addEventListener("input", () => { state.where = $("where").value; showWhereFault(null); ask(TYPING_MS); });
$("of").addEventListener("change", () => { state.of = $("of").value; ask(); });

function showWhereFault(fault) {
  $("where").setAttribute("aria-invalid", fault !== null);
  $("where-error").textContent = fault ?? "";
}

onFault((error) => {
  const found = state.where && error.faults?.find(({ field }) => /(?<!versus\.)where$/.test(field ?? ""));
  if (!found) return false;
  if (error.conditions && !error.conditions.includes(state.where)) return true; // of an earlier condition: the present one is asked for next
  showWhereFault(found.reason);
  notAsked("the filter cannot be read");
  return true;
});

register({
  present(stream) {
    const rows = hasFilter(stream);
    $("rows-field").hidden = !rows;
    const numbers = hasRows(stream) && hasColumns(stream) ? numberColumns(stream) : [];
    if (!rows) Object.assign(state, { where: "", by: "" });
    if (state.where === "") showWhereFault(null);
    if (!numbers.includes(state.of)) state.of = numbers[0] ?? "";
    $("of-field").hidden = numbers.length < 2;
    $("of").replaceChildren(...numbers.map((name) => element("option", { value: name }, name)));
    $("of").value = state.of;
    if ($("where").value !== state.where) $("where").value = state.where;
  },
});
