// The state of the service: whether it keeps up, how full it is, what it refuses.

import { Newest, reasonOf, request } from "./http.js";
import { element, facts } from "./nodes.js";
import { $ } from "./state.js";
import { SortedTable } from "./tables.js";
import { takings } from "./taking.js";
import { ago, bytes, number, percent, Unit } from "./units.js";

const CLOCK = new Unit("s");
const LOOK_MS = 3000;
const OFF_S = 2; // of a clock, to be told

const seconds = (date) => Date.parse(date) / 1000;

export class Service {
  #open = false;

  constructor(panel, button) {
    Object.assign(this, { panel, button });
    this.refused = new SortedTable($("service-refused"), { caption: "Refused since the process began", cls: "small-table" });
    this.asked = new Newest(
      (signal) => request("/v1/service", undefined, signal),
      (answer) => this.#show(answer),
      (error) => {
        $("service-error").textContent = error.status === 403 ? "This key may not see it: it tells of every stream."
          : reasonOf(error);
        panel.classList.add("stale");
      },
      () => panel.classList.add("stale"),
    );
    button.addEventListener("click", () => this.#turn());
    takings(panel, "the service", {
      asked: () => this.asked.asked, table: () => ({ name: "refused", ...this.refused.csv() }),
    });
    setInterval(() => { if (this.#open && !document.hidden) this.asked.put([]); }, LOOK_MS);
  }

  #turn() {
    this.#open = !this.#open;
    this.panel.hidden = !this.#open;
    this.button.setAttribute("aria-expanded", this.#open);
    if (this.#open) this.asked.put([]);
    else this.asked.cancel();
  }

  #show(answer) {
    this.panel.classList.remove("stale");
    $("service-error").textContent = "";
    const wrong = Object.entries(answer.checks).filter(([, passed]) => passed !== true)
      .map(([name, said]) => (said === false ? name : `${name}: ${said}`));
    const off = Date.now() / 1000 - seconds(answer.now);
    const { disk, versions } = answer;
    facts($("service-facts"), [
      ["Ready", answer.ready ? "yes" : element("strong", { class: "bad" }, `no: ${wrong.join("; ")}`)],
      ["Last post", answer.last_post ? `${ago(seconds(answer.last_post))} (${CLOCK.time(seconds(answer.last_post))})` : "never"],
      ["Backlog", `${number(answer.backlog_posts)} posts, ${number(answer.backlog_rows)} rows; ${number(answer.lag_rows)} not read yet`],
      ["Streams", `${number(answer.streams)}, of ${number(answer.sources)} sources`],
      ["Memory", `${number(answer.resident_rows)} rows held of ${number(answer.resident_rows_limit)} (${percent(answer.resident_rows / answer.resident_rows_limit)})`],
      ["Disk", disk ? `${bytes(disk.free_bytes)} free of ${bytes(disk.total_bytes)} (${percent(disk.free_bytes / disk.total_bytes)}); the database has ${bytes(disk.database_bytes)}` : "the database is elsewhere"],
      ["Versions", `decaysketch ${versions.decaysketch}, Python ${versions.python}, ${versions.database}`],
      ["Runs since", `${CLOCK.time(seconds(answer.since))} (${ago(seconds(answer.since))})`],
      ...(Math.abs(off) > OFF_S ? [["Clock", `this browser's is ${CLOCK.duration(Math.abs(off))} ${off > 0 ? "ahead" : "behind"}`]] : []),
    ]);
    const refused = Object.entries(answer.refused);
    $("service-none").hidden = refused.length > 0;
    $("service-refused").hidden = refused.length === 0;
    this.refused.show([
      { name: "Refused for", value: ([reason]) => reason, show: ([reason]) => element("span", { title: reason }, answer.reasons[reason] ?? reason) },
      { name: "How often", cls: "number", value: ([, count]) => count, show: ([, count]) => number(count) },
    ], refused);
    this.panel.dataset.ready = answer.ready;
  }
}
