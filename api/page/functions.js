// Functions across the sources of a stream: the value with its range, or the frequent keys, and whether
// that is certain.

import { refused } from "./access.js";
import { described } from "./decay.js";
import { confirmed } from "./dialogs.js";
import { element, facts } from "./nodes.js";
import { $, state } from "./state.js";
import { named, number, Unit } from "./units.js";
import { onView } from "./views.js";
import { Watching } from "./watching.js";

const KINDS = { self_join: "Self-join", inner_product: "Inner product", frequent: "Frequent keys" };

function result({ value, low, high, frequent }) {
  if (frequent !== null) return frequent.length ? frequent.join(", ") : "none";
  if (value === null) return "no round yet";
  return `${number(value)}, from ${number(low)} to ${high === null ? "no bound" : number(high)}`;
}

class OneFunction {
  constructor(name, remove) {
    this.state = element("p", {});
    this.says = element("p", { class: "hint" });
    this.facts = element("dl", { class: "facts" });
    this.remove = element("button", { type: "button", class: "take aside", "aria-label": `Delete ${name}` }, "Delete");
    this.remove.addEventListener("click", remove);
    this.panel = element("section", { class: "panel list", "data-function": name, "aria-label": `Function ${name}` },
      element("div", { class: "panel-title beside" }, element("h3", {}, name), this.state, this.remove), this.says, this.facts);
  }

  show({ spec, found }) {
    const unit = new Unit(state.stream.params.time_unit);
    this.remove.hidden = state.caller?.role !== "admin";
    this.state.replaceChildren(element("span", { class: `pill ${found.certain ? "calm" : "uncertain"}` }, found.certain ? "certain" : "not certain"));
    this.says.textContent = found.posts
      ? "Messages would cost more than the events, so the sources post their sketches."
      : found.costly
        ? "Its messages outnumber the events of its sources, which cannot post: name the second stream."
        : "";
    this.says.hidden = !(found.posts || found.costly);
    Object.assign(this.panel.dataset, { certain: found.certain, posts: found.posts, value: found.value ?? "", silent: found.silent.join("\n") });
    facts(this.facts, [
      [KINDS[spec.kind] ?? spec.kind, result(found)],
      ["Within", `${number(100 * spec.theta)} %${spec.threshold === null ? "" : ` of the threshold ${number(spec.threshold)}`}`],
      ["Decay", described(spec.decay, unit)],
      ["Silent", found.silent.length ? named(found.silent) : "nobody"],
      ["Messages", `${number(found.messages)} for ${number(found.arrivals)} events`],
      ...(spec.webhook === null ? [] : [["Alert", `to ${spec.webhook}`]]),
    ]);
  }
}

class SourceFunctions extends Watching {
  #shown = new Map(); // by name

  constructor(panel, { failed }) { super(panel, "/functions", failed); }

  begin() {
    this.#shown.clear();
    $("found-functions").replaceChildren();
  }

  show({ functions }) {
    const names = new Set(functions.map((each) => each.function));
    for (const [name, each] of this.#shown) if (!names.has(name)) { each.panel.remove(); this.#shown.delete(name); }
    for (const each of functions) {
      if (!this.#shown.has(each.function)) {
        const made = new OneFunction(each.function, () => this.#remove(each.function));
        this.#shown.set(each.function, made);
        $("found-functions").append(made.panel);
      }
      this.#shown.get(each.function).show(each);
    }
  }

  async #remove(name) {
    const sure = await confirmed(`Delete the function ${name}?`, "Its sources learn so from their next exchange, and its state is gone.", "Delete");
    if (sure) this.change("DELETE", `/functions/${encodeURIComponent(name)}`);
  }
}

onView("lists", new SourceFunctions($("functions"), { failed: refused }));
