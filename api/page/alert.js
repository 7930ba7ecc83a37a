// One alert: its value with its interval over the last day, its threshold, and its states as a strip above;
// below, each change of state with its reason. Sources have a table where some take part.

import { pill, why } from "./alerts.js";
import { LineChart } from "./charts.js";
import { described } from "./decay.js";
import { follow } from "./events.js";
import { change, Newest, request, streamPath } from "./http.js";
import { confirmed } from "./dialogs.js";
import { element, facts } from "./nodes.js";
import { askStates, askValues } from "./past.js";
import { $, state } from "./state.js";
import { SortedTable } from "./tables.js";
import { takings } from "./taking.js";
import { ago, named, number, percent, Unit } from "./units.js";

const CLOCK = new Unit("s");
const MOST_POINTS = 3600; // told since the page was opened: an hour
const DETAILS_MS = 2000;
const PAST_MS = 30000; // the values of the past are asked for again
const QUIET_MS = 5000; // without an event, what is drawn is said to be old
const MOST_LISTED = 50; // changes of state

const LEGEND = "strip above: state; band: interval; dashed: threshold";

export class OneAlert {
  #stream = null;
  #name = null;
  #stop = () => {};
  #heard = 0;
  #shown = null; // the last answer
  #live = []; // told since then
  #past = []; // values before that
  #states = []; // as the service retains them
  #asked = ""; // for which state the past was asked for, and when
  #askedAt = 0;
  #group = null; // whose states are shown, as JSON; null: those of the alert

