// One monitor: from its value to that and all that sites may hold back, over the time that this page has
// watched it; its line; its sites. What was before the page was opened nobody has kept.

import { pill, why } from "./alerts.js";
import { LineChart } from "./charts.js";
import { described } from "./decay.js";
import { follow } from "./events.js";
import { change, Newest, request, streamPath } from "./http.js";
import { confirmed } from "./dialogs.js";
import { facts } from "./nodes.js";
import { $, state } from "./state.js";
import { SortedTable } from "./tables.js";
import { takings } from "./taking.js";
import { ago, named, number, percent, Unit } from "./units.js";

const CLOCK = new Unit("s");
const MOST_POINTS = 3600; // of one monitor: an hour, as the service tells one each second
const DETAILS_MS = 2000;
const QUIET_MS = 5000; // without an event, what is drawn is said to be old

const MOST_KEPT = 64; // monitors

const history = new Map(); // stream/monitor@epoch -> [{at, state, value, lower, upper, threshold}]

const placeOf = (stream, { monitor, epoch }) => `${stream}/${monitor}@${epoch}`;

function keep(stream, said) {
  if (said.threshold === undefined) return; // nothing was found out
  const place = placeOf(stream, said);
  const points = history.get(place) ?? [];
  history.delete(place); // and last again: those that were not heard of for longest are forgotten
  history.set(place, points);
  if (history.size > MOST_KEPT) history.delete(history.keys().next().value);
  const { state: held, value, lower, upper, threshold } = said;
  points.push({ at: Date.now() / 1000, state: held, value, lower, upper, threshold });
  if (points.length > MOST_POINTS) points.splice(0, points.length - MOST_POINTS);
}

export class OneAlert {
  #stream = null;
  #name = null;
  #stop = () => {};
  #heard = 0;
  #shown = null; // the last answer

