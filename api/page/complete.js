// A text field that completes the word before the caret: a listbox below it, moved with the arrow keys.

import { element } from "./nodes.js";

const MOST = 10;
let numbered = 0;

export class Completion {
  #asked = 0;
  #place = -1;
  #found = [];

  // `suggest(before)`: {word, options: [{text, note}]} for the text before the caret, or a promise of it.
  // `word` is the part of it that an option replaces.
  constructor(input, suggest) {
    const id = `options-${numbered += 1}`;
    Object.assign(this, { input, suggest, list: element("ul", { id, role: "listbox", class: "options", "aria-label": "Completions", hidden: "" }) });
    for (const [name, value] of Object.entries({ role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": id })) {
      input.setAttribute(name, value);
    }
    input.after(this.list);
    input.parentNode.classList.add("completes");
    input.addEventListener("input", () => this.#open());
    input.addEventListener("focus", () => this.#open());
    input.addEventListener("blur", () => this.#close());
    input.addEventListener("keydown", (event) => this.#pressed(event));
    this.list.addEventListener("mousedown", (event) => {
      event.preventDefault(); // the field keeps the focus
      const at = [...this.list.children].indexOf(event.target.closest("li"));
      if (at >= 0) this.#take(at);
    });
  }

  async #open() {
    const asked = this.#asked += 1;
    const before = this.input.value.slice(0, this.input.selectionStart ?? this.input.value.length);
    const { word, options } = await this.suggest(before);
    if (asked !== this.#asked || document.activeElement !== this.input) return;
    const wanted = word.toLowerCase();
    const begins = options.filter(({ text }) => text.toLowerCase().startsWith(wanted) && text !== word);
    const holds = options.filter((each) => wanted && !begins.includes(each) && each.text.toLowerCase().includes(wanted.replace(/^['"]/, "")));
    this.#found = [...begins, ...holds].filter(({ text }) => text !== word).slice(0, MOST).map((each) => ({ ...each, word }));
    this.#place = -1;
    this.list.replaceChildren(...this.#found.map(({ text, note }, i) => element("li", { id: `${this.list.id}-${i}`, role: "option", "aria-selected": "false" },
      element("span", {}, text), element("span", { class: "hint" }, note ?? ""))));
    this.#show(this.#found.length > 0);
  }

  #show(open) {
    this.list.hidden = !open;
    this.input.setAttribute("aria-expanded", open);
    if (!open) this.input.removeAttribute("aria-activedescendant");
  }

  #close() {
    this.#asked += 1;
    this.#show(false);
  }

  #pressed(event) {
    if (event.key === "Escape") { this.#close(); return; }
    if (this.list.hidden) return;
    const last = this.#found.length - 1;
    if (event.key === "ArrowDown") this.#move(this.#place === last ? 0 : this.#place + 1);
    else if (event.key === "ArrowUp") this.#move(this.#place <= 0 ? last : this.#place - 1);
    else if ((event.key === "Enter" || event.key === "Tab") && this.#place >= 0) this.#take(this.#place);
    else return;
    event.preventDefault();
  }

  #move(place) {
    this.#place = place;
    [...this.list.children].forEach((each, i) => each.setAttribute("aria-selected", i === place));
    this.input.setAttribute("aria-activedescendant", `${this.list.id}-${place}`);
  }

  #take(place) {
    const { text, word } = this.#found[place];
    const caret = this.input.selectionStart;
    const [before, after] = [this.input.value.slice(0, caret - word.length) + text, this.input.value.slice(caret)];
    this.input.value = before + after;
    this.input.setSelectionRange(before.length, before.length);
    this.#close();
    this.input.dispatchEvent(new Event("input", { bubbles: true }));
  }
}
