// Answers as figures, bars and tables.

import { caveatTags } from "./caveats.js";
import { element, svg } from "./nodes.js";
import { SortedTable } from "./tables.js";
import { number, percent, share, told } from "./units.js";

const at = (share) => `${(100 * Math.min(1, Math.max(0, share))).toFixed(3)}%`;

const badge = () => element("strong", { class: "exact" }, "exact");

// The columns of an estimate in a file.
export function estimateParts(name, of) {
  return {
    [name]: (row) => of(row).value, [`${name} lower`]: (row) => of(row).lower, [`${name} upper`]: (row) => of(row).upper,
    [`${name} exact`]: (row) => of(row).exact,
  };
}

export function bounds(estimate, write = (value) => told(estimate, value)) {
  const { lower, upper, exact } = estimate;
  if (estimate.value === null) return element("span", {}, "–");
  if (exact) return badge();
  const text = lower === null && upper === null ? "no interval" : `${lower === null ? "−∞" : write(lower)} – ${upper === null ? "∞" : write(upper)}`;
  const tags = caveatTags(estimate);
  return tags.length ? element("span", {}, element("span", { class: "ends" }, text), " ", ...tags) : element("span", { class: "ends" }, text);
}

// The band around the value, on a track that reaches at least 10 % to either side.
function track({ value, lower, upper }) {
  const reach = Math.max(Math.abs(value) * 0.1, 1.15 * Math.max((upper ?? value) - value, value - (lower ?? value)), 1e-300);
  const place = (each) => 0.5 + (each - value) / (2 * reach);
  const from = place(lower ?? -Infinity);
  const to = place(upper ?? Infinity);
  return svg("svg", { class: "track", "aria-hidden": "true" },
    svg("line", { class: "rail", x1: "0%", x2: "100%", y1: 7, y2: 7 }),
    svg("rect", { class: "band", x: at(from), width: at(Math.min(1, to) - Math.max(0, from)), y: 2, height: 10, rx: 2 }),
    svg("line", { class: "middle", x1: "50%", x2: "50%", y1: 0, y2: 14 }));
}

const LEAST_SHARE = 1e-5; // of the value: what an interval is narrower by is the rounding of sums

// Half of the interval: as a share of the value, or, in the digits of the value, as it is where the value
// is so near zero that the interval reaches to the other side. One that is not exact is never "± 0".
export function spreadOf(estimate) {
  const { value, lower, upper } = estimate;
  if (lower === null || upper === null || !(upper > lower)) return null;
  const half = (upper - lower) / 2;
  if (half >= Math.abs(value)) return `± ${told(estimate, half)}`;
  const part = half / Math.abs(value);
  return part < LEAST_SHARE ? `± < ${percent(LEAST_SHARE)}` : `± ${percent(part)}`;
}

const tables = new WeakMap(); // of a host: its table, which keeps its order

export function tableOf(host, options) {
  if (!tables.has(host)) tables.set(host, new SortedTable(host, options));
  return tables.get(host);
}

// figures: [{id, label, estimate}]. The nodes stay, so that a figure changes and does not blink.
export function showFigures(host, figures, meta) {
  const shape = figures.map((each) => each.id).join();
  if (host.dataset.shape !== shape) {
    host.dataset.shape = shape;
    host.replaceChildren(...figures.map((each) => element("section", { class: "panel figure", "data-figure": each.id },
      element("h3", {}, each.label), element("p", { class: "value" }), element("div", { class: "error-band" }))));
  }
  figures.forEach(({ estimate, unit }, i) => {
    const card = host.children[i];
    Object.assign(card.dataset, {
      value: estimate.value ?? "", lower: estimate.lower ?? "", upper: estimate.upper ?? "",
      exact: estimate.exact, now: meta.now, decay: meta.decay,
    });
    const empty = estimate.value === null;
    card.querySelector(".value").replaceChildren(told(estimate), ...(unit && !empty ? [element("span", { class: "unit" }, ` ${unit}`)] : []));
    const spread = estimate.exact || empty ? null : spreadOf(estimate);
    card.querySelector(".error-band").replaceChildren(...(empty
      ? [element("p", { class: "bounds" }, "no observation has weight")]
      : [...(estimate.exact ? [] : [track(estimate)]),
        element("p", { class: "bounds" }, bounds(estimate),
          ...(spread === null ? [] : [element("span", { class: "spread-of" }, spread)]))]));
  });
}

