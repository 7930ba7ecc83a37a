// The dashboard: its panels, and the looks at the streams that keep it current.

// Panels query in this order.
import "./figures.js";
import "./source.js";
import "./rows.js";
import "./several.js";
import "./groups.js";
import "./versus.js";
import "./devices.js";
import "./asking.js";
import "./overtime.js";
import "./keys.js";
import "./series.js";
import "./coverage.js";
import "./sources.js";
import "./lists.js";
import "./functions.js";
import { onKey, showAccepted, waitsForKey } from "./access.js";
import { addressNow, namesStream } from "./address.js";
import { lookAtAlerts } from "./alertview.js";
import { failed } from "./figures.js";
import { ask, askNow, askOverTime } from "./hub.js";
import { requestAgain } from "./http.js";
import { onChoice, showStreams } from "./list.js";
import { learnFamilies } from "./questions.js";
import { Service } from "./service.js";
import { $, radio, state } from "./state.js";
import { chooseStream, firstStream, leaveStream, present } from "./stream.js";
import { copy } from "./taking.js";
import { showTheme } from "./theme.js";

const LIVE_MS = 1000; // between queries under a moving clock
const LIVE_SERIES_MS = 5000;
const LOOK_MS = 3000; // for new posts
const STREAMS_ASKED = 1000;

// Reads the streams again, and the chosen stream where it changed.
async function look() {
  try {
    await learnFamilies();
    const streams = await allStreams();
    showAccepted();
    state.streams = streams;
    const chosen = streams.find((each) => each.name === state.stream?.name);
    const back = state.away;
    state.away = false;
    if (state.stream && !chosen) leaveStream();
    if (chosen && chosen.digest !== state.stream.digest) await chooseStream(chosen.name, false);
    else if (chosen && back) ask();
    else if (!state.stream && streams.length) await firstStream(streams);
    showStreams();
    await lookAtAlerts();
  } catch (error) {
    failed(error);
  }
}

// Page by page, in order of name.
async function allStreams() {
  const streams = [];
  let next = "";
  do {
    const page = await requestAgain(`/v1/streams?limit=${STREAMS_ASKED}&after=${encodeURIComponent(next)}`);
    streams.push(...page.streams);
    next = page.next;
  } while (next);
  return streams;
}

// An address that was written by hand, or followed, into an open page.
addEventListener("hashchange", () => {
  if (namesStream()) location.reload();
});

function every(ms, does, when = () => true) {
  setInterval(() => { if (!document.hidden && !waitsForKey() && when()) does(); }, ms);
}
const isLive = () => state.stream && state.mode === "live";
every(LOOK_MS, look);
every(LIVE_MS, askNow, isLive);
every(LIVE_SERIES_MS, askOverTime, isLive);

$("views").addEventListener("change", () => {
  state.view = radio("view");
  present();
  lookAtAlerts();
});
$("share").addEventListener("click", () => copy($("share"), addressNow(), "The link"));
onChoice((name) => { state.alert = null; chooseStream(name, true); });
onKey(look);
new Service($("service"), $("service-button"));
showTheme();
look();
