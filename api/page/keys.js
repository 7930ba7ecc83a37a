// Keys: one over time, the heaviest with their prefixes, and the skew.

import { register, showOld, TYPING_MS } from "./hub.js";
import { Newest } from "./http.js";
import { ChartPanel, line, noPast, timesAsked } from "./overtime.js";
import { note, undrawn } from "./panel.js";
import { keyText, showKeys, showPrefixes, showSkew } from "./panels.js";
import { askKey, familyOf, findsKeys, keyOf } from "./questions.js";
import { $, mayAsk, serviceDecay, state } from "./state.js";

const chart = new ChartPanel("key", { fromZero: true });

const counts = new Newest(
  (signal, stream, query) => askKey(stream, query, signal),
  ({ times, counts: shown }, _ms, _stream, { key }) => chart.show(times, [line(keyText(key), shown, true)]),
  (error) => undrawn("key-panel", error),
  () => showOld("key-panel", "asking"),
);

function askOneKey(ms = 0) {
  const { stream, confidence, source } = state;
  if (!familyOf(stream).keys || !mayAsk()) { counts.cancel(); return; }
  if (state.key === "") {
    counts.cancel();
    note("key-panel", findsKeys(stream) ? "Choose a key above, or write one." : "Write a key.");
    return;
  }
  counts.put([stream, { decay: serviceDecay(), times: timesAsked(), confidence, source, key: keyOf(state.key) }], ms);
}

// The keys at one time. The heaviest is drawn over time until another is chosen.
export function showKeysNow({ figures, heaviest, prefixes }, phi) {
  const [total, join] = ["key_total", "self_join"].map((id) => figures.find((each) => each.id === id).estimate);
  $("skew-panel").hidden = false;
  showSkew($("skew"), total, join);
  $("keys-panel").hidden = heaviest === null;
  if (heaviest === null) return;
  showKeys($("keys"), heaviest, total.value, phi, pickKey);
  showPrefixes($("prefixes"), prefixes, total.value, phi);
  if (state.key === "" && heaviest.length) pickKey(heaviest[0].key);
}

function pickKey(chosen) {
  state.key = keyText(chosen);
  $("one-key").value = state.key;
  askOneKey();
}

$("one-key").addEventListener("input", (event) => { state.key = event.target.value.trim(); askOneKey(TYPING_MS); });

register({
  id: "key-panel",
  present(stream) {
    const { keys } = familyOf(stream);
    if ($("one-key").value.trim() !== state.key) $("one-key").value = state.key;
    $("key-panel").hidden = !keys;
    $("keys-panel").hidden = !findsKeys(stream);
    $("skew-panel").hidden = !keys;
    $("key-says").textContent = findsKeys(stream)
      ? "An integer." : "A text, an integer, or a list of these such as [\"JFK\", \"LAX\"]; a text of digits in quotes.";
  },
  overTime(ms) { if (!noPast(state.stream)) askOneKey(ms); },
  cancel: () => counts.cancel(),
});
chart.offerFiles(() => counts.asked);
