// Sources of a stream, for who runs it: who posts, how late, who is silent, what is refused, and whose
// clock is off; to revoke one, and to take that back.

import { refused } from "./access.js";
import { pill } from "./alerts.js";
import { confirmed } from "./dialogs.js";
import { element } from "./nodes.js";
import { $, state } from "./state.js";
import { SortedTable } from "./tables.js";
import { takings } from "./taking.js";
import { ago, named, number, Unit } from "./units.js";
import { onView } from "./views.js";
import { Watching } from "./watching.js";

const CLOCK = new Unit("s");
const ASKED = 1000;

const sum = (numbers) => numbers.reduce((total, each) => total + each, 0);
const seconds = (date) => (date === null ? null : Date.parse(date) / 1000);
const stateOf = (each) => (each.revoked ? "revoked" : each.silent ? "silent" : each.posts ? "posting" : "nothing taken");

// Half of the posts were no later than this bound; Infinity beyond the last.
function typical({ posts }, bounds) {
  let left = sum(posts) / 2;
  const at = posts.findIndex((each) => { left -= each; return left <= 0; });
  return bounds[at] ?? Infinity;
}

// Posts by how late they were, as bars.
function spread({ posts }, bounds) {
  const most = Math.max(...posts, 1);
  const names = [...bounds.map((each) => `up to ${CLOCK.duration(each)}`), `over ${CLOCK.duration(bounds.at(-1))}`];
  const said = posts.map((each, i) => [each, names[i]]).filter(([each]) => each).map(([each, name]) => `${number(each)} ${name}`).join(", ");
  const bars = element("span", { class: "bins", role: "img", "aria-label": said, title: said });
  for (const each of posts) {
    const bar = element("span", { class: each ? "bin" : "bin none" });
    bar.style.setProperty("--share", each / most);
    bars.append(bar);
  }
  return bars;
}

function lateness({ lateness: late }, bounds) {
  if (!late) return "–";
  const half = typical(late, bounds);
  return element("span", {}, spread(late, bounds), ` last ${lateBy(late.latest_s)}, half ${half === Infinity ? "later than " + CLOCK.duration(bounds.at(-1)) : "within " + CLOCK.duration(half)}`);
}

const lateBy = (late) => (late <= 0 ? "at once" : CLOCK.duration(late));

// All that can be said of a clock from how late posts are: a delay is never negative.
function clock({ lateness: late }) {
  if (!late) return "–";
  const least = late.least_s;
  return least < 0 ? element("strong", { class: "bad" }, `ahead, by ${CLOCK.duration(-least)} or more`)
    : `behind by ${least < 1 ? "1 s" : CLOCK.duration(least)} at most`;
}

// How often and why, in the words of the service; the most frequent first.
const reasons = (refused, words) => Object.entries(refused).sort(([, a], [, b]) => b - a)
  .map(([reason, count]) => ({ reason, said: `${number(count)} × ${words[reason] ?? reason}` }));

function refusals({ refused, last_refused: last }, words) {
  const told = reasons(refused, words);
  if (!told.length) return "–";
  return element("div", {}, ...told.map(({ reason, said }) => element("div", { title: reason }, said)),
    element("div", { class: "hint" }, `last ${ago(seconds(last))}`));
}

class Sources extends Watching {
  constructor(panel, { failed }) {
    super(panel, `/sources?limit=${ASKED}`, failed);
    this.table = new SortedTable(panel.querySelector(".found"), {
      caption: "Sources of the stream", cls: "cards", data: (each) => ({ source: each.source, state: stateOf(each) }),
    });
    takings(panel, "the sources", {
      asked: () => this.asked.asked,
      table: () => ({ name: `${this.stream}-sources`, ...this.table.csv() }),
    });
  }

  begin() { this.panel.querySelector(".found").replaceChildren(); }

  show({ sources, since, late_s: bounds, refused_unnamed: unnamed, reasons: words, next }) {
    const columns = [
      { name: "Source", value: (each) => each.source },
      { name: "State", value: stateOf, show: (each) => (stateOf(each) === "posting" ? "posting" : pill(stateOf(each))) },
      { name: "Last post", value: (each) => seconds(each.last_received), show: (each) => (each.last_received ? ago(seconds(each.last_received)) : "never") },
      { name: "Usually every", cls: "number", value: (each) => each.usual_gap_s, show: (each) => (each.usual_gap_s === null ? "–" : CLOCK.duration(Math.max(1e-3, each.usual_gap_s))) },
      { name: "Late", cls: "wraps", value: (each) => each.lateness?.latest_s ?? null, show: (each) => lateness(each, bounds) },
      { name: "Clock", cls: "wraps", value: (each) => (each.lateness ? -each.lateness.least_s : null), show: clock },
      { name: "Posts", cls: "number", value: (each) => each.posts, show: (each) => number(each.posts) },
      { name: "Rows", cls: "number", value: (each) => each.posted_rows, show: (each) => number(each.posted_rows) },
      { name: "Refused", cls: "wraps", value: (each) => sum(Object.values(each.refused)), show: (each) => refusals(each, words) },
    ];
    if (state.caller?.role === "admin") columns.push({ name: "Do", hidden: true, show: (each) => this.#button(each) });
    this.table.show(columns, sources);
    if (!sources.length) this.panel.querySelector(".found").replaceChildren(element("p", { class: "hint" }, "Nobody has posted."));
    const silent = sources.filter((each) => each.silent).map((each) => each.source);
    const said = [
      silent.length ? `Silent: ${named(silent)}.` : "Nobody is silent.",
      Object.keys(unnamed).length ? `Refused without the name of a source: ${reasons(unnamed, words).map(({ said }) => said).join(", ")}.` : "",
      next ? `The first ${number(ASKED)} in order of name.` : "",
      `How late, how often and what was refused is told since this process began, ${CLOCK.time(seconds(since))}.`,
    ];
    $("sources-says").textContent = said.filter(Boolean).join(" ");
    this.panel.dataset.count = sources.length;
  }

  #button({ source, revoked }) {
    const does = revoked ? "Reinstate" : "Revoke";
    const button = element("button", { type: "button", class: "take", "aria-label": `${does} ${source}`, "data-focus": `${does} ${source}` }, does);
    button.addEventListener("click", () => this.#change(source, revoked));
    return button;
  }

  async #change(source, revoked) {
    const asks = revoked
      ? [`Reinstate ${source}?`, "It is admitted again. What it had posted before stays dropped.", "Reinstate"]
      : [`Revoke ${source}?`, "All that it has posted to this stream is dropped for good, and it is refused from now on.", "Revoke"];
    if (await confirmed(...asks)) this.change("POST", `/sources/${encodeURIComponent(source)}/${revoked ? "reinstate" : "revoke"}`, {});
  }
}

onView("sources", new Sources($("sources"), { failed: refused }));