  // `gone()`: it is no more; `failed(error)`.
  constructor(panel, { gone, failed }) {
    Object.assign(this, { panel, gone });
    this.chart = new LineChart(panel.querySelector(".chart"), {
      fromZero: true, picked: () => {}, read: (text) => { $("alert-key").textContent = text; },
    });
    this.sites = new SortedTable(panel.querySelector(".sites"), {
      caption: "Sites of the alert", cls: "cards", data: (each) => ({ source: each.source, silent: each.silent }),
    });
    this.details = new Newest(
      (signal, stream, name) => request(streamPath(stream, `/monitors/${encodeURIComponent(name)}`), undefined, signal),
      (answer, _ms, stream, name) => { if (stream === this.#stream && name === this.#name) this.#show(answer); },
      (error, stream, name) => {
        if (error.status === 404 && stream === this.#stream && name === this.#name) this.#wasDeleted();
        else failed(error);
      },
    );
    $("alert-delete").addEventListener("click", () => this.#delete());
    takings(panel, "the alert", {
      asked: () => this.details.asked,
      table: () => ({
        name: `${this.#stream}-${this.#name}`, columns: ["time", "state", "value", "lower", "upper", "threshold"],
        rows: this.#points().map((each) => [CLOCK.time(each.at), each.state, each.value, each.lower, each.upper, each.threshold]),
      }),
    });
    setInterval(() => { if (this.#name && !document.hidden) { this.details.put([this.#stream, this.#name]); this.#showAge(); } }, DETAILS_MS);
  }

  // Looks at one; follows its stream as long as it does.
  watch(stream, name) {
    if (stream === this.#stream && name === this.#name) return;
    if (stream !== this.#stream) {
      this.#stop();
      this.#stop = follow(streamPath(stream, "/events"), {
        heard: () => { this.#heard = performance.now(); },
        lost: () => this.#showAge(),
        event: (kind, said) => this.#told(stream, kind, said),
      });
    }
    this.#shown = null;
    this.#heard = performance.now();
    this.#draw();
    Object.assign(this.panel.dataset, { monitor: name, state: "", points: 0 });
    this.#stream = stream;
    this.#name = name;
    this.panel.hidden = false;
    $("alert-error").textContent = "";
    $("alert-title").textContent = name;
    this.details.put([stream, name]);
  }

  leave() {
    this.#stop();
    this.#stop = () => {};
    this.details.cancel();
    this.#stream = this.#name = null;
    this.panel.hidden = true;
  }

  #told(stream, kind, said) {
    if (kind === "state") {
      keep(stream, said);
      if (said.monitor === this.#name) this.#draw();
    } else if (kind === "gone" && said.monitor === this.#name) this.#wasDeleted();
  }

  #wasDeleted() {
    this.leave();
    this.gone();
  }

  async #delete() {
    const [stream, name] = [this.#stream, this.#name];
    if (!await confirmed(`Delete the alert ${name}?`, "Its sites stop holding back on its account. Nobody is told that it has ended.", "Delete")) return;
    try {
      await change("DELETE", streamPath(stream, `/monitors/${encodeURIComponent(name)}`));
    } catch (error) {
      $("alert-error").textContent = error.message;
      return;
    }
    this.#wasDeleted();
  }

  #points() {
    return this.#shown ? history.get(placeOf(this.#stream, this.#shown)) ?? [] : [];
  }

  #show(answer) {
    const first = this.#shown === null || this.#shown.epoch !== answer.epoch;
    this.#shown = answer;
    $("alert-state").replaceChildren(pill(answer.state), why(answer) ? ` ${why(answer)}` : "");
    $("alert-delete").hidden = state.caller?.role !== "admin";
    Object.assign(this.panel.dataset, { state: answer.state, silent: answer.silent.join("\n") });
    facts($("alert-facts"), [
      ["Watches", told(answer.spec)],
      ["Since", `${CLOCK.time(answer.since)} (${ago(answer.since)})`],
      ["Alert", answer.alert.phase === "inactive" ? "not firing" : `${answer.alert.phase} since ${CLOCK.time(answer.alert.since)}`],
      ["Value", `${number(answer.value)}; with what sites hold back ${between(answer)}`],
      ["Held back", `at most ${number(answer.pending_at_most)}, by all sites together`],
      ["Silent", answer.silent.length ? named(answer.silent) : "nobody"],
      ["Posts", cost(answer.expected)],
    ]);
    const columns = [
      { name: "Site", value: (each) => each.source },
      { name: "State", value: (each) => (each.silent ? "silent" : "heard of"), show: (each) => (each.silent ? pill("silent") : "heard of") },
      { name: "Lease", value: (each) => each.lease_until, show: (each) => (each.lease_until ? until(each.lease_until) : "none") },
      { name: "Allowance", cls: "number", value: (each) => each.allowance, show: (each) => number(each.allowance) },
      { name: "Last report", value: (each) => each.last_report, show: (each) => (each.last_report ? ago(each.last_report) : "never") },
    ];
    this.sites.show(columns, answer.sites);
    if (first) this.#draw();
  }

  #draw() {
    const points = this.#points();
    this.panel.dataset.points = points.length;
    this.#showAge();
    const drawn = points.length > 1; // what is drawn of another alert is not left standing
    $("alert-wait").hidden = drawn;
    this.chart.host.hidden = !drawn;
    if (!drawn) return;
    const line = (label, estimates, more) => ({
      label, estimates, ...more, values: estimates.map((each) => each.value),
      lower: estimates.map((each) => each.lower), upper: estimates.map((each) => each.upper),
    });
    const times = points.map((each) => each.at);
    const last = points.at(-1);
    this.chart.show({
      times, unit: CLOCK, now: null, between: false,
      lines: [
        line("value", points.map((each) => ({ ...each, exact: false })), { main: true }),
        line("threshold", points.map(({ threshold: each }) => ({ value: each, lower: each, upper: each, exact: true })), { limit: true }),
      ],
      label: `${this.#name}, from ${CLOCK.time(times[0])} to ${CLOCK.time(times.at(-1))}; at the end the value is ${number(last.value)}, `
        + `at most ${last.upper === null ? "unknown" : number(last.upper)} with what sites hold back, and the threshold ${number(last.threshold)}.`,
    });
  }

  #showAge() {
    const quietMs = performance.now() - this.#heard;
    const old = quietMs > QUIET_MS;
    this.panel.classList.toggle("stale", old && this.#points().length > 0);
    if (old) $("alert-key").textContent = `no word for ${CLOCK.duration(quietMs / 1000)}`;
    else if (/^no word/.test($("alert-key").textContent) || !$("alert-key").textContent) $("alert-key").textContent = "band: with what sites may hold back";
  }

  paint() { this.chart.paint(); }
}

function between({ lower, upper }) {
  if (lower === null) return upper === null ? "anything" : `${number(upper)} or less`;
  return upper === null ? `${number(lower)} or more` : `${number(lower)} to ${number(upper)}`;
}

const until = (at) => (at > Date.now() / 1000 ? `${CLOCK.duration(at - Date.now() / 1000)} more` : `ended ${ago(at)}`);

// A spec in words.
function told(spec) {
  const side = spec.above !== undefined ? `above ${number(spec.above)}` : `below ${number(spec.below)}`;
  const own = [spec.predicate && `of ${spec.predicate}`, spec.value !== undefined && `of ${number(spec.value)}`,
    spec.q !== undefined && `at ${spec.q}`, spec.where && `where ${spec.where}`].filter(Boolean).join(" ");
  const decay = spec.decay ? `decay ${described(spec.decay, state.unit)}` : "the decay of the stream";
  return [`${spec.question}${own ? ` ${own}` : ""} ${side}, within ${percent(spec.within ?? 0.05)}`, decay,
    `lease ${CLOCK.duration(spec.lease_s ?? 30)}`, spec.for_s && `for ${CLOCK.duration(spec.for_s)}`,
    spec.keep_firing_s && `keeps firing ${CLOCK.duration(spec.keep_firing_s)}`, spec.webhook].filter(Boolean).join("; ");
}

// What it costs in reports, and what it saves.
function cost({ lifetime_s: lifetime, near, renewals, without }) {
  if (without === null || !(without > 0)) return "not known yet: no row was posted under it";
  const posts = near === null ? "any number of posts" : `${number(near)} posts near the line`;
  const saved = near === null || near >= without ? "none saved"
    : `${percent(1 - near / without)} saved`;
  return `in ${CLOCK.duration(lifetime)} about ${posts} and ${renewals === null ? "any number of" : number(renewals)} renewals at most, `
    + `instead of ${number(without)} posts, one a row: ${saved}`;
}
