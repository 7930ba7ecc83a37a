// The API key: asked for where the aggregator wants one, and forgotten on request.

import { key } from "./http.js";
import { onFault } from "./panel.js";
import { $ } from "./state.js";

let given = () => {};

// `use()`: a key was given.
export const onKey = (use) => { given = use; };

export const waitsForKey = () => !$("key-form").hidden;

// Whether an error wants another key. The form for it is then shown.
function wantsKey(error) {
  if (error.status !== 401) return false;
  $("key-form").hidden = false;
  $("forget-key").hidden = true;
  $("status").textContent = key.held ? "The key was refused." : "An API key is needed.";
  key.forget();
  $("key").focus();
  return true;
}
onFault(wantsKey);

// For parts that show all other errors themselves.
export const refused = (error) => { wantsKey(error); };

export function showAccepted() {
  $("forget-key").hidden = !key.held;
  $("key-form").hidden = true;
}

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key.keep($("key").value.trim());
  $("key").value = "";
  $("key-form").hidden = true;
  $("status").textContent = "";
  given();
});
$("forget-key").addEventListener("click", () => { key.forget(); location.reload(); });
