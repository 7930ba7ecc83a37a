// The devices of a stream that has a view of them: how many spoke of late, how many did not, and which.

import { request, streamPath } from "./http.js";
import { element } from "./nodes.js";
import { tableOfNow } from "./panel.js";
import { bounds, labelText, tableOf } from "./panels.js";
import { $, askedNow, state } from "./state.js";
import { number, told } from "./units.js";

const LISTED = 1000;
const SHOWN = 20;

// Whether its devices can be watched, by a width of a wall clock's.
const hasDevices = (stream, unit) => unit.hasClock && (stream.views ?? []).includes(`${stream.name}.devices`);

function askDevices(stream, { width, now, listed }, signal) {
  const asked = new URLSearchParams({ width, now, listed, limit: LISTED });
  return request(streamPath(stream.name, `/devices?${asked}`), undefined, signal);
}

function count(host, name, label, estimate) {
  const value = estimate === null ? "not known" : told(estimate);
  const spread = estimate === null || estimate.exact ? "" : bounds(estimate);
  host.append(element("div", { "data-devices": name },
    element("dt", {}, label), element("dd", {}, value, ...(spread ? [element("span", { class: "hint" }, ` ${spread}`)] : []))));
}

function showDevices(host, answer, unit) {
  const facts = host.querySelector("dl");
  facts.replaceChildren();
  count(facts, "active", "Active", answer.active);
  count(facts, "silent", "Silent", answer.silent);
  const since = (each) => unit.fromStream(answer.now - each.time);
  const silence = (each) => element("span", { title: unit.time(unit.fromStream(each.time)) }, since(each) > 0 ? unit.duration(since(each)) : "–");
  const said = ({ value }) => (value === null ? "–" : typeof value === "string" ? labelText(value) : number(value));
  const table = tableOf(host.querySelector(".scroll"), { caption: "Devices", cls: "devices", data: ({ device, time }) => ({ device, time }) });
  table.show([
    { name: "Device", cls: "label", value: ({ device, id }) => device ?? id, show: ({ device, id }) => labelText(device ?? id) },
    { name: "Said last", cls: "number", value: ({ value }) => value, show: said },
    { name: "At", cls: "number wide", value: ({ time }) => time, show: ({ time }) => unit.time(unit.fromStream(time)) },
    { name: "Silent for", cls: "number", value: since, show: silence },
  ], answer.devices, { most: SHOWN });
  host.querySelector(".none").hidden = answer.devices.length > 0;
  host.querySelector(".none").textContent = answer.listed === "silent" ? "None is silent." : "";
  return table;
}

// Devices are counted over all sources, so the panel is not shown for one source.
export function showDevicesOf(source) {
  const has = hasDevices(state.stream, state.unit);
  $("devices-panel").hidden = !has || source !== "";
  $("source-says").hidden = !has || source === "";
}

const panel = tableOfNow("devices", {
  what: "the devices",
  ask: askDevices,
  show: (answer) => showDevices($("devices"), answer, state.unit),
  query() {
    const now = askedNow() ?? state.unit.toStream(state.unit.clock());
    return { width: $("devices-width").value, now, listed: $("devices-listed").value };
  },
  present: () => showDevicesOf(state.source),
});
for (const id of ["devices-width", "devices-listed"]) $(id).addEventListener("change", () => panel.now());