export function bar({ value, lower, upper, exact }, longest) {
  const drawn = svg("svg", { class: "bar", "aria-hidden": "true" },
    svg("rect", { class: "share", x: "0%", y: 5, width: at(value / longest), height: 14, rx: 2 }));
  if (!exact) {
    const [from, to] = [at((lower ?? 0) / longest), at((upper ?? 1) / longest)];
    drawn.append(
      svg("line", { class: "whisker", x1: from, x2: to, y1: 12, y2: 12 }),
      svg("line", { class: "whisker", x1: from, x2: from, y1: 7, y2: 17 }),
      svg("line", { class: "whisker", x1: to, x2: to, y1: 7, y2: 17 }));
  }
  return drawn;
}

// A value on a scale that others share, with its interval: for aggregates whose zero means nothing.
export function dot({ value, lower, upper, exact }, low, high) {
  const place = (each) => at((each - low) / Math.max(high - low, 1e-300));
  const drawn = svg("svg", { class: "bar", "aria-hidden": "true" }, svg("line", { class: "rail", x1: "0%", x2: "100%", y1: 12, y2: 12 }));
  if (!exact) drawn.append(svg("line", { class: "band", x1: place(lower ?? low), x2: place(upper ?? high), y1: 12, y2: 12 }));
  drawn.append(svg("circle", { class: "dot", cx: place(value), cy: 12, r: 4.5 }));
  return drawn;
}

const SHOWN = 12;

export const keyText = (key) => (typeof key === "object" ? JSON.stringify(key) : String(key));

// Columns of a count: its bar with the interval and, dashed, the end that it surely does not exceed; number, share and bounds.
function countColumns(name, label, of, longest, total) {
  const drawn = (row) => {
    const count = of(row), made = bar(count, longest);
    if (count.sure_upper !== undefined && !count.exact) {
      const end = at(Math.min(1, count.sure_upper / longest));
      made.append(svg("line", { class: "surely", x1: end, x2: end, y1: 3, y2: 21 }));
    }
    return made;
  };
  const surely = (count) => (count.exact || count.sure_upper === undefined ? "" : `≤ ${told(count, count.sure_upper)}`);
  return [
    { name: "", cls: "bar-cell", hidden: true, show: drawn },
    { name, cls: "number", value: (row) => of(row).value, show: (row) => told(of(row)), csv: estimateParts(label, of) },
    { name: "Share", cls: "number", show: (row) => (total > 0 ? share(of(row).value / total) : "") },
    { name: "Interval", cls: "number interval wide", show: (row) => bounds(of(row)) },
    { name: "Surely", cls: "number interval", value: (row) => of(row).sure_upper ?? null, show: (row) => surely(of(row)) },
  ];
}

// Bars of counts, each with its interval and, dashed, the end that it surely does not exceed.
export function showKeys(host, found, total, phi, picked) {
  host.dataset.count = found.length;
  const longest = Math.max(...found.slice(0, SHOWN).map(({ count }) => count.sure_upper ?? count.upper ?? count.value), 1e-300);
  const pick = ({ key }) => {
    const button = element("button", { type: "button", class: "pick", title: "Show it over time", "data-focus": keyText(key) }, keyText(key));
    button.addEventListener("click", () => picked(key));
    return button;
  };
  tableOf(host, {
    caption: "Heaviest keys", cls: "hitters",
    data: ({ key, count, certain }) => ({ key: keyText(key), count: count.value, certain }),
  }).show([
    { name: "Key", cls: "number", value: ({ key }) => (typeof key === "number" ? key : keyText(key)), show: pick },
    ...countColumns("Count", "count", ({ count }) => count, longest, total),
  ], found, { most: SHOWN });
  if (!found.length) host.replaceChildren(element("p", { class: "hint" }, `No key holds more than ${percent(phi)} of the decayed count.`));
}

// Bars of prefixes without their heavy parts. A prefix that only a guaranteed bound keeps in the answer is not drawn.
export function showPrefixes(host, { heavy_prefixes: found, threshold }, total, phi) {
  const likely = found.filter(({ discounted }) => discounted.upper >= threshold);
  host.dataset.count = likely.length;
  const longest = Math.max(...likely.slice(0, SHOWN).map(({ discounted }) => discounted.upper), 1e-300);
  tableOf(host, {
    caption: "Heavy prefixes", cls: "hitters",
    data: ({ prefix, bits, discounted, certain }) => ({ prefix, bits, discounted: discounted.value, certain }),
  }).show([
    { name: "Prefix", cls: "number", value: ({ prefix, bits }) => `${prefix}/${bits}`, show: ({ prefix, bits }) => `${prefix}/${bits}` },
    ...countColumns("Rest", "discounted", ({ discounted }) => discounted, longest, total),
  ], likely, { most: SHOWN });
  if (!likely.length) host.replaceChildren(element("p", { class: "hint" }, `No prefix without its heavy parts holds more than ${percent(phi)} of the decayed count.`));
}

