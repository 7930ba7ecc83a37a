// Tables that are put in order by a click on a heading, keep that order when they are shown anew, and
// can be taken along as CSV.

import { element } from "./nodes.js";

const RISING = "ascending";
const FALLING = "descending";

// By which column, and which way; null: as it came.
export class Order {
  by = null;
  falling = false;

  // Rising first, then falling, then as it came.
  turn(name) {
    if (this.by !== name) Object.assign(this, { by: name, falling: false });
    else if (!this.falling) this.falling = true;
    else Object.assign(this, { by: null, falling: false });
  }

  // A copy of the rows in order; what has no value comes last either way.
  of(rows, columns) {
    const column = columns.find((each) => each.name === this.by);
    if (!column) return [...rows];
    const sign = this.falling ? -1 : 1;
    const absent = (value) => value === null || value === undefined || Number.isNaN(value);
    return rows.map((row) => [column.value(row), row]).sort(([a], [b]) => {
      if (absent(a) || absent(b)) return absent(a) - absent(b);
      return sign * (typeof a === "string" || typeof b === "string" ? String(a).localeCompare(String(b), "en", { numeric: true }) : a - b);
    }).map(([, row]) => row);
  }
}

// A row of headings. Those of columns with a `value` are buttons.
export function headings(columns, order, turned) {
  return element("tr", {}, ...columns.map(({ name, cls, value, hidden }) => {
    if (!value) return element(hidden ? "td" : "th", { scope: hidden ? null : "col", class: cls }, hidden ? "" : name);
    const sorted = order.by === name ? (order.falling ? FALLING : RISING) : null;
    const button = element("button", { type: "button", class: "sort" }, name);
    button.addEventListener("click", () => { order.turn(name); turned(name); });
    return element("th", { scope: "col", class: cls, "aria-sort": sorted }, button);
  }));
}

export class SortedTable {
  #order = new Order();
  #columns = [];
  #rows = [];
  #head = "";
  #most = Infinity;

  // `cls`: of the table. `data(row)`: data attributes of a row; `caption`: what it is, for those who do not see it.
  constructor(host, { caption, cls = "", data = () => ({}) }) {
    Object.assign(this, { caption, data, host });
    this.body = element("tbody");
    this.head = element("thead");
    this.more = element("p", { class: "hint" });
    this.table = element("table", { class: cls }, element("caption", { class: "hidden" }, caption), this.head, this.body);
  }

  // columns: [{name, cls, value(row), show(row), csv}]. The first is the heading of its row; those that
  // have a `value` can be put in order by it; `csv`, {name: value(row)}, are its columns in a file.
  // Of the rows, once in order, at most so many are shown.
  show(columns, rows, { most = Infinity } = {}) {
    this.#columns = columns;
    this.#rows = rows;
    this.#most = most;
    if (this.table.parentNode !== this.host) this.host.replaceChildren(this.table, this.more);
    this.more.hidden = rows.length <= most;
    this.more.textContent = `and ${rows.length - most} more`;
    const shape = JSON.stringify([columns.map((each) => [each.name, each.cls]), this.#order.by, this.#order.falling]);
    if (shape !== this.#head) {
      this.#head = shape;
      this.head.replaceChildren(headings(columns, this.#order, (name) => this.#turned(name)));
    }
    // What has the focus is a button of a row: the row that takes its place has one as well.
    const focused = this.body.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
    this.body.replaceChildren(...this.#order.of(rows, columns).slice(0, most).map((row) => this.#row(row)));
    if (focused) this.body.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  // How many columns it has.
  get width() { return this.#columns.length; }

  #turned(name) {
    this.show(this.#columns, this.#rows, { most: this.#most });
    for (const each of this.head.querySelectorAll("button")) if (each.textContent === name) each.focus();
  }

  #row(row) {
    const cells = this.#columns.map(({ name, cls, show, value }, i) => {
      const inside = [show ? show(row) : value(row) ?? "–"].flat();
      return element(i ? "td" : "th", { scope: i ? null : "row", class: cls, "data-label": name }, ...inside);
    });
    const made = element("tr", {}, ...cells);
    for (const [name, value] of Object.entries(this.data(row))) made.dataset[name] = value ?? "";
    return made;
  }

  // All of its rows, in their order: numbers as they are.
  csv() {
    const columns = this.#columns.flatMap(({ name, value, csv }) => (csv ? Object.entries(csv) : value ? [[name, value]] : []));
    const rows = this.#order.of(this.#rows, this.#columns);
    return { columns: columns.map(([name]) => name), rows: rows.map((row) => columns.map(([, value]) => value(row))) };
  }
}