  // `gone()`: it is no more; `failed(error)`.
  constructor(panel, { gone, failed }) {
    Object.assign(this, { panel, gone });
    this.chart = new LineChart(panel.querySelector(".chart"), {
      fromZero: false, picked: () => {}, read: (text) => { $("alert-key").textContent = text || LEGEND; },
    });
    this.sites = new SortedTable(panel.querySelector(".sites"), {
      caption: "Sources that take part in the alert", cls: "cards", data: (each) => ({ source: each.source, silent: each.silent }),
    });
    this.changes = new SortedTable(panel.querySelector(".changes"), {
      caption: "States of the alert", cls: "cards", data: (each) => ({ state: each.state, since: each.since }),
    });
    this.groups = new SortedTable(panel.querySelector(".groups-of"), {
      caption: "Groups of the alert", cls: "cards", data: (each) => ({ group: JSON.stringify(each.by), state: each.state }),
    });
    this.past = new Newest(
      async (signal, stream, name, answer) => {
        const { states } = await askStates(stream, name, signal, this.#group);
        const values = await askValues(state.stream?.name === stream ? state.stream : null, answer, states, signal);
        return { states, values };
      },
      ({ states, values }, _ms, stream, name) => {
        if (stream !== this.#stream || name !== this.#name) return;
        this.#states = states;
        this.#past = values;
        this.#showChanges();
        this.#draw();
      },
      (error) => { this.#asked = ""; failed(error); },
    );
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
        name: `${this.#stream}-${this.#name}`,
        columns: ["since", "until", "state", "alert", "value", "lower", "upper", "threshold", "explanation"],
        rows: this.#states.map((each) => [CLOCK.time(each.since), each.until === null ? "" : CLOCK.time(each.until), each.state, each.alert,
          each.value, each.lower, each.upper, each.threshold, each.explanation]),
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
    [this.#live, this.#past, this.#states, this.#asked, this.#group] = [[], [], [], "", null];
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
    this.past.cancel();
    this.#stream = this.#name = null;
    this.panel.hidden = true;
  }

  #told(stream, kind, said) {
    if (kind === "state" && said.monitor === this.#name && said.threshold !== undefined) {
      const { value, lower, upper, threshold } = said;
      this.#live.push({ at: Date.now() / 1000, value, lower, upper, threshold });
      if (this.#live.length > MOST_POINTS) this.#live.splice(0, this.#live.length - MOST_POINTS);
      this.#draw();
    } else if (kind === "gone" && said.monitor === this.#name) this.#wasDeleted();
  }

  #wasDeleted() {
    this.leave();
    this.gone();
  }

  async #delete() {
    const [stream, name] = [this.#stream, this.#name];
    if (!await confirmed(`Delete the alert ${name}?`, "Its history is deleted as well. Nobody is told that it has ended.", "Delete")) return;
    try {
      await change("DELETE", streamPath(stream, `/monitors/${encodeURIComponent(name)}`));
    } catch (error) {
      $("alert-error").textContent = error.message;
      return;
    }
    this.#wasDeleted();
  }

  #points() {
    const last = this.#past.at(-1)?.at ?? -Infinity;
    return [...this.#past, ...this.#live.filter((each) => each.at > last)];
  }

  #show(answer) {
    this.#shown = answer;
    const asked = `${answer.epoch} ${answer.since} ${answer.alert.phase}`;
    if (asked !== this.#asked || performance.now() - this.#askedAt > PAST_MS) {
      [this.#asked, this.#askedAt] = [asked, performance.now()];
      this.past.put([this.#stream, this.#name, answer]);
    }
    $("alert-state").replaceChildren(pill(answer.state), ` ${why(answer)}`);
    $("alert-delete").hidden = state.caller?.role !== "admin";
    const takes = answer.sites.length > 0;
    Object.assign(this.panel.dataset, { state: answer.state, silent: answer.silent.join("\n"), sources: answer.sites.length });
    facts($("alert-facts"), [
      ["Watches", told(answer.spec, takes)],
      ["Since", `${CLOCK.time(answer.since)} (${ago(answer.since)})`],
      ["Alert", answer.alert.phase === "inactive" ? "not firing" : `${answer.alert.phase} since ${CLOCK.time(answer.alert.since)}`],
      ...(answer.group_counts ? [["Groups", countsOf(answer.group_counts)]] : [["Value", known(answer, takes)]]),
      ...(takes ? [
        ["Held back", `at most ${number(answer.pending_at_most)}, by all sources together`],
        ["Silent", answer.silent.length ? named(answer.silent) : "none"],
        ["Posts", cost(answer.expected)],
      ] : []),
    ]);
    this.#showGroups(answer);
    this.panel.querySelector(".sites").hidden = !takes;
    if (!takes) return;
    const columns = [
      { name: "Source", value: (each) => each.source },
      { name: "State", value: (each) => (each.silent ? "silent" : "heard of"), show: (each) => (each.silent ? pill("silent") : "heard of") },
      { name: "Lease", value: (each) => each.lease_until, show: (each) => (each.lease_until ? until(each.lease_until) : "none") },
      { name: "Allowance", cls: "number", value: (each) => each.allowance, show: (each) => number(each.allowance) },
      { name: "Last report", value: (each) => each.last_report, show: (each) => (each.last_report ? ago(each.last_report) : "never") },
    ];
    this.sites.show(columns, answer.sites);
  }

  // Each group with its state; a click shows the states that it had.
  #showGroups({ groups, group_counts: counts, spec }) {
    const host = this.panel.querySelector(".groups-of");
    host.hidden = counts === null;
    this.panel.dataset.groups = groups.length;
    if (counts === null) { this.#group = null; return; }
    const names = spec.by ?? [];
    const named = (by) => names.map((name) => `${name}=${by[name]}`).join(", ");
    const pick = (each) => {
      const held = JSON.stringify(each.by);
      const button = element("button", { type: "button", class: "pick", "data-focus": held, "aria-pressed": this.#group === held }, named(each.by));
      button.addEventListener("click", () => this.#choose(held));
      return button;
    };
    this.groups.show([
      { name: "Group", value: (each) => named(each.by), show: pick },
      { name: "State", value: (each) => each.state, show: (each) => pill(each.state) },
      { name: "Value", cls: "number", value: (each) => each.value, show: (each) => shown(spec, each.value) },
      { name: "Interval", cls: "number", show: (each) => (each.value === null ? "–" : between(each)) },
      { name: "Alert", value: (each) => each.alert.phase, show: (each) => (each.alert.phase === "inactive" ? "–" : each.alert.phase) },
      { name: "Since", value: (each) => each.since, show: (each) => element("span", { title: CLOCK.time(each.since) }, ago(each.since)) },
      { name: "Rows", cls: "number", value: (each) => each.rows, show: (each) => (each.gone === null ? number(each.rows) : `none since ${CLOCK.time(each.gone)}`) },
    ], groups);
  }

  #choose(group) {
    this.#group = this.#group === group ? null : group;
    this.#asked = "";
    this.details.put([this.#stream, this.#name]);
  }

  #showChanges() {
    const columns = [
      { name: "State", value: (each) => each.state, show: (each) => pill(each.state) },
      { name: "Since", value: (each) => each.since, show: (each) => CLOCK.time(each.since) },
      { name: "For", cls: "number", value: lasted, show: (each) => CLOCK.duration(lasted(each)) },
      { name: "Why", cls: "wraps", value: (each) => each.explanation },
    ];
    const of = this.#group === null ? "" : ` of ${Object.entries(JSON.parse(this.#group)).map(([name, value]) => `${name}=${value}`).join(", ")}`;
    const listed = this.#states.slice(-MOST_LISTED).reverse();
    this.changes.show(columns, listed);
    this.panel.dataset.states = this.#states.map((each) => each.state).join(" ");
    $("alert-changes").textContent = this.#states.length > MOST_LISTED
      ? `The last ${MOST_LISTED} of ${this.#states.length} states${of} in the last 24 hours` : `States${of} in the last 24 hours`;
  }

  #draw() {
    const points = this.#points();
    this.panel.dataset.points = points.length;
    this.#showAge();
    const grouped = this.#shown?.group_counts ?? null; // each group has a value of its own
    const drawn = points.length > 1 && grouped === null; // what is drawn of another alert is not left standing
    $("alert-wait").hidden = drawn || grouped !== null;
    $("alert-key").hidden = grouped !== null;
    this.chart.host.hidden = !drawn;
    if (!drawn) return;
    const line = (label, estimates, more) => ({
      label, estimates, ...more, values: estimates.map((each) => each.value),
      lower: estimates.map((each) => each.lower), upper: estimates.map((each) => each.upper),
    });
    const times = points.map((each) => each.at);
    const last = points.at(-1);
    const spans = this.#states.map((each) => ({ from: each.since, to: each.until ?? times.at(-1), state: each.state }));
    this.chart.show({
      times, unit: CLOCK, now: null, between: false, spans,
      lines: [
        line("value", points.map((each) => ({ ...each, exact: false })), { main: true }),
        line("threshold", points.map(({ threshold: each }) => ({ value: each, lower: each, upper: each, exact: true })), { limit: true }),
      ],
      label: `${this.#name}, from ${CLOCK.time(times[0])} to ${CLOCK.time(times.at(-1))}; at the end the value is ${number(last.value)}, `
        + `${between(last)}, and the threshold ${number(last.threshold)}. The table below has the states.`,
    });
  }

  #showAge() {
    const quietMs = performance.now() - this.#heard;
    const old = quietMs > QUIET_MS;
    this.panel.classList.toggle("stale", old && this.#points().length > 0);
    if (old) $("alert-key").textContent = `no word for ${CLOCK.duration(quietMs / 1000)}`;
    else if (/^no word/.test($("alert-key").textContent) || !$("alert-key").textContent) $("alert-key").textContent = LEGEND;
  }

  paint() { this.chart.paint(); }
}

function between({ lower, upper }) {
  if (lower !== null && lower === upper) return `${number(lower)}, exact`;
  if (lower === null) return upper === null ? "anything" : `${number(upper)} or less`;
  return upper === null ? `${number(lower)} or more` : `${number(lower)} to ${number(upper)}`;
}

const until = (at) => (at > Date.now() / 1000 ? `${CLOCK.duration(at - Date.now() / 1000)} more` : `ended ${ago(at)}`);

// A value in the unit of what is watched.
function shown(spec, value) {
  if (value === null) return "–";
  if (spec.question === "share" || spec.question === "rank") return value === null ? number(value) : percent(value);
  return spec.question === "rate" ? `${number(value)} per ${state.unit.name}` : number(value);
}

// The value with its interval.
function known({ spec, value, lower, upper }, takes) {
  if (value === null) return "not defined";
  if (lower === upper) return `${shown(spec, value)}, exact`;
  return `${shown(spec, value)}, ${takes ? "with what sources may hold back" : "interval"} ${between({ lower, upper })}`;
}

function countsOf({ firing, uncertain, calm, untracked, untracked_firing: beyond }) {
  const states = `${number(firing)} firing, ${number(uncertain)} uncertain, ${number(calm)} calm`;
  if (!untracked) return states;
  return `${states}; ${number(untracked)} without a state, because the limit is reached${beyond ? `, and ${number(beyond)} of these have reached the threshold` : ""}`;
}

const lasted = ({ since, until: end }) => Math.max(0, (end ?? Date.now() / 1000) - since);

// A spec in words.
function told(spec, takes) {
  const side = spec.above !== undefined ? `above ${shown(spec, spec.above)}` : `below ${shown(spec, spec.below)}`;
  const own = [spec.predicate && `of ${spec.predicate}`, spec.value !== undefined && `of ${number(spec.value)}`,
    spec.q !== undefined && `at ${spec.q}`, spec.of && `of ${spec.of}`, spec.by && `for each ${spec.by.join(", ")}`,
    spec.where && `where ${spec.where}`].filter(Boolean).join(" ");
  const decay = spec.decay ? `decay ${described(spec.decay, state.unit)}` : "the decay of the stream";
  return [`${spec.question}${own ? ` ${own}` : ""} ${side}`, decay, takes && `tolerance ${percent(spec.within ?? 0.05)}`,
    takes && `lease ${CLOCK.duration(spec.lease_s ?? 30)}`, spec.for_s && `fires after ${CLOCK.duration(spec.for_s)}`,
    spec.keep_firing_s && `ends after ${CLOCK.duration(spec.keep_firing_s)}`, spec.webhook].filter(Boolean).join(", ");
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
