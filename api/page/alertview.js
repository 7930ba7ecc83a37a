// Alerts: of all streams in the list on top, of the chosen stream in its view, and the form for a new one.

import { remember } from "./address.js";
import { OneAlert } from "./alert.js";
import { Alerts } from "./alerts.js";
import { AlertForm, watchable } from "./define.js";
import { request, requestAgain } from "./http.js";
import { refused } from "./access.js";
import { $, serviceDecay, state } from "./state.js";
import { chooseStream, present } from "./stream.js";
import { onTheme } from "./theme.js";
import { onView, showView } from "./views.js";

const all = new Alerts($("all-alerts"), { caption: "Alerts of all streams", streams: true, chosen: openAlert });
const own = new Alerts($("own-alerts"), { caption: "Alerts of this stream", streams: false, chosen: openAlert });
const one = new OneAlert($("alert"), { gone: () => { state.alert = null; remember(); lookAtAlerts(); }, failed: refused });
const form = new AlertForm($("define"), {
  stream: () => state.stream.name, decay: serviceDecay, decayFault: () => state.decayFault,
  defined: ({ monitor }) => { showForm(false); openAlert(state.stream.name, monitor); lookAtAlerts(); },
});

onTheme(() => one.paint());
onView("alerts", {
  watch(stream) { if (state.alert) one.watch(stream, state.alert); else one.leave(); },
  leave() { one.leave(); },
});

async function openAlert(stream, monitor) {
  state.view = "alerts";
  state.alert = monitor;
  if (state.stream?.name === stream) present();
  else await chooseStream(stream, true);
  $("alert").scrollIntoView({ block: "nearest" });
}

export async function lookAtAlerts() {
  try {
    state.caller ??= await request("/v1/caller");
    state.alerts = (await requestAgain("/v1/monitors")).monitors;
  } catch (error) {
    refused(error);
    $("alerts-says").textContent = "Not heard of now.";
    $("alerts").classList.add("stale");
    return;
  }
  $("alerts").classList.remove("stale");
  showAlerts();
}

function showAlerts() {
  const { alerts, stream } = state;
  const count = (status) => alerts.filter((each) => each.state === status).length;
  $("alerts").hidden = alerts.length === 0;
  $("alerts-says").textContent = `${count("firing")} firing, ${count("uncertain")} uncertain, ${count("calm")} calm`;
  all.show(alerts);
  const found = alerts.filter((each) => each.stream === stream?.name);
  const aggregates = stream ? watchable(stream) : [];
  $("no-alerts").hidden = found.length > 0 || aggregates.length === 0;
  $("own-alerts").hidden = found.length === 0;
  $("unwatchable").hidden = !stream || aggregates.length > 0;
  $("define-button").hidden = state.caller?.role !== "admin" || aggregates.length === 0;
  const choose = state.view === "alerts" && !state.alert && found.length > 0;
  if (choose) state.alert = found[0].monitor;
  own.show(found, state.alert);
  if (choose) showView();
}

function showForm(open) {
  $("define").hidden = !open;
  $("define-button").setAttribute("aria-expanded", open);
  if (!open) return;
  form.offer(watchable(state.stream));
  $("define").querySelector("input").focus();
}
$("define-button").addEventListener("click", () => showForm($("define").hidden));
