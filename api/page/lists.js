// Top-k lists of a stream, as the service certifies them: which items, both ends of their counts, whether
// that is certain, and without which sites.

import { refused } from "./access.js";
import { described } from "./decay.js";
import { confirmed } from "./dialogs.js";
import { element, facts } from "./nodes.js";
import { bar, keyText } from "./panels.js";
import { $, state } from "./state.js";
import { SortedTable } from "./tables.js";
import { takings } from "./taking.js";
import { named, number, Unit } from "./units.js";
import { onView } from "./views.js";
import { Watching } from "./watching.js";

function certificate({ rows, certain, without }) {
  const sites = without.length ? `all sites but ${named(without)}` : "all sites";
  if (certain) return `These are the ${number(rows.length)} largest counts of ${sites}, each exactly.`;
  return `Of ${sites} another item may belong here, or a count lie between its ends: no round has settled it.`;
}

// One list: its nodes stay, so that its table keeps its order.
class OneList {
  constructor(name, { csv, asked, remove }) {
    this.state = element("p", {});
    this.says = element("p", { class: "hint" });
    this.facts = element("dl", { class: "facts" });
    const host = element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `Items of ${name}` });
    this.remove = element("button", { type: "button", class: "take aside", "aria-label": `Delete ${name}` }, "Delete");
    this.remove.addEventListener("click", remove);
    this.panel = element("section", { class: "panel list", "data-list": name, "aria-label": `Top-k list ${name}` },
      element("div", { class: "panel-title beside" }, element("h3", {}, name), this.state, this.remove), this.says, host, this.facts);
    this.table = new SortedTable(host, {
      caption: `Items of ${name}`, cls: "hitters", data: ({ item, lower, upper }) => ({ item: keyText(item), lower, upper }),
    });
    takings(this.panel, `the list ${name}`, { asked, table: () => ({ name: csv, ...this.table.csv() }) });
  }

  show({ spec, time_unit: name, found, round }) {
    const unit = new Unit(name);
    const at = (time) => unit.time(unit.fromStream(time));
    this.remove.hidden = state.caller?.role !== "admin";
    this.state.replaceChildren(found === null ? element("span", { class: "pill" }, "no list yet")
      : element("span", { class: `pill ${found.certain ? "calm" : "uncertain"}` }, found.certain ? "certain" : "not certain"));
    this.says.textContent = found === null ? "No round of it has come to a list." : certificate(found);
    Object.assign(this.panel.dataset, { certain: found?.certain ?? "", without: found?.without.join("\n") ?? "" });
    const rows = (found?.rows ?? []).map((each, i) => ({ ...each, rank: i + 1 }));
    const longest = Math.max(...rows.map(({ upper }) => upper), 1e-300);
    this.table.table.hidden = rows.length === 0;
    this.table.show([
      { name: "Rank", cls: "number", value: ({ rank }) => rank },
      { name: "Item", value: ({ item }) => (typeof item === "number" ? item : keyText(item)) },
      { name: "", cls: "bar-cell", hidden: true, show: ({ lower, upper }) => bar({ value: lower, lower, upper, exact: lower === upper }, longest) },
      { name: "At least", cls: "number", value: ({ lower }) => lower, show: ({ lower }) => number(lower) },
      { name: "At most", cls: "number", value: ({ upper }) => upper, show: ({ upper }) => number(upper) },
    ], rows);
    facts(this.facts, [
      ["As of", found === null ? "–" : at(found.as_of)],
      ["Any other item", found === null ? "–" : `has ${number(found.outside)} at most`],
      ["Without", found?.without.length ? named(found.without) : "nobody"],
      ["Counts", `the ${number(spec.k)} largest, decay ${spec.decay ? described(spec.decay, unit) : "none"}`],
      ["Open round", round.as_of === null ? "none yet"
        : `of ${at(round.as_of)}: ${number(round.heard)} heard, ${round.waiting_for.length ? `waits for ${named(round.waiting_for)}` : "waits for nobody"}`],
    ]);
  }
}

class Lists extends Watching {
  #shown = new Map(); // by name

  constructor(panel, { failed }) { super(panel, "/topk", failed); }

  begin() {
    this.#shown.clear();
    $("found-lists").replaceChildren();
    $("no-lists").hidden = true;
  }

  show({ lists }) {
    $("no-lists").hidden = lists.length > 0;
    const names = new Set(lists.map((each) => each.topk));
    for (const [name, each] of this.#shown) if (!names.has(name)) { each.panel.remove(); this.#shown.delete(name); }
    for (const each of lists) {
      if (!this.#shown.has(each.topk)) {
        const made = new OneList(each.topk, {
          csv: `${this.stream}-${each.topk}`, asked: () => this.asked.asked, remove: () => this.#remove(each.topk),
        });
        this.#shown.set(each.topk, made);
        $("found-lists").append(made.panel);
      }
      this.#shown.get(each.topk).show(each);
    }
  }

  async #remove(name) {
    const sure = await confirmed(`Delete the list ${name}?`, "Its sites learn so from their next request, and what was found is gone.", "Delete");
    if (sure) this.change("DELETE", `/topk/${encodeURIComponent(name)}`);
  }
}

onView("lists", new Lists($("lists"), { failed: refused }));
