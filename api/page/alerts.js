// Alerts at a glance: those of every stream, and those of one.

import { element } from "./nodes.js";
import { SortedTable } from "./tables.js";
import { ago, number, Unit } from "./units.js";

const CLOCK = new Unit("s");

export const pill = (state) => element("span", { class: `pill ${state}` }, state);

// The state in one sentence, as the service explains it, and what its alert waits for.
export function why({ state, alert, explanation }) {
  if (alert.phase === "pending") return `${explanation} The alert is pending since ${CLOCK.time(alert.since)}.`;
  if (alert.phase === "firing" && state !== "firing") return `${explanation} The alert has not ended yet.`;
  return explanation;
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
