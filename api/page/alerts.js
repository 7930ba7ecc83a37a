// Alerts at a glance: those of every stream, and those of one.

import { element } from "./nodes.js";
import { SortedTable } from "./tables.js";
import { ago, number, Unit } from "./units.js";

const CLOCK = new Unit("s");

const REASONS = {
  allowances: "what sites hold back decides it; they are asked to post",
  sketch: "the error of the sketch decides it",
};

export const pill = (state) => element("span", { class: `pill ${state}` }, state);

// Why it is as it is, in words; "" where nothing is to be added.
export function why({ state, reason, silent, alert }) {
  const sites = Array.isArray(silent) ? silent.length : silent;
  if (reason === "silent") return sites === 1 ? "one site is silent" : `${number(sites)} sites are silent`;
  if (reason) return REASONS[reason] ?? reason;
  if (state === "uncertain") return sites ? "not known yet: sites have to report" : "not found out yet";
  if (alert.phase === "pending") return `holds since ${CLOCK.time(alert.since)}, and does not fire yet`;
  return alert.phase === "firing" && state !== "firing" ? "goes on firing for a while" : "";
}

export class Alerts {
  // `chosen(stream, monitor)`: one was clicked.
  constructor(host, { caption, streams, chosen }) {
    Object.assign(this, { streams, chosen });
    this.table = new SortedTable(host, {
      caption, cls: "cards", data: (each) => ({ monitor: each.monitor, stream: each.stream, state: each.state }),
    });
  }

  // `alerts`: as `GET /v1/monitors` lists them; `open`: the name of the one that is looked at.
  show(alerts, open = null) {
    const name = (each) => {
      const button = element("button", { type: "button", class: "pick", "data-focus": `${each.stream}/${each.monitor}` }, each.monitor);
      if (each.monitor === open) button.setAttribute("aria-current", "true");
      button.addEventListener("click", () => this.chosen(each.stream, each.monitor));
      return button;
    };
    const columns = [
      { name: "Alert", value: (each) => each.monitor, show: name },
      { name: "Stream", value: (each) => each.stream },
      { name: "State", value: (each) => each.state, show: (each) => pill(each.state) },
      { name: "Why", cls: "wraps", value: why, show: (each) => why(each) || "–" },
      { name: "Since", value: (each) => each.since, show: (each) => element("span", { title: CLOCK.time(each.since) }, ago(each.since)) },
      { name: "Value", cls: "number", value: (each) => each.value, show: (each) => number(each.value) },
      { name: "Threshold", cls: "number", value: (each) => each.threshold, show: (each) => number(each.threshold) },
    ];
    this.table.show(this.streams ? columns : columns.filter((each) => each.name !== "Stream"), alerts);
  }
}