// The self-join over the square of the total: 1 where all events are of one key, 1/n where n keys share them evenly.
export function showSkew(host, total, join) {
  const square = (each) => (each === null || each <= 0 ? null : each * each);
  const over = (above, below) => (above === null || square(below) === null ? null : Math.min(1, above / square(below)));
  const value = over(join.value, total.value);
  if (value === null) {
    host.replaceChildren(element("p", { class: "hint" }, "No event has weight."));
    return;
  }
  const lower = over(join.lower, total.upper) ?? 0;
  const upper = over(join.upper, total.lower) ?? 1;
  Object.assign(host.dataset, { value, lower, upper });
  const decades = 6;
  const place = (each) => at(1 + Math.log10(Math.max(each, 10 ** -decades)) / decades);
  const marks = Array.from({ length: decades / 2 + 1 }, (_, i) => 100 ** -i);
  const drawn = svg("svg", { class: "gauge", role: "img", "aria-label": `Skew ${number(value)}, between ${number(lower)} and ${number(upper)}` },
    svg("line", { class: "rail", x1: "0%", x2: "100%", y1: 8, y2: 8 }),
    svg("line", { class: "band", x1: place(lower), x2: place(upper), y1: 8, y2: 8 }),
    svg("line", { class: "middle", x1: place(value), x2: place(value), y1: 0, y2: 16 }),
    ...marks.map((each, i) => {
      const anchor = i === 0 ? "end" : 2 * i === decades ? "start" : "middle";
      const label = svg("text", { x: place(each), y: 31, "text-anchor": anchor });
      label.textContent = number(1 / each);
      return label;
    }));
  const keys = 1 / Math.max(value, 1e-300);
  const says = element("p", { class: "skew-says" }, element("strong", {}, number(value)),
    ` of 1: as if ${number(keys)} ${keys < 1.5 ? "key" : "keys"} shared all events evenly (between ${number(1 / upper)} and ${lower > 0 ? number(1 / lower) : "∞"}).`);
  host.replaceChildren(drawn, says);
}

// A label, in one line; one of no letters would not be seen.
export function labelText(label) {
  return element("span", { class: "label-text", title: label }, label.trim() === "" ? JSON.stringify(label) : label);
}

export function showHitters(host, hitters, phi) {
  host.dataset.count = hitters.length;
  const labelled = typeof hitters[0]?.value === "string";
  const longest = Math.max(1e-300, ...hitters.slice(0, SHOWN).map(({ frequency }) => frequency.exact ? frequency.value : Math.min(1, frequency.upper ?? 1)));
  tableOf(host, {
    caption: "Heavy hitters", cls: "hitters", data: ({ value, frequency }) => ({ value, share: frequency.value }),
  }).show([
    labelled
      ? { name: "Label", cls: "label", value: ({ value }) => value, show: ({ value }) => labelText(value) }
      : { name: "Value", cls: "number", value: ({ value }) => value, show: ({ value }) => number(value) },
    { name: "", cls: "bar-cell", hidden: true, show: ({ frequency }) => bar(frequency, longest) },
    { name: "Share", cls: "number", value: ({ frequency }) => frequency.value, show: ({ frequency }) => share(frequency.value), csv: estimateParts("share", ({ frequency }) => frequency) },
    { name: "Interval", cls: labelled ? "number interval wide" : "number interval", show: ({ frequency }) => bounds(frequency, share) },
  ], hitters, { most: SHOWN });
  if (!hitters.length) host.replaceChildren(element("p", { class: "hint" }, `No value holds more than ${percent(phi)} of the decayed weight.`));
}

// Fills a <details> with a table, once it is open: most readers never open it.
export function showTable(details, caption, columns, rows) {
  const fill = () => {
    details.querySelector(".scroll")?.remove();
    const table = element("table", {},
      element("caption", { class: "hidden" }, caption),
      element("thead", {}, element("tr", {}, ...columns.map((name) => element("th", { scope: "col", class: "number" }, name)))),
      element("tbody", {}, ...rows.map(([first, ...rest]) => element("tr", {},
        element("th", { scope: "row" }, first), ...rest.map((cell) => element("td", { class: "number" }, cell))))));
    details.append(element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `${caption}, as a table` }, table));
  };
  details.ontoggle = () => { if (details.open) fill(); };
  if (details.open) fill();
}
